# Atari frames and pixels, where they take longer than `make test` may; included by the Makefile.
STEPS ?= 100000

.PHONY: pong pixel

pong: setup     ## Pong through the server: each sampled stack against what the actor saw: STEPS= ENV=
	$(Q)PYTHONPATH=.:tests/support $(VENV)/bin/python tests/programs/pong.py --steps $(STEPS) $(if $(ENV),--env $(ENV))
# All programs on one core: what `time` calls user and sys together is what a core of its own takes.
pixel: setup    ## pixels learned on one core, curve in RUN: SEED= STACK=1 (cannot be learned) MINUTES=
	$(Q)time PYTHONPATH=.:tests/support taskset -c $${CORE:-0} $(VENV)/bin/python -m deploy demo \
	    --config tests/learning/pixel.toml --seed $(SEED) $(if $(STACK),--stack $(STACK)) \
	    $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RUN),--run $(RUN))
