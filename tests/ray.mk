# Runs on Ray, which no other test installs; included by the Makefile.
.PHONY: test-ray ray-packages
RAY := $(BUILD)/ray

# An environment of its own, which has the packages of .venv beside Ray.
$(RAY)/.packages: $(VENV)/.test-packages constraints.txt
	$(Q)echo "test-ray: installing Ray into $(RAY), about 0.3 GB, once"
	$(Q)$(VENV)/bin/python -m venv $(RAY) && $(RAY)/bin/pip install -q --disable-pip-version-check -c constraints.txt ray
	$(Q)$(RAY)/bin/python -c "import site, sys; open(site.getsitepackages()[0] + '/of_tests.pth', 'w').write('import site; site.addsitedir(%r)' % sys.argv[1])" \
	    $$($(abspath $(VENV))/bin/python -c "import site; print(site.getsitepackages()[0])")
	$(Q)touch $@
ray-packages: setup $(RAY)/.packages
test-ray: ray-packages       ## plans on Ray: one host; two nodes, of which a program and a node are lost
	$(Q)PATH="$(abspath $(RAY))/bin:$$PATH" $(RAY)/bin/python -m pytest -q -s tests/programs/ray_run.py
