/* A memif server's rings: bursts of a lane, and what wakes a server that sleeps.
 *
 * Only the port's thread touches the rings of a peer at work, in bursts. Only this file and memif.h
 * read a peer's memory, and copy frames. A burst takes as many slots as it was asked for. A peer
 * that breaks the protocol is taken from its lane here; the thread of dpdk_memif_visitors.c, which
 * let it in, sees to the rest.
 *
 * A burst reads and writes memory and this server's own files; a sleep polls those files. Neither
 * goes through the kernel's list of all that watch a peer's file, which is as long as the peer
 * likes (dpdk_memif_call.c). So where the port has a core of its own, peers do not make a burst or
 * a sleep longer. Where it shares a core, a long list may seldom be gone through there.
 */
#include <string.h>
#include <sys/eventfd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_memif_serve.h"

/* ---- bursts ---- */

/* The lane is empty from the next burst on; the thread sees to the rest. */
static void expel(struct rp_memif_server *server, uint32_t lane) {
    atomic_store(&server->lanes[lane], NULL);
    atomic_fetch_add_explicit(&server->refused, 1, memory_order_relaxed);
    (void)eventfd_write(server->wake, 1);
}

/* Copies the frames of up to `count` slots, each into one of the mbufs; *used slots. -1: the peer's
 * ring is not valid. A frame in several slots is dropped with all of them. */
static int copy_in(struct rp_memif_server *server, struct rp_memif_peer *peer,
                   struct rte_mbuf **mbufs, uint32_t count, uint32_t *used) {
    struct rp_memif_slot slot;
    int got = 0;
    for (*used = 0; *used < count; ++*used) {
        if (rp_memif_read(peer, &peer->in, *used, &slot)) {
            return -1 - got;
        }
        int is_rest = peer->in.is_chained != 0;
        peer->in.is_chained = slot.is_chained;
        if (is_rest || slot.size > server->room || slot.is_chained) {
            atomic_fetch_add_explicit(&server->unfit, !is_rest, memory_order_relaxed);
            continue;
        }
        struct rte_mbuf *mbuf = mbufs[got++];
        memcpy(rte_pktmbuf_mtod(mbuf, void *), slot.data, slot.size);
        mbuf->data_len = (uint16_t)slot.size;
        mbuf->pkt_len = slot.size;
    }
    return got;
}

uint32_t rp_memif_receive(struct rp_memif_server *server, uint32_t lane, struct rte_mbuf **mbufs,
                          uint32_t count) {
    struct visitor *visitor = atomic_load_explicit(&server->lanes[lane], memory_order_acquire);
    uint32_t used = 0;
    if (!visitor) {
        return 0;
    }
    int filled = rp_memif_filled(&visitor->peer.in);
    if (filled <= 0) {
        if (filled < 0) {
            expel(server, lane);
        }
        return 0;
    }
    count = rp_min(count, (uint32_t)filled);
    if (rp_pool_take(server->pool, mbufs, count, RTE_PKTMBUF_HEADROOM)) {
        /* one at a time is an end to being short */
        count = rp_pool_take(server->pool, mbufs, 1, RTE_PKTMBUF_HEADROOM) == 0;
    }
    int got = copy_in(server, &visitor->peer, mbufs, count, &used);
    if (got < 0) {
        expel(server, lane);
        got = -1 - got;
    } else {
        rp_memif_advance(&visitor->peer.in, used);
    }
    if ((uint32_t)got < count) {
        rp_pool_give(server->pool, mbufs + got, count - (uint32_t)got);
    }
    return (uint32_t)got;
}

/* The frames sent are in place. */
static void call(struct rp_memif_server *server, uint32_t lane, const struct visitor *visitor) {
    atomic_thread_fence(memory_order_seq_cst);
    if (rp_memif_wants_call(visitor->peer.out.memory)) {
        rp_caller_call(&server->callers[lane]);
    }
}

uint32_t rp_memif_transmit(struct rp_memif_server *server, uint32_t lane, struct rte_mbuf **mbufs,
                           uint32_t count) {
    struct visitor *visitor = atomic_load_explicit(&server->lanes[lane], memory_order_acquire);
    struct rp_memif_slot slot;
    int filled = visitor ? rp_memif_filled(&visitor->peer.out) : 0;
    uint32_t sent = 0, room = filled > 0 ? (uint32_t)filled : 0;
    int lies = filled < 0;
    count = rp_min(count, room);
    while (sent < count && !lies) {
        const struct rte_mbuf *mbuf = mbufs[sent];
        lies = rp_memif_read(&visitor->peer, &visitor->peer.out, sent, &slot) != 0;
        if (!lies) {
            uint32_t fits = mbuf->data_len <= slot.size;
            if (fits) {
                memcpy(slot.data, rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len);
            } else { /* of no use to a peer whose frames are smaller */
                atomic_fetch_add_explicit(&server->unfit, 1, memory_order_relaxed);
            }
            rp_memif_written(&visitor->peer.out, sent, fits ? mbuf->data_len : 0);
            sent++;
        }
    }
    if (lies) {
        expel(server, lane);
    } else if (sent) {
        rp_memif_advance(&visitor->peer.out, sent);
        call(server, lane, visitor);
    }
    rp_pool_give(server->pool, mbufs, sent);
    return sent;
}

void rp_memif_facts(const struct rp_memif_server *server, struct rp_fact *facts, uint32_t *count) {
    rp_fact_add(facts, count, RP_FACT_IN, "device_errors", "frames larger than their place, or in "
                "parts", atomic_load(&server->unfit));
    rp_fact_add(facts, count, RP_FACT_COUNT, "memif_peers_refused",
                "memif peers that led out of their memory, or spoke against the protocol",
                atomic_load(&server->refused));
    rp_fact_add(facts, count, RP_FACT_COUNT, "memif_memory_refused",
                "memif peers whose memory takes no seal, or lacks pages; all before Linux 5.1",
                atomic_load(&server->unkept));
    rp_fact_add(facts, count, RP_FACT_LEVEL, "memif_files_closing",
                "files of memif's peers whose closing has not ended; 64 keep others out",
                rp_late_count());
}

/* ---- sleeping ---- */

void rp_memif_files(const struct rp_memif_server *server, int *files, int *wake) {
    *files = server->files;
    *wake = server->called;
}

int rp_memif_ask(struct rp_memif_server *server, int on) {
    int some = 0;
    for (uint32_t lane = 0; lane < server->links; lane++) {
        struct visitor *visitor = atomic_load_explicit(&server->lanes[lane], memory_order_acquire);
        if (visitor) {
            rp_memif_let_call(visitor->peer.in.memory, on);
            some |= on && rp_memif_filled(&visitor->peer.in) != 0;
        }
    }
    return some;
}
