/* Messages are read and written field by field, at the offsets of the protocol's packed structs, in
 * this machine's byte order: both ends are on it. */
#include "dpdk/memif.h"

#include <string.h>

enum { VERSION = 2 << 8, ETHERNET = 0, TO_SERVER = 1, RING_ALIGNED = 16 };

/* Where fields begin. */
enum {
    HELLO_LEAST = 34, HELLO_MOST = 36, HELLO_REGIONS = 38, HELLO_LOG2 = 44,
    INIT_VERSION = 2, INIT_ID = 4, INIT_MODE = 8,
    REGION_INDEX = 2, REGION_SIZE = 4,
    RING_FLAGS = 2, RING_INDEX = 4, RING_REGION = 6, RING_OFFSET = 8, RING_LOG2 = 12,
    TEXT = 2, LEAVE_TEXT = 6, LEAVE_TEXT_BYTES = 96,
};

static uint16_t get16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t get64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void put16(uint8_t *at, uint16_t value) {
    memcpy(at, &value, sizeof value);
}

static void begin(uint8_t *answer, enum rp_memif_type type) {
    memset(answer, 0, RP_MEMIF_MESSAGE);
    put16(answer, (uint16_t)type);
}

void rp_memif_write_hello(uint8_t *answer) {
    static const char name[] = "replay-server";
    begin(answer, RP_MEMIF_HELLO); /* one ring each way: their highest indices are 0 */
    memcpy(answer + TEXT, name, sizeof name);
    put16(answer + HELLO_LEAST, VERSION);
    put16(answer + HELLO_MOST, VERSION);
    put16(answer + HELLO_REGIONS, RP_MEMIF_REGIONS - 1);
    answer[HELLO_LOG2] = RP_MEMIF_RING_LOG2;
}

void rp_memif_refuse(uint8_t *answer, const char *why) {
    size_t size = strlen(why);
    begin(answer, RP_MEMIF_DISCONNECT);
    memcpy(answer + LEAVE_TEXT, why, size < LEAVE_TEXT_BYTES ? size : LEAVE_TEXT_BYTES - 1);
}

void rp_memif_reason(const uint8_t *message, char *why, size_t size) {
    const uint8_t *text = message + LEAVE_TEXT;
    size_t end = 0;
    if (get16(message) != RP_MEMIF_DISCONNECT) {
        return;
    }
    for (; end + 1 < size && end < LEAVE_TEXT_BYTES && text[end] >= ' ' && text[end] < 127; end++) {
        why[end] = (char)text[end];
    }
    why[end] = 0;
}

uint64_t rp_memif_maps(const struct rp_memif_peer *peer, const uint8_t *message) {
    uint64_t size = get64(message + REGION_SIZE);
    return get16(message) == RP_MEMIF_ADD_REGION && peer->state == RP_MEMIF_KNOWN
            && peer->region_count < RP_MEMIF_REGIONS
            && get16(message + REGION_INDEX) == peer->region_count
            && size <= RP_MEMIF_BYTES - peer->bytes
        ? size : 0;
}

int rp_memif_parse_ring(const uint8_t *message, struct rp_memif_ring_place *place) {
    *place = (struct rp_memif_ring_place){
        .to_server = get16(message + RING_FLAGS) & TO_SERVER,
        .region = get16(message + RING_REGION), .offset = get32(message + RING_OFFSET),
        .log2 = message[RING_LOG2]};
    return get16(message) == RP_MEMIF_ADD_RING && get16(message + RING_INDEX) == 0
        && place->log2 <= RP_MEMIF_RING_LOG2;
}

uint64_t rp_memif_parse_region(const uint8_t *message) {
    return get16(message) == RP_MEMIF_ADD_REGION ? get64(message + REGION_SIZE) : 0;
}

int rp_memif_ask_for(uint8_t *message, uint32_t id) {
    if (get16(message) != RP_MEMIF_INIT) {
        return 0;
    }
    memcpy(message + INIT_ID, &id, sizeof id);
    return 1;
}

/* Null, or why not: as below. */
static const char *know(struct rp_memif_peer *peer, const uint8_t *message) {
    if (get16(message + INIT_VERSION) != VERSION) {
        return "Incompatible memif version";
    }
    if (message[INIT_MODE] != ETHERNET) {
        return "Only ethernet mode supported";
    }
    peer->id = get32(message + INIT_ID);
    peer->state = RP_MEMIF_KNOWN;
    return NULL;
}

static const char *add_region(struct rp_memif_peer *peer, const uint8_t *message, uint8_t *memory) {
    uint64_t size = rp_memif_maps(peer, message);
    if (!size) {
        return "Invalid region: its number, or more than 64 MiB in all";
    }
    if (!memory) {
        return "A region is a memfd of this size at least, sealed against shrinking, no hugepages";
    }
    peer->regions[peer->region_count++] = (struct rp_memif_region){memory, size};
    peer->bytes += size;
    return NULL;
}

static const char *add_ring(struct rp_memif_peer *peer, const uint8_t *message) {
    struct rp_memif_ring *ring =
        get16(message + RING_FLAGS) & TO_SERVER ? &peer->in : &peer->out;
    uint64_t offset = get32(message + RING_OFFSET);
    uint32_t region = get16(message + RING_REGION), log2 = message[RING_LOG2];
    if (get16(message + RING_INDEX) != 0 || ring->memory) {
        return "Invalid ring: there is one in each direction";
    }
    if (region >= peer->region_count || log2 > RP_MEMIF_RING_LOG2 || offset % RING_ALIGNED
        || offset + RP_MEMIF_AT_SLOTS + ((uint64_t)RP_MEMIF_SLOT << log2)
               > peer->regions[region].size) {
        return "Invalid ring: it does not lie in a region";
    }
    ring->memory = peer->regions[region].memory + offset;
    ring->size = 1u << log2;
    return NULL;
}

static int start_ring(const struct rp_memif_ring *ring) {
    if (!ring->memory || get32(ring->memory + RP_MEMIF_AT_COOKIE) != RP_MEMIF_COOKIE) {
        return -1;
    }
    put16(ring->memory + RP_MEMIF_AT_HEAD, 0);
    put16(ring->memory + RP_MEMIF_AT_TAIL, 0);
    return 0;
}

static const char *connect_rings(struct rp_memif_peer *peer) {
    if (start_ring(&peer->in) || start_ring(&peer->out)) {
        return "Wrong ring";
    }
    put16(peer->in.memory + RP_MEMIF_AT_FLAGS, RP_MEMIF_POLLED);
    peer->state = RP_MEMIF_READY;
    return NULL;
}

int rp_memif_hear(struct rp_memif_peer *peer, const uint8_t *message, uint8_t *memory,
                  uint8_t *answer) {
    const char *wrong = "Unexpected message";
    uint32_t type = get16(message);
    if (type == RP_MEMIF_DISCONNECT) {
        return 0;
    }
    if (peer->state == RP_MEMIF_SENT_HELLO && type == RP_MEMIF_INIT) {
        wrong = know(peer, message);
    } else if (peer->state == RP_MEMIF_KNOWN && type == RP_MEMIF_ADD_REGION) {
        wrong = add_region(peer, message, memory);
    } else if (peer->state == RP_MEMIF_KNOWN && type == RP_MEMIF_ADD_RING) {
        wrong = add_ring(peer, message);
    } else if (peer->state == RP_MEMIF_KNOWN && type == RP_MEMIF_CONNECT) {
        wrong = connect_rings(peer);
    }
    if (wrong) {
        rp_memif_refuse(answer, wrong);
        return -1;
    }
    begin(answer, type == RP_MEMIF_CONNECT ? RP_MEMIF_CONNECTED : RP_MEMIF_ACK);
    return 1;
}
