# The POSIX build (native/os/posix.h), which systems other than Linux get: on this one, and compiled for
# macOS, against the headers and libraries that zig brings. It has not run on macOS.
POSIX_TREE := build/posix/tree
POSIX_ZIG  := build/posix/zig
MACS       := aarch64-macos x86_64-macos

.PHONY: test-posix posix-macos
test-posix: setup  ## the build for systems other than Linux, on Linux: C tests, the suite; compiled for macOS
	$(Q)$(MAKE) -s --no-print-directory POSIX=1 native
	$(Q)$(MAKE) -s --no-print-directory posix-macos
	$(Q)rm -rf $(POSIX_TREE) && mkdir -p $(POSIX_TREE) && git ls-files -z | tar --null -T - -cf - | tar -xf - -C $(POSIX_TREE)
	$(Q)cd $(POSIX_TREE) && git init -q && git add -A && REPLAY_POSIX=1 $(abspath $(VENV))/bin/python setup.py -q build_ext --inplace > ../engine.log 2>&1
	$(Q)cd $(POSIX_TREE) && PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=. $(abspath $(VENV))/bin/pytest -q -n $(WORKERS) --dist loadfile

$(POSIX_ZIG)/.ready:
	$(Q)rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check "ziglang==0.17.1" && touch $@
posix-macos: $(POSIX_ZIG)/.ready  ## the core as a library for macOS, both processors: it compiles and links, no more is known
	$(Q)set -e; for target in $(MACS); do \
	    $(POSIX_ZIG)/bin/python -m ziglang cc -target $$target -std=c11 $(NAMED) -O2 -UNDEBUG $(WARN) -Inative -dynamiclib $(NATIVE) -o build/posix/replay-$$target.dylib; \
	    echo "compiled and linked for $$target: $$(stat -c %s build/posix/replay-$$target.dylib) bytes"; done
