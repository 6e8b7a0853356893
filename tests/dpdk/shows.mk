# What dpdk:// promises its operators, a target each. The tests are parts of `make test-dpdk`; here they
# tell what they measured, and can run for longer. Root, for network namespaces.
SHOW = PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=.:tests/support:tests/dpdk CONFORMANCE=veth $(VENV)/bin/pytest -v -s
# A memif server's bursts are fuzzed as they are, with the rest of their object beside them.
BURSTS := $(patsubst native/%.c,$(BUILD)/san/%.o,$(filter-out %/dpdk_memif_serve.c,$(DPDK_SOURCES)))

RUNS   ?= 1000000
KILLS  ?= 20
FLAPS  ?= 100

.PHONY: dpdk-programs dpdk-hostile dpdk-failover dpdk-hosts fuzz-memif fuzz-bursts-short

dpdk-programs: setup dpdk veth-packages ## demo, then three actors and a learner, dpdk:// at both ends: over veth and memif
	$(Q)$(SHOW) tests/dpdk/programs.py
$(BUILD)/san/dpdk/%.o: native/dpdk/%.c
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(DEPS) -O1 -g $(SAN) -fPIC -fvisibility=hidden $(DPDK_CFLAGS) -Inative -c $< -o $@
$(BUILD)/san/replay_bursts.o: tests/dpdk/fuzz_bursts.c
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(DEPS) -O1 -g $(SAN) $(DPDK_CFLAGS) -Inative -Itests/native -c $< -o $@
$(BUILD)/san/replay_bursts: $(BUILD)/san/replay_bursts.o $(BURSTS) $(BUILD)/san/tests/fuzz_port.o $(BUILD)/san/tests/fuzz_replay.o $(OBJECTS_SAN)
	$(Q)$(CC) $(SAN) $(filter %.o,$^) -o $@ $(DPDK_LIBS) -lpthread -lm
# A short run in the suite, by any compiler: the kept inputs, and random ones.
test-dpdk: fuzz-bursts-short
fuzz-bursts-short: dpdk-packages
	$(Q)$(MAKE) -s --no-print-directory $(BUILD)/san/replay_bursts
	$(Q)RP_FUZZ_RANDOM=200000 $(BUILD)/san/replay_bursts tests/corpus/bursts
fuzz-memif: dpdk-packages ## libFuzzer on a memif peer's messages, ring and descriptor words, then on the server's bursts: RUNS=
	$(Q)command -v clang llvm-cov > /dev/null || apt-get install -y -q clang llvm libclang-rt-14-dev
	$(Q)PYTHONPATH=tests/support python3 tests/programs/fuzz.py --only memif --runs $(RUNS) --seconds 60 --build $(BUILD)/fuzz
	$(Q)$(MAKE) -s --no-print-directory $(BUILD)/fuzz/fuzz_bursts
	$(Q)mkdir -p $(BUILD)/fuzz/corpus_bursts && $(BUILD)/fuzz/fuzz_bursts -runs=$(RUNS) -max_len=1024 -use_value_profile=1 \
	    -print_final_stats=1 -artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/corpus_bursts tests/corpus/bursts > $(BUILD)/fuzz/bursts.log 2>&1 \
	    || { tail -40 $(BUILD)/fuzz/bursts.log; exit 1; }
	$(Q)sed -n 's/^stat::number_of_executed_units: */fuzz_bursts: found nothing; executions: /p' $(BUILD)/fuzz/bursts.log
$(BUILD)/fuzz/fuzz_bursts: tests/dpdk/fuzz_bursts.c tests/native/fuzz_port.c $(DPDK_SOURCES) $(DPDK_HEADERS)
	$(Q)mkdir -p $(@D) && clang $(CSTD) -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all $(DPDK_CFLAGS) -Inative \
	    -Itests/native $(filter-out %/dpdk_memif_serve.c,$(filter %.c,$^)) native/protocol/flow.c $(wildcard native/base/crc32c*.c) -o $@ $(DPDK_LIBS) -lpthread -lm
# The hostile peer of test_hostile.c, at a server that runs under the sanitizers.
$(BUILD)/san/_dpdk.so: $(DPDK_SOURCES:native/%.c=$(BUILD)/san/%.o)
	$(Q)$(CC) -shared $(SAN) $(filter %.o,$^) -o $@ $(DPDK_LIBS) -lpthread
$(BUILD)/san/test_hostile: tests/dpdk/test_hostile.c $(OBJECTS_SAN)
	$(Q)$(CC) $(CSTD) $(WARN) $(DEPS) -O1 -g $(SAN) -Inative -Itests/native $< $(OBJECTS_SAN) -o $@ -lpthread -lm
dpdk-hostile: setup dpdk veth-packages $(BUILD)/test_hostile ## a hostile memif peer, a million lies under sanitizers too; a hostile neighbour over veth: RUNS=
	$(Q)$(MAKE) -s --no-print-directory $(BUILD)/san/_dpdk.so $(BUILD)/san/test_hostile
	$(Q)RP_HOSTILE=$(RUNS) REPLAY_DPDK=$(abspath $(BUILD))/san/_dpdk.so $(BUILD)/san/test_hostile
	$(Q)RP_HOSTILE=$(RUNS) REPLAY_DPDK=$(abspath $(DPDK_OBJECT)) $(BUILD)/test_hostile
	$(Q)FLOOD=$(RUNS) $(SHOW) tests/dpdk/flood.py
dpdk-hosts: setup veth-packages ## what nic.sh and doctor say of made-up hosts, by name: Open vSwitch, VPN, VF, bond, VRF, hugepages, groups, users
	$(Q)$(SHOW) tests/host/test_nic.py tests/host/test_doctor.py -k "card_in_use or host_by_its_name or ordinary or kernels_words or virtual_function or group"
dpdk-failover: setup dpdk appliance veth-packages ## killed servers and other MACs, flapping links, an address that another host takes, over veth: KILLS= FLAPS=
	$(Q)KILLS=$(KILLS) FLAPS=$(FLAPS) $(SHOW) tests/dpdk/failover.py tests/dpdk/neighbours.py \
	    -k "failover or another_host_that_takes or says_once or comes_back or flap"
