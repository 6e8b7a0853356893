# The transport dpdk://: its frame parser is tested with everything else, the rest by `make test-dpdk`.
$(BUILD)/test_frame $(BUILD)/san/test_frame: native/dpdk/frame.c native/dpdk/frame.h
