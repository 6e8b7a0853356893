/* What all simulated clients share: opening, turns, dying and coming back. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sim.h"

static const struct sim_behaviour {
    void (*act)(struct sim_world *world, struct sim_actor *actor);
    void (*after)(struct sim_world *world, struct sim_actor *actor);
    void (*lost)(struct sim_world *world, struct sim_actor *actor);
    int (*done)(const struct sim_world *world, const struct sim_actor *actor);
} behaviours[] = {
    [SIM_WRITER] = {sim_writer_act, sim_writer_after, sim_writer_lost, sim_writer_done},
    [SIM_LEARNER] = {sim_learner_act, sim_learner_after, sim_learner_lost, sim_learner_done},
    [SIM_WEIGHTS] = {sim_weights_act, sim_weights_after, sim_weights_lost, sim_weights_done},
};

/* More messages than any step takes pieces; else its writer is refused. */
static uint32_t messages_least(const struct sim_world *world, uint32_t mtu) {
    uint32_t least = 8;
    for (uint32_t i = 0; i < SIM_TABLES; i++) {
        uint32_t pieces = rp_piece_count(world->tables[i].config.step_bytes, mtu);
        least = pieces >= least ? pieces + 1 : least;
    }
    return least;
}

void sim_actor_open(struct sim_world *world, struct sim_actor *actor) {
    char error[256] = "";
    static const uint32_t mtus[] = {512, 1400, 4096};
    uint32_t mtu = mtus[rp_random_below(&world->random, 3)];
    struct rp_client_options options = {
        .mtu = mtu < world->mtu ? mtu : world->mtu,
        .requests_max = 16,
        .batch_max = SIM_BATCH_MAX,
        .tables_max = SIM_TABLES,
        .retry_us_min = 2000,
        .retry_us_max = 60000,
        .connect_timeout_ns = 3 * SIM_S,};
    options.receive_budget = 16 + (uint32_t)rp_random_below(&world->random, 48);
    options.messages_max = messages_least(world, options.mtu);
    options.messages_max += (uint32_t)rp_random_below(&world->random, 25);
    options.nonce = rp_random_next(&world->random);
    options.seed = rp_random_next(&world->random);
    size_t bytes = rp_client_bytes(&options, error);
    CHECK(bytes > 0, "%s", error);
    actor->memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    CHECK(actor->memory != NULL);
    memset(actor->memory, 0, bytes);
    int status = rp_client_open(&actor->client, actor->memory, bytes, &options,
                                &world->server.port->base.address, world->now, error);
    CHECK(status == 0, "client: %s (%d)", error, status);
    actor->turn_at = world->now;
    actor->next_at = world->now;
    actor->version = 0;
}

/* The client goes away: told to the server first, or, killed, not even that. */
void sim_actor_close(struct sim_world *world, struct sim_actor *actor, int kill) {
    if (!actor->client) {
        return;
    }
    behaviours[actor->kind].lost(world, actor);
    if (!kill) {
        rp_client_close(actor->client, world->now + 10 * SIM_MS);
        sim_process_enter();
        rp_client_turn(actor->client, sim_port_face(actor->port), world->now);
        sim_process_leave();
    }
    const uint64_t *counters = rp_client_counters(actor->client);
    for (uint32_t i = 0; i < RP_COUNTER_COUNT; i++) {
        world->totals->client[i] += counters[i];
    }
    free(actor->memory);
    actor->client = NULL;
    sim_port_reset(actor->port);
}

/* Versions never fall while the incarnation is the same. */
static void versions_rise(struct sim_actor *actor) {
    uint64_t version = rp_client_weights_version(actor->client);
    uint64_t incarnation = rp_client_incarnation(actor->client);
    CHECK(incarnation != actor->incarnation || version >= actor->version,
          "the newest weights got older");
    actor->version = version;
    actor->incarnation = incarnation;
}

void sim_actor_turn(struct sim_world *world, struct sim_actor *actor) {
    sim_process_enter();
    rp_client_turn(actor->client, sim_port_face(actor->port), world->now);
    sim_process_leave();
    rp_client_check(actor->client);
    actor->turn_at = rp_client_deadline(actor->client);
    versions_rise(actor);
    behaviours[actor->kind].after(world, actor);
}

void sim_actor_act(struct sim_world *world, struct sim_actor *actor) {
    int state = rp_client_state(actor->client);
    if (state < 0) { /* it could not connect: a new process tries again */
        CHECK(state == -RP_TIMEOUT || state == -RP_NO_SESSION_FREE || state == -RP_CLOSED,
              "state %d", state);
        sim_actor_close(world, actor, 1);
        sim_actor_open(world, actor);
        actor->turn_at = actor->next_at = world->now + rp_random_below(&world->random, SIM_S / 4);
        return;
    }
    uint64_t most = actor->kind == SIM_WRITER ? 1 : 4;
    actor->next_at = world->now + SIM_MS / 4 + rp_random_below(&world->random, most * SIM_MS);
    behaviours[actor->kind].act(world, actor);
    actor->turn_at = world->now; /* what was posted may leave */
}

int sim_actor_done(const struct sim_world *world, const struct sim_actor *actor) {
    return behaviours[actor->kind].done(world, actor);
}

int sim_ticket_ended(struct sim_actor *actor, int *ticket, int *status) {
    if (*ticket <= 0) {
        return 0;
    }
    int state = rp_client_poll(actor->client, *ticket);
    if (state == RP_PENDING) {
        return 0;
    }
    CHECK(state <= 0, "a ticket ended with %d", state);
    rp_client_take(actor->client, *ticket);
    *ticket = 0;
    *status = state;
    return 1;
}

static void actor_add(struct sim_world *world, enum sim_kind kind) {
    struct sim_actor *actor = &world->actors[world->actor_count];
    actor->kind = kind;
    actor->index = world->actor_count++;
    actor->port = sim_port_open(&world->net, world->mtu, 64);
    if (kind == SIM_WRITER) {
        actor->as.writer.goal = 200 + (uint32_t)rp_random_below(&world->random, 600);
    } else if (kind == SIM_LEARNER) {
        actor->as.learner.index = world->learner_count++;
    }
    sim_actor_open(world, actor);
}

void sim_actors_add(struct sim_world *world, uint32_t writers, uint32_t learners) {
    for (uint32_t i = 0; i < writers; i++) {
        actor_add(world, SIM_WRITER);
    }
    for (uint32_t i = 0; i < learners; i++) {
        actor_add(world, SIM_LEARNER);
    }
    actor_add(world, SIM_WEIGHTS);
}

void sim_actors_step(struct sim_world *world) {
    for (uint32_t i = 0; i < world->actor_count; i++) {
        struct sim_actor *actor = &world->actors[i];
        if (actor->next_at <= world->now) {
            sim_actor_act(world, actor);
        }
        if (actor->turn_at <= world->now || sim_port_next(actor->port) <= world->now) {
            sim_actor_turn(world, actor);
        }
    }
}

int sim_actors_done(const struct sim_world *world) {
    for (uint32_t i = 0; i < world->actor_count; i++) {
        if (!behaviours[world->actors[i].kind].done(world, &world->actors[i])) {
            return 0;
        }
    }
    return 1;
}

int sim_status_of_loss(int status) {
    return status == -RP_TIMEOUT || status == -RP_SERVER_RESTARTED || status == -RP_SESSION_EXPIRED
           || status == -RP_NO_SESSION_FREE;
}
