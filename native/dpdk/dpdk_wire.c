/* Wires: devices, their pools, and DPDK's interrupt thread, in which they start and end. */
#include <pthread.h>
#include <rte_alarm.h>
#include <rte_bus_vdev.h>
#include <rte_mbuf_pool_ops.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/minmax.h"
#include "dpdk/dpdk_card.h"
#include "dpdk/dpdk_parts.h"
#include "protocol/status.h"

enum {
    SPARE = 8,    /* bytes of a buffer that a shift may use up */
    LOCK_NAP_NS = 1000000, OTHERS_NAP_NS = 5000000,
    CACHES = 64, /* of a pool: those of RP_DPDK_CACHERS threads, each of half as much again at most,
                  * leave the larger part of it to all */
};

static _Atomic uint32_t names; /* of rings, pools and devices: never twice */
static _Atomic uint64_t leaked;
/* One wire at a time comes or goes, but for the time in which one waits for its network. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t listens; /* how often an opening began to listen to DPDK; within the lock */

uint32_t rp_wire_number(void) {
    return names++;
}

uint64_t rp_wire_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int refuse(char *error, const struct rp_wire_place *place, int status, const char *what,
                  const char *said) {
    int lacks = status == RP_NO_MEMORY;
    int size = snprintf(error, RP_URL_ERROR_BYTES, "dpdk://%.15s:%u: %.180s%s%s", place->host,
                        place->port, what, lacks ? ": " : "", lacks ? rp_eal_advice() : "");
    int room = RP_URL_ERROR_BYTES - size - (int)sizeof ": ";
    if (said[0] && room > 0) { /* what of it there is room for */
        snprintf(error + size, (size_t)room + sizeof ": ", ": %.*s", room, said);
    }
    return -(lacks ? RP_SYSTEM : status); /* a server's RP_NO_MEMORY is about its tables */
}

int rp_dpdk_refuse(char *error, const struct rp_wire_place *place, int status, const char *what) {
    char said[120];
    rp_eal_said(said, sizeof said);
    return refuse(error, place, status, what, said);
}

int rp_dpdk_refuse_plainly(char *error, const struct rp_wire_place *place, int status,
                           const char *what) {
    return refuse(error, place, status, what, "");
}

/* The memif driver handles its peers' coming and going in that thread, without a lock that a
 * device's start and end would take too (DPDK 22.11: two threads freed one control channel). So
 * devices start and end there as well. */
struct job {
    void (*run)(void *argument);
    void *argument;
    sem_t done;
};

static void run_job(void *argument) {
    struct job *job = argument;
    job->run(job->argument);
    sem_post(&job->done);
}

void rp_wire_run(void (*run)(void *argument), void *argument) {
    struct job job = {.run = run, .argument = argument};
    sem_init(&job.done, 0, 0);
    if (rte_eal_alarm_set(1, run_job, &job)) {
        run_job(&job);
    }
    while (sem_wait(&job.done)) { /* a signal came */
    }
    sem_destroy(&job.done);
}

/* ---- pools and devices ---- */

uint32_t rp_pool_room(uint32_t mtu) {
    uint32_t room = (mtu + RP_FRAME_HEADERS + RP_DPDK_SHIFT + 63) / 64 * 64;
    return rp_max(room, 2048);
}

static_assert(RP_DPDK_CACHERS * 3 / 2 * 2 < CACHES, "caches leave the larger part");

static uint32_t cache_of(uint32_t mbufs) {
    return rp_min(mbufs / CACHES, RP_DPDK_CACHE);
}

struct rte_mempool *rp_pool_open(uint32_t mbufs, uint32_t room, int socket) {
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof name, "rp_pool_%u", rp_wire_number());
    return rte_pktmbuf_pool_create(name, mbufs, cache_of(mbufs), 0,
                                   (uint16_t)(RTE_PKTMBUF_HEADROOM + room), socket);
}

static void free_memory(struct rte_mempool_memhdr *memory, void *zone) {
    (void)memory;
    (void)rte_memzone_free(zone);
}

/* AF_XDP's memory is described to the kernel as so many objects of such a size, back to back.
 * Without hugepages DPDK puts no object across a page border, so two fifths of the memory would lie
 * behind the described range, and the kernel silently drops frames there (DPDK 22.11). So each
 * object is one page and starts at one. */
struct rte_mempool *rp_pool_open_paged(uint32_t mbufs, uint32_t drivers, int socket) {
    enum { PAGE = 4096, HEADER = RTE_CACHE_LINE_SIZE, FLAGS = RTE_MEMPOOL_F_NO_SPREAD
               | RTE_MEMPOOL_F_NO_IOVA_CONTIG };
    struct rte_pktmbuf_pool_private about = {
        .mbuf_data_room_size = PAGE - HEADER - sizeof(struct rte_mbuf)};
    size_t size = (size_t)mbufs * PAGE;
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof name, "rp_pool_%u", rp_wire_number());
    struct rte_mempool *pool = rte_mempool_create_empty(
        name, mbufs, PAGE - HEADER, cache_of(mbufs - drivers), sizeof about, socket, FLAGS);
    const struct rte_memzone *zone =
        pool ? rte_memzone_reserve_aligned(name, size, socket, 0, PAGE) : NULL;
    if (!zone || rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL)) {
        rte_memzone_free(zone);
        rte_mempool_free(pool);
        return NULL;
    }
    rte_pktmbuf_pool_init(pool, &about);
    if (rte_mempool_populate_iova(pool, zone->addr, zone->iova, size, free_memory,
                                  (void *)(uintptr_t)zone) != (int)mbufs) {
        rte_mempool_free(pool); /* and its memory */
        return NULL;
    }
    rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
    return pool;
}

static void shift_mbuf(struct rte_mempool *pool, void *argument, void *object, unsigned int index) {
    struct rte_mbuf *mbuf = object;
    (void)pool, (void)argument, (void)index;
    mbuf->buf_addr = (uint8_t *)mbuf->buf_addr + RP_DPDK_SHIFT;
    mbuf->buf_iova += RP_DPDK_SHIFT;
    mbuf->buf_len = (uint16_t)(mbuf->buf_len - SPARE);
}

struct rte_mempool *rp_pool_open_shifted(uint32_t mbufs, uint32_t room) {
    struct rte_mempool *pool = rp_pool_open(mbufs, room + SPARE, SOCKET_ID_ANY);
    if (pool) {
        struct rte_pktmbuf_pool_private *about = rte_mempool_get_priv(pool);
        about->mbuf_data_room_size = (uint16_t)(about->mbuf_data_room_size - SPARE);
        rte_mempool_obj_iter(pool, shift_mbuf, NULL);
    }
    return pool;
}

void rp_pool_close(struct rte_mempool *pool, uint32_t kept) {
    uint32_t used = pool ? rte_mempool_in_use_count(pool) : 0;
    uint32_t lost = used > kept ? used - kept : 0;
    leaked += lost;
    if (!lost) { /* else the device may still write there */
        rte_mempool_free(pool);
    }
}

uint64_t rp_pool_leaked(void) {
    return leaked;
}

int rp_wire_start(struct rp_wire *wire, uint16_t device, const char *name, uint32_t queues) {
    struct rte_eth_conf plain;
    memset(&plain, 0, sizeof plain);
    uint32_t index = wire->device_count++;
    wire->devices[index] = device;
    snprintf(wire->names[index], sizeof wire->names[index], "%s", name);
    int failed = rte_eth_dev_configure(device, (uint16_t)queues, (uint16_t)queues, &plain);
    for (uint16_t queue = 0; queue < queues && !failed; queue++) {
        failed = rte_eth_rx_queue_setup(device, queue, RP_DPDK_RING, 0, NULL, wire->pool);
        failed = failed ? failed : rte_eth_tx_queue_setup(device, queue, RP_DPDK_RING, 0, NULL);
        if (wire->lane_count < RP_DPDK_LANES) {
            wire->lanes[wire->lane_count++] = (struct rp_lane){device, queue};
        }
    }
    return failed ? failed : rte_eth_dev_start(device);
}

static void stop_devices(void *argument) {
    struct rp_wire *wire = argument;
    for (uint32_t i = 0; i < wire->device_count; i++) {
        (void)rte_eth_dev_stop(wire->devices[i]);
        (void)rte_eth_dev_close(wire->devices[i]);
        (void)rte_vdev_uninit(wire->names[i]);
    }
    wire->device_count = 0;
    wire->lane_count = 0;
}

void rp_wire_stop(struct rp_wire *wire) {
    if (wire->device_count) {
        rp_wire_run(stop_devices, wire);
    }
}

/* ---- both ---- */

static void close_wire(struct rp_wire *wire) {
    if (wire->card) {
        rp_card_leave(wire);
        memset(wire, 0, sizeof *wire);
        return;
    }
    rp_wire_stop(wire);
    if (wire->hub) {
        rp_ring_leave(wire);
    } else {
        rp_memif_leave(wire);
        rp_pool_close(wire->pool, 0);
    }
    memset(wire, 0, sizeof *wire);
}

static void listen_anew(void) {
    listens++;
    rp_eal_listen();
}

uint64_t rp_wire_let_go(void) {
    uint64_t before = listens;
    pthread_mutex_unlock(&open_lock);
    return before;
}

void rp_wire_go_on(uint64_t before) {
    pthread_mutex_lock(&open_lock);
    if (listens != before) { /* what DPDK said since may be another opening's */
        listen_anew();
    }
}

void rp_wire_nap(void) {
    const struct timespec nap = {0, OTHERS_NAP_NS};
    uint64_t before = rp_wire_let_go();
    nanosleep(&nap, NULL);
    rp_wire_go_on(before);
}

/* A server waits for others, a client as long as it has time. */
static int begin_opening(const struct rp_wire_place *place) {
    const struct timespec nap = {0, LOCK_NAP_NS};
    int locked = pthread_mutex_trylock(&open_lock) == 0;
    while (!locked && (place->serve || rp_wire_now_ns() < place->until_ns)) {
        nanosleep(&nap, NULL);
        locked = pthread_mutex_trylock(&open_lock) == 0;
    }
    return locked ? 0 : -1;
}

int rp_wire_open(struct rp_wire *wire, const struct rp_wire_place *place,
                 const struct rp_dpdk_options *options, char *error) {
    memset(wire, 0, sizeof *wire);
    wire->slot = place->serve ? RP_DPDK_LANES : 0;
    if (begin_opening(place)) {
        return rp_dpdk_refuse_plainly(error, place, RP_SYSTEM, "this process opens another device, "
                                      "which takes longer than this client may wait");
    }
    listen_anew();
    int status = options->vdev == RP_VDEV_RING ? rp_ring_open(wire, place, error)
        : options->vdev == RP_VDEV_MEMIF ? rp_memif_open(wire, place, options, error)
        : rp_card_open(wire, place, options, error);
    if (status) {
        close_wire(wire);
    }
    pthread_mutex_unlock(&open_lock);
    return status;
}

void rp_wire_close(struct rp_wire *wire) {
    pthread_mutex_lock(&open_lock);
    close_wire(wire);
    pthread_mutex_unlock(&open_lock);
}

/* Where several shards or links share a card, only the first one that is there reports the card's
 * counts: then a sum over them is right. */
void rp_wire_facts(const struct rp_wire *wire, struct rp_fact *facts, uint32_t *count) {
    struct rte_eth_stats all = {0}, one;
    int first = wire->share ? rp_share_reports(wire->share, &wire->seat)
        : !wire->card || rp_card_leads(wire->card, wire->lanes[0].queue);
    uint32_t lanes = first && !wire->served ? wire->lane_count : 0;
    for (uint32_t i = 0; i < lanes; i++) { /* a device's lanes are neighbours */
        int is_new = i == 0 || wire->lanes[i].device != wire->lanes[i - 1].device;
        if (is_new && rte_eth_stats_get(wire->lanes[i].device, &one) == 0) {
            all.imissed += one.imissed;
            all.ierrors += one.ierrors;
            all.rx_nombuf += one.rx_nombuf;
        }
    }
    all.imissed += first && wire->sockets ? rp_sockets_missed(wire->sockets) : 0;
    rp_fact_add(facts, count, RP_FACT_IN, "device_missed",
                "frames that came while the device's ring was full", all.imissed);
    if (wire->served) {
        rp_memif_facts(wire->served, facts, count);
    } else {
        rp_fact_add(facts, count, RP_FACT_IN, "device_errors", "frames the device found damaged",
                    all.ierrors);
    }
    if (wire->link) {
        rp_fact_add(facts, count, RP_FACT_COUNT, "memif_servers_refused",
                    "listeners at its socket who may not have this process's memory",
                    atomic_load(&wire->strangers));
    }
    if (wire->links) {
        rp_fact_add(facts, count, RP_FACT_LEVEL, "has_link", "1 while its interface has a carrier",
                    first ? (uint64_t)atomic_load(&wire->card->has_carrier) : 0);
    }
    if (wire->mac_now) {
        rp_fact_add(facts, count, RP_FACT_COUNT, "mac_changes",
                    "times its interface got another MAC address, which it goes on under",
                    first ? (uint64_t)atomic_load(&wire->card->macs) : 0);
        rp_fact_add(facts, count, RP_FACT_LEVEL, "mtu_is_short",
                    "1 while its interface's own mtu is too small: larger datagrams are lost",
                    first ? (uint64_t)atomic_load(&wire->card->is_short) : 0);
    }
    rp_fact_add(facts, count, RP_FACT_IN, "device_no_mbufs", "frames no mbuf was free for",
                all.rx_nombuf);
    rp_fact_add(facts, count, RP_FACT_LEVEL, "mbufs_in_use", "mbufs of its pool that are not free",
                first ? rte_mempool_in_use_count(wire->pool) : 0);
    rp_fact_add(facts, count, RP_FACT_LEVEL, "mbufs_free", "mbufs of its pool that are free",
                first ? rte_mempool_avail_count(wire->pool) : 0);
}
