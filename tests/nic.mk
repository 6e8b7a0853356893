# The program that serves without Python, and real cards without a NIC: QEMU guests whose emulated
# PCI cards it drives with DPDK's own drivers.
SERVE := $(BUILD)/replay-serve

.PHONY: appliance

appliance: $(SERVE) ## the server without Python, build/replay-serve; beside it _dpdk.so where make dpdk built one
$(BUILD)/test_compiled $(BUILD)/san/test_compiled: $(wildcard native/appliance/compiled.*)
$(SERVE): $(wildcard native/appliance/*.[ch]) $(OBJECTS) $(HEADERS)
	$(Q)$(CC) $(CSTD) $(WARN) $(CFLAGS) -Inative $(filter %.c,$^) $(OBJECTS) -o $@ -lpthread -lm
