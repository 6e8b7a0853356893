# A dpdk:// server in one network namespace, clients of the kernel's in another: root only.
.PHONY: test-dpdk-veth
test-dpdk: test-dpdk-veth
test-dpdk-veth: setup dpdk
	$(Q)if test "$$(id -u)" = 0; then CONFORMANCE=veth PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=.:tests \
	    $(VENV)/bin/pytest -q tests/test_conformance.py tests/test_conformance_life.py; \
	else echo "left out, dpdk:// over af_packet and af_xdp: network namespaces need root"; fi
