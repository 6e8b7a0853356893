# The buffers of other libraries with a server behind them; included by the Makefile.
.PHONY: test-adapters adapters-packages

adapters-packages: setup
	$(Q)$(VENV)/bin/python -c "import stable_baselines3, torchrl, tensordict" 2> /dev/null \
	    || $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[sb3,torchrl]'
test-adapters: adapters-packages ## replay_server.integrations against the buffers of Stable-Baselines3 and TorchRL
	$(Q)PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/pytest -q -rs tests/adapters/sb3_buffer.py tests/adapters/torchrl_buffer.py
