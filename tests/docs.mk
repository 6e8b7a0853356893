# The pages of docs/ and what has to be true of them; included by the Makefile.
.PHONY: docs test-docs docs-packages

# The imports tell whether the extra is there: a clean .venv asks pip once, later calls do not.
docs-packages: setup
	$(Q)$(VENV)/bin/python -c "import check_jsonschema, furo, mypy, myst_parser, pyright, sphinx, sphinx_copybutton" 2> /dev/null \
	    || $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
docs: docs-packages ## README's pages as HTML, build/docs/index.html; a warning is an error
	$(Q)$(VENV)/bin/python -m sphinx -q -W --keep-going -b html -d $(BUILD)/docs-cache docs $(BUILD)/docs
	$(Q)echo "docs: $(abspath $(BUILD))/docs/index.html"
test-docs: docs ## every command, link and Python block of README and docs/, and the pages built
	$(Q)PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/pytest -q -rs tests/docs/checks.py tests/docs/bad_pages.py tests/docs/release.py tests/docs/typed.py
