/* Buffers of a burst, and messages of it, see transport_lend.h. */
#include "transport/transport_lend.h"

#include <assert.h>
#include <stdlib.h>

#include "base/minmax.h"

static uint8_t *make_buffers(uint32_t *stride, uint32_t mtu) {
    *stride = (mtu + 127) & ~63u; /* with room behind: no power of two */
    return aligned_alloc(64, (size_t)RP_BURST * *stride);
}

int rp_lease_open(struct rp_lease *lease, uint32_t mtu) {
    lease->memory = make_buffers(&lease->stride, mtu);
    return lease->memory != NULL;
}

uint32_t rp_lease_take(struct rp_lease *lease, struct rp_packet *packets, uint32_t count,
                       uint32_t mtu) {
    assert(lease->leased == 0);
    count = rp_min(count, RP_BURST);
    for (uint32_t i = 0; i < count; i++) {
        packets[i].data = lease->memory + (size_t)i * lease->stride;
        packets[i].size = 0;
        packets[i].capacity = mtu;
        packets[i].token = 0;
    }
    lease->leased = count;
    return count;
}

void rp_lease_end(struct rp_lease *lease, uint32_t count) {
    assert(count == lease->leased);
    lease->leased = 0;
}

int rp_slots_open(struct rp_slots *slots, uint32_t mtu) {
    slots->memory = make_buffers(&slots->stride, mtu);
    for (; slots->free_count < RP_BURST; slots->free_count++) {
        slots->free[slots->free_count] = slots->free_count;
    }
    return slots->memory != NULL;
}

void rp_slots_release(struct rp_slots *slots, struct rp_packet *packets, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        assert(slots->free_count < RP_BURST && packets[i].token < RP_BURST);
        slots->free[slots->free_count++] = (uint32_t)packets[i].token;
    }
}

/* How many of packets[0 .. count) go into one message. */
static uint32_t group_of(const struct rp_packet *packets, uint32_t count) {
    const struct rp_peer *peer = &packets[0].peer;
    uint32_t bytes = packets[0].size, end = 1;
    for (uint32_t i = 1; i < count; i++) {
        if (packets[i].size == 0) {
            continue;
        }
        bytes += packets[i].size;
        if (bytes > RP_MTU_MAX || memcmp(&packets[i].peer, peer, sizeof *peer) != 0) {
            break;
        }
        end = i + 1;
    }
    return end;
}

uint32_t rp_lease_send(struct rp_lease *lease, struct rp_port *port, struct rp_packet *packets,
                       uint32_t count, rp_send_message *message) {
    uint32_t messages = 0;
    for (uint32_t i = 0; i < count;) {
        uint32_t taken = 1;
        if (packets[i].size) {
            taken = group_of(packets + i, count - i);
            message(port, packets + i, taken);
            messages++;
        }
        i += taken;
    }
    rp_lease_end(lease, count);
    return messages;
}
