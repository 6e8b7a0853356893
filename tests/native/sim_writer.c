/* A simulated writer: asks for its table and a place, pushes episodes, makes items of complete
 * windows, and keeps account of what it was told. When its session or server is lost it begins a
 * new life with new streams. */
#include <string.h>

#include "check.h"
#include "sim.h"
#include "base/sum_tree.h"

enum { ASK_TABLE, WAIT_TABLE, ASK_PLACE, WAIT_PLACE, PUSH };

static uint32_t below(struct sim_world *world, uint32_t bound) {
    return (uint32_t)rp_random_below(&world->random, bound);
}

/* One seed in three has all its writers on one table. */
static uint32_t table_of(const struct sim_world *world, const struct sim_actor *actor) {
    return (uint32_t)(world->seed % 3 == 0 ? world->seed / 3 : actor->index) % SIM_TABLES;
}

/* ---- what it was told ---- */

static void acknowledged(struct sim_world *world, struct sim_actor *actor) {
    struct rp_push_key keys[32];
    struct sim_life *life = actor->as.writer.life;
    for (;;) {
        uint32_t count = rp_client_ledger(actor->client, keys, 32);
        if (count == 0) {
            return;
        }
        CHECK(life != NULL && !life->over, "an acknowledgement after the writer was lost");
        for (uint32_t i = 0; i < count; i++) {
            CHECK(keys[i].table == life->table, "an acknowledgement of another table");
            sim_life_ack(world, life, keys[i].stream, keys[i].step, keys[i].key);
        }
    }
}

static void life_over(struct sim_world *world, struct sim_actor *actor, int told) {
    struct sim_writer *writer = &actor->as.writer;
    struct sim_life *life = writer->life;
    if (life && !life->over) {
        uint64_t stored, in_doubt, lost;
        struct rp_push_state state;
        rp_client_push_state(actor->client, (uint16_t)life->table, &state);
        life->items_posted =
            state.items_posted; /* what was posted since may leave with a farewell */
        rp_client_loss(actor->client, (uint16_t)life->table, &stored, &in_doubt, &lost);
        if (told) {
            CHECK(stored == life->acked, "loss says %" PRIu64 " stored, the ledger %" PRIu64,
                  stored, life->acked);
            CHECK(stored + in_doubt + lost == life->posted,
                  "loss says %" PRIu64 " + %" PRIu64 " + %" PRIu64 " of %" PRIu64 " steps", stored,
                  in_doubt, lost, life->posted);
        }
        life->over = 1;
        world->totals->steps += life->acked;
        world->totals->keyless += life->acked - life->told;
    }
    writer->phase = ASK_TABLE;
}

void sim_writer_after(struct sim_world *world, struct sim_actor *actor) {
    struct sim_writer *writer = &actor->as.writer;
    acknowledged(world, actor);
    if (writer->phase != PUSH) {
        return;
    }
    struct rp_push_state state;
    rp_client_push_state(actor->client, (uint16_t)writer->life->table, &state);
    struct sim_life *life = writer->life;
    CHECK(state.steps_posted == life->posted, "steps posted: %" PRIu64, state.steps_posted);
    CHECK(state.steps_stored >= life->acked && state.steps_stored >= life->told,
          "stored %" PRIu64 ", in the ledger %" PRIu64, state.steps_stored, life->told);
    life->acked = state.steps_stored; /* the ledger lacks keys the server has forgotten */
    CHECK(state.items_created >= life->items_created && state.items_failed >= life->items_failed);
    CHECK(state.items_created + state.items_failed <= state.items_posted);
    life->items_posted = state.items_posted;
    life->items_created = state.items_created;
    life->items_failed = state.items_failed;
    if (state.status < 0) {
        CHECK(state.status == -RP_SERVER_RESTARTED || state.status == -RP_SESSION_EXPIRED
                  || state.status == -RP_STALE_EPOCH,
              "the writer ended with %d", state.status);
        life_over(world, actor, 1);
    }
}

void sim_writer_lost(struct sim_world *world, struct sim_actor *actor) {
    life_over(world, actor, 0);
    actor->as.writer.ticket = 0;
}

/* ---- pushing ---- */

static double some_priority(struct sim_world *world) {
    return sim_chance(&world->random, 60) ? 0 : (1 + below(world, 100000)) / 1000.0;
}

static uint64_t mass_of(const struct sim_world *world, uint32_t table, double priority) {
    return rp_power_mass(&world->tables[table].power, priority,
                         rp_tree_mass_max(world->tables[table].config.capacity));
}

static void rows_are_items(struct sim_world *world, struct sim_life *life, uint32_t stream,
                           uint32_t taken, const double *priorities) {
    struct sim_stream *line = &life->streams[stream];
    for (uint32_t i = 0; i < taken; i++) {
        struct sim_step *step = &line->steps[line->count - taken + i];
        step->item = 1;
        step->mass = priorities ? mass_of(world, life->table, priorities[i]) : UINT64_MAX;
    }
}

/* Pushes up to `count` steps; `end` closes the episode with the last. Returns how many were taken.
 */
static uint32_t push(struct sim_world *world, struct sim_actor *actor, uint32_t stream,
                     uint32_t count, int end) {
    static uint8_t bytes[8 * 4096];
    struct sim_life *life = actor->as.writer.life;
    const struct sim_table *table = &world->tables[life->table];
    uint32_t flags = (end ? RP_RUN_END : 0) | (life->table == 0 ? RP_RUN_ITEM : 0);
    double priorities[8];
    for (uint32_t i = 0; i < count; i++) {
        priorities[i] = some_priority(world);
        sim_step_bytes(table, life->number, stream, life->streams[stream].count + i,
                       bytes + i * table->config.step_bytes);
    }
    if (life->table == 0 && !sim_chance(&world->random, 150)) {
        flags |= RP_RUN_PRIORITY;
    }
    sim_process_enter();
    int taken = rp_client_push(actor->client, (uint16_t)life->table, (uint16_t)stream, bytes, count,
                               flags, flags & RP_RUN_PRIORITY ? priorities : NULL);
    sim_process_leave();
    memset(bytes, 0xEE, sizeof bytes); /* the client has copied them */
    if (taken <= 0) {
        CHECK(taken == 0 || taken == -RP_FULL, "push: status %d", taken);
        return 0;
    }
    sim_life_post(life, stream, (uint32_t)taken, end && (uint32_t)taken == count);
    if (flags & RP_RUN_ITEM) {
        rows_are_items(world, life, stream, (uint32_t)taken,
                       flags & RP_RUN_PRIORITY ? priorities : NULL);
    }
    world->totals->pushes++;
    return (uint32_t)taken;
}

/* Posts one create; 0 where the client had no room. */
static int create(struct sim_world *world, struct sim_actor *actor, uint32_t stream,
                  uint32_t number) {
    struct sim_life *life = actor->as.writer.life;
    struct sim_step *step = &life->streams[stream].steps[number];
    int maximum = sim_chance(&world->random, 100);
    double priority = maximum ? 0 : some_priority(world);
    sim_process_enter();
    int status = rp_client_create(actor->client, (uint16_t)life->table, (uint16_t)stream, number,
                                  priority, maximum ? RP_CREATE_MAXIMUM : 0);
    sim_process_leave();
    if (status == -RP_FULL) {
        return 0;
    }
    CHECK(status == 0, "create: status %d", status);
    step->item = number != step->episode_end;
    step->mass = maximum ? UINT64_MAX : mass_of(world, life->table, priority);
    world->totals->items++;
    return 1;
}

/* Makes items of the stream's anchors whose windows have been pushed, leaving some out. */
static void create_complete(struct sim_world *world, struct sim_actor *actor, uint32_t stream) {
    struct sim_life *life = actor->as.writer.life;
    struct sim_stream *line = &life->streams[stream];
    uint32_t *anchor = &actor->as.writer.anchors[stream];
    while (*anchor < line->count) {
        const struct sim_step *step = &line->steps[*anchor];
        int ended = step->episode_end != UINT32_MAX;
        if (!ended && *anchor + world->tables[life->table].ahead >= line->count) {
            return;
        }
        uint32_t leave_out = *anchor == step->episode_end ? 950 : 80;
        if (!sim_chance(&world->random, leave_out) && !create(world, actor, stream, *anchor)) {
            return;
        }
        ++*anchor;
    }
}

static void push_some(struct sim_world *world, struct sim_actor *actor) {
    struct sim_writer *writer = &actor->as.writer;
    uint32_t stream = below(world, writer->life->stream_count), count = 1 + below(world, 8);
    count = count < writer->goal ? count : writer->goal;
    int end = writer->life->table == 1 && sim_chance(&world->random, 150);
    if (count > 0) {
        writer->goal -= push(world, actor, stream, count, end);
    }
    if (writer->life->table == 1) {
        create_complete(world, actor, stream);
    }
    if (sim_chance(&world->random, 600)) {
        rp_client_flush(actor->client, (uint16_t)writer->life->table);
    }
}

/* Faults have stopped: every open episode is closed, every complete window becomes an item. */
static void finish(struct sim_world *world, struct sim_actor *actor) {
    struct sim_life *life = actor->as.writer.life;
    for (uint32_t stream = 0; life->table == 1 && stream < life->stream_count; stream++) {
        struct sim_stream *line = &life->streams[stream];
        if (line->episode_first < line->count && !push(world, actor, stream, 1, 1)) {
            break;
        }
        create_complete(world, actor, stream);
    }
    rp_client_flush(actor->client, (uint16_t)life->table);
}

/* ---- its course ---- */

static void begin(struct sim_world *world, struct sim_actor *actor) {
    struct sim_writer *writer = &actor->as.writer;
    /* An earlier request, given up, may have got a larger place: what was asked for last counts. */
    uint32_t streams = writer->granted.streams;
    streams = streams < writer->streams ? streams : writer->streams;
    writer->life = sim_life_begin(world, table_of(world, actor), writer->granted.epoch, streams);
    writer->life->session = rp_client_session(actor->client);
    memset(writer->anchors, 0, sizeof writer->anchors);
    CHECK(writer->granted.next_sequence == 0, "a new writer starts at sequence %" PRIu64,
          writer->granted.next_sequence);
    writer->phase = PUSH;
}

void sim_writer_act(struct sim_world *world, struct sim_actor *actor) {
    struct sim_writer *writer = &actor->as.writer;
    int status = 0;
    switch (writer->phase) {
    case ASK_TABLE:
        writer->ticket =
            rp_client_table(actor->client, world->tables[table_of(world, actor)].config.name,
                            &writer->info, world->now + SIM_S);
        writer->phase = writer->ticket > 0 ? WAIT_TABLE : ASK_TABLE;
        break;
    case WAIT_TABLE:
        if (sim_ticket_ended(actor, &writer->ticket, &status)) {
            writer->phase = status == 0 ? ASK_PLACE : ASK_TABLE;
        }
        break;
    case ASK_PLACE:
        writer->streams = 1 + below(world, SIM_STREAMS_MAX);
        writer->ticket = rp_client_writer(actor->client, &writer->info, (uint16_t)writer->streams,
                                          &writer->granted, world->now + SIM_S);
        writer->phase = writer->ticket > 0 ? WAIT_PLACE : ASK_TABLE;
        break;
    case WAIT_PLACE:
        if (sim_ticket_ended(actor, &writer->ticket, &status)) {
            writer->phase = ASK_TABLE;
            if (status == 0) {
                begin(world, actor);
            }
        }
        break;
    default:
        if (world->draining) {
            finish(world, actor);
        } else {
            push_some(world, actor);
        }
    }
}

int sim_writer_done(const struct sim_world *world, const struct sim_actor *actor) {
    const struct sim_writer *writer = &actor->as.writer;
    const struct sim_life *life = writer->life;
    if (writer->phase != PUSH || (!world->draining && writer->goal > 0)) {
        return 0;
    }
    struct rp_push_state state;
    rp_client_push_state(actor->client, (uint16_t)life->table, &state);
    for (uint32_t stream = 0; life->table == 1 && stream < life->stream_count; stream++) {
        const struct sim_stream *line = &life->streams[stream];
        if (world->draining
            && (line->episode_first < line->count || writer->anchors[stream] < line->count)) {
            return 0;
        }
    }
    return !world->draining || (state.messages_open == 0 && life->acked == life->posted);
}
