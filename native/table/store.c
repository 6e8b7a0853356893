/* The ring: reserving withdraws old steps, committing links new ones. See store.h for the words.
 *
 * Both are intents of after-images; the words keep their old values until the commit. So an
 * eviction must not count on seeing the one before it in the same intent: which items reach back
 * to a step follows from depths alone. Where the overwritten step had a predecessor in its
 * episode, that one went earlier (keys rise along a stream) and took every item with it that
 * reaches further back; only the item exactly reach_behind rows later is left. Only an episode's
 * first row has to look at all of the reach_behind rows that follow.
 */
#include "table/store.h"

#include <assert.h>

#include "base/minmax.h"

void rp_leaf_set(struct rp_table *table, uint32_t slot, uint64_t mass) {
    struct rp_table_private *p = table->private;
    assert(mass <= p->mass_max);
    rp_intent_set(table->intent, &p->leaves[slot], mass);
    uint32_t group = slot / RP_TREE_FANOUT;
    if (p->dirty_count == 0 || p->dirty[p->dirty_count - 1] / RP_TREE_FANOUT != group) {
        p->dirty[p->dirty_count++] = slot;
    }
}

void rp_store_commit(struct rp_table *table) {
    struct rp_table_private *p = table->private;
    rp_intent_commit(table->intent);
    uint64_t head = table->header->head;
    if (head != p->head) {
        p->head_slot = rp_slot_of(p, head);
        p->head = head;
    }
    if (p->dirty_count >= RP_DIRTY_MAX) {
        rp_table_settle(table);
    }
}

void rp_table_settle(struct rp_table *table) {
    struct rp_table_private *p = table->private;
    if (p->dirty_count > 0) {
        rp_tree_refresh(&table->tree, p->dirty, p->dirty_count);
        p->dirty_count = 0;
    }
}

/* ---- reserving ---- */

/* The row behind this one in its episode; null behind the last one stored. */
static struct rp_slot *row_after(const struct rp_table_private *p, const struct rp_slot *row) {
    return rp_item_flags(row->item) & RP_STEP_END ? 0 : rp_next(p, row);
}

/* Nobody draws the slot's item any more, if it has one. What a queue had left to draw is lost. One
 * intent may come here twice for an item, as its oldest row goes and as its own does, and reads the
 * same leaf each time: `oldest` says that it is the former, which is counted. */
static void take_out(struct rp_table *table, uint32_t slot, int oldest) {
    if (table->private->leaves[slot] != 0) {
        rp_leaf_set(table, slot, 0);
        table->counters[RP_COUNT_items_undrawn] += oldest && table->header->facts.fifo;
    }
}

/* Withdraws the item anchored in this row, if one is. */
static void evict_item(struct rp_table *table, struct rp_slot *row, uint32_t distance) {
    struct rp_table_private *p = table->private;
    uint32_t slot = (uint32_t)(row - p->slots);
    if (!rp_is_item(row->item)) {
        return;
    }
    assert(rp_item_behind(row->item) >= distance);
    take_out(table, slot, 1);
    rp_intent_set(table->intent, &row->item, row->item | (uint64_t)RP_STEP_EVICTED << 16);
    table->counters[RP_COUNT_items_evicted]++;
}

/* Row i's last follower is row i + reach; so who overwrites row i knows that of row i + 1, which is
 * overwritten next of this stream: the row after. It has none either where the episode's end is
 * nearer. Behind the newest step of an open episode more may come: nothing is noted there. */
static void note_follower(struct rp_table_private *p, const struct rp_slot *oldest,
                          const struct rp_slot *last, int ended) {
    const struct rp_slot *successor = row_after(p, oldest);
    const struct rp_slot *follower = last ? row_after(p, last) : 0;
    ended = ended || (last && rp_item_flags(last->item) & RP_STEP_END);
    if (successor && (follower || ended)) {
        uint64_t key = rp_key_at(p, successor);
        uint64_t of = follower ? rp_key_at(p, follower) : 0;
        p->followers[key % RP_FOLLOWERS] = (struct rp_follower){key, of};
    }
}

static void evict_followers(struct rp_table *table, const struct rp_slot *oldest) {
    struct rp_table_private *p = table->private;
    const struct rp_follower *known = &p->followers[rp_key_at(p, oldest) % RP_FOLLOWERS];
    struct rp_slot *at = (struct rp_slot *)oldest;
    uint32_t distance = 0, links = 0;
    int first = rp_item_depth(oldest->item) == 0, ended = 0;
    if (!first && known->key == rp_key_at(p, oldest)) {
        at = known->follower ? rp_alive(p, known->follower) : 0;
        ended = known->follower == 0;
        distance = p->reach_behind;
    }
    while (at && distance < p->reach_behind) {
        ended = (rp_item_flags(at->item) & RP_STEP_END) != 0;
        at = row_after(p, at);
        distance++;
        links++;
        if (at && first) {
            evict_item(table, at, distance);
        }
    }
    if (at && !first) {
        evict_item(table, at, distance);
    }
    note_follower(p, oldest, at, ended);
    p->work_total += links + 1;
}

/* Adds what overwriting `slot` means for what it holds: items reaching back to it leave, then its
 * own. */
static void evict(struct rp_table *table, uint32_t slot) {
    struct rp_table_private *p = table->private;
    uint64_t old = p->keys[slot];
    if (rp_state_of(old) != RP_SLOT_COMMITTED) {
        table->counters[RP_COUNT_holes_overwritten] += old != 0;
        return;
    }
    if (p->reach_behind > 0) {
        evict_followers(table, &p->slots[slot]);
    }
    take_out(table, slot, rp_item_behind(p->slots[slot].item) == 0);
}

/* After-images one evicted slot may need, its new key word included. */
static uint32_t evict_words(const struct rp_table *table) {
    return 2 * table->private->reach_behind + 2;
}

void rp_store_reserve(struct rp_table *table, uint32_t index, uint64_t goal) {
    struct rp_table_private *p = table->private;
    struct rp_intent *intent = table->intent;
    struct rp_writer *writer = rp_writer_at(p, index);
    uint32_t words = evict_words(table) + 1;
    assert(intent->count == 0 && goal <= p->done_through[index] + p->window);
    p->holes[index] += goal - writer->next_sequence;
    while (writer->next_sequence < goal) {
        uint64_t sequence = writer->next_sequence;
        uint64_t key = p->head;
        struct rp_entry *entry = rp_entry_at(p, index, sequence);
        for (; sequence < goal && rp_intent_room(intent) >= words + 3; sequence++, key++) {
            uint32_t slot = rp_slot_of(p, key);
            uint64_t before = p->keys[slot];
            p->bare += before == 0 || rp_state_of(before) == RP_SLOT_COMMITTED;
            evict(table, slot);
            rp_intent_set(intent, &p->keys[slot], rp_key_word(RP_SLOT_RESERVED, key));
            rp_intent_set(intent, &entry->key, rp_key_word(RP_ENTRY_EMPTY, key));
            entry = rp_entry_after(p, index, entry);
        }
        rp_intent_set(intent, &table->header->head, key);
        rp_intent_set(intent, &writer->next_sequence, sequence);
        rp_store_commit(table);
    }
}

/* ---- committing ---- */

/* Masses of a chunk's items, and the largest mass so far with them in it. */
static uint64_t chunk_masses(struct rp_table *table, const struct rp_commit *commit, uint32_t first,
                             uint32_t count) {
    struct rp_table_private *p = table->private;
    uint64_t maximum = table->header->maximum;
    if (!(commit->flags & RP_RUN_PRIORITY)) {
        for (uint32_t i = 0; i < count; i++) {
            p->masses[i] = maximum;
        }
        return maximum;
    }
    rp_power_masses(&table->power, commit->priorities + first, p->masses, count, p->mass_max,
                    &table->counters[RP_COUNT_masses_saturated]);
    for (uint32_t i = 0; i < count; i++) {
        maximum = rp_max(p->masses[i], maximum);
    }
    return maximum;
}

/* Adds the link from the stream's newest step to `key`; returns the distance back to it, 0 where it
 * is gone. */
static uint64_t link_to(struct rp_table *table, const struct rp_stream *stream, uint64_t key) {
    struct rp_slot *last = stream->head ? rp_alive(table->private, stream->head) : 0;
    if (!last) {
        return 0;
    }
    uint64_t distance = key - stream->head;
    assert(key > stream->head && distance < table->private->capacity);
    rp_intent_set(table->intent, &last->links,
                  rp_links_word(rp_link_previous(last->links), distance));
    return distance;
}

static void add_items(struct rp_table *table, const struct rp_commit *commit, uint32_t first,
                      uint32_t count) {
    struct rp_table_header *header = table->header;
    struct rp_table_private *p = table->private;
    uint64_t maximum = chunk_masses(table, commit, first, count);
    const struct rp_entry *entry = rp_entry_at(p, commit->writer, commit->sequence + first);
    for (uint32_t i = 0; i < count; i++) {
        rp_leaf_set(table, rp_slot_of(p, rp_key_of(entry->key)), p->masses[i]);
        entry = rp_entry_after(p, commit->writer, entry);
    }
    rp_intent_set(table->intent, &header->inserted, header->inserted + count);
    if (maximum != header->maximum) {
        rp_intent_set(table->intent, &header->maximum, maximum);
    }
    table->counters[RP_COUNT_items_created] += count;
}

/* Tells the skips of those steps of a chunk that have one. */
static void note_skips(struct rp_table_private *p, const struct rp_commit *commit,
                       uint64_t sequence, uint64_t step, uint32_t count) {
    uint32_t i = (uint32_t)(RP_SKIP_BLOCK - 1 - step % RP_SKIP_BLOCK); /* to a block's last step */
    if (step % RP_SKIP_BLOCK == 0) {
        i = 0;
    }
    while (i < count) {
        uint64_t key = rp_key_of(rp_entry_at(p, commit->writer, sequence + i)->key);
        rp_skip_note(p, commit->writer, commit->stream, step + i, key);
        i += (step + i) % RP_SKIP_BLOCK == 0 ? RP_SKIP_BLOCK - 1 : 1;
    }
}

static void commit_chunk(struct rp_table *table, const struct rp_commit *commit, uint32_t first,
                         uint32_t count) {
    struct rp_table_private *p = table->private;
    struct rp_intent *intent = table->intent;
    struct rp_stream *stream = rp_stream_at(p, commit->writer, commit->stream);
    uint64_t sequence = commit->sequence + first;
    struct rp_entry *entry = rp_entry_at(p, commit->writer, sequence);
    uint64_t key = rp_key_of(entry->key);
    uint64_t back = link_to(table, stream, key);
    uint64_t depth = stream->depth;
    uint64_t flags = commit->flags & RP_RUN_ITEM ? RP_STEP_ITEM : 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = rp_slot_of(p, key);
        struct rp_entry *after = rp_entry_after(p, commit->writer, entry);
        uint64_t on = i + 1 < count ? rp_key_of(after->key) - key : 0;
        if (commit->flags & RP_RUN_END && first + i + 1 == commit->count) {
            flags |= RP_STEP_END;
        }
        assert(p->keys[slot] == rp_key_word(RP_SLOT_RESERVED, key));
        rp_intent_set(intent, &p->slots[slot].item, rp_item_word(depth, flags, 0, 0));
        rp_intent_set(intent, &p->slots[slot].links, rp_links_word(back, on));
        rp_intent_set(intent, &p->keys[slot], rp_key_word(RP_SLOT_COMMITTED, key));
        rp_intent_set(intent, &entry->key, rp_key_word(RP_ENTRY_COMMITTED, key));
        depth = flags & RP_STEP_END ? 0 : depth < UINT16_MAX ? depth + 1 : depth;
        back = on;
        key += on;
        entry = after;
    }
    uint64_t newest = stream->next_step + count - 1;
    rp_intent_set(intent, &stream->next_step, newest + 1);
    rp_intent_set(intent, &stream->head, key);
    rp_intent_set(intent, &stream->depth, depth);
    if (commit->flags & RP_RUN_ITEM) {
        add_items(table, commit, first, count);
    }
    p->bare -= count;
    rp_store_commit(table);
    note_skips(p, commit, sequence, newest + 1 - count, count);
    table->counters[RP_COUNT_steps_committed] += count;
}

void rp_store_steps(struct rp_table *table, const struct rp_commit *commit) {
    assert(table->intent->count == 0);
    for (uint32_t first = 0; first < commit->count; first += RP_COMMIT_CHUNK) {
        uint32_t left = commit->count - first;
        commit_chunk(table, commit, first, rp_min(left, RP_COMMIT_CHUNK));
    }
    if (commit->flags & RP_RUN_ITEM) {
        uint64_t admitted = table->private->admitted;
        table->private->admitted -= rp_min(commit->count, admitted);
    }
}

void rp_store_item(struct rp_table *table, uint32_t slot, uint16_t behind, uint16_t ahead,
                   uint64_t mass) {
    struct rp_table_private *p = table->private;
    struct rp_table_header *header = table->header;
    struct rp_slot *at = &p->slots[slot];
    assert(rp_state_of(p->keys[slot]) == RP_SLOT_COMMITTED && table->intent->count == 0);
    uint64_t flags = rp_item_flags(at->item) | RP_STEP_ITEM;
    rp_intent_set(table->intent, &at->item,
                  rp_item_word(rp_item_depth(at->item), flags, behind, ahead));
    rp_leaf_set(table, slot, mass);
    rp_intent_set(table->intent, &header->inserted, header->inserted + 1);
    if (mass > header->maximum) {
        rp_intent_set(table->intent, &header->maximum, mass);
    }
    rp_store_commit(table);
    table->counters[RP_COUNT_items_created]++;
}
