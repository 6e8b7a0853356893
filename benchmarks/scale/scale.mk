# Rates as one thing grows, and the model of them; included by the Makefile.
.PHONY: bench-scale bench-model valgrind-here
SCALE := $(BUILD)/bench-scale
SCALE_ROUNDS ?= 5
bench-scale: $(VENV)/.packages ## rates as tables, sessions, batches, items and servers grow: QUICK=1 SCALE_ROUNDS= SEED=
	$(Q)$(MAKE) -s --no-print-directory engine
	$(Q)$(VENV)/bin/python -c "import matplotlib" 2> /dev/null \
	    || $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[plot]'
	$(Q)mkdir -p $(SCALE); $(VENV)/bin/python -m benchmarks.scale.run $(if $(QUICK),--quick) --rounds $(SCALE_ROUNDS) \
	    --seed $(SEED) --json $(SCALE)/scale.jsonl --plot $(SCALE)/scale.png
bench-model: valgrind-here dpdk $(BUILD)/bench_dpdk $(VENV)/.packages ## what a core, eight and a rack should serve, from counts, and how wrong that is; needs valgrind
	$(Q)mkdir -p $(SCALE); $(VENV)/bin/python -m benchmarks.scale.model $(BUILD)/bench_dpdk --json $(SCALE)/model.jsonl
valgrind-here:
	$(Q)command -v valgrind > /dev/null || { echo "valgrind counts the instructions and is missing here: apt-get install valgrind"; exit 1; }
