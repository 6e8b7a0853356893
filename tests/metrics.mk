# The metrics endpoint before a real Prometheus; included by the Makefile.
PROMETHEUS  := $(BUILD)/prometheus
.PHONY: test-prometheus

# Debian's package, unpacked here: nothing is installed and no service starts.
$(PROMETHEUS)/usr/bin/prometheus:
	$(Q)mkdir -p $(PROMETHEUS) && cd $(PROMETHEUS) && \
	    { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } \
	    && dpkg -x prometheus_*.deb . && touch usr/bin/prometheus
test-prometheus: setup  ## a demo run scraped by Debian's Prometheus: every query of the dashboard answers
	$(Q)if command -v prometheus > /dev/null; then where=$$(dirname $$(command -v prometheus)); \
	    elif command -v apt-get > /dev/null && $(MAKE) -s --no-print-directory $(PROMETHEUS)/usr/bin/prometheus; \
	    then where=$(PROMETHEUS)/usr/bin; \
	    else echo "left out: no prometheus here, and Debian's package could not be fetched"; \
	        [ -z "$$CI" ]; exit $$?; fi; \
	PYTHONPATH=.:tests/support $(ENGINE_PYTHON) tests/programs/prometheus_run.py --binaries $$where
