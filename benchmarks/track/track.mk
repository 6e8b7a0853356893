# Two versions of the tree, operation by operation; included by the Makefile.
.PHONY: bench-track bench-track-alarm
PAIRS ?= 12
TRACK = CC="$(CC)" $(VENV)/bin/python -m benchmarks.track
bench-track: valgrind-here $(VENV)/.packages ## this tree beside BASE=REV: instructions (at most +3 %) and time, in turns: ROWS= PAIRS= (0: no times) KEEP=1
	$(Q)$(TRACK).run --pairs $(PAIRS) --rows "$(ROWS)" --build $(BUILD)/track \
	    $(if $(BASE),--base $(BASE)) $(if $(JSON),--json $(JSON)) $(if $(KEEP),--keep)
bench-track-alarm: valgrind-here $(VENV)/.packages ## a turn of the server slowed by 10 % has to be found, and five unchanged trees not: PAIRS=
	$(Q)$(TRACK).alarm --pairs $(PAIRS) --build $(BUILD)/track
