/* Does it pay to send sampled rows by reference? What a core spends on one datagram whose payload
 * is one row of a large ring, up to handing it to a device that takes it for nothing (net_null):
 * copied into the mbuf, or chained to it as an external buffer. Both compute what every keyless
 * datagram carries, a CRC-32C over all its bytes. A card's DMA is not in it: it reads the bytes
 * either way.
 *
 *     make bench-reference        rows as bench.h has them, then the ratio
 */
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "base/crc32c.h"

enum {
    RING_BYTES = 1 << 30, BURST = 32, BURSTS = 64, ROUNDS = 41, HEADERS = 42 + 56 + 24 + 24,
    ROOM = 9216, MBUFS = 4095, SIZES = 4, RING = 1024,
};
static const uint32_t sizes[SIZES] = {512, 1280, 4096, 8832};

static struct rte_mempool *pool;
static uint8_t *ring;
static uint64_t released;
static struct rte_mbuf_ext_shared_info shared[MBUFS];
static uint64_t state = 88172645463325252u;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void release(void *row, void *unused) {
    (void)row;
    (void)unused;
    released++;
}

static uint8_t *start(struct rte_mbuf *mbuf, uint32_t size) {
    uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
    memset(frame, 7, HEADERS);
    mbuf->data_len = (uint16_t)size;
    mbuf->pkt_len = size;
    return frame;
}

static void seal(uint8_t *frame, uint32_t crc) {
    memcpy(frame + 66, &crc, sizeof crc);
}

static void copied(struct rte_mbuf *mbuf, const uint8_t *row, uint32_t size) {
    uint8_t *frame = start(mbuf, HEADERS + size);
    memcpy(frame + HEADERS, row, size);
    seal(frame, rp_crc32c(0, frame + 42, HEADERS - 42 + size));
}

static void referenced(struct rte_mbuf *mbuf, struct rte_mbuf *tail, uint8_t *row, uint32_t size,
                       struct rte_mbuf_ext_shared_info *info) {
    uint8_t *frame = start(mbuf, HEADERS);
    seal(frame, rp_crc32c(rp_crc32c(0, frame + 42, HEADERS - 42), row, size));
    info->free_cb = release;
    rte_mbuf_ext_refcnt_set(info, 1);
    rte_pktmbuf_attach_extbuf(tail, row, (rte_iova_t)(uintptr_t)row, (uint16_t)size, info);
    tail->data_len = (uint16_t)size;
    CHECK(rte_pktmbuf_chain(mbuf, tail) == 0);
}

/* Nanoseconds a datagram. */
static double round_of(uint16_t device, uint32_t size, int by_reference) {
    uint32_t rows = RING_BYTES / size, used = 0;
    double began = bench_ns();
    for (int i = 0; i < BURSTS; i++) {
        struct rte_mbuf *mbufs[BURST], *tails[BURST];
        uint8_t *row[BURST];
        CHECK(rte_pktmbuf_alloc_bulk(pool, mbufs, BURST) == 0);
        CHECK(!by_reference || rte_pktmbuf_alloc_bulk(pool, tails, BURST) == 0);
        for (int k = 0; k < BURST; k++) {
            row[k] = ring + (size_t)(next_random() % rows) * size;
            __builtin_prefetch(row[k]);
        }
        for (int k = 0; k < BURST; k++) {
            if (by_reference) {
                referenced(mbufs[k], tails[k], row[k], size, &shared[used++ % MBUFS]);
            } else {
                copied(mbufs[k], row[k], size);
            }
        }
        CHECK(rte_eth_tx_burst(device, 0, mbufs, BURST) == BURST);
    }
    return (bench_ns() - began) / (BURSTS * BURST);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint16_t open_device(void) {
    char *arguments[] = {"bench_reference", "--no-huge", "--no-shconf", "--no-pci",
                         "--no-telemetry", "--iova-mode=va", "-m", "128", "--vdev=net_null0",
                         "--log-level=3", "--lcores=0@0"};
    struct rte_eth_conf plain;
    uint16_t device = 0;
    memset(&plain, 0, sizeof plain);
    CHECK(rte_eal_init(11, arguments) >= 0);
    pool = rte_pktmbuf_pool_create("pool", MBUFS, 128, 0, RTE_PKTMBUF_HEADROOM + ROOM,
                                   SOCKET_ID_ANY);
    CHECK(pool && rte_eth_dev_configure(device, 1, 1, &plain) == 0
          && rte_eth_rx_queue_setup(device, 0, RING, 0, NULL, pool) == 0
          && rte_eth_tx_queue_setup(device, 0, RING, 0, NULL) == 0
          && rte_eth_dev_start(device) == 0);
    return device;
}

int main(void) {
    uint16_t device = open_device();
    ring = bench_memory(RING_BYTES);
    for (int i = 0; i < SIZES; i++) {
        double cost[2][ROUNDS];
        struct bench_row row = {"reference", "net_null", "one row a datagram", sizes[i]};
        for (int round = 0; round < ROUNDS; round++) { /* interleaved: both see the same minutes */
            cost[0][round] = round_of(device, sizes[i], 0);
            cost[1][round] = round_of(device, sizes[i], 1);
        }
        qsort(cost[0], ROUNDS, sizeof(double), by_value);
        qsort(cost[1], ROUNDS, sizeof(double), by_value);
        bench_number(&row, "copied", cost[0][ROUNDS / 2], "ns");
        bench_number(&row, "referenced", cost[1][ROUNDS / 2], "ns");
        bench_number(&row, "referenced/copied", cost[1][ROUNDS / 2] / cost[0][ROUNDS / 2], "");
    }
    CHECK(released == (uint64_t)SIZES * ROUNDS * BURSTS * BURST);
    CHECK(rte_mempool_in_use_count(pool) == 0);
    return 0;
}
