# One page. `make help` lists the targets; V=1 shows the commands.
SHELL   := /bin/bash
Q       := $(if $(V),,@)
CC      ?= gcc
BUILD   ?= build
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror
CFLAGS  ?= -O2 -g
CSTD    := -std=c11 -D_GNU_SOURCE
NATIVE  := $(sort $(wildcard native/*.c))
HEADERS := $(sort $(wildcard native/*.h tests/native/*.h))
TESTS   := $(sort $(wildcard tests/native/test_*.c))
SAN     := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

.PHONY: help native native-san clean

help:           ## this list
	$(Q)grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

# Every test program is one file linked with the whole core; the sanitizer build is the same programs.
OBJECTS     := $(NATIVE:native/%.c=$(BUILD)/native/%.o)
OBJECTS_SAN := $(NATIVE:native/%.c=$(BUILD)/san/%.o)
PROGRAMS     := $(TESTS:tests/native/%.c=$(BUILD)/%)
PROGRAMS_SAN := $(TESTS:tests/native/%.c=$(BUILD)/san/%)

$(BUILD)/native/%.o: native/%.c $(HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(CFLAGS) -fPIC -Inative -c $< -o $@
$(BUILD)/san/%.o: native/%.c $(HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) -O1 -g $(SAN) -fPIC -Inative -c $< -o $@
$(BUILD)/%: tests/native/%.c $(OBJECTS) $(HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) $(CFLAGS) -Inative $< $(OBJECTS) -o $@ -lpthread -lm
$(BUILD)/san/%: tests/native/%.c $(OBJECTS_SAN) $(HEADERS)
	$(Q)mkdir -p $(@D) && $(CC) $(CSTD) $(WARN) -O1 -g $(SAN) -Inative $< $(OBJECTS_SAN) -o $@ -lpthread -lm

native: $(PROGRAMS)          ## build the C core and run its own tests
	$(Q)set -e; for p in $(PROGRAMS); do $$p; done
native-san: $(PROGRAMS_SAN)  ## the same tests under the address and undefined-behaviour sanitizers
	$(Q)set -e; for p in $(PROGRAMS_SAN); do $$p; done

clean:          ## remove what was built
	$(Q)rm -rf $(BUILD)
.SECONDARY:
