# EnvPool as a backend of environments, which no other test installs; included by the Makefile.
.PHONY: test-envpool
ENVPOOL := $(BUILD)/envpool

# An environment of its own, which has the packages of .venv beside EnvPool.
$(ENVPOOL)/.packages: $(VENV)/.test-packages constraints.txt
	$(Q)echo "test-envpool: installing EnvPool into $(ENVPOOL), about 0.8 GB, once"
	$(Q)$(VENV)/bin/python -m venv $(ENVPOOL) && $(ENVPOOL)/bin/pip install -q --disable-pip-version-check -c constraints.txt "envpool>=1.2"
	$(Q)$(ENVPOOL)/bin/python -c "import site, sys; open(site.getsitepackages()[0] + '/of_tests.pth', 'w').write('import site; site.addsitedir(%r)' % sys.argv[1])" \
	    $$($(abspath $(VENV))/bin/python -c "import site; print(site.getsitepackages()[0])")
	$(Q)touch $@
test-envpool: setup $(ENVPOOL)/.packages ## EnvPool's environments beside Gymnasium's, and its games' stacks byte for byte in the table
	$(Q)$(ENVPOOL)/bin/python -m pytest -q -s tests/programs/envpool_run.py
	$(Q)PYTHONPATH=.:tests/support $(ENVPOOL)/bin/python tests/programs/pong.py --steps 20000 --backend envpool
