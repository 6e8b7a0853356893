/* Fuzz target: a memif server's own bursts, on DPDK's mbufs, over the words of a peer's rings and
 * descriptors.
 *
 * The input says how large the peer's rings and regions are, then what happens, step by step, each
 * begun by a byte:
 *     SLOT      which ring, which slot, and the words of its descriptor
 *     HEAD      which ring, and how far the peer says it is
 *     WRITE     region (1), where (2), how long (1), then bytes: the peer's own writing
 *     RECEIVE   slots at most (1); a burst asks for one or more
 *     TRANSMIT  frames (1), and how long each is (2)
 * Beside it runs a model, which knows the protocol and no line of the server's: what a burst takes
 * out of the peer's memory, each byte it leaves there, and when a peer lies. Regions end where the
 * peer said, and a frame's place in an mbuf is followed by bytes that nobody may touch, so that the
 * address sanitizer sees one too far.
 */
#include <sanitizer/asan_interface.h>
#include <sched.h>

#include "check.h"
#include "dpdk/dpdk_memif_serve.c"
#include "fuzz_port.h"

enum { SLOT, HEAD, WRITE, RECEIVE, TRANSMIT, STEPS };
enum {
    MBUFS = 127, ROOM = 512, BEHIND = 64, LOG2 = 5, REGION_MAX = 2048, STEPS_MAX = 96,
    RINGS_MAX = 2 * (RP_MEMIF_AT_SLOTS + (RP_MEMIF_SLOT << LOG2)),
};

struct words { /* of a slot, as the protocol has them */
    uint16_t flags, region;
    uint32_t length, offset;
};

static struct rp_memif_server server;
static struct visitor visitor;
static uint8_t before[RP_MEMIF_REGIONS][REGION_MAX]; /* the model's copy of the regions */
_Static_assert(RINGS_MAX <= (int)REGION_MAX, "the rings' region has a copy too");
static int is_over; /* the peer lied */

/* ---- DPDK, once ---- */

static void guard(struct rte_mempool *pool, void *unused, void *object, unsigned number) {
    const struct rte_mbuf *mbuf = object;
    (void)pool, (void)unused, (void)number;
    ASAN_POISON_MEMORY_REGION((uint8_t *)mbuf->buf_addr + RTE_PKTMBUF_HEADROOM + ROOM, BEHIND);
}

static void start(void) {
    char cores[32], words[][24] = {"fuzz", "--no-huge", "--no-shconf", "--no-pci", "--iova-mode=va",
                                   "--no-telemetry", "-m16", "--log-level=error"};
    char *arguments[RTE_DIM(words) + 1];
    cpu_set_t mine;
    snprintf(cores, sizeof cores, "-l%d", sched_getcpu());
    CHECK(sched_getaffinity(0, sizeof mine, &mine) == 0);
    for (size_t i = 0; i < RTE_DIM(words); i++) {
        arguments[i] = words[i];
    }
    arguments[RTE_DIM(words)] = cores;
    CHECK(rte_eal_init(RTE_DIM(arguments), arguments) >= 0, "DPDK does not start");
    CHECK(sched_setaffinity(0, sizeof mine, &mine) == 0);
    server.pool = rte_pktmbuf_pool_create("fuzz", MBUFS, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM + BEHIND,
                                          SOCKET_ID_ANY);
    CHECK(server.pool, "no mbufs");
    rte_mempool_obj_iter(server.pool, guard, NULL);
}

/* ---- the peer ---- */

static void lend(uint64_t size) {
    struct rp_memif_peer *peer = &visitor.peer;
    struct rp_memif_region *region = &peer->regions[peer->region_count++];
    *region = (struct rp_memif_region){calloc(1, size), size};
    CHECK(region->memory);
}

/* At work: rings that fill their region to the end, and more regions of any size. */
static void let_peer_in(struct fuzz_input *input) {
    struct rp_memif_peer *peer = &visitor.peer;
    uint32_t in = (uint32_t)fuzz_take(input, 1) % (LOG2 + 1);
    uint32_t out = (uint32_t)fuzz_take(input, 1) % (LOG2 + 1);
    uint32_t ring = RP_MEMIF_AT_SLOTS + (RP_MEMIF_SLOT << in);
    uint16_t next = (uint16_t)fuzz_take(input, 2);
    memset(&visitor, 0, sizeof visitor);
    visitor.file = visitor.calls = visitor.called = -1;
    lend(ring + RP_MEMIF_AT_SLOTS + (RP_MEMIF_SLOT << out));
    for (uint64_t more = fuzz_take(input, 1) % RP_MEMIF_REGIONS; more; more--) {
        lend(1 + fuzz_take(input, 2) % REGION_MAX);
    }
    peer->in = (struct rp_memif_ring){peer->regions[0].memory, 1u << in, next, 0};
    peer->out = (struct rp_memif_ring){peer->regions[0].memory + ring, 1u << out, next, 0};
    memcpy(peer->in.memory + RP_MEMIF_AT_HEAD, &next, sizeof next);
    memcpy(peer->out.memory + RP_MEMIF_AT_HEAD, &next, sizeof next);
    peer->state = RP_MEMIF_READY;
    server.room = ROOM;
    server.links = 1;
    server.refused = server.unfit = 0;
    server.lanes[0] = &visitor;
    is_over = 0;
}

static struct rp_memif_ring *ring_of(uint64_t way) {
    return way & 1 ? &visitor.peer.out : &visitor.peer.in;
}

static size_t at_slot(const struct rp_memif_ring *ring, uint32_t ahead) {
    uint32_t index = (ring->next + ahead) % ring->size;
    return (size_t)(ring->memory - visitor.peer.regions[0].memory) + RP_MEMIF_AT_SLOTS
        + (size_t)index * RP_MEMIF_SLOT;
}

/* Words of any kind; half of the time within a region. */
static void write_slot(struct fuzz_input *input) {
    uint32_t kind = (uint32_t)fuzz_take(input, 1), ahead = (uint32_t)fuzz_take(input, 1);
    uint32_t wide = kind & 4 ? 4 : 2;
    struct words words = {(uint16_t)fuzz_take(input, 1), (uint16_t)fuzz_take(input, 1),
                          (uint32_t)fuzz_take(input, wide), (uint32_t)fuzz_take(input, wide)};
    if (kind & 2) {
        words.flags = kind & 8 ? RP_MEMIF_CHAINED : 0;
        words.region = (uint16_t)(words.region % visitor.peer.region_count);
        uint32_t size = (uint32_t)visitor.peer.regions[words.region].size;
        words.offset %= size + 1;
        words.length %= size - words.offset + 1 + (kind >> 7); /* the last one may be too long */
    }
    memcpy(visitor.peer.regions[0].memory + at_slot(ring_of(kind), ahead), &words, sizeof words);
}

static void write_head(struct fuzz_input *input) {
    uint64_t kind = fuzz_take(input, 1);
    struct rp_memif_ring *ring = ring_of(kind);
    uint16_t head = (uint16_t)fuzz_take(input, 2);
    if (kind & 2) {
        head = (uint16_t)(ring->next + head % (ring->size + 1));
    }
    memcpy(ring->memory + RP_MEMIF_AT_HEAD, &head, sizeof head);
}

static void write_bytes(struct fuzz_input *input) {
    uint8_t bytes[UINT8_MAX];
    uint32_t region = (uint32_t)fuzz_take(input, 1), at = (uint32_t)fuzz_take(input, 2);
    uint32_t size = fuzz_take_bytes(input, bytes, (uint32_t)fuzz_take(input, 1));
    if (region < visitor.peer.region_count && at + size <= visitor.peer.regions[region].size) {
        memcpy(visitor.peer.regions[region].memory + at, bytes, size);
    }
}

/* ---- the model ---- */

static void remember(void) {
    for (uint32_t i = 0; i < visitor.peer.region_count; i++) {
        memcpy(before[i], visitor.peer.regions[i].memory, visitor.peer.regions[i].size);
    }
}

/* Where a slot leads in the copy, or null: out of it. */
static uint8_t *lead(const struct rp_memif_ring *ring, uint32_t ahead, struct words *words) {
    memcpy(words, before[0] + at_slot(ring, ahead), sizeof *words);
    return words->region < visitor.peer.region_count
            && (uint64_t)words->offset + words->length <= visitor.peer.regions[words->region].size
        ? before[words->region] + words->offset : NULL;
}

/* How many slots a burst of so many may use; is_over: the peer's head lies. */
static uint32_t usable(const struct rp_memif_ring *ring, uint32_t count) {
    uint16_t head;
    memcpy(&head, ring->memory + RP_MEMIF_AT_HEAD, sizeof head);
    head = (uint16_t)(head - ring->next);
    is_over = head > ring->size;
    return is_over ? 0 : count < head ? count : head;
}

/* The burst moved the ring by so many, and nothing else in it, or was over. */
static void check_end(const struct rp_memif_ring *ring, uint16_t next, uint32_t used) {
    uint16_t end = (uint16_t)(next + used);
    CHECK((server.lanes[0] == NULL) == is_over && server.refused == (uint64_t)is_over);
    if (!is_over && used) {
        memcpy(before[0] + (ring->memory - visitor.peer.regions[0].memory) + RP_MEMIF_AT_TAIL, &end,
               sizeof end);
    }
    CHECK(ring->next == (is_over ? next : end));
    for (uint32_t i = 0; i < visitor.peer.region_count; i++) {
        CHECK(memcmp(before[i], visitor.peer.regions[i].memory, visitor.peer.regions[i].size) == 0,
              "region %u has bytes that were not to change", i);
    }
}

/* ---- bursts ---- */

static void receive(uint32_t count) {
    struct rte_mbuf *mbufs[MBUFS];
    const struct rp_memif_ring *ring = &visitor.peer.in, was = *ring;
    uint16_t next = ring->next;
    uint32_t chained = ring->is_chained, expected = 0, unfit = 0;
    uint64_t unfit_before = server.unfit;
    remember();
    uint32_t used = usable(ring, count), got = rp_memif_receive(&server, 0, mbufs, count);
    for (uint32_t i = 0; i < used && !is_over; i++) {
        struct words words;
        const uint8_t *frame = lead(&was, i, &words);
        is_over = !frame;
        uint32_t is_rest = chained;
        chained = is_over ? chained : words.flags & RP_MEMIF_CHAINED;
        if (is_over || is_rest || chained || words.length > ROOM) {
            unfit += !is_over && !is_rest;
            continue;
        }
        CHECK(expected < got, "a frame was not taken");
        const struct rte_mbuf *mbuf = mbufs[expected++];
        CHECK(mbuf->data_len == words.length && mbuf->pkt_len == words.length
              && mbuf->nb_segs == 1 && !mbuf->next);
        CHECK(memcmp(rte_pktmbuf_mtod(mbuf, const void *), frame, words.length) == 0);
    }
    CHECK(got == expected, "%u frames, not %u", got, expected);
    CHECK(server.unfit == unfit_before + unfit);
    check_end(ring, next, used);
    rte_pktmbuf_free_bulk(mbufs, got);
}

static void transmit(uint32_t count, uint32_t size) {
    struct rte_mbuf *mbufs[MBUFS];
    const struct rp_memif_ring *ring = &visitor.peer.out;
    uint8_t frame[ROOM];
    uint16_t next = ring->next;
    uint32_t expected = 0;
    CHECK(rte_pktmbuf_alloc_bulk(server.pool, mbufs, count) == 0, "mbufs are missing");
    memset(frame, 0xA5, sizeof frame);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(rte_pktmbuf_append(mbufs[i], (uint16_t)size), frame, size);
    }
    remember();
    uint32_t used = usable(ring, count);
    while (expected < used && !is_over) {
        struct words words;
        size_t at = at_slot(ring, expected);
        uint8_t *to = lead(ring, expected, &words);
        is_over = !to;
        if (to) {
            uint32_t length = size <= words.length ? size : 0;
            memcpy(to, frame, length);
            memset(before[0] + at, 0, sizeof words.flags);
            memcpy(before[0] + at + offsetof(struct words, length), &length, sizeof length);
            expected++;
        }
    }
    uint32_t sent = rp_memif_transmit(&server, 0, mbufs, count);
    CHECK(sent == expected, "%u frames, not %u", sent, expected);
    check_end(ring, next, sent);
    rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input input = {data, size};
    if (!server.pool) {
        start();
    }
    let_peer_in(&input);
    for (uint32_t steps = 0; !is_over && input.size && steps < STEPS_MAX; steps++) {
        uint32_t step = (uint32_t)fuzz_take(&input, 1) % STEPS;
        if (step == SLOT) {
            write_slot(&input);
        } else if (step == HEAD) {
            write_head(&input);
        } else if (step == WRITE) {
            write_bytes(&input);
        } else if (step == RECEIVE) {
            receive(1 + (uint32_t)fuzz_take(&input, 1) % MBUFS);
        } else {
            uint32_t count = 1 + (uint32_t)fuzz_take(&input, 1) % MBUFS;
            transmit(count, (uint32_t)fuzz_take(&input, 2) % (ROOM + 1));
        }
    }
    struct rte_mbuf *none[1];
    CHECK(!is_over || (!rp_memif_receive(&server, 0, none, 1)
                       && !rp_memif_transmit(&server, 0, none, 1)), "a liar is served");
    CHECK(rte_mempool_avail_count(server.pool) == MBUFS, "%u mbufs of %u",
          rte_mempool_avail_count(server.pool), MBUFS);
    for (uint32_t i = 0; i < visitor.peer.region_count; i++) {
        free(visitor.peer.regions[i].memory);
    }
    return 0;
}
