/* Links that share a device (dpdk_share.c), over rings in place of one: whose frames are whose, the
 * bound of a link that never looks, and links that come and go from four threads while frames come.
 * Unprivileged, no hugepages; run by `make test-dpdk`.
 */
#include <pthread.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ring.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>

#include "check.h"
#include "dpdk/dpdk_parts.h"
#include "base/random.h"

enum {
    MBUFS = 1023, ROOM = 256, WIRE = 1024, FRAME = 64, NUMBER = 42, /* where a frame has its own */
    THREADS = 4, LIVES = 60, FRAMES = 200, LOOKS = 1000000, YIELD_EVERY = 4, PORT = 50000,
};

static struct rte_mempool *pool;
static struct rte_ring *wire; /* what the device receives */
static struct rp_lane lane;
static uint32_t numbers;
static uint64_t seed;

uint32_t rp_wire_number(void) {
    return numbers++;
}

void rp_memif_closed(int file) {
    (void)file;
}

/* ---- frames ---- */

static const struct rp_frame_host server = {{2, 10, 0, 0, 0, 1}, {10, 0, 0, 1}, 7400, 0, 0};

static struct rte_mbuf *make(uint16_t port, uint64_t number) {
    struct rp_frame_host to = {{2, 10, 0, 0, 0, 2}, {10, 0, 0, 2}, port, 0, 0};
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
    if (mbuf) {
        uint8_t *frame = (uint8_t *)rte_pktmbuf_append(mbuf, FRAME);
        memset(frame, 0, FRAME);
        memcpy(frame + NUMBER, &number, sizeof number);
        rp_frame_write(frame + RP_FRAME_HEADERS, FRAME - RP_FRAME_HEADERS, &server, &to,
                       RP_FRAME_NO_SUM);
    }
    return mbuf;
}

static int come(struct rte_mbuf *mbuf) {
    if (mbuf && rte_ring_enqueue(wire, mbuf)) {
        rte_pktmbuf_free(mbuf);
        mbuf = NULL;
    }
    return mbuf != NULL;
}

static void arp_comes(int is_answer) {
    struct rp_frame_host asker = {{2, 10, 0, 0, 0, 2}, {10, 0, 0, 2}, 0, 0, 0};
    struct rte_mbuf *mbuf = make(PORT, 0);
    CHECK(mbuf);
    uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
    rp_frame_ask(frame, &asker, server.ip);
    if (is_answer) {
        rp_frame_answer_arp(frame, &server);
    }
    CHECK(come(mbuf));
}

static uint64_t number_of(const struct rte_mbuf *mbuf) {
    uint64_t number;
    memcpy(&number, rte_pktmbuf_mtod(mbuf, const uint8_t *) + NUMBER, sizeof number);
    return number;
}

/* ---- a link, as a port is one ---- */

struct link {
    struct rp_share *share;
    struct rp_seat seat;
    struct rp_bursts bursts;
    uint16_t port;
};

static void join(struct link *link, struct rp_share *share, uint16_t port) {
    memset(link, 0, sizeof *link);
    link->share = share;
    link->port = port;
    CHECK(rp_share_join(share, &link->seat) == 0);
    CHECK(rp_share_name(share, &link->seat, port) == 0);
    rp_bursts_open(&link->bursts);
}

static void leave(struct link *link) {
    rp_bursts_close(&link->bursts);
    rp_share_leave(link->share, &link->seat);
}

static uint32_t receive(struct link *link, struct rte_mbuf **mbufs, uint32_t count) {
    rp_burst_begin(&link->bursts);
    uint32_t got = atomic_load_explicit(&link->share->is_shared, memory_order_relaxed)
        ? rp_share_receive(link->share, &link->seat, &lane, 0, mbufs, count)
        : rte_eth_rx_burst(lane.device, lane.queue, mbufs, (uint16_t)count);
    rp_burst_end(&link->bursts);
    return got;
}

/* One look; the frames' numbers, if they are wanted, are those from `next` on. */
static uint32_t look(struct link *link, uint64_t next) {
    struct rte_mbuf *mbufs[RP_BURST];
    uint32_t got = receive(link, mbufs, RP_BURST);
    for (uint32_t i = 0; i < got; i++) {
        uint32_t to = rp_frame_addressee(rte_pktmbuf_mtod(mbufs[i], uint8_t *), FRAME, 0);
        CHECK(!next || to == RP_FRAME_TO_HOST || to == link->port, "a frame to %u", to);
        CHECK(!next || number_of(mbufs[i]) == next + i, "out of order, or missing");
    }
    rte_pktmbuf_free_bulk(mbufs, got);
    return got;
}

/* ---- the device ---- */

static _Atomic uint32_t inside, bursts;

/* Within each burst: two at once are one too many, whether both links or one of them shares. */
static uint16_t watch(uint16_t device, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count,
                      uint16_t most, void *unused) {
    (void)device, (void)queue, (void)mbufs, (void)most, (void)unused;
    CHECK(atomic_fetch_add(&inside, 1) == 0, "two bursts at once");
    if (bursts++ % YIELD_EVERY == 0) {
        sched_yield();
    }
    atomic_fetch_sub(&inside, 1);
    return count;
}

/* ---- groups ---- */

static void frames(void) {
    struct rp_share share = {0};
    struct link one, two;
    rp_share_open(&share, MBUFS, 0);
    join(&one, &share, PORT);
    CHECK(!share.is_shared && rp_share_reports(&share, &one.seat));
    join(&two, &share, PORT + 1);
    CHECK(share.is_shared && !rp_share_reports(&share, &two.seat));
    CHECK(rp_share_name(&share, &two.seat, PORT) == -1 && two.seat.port == PORT + 1);
    for (uint64_t i = 0; i < 20; i++) {
        CHECK(come(make((uint16_t)(PORT + i % 2), 1 + i / 2)));
    }
    CHECK(look(&one, 1) == 10 && rte_ring_count(two.seat.ring) == 10);
    CHECK(pthread_mutex_lock(&share.receiving) == 0); /* somebody looks: nobody waits for him */
    CHECK(look(&two, 1) == 10 && look(&one, 1) == 0);
    CHECK(pthread_mutex_unlock(&share.receiving) == 0);
    eventfd_t calls;
    two.seat.wake = eventfd(0, EFD_NONBLOCK);
    for (int asleep = 0; asleep < 2; asleep++) {
        atomic_store(&two.seat.is_asleep, asleep);
        CHECK(come(make(PORT + 1, 1)) && look(&one, 0) == 0 && look(&two, 1) == 1);
        CHECK((eventfd_read(two.seat.wake, &calls) == 0) == asleep, "who sleeps is woken");
    }
    atomic_store(&two.seat.is_asleep, 0);
    CHECK(come(make(PORT + 7, 0)));
    CHECK(look(&two, 0) == 1, "to nobody's port: whoever brings it counts it");
    arp_comes(0);
    CHECK(look(&one, 0) == 1 && look(&two, 0) == 0, "a question is answered once");
    atomic_store(&two.seat.asked, 1);
    arp_comes(1);
    CHECK(look(&one, 0) == 1 && look(&two, 0) == 1, "an answer is whose who asked");
    atomic_store(&two.seat.asked, 0);
    arp_comes(1);
    CHECK(look(&one, 0) == 1 && look(&two, 0) == 0);
    for (uint64_t i = 0; i < RP_BURST + 1; i++) {
        CHECK(come(make(PORT + 1, 1 + i)) && look(&one, 0) == 0);
    }
    leave(&one);
    CHECK(rp_share_reports(&share, &two.seat) && look(&two, 1) == RP_BURST && share.is_shared,
          "a frame of it is on its ring still");
    CHECK(look(&two, 1 + RP_BURST) == 1 && !share.is_shared, "alone again");
    CHECK(come(make(PORT, 1)) && look(&two, 0) == 1 && look(&two, 0) == 0);
    leave(&two);
    rp_share_close(&share);
    CHECK(rte_mempool_in_use_count(pool) == 0);
    check_group("whose frames are whose; ARP; alone, together and alone again");
}

/* One link receives an answer of ARP that two others asked for. */
static void answers(void) {
    struct rp_share share = {0};
    struct link links[3];
    rp_share_open(&share, MBUFS, 0);
    for (uint16_t i = 0; i < 3; i++) {
        join(&links[i], &share, (uint16_t)(PORT + i));
    }
    atomic_store(&links[1].seat.asked, 1);
    atomic_store(&links[2].seat.asked, 1);
    arp_comes(1);
    CHECK(look(&links[0], 0) == 1 && look(&links[1], 0) == 1 && look(&links[2], 0) == 1,
          "each that asked has it");
    for (int i = 0; i < 3; i++) {
        leave(&links[i]);
    }
    rp_share_close(&share);
    CHECK(rte_mempool_in_use_count(pool) == 0);
    check_group("an answer of ARP is copied to every link that asked");
}

static void bound(void) {
    struct rp_share share = {0};
    struct link links[RP_DPDK_SHARERS];
    uint32_t held = 0;
    rp_share_open(&share, MBUFS, 0);
    for (uint32_t i = 0; i < RP_DPDK_SHARERS; i++) {
        join(&links[i], &share, (uint16_t)(PORT + i));
        CHECK(share.room >= 1 && share.room * (i + 1) <= MBUFS, "%u each", share.room);
    }
    for (uint32_t i = 0; i < 4 * MBUFS; i++) { /* to all but the first, of whom nobody looks */
        CHECK(come(make((uint16_t)(PORT + 1 + i % (RP_DPDK_SHARERS - 1)), 0)), "a frame has room");
        CHECK(look(&links[0], 0) == 0);
    }
    for (uint32_t i = 1; i < RP_DPDK_SHARERS; i++) {
        uint32_t on_ring = rte_ring_count(links[i].seat.ring);
        CHECK(on_ring == share.room && links[i].seat.overflowed > 0);
        held += on_ring + (uint32_t)links[i].seat.overflowed;
    }
    CHECK(held == 4 * MBUFS && links[0].seat.overflowed == 0);
    CHECK(come(make(PORT, 1)) && look(&links[0], 1) == 1);
    for (uint32_t i = 0; i < RP_DPDK_SHARERS; i++) {
        leave(&links[i]);
    }
    rp_share_close(&share);
    CHECK(rte_mempool_in_use_count(pool) == 0, "what lay on rings is free again");
    check_group("fifteen links that never look: counted, and the sixteenth is served");
}

/* Where there are many mbufs, rings leave those that links and their threads' caches may hold. */
static void rest(void) {
    enum { MANY = 4095, EACH = 3 * RP_BURST + RP_DPDK_CACHE + RP_DPDK_CACHE / 2 };
    struct rp_share share = {0};
    struct link one, two;
    rp_share_open(&share, MANY, 0);
    join(&one, &share, PORT);
    join(&two, &share, PORT + 1);
    CHECK(share.room > MANY / 4 && 2 * (share.room + EACH) <= MANY, "%u each", share.room);
    leave(&one);
    leave(&two);
    rp_share_close(&share);
    check_group("two links of many mbufs: what bursts and caches hold is left over");
}

/* ---- threads ---- */

static struct rp_share busy;
static pthread_mutex_t coming = PTHREAD_MUTEX_INITIALIZER; /* links come and go one at a time */
static _Atomic int feeding;
static _Atomic uint64_t came, seen;

/* Frames to the ports of all threads, there or not, each port's numbered from 1 on. */
static void *feed(void *unused) {
    uint64_t next[THREADS] = {0};
    uint32_t turn = 0;
    (void)unused;
    CHECK(rte_thread_register() == 0);
    while (atomic_load(&feeding)) {
        uint32_t to = turn++ % THREADS;
        came += (uint64_t)come(make((uint16_t)(PORT + to), ++next[to]));
    }
    rte_thread_unregister();
    return NULL;
}

/* A link's frames, and none of another one's, in the order they came; some it finds when it has
 * come are to who had its port before it. */
static void *live(void *argument) {
    uint16_t port = (uint16_t)(PORT + (uintptr_t)argument);
    struct rp_random random;
    uint64_t newest = 0;
    rp_random_seed(&random, seed + port);
    CHECK(rte_thread_register() == 0);
    for (int life = 0; life < LIVES; life++) {
        struct link link;
        uint64_t frames_left = rp_random_below(&random, FRAMES);
        pthread_mutex_lock(&coming);
        join(&link, &busy, port);
        pthread_mutex_unlock(&coming);
        for (uint32_t i = 0; i < LOOKS && frames_left; i++) {
            struct rte_mbuf *mbufs[RP_BURST];
            uint32_t got = receive(&link, mbufs, RP_BURST);
            for (uint32_t k = 0; k < got; k++) {
                uint32_t to = rp_frame_addressee(rte_pktmbuf_mtod(mbufs[k], uint8_t *), FRAME, 0);
                if (to == port) {
                    CHECK(number_of(mbufs[k]) > newest, "%" PRIu64 " after %" PRIu64,
                          number_of(mbufs[k]), newest);
                    newest = number_of(mbufs[k]);
                }
                CHECK(rte_mbuf_refcnt_read(mbufs[k]) == 1, "two have it");
            }
            seen += got;
            frames_left -= got < frames_left ? got : frames_left;
            rte_pktmbuf_free_bulk(mbufs, got);
        }
        pthread_mutex_lock(&coming);
        leave(&link);
        pthread_mutex_unlock(&coming);
    }
    rte_thread_unregister();
    return NULL;
}

static void threads(void) {
    pthread_t feeder, lives[THREADS];
    struct rte_mbuf *rest;
    rp_share_open(&busy, MBUFS, 0);
    atomic_store(&feeding, 1);
    CHECK(pthread_create(&feeder, NULL, feed, NULL) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&lives[i], NULL, live, (void *)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(lives[i], NULL) == 0);
    }
    atomic_store(&feeding, 0);
    CHECK(pthread_join(feeder, NULL) == 0);
    while (rte_eth_rx_burst(lane.device, lane.queue, &rest, 1)) {
        rte_pktmbuf_free(rest);
    }
    rp_share_close(&busy);
    CHECK(seen > 0 && seen <= came);
    CHECK(rte_mempool_in_use_count(pool) == 0, "%u mbufs are missing",
          rte_mempool_in_use_count(pool));
    check_group("four threads' links come and go while frames come");
}

int main(void) {
    char *arguments[] = {"test_share", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
                         "--iova-mode=va", "-m", "64", "--log-level=3", "--lcores=0@0"};
    struct rte_eth_conf plain;
    seed = check_seed(11);
    memset(&plain, 0, sizeof plain);
    CHECK(rte_eal_init(10, arguments) >= 0);
    pool = rte_pktmbuf_pool_create("pool", MBUFS, 16, 0, RTE_PKTMBUF_HEADROOM + ROOM,
                                   SOCKET_ID_ANY);
    wire = rte_ring_create("wire", WIRE, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    CHECK(pool && wire);
    int device = rte_eth_from_rings("share", &wire, 1, &wire, 1, 0);
    CHECK(device >= 0);
    lane.device = (uint16_t)device;
    CHECK(rte_eth_dev_configure(lane.device, 1, 1, &plain) == 0
          && rte_eth_rx_queue_setup(lane.device, 0, WIRE, 0, NULL, pool) == 0
          && rte_eth_tx_queue_setup(lane.device, 0, WIRE, 0, NULL) == 0
          && rte_eth_dev_start(lane.device) == 0
          && rte_eth_add_rx_callback(lane.device, 0, watch, NULL));
    frames();
    answers();
    bound();
    rest();
    threads();
    return check_done("test_share");
}
