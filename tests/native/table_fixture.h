/* table_fixture.h: a table in memory of its own, behind an intent log as in the server's region,
 * and runs with the bytes that the model's world has for them. */
#ifndef RP_TABLE_FIXTURE_H
#define RP_TABLE_FIXTURE_H

#include "table_memory.h"
#include "table_model.h"

struct fixture {
    uint8_t *region;
    size_t bytes;
    size_t offset; /* of the table's state in the region */
    struct rp_table_sizes sizes;
    struct rp_intent intent;
    struct rp_table table;
    uint64_t salt; /* another one at each attach, as the server's */
    uint64_t counters[RP_COUNTER_COUNT];
};

static uint32_t fixture_lap; /* where the keys of the next one begin */

static inline struct rp_table_memory fixture_memory(const struct fixture *t) {
    return table_memory_at(t->region + t->offset, &t->sizes);
}

static inline void fixture_open(struct fixture *t, const struct rp_table_config *config,
                                uint64_t seed) {
    char error[256] = "";
    memset(t, 0, sizeof *t);
    CHECK(rp_table_sizes(config, &t->sizes, error) == 0, "%s", error);
    t->offset = (sizeof(struct rp_intent_log) + 127) / 64
                * 64; /* one spare word after the log, for tests */
    t->bytes = t->offset + table_memory_bytes(&t->sizes);
    t->region = aligned_alloc(64, t->bytes);
    CHECK(t->region);
    memset(t->region, 0, t->bytes);
    rp_intent_open(&t->intent, t->region, t->bytes, (struct rp_intent_log *)(void *)t->region);
    struct rp_table_memory memory = fixture_memory(t);
    t->salt = seed * UINT64_C(0xD6E8FEB86659FD93);
    CHECK(rp_table_create(&t->table, &memory, config, 3, seed, 1, t->salt, fixture_lap, &t->intent,
                          t->counters, error)
              == 0,
          "%s", error);
}

static inline void fixture_attach(struct fixture *t) {
    char error[256] = "";
    rp_intent_open(&t->intent, t->region, t->bytes, (struct rp_intent_log *)(void *)t->region);
    CHECK(rp_intent_recover(&t->intent) >= 0);
    struct rp_table_memory memory = fixture_memory(t);
    memset(memory.local, 0, t->sizes.local); /* as in another process: nothing of it is left */
    t->salt += UINT64_C(0x9E3779B97F4A7C15);
    CHECK(rp_table_attach(&t->table, &memory, 3, t->salt, &t->intent, t->counters, error) == 0,
          "%s", error);
}

static inline void fixture_close(struct fixture *t) {
    free(t->region);
}

struct run_body {
    struct rp_run run;
    uint64_t words[1024];
};

/* A run's bytes as the world has them: priorities from the caller, steps or the piece from
 * model_byte. */
static inline void fill_run(const struct model *m, uint32_t writer, struct run_body *body,
                            const double *priorities) {
    struct rp_run *run = &body->run;
    uint32_t step_bytes = m->config->step_bytes;
    uint8_t *at = (uint8_t *)body->words;
    uint32_t first = 0;
    uint32_t size = step_bytes;
    if (run->piece_count > 1) {
        uint32_t each = rp_piece_bytes(step_bytes, run->piece_count);
        first = run->piece * each;
        size = step_bytes - first < each ? step_bytes - first : each;
    }
    if (priorities && run->flags & RP_RUN_PRIORITY) {
        memcpy(at, priorities, 8u * run->count);
        at += 8u * run->count;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        for (uint32_t b = 0; b < size; b++) {
            *at++ = model_byte(m->writer[writer].life, run->stream, run->step + i, first + b);
        }
    }
    run->size = (uint32_t)(at - (uint8_t *)body->words);
    CHECK(run->size <= sizeof body->words);
}

#endif
