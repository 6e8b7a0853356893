# How fast an actor collects, beside the bare environments; included by the Makefile.
.PHONY: bench-collect
bench-collect: setup $(VENV)/.atari ## Pong's steps/s of an actor, in its own process and in lanes, beside bare loops: COLLECT_ROUNDS= LANES=
	$(Q)mkdir -p $(BUILD)/bench-collect; $(VENV)/bin/python -m benchmarks.collect.run --rounds $(or $(COLLECT_ROUNDS),5) \
	    --lanes $(or $(LANES),2) --json $(BUILD)/bench-collect/collect.jsonl
