/* What must be true of steps and items: an independent record of every step posted and every key
 * told.
 *
 * A step's bytes are a function of (writer's life, stream, step number, column), so any byte of any
 * item can be predicted. A life is one writer between its grant and its loss; a ring is one table
 * between two epochs.
 *
 *     a key holds one step for ever, a step one key; keys rise along a stream
 *     an acknowledged step has a key; what the region or a batch shows under a key is that step
 *     an item's behind and ahead follow from its episode as it was posted
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sim.h"

/* ---- bytes ---- */

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t step_hash(uint32_t life, uint32_t stream, uint64_t step) {
    return mix(mix(((uint64_t)life << 32 | stream) + 0x9E3779B97F4A7C15u) + step);
}

/* One column of one step. */
static void column_bytes(const struct sim_table *table, uint32_t column, uint32_t life,
                         uint32_t stream, uint64_t step, uint8_t *target) {
    uint32_t size = table->columns[column].size;
    uint64_t hash = step_hash(life, stream, step);
    if (column == 0) {
        struct sim_row row = {life, stream, step, hash};
        memcpy(target, &row, sizeof row);
        return;
    }
    uint64_t word = mix(hash + column);
    for (uint32_t i = 0; i < size; i += 8) {
        memcpy(target + i, &word, size - i < 8 ? size - i : 8);
        word = word * 0x9E3779B97F4A7C15u + 1;
    }
}

void sim_step_bytes(const struct sim_table *table, uint32_t life, uint32_t stream, uint64_t step,
                    uint8_t *target) {
    memset(target, 0, table->config.step_bytes);
    for (uint32_t column = 0; column < SIM_COLUMNS; column++) {
        column_bytes(table, column, life, stream, step, target + table->columns[column].offset);
    }
}

/* ---- rings and keys ---- */

struct sim_ring *sim_ring_find(struct sim_world *world, uint64_t epoch) {
    for (uint32_t i = world->oracle.ring_count; i-- > 0;) {
        if (world->oracle.rings[i].epoch == epoch) {
            return &world->oracle.rings[i];
        }
    }
    return NULL;
}

struct sim_ring *sim_ring_add(struct sim_world *world, uint32_t table, uint64_t epoch) {
    CHECK(epoch != 0 && world->oracle.ring_count < SIM_RINGS_MAX);
    struct sim_ring *ring = &world->oracle.rings[world->oracle.ring_count++];
    *ring =
        (struct sim_ring){.epoch = epoch, .table = table, .incarnation = world->server.incarnation};
    return ring;
}

struct sim_key *sim_ring_key(struct sim_ring *ring, uint64_t key) {
    CHECK(key < (uint64_t)1 << 24, "key %" PRIu64, key);
    if (key >= ring->key_count) {
        uint64_t count = key + 1 > 2 * ring->key_count ? key + 1024 : 2 * ring->key_count;
        ring->keys = realloc(ring->keys, count * sizeof *ring->keys);
        CHECK(ring->keys != NULL);
        memset(ring->keys + ring->key_count, 0, (count - ring->key_count) * sizeof *ring->keys);
        for (uint64_t i = ring->key_count; i < count; i++) {
            ring->keys[i].first = ring->keys[i].floor = -1;
        }
        ring->key_count = count;
    }
    return &ring->keys[key];
}

static void keys_rise(const struct sim_stream *line, uint64_t step) {
    uint64_t key = line->steps[step].key;
    for (uint64_t i = step; i-- > 0 && step - i < 8;) {
        CHECK(line->steps[i].key == 0 || line->steps[i].key < key,
              "keys rise along a stream: step %" PRIu64, step);
    }
    for (uint64_t i = step + 1; i < line->count && i - step < 8; i++) {
        CHECK(line->steps[i].key == 0 || line->steps[i].key > key,
              "keys rise along a stream: step %" PRIu64, step);
    }
}

void sim_key_is(struct sim_world *world, struct sim_ring *ring, uint64_t key, uint32_t number,
                uint32_t stream, uint64_t step) {
    CHECK(number < world->oracle.life_count, "key %" PRIu64 " holds a step of nobody", key);
    struct sim_life *life = world->oracle.lives[number];
    CHECK(life->ring == ring, "key %" PRIu64 " holds a step of another table or epoch", key);
    CHECK(stream < life->stream_count && step < life->streams[stream].count,
          "key %" PRIu64 " holds step %" PRIu64 " that was never posted", key, step);
    struct sim_key *known = sim_ring_key(ring, key);
    struct sim_step *posted = &life->streams[stream].steps[step];
    CHECK(posted->key == 0 || posted->key == key,
          "step %" PRIu64 " is stored twice: keys %" PRIu64 " and %" PRIu64, step, posted->key,
          key);
    CHECK(known->life == 0
              || (known->life == number + 1 && known->stream == stream && known->step == step),
          "key %" PRIu64 " held step %" PRIu64 " and now %" PRIu64, key, known->step, step);
    known->life = number + 1;
    known->stream = stream;
    known->step = step;
    if (posted->key == 0) {
        posted->key = key;
        keys_rise(&life->streams[stream], step);
    }
}

/* ---- writers' lives ---- */

struct sim_life *sim_life_begin(struct sim_world *world, uint32_t table, uint64_t epoch,
                                uint32_t streams) {
    CHECK(world->oracle.life_count < SIM_LIVES_MAX);
    struct sim_life *life = calloc(1, sizeof *life);
    CHECK(life != NULL);
    life->number = world->oracle.life_count;
    life->table = table;
    life->stream_count = streams;
    life->ring = sim_ring_find(world, epoch);
    CHECK(life->ring != NULL, "a writer was granted in an epoch that never was");
    world->oracle.lives[world->oracle.life_count++] = life;
    return life;
}

void sim_life_post(struct sim_life *life, uint32_t stream, uint32_t count, int end) {
    struct sim_stream *line = &life->streams[stream];
    if (line->count + count > line->capacity) {
        line->capacity = 2 * line->capacity + count + 64;
        line->steps = realloc(line->steps, line->capacity * sizeof *line->steps);
        CHECK(line->steps != NULL);
    }
    for (uint32_t i = 0; i < count; i++) {
        line->steps[line->count++] =
            (struct sim_step){.episode_first = line->episode_first, .episode_end = UINT32_MAX};
    }
    life->posted += count;
    if (end) {
        for (uint32_t i = line->episode_first; i < line->count; i++) {
            line->steps[i].episode_end = line->count - 1;
        }
        line->episode_first = line->count;
    }
}

void sim_life_ack(struct sim_world *world, struct sim_life *life, uint32_t stream, uint64_t step,
                  uint64_t key) {
    sim_key_is(world, life->ring, key, life->number, stream, step);
    struct sim_stream *line = &life->streams[stream];
    CHECK(line->steps[step].acked == 0, "step %" PRIu64 " was acknowledged twice", step);
    CHECK(step >= line->acked, "step %" PRIu64 " acknowledged after step %u", step,
          line->acked - 1);
    line->acked = (uint32_t)step + 1;
    life->told++;
    line->steps[step].acked = 1;
    sim_ring_key(life->ring, key)->acked = 1;
}

/* ---- items ---- */

/* The bytes the plan must have landed for the anchor: rows beyond the window padded as the columns
 * say. */
static void item_expect(const struct sim_table *table, uint32_t plan, const struct sim_key *key,
                        uint32_t behind, uint32_t ahead, uint8_t *target) {
    for (uint32_t i = 0; i < table->plans[plan].pick_count; i++) {
        struct rp_pick pick = table->picks[plan][i];
        const struct rp_column *column = &table->columns[pick.column];
        int64_t offset = pick.offset;
        int zero = offset < -(int64_t)behind && !column->pad_first;
        offset = offset < -(int64_t)behind ? -(int64_t)behind
                 : offset > (int64_t)ahead ? (int64_t)ahead
                                           : offset;
        if (zero) {
            memset(target, 0, column->size);
        } else {
            column_bytes(table, pick.column, key->life - 1, key->stream,
                         key->step + (uint64_t)offset, target);
        }
        target += column->size;
    }
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Behind and ahead as they follow from the episode. */
static void window_check(const struct sim_world *world, const struct sim_key *key, uint32_t behind,
                         uint32_t ahead) {
    const struct sim_life *life = world->oracle.lives[key->life - 1];
    const struct sim_table *table = &world->tables[life->table];
    const struct sim_step *step = &life->streams[key->stream].steps[key->step];
    uint32_t number = (uint32_t)key->step;
    CHECK(behind == smaller(table->behind, number - step->episode_first),
          "item of step %u: behind %u, its episode began at %u", number, behind,
          step->episode_first);
    CHECK(number + ahead < life->streams[key->stream].count,
          "item of step %u: ahead %u was never posted", number, ahead);
    CHECK(step->episode_end != number, "the closing row %u is an item", number);
    uint32_t room = step->episode_end == UINT32_MAX ? UINT32_MAX : step->episode_end - number;
    CHECK(ahead == smaller(table->ahead, room), "item of step %u: ahead %u, its episode ends at %u",
          number, ahead, step->episode_end);
}

void sim_item_check(struct sim_world *world, struct sim_ring *ring, uint32_t plan, uint64_t key,
                    uint64_t mass, uint32_t behind, uint32_t ahead, const uint8_t *bytes,
                    int looked_up) {
    static uint8_t expected[1 << 17];
    const struct sim_table *table = &world->tables[ring->table];
    struct sim_key *known = sim_ring_key(ring, key);
    struct sim_row row;
    uint32_t at = 0;
    for (uint32_t i = 0; i < table->plans[plan].pick_count;
         i++) { /* the anchor's own row says who it is */
        struct rp_pick pick = table->picks[plan][i];
        if (pick.column == 0 && pick.offset == 0) {
            memcpy(&row, bytes + at, sizeof row);
        }
        at += table->columns[pick.column].size;
    }
    CHECK(at <= sizeof expected);
    CHECK(row.hash == step_hash(row.life, row.stream, row.step),
          "key %" PRIu64 ": the anchor's row is damaged", key);
    CHECK(known->life == 0
              || (known->life == row.life + 1 && known->stream == row.stream
                  && known->step == row.step),
          "the batch mixes items: key %" PRIu64 " is step %" PRIu64 " and came with step %" PRIu64,
          key, known->step, row.step);
    sim_key_is(world, ring, key, row.life, row.stream, row.step);
    known = sim_ring_key(ring, key);
    if (mass == 0 && behind == 0 && ahead == 0) { /* asked for by key, and no item: itself alone */
        item_expect(table, plan, known, 0, 0, expected);
        CHECK(memcmp(bytes, expected, at) == 0, "key %" PRIu64 ": the step is mixed with another",
              key);
        return;
    }
    int item = world->oracle.lives[row.life]->streams[row.stream].steps[row.step].item;
    if (!item || (looked_up && mass == 0 && behind == 0 && ahead == 0)) {
        CHECK(looked_up && mass == 0 && behind == 0 && ahead == 0, "key %" PRIu64 " is no item",
              key);
    } else {
        window_check(world, known, behind, ahead);
    }
    item_expect(table, plan, known, behind, ahead, expected);
    CHECK(memcmp(bytes, expected, at) == 0, "key %" PRIu64 ": the item is mixed with another", key);
    CHECK(!item || looked_up || sim_mass_ever(world, ring, key, mass),
          "key %" PRIu64 ": nobody set the mass %" PRIu64, key, mass);
}

/* ---- priorities ---- */

/* Masses of one key form a list in the order they were posted, and `floor` is the newest that was
 * acknowledged: none before it may be in the table any more, as if an older update, repeated late
 * by the network, had undone a newer one. */
int32_t sim_update_post(struct sim_world *world, struct sim_ring *ring, uint64_t key,
                        uint64_t mass) {
    struct sim_oracle *oracle = &world->oracle;
    if (oracle->mass_count == oracle->mass_capacity) {
        oracle->mass_capacity = 2 * oracle->mass_capacity + 1024;
        oracle->masses =
            realloc(oracle->masses, (size_t)oracle->mass_capacity * sizeof *oracle->masses);
        CHECK(oracle->masses != NULL);
    }
    int32_t place = oracle->mass_count++;
    oracle->masses[place] = (struct sim_mass){mass, -1};
    int32_t *link = &sim_ring_key(ring, key)->first;
    while (*link >= 0) {
        link = &oracle->masses[*link].next;
    }
    *link = place;
    return place;
}

void sim_update_ack(struct sim_ring *ring, uint64_t key, int32_t mass) {
    struct sim_key *known = sim_ring_key(ring, key);
    known->floor = mass > known->floor ? mass : known->floor;
}

static int mass_listed(const struct sim_world *world, int32_t from, uint64_t mass) {
    for (int32_t i = from; i >= 0; i = world->oracle.masses[i].next) {
        if (world->oracle.masses[i].mass == mass) {
            return 1;
        }
    }
    return 0;
}

static int mass_initial(const struct sim_world *world, const struct sim_key *known, uint64_t mass) {
    const struct sim_life *life = world->oracle.lives[known->life - 1];
    uint64_t initial = life->streams[known->stream].steps[known->step].mass;
    return initial == mass || initial == UINT64_MAX;
}

int sim_mass_ever(const struct sim_world *world, struct sim_ring *ring, uint64_t key,
                  uint64_t mass) {
    const struct sim_key *known = sim_ring_key(ring, key);
    return mass_listed(world, known->first, mass) || mass_initial(world, known, mass);
}

int sim_mass_now(const struct sim_world *world, struct sim_ring *ring, uint64_t key,
                 uint64_t mass) {
    const struct sim_key *known = sim_ring_key(ring, key);
    if (known->floor >= 0) {
        return mass_listed(world, known->floor, mass);
    }
    return mass_listed(world, known->first, mass) || mass_initial(world, known, mass);
}

/* ---- weights ---- */

/* A version has one content. Where its publisher kept its session (`sure`), one publication has one
 * version, too. */
void sim_version_is(struct sim_world *world, uint64_t incarnation, uint64_t version,
                    uint64_t number, int sure) {
    struct sim_oracle *oracle = &world->oracle;
    struct sim_version *same = NULL;
    for (uint32_t i = 0; i < oracle->version_count; i++) {
        struct sim_version *known = &oracle->versions[i];
        if (known->incarnation != incarnation) {
            continue;
        }
        if (known->version == version) {
            CHECK(known->number == number, "weights version %" PRIu64 " has two contents", version);
            known->sure |= sure;
            same = known;
        } else {
            CHECK(known->number != number || !(sure || known->sure),
                  "one publication got the versions %" PRIu64 " and %" PRIu64, known->version,
                  version);
        }
    }
    if (!same) {
        oracle->versions =
            realloc(oracle->versions, (oracle->version_count + 1) * sizeof *oracle->versions);
        CHECK(oracle->versions != NULL);
        oracle->versions[oracle->version_count++] =
            (struct sim_version){incarnation, version, number, sure};
    }
}

void sim_oracle_close(struct sim_world *world) {
    struct sim_oracle *oracle = &world->oracle;
    for (uint32_t i = 0; i < oracle->life_count; i++) {
        for (uint32_t stream = 0; stream < SIM_STREAMS_MAX; stream++) {
            free(oracle->lives[i]->streams[stream].steps);
        }
        free(oracle->lives[i]);
    }
    for (uint32_t i = 0; i < oracle->ring_count; i++) {
        free(oracle->rings[i].keys);
    }
    free(oracle->masses);
    free(oracle->draws);
    free(oracle->versions);
    memset(oracle, 0, sizeof *oracle);
}
