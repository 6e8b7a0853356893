/* The oracle's ear on the wire: every valid datagram that an engine sends comes by here before the
 * network loses it.
 *
 *     a (session, id) of SAMPLE draws once: the records in its first datagram are the same in every
 * answer what the table was charged lies between the batches answered and the batches asked for
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "protocol/flow.h"
#include "sim.h"

static struct sim_draw *draw_find(struct sim_oracle *oracle, uint64_t session, uint64_t id) {
    for (uint32_t i = oracle->draw_count; i-- > 0;) {
        if (oracle->draws[i].session == session && oracle->draws[i].id == id) {
            return &oracle->draws[i];
        }
    }
    if (oracle->draw_count == oracle->draw_capacity) {
        oracle->draw_capacity = 2 * oracle->draw_capacity + 256;
        oracle->draws = realloc(oracle->draws, oracle->draw_capacity * sizeof *oracle->draws);
        CHECK(oracle->draws != NULL);
    }
    struct sim_draw *draw = &oracle->draws[oracle->draw_count++];
    *draw = (struct sim_draw){.session = session, .id = id};
    return draw;
}

static void asked(struct sim_world *world, const struct rp_view *view) {
    const struct rp_sample *sample = (const void *)view->body;
    struct sim_draw *draw = draw_find(&world->oracle, view->outer->connection, view->message->id);
    struct sim_ring *ring = sim_ring_find(world, sample->epoch);
    if (draw->asked) {
        CHECK(draw->count == sample->count && draw->table == view->message->table,
              "a SAMPLE was repeated with other contents");
        return;
    }
    draw->asked = 1;
    draw->count = sample->count;
    draw->table = view->message->table;
    draw->charged = sample->mode != RP_SAMPLE_KEYS;
    draw->ring = ring;
    if (ring && draw->charged) {
        ring->drawn_asked += sample->count;
    }
}

static uint64_t hash_bytes(const uint8_t *data, uint32_t size) {
    uint64_t hash = size;
    for (uint32_t i = 0; i < size; i++) {
        hash = (hash ^ data[i]) * 0x100000001B3u;
    }
    return hash;
}

/* The first datagram of a batch: its records are immutable. */
static void answered(struct sim_world *world, const struct rp_view *view) {
    const struct rp_batch_datagram *part = (const void *)(view->body + sizeof(struct rp_answer));
    if (part->datagram != 0) {
        return;
    }
    const uint8_t *payload = (const uint8_t *)(part + 1) + 8 * part->words;
    const struct rp_batch *batch = (const void *)payload;
    struct sim_draw *draw = draw_find(&world->oracle, view->outer->connection, view->message->id);
    CHECK(draw->asked && draw->count == batch->count, "a batch nobody asked for");
    uint64_t records = sizeof *batch + (uint64_t)batch->count * sizeof(struct rp_batch_item);
    uint32_t size = records < part->payload ? (uint32_t)records : part->payload;
    uint64_t hash = hash_bytes(payload, size);
    CHECK(!draw->answered || draw->head_hash == hash,
          "a batch's record changed between two answers");
    if (!draw->answered && draw->charged) {
        struct sim_ring *ring = sim_ring_find(world, batch->epoch);
        CHECK(ring != NULL && ring->table == view->message->table, "a batch of an unknown epoch");
        CHECK(draw->ring == NULL || draw->ring == ring, "a batch of another epoch than asked for");
        ring->drawn_answered += batch->count;
    }
    draw->answered = 1;
    draw->head_hash = hash;
}

void sim_snoop(void *context, const struct sim_port *from, const struct rp_packet *packet) {
    struct sim_world *world = context;
    struct rp_view view;
    CHECK(rp_packet_open(packet->data, packet->size, from->base.mtu, &view) == 0);
    uint8_t op = view.message->op;
    if (from != world->server.port) {
        if (op == RP_OP_SAMPLE && from != world->vandal) {
            asked(world, &view);
        }
        return;
    }
    const struct rp_answer *answer = (const void *)view.body;
    CHECK((op & RP_ANSWER) != 0, "the server sent a request");
    CHECK(answer->incarnation == world->server.incarnation, "an answer of another incarnation");
    CHECK(world->remote
              || answer->weights_version <= rp_server_weights_version(world->server.server),
          "an answer tells of weights that are not there yet");
    if (op == (RP_OP_SAMPLE | RP_ANSWER) && answer->status == RP_OK
        && memcmp(&packet->peer, &world->vandal->base.address, sizeof packet->peer) != 0) {
        answered(world, &view);
    }
}
