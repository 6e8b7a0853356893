# What needs a package that no test installs; included by the Makefile.
.PHONY: test-wandb
test-wandb: setup            ## the real wandb, offline: installs it below build/ and logs a run
	$(Q)$(VENV)/bin/pip install -q --disable-pip-version-check --target $(BUILD)/wandb wandb
	$(Q)PYTHONPATH=.:$(BUILD)/wandb $(VENV)/bin/python tests/programs/wandb_offline.py
