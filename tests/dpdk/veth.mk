# A dpdk:// server in one network namespace, clients of the kernel's in another: root only.
VETH_INSTALL := apt-get install -y -q --no-install-recommends iproute2 iputils-ping

.PHONY: test-dpdk-veth veth-packages
test-dpdk: test-dpdk-veth
veth-packages:
	$(Q)mkdir -p $(BUILD); test "$$(id -u)" != 0 || type -P ip tc ping > /dev/null \
	    || { $(VETH_INSTALL) || { apt-get update -q && $(VETH_INSTALL); }; } > $(BUILD)/veth-packages.log 2>&1 \
	    || { echo "network namespaces need ip, tc and ping: apt-get install iproute2 iputils-ping"; exit 1; }
# The conformance tests side by side; the others by themselves, as they count what a loaded machine sends twice.
OVER_VETH = CONFORMANCE=veth PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=.:tests/support:tests/dpdk $(VENV)/bin/pytest -q
test-dpdk-veth: setup dpdk appliance veth-packages
	$(Q)if test "$$(id -u)" = 0; then $(OVER_VETH) -n $(WORKERS) --dist worksteal tests/oracles/test_conformance.py tests/oracles/test_conformance_life.py \
	    && $(OVER_VETH) tests/dpdk/shards.py tests/dpdk/veth.py tests/dpdk/neighbours.py tests/dpdk/interfaces.py tests/dpdk/xdp_use.py tests/dpdk/names.py tests/dpdk/left.py \
	    tests/dpdk/beside.py tests/dpdk/flood.py tests/dpdk/failover.py tests/dpdk/changes.py tests/dpdk/links.py tests/dpdk/programs.py tests/dpdk/reasons.py; \
	else echo "left out, dpdk:// over af_packet and af_xdp: network namespaces need root"; fi
