# The program that serves without Python, and real cards without a NIC: QEMU guests whose emulated
# PCI cards it drives with DPDK's own drivers.
SERVE := $(BUILD)/replay-serve

NIC   := $(BUILD)/nic
NIC_NEEDS := qemu-system-x86_64 ip unshare
NIC_INSTALL := apt-get install -y -q --no-install-recommends qemu-system-x86 iproute2 util-linux

.PHONY: appliance nic-packages nic-image test-nic

appliance: $(SERVE) ## the server without Python, build/replay-serve; beside it _dpdk.so where make dpdk built one
$(SERVE): $(wildcard native/appliance/*.[ch]) $(OBJECTS) $(HEADERS)
	$(Q)$(CC) $(CSTD) $(WARN) $(CFLAGS) -Inative $(filter %.c,$^) $(OBJECTS) -o $@ -lpthread -lm

nic-packages:
	$(Q)mkdir -p $(NIC); command -v $(NIC_NEEDS) > $(NIC)/needs.txt && test $$(wc -l < $(NIC)/needs.txt) = $(words $(NIC_NEEDS)) \
	    || { test "$$(id -u)" = 0 && { $(NIC_INSTALL) || { apt-get update -q && $(NIC_INSTALL); }; } > $(NIC)/packages.log 2>&1; } \
	    || { echo "missing here: $(NIC_NEEDS): apt-get install qemu-system-x86 iproute2 (this does it where it runs as root)"; exit 1; }
nic-image: nic-packages dpdk appliance
	$(Q)$(VENV)/bin/python tests/nic/image.py $(NIC)
test-nic: setup nic-image ## DPDK's own drivers in QEMU guests with emulated cards: e1000e, virtio, vmxnet3; CARDS=
	$(Q)PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python tests/nic/run.py $(NIC) $(CARDS)
