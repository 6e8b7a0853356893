/* Creating items, and closing a writer: both walk the streams of what is stored.
 *
 * A create names its anchor by stream and step. Steps of a stream are linked and their numbers
 * follow by one, so the anchor is so many links from any known step: from the newest one, or
 * from where the last create of this stream found its own, which is usually one link away. A
 * walk is bounded by RP_WALK_MAX links: an anchor farther behind is answered as overwritten,
 * which only a writer meets that lets thousands of its steps pass before it makes an item.
 */
#include <assert.h>

#include "store.h"

struct anchor {
    struct rp_slot *slot;
    uint16_t behind;
    uint16_t ahead;
};

/* The step `wanted`, by links from a known step; null where one in between is gone, or it is too
 * far. */
static struct rp_slot *walk(const struct rp_table_private *p, struct rp_slot *slot, uint64_t step,
                            uint64_t wanted) {
    for (uint32_t links = 0; slot && step != wanted; links++) {
        if (links == RP_WALK_MAX) {
            return 0;
        }
        slot = step > wanted ? rp_previous(p, slot) : rp_next(p, slot);
        step += step > wanted ? (uint64_t)-1 : 1;
    }
    return slot;
}

static uint64_t apart(uint64_t a, uint64_t b) {
    return a > b ? a - b : b - a;
}

/* Finds the stored step `wanted` of a stream; null where it was overwritten. */
static struct rp_slot *find_step(const struct rp_table_private *p, uint32_t writer, uint32_t stream,
                                 uint64_t wanted) {
    const struct rp_stream *state = rp_stream_at(p, writer, stream);
    struct rp_hint *hint = rp_hint_at(p, writer, stream);
    struct rp_slot *slot = rp_alive(p, state->head);
    uint64_t step = state->next_step - 1;
    if (hint->key != 0 && apart(hint->step, wanted) < apart(step, wanted)) {
        struct rp_slot *found = rp_alive(p, hint->key);
        if (found) {
            slot = found;
            step = hint->step;
        } else if (hint->step >= wanted) {
            return 0; /* where that one is gone, so is all that came before it */
        }
    }
    slot = walk(p, slot, step, wanted);
    if (slot) {
        *hint = (struct rp_hint){wanted, rp_key_at(p, slot), hint->known};
    }
    return slot;
}

/* Rows behind that the window takes; -1 where one of them is gone. */
static int window_behind(const struct rp_table_private *p, const struct rp_slot *slot) {
    uint32_t depth = rp_item_depth(slot->item);
    uint32_t behind = depth < p->reach_behind ? depth : p->reach_behind;
    for (uint32_t i = 0; i < behind; i++) {
        slot = rp_previous(p, slot);
        if (!slot) {
            return -1;
        }
    }
    return (int)behind;
}

/* Rows ahead that the window takes; -1 where they are not stored yet and the episode is open. */
static int window_ahead(const struct rp_table_private *p, const struct rp_slot *slot) {
    uint32_t ahead = 0;
    while (ahead < p->reach_ahead && !(rp_item_flags(slot->item) & RP_STEP_END)) {
        slot = rp_next(p, slot);
        if (!slot) {
            return -1;
        }
        ahead++;
    }
    return (int)ahead;
}

/* What a create would come to now, and for RP_OK its anchor. */
static int resolve(const struct rp_table *table, uint32_t writer, const struct rp_create *create,
                   struct anchor *anchor) {
    const struct rp_table_private *p = table->private;
    if (create->stream >= rp_writer_at(p, writer)->streams) {
        return RP_UNKNOWN_STEP;
    }
    uint64_t next = rp_stream_at(p, writer, create->stream)->next_step;
    if (create->step >= next) {
        return create->step - next < RP_STEPS_AHEAD * (uint64_t)p->window ? RP_NOT_YET
                                                                          : RP_UNKNOWN_STEP;
    }
    struct rp_slot *slot = find_step(p, writer, create->stream, create->step);
    if (!slot) {
        return RP_OVERWRITTEN;
    }
    if (rp_item_flags(slot->item) & RP_STEP_ITEM) {
        return RP_EXISTS;
    }
    if (rp_item_flags(slot->item) & RP_STEP_END) {
        return RP_CLOSING_ROW;
    }
    int behind = window_behind(p, slot);
    int ahead = window_ahead(p, slot);
    *anchor = (struct anchor){slot, (uint16_t)behind, (uint16_t)ahead};
    return behind < 0 ? RP_OVERWRITTEN : ahead < 0 ? RP_NOT_YET : RP_OK;
}

int rp_writer_check_create(const struct rp_table *table, int writer,
                           const struct rp_create *create) {
    int counter = RP_COUNT_refused_argument;
    int status = 0;
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
                                const struct rp_create *create) {
    struct anchor anchor;
    int status = resolve(table, (uint32_t)writer, create, &anchor);
    return status == RP_OK || status == RP_NOT_YET;
}

int rp_writer_create(struct rp_table *table, int writer, const struct rp_create *create) {
    struct rp_table_private *p = table->private;
    struct anchor anchor;
    int status = resolve(table, (uint32_t)writer, create, &anchor);
    assert(table->intent->count == 0);
    if (status != RP_OK) {
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
        p->waiting_items -= rp_state_of(entry->key) == RP_ENTRY_COMPLETE
                            && rp_entry_flags(entry) & RP_RUN_ITEM;
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
}
