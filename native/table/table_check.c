/* Every invariant of a table, asserted by walking all of it: tests call this after each step,
 * servers never do. The words that survive a process are verified as at attach (table_verify.c);
 * this file checks what is derived from them, and the order of a stream's waiting steps.
 *
 * Cost: every slot and window entry a fixed number of times.
 */
#include <assert.h>
#include <stdio.h>

#include "table/store.h"

/* Known entries of a stream: each step once, none that is committed, and the index finds it. */
static void check_stream(struct rp_table_private *p, uint32_t writer, uint32_t stream) {
    const struct rp_stream *state = rp_stream_at(p, writer, stream);
    uint64_t known = 0;
    uint64_t found;
    const struct rp_slot *last = state->head ? rp_alive(p, state->head) : 0;
    for (uint64_t s = p->done_through[writer]; s < rp_writer_at(p, writer)->next_sequence; s++) {
        const struct rp_entry *entry = rp_entry_at(p, writer, s);
        if (rp_entry_known(entry) && rp_entry_stream(entry) == stream) {
            assert(entry->step >= state->next_step);
            assert(rp_known_find(p, writer, stream, entry->step, &found) == 1 && found == s);
            known++;
        }
    }
    assert(known == rp_hint_at(p, writer, stream)->known);
    if (last) {
        uint32_t depth = rp_item_depth(last->item);
        assert(state->depth
               == (rp_item_flags(last->item) & RP_STEP_END ? 0
                   : depth < UINT16_MAX                    ? depth + 1
                                                           : depth));
        assert(rp_link_next(last->links) == 0);
    }
}

/* Returns how many slots the writer's entries hold reserved. */
static uint64_t check_writer(struct rp_table_private *p, uint32_t index) {
    const struct rp_writer *writer = rp_writer_at(p, index);
    uint64_t next = writer->next_sequence;
    uint64_t reserved = 0;
    uint64_t holes = 0;
    assert(p->done_through[index] <= next && next <= p->done_through[index] + p->window);
    assert(writer->streams >= 1 && writer->streams <= p->streams_max);
    for (uint64_t s = next > p->window ? next - p->window : 0; s < next; s++) {
        const struct rp_entry *entry = rp_entry_at(p, index, s);
        uint64_t key = rp_key_of(entry->key);
        uint32_t state = rp_state_of(entry->key);
        assert(state >= RP_ENTRY_EMPTY && state <= RP_ENTRY_LOST && key >= p->capacity
               && key < p->head);
        assert(s >= p->done_through[index] || rp_entry_done(entry));
        assert(s != p->done_through[index] || !rp_entry_done(entry));
        if (!rp_entry_done(entry) && rp_place_held(p, entry)) {
            assert(p->keys[rp_slot_of(p, key)] == rp_key_word(RP_SLOT_RESERVED, key));
            reserved++;
        }
        holes += state == RP_ENTRY_EMPTY;
    }
    assert(holes == p->holes[index]);
    assert(p->owners[index] == writer->session);
    for (uint32_t stream = 0; stream < writer->streams; stream++) {
        check_stream(p, index, stream);
    }
    return reserved;
}

static void check_bare(const struct rp_table_private *p) {
    uint64_t bare = 0;
    for (uint32_t slot = 0; slot < p->capacity; slot++) {
        bare += p->keys[slot] != 0 && rp_state_of(p->keys[slot]) != RP_SLOT_COMMITTED;
    }
    assert(bare == p->bare);
}

void rp_table_check(const struct rp_table *table) {
    struct rp_table_private *p = table->private;
    uint64_t held = 0;
    assert(p->head == table->header->head && p->head_slot == p->head % p->capacity
           && p->dirty_count == 0);
    char error[256] = "";
    if (rp_table_verify(table, error) < 0) {
        fprintf(stderr, "%s\n", error);
        assert(!"the table's words hold together");
    }
    struct rp_damage damage = {0};
    rp_table_verify_steps(table, 0, p->capacity, &damage);
    assert(damage.damaged == 0);
    rp_tree_check(&table->tree);
    for (uint32_t i = 0; i < p->writers_max; i++) {
        if (rp_writer_at(p, i)->session != 0) {
            held += check_writer(p, i);
        }
    }
    assert(held <= (uint64_t)p->window * p->writers_max);
    assert((uint64_t)p->window * p->writers_max <= p->capacity / 16);
    check_bare(p);
}
