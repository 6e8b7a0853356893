# The simulator, the fuzzers and what shows that both are tight; included by the Makefile.
SEED        ?= 1
SEEDS       ?= 50
SECONDS     ?= 300
SIM_CFLAGS  ?= -O2 -g
COMMIT      := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
SIM_CORE    := $(filter-out native/transport/% native/drive/%,$(NATIVE)) \
               native/drive/finite.c native/drive/place.c
SIM_FILES   := $(sort $(wildcard tests/native/sim*.c))
OBJECTS_SIM := $(SIM_CORE:native/%.c=$(BUILD)/simulate/core/%.o) \
               $(SIM_FILES:tests/native/%.c=$(BUILD)/simulate/tests/%.o)
COUNTED     := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
FUZZED      := packet server client frame memif
REPLAYS_SAN := $(FUZZED:%=$(BUILD)/san/replay_%)

bench-clients: engine ## many clients of one server: BEFORE=another tree, built, measured in turns with this one
	$(Q)PYTHONPATH=. $(ENGINE_PYTHON) tests/programs/clients_bench.py $(if $(BEFORE),--before $(BEFORE)) $(if $(PARTS),--parts $(PARTS))

.PHONY: bench-clients sim sim-san sim-canaries kill-mapped fuzz fuzz-replay clang-here

# The core with its kill sites armed (native/base/site.h) and its allocations counted.
SIMULATE     = $(CC) $(CSTD) $(WARN) $(DEPS) $(SIM_CFLAGS) -DRP_SIMULATE -Inative
$(BUILD)/simulate/core/%.o: native/%.c
	$(Q)mkdir -p $(@D) && $(SIMULATE) -c $< -o $@
$(BUILD)/simulate/tests/%.o: tests/native/%.c
	$(Q)mkdir -p $(@D) && $(SIMULATE) -c $< -o $@
$(BUILD)/simulate/sim: $(OBJECTS_SIM)
	$(Q)$(CC) $(SIM_CFLAGS) $^ -o $@ -lm $(COUNTED)
sim: $(BUILD)/simulate/sim   ## the simulator: SEED=first SEEDS=how-many
	$(Q)$< --seed $(SEED) --seeds $(SEEDS) --commit $(COMMIT)
sim-san:        ## the same under the sanitizers
	$(Q)$(MAKE) --no-print-directory sim BUILD=$(BUILD)/sim-san SIM_CFLAGS="-O1 -g $(SAN)"
sim-canaries: clang-here ## each known bug of the simulator's properties, and what catches it
	$(Q)python3 tests/known_bugs/run.py --directory tests/canaries

# The kill tests are programs like the others, linked with that core; their own sites count too.
KILL_TESTS  := test_intent test_close_killed
$(KILL_TESTS:%=$(BUILD)/%): $(BUILD)/%: tests/native/%.c $(SIM_CORE:native/%.c=$(BUILD)/simulate/core/%.o)
	$(Q)$(SIMULATE) $(filter %.c %.o,$^) -o $@ -lm
$(BUILD)/san/simulate/%.o: SIM_CFLAGS = -O1 -g $(SAN)
$(BUILD)/san/simulate/%.o: native/%.c
	$(Q)mkdir -p $(@D) && $(SIMULATE) -c $< -o $@
$(KILL_TESTS:%=$(BUILD)/san/%): SIM_CFLAGS = -O1 -g $(SAN)
$(KILL_TESTS:%=$(BUILD)/san/%): $(BUILD)/san/%: tests/native/%.c $(SIM_CORE:native/%.c=$(BUILD)/san/simulate/%.o)
	$(Q)$(SIMULATE) $(filter %.c %.o,$^) -o $@ -lm

# The release build on a shared mapping, killed by its parent.
KILL_FILES  := tests/native/kill_mapped.c $(filter-out tests/native/sim.c,$(SIM_FILES))
ROUNDS      ?= 300
$(BUILD)/kill_mapped: $(KILL_FILES) $(OBJECTS) $(wildcard tests/native/*.h) $(HEADERS)
	$(Q)$(CC) $(CSTD) $(WARN) $(CFLAGS) -Inative $(KILL_FILES) $(OBJECTS) -o $@ -lpthread -lm $(COUNTED)
kill-mapped: $(BUILD)/kill_mapped ## the release build, SIGKILLed at random and attached again: ROUNDS=
	$(Q)$< --seed $(SEED) --rounds $(ROUNDS)

# The kept corpus, replayed by the compiler that builds everything else.
REPLAY_SAN   = $(CC) $(CSTD) $(WARN) $(DEPS) -O1 -g $(SAN) -Inative
$(BUILD)/san/tests/%.o: tests/native/%.c
	$(Q)mkdir -p $(@D) && $(REPLAY_SAN) -c $< -o $@
$(BUILD)/san/replay_%: $(BUILD)/san/tests/fuzz_%.o $(BUILD)/san/tests/fuzz_port.o $(BUILD)/san/tests/fuzz_replay.o $(OBJECTS_SAN)
	$(Q)$(REPLAY_SAN) $(filter %.c %.o,$^) -o $@ -lpthread -lm
$(BUILD)/san/replay_frame: native/dpdk/frame.c
$(BUILD)/san/replay_memif: native/dpdk/memif.c
fuzz-replay: $(REPLAYS_SAN)  ## the kept fuzz inputs again, under the sanitizers
	$(Q)set -e; for t in $(FUZZED); do $(BUILD)/san/replay_$$t tests/corpus/$$t; done
clang-here:
	$(Q)command -v clang > /dev/null && command -v llvm-cov > /dev/null || { mkdir -p $(BUILD); test "$$(id -u)" = 0 \
	    && echo "installing clang" && apt-get install -y -q clang llvm libclang-rt-14-dev > $(BUILD)/clang.log 2>&1; } \
	    || { echo "libFuzzer comes with clang, which is missing here: apt-get install clang llvm libclang-rt-14-dev"; exit 1; }
fuzz: clang-here ## libFuzzer on validator, server, client, frame parser and memif peers: SECONDS= ONLY=frame
	$(Q)PYTHONPATH=tests/support python3 tests/programs/fuzz.py --seconds $(SECONDS) --build $(BUILD)/fuzz $(if $(ONLY),--only $(ONLY))
