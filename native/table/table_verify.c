/* Is what a dead server left of a table whole? Every word of it that changes, against the
 * invariants of table.h and store.h, before anything is derived from it: the first one that does
 * not hold is a sentence. Nothing here trusts a word before it has looked at it.
 *
 * A word that no invariant ties to another cannot be verified: a priority (a leaf), the generator,
 * inserted and sampled, the number of a writer's next sequence and step. A wrong one of these
 * changes what is drawn or answered, and nothing else. The bytes of steps have checksums; comparing
 * them reads the whole ring, so that is done when asked for.
 *
 * Cost: every slot and every window entry a fixed number of times, whatever the reach: windows are
 * counted along each stream, on and back.
 */
#include <assert.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/minmax.h"
#include "table/store.h"
#include "table/verdict.h"

/* ---- slots ---- */

/* What an item's own words say, its window aside. */
static int verify_item(const struct verdict *v, const struct rp_slot *slot) {
    const struct rp_table_private *p = v->table->private;
    uint32_t depth = rp_item_depth(slot->item);
    uint32_t whole = rp_min(depth, p->reach_behind);
    HOLDS(rp_item_behind(slot->item) == whole && rp_item_ahead(slot->item) <= p->reach_ahead);
    HOLDS(whole > 0 || !(rp_item_flags(slot->item) & RP_STEP_EVICTED));
    HOLDS(!(rp_item_flags(slot->item) & RP_STEP_END));
    return 0;
}

static uint32_t depth_after(const struct rp_slot *slot) {
    uint32_t depth = rp_item_depth(slot->item);
    return rp_item_flags(slot->item) & RP_STEP_END ? 0 : depth < UINT16_MAX ? depth + 1 : depth;
}

static int verify_links(const struct verdict *v, const struct rp_slot *slot) {
    const struct rp_table_private *p = v->table->private;
    const struct rp_slot *previous = rp_previous(p, slot);
    const struct rp_slot *next = rp_next(p, slot);
    uint64_t back = rp_link_previous(slot->links);
    if (previous) {
        HOLDS(rp_link_next(previous->links) == rp_link_previous(slot->links));
        HOLDS(rp_item_depth(slot->item) == depth_after(previous));
    }
    HOLDS(previous || back == 0 || rp_key_at(p, slot) < p->head - p->capacity + back);
    /* Keys rise along a stream, so the next step outlives this one. */
    HOLDS(next || rp_link_next(slot->links) == 0);
    HOLDS(!next || rp_link_previous(next->links) == rp_link_next(slot->links));
    return 0;
}

static int verify_slot(const struct verdict *v) {
    const struct rp_table *table = v->table;
    const struct rp_table_private *p = table->private;
    uint32_t index = (uint32_t)v->number;
    const struct rp_slot *slot = &p->slots[index];
    uint64_t key = rp_key_of(p->keys[index]);
    uint32_t state = rp_state_of(p->keys[index]);
    uint32_t flags = rp_item_flags(slot->item);
    int item = state == RP_SLOT_COMMITTED && rp_is_item(slot->item);
    HOLDS(state <= RP_SLOT_COMMITTED);
    HOLDS(key != 0 || state == RP_SLOT_FREE);
    HOLDS(key == 0
          || (key % p->capacity == index && key < p->head && p->head - key <= p->capacity));
    HOLDS(p->leaves[index] == 0 || item);
    HOLDS(p->leaves[index] <= table->header->maximum);
    if (state != RP_SLOT_COMMITTED) {
        return 0;
    }
    HOLDS(flags <= (RP_STEP_END | RP_STEP_ITEM | RP_STEP_EVICTED));
    HOLDS(flags & RP_STEP_ITEM || !(flags & RP_STEP_EVICTED || slot->item >> 32));
    int status = verify_links(v, slot);
    return status || !(flags & RP_STEP_ITEM) ? status : verify_item(v, slot);
}

static int verify_slots(struct verdict *v) {
    const struct rp_table_private *p = v->table->private;
    uint64_t newest = p->keys[(p->head - 1) % p->capacity];
    uint64_t keys = 0, used = 0;
    v->part = "slot";
    for (v->number = 0; v->number < p->capacity; v->number++) {
        int status = verify_slot(v);
        if (status) {
            return status;
        }
        keys |= p->keys[v->number];
        used += p->keys[v->number] != 0;
    }
    HOLDS(keys == 0 || rp_key_of(newest) == p->head - 1);
    HOLDS(used == rp_used_slots(p)); /* a reset clears these, and no others */
    for (; v->number < rp_tree_leaf_count(p->capacity); v->number++) {
        HOLDS(p->leaves[v->number] == 0);
    }
    return 0;
}

/* ---- windows: links and depths hold together by now ---- */

/* From the first stored row of a stream on: an item is evicted where a row behind it is gone, and
 * only there. A step that is no item has neither. */
static int verify_behind(struct verdict *v, const struct rp_slot *first,
                         const struct rp_slot **last) {
    const struct rp_table_private *p = v->table->private;
    uint32_t rows = 0; /* stored behind this one, in its episode */
    for (const struct rp_slot *slot = first; slot; slot = rp_next(p, slot)) {
        uint32_t flags = rp_item_flags(slot->item);
        rows = rp_item_depth(slot->item) == 0 ? 0 : rows;
        v->number = (uint64_t)(slot - p->slots);
        HOLDS((rows < rp_item_behind(slot->item)) == ((flags & RP_STEP_EVICTED) != 0));
        rows++;
        *last = slot;
    }
    return 0;
}

/* From the newest row back: the rows ahead of an item are stored, and fewer than all where its
 * episode ended. */
static int verify_ahead(struct verdict *v, const struct rp_slot *last) {
    const struct rp_table_private *p = v->table->private;
    uint32_t rows = 0; /* stored ahead of this one, in its episode */
    int ended = 0;
    for (const struct rp_slot *slot = last; slot; slot = rp_previous(p, slot)) {
        uint32_t flags = rp_item_flags(slot->item);
        uint32_t ahead = rp_item_ahead(slot->item);
        rows = flags & RP_STEP_END ? 0 : rows;
        ended |= (flags & RP_STEP_END) != 0;
        v->number = (uint64_t)(slot - p->slots);
        if (flags & RP_STEP_ITEM) {
            HOLDS(ahead <= rows);
            HOLDS(ahead == p->reach_ahead || (ended && ahead == rows));
        }
        rows++;
    }
    return 0;
}

static int verify_windows(struct verdict *v) {
    const struct rp_table_private *p = v->table->private;
    int status = 0;
    for (uint32_t i = 0; i < p->capacity && status == 0; i++) {
        const struct rp_slot *slot = &p->slots[i];
        if (rp_state_of(p->keys[i]) == RP_SLOT_COMMITTED && !rp_previous(p, slot)) {
            status = verify_behind(v, slot, &slot);
            status = status ? status : verify_ahead(v, slot);
        }
    }
    return status;
}

/* ---- writers ---- */

struct held { /* what entries hold of the ring; the sum of keys finds a wrong slot */
    uint64_t slots;
    uint64_t keys;
};

static int verify_entry(const struct verdict *v, uint32_t index, uint64_t sequence,
                        struct held *held) {
    const struct rp_table_private *p = v->table->private;
    const struct rp_entry *entry = rp_entry_at(p, index, sequence);
    uint64_t key = rp_key_of(entry->key);
    uint32_t state = rp_state_of(entry->key);
    HOLDS(state >= RP_ENTRY_EMPTY && state <= RP_ENTRY_LOST);
    HOLDS(key >= p->capacity && key < p->head);
    if (!rp_entry_done(entry) && rp_place_held(p, entry)) {
        HOLDS(p->keys[rp_slot_of(p, key)] == rp_key_word(RP_SLOT_RESERVED, key));
        held->slots++;
        held->keys += key;
    }
    if (rp_entry_known(entry)) {
        uint32_t pieces = rp_entry_piece_count(entry), flags = rp_entry_flags(entry);
        uint32_t bits = 0, bits_beyond = 0;
        for (uint32_t i = 0; i < p->bitmap_words; i++) {
            uint32_t here = pieces > 64 * i ? rp_min(pieces - 64 * i, 64) : 0;
            bits += (uint32_t)__builtin_popcountll(entry->pieces[i]);
            bits_beyond |= here < 64 && entry->pieces[i] >> here != 0;
        }
        HOLDS(rp_entry_stream(entry) < rp_writer_at(p, index)->streams);
        HOLDS(!(flags & ~RP_RUN_FLAGS)); /* and as writer.c takes them: check_shape */
        HOLDS(!(flags & RP_RUN_PRIORITY) || flags & RP_RUN_ITEM);
        HOLDS(!(flags & RP_RUN_ITEM)
              || (!(flags & RP_RUN_END) && p->reach_behind + p->reach_ahead == 0));
        HOLDS(pieces >= 1 && pieces <= v->table->header->facts.pieces_max);
        HOLDS(p->bitmap_words == 0 || bits == rp_entry_received(entry));
        HOLDS(rp_entry_received(entry) <= pieces);
        HOLDS(bits_beyond == 0);
        HOLDS((state == RP_ENTRY_COMPLETE) == (rp_entry_received(entry) == pieces));
        HOLDS(entry->step >= rp_stream_at(p, index, rp_entry_stream(entry))->next_step);
        HOLDS(entry->step <= RP_KEY_MASK);
        double priority;
        memcpy(&priority, &entry->priority, sizeof priority);
        HOLDS(!(flags & RP_RUN_PRIORITY) || rp_power_valid(priority));
    }
    return 0;
}

static int verify_stream(const struct verdict *v, uint32_t index, uint32_t stream) {
    const struct rp_table_private *p = v->table->private;
    const struct rp_stream *state = rp_stream_at(p, index, stream);
    const struct rp_slot *last = state->head ? rp_alive(p, state->head) : 0;
    HOLDS(state->head < p->head && state->head <= RP_KEY_MASK);
    HOLDS((state->head == 0) == (state->next_step == 0));
    HOLDS(state->next_step <= RP_KEY_MASK);
    HOLDS(state->abandoned <= rp_writer_at(p, index)->next_sequence);
    HOLDS(state->depth <= UINT16_MAX);
    /* Its newest step is stored, or its slot was given to a later key. */
    HOLDS(last || state->head == 0 || state->head + p->capacity < p->head);
    if (last) {
        uint64_t slot = (uint64_t)(last - p->slots);
        uint64_t seen = p->seen[slot / 64];
        HOLDS(state->depth == depth_after(last));
        HOLDS(rp_link_next(last->links) == 0);
        HOLDS(!(seen >> slot % 64 & 1)); /* no other stream goes on behind it */
        p->seen[slot / 64] = seen | UINT64_C(1) << slot % 64;
    }
    return 0;
}

static int verify_writer(struct verdict *v, struct held *held) {
    const struct rp_table_private *p = v->table->private;
    uint32_t index = (uint32_t)v->number;
    const struct rp_writer *writer = rp_writer_at(p, index);
    uint64_t next = writer->next_sequence;
    HOLDS(writer->streams >= 1 && writer->streams <= p->streams_max);
    for (uint32_t stream = 0; stream < writer->streams; stream++) {
        int status = verify_stream(v, index, stream);
        if (status) {
            return status;
        }
    }
    for (uint32_t stream = (uint32_t)writer->streams; stream < p->streams_max; stream++) {
        const struct rp_stream *none = rp_stream_at(p, index, stream);
        HOLDS(!(none->next_step | none->head | none->abandoned | none->depth));
    }
    uint64_t last = 0; /* sequences are reserved in order, so their keys rise */
    for (uint64_t s = next > p->window ? next - p->window : 0; s < next; s++) {
        uint64_t key = rp_key_of(rp_entry_at(p, index, s)->key);
        HOLDS(key > last);
        last = key;
        int status = verify_entry(v, index, s, held);
        if (status) {
            return status;
        }
    }
    return 0;
}

static int verify_writers(struct verdict *v) {
    const struct rp_table_private *p = v->table->private;
    struct held reserved = {0};
    struct held held = {0};
    v->part = "writer";
    memset(p->seen, 0, ((size_t)p->capacity + 63) / 64 * sizeof *p->seen);
    for (v->number = 0; v->number < p->writers_max; v->number++) {
        int open = rp_writer_at(p, (uint32_t)v->number)->session != 0;
        int status = open ? verify_writer(v, &held) : 0;
        if (status) {
            return status;
        }
    }
    for (uint32_t i = 0; i < p->capacity; i++) {
        if (rp_state_of(p->keys[i]) == RP_SLOT_RESERVED) {
            reserved.slots++;
            reserved.keys += rp_key_of(p->keys[i]);
        }
    }
    HOLDS(reserved.slots == held.slots && reserved.keys == held.keys);
    return 0;
}

int rp_table_verify(const struct rp_table *table, char error[256]) {
    const struct rp_table_header *header = table->header;
    struct verdict verdict = {
        .table = table, .name = header->facts.name, .part = "header", .error = error};
    struct verdict *v = &verdict;
    const struct rp_table_private *p = table->private;
    HOLDS(header->epoch != 0 && header->head >= p->capacity && header->head <= RP_KEY_MASK);
    HOLDS(header->resetting == 0 && header->resetting_not == 0);
    HOLDS(header->maximum >= RP_POWER_ONE && header->maximum <= p->mass_max);
    HOLDS((header->random.s[0] | header->random.s[1] | header->random.s[2] | header->random.s[3])
          != 0);
    int status = verify_slots(v);
    if (status == 0 && p->reach_behind + p->reach_ahead > 0) {
        status = verify_windows(v);
    }
    return status ? status : verify_writers(v);
}

/* The steps that wait, by the index made of them: each is in one entry. */
int rp_table_verify_known(const struct rp_table *table, char error[256]) {
    struct rp_table_private *p = table->private;
    struct verdict verdict = {
        .table = table, .name = table->header->facts.name, .part = "writer", .error = error};
    const struct verdict *v = &verdict;
    for (verdict.number = 0; verdict.number < p->writers_max; verdict.number++) {
        uint32_t index = (uint32_t)verdict.number;
        const struct rp_writer *writer = rp_writer_at(p, index);
        uint64_t end = writer->session != 0 ? writer->next_sequence : 0;
        for (uint64_t s = p->done_through[index]; s < end; s++) {
            const struct rp_entry *entry = rp_entry_at(p, index, s);
            uint64_t found = s;
            if (rp_entry_known(entry)) {
                rp_work_begin(p);
                rp_known_find(p, index, rp_entry_stream(entry), entry->step, &found);
            }
            HOLDS(found == s);
        }
    }
    return 0;
}

/* ---- steps ---- */

uint32_t rp_table_verify_steps(const struct rp_table *table, uint32_t first, uint32_t count,
                               struct rp_damage *damage) {
    const struct rp_table_private *p = table->private;
    assert(first <= p->capacity);
    uint32_t end = count < p->capacity - first ? first + count : p->capacity;
    for (uint32_t slot = first; slot < end; slot++) {
        uint64_t key = rp_key_of(p->keys[slot]);
        uint32_t sum;
        if (rp_state_of(p->keys[slot]) != RP_SLOT_COMMITTED) {
            continue;
        }
        rp_crc32c_rows(&sum, p->steps + (size_t)slot * p->step_bytes, p->step_bytes, 1);
        damage->steps++;
        if (sum != p->sums[slot]) {
            damage->damaged++;
            damage->key = damage->key == 0 || key < damage->key ? key : damage->key;
        }
    }
    return end;
}
