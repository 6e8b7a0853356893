/* The sum over a frame that dpdk:// takes where its device takes none: ns of one, by size.
 *
 *     make -s build/bench_sum && build/bench_sum
 *
 * Three ways in turns, the quickest of many rounds of each: eight bytes at a time in two plain
 * sums, as it was; in vectors of any processor; and of AVX2, where it has that.
 */
#include <string.h>

#include "bench.h"
#include "check.h"
#include "dpdk/frame.c"

enum { ROUNDS = 400, TIMES = 256, LARGEST = RP_FRAME_HEADERS + 8960 };

static __attribute__((noinline)) uint64_t add_eight(const uint8_t *bytes, uint32_t size) {
    uint64_t low = 0, high = 0;
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t both;
        memcpy(&both, bytes, 8);
        low += (uint32_t)both;
        high += both >> 32;
    }
    return low + high;
}

int main(void) {
    static const struct {
        const char *name;
        uint64_t (*add)(const uint8_t *bytes, uint32_t size);
    } ways[] = {{"eight bytes", add_eight}, {"vectors", add_portable}, {"avx2", add_wide}};
    static const uint32_t sizes[] = {64, 1472, 8960};
    static uint8_t frame[LARGEST];
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double best[3] = {1e9, 1e9, 1e9};
        for (int round = 0; round < 3 * ROUNDS; round++) {
            int way = round % (2 + is_wide());
            double start = bench_ns();
            for (int k = 0; k < TIMES; k++) { /* as it lies in a frame: from its UDP header on */
                sum += ways[way].add(frame + UDP, sizes[i]);
            }
            double each = (bench_ns() - start) / TIMES;
            best[way] = each < best[way] ? each : best[way];
        }
        for (int way = 0; way < 2 + is_wide(); way++) {
            printf("%5u bytes  %-12s %6.0f ns\n", sizes[i], ways[way].name, best[way]);
        }
    }
    CHECK(sum == 0, "of zeros");
    return 0;
}
