# The claims of the paper as experiments, at equal transport, engine and cores; included by the Makefile.
.PHONY: bench-paper bench-paper-page paper-packages
REDIS_INSTALL := apt-get install -y -q --no-install-recommends redis-server
PAPER_OUT  ?= build/bench-paper
PAPER_GRID := $(if $(QUICK),quick,$(if $(FULL),full,default))

# What is missing costs a row, which says so: no failed installation ends the run.
paper-packages: setup
	$(Q)$(VENV)/bin/python -c "import matplotlib" 2> /dev/null || $(PIP) -c constraints.txt -e '.[plot]'
	$(Q)$(MAKE) -s --no-print-directory dpdk || echo "left out, memif, af_packet and af_xdp: see above"
	$(Q)if test "$$(id -u)" = 0; then $(MAKE) -s --no-print-directory veth-packages || true; \
	    else echo "left out, hosts at a switch: network namespaces need root"; fi
	$(Q)type -P redis-server > /dev/null || { test "$$(id -u)" = 0 && mkdir -p $(BUILD) \
	    && { $(REDIS_INSTALL) || { apt-get update -q && $(REDIS_INSTALL); }; } > $(BUILD)/redis-packages.log 2>&1; } \
	    || echo "left out, Redis: apt-get install redis-server"
bench-paper: paper-packages ## the paper's claims as experiments, 12 minutes: QUICK=1 FULL=1 CLAIMS= TRANSPORTS= PAPER_OUT=
	$(Q)$(VENV)/bin/python -m benchmarks.paper --grid $(PAPER_GRID) --out $(PAPER_OUT) --seed $(SEED) \
	    $(if $(CLAIMS),--claims $(CLAIMS)) $(if $(TRANSPORTS),--transports $(TRANSPORTS))
bench-paper-page: ## the tables and pictures of docs/benchmarks-paper.md again, from PAPER_OUT
	$(Q)$(VENV)/bin/python -m benchmarks.paper.page $(PAPER_OUT)
