/* Fuzz target: what a memif server reads of a peer: its messages, and the words of its rings.
 *
 * The input is a list of steps, each begun by a byte:
 *     MESSAGE  how long (1), then the message's first bytes; zeros behind them
 *     WRITE    region (1), where (2), how long (1), then bytes: the peer's own writing
 *     RECEIVE  slots at most (1): as a burst does, every byte of a frame is read; then it sleeps
 *     SEND     slots at most (1): every byte of the room is written
 * Regions are of exactly the size that was asked for, so that the address sanitizer sees a byte too
 * far.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dpdk/memif.h"
#include "fuzz_port.h"

enum { MESSAGE, WRITE, RECEIVE, SEND, STEPS };
enum { REGION_MAX = 1 << 16, STEPS_MAX = 64 };

static volatile uint8_t seen;

static uint8_t *lend(uint64_t size) {
    return size && size <= REGION_MAX ? calloc(1, size) : NULL;
}

/* 1: the peer stays. */
static int speak(struct rp_memif_peer *peer, struct fuzz_input *input) {
    uint8_t message[RP_MEMIF_MESSAGE] = {0}, answer[RP_MEMIF_MESSAGE] = {0};
    uint32_t size = (uint32_t)fuzz_take(input, 1) % RP_MEMIF_MESSAGE;
    (void)fuzz_take_bytes(input, message, size);
    uint8_t *memory = lend(rp_memif_maps(peer, message));
    uint32_t regions = peer->region_count;
    struct rp_memif_ring_place place;
    int is_ring = rp_memif_parse_ring(message, &place);
    CHECK(!is_ring || place.log2 <= RP_MEMIF_RING_LOG2);
    CHECK(!is_ring || rp_memif_parse_region(message) == 0, "it is a ring and a region");
    int heard = rp_memif_hear(peer, message, memory, answer);
    if (memory && peer->region_count == regions) {
        free(memory);
    }
    CHECK(heard >= 0 || answer[0] == RP_MEMIF_DISCONNECT);
    CHECK(heard <= 0 || answer[0] == RP_MEMIF_ACK || answer[0] == RP_MEMIF_CONNECTED);
    return heard > 0;
}

static void change(const struct rp_memif_peer *peer, struct fuzz_input *input) {
    uint8_t bytes[UINT8_MAX];
    uint32_t region = (uint32_t)fuzz_take(input, 1), at = (uint32_t)fuzz_take(input, 2);
    uint32_t size = fuzz_take_bytes(input, bytes, (uint32_t)fuzz_take(input, 1));
    if (region < peer->region_count && at + size <= peer->regions[region].size) {
        memcpy(peer->regions[region].memory + at, bytes, size);
    }
}

/* 1: the peer stays. */
static int burst(const struct rp_memif_peer *peer, struct rp_memif_ring *ring, uint32_t most,
                 int sends) {
    struct rp_memif_slot slot;
    int filled = peer->state == RP_MEMIF_READY ? rp_memif_filled(ring) : 0;
    uint32_t count = filled < (int)most ? (uint32_t)filled : most;
    for (uint32_t i = 0; i < count && filled > 0; i++) {
        if (rp_memif_read(peer, ring, i, &slot)) {
            return 0;
        }
        for (uint32_t k = 0; k < slot.size && !sends; k++) {
            seen ^= slot.data[k];
        }
        if (sends) {
            memset(slot.data, 0, slot.size);
            rp_memif_written(ring, i, slot.size);
        }
    }
    if (filled > 0) {
        rp_memif_advance(ring, count);
        seen ^= (uint8_t)rp_memif_room(ring->memory);
        rp_memif_let_call(ring->memory, most & 1);
        CHECK(rp_memif_wants_call(ring->memory) == (int)(most & 1));
    }
    return filled >= 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input input = {data, size};
    struct rp_memif_peer peer = {0};
    uint8_t greeting[RP_MEMIF_MESSAGE];
    int stays = 1;
    rp_memif_write_hello(greeting);
    for (uint32_t steps = 0; stays && input.size && steps < STEPS_MAX; steps++) {
        uint32_t step = (uint32_t)fuzz_take(&input, 1) % STEPS;
        if (step == MESSAGE) {
            stays = speak(&peer, &input);
        } else if (step == WRITE) {
            change(&peer, &input);
        } else {
            uint32_t most = (uint32_t)fuzz_take(&input, 1);
            stays = burst(&peer, step == SEND ? &peer.out : &peer.in, most, step == SEND);
        }
    }
    for (uint32_t i = 0; i < peer.region_count; i++) {
        free(peer.regions[i].memory);
    }
    return 0;
}
