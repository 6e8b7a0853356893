/* table_model.h: what a table means, without any cleverness: every step ever stored is kept,
 * windows are lists of step numbers, a window is alive if its oldest key is, the total is a loop.
 * The tests take the same steps with this and with the table, and compare all that can be seen.
 *
 * The bytes of a step are a function of who wrote it (life of the writer, stream, step), so nothing
 * is stored. A program may define MODEL_KEYS and MODEL_SEQUENCES before it includes this file. */
#ifndef RP_TABLE_MODEL_H
#define RP_TABLE_MODEL_H

#include <string.h>

#include "check.h"
#include "base/power.h"
#include "base/random.h"
#include "table/table.h"

#ifndef MODEL_KEYS
#define MODEL_KEYS (1 << 17)
#endif
#ifndef MODEL_SEQUENCES
#define MODEL_SEQUENCES (1 << 15)
#endif
enum { MODEL_WRITERS = 4, MODEL_STREAMS = 3 };
enum model_state { MODEL_EMPTY, MODEL_PARTIAL, MODEL_COMPLETE, MODEL_COMMITTED, MODEL_LOST };

struct model_step { /* one key ever issued */
    uint8_t committed;
    uint8_t end;
    uint8_t item;
    uint16_t writer;
    uint16_t stream;
    uint32_t life;
    uint64_t step;
    uint64_t first; /* step number of its episode's first row */
    uint64_t oldest; /* key of the oldest row of the item's window */
    uint64_t mass;
    uint32_t behind;
    uint32_t ahead;
};

struct model_sequence {
    uint8_t state;
    uint16_t stream;
    uint16_t flags;
    uint16_t piece_count;
    uint64_t pieces;
    uint64_t key;
    uint64_t step;
    double priority;
};

struct model_stream {
    uint64_t next_step;
    uint64_t first;     /* of the present episode */
    uint64_t abandoned;
    uint64_t head;
};

struct model_writer {
    uint64_t session;
    uint32_t life;
    uint32_t streams;
    uint64_t next_sequence;
    uint64_t done_through;
    uint64_t lost_total;
    struct model_sequence sequence[MODEL_SEQUENCES];
    struct model_stream stream[MODEL_STREAMS];
    uint64_t keys[MODEL_STREAMS][MODEL_SEQUENCES]; /* by step number */
};

struct model {
    const struct rp_table_config *config;
    struct rp_power power;
    struct rp_random random;
    uint64_t mass_max;
    uint64_t maximum;
    uint64_t head;
    uint64_t floor; /* keys below this are of an older epoch */
    uint64_t inserted;
    uint64_t sampled;
    uint32_t behind;
    uint32_t ahead;
    uint32_t lives;
    struct model_writer writer[MODEL_WRITERS];
    struct model_step step[MODEL_KEYS];
};

/* ---- the world ---- */

static inline uint8_t model_byte(uint32_t life, uint32_t stream, uint64_t step, uint32_t at) {
    uint64_t x = (((uint64_t)life * 31 + stream) * 1000003 + step) * 4099 + at;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint8_t)(x >> 56);
}

static inline void model_open(struct model *m, const struct rp_table_config *config,
                              uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->config = config;
    CHECK(rp_power_exponent(config->alpha, &m->power) == 0);
    rp_random_seed(&m->random, seed);
    m->mass_max = rp_tree_mass_max(config->capacity);
    m->maximum = RP_POWER_ONE;
    m->head = m->floor = config->capacity;
    for (uint32_t i = 0; i < config->plan_count; i++) {
        for (uint32_t j = 0; j < config->plans[i].pick_count; j++) {
            int offset = config->plans[i].picks[j].offset;
            m->behind = -offset > (int)m->behind ? (uint32_t)-offset : m->behind;
            m->ahead = offset > (int)m->ahead ? (uint32_t)offset : m->ahead;
        }
    }
}

static inline struct model_step *model_at(struct model *m, uint64_t key) {
    CHECK(key - m->config->capacity < MODEL_KEYS, "the model is too small for this test");
    return &m->step[key - m->config->capacity];
}

static inline int model_alive(struct model *m, uint64_t key) {
    return key >= m->floor && key < m->head && m->head - key <= m->config->capacity
           && model_at(m, key)->committed;
}

static inline int model_held(const struct model *m, uint64_t key) {
    return m->head - key <= m->config->capacity;
}

/* An item whose whole window is stored. */
static inline int model_item(struct model *m, uint64_t key) {
    return model_alive(m, key) && model_at(m, key)->item && model_held(m, model_at(m, key)->oldest);
}

/* ---- writers ---- */

static inline void model_writer_open(struct model *m, uint32_t writer, uint64_t session,
                                     uint32_t streams) {
    struct model_writer *w = &m->writer[writer];
    memset(w, 0, sizeof *w);
    w->session = session;
    w->life = ++m->lives;
    w->streams = streams;
}

static inline void model_reserve(struct model *m, uint32_t writer, uint64_t goal) {
    struct model_writer *w = &m->writer[writer];
    CHECK(goal <= MODEL_SEQUENCES, "the model is too small for this test");
    while (w->next_sequence < goal) {
        w->sequence[w->next_sequence++] =
            (struct model_sequence){.state = MODEL_EMPTY, .key = m->head};
        model_at(m, m->head)->committed = 0;
        m->head++;
    }
}

static inline int model_known(const struct model_sequence *s, uint32_t stream) {
    return (s->state == MODEL_PARTIAL || s->state == MODEL_COMPLETE) && s->stream == stream;
}

static inline void model_lose(struct model_writer *w, struct model_sequence *s) {
    s->state = MODEL_LOST;
    w->lost_total++;
}

/* The slot is gone: what was reserved so far brings its stream nothing new. */
static inline void model_lose_place(struct model_writer *w, struct model_sequence *s,
                                    uint32_t stream) {
    model_lose(w, s);
    w->stream[stream].abandoned = w->next_sequence;
}

static inline void model_commit(struct model *m, uint32_t writer, struct model_sequence *s) {
    struct model_writer *w = &m->writer[writer];
    struct model_stream *stream = &w->stream[s->stream];
    struct model_step *step = model_at(m, s->key);
    *step = (struct model_step){.committed = 1,
                                .writer = (uint16_t)writer,
                                .stream = s->stream,
                                .life = w->life,
                                .step = s->step,
                                .first = stream->first,
                                .end = (s->flags & RP_RUN_END) != 0};
    s->state = MODEL_COMMITTED;
    stream->head = s->key;
    stream->next_step++;
    w->keys[s->stream][s->step] = s->key;
    stream->first = step->end ? stream->next_step : stream->first;
    if (s->flags & RP_RUN_ITEM) {
        step->item = 1;
        step->oldest = s->key;
        step->mass = s->flags & RP_RUN_PRIORITY ? rp_power_mass(&m->power, s->priority, m->mass_max)
                                                : m->maximum;
        m->maximum = step->mass > m->maximum ? step->mass : m->maximum;
        m->inserted++;
    }
}

/* The one sequence that waits with this step of the stream; null = none. */
static inline struct model_sequence *model_waits(struct model_writer *w, uint32_t stream,
                                                 uint64_t step) {
    for (uint64_t q = w->done_through; q < w->next_sequence; q++) {
        if (model_known(&w->sequence[q], stream) && w->sequence[q].step == step) {
            return &w->sequence[q];
        }
    }
    return NULL;
}

static inline void model_chain(struct model *m, uint32_t writer, uint32_t stream) {
    struct model_writer *w = &m->writer[writer];
    struct model_sequence *s;
    while ((s = model_waits(w, stream, w->stream[stream].next_step)) != NULL
           && s->state == MODEL_COMPLETE && model_held(m, s->key)) {
        if (s->key < w->stream[stream].head) {
            model_lose(w, s);
        } else {
            model_commit(m, writer, s);
        }
    }
}

static inline int model_too_late(struct model_writer *w, uint64_t q, uint32_t stream,
                                 uint64_t step) {
    const struct model_stream *state = &w->stream[stream];
    return q < state->abandoned || step < state->next_step || w->sequence[q].key < state->head
           || model_waits(w, stream, step) > &w->sequence[q];
}

static inline void model_arrive(struct model *m, uint32_t writer, const struct rp_run *run,
                                uint32_t i, const double *priorities) {
    struct model_writer *w = &m->writer[writer];
    uint64_t q = run->sequence + i;
    uint64_t step = run->step + i;
    struct model_sequence *s = &w->sequence[q];
    if (q + m->config->window < w->next_sequence || s->state >= MODEL_COMMITTED) {
        return;
    }
    if (!model_held(m, s->key)) {
        model_lose_place(w, s, s->state != MODEL_EMPTY ? s->stream : run->stream);
        return;
    }
    uint16_t flags = i + 1 < run->count ? run->flags & ~RP_RUN_END : run->flags;
    if (s->state == MODEL_EMPTY) {
        if (model_too_late(w, q, run->stream, step)) {
            model_lose(w, s);
            return;
        }
        struct model_sequence *older = model_waits(w, run->stream, step);
        if (older) {
            model_lose(w, older);
        }
        *s = (struct model_sequence){.state = MODEL_PARTIAL,
                                     .stream = run->stream,
                                     .flags = flags,
                                     .key = s->key,
                                     .piece_count = run->piece_count,
                                     .step = step,
                                     .priority = run->flags & RP_RUN_PRIORITY ? priorities[i] : 0};
    } else if (s->state == MODEL_COMPLETE || s->stream != run->stream || s->step != step
               || s->flags != run->flags || s->piece_count != run->piece_count) {
        return;
    }
    s->pieces |= (uint64_t)1 << run->piece;
    if (s->pieces == ((uint64_t)1 << run->piece_count) - 1) {
        s->state = MODEL_COMPLETE;
        model_chain(m, writer, run->stream);
    }
}

static inline void model_run(struct model *m, uint32_t writer, const struct rp_run *run,
                             const double *priorities) {
    struct model_writer *w = &m->writer[writer];
    model_reserve(m, writer, run->sequence + run->count);
    for (uint32_t i = 0; i < run->count; i++) {
        model_arrive(m, writer, run, i, priorities);
    }
    while (w->done_through < w->next_sequence) {
        struct model_sequence *s = &w->sequence[w->done_through];
        int never = !model_held(m, s->key)
                    || (s->state != MODEL_EMPTY && s->step != w->stream[s->stream].next_step);
        if (s->state < MODEL_COMMITTED && !never) {
            break;
        }
        if (s->state < MODEL_COMMITTED) {
            model_lose(w, s);
        }
        w->done_through++;
    }
}

static inline void model_answer(const struct model *m, uint32_t writer, const struct rp_run *run,
                                struct rp_run_done *done) {
    const struct model_writer *w = &m->writer[writer];
    memset(done, 0, sizeof *done);
    uint64_t memory = w->next_sequence > m->config->window ? w->next_sequence - m->config->window
                                                           : 0;
    done->key = run->sequence < memory ? 0 : w->sequence[run->sequence].key;
    uint64_t q = run->sequence;
    for (uint64_t i = 1; i < run->count; i++) { /* told only where it tells all keys */
        done->key = w->sequence[q + i].key == w->sequence[q].key + i ? done->key : 0;
    }
    for (;
         q < run->sequence + run->count && (q < memory || w->sequence[q].state == MODEL_COMMITTED);
         q++) {
        done->committed++;
    }
    for (uint64_t last = run->sequence + run->count;
         last > q && w->sequence[last - 1].state == MODEL_LOST; last--) {
        done->lost++;
    }
}

/* The status rp_writer_check owes to a run whose shape is right. */
static inline int model_check(const struct model *m, uint32_t writer, const struct rp_run *run) {
    const struct model_writer *w = &m->writer[writer];
    uint64_t window = m->config->window;
    if (run->stream >= w->streams) {
        return -RP_BAD_STREAM;
    }
    if (run->sequence + run->count > w->done_through + window) {
        return -RP_BAD_SEQUENCE;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        uint64_t step = run->step + i;
        uint64_t next = w->stream[run->stream].next_step;
        if (run->sequence + i >= w->next_sequence) {
            if (step < next || step - next >= 4 * window) {
                return -RP_BAD_STEP;
            }
            break;
        }
    }
    if (run->sequence < w->next_sequence) {
        const struct model_sequence *s = &w->sequence[run->sequence];
        if (run->sequence + window >= w->next_sequence && s->state == MODEL_PARTIAL
            && (s->stream != run->stream || s->step != run->step || s->flags != run->flags
                || s->piece_count != run->piece_count)) {
            return -RP_BAD_PIECE;
        }
    }
    return 0;
}

static inline void model_close(struct model *m, uint32_t writer) {
    struct model_writer *w = &m->writer[writer];
    for (uint32_t i = 0; i < w->streams; i++) {
        struct model_stream *s = &w->stream[i];
        if (s->head >= m->floor && s->next_step > s->first && model_alive(m, s->head)
            && !model_at(m, s->head)->item) {
            model_at(m, s->head)->end = 1;
        }
    }
    w->session = 0;
}

/* ---- items ---- */

static inline int model_create(struct model *m, uint32_t writer, const struct rp_create *create,
                               int apply) {
    struct model_writer *w = &m->writer[writer];
    const struct model_stream *stream = &w->stream[create->stream];
    const uint64_t *keys = w->keys[create->stream];
    if (create->step >= stream->next_step) {
        return create->step - stream->next_step < 4 * (uint64_t)m->config->window ? RP_NOT_YET
                                                                                  : RP_UNKNOWN_STEP;
    }
    if (!model_alive(m, keys[create->step])) {
        return RP_OVERWRITTEN;
    }
    struct model_step *s = model_at(m, keys[create->step]);
    if (s->item) {
        return RP_EXISTS;
    }
    if (s->end) {
        return RP_CLOSING_ROW;
    }
    uint64_t behind = s->step - s->first < m->behind ? s->step - s->first : m->behind;
    uint64_t ahead = 0;
    for (; ahead < m->ahead; ahead++) {
        if (s->step + ahead >= stream->next_step) {
            return RP_NOT_YET;
        }
        if (model_at(m, keys[s->step + ahead])->end) {
            break;
        }
    }
    if (s->step + ahead >= stream->next_step) {
        return RP_NOT_YET;
    }
    for (uint64_t i = s->step - behind; i < s->step; i++) {
        if (!model_alive(m, keys[i])) {
            return RP_OVERWRITTEN;
        }
    }
    if (apply) {
        s->item = 1;
        s->oldest = keys[s->step - behind];
        s->behind = (uint32_t)behind;
        s->ahead = (uint32_t)ahead;
        s->mass = create->flags & RP_CREATE_MAXIMUM
                      ? m->maximum
                      : rp_power_mass(&m->power, create->priority, m->mass_max);
        m->maximum = s->mass > m->maximum ? s->mass : m->maximum;
        m->inserted++;
    }
    return RP_OK;
}

static inline void model_update(struct model *m, const struct rp_update_entry *entries,
                                uint32_t count, struct rp_updated *result) {
    memset(result, 0, sizeof *result);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = entries[i].key;
        if (key >= m->head || key < m->config->capacity) {
            result->unknown++;
        } else if (!model_alive(m, key) || (model_at(m, key)->item && !model_item(m, key))
                   || (m->config->fifo && model_item(m, key) && model_at(m, key)->mass == 0)) {
            result->stale++;
        } else if (!model_at(m, key)->item) {
            result->unknown++;
        } else {
            struct model_step *s = model_at(m, key);
            s->mass = rp_power_mass(&m->power, entries[i].priority, m->mass_max);
            m->maximum = s->mass > m->maximum ? s->mass : m->maximum;
            result->applied++;
        }
    }
}

static inline uint64_t model_mass(struct model *m, uint64_t key) {
    return model_item(m, key) ? model_at(m, key)->mass : 0;
}

static inline uint64_t model_key_of_slot(const struct model *m, uint32_t slot) {
    uint64_t capacity = m->config->capacity;
    uint64_t newest = m->head - 1;
    return newest - (newest % capacity + capacity - slot) % capacity;
}

static inline uint64_t model_total(struct model *m, uint32_t *count) {
    uint64_t total = 0;
    *count = 0;
    for (uint64_t key = m->head - m->config->capacity; key < m->head; key++) {
        uint64_t mass = key < m->floor ? 0 : model_mass(m, key);
        total += mass;
        *count += mass > 0;
    }
    return total;
}

/* The drawn keys, by the order of random numbers that the interface promises. */
static inline uint64_t model_pick(struct model *m, int by_rank, uint64_t target) {
    for (uint32_t slot = 0; slot < m->config->capacity; slot++) {
        uint64_t key = model_key_of_slot(m, slot);
        uint64_t mass = key < m->floor ? 0 : model_mass(m, key);
        uint64_t width = by_rank ? mass > 0 : mass;
        if (target < width) {
            return key;
        }
        target -= width;
    }
    CHECK(0, "target beyond the total");
    return 0;
}

/* RP_OK, or the status of a draw that is refused. */
static inline int model_may_draw(struct model *m, const struct rp_sample *request) {
    uint32_t drawable;
    model_total(m, &drawable);
    int odd = m->config->fifo && (request->mode != RP_SAMPLE_INDEPENDENT || request->uniform > 0);
    uint32_t least = m->config->fifo && !odd ? request->count : 1;
    return drawable < least ? -RP_NOTHING_DRAWABLE : odd ? -RP_BAD_ARGUMENT : RP_OK;
}

static inline void model_draw(struct model *m, const struct rp_sample *request, uint64_t *keys) {
    uint32_t drawable;
    uint64_t total = model_total(m, &drawable);
    m->sampled += request->count;
    for (uint64_t i = 0, key = m->floor; m->config->fifo && i < request->count; key++) {
        if (model_mass(m, key) > 0) { /* a queue: the oldest that was not drawn */
            keys[i++] = key;
            model_at(m, key)->mass = 0;
        }
    }
    if (m->config->fifo) {
        return;
    }
    for (uint32_t i = 0; i < request->count; i++) {
        int by_rank = 0;
        uint64_t target;
        if (request->uniform > 0) {
            uint32_t choice = (uint32_t)(rp_random_next(&m->random) >> 32);
            by_rank = choice < request->uniform || request->uniform == UINT32_MAX;
        }
        if (by_rank) {
            target = rp_random_below(&m->random, drawable);
        } else if (request->mode == RP_SAMPLE_STRATIFIED) {
            uint64_t low = (uint64_t)((unsigned __int128)i * total / request->count);
            uint64_t high = (uint64_t)(((unsigned __int128)i + 1) * total / request->count);
            uint64_t edge = low < total - 1 ? low : total - 1;
            target = high == low ? edge : low + rp_random_below(&m->random, high - low);
        } else {
            target = rp_random_below(&m->random, total);
        }
        keys[i] = model_pick(m, by_rank, target);
    }
}

static inline void model_reset(struct model *m) {
    m->floor = m->head;
    m->inserted = m->sampled = 0;
    m->maximum = RP_POWER_ONE;
    for (uint32_t i = 0; i < MODEL_WRITERS; i++) {
        if (m->writer[i].session != 0) {
            model_writer_open(m, i, m->writer[i].session, m->writer[i].streams);
        }
    }
}

/* ---- comparing ---- */

static inline void model_gather(const struct model *m, const struct model_step *s,
                                const struct rp_plan *plan, uint8_t *target) {
    for (uint32_t i = 0; i < plan->pick_count; i++) {
        const struct rp_column *column = &m->config->columns[plan->picks[i].column];
        int offset = plan->picks[i].offset;
        int zero = offset < 0 && (uint32_t)-offset > s->behind && !column->pad_first;
        int row = offset < 0 ? ((uint32_t)-offset > s->behind ? -(int)s->behind : offset)
                             : ((uint32_t)offset > s->ahead ? (int)s->ahead : offset);
        for (uint32_t b = 0; b < column->size; b++) {
            uint64_t step = s->step + (uint64_t)(int64_t)row;
            *target++ = zero ? 0 : model_byte(s->life, s->stream, step, column->offset + b);
        }
    }
}

/* Null where the table shows what the model says; else what differs. */
static inline const char *model_differs(struct model *m, struct rp_table *table) {
    struct rp_table_info info;
    uint32_t count;
    uint64_t total = model_total(m, &count);
    rp_table_info(table, &info);
    if (info.head != m->head) {
        return "head";
    }
    if (info.total != total || info.count != count) {
        return "total or count";
    }
    if (info.inserted != m->inserted || info.sampled != m->sampled) {
        return "inserted or sampled";
    }
    for (uint64_t key = m->head - m->config->capacity; key < m->head; key++) {
        struct rp_sample request = {.count = 1, .mode = RP_SAMPLE_KEYS};
        struct rp_batch head;
        struct rp_batch_item item;
        CHECK(rp_table_lookup(table, &request, &key, &head, &item) == RP_OK);
        int alive = key >= m->floor && model_item(m, key);
        const struct model_step *s = key < m->config->capacity ? 0 : model_at(m, key);
        if (alive ? item.mass != s->mass || item.behind != s->behind || item.ahead != s->ahead
                  : item.mass != 0 || item.behind != 0 || item.ahead != 0) {
            return "mass, behind or ahead of an item";
        }
        for (uint32_t plan = 0; plan < m->config->plan_count; plan++) {
            uint8_t expected[4096] = {0};
            uint8_t found[4096];
            uint32_t size = rp_table_item_bytes(table, plan);
            int readable = alive || (key >= m->floor && model_alive(m, key) && !s->item);
            if (!alive && s) { /* the record of a draw before it was overwritten */
                item.behind = (uint16_t)s->behind;
                item.ahead = (uint16_t)s->ahead;
            }
            if (rp_table_gather(table, plan, &item, 0, size, found) != readable) {
                return "whether an item can be gathered";
            }
            if (readable) { /* a step that is no item is read as itself alone */
                model_gather(m, s, &m->config->plans[plan], expected);
            }
            if (memcmp(found, expected, size) != 0) {
                return "the bytes of an item";
            }
        }
    }
    for (uint32_t i = 0; i < m->config->writers_max; i++) {
        if (m->writer[i].session != 0) {
            struct rp_pushed progress;
            if (rp_writer_find(table, m->writer[i].session) != (int)i) {
                return "a writer's place";
            }
            rp_writer_progress(table, (int)i, &progress);
            if (progress.done_through != m->writer[i].done_through
                || progress.lost_total != m->writer[i].lost_total) {
                return "a writer's progress";
            }
        }
    }
    return 0;
}

#endif
