# Atari frames and pixels, where they take longer than `make test` may; included by the Makefile.
STEPS ?= 100000

.PHONY: pong

pong: setup     ## Pong through the server: every stack a learner gets against what the actor saw: STEPS=
	$(Q)PYTHONPATH=.:tests $(VENV)/bin/python tests/pong.py --steps $(STEPS) $(if $(ENV),--env $(ENV))
