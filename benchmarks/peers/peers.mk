# Replay buffers of others beside ours, in one run; included by the Makefile.
.PHONY: bench-peers
bench-peers: setup ## other replay buffers beside ours, in one run: PEERS=names ITEMS= QUICK=1 FULL=1 LEARN=3 SEED= OUT=folder
	$(Q)$(MAKE) -s --no-print-directory dpdk > $(BUILD)/dpdk.log 2>&1 || echo "bench-peers: without memif: $$(tail -1 $(BUILD)/dpdk.log)"
	$(Q)command -v redis-server > /dev/null || { test "$$(id -u)" = 0 && echo "bench-peers: installing redis-server" \
	    && apt-get install -y -q redis-server > $(BUILD)/redis.log 2>&1; } || echo "bench-peers: without Redis: apt-get install redis-server"
	$(Q)$(VENV)/bin/python -m benchmarks.peers.run --peers "$(PEERS)" $(if $(ITEMS),--items $(ITEMS)) --seed $(SEED) \
	    $(if $(QUICK),--quick) $(if $(FULL),--full) $(if $(LEARN),--learn $(LEARN)) $(if $(OUT),--out $(OUT))
