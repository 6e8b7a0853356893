/* A table's life: laid out, attached, emptied; and the facts others ask for. See table.h and
 * store.h.
 *
 * Reset cannot be one intent, since it clears a word of every slot in use. It is made whole in
 * three: an intent says which epoch it is on its way to, the clearing does no harm twice, a second
 * intent ends it. Attach finishes a reset it finds under way by clearing every slot; a reset of a
 * table at work clears what was written since the last one, so that its time is bounded by what
 * others sent, not by the table's size. Keys go on rising over a reset, so no key of an old epoch
 * can name a new step.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/minmax.h"
#include "table/store.h"

#define TABLE_MAGIC UINT64_C(0x32656c6261747072) /* "rptable2" */

int rp_table_sizes(const struct rp_table_config *config, struct rp_table_sizes *sizes,
                   char error[256]) {
    struct rp_table_facts facts;
    struct rp_table_layout layout;
    if (rp_facts_from(config, &facts, error) < 0) {
        return -RP_BAD_ARGUMENT;
    }
    rp_layout_of(&facts, &layout);
    *sizes = layout.sizes;
    return 0;
}

static uint64_t persistent_bytes(const struct rp_table_layout *layout) {
    return layout->sizes.state + layout->sizes.keys + layout->sizes.steps;
}

/* Of what never changes: an attach takes the limiter's numbers from its configuration. */
static uint32_t facts_crc(const struct rp_table_header *header) {
    struct rp_table_facts f = header->facts;
    f.samples_per_insert = f.error_min = f.error_max = 0;
    f.min_size = 0;
    return rp_crc32c(0, &f, sizeof f);
}

static uint32_t parts_crc(const struct rp_table_header *header,
                          const struct rp_table_layout *layout) {
    const uint8_t *base = (const uint8_t *)header;
    const struct rp_table_facts *f = &header->facts;
    uint32_t crc = rp_crc32c(0, base + layout->columns, f->column_count * sizeof(struct rp_column));
    crc = rp_crc32c(crc, base + layout->picks, f->pick_count * sizeof(struct rp_pick));
    return rp_crc32c(crc, base + layout->spec, f->spec_bytes);
}

int rp_table_sound(const struct rp_table_header *header, uint32_t number, char error[256]) {
    struct rp_table_layout layout;
    if (header->magic != TABLE_MAGIC) {
        snprintf(error, 256,
                 "table %u: its memory does not start as a table of this layout does: start with a "
                 "new region",
                 number);
        return -RP_BAD_REGION;
    }
    int sound = facts_crc(header) == header->facts_crc;
    if (sound) {
        rp_layout_of(&header->facts, &layout);
        sound = persistent_bytes(&layout) == header->bytes
                && parts_crc(header, &layout) == header->parts_crc;
    }
    if (!sound) {
        snprintf(error, 256,
                 "table %u: its header is damaged, or written by another version: start with a new "
                 "region",
                 number);
        return -RP_BAD_REGION;
    }
    return 0;
}

/* The process-local side of a region that is whole: pointers, plans, tree, and what the writers'
 * entries say. */
static void derive_writer(struct rp_table *table, uint32_t index) {
    struct rp_table_private *p = table->private;
    struct rp_writer *writer = rp_writer_at(p, index);
    uint64_t next = writer->next_sequence;
    uint64_t sequence = next > p->window ? next - p->window : 0;
    p->done_through[index] = sequence;
    for (; sequence < next; sequence++) {
        struct rp_entry *entry = rp_entry_at(p, index, sequence);
        if (rp_entry_done(entry) && p->done_through[index] == sequence) {
            p->done_through[index]++;
        }
        if (rp_entry_known(entry)) {
            rp_known_add(p, index, sequence);
        }
        p->holes[index] += rp_state_of(entry->key) == RP_ENTRY_EMPTY;
    }
    for (uint32_t stream = 0; stream < writer->streams; stream++) {
        rp_skip_derive(p, index, stream);
    }
}

static void derive_plans(struct rp_table *table, const struct rp_table_layout *layout) {
    const uint8_t *base = (const uint8_t *)table->header;
    const struct rp_table_facts *f = &table->header->facts;
    struct rp_plan_part *parts =
        (struct rp_plan_part *)((uint8_t *)table->private + layout->parts);
    const struct rp_pick *picks = (const struct rp_pick *)(base + layout->picks);
    for (uint32_t i = 0; i < f->plan_count; i++) {
        const struct rp_plan_facts *plan = &f->plans[i];
        rp_plan_resolve((const struct rp_column *)(base + layout->columns),
                        picks + plan->pick_first, plan->pick_count, plan->item_bytes,
                        parts + plan->pick_first, &table->private->plans[i]);
    }
}

uint64_t rp_used_slots(const struct rp_table_private *p) {
    uint64_t used = 0;
    while (used < p->capacity && p->keys[rp_slot_of(p, p->head - used - 1)] != 0) {
        used++;
    }
    return used;
}

static void derive(struct rp_table *table) {
    struct rp_table_header *header = table->header;
    struct rp_table_private *p = table->private;
    p->head = header->head;
    p->head_slot = (uint32_t)(header->head % p->capacity);
    p->dirty_count = 0;
    p->rows.key = 0;
    memset(p->hints, 0, (size_t)p->writers_max * p->streams_max * sizeof *p->hints);
    memset(p->done_through, 0, RP_WRITER_ARRAYS * p->writers_max * sizeof *p->done_through);
    p->bare = 0;
    for (uint64_t used = rp_used_slots(p), back = 1; back <= used; back++) {
        p->bare += rp_state_of(p->keys[rp_slot_of(p, p->head - back)]) != RP_SLOT_COMMITTED;
    }
    for (uint32_t i = 0; i < p->writers_max; i++) {
        rp_known_clear(p, i);
        p->owners[i] = rp_writer_at(p, i)->session;
        if (p->owners[i] != 0) {
            derive_writer(table, i);
        }
    }
}

static void open_private(struct rp_table *table, const struct rp_table_memory *memory,
                         uint32_t number, uint64_t salt, struct rp_intent *intent,
                         uint64_t *counters, const struct rp_table_layout *layout) {
    uint8_t *state = memory->state;
    uint8_t *local = memory->local;
    const struct rp_table_facts *f = &((struct rp_table_header *)memory->state)->facts;
    struct rp_table_private *p = memory->local;
    *table = (struct rp_table){.header = memory->state,
                               .intent = intent,
                               .counters = counters,
                               .number = number,
                               .private = p};
    memset(p, 0, sizeof *p);
    p->keys = memory->keys;
    p->sums = (uint32_t *)(void *)((uint8_t *)memory->keys + layout->sums);
    p->slots = (struct rp_slot *)(state + layout->slots);
    p->leaves = (uint64_t *)(state + layout->leaves);
    p->steps = memory->steps;
    p->writers = state + layout->writers;
    p->hints = (struct rp_hint *)(local + layout->hints);
    p->skips = (uint32_t *)(local + layout->skips);
    p->seen = (uint64_t *)(local + layout->seen);
    p->known = (uint32_t *)(local + layout->known);
    p->known_bits = rp_known_bits(f->window);
    p->known_words = layout->known_words;
    p->held = local + layout->held;
    p->salt = salt | 1;
    p->done_through = (uint64_t *)(local + layout->done);
    p->holes = p->done_through + f->writers_max;
    p->create_from = p->holes + f->writers_max;
    p->owners = p->create_from + f->writers_max;
    p->mass_max = rp_tree_mass_max(f->capacity);
    p->writer_bytes = layout->writer_bytes;
    p->capacity = f->capacity;
    p->step_bytes = f->step_bytes;
    p->window = f->window;
    p->writers_max = f->writers_max;
    p->streams_max = f->streams_max;
    p->bitmap_words = layout->bitmap_words;
    p->entry_words = (uint32_t)(sizeof(struct rp_entry) / 8) + layout->bitmap_words;
    p->reach_behind = f->reach_behind;
    p->reach_ahead = f->reach_ahead;
    int status = rp_power_exponent(f->alpha, &table->power);
    assert(status == 0);
    p->head = table->header->head;
    p->head_slot = (uint32_t)(table->header->head % p->capacity);
    derive_plans(table, layout);
}

/* From words that hold together. */
static void open_derived(struct rp_table *table, const struct rp_table_layout *layout) {
    struct rp_table_private *p = table->private;
    rp_tree_open(&table->tree, p->leaves, (uint8_t *)p + layout->nodes, p->capacity);
    derive(table);
}

static int is_aligned(const struct rp_table_memory *memory) {
    return ((uintptr_t)memory->state | (uintptr_t)memory->keys | (uintptr_t)memory->steps
            | (uintptr_t)memory->local) % 64 == 0;
}

/* A range of keys for each table; the lower half of it is for where it begins. */
uint64_t rp_table_lap(const struct rp_table_config *config, uint32_t number, uint32_t drawn) {
    uint64_t range = (RP_KEY_MASK + 1) / 2 / RP_TABLES_MAX;
    uint64_t own = number * range / config->capacity;
    return drawn == 0 ? 0 : own + drawn % (range / 2 / config->capacity);
}

static uint64_t first_key(uint64_t capacity, uint64_t lap) {
    return (1 + lap % (RP_KEY_MASK / 2 / capacity)) * capacity;
}

int rp_table_create(struct rp_table *table, const struct rp_table_memory *memory,
                    const struct rp_table_config *config, uint32_t number, uint64_t seed,
                    uint64_t epoch, uint64_t salt, uint64_t first_lap, struct rp_intent *intent,
                    uint64_t *counters, char error[256]) {
    struct rp_table_header *header = memory->state;
    struct rp_table_layout layout;
    uint8_t *base = memory->state;
    assert(is_aligned(memory) && epoch != 0);
    if (rp_facts_from(config, &header->facts, error) < 0) {
        return -RP_BAD_ARGUMENT;
    }
    rp_layout_of(&header->facts, &layout);
    memcpy(base + layout.columns, config->columns, config->column_count * sizeof(struct rp_column));
    for (uint32_t i = 0; i < config->plan_count; i++) {
        struct rp_pick *picks = (struct rp_pick *)(base + layout.picks)
                                + header->facts.plans[i].pick_first;
        memcpy(picks, config->plans[i].picks, config->plans[i].pick_count * sizeof *picks);
    }
    if (config->spec_bytes > 0) {
        memcpy(base + layout.spec, config->spec, config->spec_bytes);
    }
    header->bytes = persistent_bytes(&layout);
    header->facts_crc = facts_crc(header);
    header->parts_crc = parts_crc(header, &layout);
    header->epoch = epoch;
    header->head = first_key(header->facts.capacity, first_lap);
    header->maximum = RP_POWER_ONE;
    rp_random_seed(&header->random, seed);
    header->magic = TABLE_MAGIC;
    open_private(table, memory, number, salt, intent, counters, &layout);
    open_derived(table, &layout);
    return 0;
}

static void clear_slots(struct rp_table_private *p, uint32_t slot, uint64_t count) {
    rp_region_clear(p->leaves + slot, count * sizeof *p->leaves);
    rp_region_clear(p->keys + slot, count * sizeof *p->keys);
    rp_region_clear(p->slots + slot, count * sizeof *p->slots);
}

static void end_reset(struct rp_table *table) {
    struct rp_table_header *header = table->header;
    struct rp_intent *intent = table->intent;
    rp_intent_set(intent, &header->epoch, header->resetting);
    rp_intent_set(intent, &header->inserted, 0);
    rp_intent_set(intent, &header->sampled, 0);
    rp_intent_set(intent, &header->maximum, RP_POWER_ONE);
    rp_intent_set(intent, &header->resetting, 0);
    rp_intent_set(intent, &header->resetting_not, 0);
    rp_intent_commit(intent);
}

/* Another process died within a reset: how far it came is not known, so all is cleared. */
static void finish_reset(struct rp_table *table) {
    struct rp_table_private *p = table->private;
    clear_slots(p, 0, p->capacity);
    for (uint32_t i = 0; i < p->writers_max; i++) {
        struct rp_writer *writer = rp_writer_at(p, i);
        rp_region_clear(&writer->next_sequence,
                        p->writer_bytes - offsetof(struct rp_writer, next_sequence));
    }
    end_reset(table);
}

/* Brings the tree up to date with cleared leaves: one of each group is enough. */
static void refresh_leaves(struct rp_table *table, uint32_t slot, uint64_t count) {
    struct rp_table_private *p = table->private;
    uint64_t end = slot + count;
    for (uint64_t at = slot; at < end; at = (at / RP_TREE_FANOUT + 1) * RP_TREE_FANOUT) {
        p->dirty[p->dirty_count++] = (uint32_t)at;
        if (p->dirty_count == RP_DIRTY_MAX) {
            rp_table_settle(table);
        }
    }
    rp_table_settle(table);
}

static void clear_used(struct rp_table *table) {
    struct rp_table_private *p = table->private;
    uint64_t used = rp_used_slots(p);
    uint32_t first = rp_slot_of(p, p->head - used);
    uint64_t ahead = rp_min(used, p->capacity - first);
    clear_slots(p, first, ahead);
    clear_slots(p, 0, used - ahead);
    refresh_leaves(table, first, ahead);
    refresh_leaves(table, 0, used - ahead);
    for (uint32_t i = 0; i < p->writers_max; i++) {
        if (rp_writer_at(p, i)->session != 0) {
            rp_writer_clear(table, i);
        }
    }
    p->bare = 0;
}

void rp_table_reset(struct rp_table *table, uint64_t epoch) {
    struct rp_table_header *header = table->header;
    assert(epoch != 0 && table->intent->count == 0);
    rp_intent_set(table->intent, &header->resetting, epoch);
    rp_intent_set(table->intent, &header->resetting_not, ~epoch);
    rp_intent_commit(table->intent);
    clear_used(table);
    end_reset(table);
}

int rp_table_attach(struct rp_table *table, const struct rp_table_memory *memory, uint32_t number,
                    uint64_t salt, struct rp_intent *intent, uint64_t *counters, char error[256]) {
    struct rp_table_header *header = memory->state;
    struct rp_table_layout layout;
    assert(is_aligned(memory));
    int status = rp_table_sound(header, number, error);
    if (status) {
        return status;
    }
    rp_layout_of(&header->facts, &layout);
    open_private(table, memory, number, salt, intent, counters, &layout);
    if (header->resetting != 0 && header->resetting_not == ~header->resetting) {
        finish_reset(table);
    }
    status = rp_table_verify(table, error);
    if (status) {
        return status;
    }
    open_derived(table, &layout);
    status = rp_table_verify_known(table, error);
    if (status) {
        return status;
    }
    for (uint32_t i = 0; i < table->private->writers_max; i++) {
        struct rp_writer *writer = rp_writer_at(table->private, i);
        if (writer->session != 0) {
            rp_writer_resume(table, i);
        } else { /* nothing verified what is left there */
            rp_region_clear(&writer->streams,
                            table->private->writer_bytes - offsetof(struct rp_writer, streams));
        }
    }
    rp_table_settle(table);
    return 0;
}

/* ---- facts ---- */

uint64_t rp_table_epoch(const struct rp_table *table) {
    return table->header->epoch;
}

uint64_t rp_table_capacity(const struct rp_table *table) {
    return table->private->capacity;
}

int rp_table_fifo(const struct rp_table *table) {
    return table->header->facts.fifo != 0;
}

uint32_t rp_table_plan_count(const struct rp_table *table) {
    return table->header->facts.plan_count;
}

uint32_t rp_table_item_bytes(const struct rp_table *table, uint32_t plan) {
    return table->header->facts.plans[plan].item_bytes;
}

const void *rp_table_spec(const struct rp_table *table, uint32_t *bytes, uint32_t *crc) {
    struct rp_table_layout layout;
    rp_layout_of(&table->header->facts, &layout);
    *bytes = table->header->facts.spec_bytes;
    *crc = table->header->facts.spec_crc;
    return (const uint8_t *)table->header + layout.spec;
}

void rp_table_info(const struct rp_table *table, struct rp_table_info *info) {
    const struct rp_table_header *header = table->header;
    const struct rp_table_facts *f = &header->facts;
    memset(info, 0, sizeof *info);
    memcpy(info->name, f->name, RP_NAME_BYTES);
    info->epoch = header->epoch;
    info->head = header->head;
    info->total = rp_tree_total(&table->tree);
    info->inserted = header->inserted;
    info->sampled = header->sampled;
    info->min_size = f->min_size;
    info->samples_per_insert = f->samples_per_insert;
    info->error_min = f->error_min;
    info->error_max = f->error_max;
    info->alpha = f->alpha;
    info->capacity = f->capacity;
    info->count = rp_tree_count(&table->tree);
    info->step_bytes = f->step_bytes;
    info->spec_bytes = f->spec_bytes;
    info->spec_crc = f->spec_crc;
    info->writers_max = f->writers_max;
    info->number = (uint16_t)table->number;
    info->plan_count = (uint16_t)f->plan_count;
    info->reach_behind = (uint16_t)f->reach_behind;
    info->reach_ahead = (uint16_t)f->reach_ahead;
    for (uint32_t i = 0; i < f->plan_count; i++) {
        info->item_bytes[i] = f->plans[i].item_bytes;
    }
}

uint32_t rp_writer_places(const struct rp_table *table) {
    return table->private->writers_max;
}

uint64_t rp_writer_session(const struct rp_table *table, uint32_t writer) {
    return table->private->owners[writer];
}
