# Whole runs, and what needs a package that no test installs; included by the Makefile.
.PHONY: test-wandb learn-plans
learn-plans: setup           ## CartPole and Pendulum learned under every plan: PRESETS= PLANS= RUN_SEEDS="1 2 3"
	$(Q)PYTHONPATH=. $(VENV)/bin/python tests/programs/plans_learn.py $(if $(PRESETS),--presets $(PRESETS)) \
	    $(if $(PLANS),--plans $(PLANS)) $(if $(RUN_SEEDS),--seeds $(RUN_SEEDS))
test-wandb: setup            ## the real wandb, offline: installs it below build/ and logs a run
	$(Q)$(VENV)/bin/pip install -q --disable-pip-version-check --target $(BUILD)/wandb wandb
	$(Q)PYTHONPATH=.:$(BUILD)/wandb $(VENV)/bin/python tests/programs/wandb_offline.py
