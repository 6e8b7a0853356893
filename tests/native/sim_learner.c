/* A simulated learner: a few batches at once, each item of each verified, then new priorities for
 * what it drew. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sim.h"
#include "base/sum_tree.h"

static uint32_t below(struct sim_world *world, uint32_t bound) {
    return (uint32_t)rp_random_below(&world->random, bound);
}

/* ---- landing ---- */

static void *room(size_t count, size_t size) {
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

/* Memory of exactly the size the batch needs, an allocation for each array: a byte too far is seen
 * by the sanitizer. */
static void landing_open(const struct sim_table *table, struct sim_sample *sample,
                         uint32_t item_bytes) {
    uint32_t n = sample->count, at = 0, picks = table->plans[sample->plan].pick_count;
    sample->bytes = room(n, item_bytes);
    for (uint32_t i = 0; i < picks; i++) {
        uint32_t size = table->columns[table->picks[sample->plan][i].column].size;
        sample->columns[i] = (struct rp_landing_column){sample->bytes + at, item_bytes, at, size};
        at += size;
    }
    sample->keys = room(n, sizeof *sample->keys);
    sample->masses = room(n, sizeof *sample->masses);
    sample->totals = room(n, sizeof *sample->totals);
    sample->ages = room(n, sizeof *sample->ages);
    sample->behind = room(n, sizeof *sample->behind);
    sample->ahead = room(n, sizeof *sample->ahead);
    sample->drawables = room(n, sizeof *sample->drawables);
    sample->valid = room(n, sizeof *sample->valid);
    memset(sample->valid, 0xFF, n);
    sample->landing = (struct rp_landing){.columns = sample->columns,
                                          .column_count = picks,
                                          .item_bytes = item_bytes,
                                          .keys = sample->keys,
                                          .masses = sample->masses,
                                          .behind = sample->behind,
                                          .ahead = sample->ahead,
                                          .totals = sample->totals,
                                          .drawables = sample->drawables,
                                          .ages = sample->ages,
                                          .valid = sample->valid};
}

static void landing_close(struct sim_sample *sample) {
    void *memory[] = {sample->bytes, sample->keys,   sample->masses, sample->totals,
                      sample->ages,  sample->behind, sample->ahead,  sample->drawables,
                      sample->valid, sample->asked};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        free(memory[i]);
    }
    memset(sample, 0, sizeof *sample);
}

/* ---- verifying ---- */

static void batch_check(struct sim_world *world, const struct sim_sample *sample, int status) {
    struct sim_ring *ring = sim_ring_find(world, sample->epoch);
    uint32_t capacity = world->tables[sample->table].config.capacity, invalid = 0;
    for (uint32_t i = 0; i < sample->count; i++) {
        CHECK(sample->valid[i] <= 1, "item %u: valid is %u", i, sample->valid[i]);
        if (!sample->valid[i]) {
            invalid++;
            continue;
        }
        CHECK(!sample->asked || sample->keys[i] == sample->asked[i], "another key than asked for");
        sim_item_check(world, ring, sample->plan, sample->keys[i], sample->masses[i],
                       sample->behind[i], sample->ahead[i],
                       sample->bytes + (size_t)i * sample->landing.item_bytes,
                       sample->asked != NULL);
        CHECK(sample->ages[i] < capacity, "an item of age %" PRIu64, sample->ages[i]);
        if (!sample->asked) {
            CHECK(sample->masses[i] > 0 && sample->masses[i] <= sample->totals[i],
                  "mass of a total");
            CHECK(sample->drawables[i] > 0 && sample->drawables[i] <= capacity, "%u drawable",
                  sample->drawables[i]);
        }
    }
    CHECK((invalid > 0) == (status == -RP_SHORT_BATCH), "%u items are invalid, status %d", invalid,
          status);
}

/* ---- updating ---- */

/* Each key has one learner that updates it, so that its updates have one order. */
static int is_mine(const struct sim_world *world, const struct sim_actor *actor,
                   const struct sim_key *key, uint64_t number) {
    const struct sim_life *life = world->oracle.lives[key->life - 1];
    return number % world->learner_count == actor->as.learner.index && !key->frozen
           && life->streams[key->stream].steps[key->step].item;
}

static int posted_already(const struct sim_update *update, uint64_t key) {
    for (uint32_t i = 0; i < update->count; i++) {
        if (update->keys[i] == key) {
            return 1;
        }
    }
    return 0;
}

static void update_post(struct sim_world *world, struct sim_actor *actor,
                        const struct sim_sample *sample) {
    struct sim_update *update = &actor->as.learner.update;
    const struct sim_table *table = &world->tables[sample->table];
    uint64_t keys[2 * SIM_BATCH_MAX], mass_max = rp_tree_mass_max(table->config.capacity);
    double priorities[2 * SIM_BATCH_MAX];
    uint64_t masses[SIM_BATCH_MAX];
    uint32_t given = 0;
    update->ring = sim_ring_find(world, sample->epoch);
    update->count = 0;
    for (uint32_t i = 0; i < sample->count; i++) {
        uint64_t key = sample->keys[i];
        if (!sample->valid[i] || (sample->asked && sample->masses[i] == 0)
            || !is_mine(world, actor, sim_ring_key(update->ring, key), key)
            || posted_already(update, key)) {
            continue;
        }
        if (sim_chance(&world->random, 100)) { /* a duplicate in front of the one that counts */
            keys[given] = key;
            priorities[given++] = below(world, 1000);
        }
        keys[given] = key;
        priorities[given] =
            sim_chance(&world->random, 40) ? 0 : (1 + below(world, 1000000)) / 10000.0;
        masses[update->count] = rp_power_mass(&table->power, priorities[given++], mass_max);
        update->keys[update->count++] = key;
    }
    if (update->count == 0 || given > rp_client_update_room(actor->client)) {
        return;
    }
    sim_process_enter();
    int ticket = rp_client_update(actor->client, (uint16_t)sample->table, sample->epoch, keys,
                                  priorities, given, &update->result, world->now + 120 * SIM_S);
    sim_process_leave();
    CHECK(ticket > 0 || ticket == -RP_FULL, "update: status %d", ticket);
    for (uint32_t i = 0; ticket > 0 && i < update->count; i++) {
        update->masses[i] = sim_update_post(world, update->ring, update->keys[i], masses[i]);
    }
    update->ticket = ticket > 0 ? ticket : 0;
}

/* What became of an update nobody can say any more: its keys are left alone, either mass may be
 * there. */
static void update_in_doubt(struct sim_update *update) {
    for (uint32_t i = 0; i < update->count; i++) {
        sim_ring_key(update->ring, update->keys[i])->frozen = 1;
    }
    update->ticket = 0;
}

static void update_end(struct sim_world *world, struct sim_actor *actor) {
    struct sim_update *update = &actor->as.learner.update;
    int status;
    if (!sim_ticket_ended(actor, &update->ticket, &status)) {
        return;
    }
    if (status != 0) {
        CHECK(sim_status_of_loss(status) || status == -RP_STALE_EPOCH, "update: status %d", status);
        update_in_doubt(update);
        return;
    }
    const struct rp_updated *result = &update->result;
    CHECK(result->applied + result->stale + result->unknown == update->count,
          "%u + %u + %u answers to %u updates", result->applied, result->stale, result->unknown,
          update->count);
    CHECK(result->unknown == 0, "%u keys of drawn items are unknown", result->unknown);
    for (uint32_t i = 0; i < update->count; i++) {
        sim_update_ack(update->ring, update->keys[i], update->masses[i]);
    }
    world->totals->updates += update->count;
}

/* ---- sampling ---- */

static void keys_choose(struct sim_world *world, struct sim_sample *sample) {
    struct sim_ring *ring = sim_ring_find(world, sample->epoch);
    sample->asked = room(sample->count, sizeof *sample->asked);
    for (uint32_t i = 0; i < sample->count; i++) {
        sample->asked[i] =
            ring->key_count > 0 ? rp_random_below(&world->random, ring->key_count) : 1;
    }
}

static void sample_post(struct sim_world *world, struct sim_actor *actor,
                        struct sim_sample *sample) {
    uint32_t table = below(world, SIM_TABLES);
    const struct rp_table_info *info = &actor->as.learner.info[table];
    if (!actor->as.learner.known[table]) {
        return;
    }
    sample->table = table;
    sample->plan = below(world, 2);
    sample->mode = below(world, 10) == 0 ? RP_SAMPLE_KEYS : below(world, 2);
    sample->count = 1 + below(world, SIM_BATCH_MAX);
    sample->epoch = info->epoch;
    landing_open(&world->tables[table], sample, info->item_bytes[sample->plan]);
    if (sample->mode == RP_SAMPLE_KEYS) {
        keys_choose(world, sample);
    }
    struct rp_sample request = {.epoch = info->epoch,
                                .count = sample->count,
                                .plan = (uint16_t)sample->plan,
                                .mode = (uint8_t)sample->mode,
                                .budget = 8};
    if (sample->mode == RP_SAMPLE_INDEPENDENT && sim_chance(&world->random, 300)) {
        request.uniform =
            sim_chance(&world->random, 300) ? UINT32_MAX : (uint32_t)rp_random_next(&world->random);
    }
    sample->deadline =
        world->now + (sim_chance(&world->random, 50) ? 0 : rp_random_below(&world->random, SIM_S));
    sim_process_enter();
    int ticket = rp_client_sample(actor->client, (uint16_t)table, &request, sample->asked,
                                  &sample->landing, sample->deadline);
    sim_process_leave();
    CHECK(ticket > 0 || ticket == -RP_FULL, "sample: status %d", ticket);
    if (ticket <= 0) {
        landing_close(sample);
    }
    sample->ticket = ticket > 0 ? ticket : 0;
}

static void sample_end(struct sim_world *world, struct sim_actor *actor,
                       struct sim_sample *sample) {
    struct sim_learner *learner = &actor->as.learner;
    int status;
    if (!sim_ticket_ended(actor, &sample->ticket, &status)) {
        CHECK(sample->ticket <= 0 || world->now <= sample->deadline + 5 * SIM_S,
              "a sample outlived its deadline");
        return;
    }
    if (status == 0 || status == -RP_SHORT_BATCH) {
        batch_check(world, sample, status);
        world->totals->samples++;
        learner->batches++;
        if (!learner->update.ticket && sim_chance(&world->random, 700)) {
            update_post(world, actor, sample);
        }
    } else if (status == -RP_STALE_EPOCH) {
        learner->known[sample->table] = 0;
    } else {
        CHECK(sim_status_of_loss(status) || status == -RP_BLOCKED || status == -RP_NOTHING_DRAWABLE
                  || status == -RP_FORGOTTEN,
              "sample: status %d", status);
    }
    landing_close(sample);
}

/* ---- its course ---- */

static void info_ask(struct sim_world *world, struct sim_actor *actor, uint32_t table) {
    struct sim_learner *learner = &actor->as.learner;
    int status;
    if (learner->info_ticket[table] > 0) {
        if (sim_ticket_ended(actor, &learner->info_ticket[table], &status) && status == 0) {
            CHECK(sim_ring_find(world, learner->info[table].epoch) != NULL,
                  "a table of an unknown epoch");
            learner->known[table] = 1;
        }
    } else if (!learner->known[table]) {
        int ticket = rp_client_table(actor->client, world->tables[table].config.name,
                                     &learner->info[table], world->now + SIM_S);
        learner->info_ticket[table] = ticket > 0 ? ticket : 0;
    }
}

/* Draws go on after faults have stopped while a writer may wait for them. */
static int writers_done(const struct sim_world *world) {
    for (uint32_t i = 0; i < world->actor_count; i++) {
        if (world->actors[i].kind == SIM_WRITER && !sim_writer_done(world, &world->actors[i])) {
            return 0;
        }
    }
    return 1;
}

void sim_learner_act(struct sim_world *world, struct sim_actor *actor) {
    for (uint32_t table = 0; table < SIM_TABLES; table++) {
        info_ask(world, actor, table);
    }
    if (world->draining && writers_done(world)) {
        return;
    }
    for (uint32_t i = 0; i < SIM_SAMPLES_MAX; i++) {
        if (!actor->as.learner.samples[i].bytes) {
            sample_post(world, actor, &actor->as.learner.samples[i]);
            return;
        }
    }
}

void sim_learner_after(struct sim_world *world, struct sim_actor *actor) {
    for (uint32_t i = 0; i < SIM_SAMPLES_MAX; i++) {
        if (actor->as.learner.samples[i].bytes) {
            sample_end(world, actor, &actor->as.learner.samples[i]);
        }
    }
    update_end(world, actor);
}

void sim_learner_lost(struct sim_world *world, struct sim_actor *actor) {
    struct sim_learner *learner = &actor->as.learner;
    (void)world;
    for (uint32_t i = 0; i < SIM_SAMPLES_MAX; i++) {
        landing_close(&learner->samples[i]);
    }
    if (learner->update.ticket) {
        update_in_doubt(&learner->update);
    }
    memset(learner->info_ticket, 0, sizeof learner->info_ticket);
    memset(learner->known, 0, sizeof learner->known);
}

int sim_learner_done(const struct sim_world *world, const struct sim_actor *actor) {
    const struct sim_learner *learner = &actor->as.learner;
    for (uint32_t i = 0; i < SIM_SAMPLES_MAX; i++) {
        if (learner->samples[i].bytes) {
            return 0;
        }
    }
    return learner->update.ticket == 0 && (!world->draining || writers_done(world));
}
