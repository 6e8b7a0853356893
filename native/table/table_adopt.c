/* A stored table and the configuration it is opened with: what must be equal, and what is taken
 * over. See compare.h.
 *
 * The limiter may change. It then begins as in a table that has just reached its minimum: with the
 * old limiter's count of draws it would hold one side back for as long again. So the draws so far
 * are counted as the number that the new limiter would have admitted. All else is the meaning of
 * stored bytes, and must be equal: where columns lie, what a mass is, how many steps there are, how
 * much of a window a writer was promised.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "protocol/compare.h"
#include "base/minmax.h"
#include "table/store.h"

static void compare_columns(struct rp_comparison *c, const struct rp_column *had,
                            const struct rp_column *wants, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "column %u's offset", i);
        rp_compare_number(c, name, had[i].offset, wants[i].offset);
        snprintf(name, sizeof name, "column %u's bytes", i);
        rp_compare_number(c, name, had[i].size, wants[i].size);
        snprintf(name, sizeof name, "column %u's pad_first", i);
        rp_compare_number(c, name, had[i].pad_first, wants[i].pad_first);
    }
}

static void compare_plan(struct rp_comparison *c, const struct rp_plan_facts *had,
                         const struct rp_pick *picks, const struct rp_plan *wants) {
    char name[64];
    rp_compare_text(c, "a plan named", had->name, wants->name);
    snprintf(name, sizeof name, "plan %.31s's picks", had->name);
    rp_compare_number(c, name, had->pick_count, wants->pick_count);
    for (uint32_t i = 0; !c->error[0] && i < had->pick_count; i++) {
        snprintf(name, sizeof name, "pick %u of plan %.24s", i, had->name);
        char text[2][RP_COMPARE_VALUE_BYTES];
        snprintf(text[0], sizeof text[0], "column %u at %d", picks[i].column, picks[i].offset);
        snprintf(text[1], sizeof text[1], "column %u at %d", wants->picks[i].column,
                 wants->picks[i].offset);
        rp_compare_text(c, name, text[0], text[1]);
    }
}

/* The specs from their first difference on. */
static void compare_spec(struct rp_comparison *c, const char *had, uint32_t had_bytes,
                         const char *wants, uint32_t wants_bytes) {
    char text[2][39] = {"", ""};
    uint32_t at = 0;
    while (at < had_bytes && at < wants_bytes && had[at] == wants[at]) {
        at++;
    }
    if (at == had_bytes && at == wants_bytes) {
        return;
    }
    at -= rp_min(at, 12); /* some of what is equal, to find it by */
    for (uint32_t i = 0; i + 1 < sizeof text[0]; i++) {
        text[0][i] = (char)(at + i < had_bytes ? had[at + i] : 0);
        text[1][i] = (char)(at + i < wants_bytes ? wants[at + i] : 0);
    }
    rp_compare_text(c, "columns that are", text[0], text[1]);
}

static void compare_facts(struct rp_comparison *c, const struct rp_table_facts *had,
                          const struct rp_table_facts *wants) {
    rp_compare_number(c, "capacity", had->capacity, wants->capacity);
    rp_compare_number(c, "fifo", had->fifo, wants->fifo);
    rp_compare_real(c, "alpha", had->alpha, wants->alpha);
    rp_compare_number(c, "step bytes", had->step_bytes, wants->step_bytes);
    rp_compare_number(c, "column count", had->column_count, wants->column_count);
    rp_compare_number(c, "plan count", had->plan_count, wants->plan_count);
    rp_compare_number(c, "writers", had->writers_max, wants->writers_max);
    rp_compare_number(c, "streams", had->streams_max, wants->streams_max);
    rp_compare_number(c, "window", had->window, wants->window);
    rp_compare_number(c, "pieces", had->pieces_max, wants->pieces_max);
    rp_compare_change(c, "samples_per_insert", had->samples_per_insert, wants->samples_per_insert);
    rp_compare_change(c, "error_min", had->error_min, wants->error_min);
    rp_compare_change(c, "error_max", had->error_max, wants->error_max);
    rp_compare_change(c, "min_size", (double)had->min_size, (double)wants->min_size);
}

void rp_table_compare(const void *state, uint32_t number, const struct rp_table_config *config,
                      struct rp_comparison *c) {
    const struct rp_table_header *header = state;
    const struct rp_table_facts *had = &header->facts;
    const uint8_t *base = state;
    struct rp_table_facts wants;
    struct rp_table_layout layout;
    if (rp_table_sound(header, number, c->error)
        || rp_facts_from(config, &wants, c->error) < 0) {
        return;
    }
    c->what[0] = 0;
    rp_compare_text(c, "a table named", had->name, config->name);
    snprintf(c->what, sizeof c->what, " of table %s", had->name);
    compare_facts(c, had, &wants);
    if (c->error[0]) {
        return; /* what follows is laid out by counts that are equal now */
    }
    rp_layout_of(had, &layout);
    const struct rp_pick *picks = (const void *)(base + layout.picks);
    compare_columns(c, (const void *)(base + layout.columns), config->columns, had->column_count);
    for (uint32_t i = 0; i < had->plan_count; i++) {
        compare_plan(c, &had->plans[i], picks + had->plans[i].pick_first, &config->plans[i]);
    }
    compare_spec(c, (const char *)base + layout.spec, had->spec_bytes, config->spec,
                 config->spec_bytes);
}

/* Items that are worth as much as the limiter's bounds lie apart. */
static double at_once(const struct rp_table_facts *facts) {
    double rate = facts->samples_per_insert;
    return rate > 0 ? (facts->error_max - facts->error_min) / rate : INFINITY;
}

int rp_table_narrows(const struct rp_table *table, const struct rp_table_config *config) {
    struct rp_table_facts wants;
    char error[256];
    int status = rp_facts_from(config, &wants, error);
    assert(status == 0); /* it was compared with the region before */
    return at_once(&wants) < at_once(&table->header->facts);
}

static int is_other_limiter(const struct rp_table_facts *had, const struct rp_table_facts *wants) {
    return had->samples_per_insert != wants->samples_per_insert
           || had->error_min != wants->error_min || had->error_max != wants->error_max
           || had->min_size != wants->min_size;
}

/* Items drawn, for an error where it begins; of a table below its minimum none. */
static uint64_t drawn_by(const struct rp_table_facts *limiter, const struct rp_table_header *had) {
    double begin = (double)limiter->min_size * limiter->samples_per_insert;
    if (begin <= limiter->error_min || begin > limiter->error_max) {
        begin = (limiter->error_min + limiter->error_max) / 2; /* there, neither side could go on */
    }
    double drawn = (double)had->inserted * limiter->samples_per_insert - begin;
    if (limiter->samples_per_insert == 0 || limiter->fifo) {
        return had->sampled; /* it holds nobody back */
    }
    return had->inserted < limiter->min_size || drawn <= 0 ? 0
        : drawn < 0x1p63 ? (uint64_t)drawn : INT64_MAX;
}

static void adopt_word(struct rp_table *table, void *word, const void *value) {
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    rp_intent_set(table->intent, (uint64_t *)word, bits);
}

void rp_table_adopt(struct rp_table *table, const struct rp_table_config *config) {
    struct rp_table_header *header = table->header;
    struct rp_table_facts *had = &header->facts;
    struct rp_table_facts wants;
    char error[256];
    int status = rp_facts_from(config, &wants, error);
    assert(status == 0); /* it was compared with the region before */
    if (!is_other_limiter(had, &wants)) {
        return;
    }
    rp_intent_set(table->intent, &header->sampled, drawn_by(&wants, header));
    adopt_word(table, &had->samples_per_insert, &wants.samples_per_insert);
    adopt_word(table, &had->error_min, &wants.error_min);
    adopt_word(table, &had->error_max, &wants.error_max);
    adopt_word(table, &had->min_size, &wants.min_size);
}
