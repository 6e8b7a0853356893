# One page. `make help` lists the targets; V=1 shows the commands.
SHELL   := /bin/bash
Q       := $(if $(V),,@)
CC      ?= gcc
BUILD   ?= $(if $(POSIX),build/posix,build)
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror
CFLAGS  ?= -O2 -g
OTHERS  := -DRP_POSIX -DRP_SEGMENT_ALIGN=65536
# What rp_version says; a release changes it in pyproject.toml alone.
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
NAMED   := -DRP_VERSION=$(VERSION)
CSTD    := -std=c11 -D_GNU_SOURCE $(NAMED) $(if $(POSIX),$(OTHERS))
# POSIX=1: the core as other systems compile it, with the larger segments of larger pages; headers
# that only Linux has stop its compiler.
CORE    := $(if $(POSIX),-std=c11 -D_DEFAULT_SOURCE $(NAMED) $(OTHERS) -Itests/posix/linux_only,$(CSTD))
NATIVE  := $(sort $(filter-out native/dpdk/% native/appliance/%,$(wildcard native/*/*.c)))
HEADERS := $(sort $(filter-out native/dpdk/% native/appliance/%,$(wildcard native/*.h native/*/*.h)))
# The compiler notes which headers a file includes; one that is gone stops nothing. A command that
# compiles several files at once has no such notes: it depends on HEADERS.
DEPS     = -MMD -MP -MF $@.d -MT $@
TESTS   := $(sort $(wildcard tests/native/test_*.c))
SAN     := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

COMMA   := ,
PYTHON  ?= python3
VENV    ?= .venv
ENGINE  := replay_server/_engine.abi3.so
ENGINE_PYTHON = $(or $(wildcard $(VENV)/bin/python),python)

.PHONY: help setup engine demo bench test test-known-bugs native native-san native-tsan clean

help:           ## this list
	$(Q)grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

# Every test program is one file linked with the whole core; the sanitizer build is the same programs.
OBJECTS      := $(NATIVE:native/%.c=$(BUILD)/core/%.o)
OBJECTS_SAN  := $(NATIVE:native/%.c=$(BUILD)/san/core/%.o)
OBJECTS_TSAN := $(NATIVE:native/%.c=$(BUILD)/tsan/core/%.o)
PROGRAMS     := $(TESTS:tests/native/%.c=$(BUILD)/%)
PROGRAMS_SAN := $(TESTS:tests/native/%.c=$(BUILD)/san/%)

$(foreach kind,core san/core tsan/core,$(BUILD)/$(kind)/drive/service.o): pyproject.toml # VERSION
$(BUILD)/core/%.o: native/%.c
	$(Q)mkdir -p $(@D) && $(CC) $(CORE) $(WARN) $(DEPS) $(CFLAGS) -fPIC -Inative -c $< -o $@
$(BUILD)/san/core/%.o: native/%.c
	$(Q)mkdir -p $(@D) && $(CC) $(CORE) $(WARN) $(DEPS) -O1 -g $(SAN) -fPIC -Inative -c $< -o $@
$(BUILD)/%: tests/native/%.c $(OBJECTS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(DEPS) $(CFLAGS) -Inative $< $(OBJECTS) -o $@ -lpthread -lm
$(BUILD)/san/%: tests/native/%.c $(OBJECTS_SAN)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(DEPS) -O1 -g $(SAN) -Inative $< $(OBJECTS_SAN) -o $@ -lpthread -lm

# Many tests wait more than they compute: one more at once than there are processors. What a program
# says is shown in one piece; none is begun after one that failed.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 7 ? n + 1 : 8)))
all_of = $(Q)printf '%s\n' $(1) | xargs -P $(WORKERS) -I{} sh -c '{} > {}.txt 2>&1 && cat {}.txt \
    || { cat {}.txt; echo "failed: {}"; exit 255; }' || exit 1
native: $(PROGRAMS)          ## build the C core and run its own tests
	$(call all_of,$(PROGRAMS))
native-san: $(PROGRAMS_SAN) fuzz-replay  ## the same tests under the address and undefined-behaviour sanitizers
	$(call all_of,$(PROGRAMS_SAN))
# What the POSIX build has of its own is native/os alone.
TSAN_POSIX := build/posix/tsan/test_ready build/posix/tsan/test_os
native-tsan: $(BUILD)/tsan/test_pump $(BUILD)/tsan/test_gate $(BUILD)/tsan/test_service $(BUILD)/tsan/test_fork $(TSAN_POSIX) ## the tests of threads under the thread sanitizer
	$(Q)set -e; for p in $^; do $$p; done
TSAN := $(WARN) -Wno-tsan -O1 -g -fsanitize=thread -Inative
$(BUILD)/tsan/core/%.o: native/%.c
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(TSAN) $(DEPS) -c $< -o $@
$(BUILD)/tsan/%: tests/native/%.c $(OBJECTS_TSAN)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(TSAN) $(DEPS) $< $(OBJECTS_TSAN) -o $@ -lpthread -lm
$(TSAN_POSIX): build/posix/tsan/%: tests/native/%.c $(filter native/os/%,$(NATIVE)) $(wildcard tests/native/*.h) $(HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) -std=c11 -D_GNU_SOURCE -DRP_POSIX $(TSAN) $(filter %.c,$^) -o $@ -lpthread -lm

# Packages change seldom and the core often, so each has its own stamp: a changed .c costs no pip.
# pip says nothing for minutes where its output is no terminal: what it has brought is said instead.
PIP   = $(VENV)/bin/pip install -q --disable-pip-version-check
watch = { $(1) & pip=$$!; s=0; while kill -0 $$pip 2> /dev/null; do sleep 1; s=$$((s + 1)); \
    [ $$((s % 10)) -gt 0 ] || echo "setup: $$(du -sm $(VENV) | cut -f1) MB in $(VENV) after $$s s"; done; wait $$pip; }
$(VENV)/.packages: setup.py pyproject.toml constraints.txt MANIFEST.in
	$(Q)echo "setup: installing PyTorch and others into $(VENV), about 1 GB, once"
	$(Q)$(PYTHON) -m venv $(VENV) || { echo "make setup needs: apt-get install python3-venv python3-dev gcc"; exit 1; }
	$(Q)$(call watch,$(PIP) "setuptools>=77" "cffi>=1.16")
	$(Q)$(call watch,$(PIP) --no-build-isolation -c constraints.txt -e '.[train$(COMMA)zmq]')
	$(Q)touch $@
$(VENV)/.test-packages: $(VENV)/.packages
	$(Q)echo "setup: installing what the tests need into $(VENV), about 0.5 GB, once"
	$(Q)$(call watch,$(PIP) --no-build-isolation -c constraints.txt -e '.[test]')
	$(Q)touch $@
$(ENGINE): $(NATIVE) $(HEADERS) replay_server/_build.py pyproject.toml
	$(Q)echo "compiling the C core for Python"; mkdir -p $(BUILD) && { $(ENGINE_PYTHON) setup.py -q build_ext --inplace >$(BUILD)/engine.log 2>&1 \
	    || { cat $(BUILD)/engine.log; exit 1; }; } && touch $@
engine: $(ENGINE)            ## compile the core for Python, in place, with .venv's Python or this shell's

setup: $(VENV)/.test-packages ## make .venv: this package, its compiled core, what training and tests need
	$(Q)$(MAKE) -s --no-print-directory engine
test: export SHOWN = $(abspath $(BUILD))/shown.txt
test: setup veth-packages ## every test, the C ones twice: plain and under sanitizers; a short simulation
	$(Q)mkdir -p $(BUILD) && rm -f $(SHOWN); $(MAKE) -s --no-print-directory dpdk-packages > /dev/null || true # for doctor's tests; told below
	$(Q)$(MAKE) -s --no-print-directory -j2 $(PROGRAMS) $(PROGRAMS_SAN) $(if $(wildcard tests/corpus),$(REPLAYS_SAN)) $(BUILD)/simulate/sim
	$(Q)$(MAKE) -s --no-print-directory native
	$(Q)$(MAKE) -s --no-print-directory native-san $(if $(wildcard tests/corpus),fuzz-replay)
	$(Q)$(MAKE) -s --no-print-directory sim SEEDS=50
	$(Q)echo "native tests: $(words $(PROGRAMS)) programs passed, then again under address and undefined-behaviour sanitizers"
	$(Q)PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/pytest -q -n $(WORKERS) --dist loadfile
	$(Q)$(MAKE) -s --no-print-directory test-dpdk-here
	$(Q)echo "one suite on every transport:" && sed 's/^/  /' $(SHOWN)

include tests/dpdk.mk tests/nic.mk tests/proof.mk tests/atari.mk tests/examples.mk tests/adapters.mk tests/ray.mk tests/envpool.mk tests/package.mk tests/runs.mk tests/posix.mk

# make demo SEED=7 ENV=CartPole-v1 TRANSPORT=loopback MINUTES=6; also udp, zmq, dpdk, dpdk-memif
SEED ?= 1
demo: $(VENV)/.packages $(if $(filter dpdk%,$(TRANSPORT)),dpdk) ## the main job: CartPole learned through the server; SEED= ENV= RUN= TRANSPORT=udp|zmq|dpdk|dpdk-memif|loopback
	$(Q)$(MAKE) -s --no-print-directory engine
	$(Q)$(VENV)/bin/python -m deploy demo --seed $(SEED) $(if $(ENV),--env $(ENV)) \
	    $(if $(TRANSPORT),--transport $(TRANSPORT)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RUN),--run $(RUN))
bench: engine   ## figures of this machine: JSON=file PARTS=tree,table,server,udp,loopback,python
	$(Q)$(ENGINE_PYTHON) -m replay_server bench $(if $(JSON),--json $(JSON)) $(if $(PARTS),--parts $(PARTS))
test-known-bugs: adapters-packages native    ## each known bug patched into a copy of the tree: its named test has to catch it; BUG=name
	$(Q)PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python tests/known_bugs/run.py $(BUG)

# Of programs, then of objects; what is unpacked below build/ has folders named so (etc/init.d).
-include $(wildcard $(foreach depth,*.d */*.d */*/*.o.d */*/*/*.o.d */*/*/*/*.o.d,$(BUILD)/$(depth)))
%.d: ;
clean:          ## remove what was built
	$(Q)rm -rf $(BUILD) replay_server/_engine*.so
.SECONDARY:
include tests/metrics.mk tests/measure.mk tests/docs.mk $(sort $(wildcard benchmarks/*/*.mk))
