# Whole runs, and what needs a package that no test installs; included by the Makefile.
.PHONY: test-wandb learn-plans test-page
learn-plans: $(if $(filter ray,$(RUN_ENGINE)),ray-packages,setup) ## CartPole and Pendulum learned under every plan: PRESETS= PLANS= RUN_SEEDS="1 2 3" RUN_ENGINE=ray
	$(Q)PYTHONPATH=. $(if $(filter ray,$(RUN_ENGINE)),$(RAY),$(VENV))/bin/python tests/programs/plans_learn.py $(if $(RUN_ENGINE),--engine $(RUN_ENGINE)) $(if $(PRESETS),--presets $(PRESETS)) \
	    $(if $(PLANS),--plans $(PLANS)) $(if $(RUN_SEEDS),--seeds $(RUN_SEEDS))
test-page: setup             ## the page of a run in a real browser, each plan: pictures in build/page; PLANS=
	$(Q)command -v chromium >/dev/null || apt-get install -y -q chromium >/dev/null || { echo "test-page: needs Debian's chromium: apt-get install chromium" >&2; exit 1; }
	$(Q)PYTHONPATH=. $(VENV)/bin/python tests/programs/page_browser.py $(if $(PLANS),--plans $(PLANS))
test-wandb: setup            ## the real wandb, offline: installs it below build/ and logs a run
	$(Q)$(VENV)/bin/pip install -q --disable-pip-version-check --target $(BUILD)/wandb wandb
	$(Q)PYTHONPATH=.:$(BUILD)/wandb $(VENV)/bin/python tests/programs/wandb_offline.py
