/* Links of one process on one device: they share its queue.
 *
 * While a link is alone it bursts as if nothing here were: one load and a branch. From the second
 * link on, a burst goes through here. Receiving: a link that finds no other one receiving empties
 * its own ring, bursts, keeps its own frames, and puts each other frame on the ring of the link
 * whose UDP port it names. A link that finds another one receiving takes what its own ring has. So
 * no link waits, and none depends on another one being awake. Sending: a lock around the burst.
 *
 * Frames are sorted by their port alone; the link they are for checks all of them. Frames for the
 * host (ARP questions, echoes, all that name no link) stay with the link that received them, so
 * each is answered and counted once. An answer of ARP is copied to each link that asked.
 *
 * A ring has a bound: RP_DPDK_RING frames, or its link's part of the mbufs that may lie in rings. A
 * frame that finds it full is dropped and counted for that link: so a link that never receives
 * costs the others no time, and leaves them the mbufs they need. The device's hash and second
 * queues are not used: raw sockets and AF_XDP spread by rules of the kernel's, and a link may come
 * at any time.
 *
 * The second link to join raises is_shared, then waits for bursts that began before (dpdk_quiet.c).
 * The last link left lowers it, once its ring is empty.
 */
#include <rte_ethdev.h>
#include <rte_ring.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "dpdk/dpdk_parts.h"

enum {
    LENT = 3 * RP_BURST,                        /* mbufs a link has: lent, leased, kept */
    CACHED = RP_DPDK_CACHE * 3 / 2, /* what a thread's cache holds at most */
};

void rp_share_open(struct rp_share *share, uint32_t mbufs, uint32_t drivers) {
    pthread_mutex_init(&share->receiving, NULL);
    pthread_mutex_init(&share->sending, NULL);
    share->mbufs = mbufs;
    share->drivers = drivers;
}

void rp_share_close(struct rp_share *share) {
    pthread_mutex_destroy(&share->receiving);
    pthread_mutex_destroy(&share->sending);
}

/* Sets how many frames each ring may hold. At least a quarter of all mbufs may lie in rings; more,
 * where the driver, bursts and caches leave more. */
static void divide(struct rp_share *share) {
    uint32_t count = share->count ? share->count : 1;
    uint32_t taken = share->drivers + count * (LENT + CACHED), rest = share->mbufs / 4;
    if (share->mbufs > taken && share->mbufs - taken > rest) {
        rest = share->mbufs - taken;
    }
    share->room = rest / count ? rest / count : 1;
}

int rp_share_join(struct rp_share *share, struct rp_seat *seat) {
    char name[RTE_RING_NAMESIZE];
    snprintf(name, sizeof name, "rp_seat_%u", rp_wire_number());
    seat->ring = rte_ring_create(name, RP_DPDK_RING, SOCKET_ID_ANY,
                                 RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
    if (!seat->ring) {
        return -1;
    }
    pthread_mutex_lock(&share->receiving);
    share->seats[share->count++] = seat;
    divide(share);
    int first = share->count == 2;
    atomic_store(&share->is_shared, share->count > 1);
    pthread_mutex_unlock(&share->receiving);
    if (first) {
        rp_bursts_await();
    }
    return 0;
}

void rp_share_leave(struct rp_share *share, struct rp_seat *seat) {
    void *mbuf;
    pthread_mutex_lock(&share->receiving);
    for (uint32_t i = 0; i < share->count; i++) {
        if (share->seats[i] == seat) { /* the rest keep their order: the first one reports */
            share->count--;
            for (; i < share->count; i++) {
                share->seats[i] = share->seats[i + 1];
            }
        }
    }
    divide(share);
    pthread_mutex_unlock(&share->receiving);
    while (rte_ring_dequeue(seat->ring, &mbuf) == 0) {
        rte_pktmbuf_free(mbuf);
    }
    rte_ring_free(seat->ring);
    seat->ring = NULL;
}

int rp_share_name(struct rp_share *share, struct rp_seat *seat, uint16_t port) {
    int taken = 0;
    pthread_mutex_lock(&share->receiving);
    for (uint32_t i = 0; i < share->count; i++) {
        taken = taken || (share->seats[i] != seat && share->seats[i]->port == port);
    }
    if (!taken) {
        seat->port = port;
    }
    pthread_mutex_unlock(&share->receiving);
    return taken ? -1 : 0;
}

int rp_share_reports(struct rp_share *share, const struct rp_seat *seat) {
    pthread_mutex_lock(&share->receiving);
    int first = share->count && share->seats[0] == seat;
    pthread_mutex_unlock(&share->receiving);
    return first;
}

/* ---- bursts ---- */

static void put(const struct rp_share *share, struct rp_seat *seat, struct rte_mbuf *mbuf) {
    if (rte_ring_count(seat->ring) >= share->room || rte_ring_enqueue(seat->ring, mbuf)) {
        atomic_fetch_add_explicit(&seat->overflowed, 1, memory_order_relaxed);
        rte_pktmbuf_free(mbuf);
    }
    atomic_thread_fence(memory_order_seq_cst); /* a link says it sleeps, then looks */
    if (atomic_load_explicit(&seat->is_asleep, memory_order_relaxed)) {
        (void)eventfd_write(atomic_load(&seat->wake), 1);
    }
}

static void copy_to_who_asked(const struct rp_share *share, const struct rp_seat *own,
                              const struct rte_mbuf *mbuf) {
    for (uint32_t i = 0; i < share->count; i++) {
        struct rp_seat *seat = share->seats[i];
        struct rte_mbuf *copy = seat != own && atomic_load(&seat->asked)
            ? rte_pktmbuf_copy(mbuf, mbuf->pool, 0, UINT32_MAX) : NULL;
        if (copy) { /* without one it asks again */
            put(share, seat, copy);
        }
    }
}

/* Whose frame it is, where it is another link's; else null. */
static struct rp_seat *find_other(const struct rp_share *share, const struct rp_seat *own,
                                  const struct rte_mbuf *mbuf, uint32_t vlan) {
    uint32_t to = rp_frame_addressee(rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->data_len,
                                     vlan);
    if (to == RP_FRAME_TO_WHO_ASKED) {
        copy_to_who_asked(share, own, mbuf);
        return NULL;
    }
    for (uint32_t i = 0; i < share->count && to != RP_FRAME_TO_HOST && to != own->port; i++) {
        if (share->seats[i]->port == to) {
            return share->seats[i];
        }
    }
    return NULL;
}

uint32_t rp_share_receive(struct rp_share *share, struct rp_seat *own, const struct rp_lane *lane,
                          uint32_t vlan, struct rte_mbuf **mbufs, uint32_t count) {
    struct rte_mbuf *brought[RP_BURST];
    int looks = pthread_mutex_trylock(&share->receiving) == 0;
    uint32_t got = rte_ring_dequeue_burst(own->ring, (void **)mbufs, count, NULL);
    if (!looks) {
        return got;
    }
    if (share->count == 1 && got < count) { /* its ring is empty, no link can fill it */
        atomic_store(&share->is_shared, 0);
    }
    uint32_t came = got == count ? 0
        : rte_eth_rx_burst(lane->device, lane->queue, brought, (uint16_t)(count - got));
    for (uint32_t i = 0; i < came; i++) {
        struct rp_seat *other = find_other(share, own, brought[i], vlan);
        if (other) {
            put(share, other, brought[i]);
        } else {
            mbufs[got++] = brought[i];
        }
    }
    pthread_mutex_unlock(&share->receiving);
    return got;
}
