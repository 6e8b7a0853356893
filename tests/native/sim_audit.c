/* Compares the server's region with the oracle's record, slot by slot, reading the table's memory
 * as it lies.
 *
 *     every committed slot holds, under its key, the very step the oracle knows, whole
 *     every acknowledged step that has not been overwritten since is there
 *     a live item holds a mass that somebody set and nothing newer undid; a dead one holds none
 *     inserted and sampled are what the clients were told
 */
#include <string.h>

#include "check.h"
#include "sim.h"
#include "table/store.h"

struct audit { /* one table under audit */
    struct sim_world *world;
    struct sim_ring *ring;
    const struct rp_table *table;
    const struct rp_table_private *memory;
    uint64_t head;
    uint64_t capacity;
};

static uint64_t oldest_alive(const struct audit *audit) {
    return audit->head > audit->capacity ? audit->head - audit->capacity : 0;
}

/* ---- steps ---- */

/* The key under which this row's step is known; 0 = none, or no such step was ever posted. */
static uint64_t key_of(const struct audit *audit, const struct sim_row *row) {
    if (row->life >= audit->world->oracle.life_count) {
        return 0;
    }
    const struct sim_life *life = audit->world->oracle.lives[row->life];
    int posted = life->ring == audit->ring && row->stream < life->stream_count
                 && row->step < life->streams[row->stream].count;
    return posted ? life->streams[row->stream].steps[row->step].key : 0;
}

static void step_check(const struct audit *audit, uint64_t slot, uint64_t key) {
    static uint8_t expected[8192];
    const struct sim_table *table = &audit->world->tables[audit->ring->table];
    const uint8_t *bytes = audit->memory->steps + slot * table->config.step_bytes;
    struct sim_row row;
    memcpy(&row, bytes, sizeof row);
    CHECK(key % audit->capacity == slot, "key %" PRIu64 " lies in slot %" PRIu64, key, slot);
    CHECK(key < audit->head && key >= oldest_alive(audit),
          "key %" PRIu64 " is alive, head %" PRIu64, key, audit->head);
    uint64_t other = key_of(audit, &row);
    CHECK(other == 0 || other == key || other < oldest_alive(audit),
          "step %" PRIu64 " is stored twice: keys %" PRIu64 " and %" PRIu64, row.step, other, key);
    const struct sim_key *known = sim_ring_key(audit->ring, key);
    if (known->acked) {
        sim_step_bytes(table, known->life - 1, known->stream, known->step, expected);
        CHECK(memcmp(bytes, expected, table->config.step_bytes) == 0,
              "key %" PRIu64 " was acknowledged and holds other bytes", key);
    }
    sim_key_is(audit->world, audit->ring, key, row.life, row.stream, row.step);
    sim_step_bytes(table, row.life, row.stream, row.step, expected);
    CHECK(memcmp(bytes, expected, table->config.step_bytes) == 0,
          "key %" PRIu64 ": the stored step is damaged", key);
}

static void steps_check(const struct audit *audit) {
    for (uint64_t slot = 0; slot < audit->capacity; slot++) {
        uint64_t word = audit->memory->keys[slot];
        if (rp_state_of(word) == RP_SLOT_COMMITTED) {
            step_check(audit, slot, rp_key_of(word));
        } else {
            CHECK(audit->memory->leaves[slot] == 0,
                  "slot %" PRIu64 " is not committed and drawable", slot);
        }
    }
}

static void acknowledged_check(const struct audit *audit) {
    for (uint64_t key = oldest_alive(audit); key < audit->ring->key_count; key++) {
        if (audit->ring->keys[key].acked) {
            uint64_t word = audit->memory->keys[key % audit->capacity];
            CHECK(word == rp_key_word(RP_SLOT_COMMITTED, key),
                  "key %" PRIu64 " was acknowledged and is not stored, head %" PRIu64, key,
                  audit->head);
        }
    }
}

/* ---- items ---- */

/* The key of the oldest row the item's window needs; 0 where it is not known. */
static uint64_t window_first(const struct audit *audit, const struct sim_key *key,
                             uint32_t behind) {
    const struct sim_life *life = audit->world->oracle.lives[key->life - 1];
    return life->streams[key->stream].steps[key->step - behind].key;
}

static void item_check(const struct audit *audit, uint64_t slot) {
    const struct rp_slot *words = &audit->memory->slots[slot];
    uint64_t key = rp_key_at(audit->memory, words), mass = audit->memory->leaves[slot];
    uint16_t flags = rp_item_flags(words->item);
    struct sim_key *known = sim_ring_key(audit->ring, key);
    const struct sim_life *life = audit->world->oracle.lives[known->life - 1];
    const struct sim_step *step = &life->streams[known->stream].steps[known->step];
    /* Where its writer went away, the last stored row closes the episode. */
    int last = known->step + 1 == life->streams[known->stream].count || step[1].key == 0;
    int cut = last && rp_writer_find(audit->table, life->session) < 0;
    CHECK(!(flags & RP_STEP_END) || cut || step->episode_end == known->step,
          "key %" PRIu64 " closes no episode", key);
    CHECK((flags & RP_STEP_END) || step->episode_end != known->step,
          "key %" PRIu64 " does not close its episode", key);
    if (!(flags & RP_STEP_ITEM)) {
        CHECK(mass == 0, "key %" PRIu64 " is drawable and no item", key);
        return;
    }
    CHECK(step->item, "key %" PRIu64 ": an item nobody asked for", key);
    int dead = window_first(audit, known, rp_item_behind(words->item)) < oldest_alive(audit);
    if (dead) {
        CHECK(mass == 0, "key %" PRIu64 " is drawable and its window is not stored", key);
        return;
    }
    CHECK(!(flags & RP_STEP_EVICTED), "key %" PRIu64 " was evicted with its window stored", key);
    CHECK(sim_mass_now(audit->world, audit->ring, key, mass),
          "key %" PRIu64 " holds mass %" PRIu64 ", which nobody set or a newer update replaced",
          key, mass);
}

static void items_check(const struct audit *audit) {
    for (uint64_t slot = 0; slot < audit->capacity; slot++) {
        if (rp_state_of(audit->memory->keys[slot]) == RP_SLOT_COMMITTED) {
            item_check(audit, slot);
        }
    }
}

/* ---- sums ---- */

/* Items the writers of this ring were told of, and at most posted. Rows are items as they are
 * stored. */
static void inserted_bounds(const struct audit *audit, uint64_t *told, uint64_t *posted) {
    *told = *posted = 0;
    for (uint32_t i = 0; i < audit->world->oracle.life_count; i++) {
        const struct sim_life *life = audit->world->oracle.lives[i];
        if (life->ring == audit->ring) {
            *told += life->items_created;
            *posted += life->items_posted;
        }
    }
}

static void sums_check(const struct audit *audit) {
    struct rp_table_info info;
    uint64_t told, posted;
    rp_table_info(audit->table, &info);
    inserted_bounds(audit, &told, &posted);
    CHECK(info.inserted >= told && info.inserted <= posted,
          "%" PRIu64 " items were charged; %" PRIu64 " told, %" PRIu64 " posted", info.inserted,
          told, posted);
    CHECK(info.sampled >= audit->ring->drawn_answered && info.sampled <= audit->ring->drawn_asked,
          "%" PRIu64 " draws were charged; %" PRIu64 " answered, %" PRIu64 " asked for",
          info.sampled, audit->ring->drawn_answered, audit->ring->drawn_asked);
    double balance = (double)info.inserted * info.samples_per_insert - (double)info.sampled;
    if (info.samples_per_insert > 0 && info.sampled > 0) {
        CHECK(balance >= info.error_min && balance <= info.error_max, "the limiter's balance is %f",
              balance);
    }
}

static struct audit audit_of(struct sim_world *world, uint32_t number) {
    const struct rp_table *table = rp_server_table(world->server.server, number);
    struct sim_ring *ring = sim_ring_find(world, rp_table_epoch(table));
    CHECK(ring != NULL && ring->table == number && ring->incarnation == world->server.incarnation,
          "an epoch that was never there");
    return (struct audit){
        world, ring, table, table->private, table->header->head, rp_table_capacity(table)};
}

void sim_audit(struct sim_world *world) {
    world->totals->audits++;
    rp_server_check(world->server.server);
    for (uint32_t number = 0; number < SIM_TABLES; number++) {
        struct audit audit = audit_of(world, number);
        rp_table_check(audit.table);
        steps_check(&audit);
        acknowledged_check(&audit);
        items_check(&audit);
        sums_check(&audit);
    }
    CHECK(sim_process_allocations() == 0, "the engine allocated memory after open");
}

int sim_has_hole(const struct sim_world *world, const struct sim_actor *actor) {
    const struct sim_life *life = actor->as.writer.life;
    if (actor->kind != SIM_WRITER || !life || life->over) {
        return 0;
    }
    const struct rp_table *table = rp_server_table(world->server.server, life->table);
    int writer = rp_writer_find(table, life->session);
    return writer >= 0
           && table->private->done_through[writer]
                  < rp_writer_at(table->private, (uint32_t)writer)->next_sequence;
}

void sim_audit_end(struct sim_world *world) {
    sim_audit(world);
    for (uint32_t number = 0; number < SIM_TABLES; number++) {
        struct audit audit = audit_of(world, number);
        struct rp_table_info info;
        uint64_t told, posted, in_doubt = 0;
        rp_table_info(audit.table, &info);
        inserted_bounds(&audit, &told, &posted);
        for (uint32_t i = 0; i < world->oracle.life_count; i++) {
            const struct sim_life *life = world->oracle.lives[i];
            if (life->ring != audit.ring) {
                continue;
            }
            /* A create whose answer was lost fails where its step is overwritten before the repeat.
             */
            in_doubt += life->items_failed;
            if (life->over) {
                in_doubt += life->items_posted - life->items_created - life->items_failed;
            } else {
                CHECK(life->acked == life->posted,
                      "a writer finished with %" PRIu64 " of %" PRIu64 " steps", life->acked,
                      life->posted);
                CHECK(life->items_created + life->items_failed == life->items_posted,
                      "creates without an answer");
            }
        }
        CHECK(info.inserted <= told + in_doubt,
              "%" PRIu64 " items were charged, %" PRIu64 " created, %" PRIu64 " in doubt",
              info.inserted, told, in_doubt);
    }
}
