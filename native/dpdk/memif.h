/* The server's side of memif, by which processes of one host share memory for frames (version 2.0,
 * as VPP and DPDK speak it): its messages and rings, as pure functions over bytes.
 *
 * A peer lends its memory in regions. Two rings lie in them: it fills the slots of one with frames,
 * and of the other with room for the server's. A slot's descriptor says where: a region, an offset
 * and a length. The peer moves a ring's head, the server its tail.
 *
 * Nothing of that is trusted. A message is checked when it comes. A peer can change any word of its
 * memory at any moment, so a descriptor is read once, into a copy; the copy is checked against the
 * region's mapped size, and only the copy is used. The server keeps its own place in a ring: it
 * writes the tail, and never reads it.
 *
 * Invariants: next - tail = 0, and head - next <= size, or the peer is at fault.
 */
#ifndef RP_MEMIF_H
#define RP_MEMIF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum rp_memif_limits {
    RP_MEMIF_MESSAGE = 128, /* bytes of every message */
    RP_MEMIF_REGIONS = 4,   /* of a peer */
    RP_MEMIF_BYTES = 1 << 26, /* of all its regions: what it can make this process touch */
    RP_MEMIF_RING_LOG2 = 10, /* slots of a ring, at most */
};

enum rp_memif_type {
    RP_MEMIF_ACK = 1, RP_MEMIF_HELLO, RP_MEMIF_INIT, RP_MEMIF_ADD_REGION, RP_MEMIF_ADD_RING,
    RP_MEMIF_CONNECT, RP_MEMIF_CONNECTED, RP_MEMIF_DISCONNECT,
};

enum rp_memif_layout { /* of a ring, in bytes */
    RP_MEMIF_COOKIE = 0x3E31F20,
    RP_MEMIF_AT_COOKIE = 0, RP_MEMIF_AT_FLAGS = 4, RP_MEMIF_AT_HEAD = 6, RP_MEMIF_AT_TAIL = 64,
    RP_MEMIF_AT_SLOTS = 128, RP_MEMIF_SLOT = 16,
    RP_MEMIF_POLLED = 1, /* a ring's flag: its reader polls, and is not to be woken */
    RP_MEMIF_CHAINED = 1, /* a descriptor's: the frame goes on in the next slot */
};

/* Why a client has not the link it asked for, as DPDK's driver says it too. */
#define RP_MEMIF_NO_ID "ID not found"
#define RP_MEMIF_TAKEN "Already connected"

struct rp_memif_region {
    uint8_t *memory;
    uint64_t size;
};

struct rp_memif_ring {
    uint8_t *memory; /* null: not there yet */
    uint32_t size;   /* slots */
    _Atomic uint16_t next; /* the first one the server has not used; a sleep reads it */
    uint32_t is_chained; /* that one goes on with a frame whose first slots were used */
};

struct rp_memif_peer {
    enum { RP_MEMIF_SENT_HELLO, RP_MEMIF_KNOWN, RP_MEMIF_READY } state;
    uint32_t id; /* which link it asked for; from RP_MEMIF_KNOWN on */
    uint32_t region_count;
    uint64_t bytes; /* of its regions */
    struct rp_memif_region regions[RP_MEMIF_REGIONS]; /* mapped and unmapped by the caller */
    struct rp_memif_ring in, out;
};

struct rp_memif_slot {
    uint8_t *data;
    uint32_t size;
    uint32_t is_chained;
};

/* ---- messages, of RP_MEMIF_MESSAGE bytes ---- */

void rp_memif_write_hello(uint8_t *answer);
/* Where the message is a DISCONNECT: why, in what is printable of it. Else `why` stays. */
void rp_memif_reason(const uint8_t *message, char *why, size_t size);
/* A DISCONNECT that says why. */
void rp_memif_refuse(uint8_t *answer, const char *why);
/* How many bytes of the file that comes with this message are to be mapped for it; 0: none. */
uint64_t rp_memif_maps(const struct rp_memif_peer *peer, const uint8_t *message);
/* Handles the peer's message; `memory` is that of its region where rp_memif_maps asked for it
 * (null: it cannot be had). 1: `answer` is to be sent; 0: the peer disconnects; -1: it is refused,
 * and `answer` says why. */
int rp_memif_hear(struct rp_memif_peer *peer, const uint8_t *message, uint8_t *memory,
                  uint8_t *answer);

/* Reads a message about a ring: 1, or 0 where it is about none. And the bytes of the region that
 * the message adds, or 0. */
struct rp_memif_ring_place {
    uint32_t to_server, region, offset, log2;
};
int rp_memif_parse_ring(const uint8_t *message, struct rp_memif_ring_place *place);
uint64_t rp_memif_parse_region(const uint8_t *message);
/* Where the message is an INIT, it asks for that link from now on: 1; else 0. */
int rp_memif_ask_for(uint8_t *message, uint32_t id);

/* ---- rings ---- */

static inline uint16_t rp_memif_next(const struct rp_memif_ring *ring) {
    return atomic_load_explicit(&ring->next, memory_order_relaxed);
}

/* Slots the peer has filled; -1: more than there are. */
static inline int rp_memif_filled(const struct rp_memif_ring *ring) {
    const _Atomic uint16_t *head =
        (const _Atomic uint16_t *)(const void *)(ring->memory + RP_MEMIF_AT_HEAD);
    uint16_t filled = (uint16_t)(atomic_load_explicit(head, memory_order_acquire)
                                 - rp_memif_next(ring));
    return filled <= ring->size ? filled : -1;
}

/* The slot `ahead` of the next one: 0, or -1 where it leads out of the peer's memory. */
static inline int rp_memif_read(const struct rp_memif_peer *peer, const struct rp_memif_ring *ring,
                                uint32_t ahead, struct rp_memif_slot *slot) {
    uint32_t index = (rp_memif_next(ring) + ahead) & (ring->size - 1);
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)(
        ring->memory + RP_MEMIF_AT_SLOTS + (size_t)index * RP_MEMIF_SLOT);
    uint64_t first = atomic_load_explicit(&words[0], memory_order_relaxed);
    uint64_t offset = (uint32_t)atomic_load_explicit(&words[1], memory_order_relaxed);
    uint32_t region = first >> 16 & UINT16_MAX, length = (uint32_t)(first >> 32);
    if (region >= peer->region_count || offset + length > peer->regions[region].size) {
        return -1;
    }
    slot->data = peer->regions[region].memory + offset;
    slot->size = length;
    slot->is_chained = first & RP_MEMIF_CHAINED;
    return 0;
}

/* A frame of `size` bytes was written there. */
static inline void rp_memif_written(const struct rp_memif_ring *ring, uint32_t ahead,
                                    uint32_t size) {
    uint32_t index = (rp_memif_next(ring) + ahead) & (ring->size - 1);
    uint8_t *at = ring->memory + RP_MEMIF_AT_SLOTS + (size_t)index * RP_MEMIF_SLOT;
    atomic_store_explicit((_Atomic uint16_t *)(void *)at, 0, memory_order_relaxed);
    atomic_store_explicit((_Atomic uint32_t *)(void *)(at + 4), size, memory_order_relaxed);
}

/* ---- waking ---- */

/* A ring's flag says whether its reader wants to be called, by the file that came with the ring.
 * The writer reads the flag behind a fence, after its frames are in place. The reader sets the flag
 * before it looks for frames. So one of the two sees what the other wrote. */
static inline int rp_memif_wants_call(const uint8_t *ring) {
    const _Atomic uint16_t *flags =
        (const _Atomic uint16_t *)(const void *)(ring + RP_MEMIF_AT_FLAGS);
    return !(atomic_load_explicit(flags, memory_order_relaxed) & RP_MEMIF_POLLED);
}

static inline void rp_memif_let_call(uint8_t *ring, int on) {
    _Atomic uint16_t *flags = (_Atomic uint16_t *)(void *)(ring + RP_MEMIF_AT_FLAGS);
    atomic_store_explicit(flags, on ? 0 : RP_MEMIF_POLLED, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

/* Slots between a ring's tail and its head, by its own words: for a client, which trusts them. */
static inline uint16_t rp_memif_room(const uint8_t *ring) {
    const _Atomic uint16_t *head =
        (const _Atomic uint16_t *)(const void *)(ring + RP_MEMIF_AT_HEAD);
    const _Atomic uint16_t *tail =
        (const _Atomic uint16_t *)(const void *)(ring + RP_MEMIF_AT_TAIL);
    return (uint16_t)(atomic_load_explicit(head, memory_order_acquire)
                      - atomic_load_explicit(tail, memory_order_acquire));
}

/* So many slots were used: they are the peer's again. */
static inline void rp_memif_advance(struct rp_memif_ring *ring, uint32_t count) {
    _Atomic uint16_t *tail = (_Atomic uint16_t *)(void *)(ring->memory + RP_MEMIF_AT_TAIL);
    uint16_t next = (uint16_t)(rp_memif_next(ring) + count);
    atomic_store_explicit(&ring->next, next, memory_order_relaxed);
    atomic_store_explicit(tail, next, memory_order_release);
}

#endif
