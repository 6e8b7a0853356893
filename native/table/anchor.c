/* Creating items, which walks the streams of what is stored, and closing a writer.
 *
 * A create names its anchor by stream and step. Mostly it is a link or two from where the last
 * create of this stream found its own. Else it is found from the stream's newest step backwards,
 * in at most RP_WALK_MAX links and skips however far it is.
 *
 * Skips: a block is RP_SKIP_BLOCK steps of a stream. Its first step knows how far back an earlier
 * block's first step lies, as Myers' random-access stack has it (1983): block b skips as many
 * blocks as the smallest term says when b is written as a sum of 2^k - 1, largest terms first. So
 * any earlier block is some 3 * log2(distance) moves away, by skips and by going one block back.
 * For the latter the last step of a block knows where its first one lies. Keys rise along a
 * stream, so what lies between two stored steps is stored; a distance of 0 says that the place
 * is gone, and so is all before it.
 */
#include <assert.h>

#include "base/minmax.h"
#include "table/store.h"

struct anchor {
    struct rp_slot *slot;
    uint64_t step;
    uint16_t behind;
    uint16_t ahead;
};

/* ---- skips ---- */

static uint64_t blocks_skipped(uint64_t block) {
    uint64_t term;
    do {
        term = ((uint64_t)1 << (63 - __builtin_clzll(block + 1))) - 1;
        block -= term;
    } while (block > 0);
    return term;
}

/* Where a step's skip leads to: a key that is stored, or 0. */
static uint64_t skip_of(const struct rp_table_private *p, uint64_t key) {
    uint32_t distance = p->skips[rp_slot_of(p, key)];
    return distance > 0 && rp_alive(p, key - distance) ? key - distance : 0;
}

/* The key of the step that this block's first one skips to, from the block before it, or 0. */
static uint64_t skip_to(const struct rp_table_private *p, uint64_t block, uint64_t before) {
    if (block == 0 || before == 0) {
        return 0;
    }
    if (blocks_skipped(block) == 1) {
        return before;
    }
    before = skip_of(p, before);
    return before != 0 ? skip_of(p, before) : 0;
}

void rp_skip_note(struct rp_table_private *p, uint32_t writer, uint32_t stream, uint64_t step,
                  uint64_t key) {
    struct rp_hint *hint = rp_hint_at(p, writer, stream);
    int first = step % RP_SKIP_BLOCK == 0;
    uint64_t block = rp_alive(p, hint->block) ? hint->block : 0;
    uint64_t to = first ? skip_to(p, step / RP_SKIP_BLOCK, block) : block;
    p->skips[rp_slot_of(p, key)] = to != 0 ? (uint32_t)(key - to) : 0;
    hint->block = first ? key : hint->block;
}

void rp_skip_derive(struct rp_table_private *p, uint32_t writer, uint32_t stream) {
    const struct rp_stream *state = rp_stream_at(p, writer, stream);
    struct rp_slot *slot = state->head ? rp_alive(p, state->head) : 0;
    uint64_t step = state->next_step;
    struct rp_slot *oldest = slot;
    for (; slot; slot = rp_previous(p, slot)) {
        oldest = slot;
        step--;
    }
    for (slot = oldest; slot; slot = rp_next(p, slot), step++) {
        if (rp_skip_wanted(step)) {
            rp_skip_note(p, writer, stream, step, rp_key_at(p, slot));
        }
    }
}

/* ---- finding ---- */

struct place {
    uint64_t key; /* 0: gone */
    uint64_t step;
};

static struct place link_back(const struct rp_table_private *p, struct place at) {
    uint32_t distance = rp_link_previous(p->slots[rp_slot_of(p, at.key)].links);
    uint64_t key = distance > 0 && rp_alive(p, at.key - distance) ? at.key - distance : 0;
    return (struct place){key, at.step - 1};
}

/* One move from a stored step back towards an earlier one. */
static struct place move_back(const struct rp_table_private *p, struct place at, uint64_t wanted) {
    uint64_t last = at.step % RP_SKIP_BLOCK;
    if (last == RP_SKIP_BLOCK - 1 && at.step - wanted >= last) {
        return (struct place){skip_of(p, at.key), at.step - last};
    }
    if (last == 0 && at.step - wanted >= RP_SKIP_BLOCK) {
        uint64_t steps = RP_SKIP_BLOCK * blocks_skipped(at.step / RP_SKIP_BLOCK);
        if (steps <= at.step - wanted) {
            return (struct place){skip_of(p, at.key), at.step - steps};
        }
    }
    return link_back(p, at);
}

/* From where the stream's last create found its anchor, a few links either way; 0 = not there. */
static uint64_t find_near(struct rp_table_private *p, const struct rp_hint *hint,
                          uint64_t wanted) {
    const struct rp_slot *slot = rp_alive(p, hint->key); /* no step has key 0 */
    uint64_t step = hint->step;
    uint64_t apart = step > wanted ? step - wanted : wanted - step;
    if (!slot || apart > RP_SKIP_BLOCK) {
        return 0;
    }
    rp_work_add(p, apart);
    for (; slot && step != wanted; step += step > wanted ? (uint64_t)-1 : 1) {
        slot = step > wanted ? rp_previous(p, slot) : rp_next(p, slot);
    }
    return slot ? rp_key_at(p, slot) : 0;
}

/* No peer can make the walk longer than RP_WALK_MAX. Steps have RP_KEY_BITS bits and are stored one
 * after another, so a stack has fewer than RP_KEY_BITS terms, one size perhaps twice. Going
 * to larger terms is one skip for each; then each halving of a term costs at most a block back (two
 * moves) and a skip. Before the first skip and after the last, less than a block is walked. */
_Static_assert(4 * RP_KEY_BITS + 2 * RP_SKIP_BLOCK <= RP_WALK_MAX, "a walk fits its bound");

/* Finds the stored step `wanted` of a stream; null where it was overwritten. */
static struct rp_slot *find_step(struct rp_table_private *p, uint32_t writer, uint32_t stream,
                                 uint64_t wanted) {
    const struct rp_stream *state = rp_stream_at(p, writer, stream);
    struct rp_hint *hint = rp_hint_at(p, writer, stream);
    struct place at = {find_near(p, hint, wanted), wanted};
    if (at.key == 0) {
        at = (struct place){rp_alive(p, state->head) ? state->head : 0, state->next_step - 1};
        for (uint32_t moves = 0; at.key != 0 && at.step != wanted; moves++) {
            assert(moves < RP_WALK_MAX);
            at = move_back(p, at, wanted);
            rp_work_add(p, 1);
        }
    }
    if (at.key == 0) {
        return 0;
    }
    hint->step = wanted;
    hint->key = at.key;
    return rp_alive(p, at.key);
}

/* Rows behind that the window takes; -1 where one of them is gone. */
static int window_behind(const struct rp_table_private *p, const struct rp_slot *slot) {
    uint32_t depth = rp_item_depth(slot->item);
    uint32_t behind = rp_min(depth, p->reach_behind);
    for (uint32_t i = 0; i < behind; i++) {
        slot = rp_previous(p, slot);
        if (!slot) {
            return -1;
        }
    }
    return (int)behind;
}

/* Rows ahead that the window takes; -1 where they are not stored yet and the episode is open. In
 * the open episode the number of rows stored since tells; an older one has its end, and may be
 * walked. */
static int window_ahead(const struct rp_table_private *p, const struct rp_stream *stream,
                        const struct anchor *anchor) {
    uint64_t behind_newest = stream->next_step - 1 - anchor->step;
    uint32_t ahead = 0;
    if (behind_newest < stream->depth) {
        return behind_newest < p->reach_ahead ? -1 : (int)p->reach_ahead;
    }
    const struct rp_slot *slot = anchor->slot;
    while (ahead < p->reach_ahead && !(rp_item_flags(slot->item) & RP_STEP_END)) {
        slot = rp_next(p, slot);
        if (!slot) {
            return -1;
        }
        ahead++;
    }
    return (int)ahead;
}

/* The status that a create would get now if its window is whole, and for RP_OK its anchor. */
static int resolve(const struct rp_table *table, uint32_t writer, const struct rp_create *create,
                   struct rp_slot **anchor) {
    struct rp_table_private *p = table->private;
    if (create->stream >= rp_writer_at(p, writer)->streams) {
        return RP_UNKNOWN_STEP;
    }
    uint64_t next = rp_stream_at(p, writer, create->stream)->next_step;
    if (create->step >= next) {
        return create->step - next < RP_STEPS_AHEAD * (uint64_t)p->window ? RP_NOT_YET
                                                                          : RP_UNKNOWN_STEP;
    }
    if (!rp_work_left(p)) {
        return RP_NOT_YET;
    }
    struct rp_slot *slot = find_step(p, writer, create->stream, create->step);
    *anchor = slot;
    return !slot                                         ? RP_OVERWRITTEN
           : rp_item_flags(slot->item) & RP_STEP_ITEM ? RP_EXISTS
           : rp_item_flags(slot->item) & RP_STEP_END  ? RP_CLOSING_ROW
                                                      : RP_OK;
}

/* Completes an anchor that was found: RP_OK where the rows of its window are stored. */
static int measure(struct rp_table_private *p, const struct rp_stream *stream,
                   struct anchor *anchor) {
    int ahead = window_ahead(p, stream, anchor);
    if (ahead < 0) {
        return RP_NOT_YET;
    }
    int behind = window_behind(p, anchor->slot);
    rp_work_add(p, p->reach_behind + p->reach_ahead);
    anchor->behind = (uint16_t)behind;
    anchor->ahead = (uint16_t)ahead;
    return behind < 0 ? RP_OVERWRITTEN : RP_OK;
}

int rp_writer_check_create(const struct rp_table *table, int writer,
                           const struct rp_create *create) {
    int counter = RP_COUNT_refused_argument;
    int status = 0;
    rp_work_begin(table->private);
    if (create->stream >= rp_writer_at(table->private, (uint32_t)writer)->streams) {
        counter = RP_COUNT_refused_stream;
        status = -RP_BAD_STREAM;
    } else if (create->flags & ~RP_CREATE_FLAGS || create->table != 0) {
        status = -RP_BAD_ARGUMENT;
    } else if (!rp_power_valid(create->priority)
               || (create->flags & RP_CREATE_MAXIMUM && create->priority != 0)) {
        counter = RP_COUNT_refused_priority;
        status = -RP_BAD_PRIORITY;
    }
    table->counters[counter] += status < 0;
    return status;
}

uint32_t rp_writer_create_items(const struct rp_table *table, int writer,
                                const struct rp_create *creates, uint32_t count,
                                uint32_t *taken) {
    struct rp_table_private *p = table->private;
    struct rp_slot *slot;
    uint32_t items = 0;
    *taken = count;
    p->work_asked = 0;
    if (table->header->facts.samples_per_insert == 0) {
        return count; /* there is no limiter: the number is not needed, nothing is looked up */
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (p->create_from[writer] + i) % count;
        if (!rp_work_left(p)) {
            *taken = i;
            break;
        }
        int status = resolve(table, (uint32_t)writer, &creates[at], &slot);
        items += status == RP_OK || status == RP_NOT_YET;
    }
    p->work_asked = p->work;
    rp_work_begin(p); /* the runs have their own */
    return items;
}

uint64_t rp_table_vain(const struct rp_table *table) {
    return table->private->work_vain;
}

void rp_table_asked(struct rp_table *table, int in_vain) {
    struct rp_table_private *p = table->private;
    p->work_vain += in_vain ? p->work_asked : 0;
    p->work_asked = 0;
}

int rp_writer_create(struct rp_table *table, int writer, const struct rp_create *create) {
    struct rp_table_private *p = table->private;
    struct anchor anchor = {.step = create->step};
    uint64_t before = p->work;
    int status = resolve(table, (uint32_t)writer, create, &anchor.slot);
    if (status == RP_OK) {
        status = measure(p, rp_stream_at(p, (uint32_t)writer, create->stream), &anchor);
    }
    assert(table->intent->count == 0);
    if (status != RP_OK) {
        p->work_vain += p->work - before;
        int counter = status == RP_EXISTS        ? RP_COUNT_items_existed
                      : status == RP_OVERWRITTEN ? RP_COUNT_items_overwritten
                      : status == RP_NOT_YET     ? RP_COUNT_items_not_yet
                                                 : RP_COUNT_items_refused;
        table->counters[counter]++;
        return status;
    }
    uint64_t mass = table->header->maximum;
    if (!(create->flags & RP_CREATE_MAXIMUM)) {
        rp_power_masses(&table->power, &create->priority, &mass, 1, p->mass_max,
                        &table->counters[RP_COUNT_masses_saturated]);
    }
    rp_store_item(table, (uint32_t)(anchor.slot - p->slots), anchor.behind, anchor.ahead, mass);
    return RP_OK;
}

void rp_writer_create_all(struct rp_table *table, int writer, const struct rp_create *creates,
                          uint32_t count, uint32_t taken, uint8_t *statuses) {
    struct rp_table_private *p = table->private;
    uint64_t from = p->create_from[writer];
    uint32_t made = 0;
    rp_work_begin(p);
    for (; made < taken && rp_work_left(p); made++) {
        uint64_t at = (from + made) % count;
        statuses[at] = (uint8_t)rp_writer_create(table, writer, &creates[at]);
    }
    if (made < count) {
        p->create_from[writer] = (from + made) % count;
    }
    for (uint32_t i = made; i < count; i++) {
        statuses[(from + i) % count] = RP_NOT_YET;
        table->counters[RP_COUNT_items_not_yet]++;
    }
}

/* ---- closing ---- */

/* Frees the slots that no step will fill now, as many as one transaction takes; 1 where none is
 * left. */
static int free_reserved(struct rp_table *table, uint32_t index) {
    struct rp_table_private *p = table->private;
    struct rp_writer *writer = rp_writer_at(p, index);
    for (uint64_t sequence = p->done_through[index]; sequence < writer->next_sequence; sequence++) {
        struct rp_entry *entry = rp_entry_at(p, index, sequence);
        uint64_t key = rp_key_of(entry->key);
        if (rp_entry_done(entry)) {
            continue;
        }
        if (rp_intent_room(table->intent) < 2) {
            rp_store_commit(table);
            return 0;
        }
        if (rp_place_held(p, entry)) {
            rp_intent_set(table->intent, &p->keys[rp_slot_of(p, key)],
                          rp_key_word(RP_SLOT_FREE, key));
        }
        if (rp_entry_known(entry)) {
            rp_known_remove(p, index, sequence);
        }
        rp_intent_set(table->intent, &entry->key, rp_key_word(RP_ENTRY_LOST, key));
    }
    rp_store_commit(table);
    return 1;
}

void rp_writer_close(struct rp_table *table, int index) {
    struct rp_table_private *p = table->private;
    struct rp_writer *writer = rp_writer_at(p, (uint32_t)index);
    assert(writer->session != 0 && table->intent->count == 0);
    while (!free_reserved(table, (uint32_t)index)) {
    }
    for (uint32_t stream = 0; stream < writer->streams; stream++) {
        const struct rp_stream *state = rp_stream_at(p, (uint32_t)index, stream);
        struct rp_slot *last = state->depth > 0 ? rp_alive(p, state->head) : 0;
        /* An item's own row closes nothing. */
        int item = last && rp_item_flags(last->item) & RP_STEP_ITEM;
        if (last && !item) {
            rp_intent_set(table->intent, &last->item, last->item | (uint64_t)RP_STEP_END << 16);
            table->counters[RP_COUNT_episodes_cut]++;
        }
    }
    rp_intent_set(table->intent, &writer->session, 0);
    rp_store_commit(table);
    p->owners[index] = 0;
}
