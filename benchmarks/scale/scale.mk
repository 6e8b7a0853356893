# Rates as one thing grows, and the model of them; included by the Makefile.
.PHONY: bench-scale bench-scale-page bench-ranks bench-model valgrind-here
SCALE := $(BUILD)/bench-scale
SCALE_ROUNDS ?= 5
bench-scale: $(VENV)/.packages ## rates as tables, sessions, batches, items and servers grow: QUICK=1 SCALE_ROUNDS= SEED=
	$(Q)$(MAKE) -s --no-print-directory engine
	$(Q)$(VENV)/bin/python -c "import matplotlib" 2> /dev/null \
	    || $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[plot]'
	$(Q)mkdir -p $(SCALE); $(VENV)/bin/python -m benchmarks.scale.run $(if $(QUICK),--quick) --rounds $(SCALE_ROUNDS) \
	    --seed $(SEED) --json $(SCALE)/scale.jsonl --plot $(SCALE)/scale.png
bench-model: valgrind-here dpdk $(BUILD)/bench_dpdk $(VENV)/.packages ## what a core, eight and a rack should serve, from counts, and how wrong that is; needs valgrind
	$(Q)mkdir -p $(SCALE); $(VENV)/bin/python -m benchmarks.scale.counting $(BUILD)/bench_dpdk --json $(SCALE)/model.jsonl
bench-ranks: setup ## actors and learners from 1 to 64: measured as far as twice the cores, else by a model, 6 minutes: QUICK=1
	$(Q)mkdir -p $(SCALE); $(VENV)/bin/python -m benchmarks.scale.ranks $(if $(QUICK),--quick) --json $(SCALE)/ranks.jsonl
bench-scale-page: ## the tables and pictures of docs/benchmarks-scale.md again, from what was measured
	$(Q)$(VENV)/bin/python -m benchmarks.scale.page $(SCALE)
valgrind-here:
	$(Q)command -v valgrind > /dev/null || { echo "valgrind counts the instructions and is missing here: apt-get install valgrind"; exit 1; }
