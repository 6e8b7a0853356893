# Mutants of the core by machine, and which of them no test finds; included by the Makefile.
.PHONY: mutants
N     ?= 600
JOBS  ?= $(shell nproc)
mutants: setup  ## bugs made by machine that no test finds: N= SEED= FILES= SINCE=REV ONLY=survivors JOBS=
	$(Q)$(VENV)/bin/python -c "import tree_sitter_c" 2> /dev/null \
	    || $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	$(Q)CC="$(CC)" $(VENV)/bin/python tests/mutants/run.py --number $(N) --seed $(SEED) --jobs $(JOBS) --files "$(FILES)" \
	    $(if $(SINCE),--since $(SINCE)) $(if $(ONLY),--only $(ONLY)) --build $(BUILD)/mutants
