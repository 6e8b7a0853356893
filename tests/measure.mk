# How good the tests are: mutants by machine, random programs beside a model; included by the Makefile.
.PHONY: mutants
N     ?= 600
JOBS  ?= $(shell nproc)
mutants: setup  ## bugs made by machine that no test finds: N= SEED= FILES= SINCE=REV ONLY=survivors LISTED=1 SLOW=1 JOBS=
	$(Q)$(VENV)/bin/python -c "import tree_sitter_c" 2> /dev/null \
	    || $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	$(Q)CC="$(CC)" $(VENV)/bin/python tests/mutants/run.py --number $(N) --seed $(SEED) --jobs $(JOBS) --files "$(FILES)" \
	    $(if $(SINCE),--since $(SINCE)) $(if $(ONLY),--only $(ONLY)) $(if $(LISTED),--listed) $(if $(SLOW),--slow) \
	    --build $(BUILD)/mutants

# Random programs of client calls beside a model: a few always, in `make test`; here many, by seed.
.PHONY: model
EXAMPLES ?= 200
model: setup    ## random programs of client calls, threads and kills beside a model: EXAMPLES= SEED=
	$(Q)MODEL_EXAMPLES=$(EXAMPLES) MODEL_SEED=$(SEED) $(VENV)/bin/pytest -q -s tests/oracles/test_model.py
