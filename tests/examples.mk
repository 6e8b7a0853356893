# The training loops of examples/, each in an environment of its own; included by the Makefile.
LOOPS         := cleanrl_dqn sb3_dqn torchrl_dqn
EXAMPLE_STEPS ?= 20000
EXAMPLE_DIR   := $(BUILD)/examples

.PHONY: test-examples

# One wheel for all of them, built as pip builds it for a user.
$(EXAMPLE_DIR)/wheel/.built: $(NATIVE) $(HEADERS) $(wildcard replay_server/*.py replay_server/*/*.py) setup.py pyproject.toml
	$(Q)rm -rf $(@D) && $(PYTHON) -m venv $(EXAMPLE_DIR)/.pip
	$(Q)$(EXAMPLE_DIR)/.pip/bin/pip wheel -q --disable-pip-version-check --no-deps -w $(@D) . && touch $@
$(EXAMPLE_DIR)/%/.ready: examples/%/requirements.txt constraints.txt $(EXAMPLE_DIR)/wheel/.built
	$(Q)$(PYTHON) -m venv $(@D)
	$(Q)$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	$(Q)$(@D)/bin/pip install -q --disable-pip-version-check --no-deps --force-reinstall $(EXAMPLE_DIR)/wheel/*.whl
	$(Q)touch $@
test-examples: $(LOOPS:%=$(EXAMPLE_DIR)/%/.ready) ## CleanRL, SB3 and TorchRL loops, 20 000 steps each: EXAMPLE=
	$(Q)$(PYTHON) tests/programs/run_examples.py --steps $(EXAMPLE_STEPS) --seed $(SEED) $(EXAMPLE)
