/* How many items a PUSH would make, counted run by run before anything of it is stored: the limiter
 * is asked for all of them at once. This is done only for a table that takes steps in order
 * (rp_table_ordered): there a step is an item as soon as it is stored, so a whole step may not wait
 * here for an earlier one. The count is never too low. A PUSH that contradicts itself could store
 * more: the steps beyond the count lose their place (writer.c).
 *
 * Cost: a few loads for each step of the runs.
 */
#include "table/store.h"

int rp_table_ordered(const struct rp_table *table) {
    const struct rp_table_private *p = table->private;
    return p->reach_behind + p->reach_ahead == 0 && table->header->facts.samples_per_insert > 0;
}

void rp_writer_ask(struct rp_table *table) {
    table->private->asked++;
    table->private->admitted = 0;
}

static struct rp_hint *asked_of(const struct rp_table_private *p, uint32_t index,
                                uint32_t stream) {
    struct rp_hint *hint = rp_hint_at(p, index, stream);
    if (hint->asked != p->asked) {
        hint->asked = p->asked;
        hint->next = rp_stream_at(p, index, stream)->next_step;
        hint->pieces = hint->mixed = 0;
    }
    return hint;
}

/* The entry that an arrival for this sequence finds, or null where it is not reserved yet. */
static const struct rp_entry *reserved_entry(const struct rp_table_private *p, uint32_t index,
                                             uint64_t sequence) {
    return sequence < rp_writer_at(p, index)->next_sequence ? rp_entry_at(p, index, sequence) : 0;
}

/* It is here already, or will lose its place when it is stored. */
static int brings_nothing(const struct rp_table_private *p, uint32_t index,
                          const struct rp_run *run, uint64_t sequence) {
    const struct rp_stream *stream = rp_stream_at(p, index, run->stream);
    const struct rp_entry *entry = reserved_entry(p, index, sequence);
    return entry
           && (rp_forgotten(p, rp_writer_at(p, index), sequence)
               || rp_piece_repeated(entry, run) || sequence < stream->abandoned
               || rp_key_of(entry->key) < stream->head
               || !rp_place_held(p, entry));
}

/* May this piece be the last one that its step lacks? Exact, but where a PUSH has pieces of several
 * steps of a stream in turn, which no client of ours makes: there each may be. */
static int completes(const struct rp_table_private *p, uint32_t index, const struct rp_run *run,
                     struct rp_hint *hint) {
    const struct rp_entry *entry = reserved_entry(p, index, run->sequence);
    uint32_t here = entry && rp_state_of(entry->key) == RP_ENTRY_PARTIAL
                        ? rp_entry_received(entry) : 0;
    if (hint->pieces > 0 && hint->pieces_of != run->sequence) {
        hint->mixed = 1;
    }
    hint->pieces_of = run->sequence;
    hint->pieces++;
    if (here + hint->pieces < run->piece_count && !hint->mixed) {
        return 0;
    }
    hint->pieces = 0;
    return 1;
}

/* May what this run waits for still come before it? Not where all sequences before its own are
 * done: then it loses its place, and the answer says so. */
static int may_come(const struct rp_table_private *p, uint32_t index, const struct rp_run *run,
                    const struct rp_hint *hint) {
    return p->done_through[index] < run->sequence && !hint->mixed;
}

uint64_t rp_writer_asked(const struct rp_table *table) {
    return table->private->admitted;
}

int rp_writer_ask_run(struct rp_table *table, int writer, const struct rp_run *run) {
    struct rp_table_private *p = table->private;
    uint32_t index = (uint32_t)writer;
    struct rp_hint *hint = asked_of(p, index, run->stream);
    for (uint32_t i = 0; i < run->count; i++) {
        uint64_t step = run->step + i;
        int pieces = run->piece_count > 1;
        if (brings_nothing(p, index, run, run->sequence + i)
            || (pieces && !completes(p, index, run, hint))
            || (step < hint->next && !(pieces && hint->mixed))) {
            continue;
        }
        if (step > hint->next && i == 0 && may_come(p, index, run, hint)) {
            return 0;
        }
        p->admitted += (run->flags & RP_RUN_ITEM) != 0;
        hint->next = step + 1;
    }
    return 1;
}
