/* What a memif peer says and writes: every message against a list of what must be refused, and
 * rings whose words are anything, in memory with nothing mapped before and behind it: what is read
 * of a slot lies in its region, also while another thread changes the words.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "dpdk/memif.c"
#include "base/random.h"

enum {
    EXECUTIONS = 1000000, RACED = 200000, PAGE = 4096, LOG2 = 5, SLOTS = 1 << LOG2,
    REGION = 4 * PAGE, RINGS = 2, RING = RP_MEMIF_AT_SLOTS + SLOTS * RP_MEMIF_SLOT,
    OTHER = PAGE, /* the second region's size */
};

static uint8_t *memory[2]; /* of two regions, each between pages that nobody may touch */

static uint8_t *map_alone(size_t size) {
    uint8_t *all = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED && mprotect(all + PAGE, size, PROT_READ | PROT_WRITE) == 0);
    return all + PAGE;
}

/* ---- messages ---- */

static void put32(uint8_t *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
}

static const uint8_t *say_init(uint32_t id, uint32_t version, uint32_t mode) {
    static uint8_t message[RP_MEMIF_MESSAGE];
    begin(message, RP_MEMIF_INIT);
    put16(message + 2, (uint16_t)version);
    put32(message + 4, id);
    message[8] = (uint8_t)mode;
    return message;
}

static const uint8_t *say_region(uint32_t index, uint64_t size) {
    static uint8_t message[RP_MEMIF_MESSAGE];
    begin(message, RP_MEMIF_ADD_REGION);
    put16(message + 2, (uint16_t)index);
    put64(message + 4, size);
    return message;
}

static const uint8_t *say_ring(int to_server, uint32_t index, uint32_t region, uint32_t offset,
                               uint32_t log2) {
    static uint8_t message[RP_MEMIF_MESSAGE];
    begin(message, RP_MEMIF_ADD_RING);
    put16(message + 2, (uint16_t)to_server);
    put16(message + 4, (uint16_t)index);
    put16(message + 6, (uint16_t)region);
    put32(message + 8, offset);
    message[12] = (uint8_t)log2;
    return message;
}

static const uint8_t *say(uint32_t type) {
    static uint8_t message[RP_MEMIF_MESSAGE];
    begin(message, type);
    return message;
}

static uint32_t answered(const uint8_t *answer) {
    return get16(answer);
}

static void expect(struct rp_memif_peer *peer, const uint8_t *message, uint8_t *region, int heard,
                   uint32_t type) {
    uint8_t answer[RP_MEMIF_MESSAGE] = {0};
    int got = rp_memif_hear(peer, message, region, answer);
    CHECK(got == heard && answered(answer) == type, "type %u: %d, %u: %s", get16(message), got,
          answered(answer), answer + LEAVE_TEXT);
}

static void write_rings(void) {
    for (int i = 0; i < RINGS; i++) {
        memset(memory[0] + i * RING, 0xff, RING);
        put32(memory[0] + i * RING, RP_MEMIF_COOKIE);
    }
}

/* A peer of two regions and two rings, at work. */
static void meet(struct rp_memif_peer *peer) {
    memset(peer, 0, sizeof *peer);
    write_rings();
    expect(peer, say_init(3, VERSION, ETHERNET), NULL, 1, RP_MEMIF_ACK);
    CHECK(peer->id == 3 && rp_memif_maps(peer, say_region(0, REGION)) == REGION);
    expect(peer, say_region(0, REGION), memory[0], 1, RP_MEMIF_ACK);
    expect(peer, say_region(1, OTHER), memory[1], 1, RP_MEMIF_ACK);
    expect(peer, say_ring(1, 0, 0, 0, LOG2), NULL, 1, RP_MEMIF_ACK);
    expect(peer, say_ring(0, 0, 0, RING, LOG2), NULL, 1, RP_MEMIF_ACK);
    expect(peer, say(RP_MEMIF_CONNECT), NULL, 1, RP_MEMIF_CONNECTED);
    CHECK(peer->state == RP_MEMIF_READY && rp_memif_filled(&peer->in) == 0
          && rp_memif_filled(&peer->out) == 0 && get16(peer->in.memory + 4) == RP_MEMIF_POLLED);
}

/* A client's INIT asks for the link it is given, and no other message changes. */
static void asked_for(void) {
    struct rp_memif_peer peer = {0};
    uint8_t message[RP_MEMIF_MESSAGE];
    memcpy(message, say_init(3, VERSION, ETHERNET), sizeof message);
    CHECK(rp_memif_ask_for(message, 5) == 1);
    expect(&peer, message, NULL, 1, RP_MEMIF_ACK);
    CHECK(peer.id == 5);
    memcpy(message, say_region(0, REGION), sizeof message);
    CHECK(rp_memif_ask_for(message, 5) == 0);
    CHECK(memcmp(message, say_region(0, REGION), sizeof message) == 0);
}

static void greeting(void) {
    uint8_t bytes[RP_MEMIF_MESSAGE];
    static const uint8_t rest[] = {0, 2, 0, 2, 3, 0, 0, 0, 0, 0, 10, 0};
    struct rp_memif_peer peer;
    rp_memif_write_hello(bytes);
    CHECK(bytes[0] == RP_MEMIF_HELLO && strcmp((char *)bytes + 2, "replay-server") == 0
          && memcmp(bytes + 34, rest, sizeof rest) == 0);
    meet(&peer);
    expect(&peer, say(RP_MEMIF_DISCONNECT), NULL, 0, 0);
    check_group("a greeting, a peer at work, a peer that takes its leave");
}

static void full_rings(void) {
    struct rp_memif_peer peer;
    meet(&peer);
    for (uint16_t next = 0; next < 2; next++) { /* where the ring's words begin again, too */
        peer.in.next = (uint16_t)-next;
        uint16_t head = (uint16_t)(SLOTS - next);
        memcpy(peer.in.memory + RP_MEMIF_AT_HEAD, &head, sizeof head);
        CHECK(rp_memif_filled(&peer.in) == SLOTS, "a full ring is no lie");
        head++;
        memcpy(peer.in.memory + RP_MEMIF_AT_HEAD, &head, sizeof head);
        CHECK(rp_memif_filled(&peer.in) == -1, "more slots than there are");
    }
    check_group("a ring that is full, and one that says it is fuller");
}

static void refused(void) {
    static const uint32_t early[] = {RP_MEMIF_ACK, RP_MEMIF_HELLO, RP_MEMIF_ADD_REGION,
                                     RP_MEMIF_ADD_RING, RP_MEMIF_CONNECT, RP_MEMIF_CONNECTED, 0, 9};
    static const struct {
        int to_server;
        uint32_t index, region, offset, log2;
    } rings[] = {
        {1, 1, 0, 0, LOG2},                  /* a second ring */
        {1, 0, 2, 0, LOG2},                  /* in a region that is not there */
        {1, 0, 0xffff, 0, LOG2},
        {1, 0, 0, 0xfff00000, LOG2},         /* beyond its region */
        {1, 0, 0, 0xfffffff0, LOG2},         /* a sum of more than 32 bits */
        {1, 0, 0, REGION - RING + 16, LOG2}, /* by 16 bytes */
        {1, 0, 0, 8, LOG2},                  /* its words across two */
        {1, 0, 0, 0, 11},
        {1, 0, 0, 0, 64},
        {1, 0, 0, 0, 255},
    };
    struct rp_memif_peer peer, known;
    for (size_t i = 0; i < sizeof early / sizeof early[0]; i++) {
        memset(&peer, 0, sizeof peer);
        expect(&peer, say(early[i]), memory[0], -1, RP_MEMIF_DISCONNECT);
    }
    memset(&peer, 0, sizeof peer);
    expect(&peer, say_init(0, VERSION + 1, ETHERNET), NULL, -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_init(0, VERSION, 1), NULL, -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_init(0, VERSION, ETHERNET), NULL, 1, RP_MEMIF_ACK);
    known = peer;
    expect(&peer, say_init(0, VERSION, ETHERNET), NULL, -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_region(1, REGION), memory[0], -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_region(0, 0), memory[0], -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_region(0, RP_MEMIF_BYTES + 1), memory[0], -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_region(0, UINT64_MAX), memory[0], -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_region(0, REGION), NULL, -1, RP_MEMIF_DISCONNECT);
    CHECK(memcmp(&peer, &known, sizeof peer) == 0, "what is refused changes nothing");
    expect(&peer, say_region(0, REGION), memory[0], 1, RP_MEMIF_ACK);
    CHECK(rp_memif_maps(&peer, say_region(1, RP_MEMIF_BYTES)) == 0, "64 MiB in all");
    for (size_t i = 0; i < sizeof rings / sizeof rings[0]; i++) {
        expect(&peer, say_ring(rings[i].to_server, rings[i].index, rings[i].region,
                               rings[i].offset, rings[i].log2), NULL, -1, RP_MEMIF_DISCONNECT);
    }
    expect(&peer, say(RP_MEMIF_CONNECT), NULL, -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_ring(1, 0, 0, 0, LOG2), NULL, 1, RP_MEMIF_ACK);
    expect(&peer, say_ring(1, 0, 0, 0, LOG2), NULL, -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say(RP_MEMIF_CONNECT), NULL, -1, RP_MEMIF_DISCONNECT);
    expect(&peer, say_ring(0, 0, 0, REGION - RING, LOG2), NULL, 1, RP_MEMIF_ACK);
    memset(memory[0], 0, REGION);
    expect(&peer, say(RP_MEMIF_CONNECT), NULL, -1, RP_MEMIF_DISCONNECT); /* no cookie */
    meet(&peer);
    for (uint32_t type = 0; type < 10; type++) {
        if (type != RP_MEMIF_DISCONNECT) {
            expect(&peer, say(type), memory[1], -1, RP_MEMIF_DISCONNECT);
        }
    }
    check_group("messages that are refused: their order, regions, rings");
}

/* ---- rings ---- */

/* Any bytes, or those near a bound. */
static uint32_t odd_number(struct rp_random *random) {
    static const uint32_t near[] = {0, 1, 2, SLOTS, RING, OTHER, REGION, 1 << 16, 1u << 31,
                                    UINT32_MAX};
    uint64_t word = rp_random_next(random);
    return word & 1 ? (uint32_t)(word >> 32)
        : near[(word >> 8 & UINT8_MAX) % 10] + (uint32_t)(word >> 16 & 31) - 16;
}

/* What the server gives back says how long its frame is, and that it is whole. */
static void give_back(void) {
    struct rp_memif_peer peer;
    struct rp_memif_slot slot;
    meet(&peer);
    uint8_t *at = peer.out.memory + RP_MEMIF_AT_SLOTS;
    for (uint32_t i = 0; i < SLOTS + 1; i++) {
        uint8_t *words = at + i % SLOTS * RP_MEMIF_SLOT;
        put16(words, UINT16_MAX);
        put16(words + 2, 1);
        put32(words + 4, OTHER);
        put32(words + 8, 0);
        CHECK(rp_memif_read(&peer, &peer.out, 0, &slot) == 0 && slot.size == OTHER);
        CHECK(slot.data == memory[1] && slot.is_chained);
        rp_memif_written(&peer.out, 0, 42);
        rp_memif_advance(&peer.out, 1);
        CHECK(words[0] == 0 && words[1] == 0 && words[4] == 42 && words[5] == 0 && words[2] == 1);
    }
    check_group("slots given back: their length, no flag");
}

static void write_words(struct rp_random *random, uint32_t ring) {
    uint8_t *at = memory[0] + ring * RING;
    uint8_t *slot = at + RP_MEMIF_AT_SLOTS
        + rp_random_below(random, SLOTS) * RP_MEMIF_SLOT;
    put16(slot, (uint16_t)odd_number(random));
    put16(slot + 2, (uint16_t)(rp_random_below(random, 4) ? rp_random_below(random, 3)
                               : odd_number(random)));
    put32(slot + 4, odd_number(random));
    put32(slot + 8, odd_number(random));
    if (rp_random_below(random, 8) == 0) {
        put16(at + RP_MEMIF_AT_HEAD, (uint16_t)odd_number(random));
        put16(at + RP_MEMIF_AT_TAIL, (uint16_t)odd_number(random));
        put32(at, odd_number(random));
    }
}

/* Uses a ring as a burst does; returns how many slots led into the peer's memory. */
static uint32_t use_ring(const struct rp_memif_peer *peer, struct rp_memif_ring *ring) {
    struct rp_memif_slot slot;
    uint32_t good = 0;
    int filled = rp_memif_filled(ring);
    CHECK(filled >= -1 && filled <= SLOTS);
    for (int i = 0; i < filled; i++) {
        if (rp_memif_read(peer, ring, (uint32_t)i, &slot)) {
            continue;
        }
        int region = slot.data >= memory[0] && slot.data <= memory[0] + REGION ? 0 : 1;
        uint64_t at = (uint64_t)(slot.data - memory[region]);
        CHECK(at <= peer->regions[region].size && slot.size <= peer->regions[region].size - at);
        if (slot.size && ring == &peer->out) {
            slot.data[0] ^= 1;
            slot.data[slot.size - 1] ^= 1;
        }
        rp_memif_written(ring, (uint32_t)i, slot.size);
        good++;
    }
    rp_memif_advance(ring, filled > 0 ? (uint32_t)filled : 0);
    return good;
}

static void fuzz(struct rp_random *random) {
    struct rp_memif_peer peer;
    uint64_t good = 0, bad = 0;
    meet(&peer);
    for (int i = check_rounds(EXECUTIONS); i > 0; i--) {
        uint32_t which = (uint32_t)rp_random_below(random, RINGS);
        struct rp_memif_ring *ring = which ? &peer.out : &peer.in;
        write_words(random, which);
        if (rp_random_below(random, 2)) { /* one that can be true */
            put16(ring->memory + RP_MEMIF_AT_HEAD,
                  (uint16_t)(ring->next + rp_random_below(random, SLOTS + 1)));
        }
        uint32_t held = use_ring(&peer, ring);
        good += held;
        bad += held == 0;
    }
    CHECK(good > EXECUTIONS / 100 && bad > EXECUTIONS / 100, "%" PRIu64 " %" PRIu64, good, bad);
    check_group("words of rings and slots, a million times: nothing outside is touched");
}

static _Atomic int racing;

static void *change(void *argument) {
    struct rp_random random;
    rp_random_seed(&random, *(const uint64_t *)argument);
    while (racing) {
        write_words(&random, (uint32_t)rp_random_below(&random, RINGS));
    }
    return NULL;
}

static void race(uint64_t seed) {
    struct rp_memif_peer peer;
    pthread_t thread;
    meet(&peer);
    racing = 1;
    CHECK(pthread_create(&thread, NULL, change, &seed) == 0);
    for (int i = check_rounds(RACED); i > 0; i--) {
        use_ring(&peer, i % 2 ? &peer.in : &peer.out);
    }
    racing = 0;
    pthread_join(thread, NULL);
    check_group("words that change while they are read");
}

int main(void) {
    struct rp_random random;
    uint64_t seed = check_seed(17);
    rp_random_seed(&random, seed);
    memory[0] = map_alone(REGION);
    memory[1] = map_alone(OTHER);
    greeting();
    asked_for();
    full_rings();
    refused();
    give_back();
    fuzz(&random);
    race(seed);
    return check_done("test_memif_peer");
}
