/* A simulated trainer of weights: publishes, pulls, and asks for all the small things: specs,
 * counters, pings, and, where the seed says so, resets of a table. */
#include <string.h>

#include "check.h"
#include "sim.h"

static void blob_fill(uint8_t *blob, uint64_t number, uint64_t size) {
    uint64_t word = number * 0x9E3779B97F4A7C15u + size;
    memcpy(blob, &number, 8);
    for (uint64_t i = 8; i < size; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        blob[i] = (uint8_t)(word >> 56);
    }
}

/* Looked at right after the turn that brought the answer: later the incarnation may be another. */
static void publish_end(struct sim_world *world, struct sim_actor *actor) {
    struct sim_weights *weights = &actor->as.weights;
    int status;
    if (sim_ticket_ended(actor, &weights->publish, &status)) {
        if (status == 0) {
            uint64_t incarnation = rp_client_incarnation(actor->client);
            CHECK(weights->published > 0, "a publication without a version");
            CHECK(incarnation != weights->incarnation || weights->published > weights->known,
                  "version %" PRIu64 " after %" PRIu64, weights->published, weights->known);
            sim_version_is(world, incarnation, weights->published, weights->number,
                           weights->session == rp_client_session(actor->client));
            weights->incarnation = incarnation;
            weights->known = weights->published;
            world->totals->versions++;
        } else {
            CHECK(sim_status_of_loss(status) || status == -RP_BUSY, "publish: status %d", status);
        }
    }
}

static void publish(struct sim_world *world, struct sim_actor *actor) {
    struct sim_weights *weights = &actor->as.weights;
    if (weights->publish > 0 || world->draining || !sim_chance(&world->random, 200)) {
        return;
    }
    weights->number++;
    weights->session = rp_client_session(actor->client);
    weights->size = 8 + rp_random_below(&world->random, SIM_BLOB_MAX - 7);
    blob_fill(weights->blob, weights->number, weights->size);
    int ticket = rp_client_publish(actor->client, weights->blob, weights->size, &weights->published,
                                   world->now + 2 * SIM_S);
    CHECK(ticket > 0 || ticket == -RP_FULL, "publish: status %d", ticket);
    weights->publish = ticket > 0 ? ticket : 0;
}

static void pulled(struct sim_world *world, struct sim_actor *actor) {
    static uint8_t expected[SIM_BLOB_MAX];
    struct sim_weights *weights = &actor->as.weights;
    uint64_t number;
    CHECK(weights->pulled_size >= 8 && weights->pulled_size <= SIM_BLOB_MAX, "%" PRIu64 " bytes",
          weights->pulled_size);
    memcpy(&number, weights->landing, 8);
    blob_fill(expected, number, weights->pulled_size);
    CHECK(memcmp(expected, weights->landing, weights->pulled_size) == 0, "weights are damaged");
    sim_version_is(world, rp_client_incarnation(actor->client), weights->pulled_version, number, 0);
    world->totals->pulls++;
}

static void pull_end(struct sim_world *world, struct sim_actor *actor) {
    struct sim_weights *weights = &actor->as.weights;
    int status;
    if (sim_ticket_ended(actor, &weights->pull, &status)) {
        if (status == 0) {
            pulled(world, actor);
        } else {
            CHECK(sim_status_of_loss(status) || status == -RP_NO_WEIGHTS || status == -RP_GONE,
                  "pull: status %d", status);
        }
    }
}

static void pull(struct sim_world *world, struct sim_actor *actor) {
    struct sim_weights *weights = &actor->as.weights;
    if (weights->pull <= 0 && !world->draining) {
        int ticket =
            rp_client_blob(actor->client, RP_BLOB_WEIGHTS, 0, 0, weights->landing, SIM_BLOB_MAX,
                           &weights->pulled_size, &weights->pulled_version, world->now + 2 * SIM_S);
        CHECK(ticket > 0 || ticket == -RP_FULL, "pull: status %d", ticket);
        weights->pull = ticket > 0 ? ticket : 0;
    }
}

static void other(struct sim_world *world, struct sim_actor *actor) {
    struct sim_weights *weights = &actor->as.weights;
    int status, ticket;
    if (weights->other > 0) {
        if (!sim_ticket_ended(actor, &weights->other, &status)) {
            return;
        }
        CHECK(status == 0 || sim_status_of_loss(status), "request: status %d", status);
    }
    if (world->draining) {
        return;
    }
    uint64_t deadline = world->now + SIM_S;
    uint32_t table = (uint32_t)rp_random_below(&world->random, SIM_TABLES);
    if (sim_chance(&world->random, world->reset_permille)) {
        ticket = rp_client_reset(actor->client, (uint16_t)table,
                                 rp_table_epoch(rp_server_table(world->server.server, table)),
                                 &weights->epoch, deadline);
        world->totals->resets += ticket > 0;
    } else if (sim_chance(&world->random, 300)) {
        ticket = rp_client_stats(actor->client, weights->counters, &weights->sessions, deadline);
    } else if (sim_chance(&world->random, 500)) {
        ticket = rp_client_table_number(actor->client, (uint16_t)table, &weights->info, deadline);
    } else {
        ticket = rp_client_ping(actor->client, deadline);
    }
    CHECK(ticket > 0 || ticket == -RP_FULL, "request: status %d", ticket);
    weights->other = ticket > 0 ? ticket : 0;
}

static void spec(struct sim_world *world, struct sim_actor *actor) {
    struct sim_weights *weights = &actor->as.weights;
    int status;
    if (weights->spec > 0) {
        if (!sim_ticket_ended(actor, &weights->spec, &status)) {
            return;
        }
        const struct sim_table *table = &world->tables[weights->spec_table];
        if (status == 0) {
            CHECK(weights->spec_size == sizeof table->spec
                      && memcmp(weights->spec_bytes, table->spec, sizeof table->spec) == 0,
                  "a spec of %" PRIu64 " bytes", weights->spec_size);
        } else {
            CHECK(sim_status_of_loss(status), "spec: status %d", status);
        }
    }
    if (!world->draining && sim_chance(&world->random, 100)) {
        weights->spec_table = (uint32_t)rp_random_below(&world->random, SIM_TABLES);
        int ticket =
            rp_client_blob(actor->client, RP_BLOB_SPEC, (uint16_t)weights->spec_table, 0,
                           weights->spec_bytes, sizeof weights->spec_bytes, &weights->spec_size,
                           &weights->spec_version, world->now + SIM_S);
        weights->spec = ticket > 0 ? ticket : 0;
    }
}

void sim_weights_act(struct sim_world *world, struct sim_actor *actor) {
    actor->next_at += 4 * SIM_MS; /* it has less to say than the others */
    publish(world, actor);
    pull(world, actor);
    other(world, actor);
    spec(world, actor);
}

void sim_weights_after(struct sim_world *world, struct sim_actor *actor) {
    publish_end(world, actor);
    pull_end(world, actor);
}

void sim_weights_lost(struct sim_world *world, struct sim_actor *actor) {
    struct sim_weights *weights = &actor->as.weights;
    (void)world;
    weights->publish = weights->pull = weights->other = weights->spec = 0;
}

int sim_weights_done(const struct sim_world *world, const struct sim_actor *actor) {
    const struct sim_weights *weights = &actor->as.weights;
    (void)world;
    return weights->publish == 0 && weights->pull == 0 && weights->other == 0 && weights->spec == 0;
}
