# What dpdk:// promises its operators, a target each. The tests are parts of `make test-dpdk`; here they
# tell what they measured, and can run for longer. Root, for network namespaces.
SHOW = PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=.:tests:tests/dpdk CONFORMANCE=veth $(VENV)/bin/pytest -v -s

.PHONY: dpdk-programs

dpdk-programs: setup dpdk veth-packages ## demo, then three actors and a learner, dpdk:// at both ends: over veth and memif
	$(Q)$(SHOW) tests/dpdk/programs.py
