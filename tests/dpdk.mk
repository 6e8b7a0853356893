# The transport dpdk://, a second shared object; its frame parser is tested with everything else, the
# rest by `make test-dpdk`, which installs what it needs; `make test` ends in it.
DPDK_OBJECT  := replay_server/_dpdk.so
DPDK_SOURCES := $(sort $(wildcard native/dpdk/*.c))
DPDK_HEADERS := $(sort $(wildcard native/dpdk/*.h tests/dpdk/*.h tests/native/*.h)) $(HEADERS)
# the drivers of memif clients and raw sockets are linked in, so that their system calls are ours: dpdk_quiet.c, dpdk_gone.c, dpdk_packet.c
DPDK_MEMIF   := -Wl,--wrap=close,--wrap=munmap,--wrap=sendmsg,--wrap=recvmsg,--wrap=connect,--wrap=setsockopt,--exclude-libs,ALL -Wl,--whole-archive -l:librte_net_memif.a -l:librte_net_af_packet.a -Wl,--no-whole-archive
DPDK_LIBS    := $(DPDK_MEMIF) -lrte_net_ring -lrte_bus_vdev -lrte_ethdev -lrte_mbuf -lrte_mempool -lrte_ring -lrte_eal \
    -lrte_hash -lrte_kvargs -lrte_net -lbsd
DPDK_CFLAGS   = $(patsubst -I%,-isystem %,$(shell pkg-config --cflags libdpdk))
HAVE_DPDK     = command -v pkg-config > /dev/null && pkg-config --exists libdpdk
DPDK_NEEDS   := DPDK is missing here: apt-get install libdpdk-dev pkg-config (this does it where it runs as root)
DPDK_INSTALL  = apt-get install -y -q --no-install-recommends libdpdk-dev pkg-config

.PHONY: dpdk dpdk-packages test-dpdk test-dpdk-sleep test-dpdk-here test-dpdk-long bench-reference bench-dpdk

dpdk-packages:
	$(Q)mkdir -p $(BUILD); $(HAVE_DPDK) || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
	    && { $(DPDK_INSTALL) || { apt-get update -q && $(DPDK_INSTALL); }; } > $(BUILD)/dpdk-packages.log 2>&1; } \
	    || { echo "$(DPDK_NEEDS)"; exit 1; }
dpdk: dpdk-packages ## the transport dpdk://, replay_server/_dpdk.so; installs DPDK where it runs as root
	$(Q)$(MAKE) -s --no-print-directory $(DPDK_OBJECT)
$(DPDK_OBJECT): $(DPDK_SOURCES) $(wildcard native/dpdk/*.h) $(HEADERS)
	$(Q)$(CC) $(CSTD) $(WARN) $(CFLAGS) -fPIC -shared -fvisibility=hidden -Wl,-z,defs $(DPDK_CFLAGS) \
	    -Inative $(DPDK_SOURCES) -o $@ $(DPDK_LIBS) -lpthread
test-dpdk: setup dpdk $(BUILD)/test_dpdk $(BUILD)/test_memif $(BUILD)/test_faults $(BUILD)/test_share $(BUILD)/test_netlink $(BUILD)/test_channels $(BUILD)/test_gone $(BUILD)/test_hostile $(BUILD)/test_linger $(BUILD)/test_lend $(BUILD)/test_watched $(BUILD)/test_socket $(BUILD)/test_forks $(BUILD)/test_sleep ## the transport dpdk:// over net_ring and memif: unprivileged, no hugepages
	$(Q)$(BUILD)/test_share
	$(Q)$(BUILD)/test_netlink
	$(Q)$(BUILD)/test_channels
	$(Q)$(BUILD)/test_gone
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_dpdk
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_memif
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_faults
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_hostile
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_linger
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_lend
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_watched
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_socket
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_forks
	$(Q)$(MAKE) -s --no-print-directory test-dpdk-sleep
	$(Q)CONFORMANCE=dpdk PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=.:tests/support $(VENV)/bin/pytest -q -n $(WORKERS) --dist worksteal \
	    tests/oracles/test_conformance.py tests/oracles/test_conformance_life.py tests/dpdk/processes.py tests/dpdk/without.py tests/dpdk/ladder.py
	$(Q)PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=.:tests/support $(VENV)/bin/pytest -q tests/dpdk/huge.py # alone: it sets the host's pages
	$(Q)PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/pytest -q tests/host/test_units.py -k "dpdk_serve or virtual_devices"
test-dpdk-sleep: dpdk $(BUILD)/test_sleep
	$(Q)REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_sleep
test-dpdk-long: dpdk $(BUILD)/test_memif $(BUILD)/test_hostile ## memif clients killed under full traffic, a hundred rounds; a hostile one, a million lies
	$(Q)RP_KILL_ROUNDS=100 REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_memif
	$(Q)RP_HOSTILE=1000000 REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_hostile
# What `make test` runs of it: all, or one line that says what was left out and why; in CI it is there.
test-dpdk-here:
	$(Q)mkdir -p $(BUILD); if $(MAKE) -s --no-print-directory dpdk-packages > $(BUILD)/dpdk-packages.txt; then \
	    $(MAKE) -s --no-print-directory test-dpdk; \
	else echo "left out, dpdk://: $$(cat $(BUILD)/dpdk-packages.txt)"; test -z "$$CI"; fi
bench-dpdk: valgrind-here dpdk $(BUILD)/bench_dpdk ## instructions of a datagram and an item, and the share of 40 GbE on paper; needs valgrind
	$(Q)$(PYTHON) benchmarks/dpdk_cost.py $(BUILD)/bench_dpdk
bench-reference: dpdk-packages $(BUILD)/bench_reference ## rows copied or referenced: what one datagram costs
	$(Q)$(BUILD)/bench_reference
$(BUILD)/bench_reference: tests/dpdk/bench_reference.c $(OBJECTS)
	$(Q)$(CC) $(CSTD) $(WARN) $(DEPS) $(CFLAGS) $(DPDK_CFLAGS) -Inative -Itests/native $< $(OBJECTS) -o $@ \
	    -lrte_ethdev -lrte_mbuf -lrte_mempool -lrte_eal -lpthread -lm
SHARED := native/dpdk/dpdk_share.c native/dpdk/dpdk_quiet.c native/dpdk/dpdk_forks.c native/dpdk/frame.c native/base/random.c
$(BUILD)/test_share: tests/dpdk/test_share.c $(SHARED) $(DPDK_HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(CFLAGS) $(DPDK_CFLAGS) -Inative -Itests/native $< $(SHARED) -o $@ \
	    -Wl,--wrap=close,--wrap=munmap -lrte_ethdev -lrte_mbuf -lrte_mempool -lrte_ring -lrte_net_ring -lrte_eal -lpthread
$(BUILD)/test_gone: tests/dpdk/test_gone.c native/dpdk/dpdk_gone.c native/dpdk/memif.c $(DPDK_HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(CFLAGS) $(DPDK_CFLAGS) -Inative -Itests/native $< native/dpdk/dpdk_gone.c native/dpdk/memif.c -o $@
$(BUILD)/test_channels: tests/dpdk/test_channels.c native/dpdk/dpdk_channels.c $(DPDK_HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(CFLAGS) $(DPDK_CFLAGS) -Inative -Itests/native $< native/dpdk/dpdk_channels.c -o $@ -Wl,--wrap=ioctl
$(BUILD)/test_netlink: tests/dpdk/test_netlink.c native/dpdk/dpdk_links.c $(DPDK_HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(CFLAGS) $(DPDK_CFLAGS) -Inative -Itests/native $< native/dpdk/dpdk_links.c -o $@ \
	    -Wl,--wrap=socket,--wrap=setsockopt,--wrap=send,--wrap=recv
$(BUILD)/test_dpdk $(BUILD)/test_memif $(BUILD)/test_faults $(BUILD)/test_hostile $(BUILD)/test_linger $(BUILD)/test_lend $(BUILD)/test_watched $(BUILD)/test_socket $(BUILD)/test_forks $(BUILD)/test_sleep $(BUILD)/bench_dpdk: $(BUILD)/%: tests/dpdk/%.c $(OBJECTS)
	$(Q)$(CC) $(CSTD) $(WARN) $(DEPS) $(CFLAGS) -Inative -Itests/native $< $(OBJECTS) -o $@ -lpthread -lm
include tests/dpdk/veth.mk tests/dpdk/shows.mk
