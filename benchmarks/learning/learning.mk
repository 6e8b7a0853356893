# Learning through the server beside learning in process; included by the Makefile.
.PHONY: bench-learning
bench-learning: setup ## is learning through the server slower than from a buffer in the process? 30 minutes: TASKS="cartpole pixel" SEEDS=
	$(Q)$(VENV)/bin/python -c "import matplotlib" 2> /dev/null \
	    || $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[plot]'
	$(Q)$(VENV)/bin/python -m benchmarks.learning.run $(if $(TASKS),--tasks $(TASKS)) $(if $(SEEDS),--seeds $(SEEDS))
