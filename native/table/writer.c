/* Writers: places, windows of sequences, and what becomes of the steps that arrive. See store.h
 * for the words.
 *
 * Order of a step: reserved (in sequence order, everything below its run too) -> its bytes
 * copied into the slot that nothing reads yet, their checksum beside them -> committed, in order
 * along its stream. The common case, a run of whole steps that continues its stream, is one
 * reservation, one copy and one commit.
 *
 * Everything else goes step by step. A step that cannot be committed yet waits: its entry is
 * partial or complete, and known.c finds it again. At most one entry holds a step of a stream: a
 * step sent again under a newer sequence makes the older one lost.
 *     a new arrival is lost  if its sequence was abandoned, its step is stored already, its slot
 *                            lies before the stream's newest step, a newer sequence brought the
 *                            same step, or the index has no room for it
 *     its slot is gone       it is lost, and what was reserved so far for its stream is abandoned
 *     it never can follow    it is lost when its turn comes to be committed and its slot lies
 *                            before the stream's newest step; or when all sequences before it
 *                            are done and it is not the stream's next step
 * A lost entry frees its slot at once, so reserved slots and entries under way stay one to one.
 */
#include <assert.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/minmax.h"
#include "table/store.h"

static inline struct rp_writer *writer_of(const struct rp_table *table, int writer) {
    assert(writer >= 0 && (uint32_t)writer < table->private->writers_max);
    assert(rp_writer_at(table->private, (uint32_t)writer)->session != 0);
    return rp_writer_at(table->private, (uint32_t)writer);
}

/* ---- places ---- */

int rp_writer_find(const struct rp_table *table, uint64_t session) {
    const struct rp_table_private *p = table->private;
    for (uint32_t i = 0; i < p->writers_max; i++) {
        if (p->owners[i] == session && session != 0) {
            return (int)i;
        }
    }
    return -RP_NOT_A_WRITER;
}

uint8_t *rp_writer_held(const struct rp_table *table, int writer) {
    assert(writer >= 0 && (uint32_t)writer < table->private->writers_max);
    return table->private->held + (size_t)writer * RP_HELD_BYTES;
}

/* The next sequence is cleared last: until then it says how much is not clear yet. */
void rp_writer_clear(struct rp_table *table, uint32_t index) {
    struct rp_table_private *p = table->private;
    struct rp_writer *writer = rp_writer_at(p, index);
    uint64_t next = writer->next_sequence;
    uint64_t used = rp_min(next, p->window);
    for (uint64_t sequence = next - used; sequence < next; sequence++) {
        rp_known_forget(p, index, sequence);
    }
    rp_region_clear(rp_entry_at(p, index, 0), used * p->entry_words * sizeof(uint64_t));
    rp_region_clear(rp_stream_at(p, index, 0), writer->streams * sizeof(struct rp_stream));
    memset(rp_hint_at(p, index, 0), 0, writer->streams * sizeof(struct rp_hint));
    p->done_through[index] = 0;
    p->holes[index] = 0;
    p->create_from[index] = 0;
    rp_region_clear(&writer->next_sequence,
                    sizeof writer->next_sequence + sizeof writer->lost_total);
}

int rp_writer_open(struct rp_table *table, uint64_t session, uint16_t streams) {
    struct rp_table_private *p = table->private;
    int found = rp_writer_find(table, session);
    assert(session != 0 && table->intent->count == 0);
    for (uint32_t i = 0; i < p->writers_max && found < 0; i++) {
        if (p->owners[i] == 0) {
            struct rp_writer *writer = rp_writer_at(p, i);
            uint32_t granted = rp_min(streams, p->streams_max);
            rp_writer_clear(table, i);
            rp_intent_set(table->intent, &writer->streams, granted > 0 ? granted : 1);
            rp_intent_set(table->intent, &writer->session, session);
            rp_intent_commit(table->intent);
            p->owners[i] = session;
            found = (int)i;
        }
    }
    return found < 0 ? -RP_NO_WRITER_FREE : found;
}

void rp_writer_granted(const struct rp_table *table, int index, struct rp_writer_granted *granted) {
    const struct rp_writer *writer = writer_of(table, index);
    *granted = (struct rp_writer_granted){.epoch = table->header->epoch,
                                          .next_sequence = writer->next_sequence,
                                          .window = table->private->window,
                                          .streams = (uint16_t)writer->streams,
                                          .pieces_max = (uint16_t)table->header->facts.pieces_max};
}

void rp_writer_progress(const struct rp_table *table, int index, struct rp_pushed *answer) {
    answer->done_through = table->private->done_through[index];
    answer->lost_total = writer_of(table, index)->lost_total;
}

/* ---- losing ---- */

/* Marks a sequence that is not in the index as done, though it was not stored: one transaction,
 * with what the intent holds. */
static void lose_entry(struct rp_table *table, uint32_t index, uint64_t sequence) {
    struct rp_table_private *p = table->private;
    struct rp_writer *writer = rp_writer_at(p, index);
    struct rp_entry *entry = rp_entry_at(p, index, sequence);
    uint64_t key = rp_key_of(entry->key);
    assert(!rp_entry_done(entry));
    p->holes[index] -= rp_state_of(entry->key) == RP_ENTRY_EMPTY;
    if (rp_place_held(p, entry)) {
        rp_intent_set(table->intent, &p->keys[rp_slot_of(p, key)], rp_key_word(RP_SLOT_FREE, key));
    }
    rp_intent_set(table->intent, &entry->key, rp_key_word(RP_ENTRY_LOST, key));
    rp_intent_set(table->intent, &writer->lost_total, writer->lost_total + 1);
    rp_store_commit(table);
    rp_work_add(p, RP_WORK_COMMIT);
    table->counters[RP_COUNT_steps_lost_place]++;
}

static void lose(struct rp_table *table, uint32_t index, uint64_t sequence) {
    if (rp_entry_known(rp_entry_at(table->private, index, sequence))) {
        rp_known_remove(table->private, index, sequence);
    }
    lose_entry(table, index, sequence);
}

/* The slot of a step is gone: with it, what was reserved so far brings its stream nothing new. */
static void lose_place(struct rp_table *table, uint32_t index, uint64_t sequence,
                       uint32_t stream) {
    struct rp_table_private *p = table->private;
    if (rp_entry_known(rp_entry_at(p, index, sequence))) {
        rp_known_remove(p, index, sequence);
    }
    rp_intent_set(table->intent, &rp_stream_at(p, index, stream)->abandoned,
                  rp_writer_at(p, index)->next_sequence);
    lose_entry(table, index, sequence);
}

/* Nothing can make this entry a step of its stream any more: all sequences before it are done. */
static int hopeless(const struct rp_table_private *p, uint32_t index,
                    const struct rp_entry *entry) {
    return !rp_place_held(p, entry)
           || (rp_entry_known(entry)
               && entry->step != rp_stream_at(p, index, rp_entry_stream(entry))->next_step);
}

/* Moves done_through on to the first entry that is not done; 0 = there is none. */
static const struct rp_entry *pass_done(struct rp_table_private *p, uint32_t index) {
    uint64_t next = rp_writer_at(p, index)->next_sequence;
    while (p->done_through[index] < next) {
        const struct rp_entry *entry = rp_entry_at(p, index, p->done_through[index]);
        if (!rp_entry_done(entry)) {
            return entry;
        }
        p->done_through[index]++;
    }
    return 0;
}

/* The same, over entries that cannot become steps any more. */
static void advance(struct rp_table *table, uint32_t index) {
    struct rp_table_private *p = table->private;
    const struct rp_entry *entry;
    while ((entry = pass_done(p, index)) && hopeless(p, index, entry) && rp_work_left(p)) {
        lose(table, index, p->done_through[index]);
    }
}

/* ---- checking ---- */

static int refuse(const struct rp_table *table, int counter, int status) {
    table->counters[counter]++;
    return -status;
}

static uint32_t priority_bytes(const struct rp_run *run) {
    return run->flags & RP_RUN_PRIORITY ? 8u * run->count : 0;
}

/* Bytes [first, first + size) of the step that the run's piece covers. */
static uint32_t piece_range(const struct rp_table_private *p, const struct rp_run *run,
                            uint32_t *first) {
    uint32_t bytes = rp_piece_bytes(p->step_bytes, run->piece_count);
    *first = bytes * run->piece;
    return rp_min(p->step_bytes - *first, bytes);
}

static int check_shape(const struct rp_table *table, const struct rp_run *run) {
    const struct rp_table_private *p = table->private;
    uint16_t item_end = RP_RUN_ITEM | RP_RUN_END;
    if (run->count == 0 || run->flags & ~RP_RUN_FLAGS || run->reserved != 0
        || (run->flags & RP_RUN_PRIORITY && !(run->flags & RP_RUN_ITEM))
        || (run->flags & item_end) == item_end
        || (run->flags & RP_RUN_ITEM && p->reach_behind + p->reach_ahead > 0)) {
        return refuse(table, RP_COUNT_refused_argument, RP_BAD_ARGUMENT);
    }
    if (run->piece_count == 0 || run->piece >= run->piece_count
        || run->piece_count > table->header->facts.pieces_max
        || (run->piece_count > 1 && run->count != 1)) {
        return refuse(table, RP_COUNT_refused_piece, RP_BAD_PIECE);
    }
    uint32_t each = rp_piece_bytes(p->step_bytes, run->piece_count);
    if ((uint64_t)each * (run->piece_count - 1u) >= p->step_bytes) {
        return refuse(table, RP_COUNT_refused_piece, RP_BAD_PIECE);
    }
    uint32_t first;
    uint64_t bytes = run->piece_count > 1 ? piece_range(p, run, &first)
                                          : (uint64_t)run->count * p->step_bytes;
    if (run->size != priority_bytes(run) + bytes) {
        return refuse(table, RP_COUNT_refused_piece, RP_BAD_PIECE);
    }
    return 0;
}

static int check_numbers(const struct rp_table *table, uint32_t index, const struct rp_run *run) {
    const struct rp_table_private *p = table->private;
    const struct rp_writer *writer = rp_writer_at(p, index);
    uint64_t limit = p->done_through[index] + p->window;
    if (run->stream >= writer->streams) {
        return refuse(table, RP_COUNT_refused_stream, RP_BAD_STREAM);
    }
    if (run->sequence > limit || run->count > limit - run->sequence) {
        return refuse(table, RP_COUNT_refused_sequence, RP_BAD_SEQUENCE);
    }
    uint64_t next = rp_stream_at(p, index, run->stream)->next_step;
    uint64_t known = writer->next_sequence > run->sequence ? writer->next_sequence - run->sequence
                                                           : 0;
    uint64_t fresh = run->step + known; /* the first step that would be new */
    if (run->step > RP_KEY_MASK || run->count - 1u > RP_KEY_MASK - run->step
        || (known < run->count
            && (fresh < next || fresh - next >= RP_STEPS_AHEAD * (uint64_t)p->window))) {
        return refuse(table, RP_COUNT_refused_step, RP_BAD_STEP);
    }
    if (known > 0 && !rp_forgotten(p, writer, run->sequence)
        && !rp_piece_agrees(rp_entry_at(p, index, run->sequence), run)) {
        return refuse(table, RP_COUNT_refused_piece, RP_BAD_PIECE);
    }
    return 0;
}

int rp_writer_check(const struct rp_table *table, int index, const struct rp_run *run,
                    const uint8_t *bytes) {
    writer_of(table, index);
    rp_work_begin(table->private);
    int status = check_shape(table, run);
    status = status < 0 ? status : check_numbers(table, (uint32_t)index, run);
    if (status < 0 || !(run->flags & RP_RUN_PRIORITY)) {
        return status;
    }
    const double *priorities = (const double *)(const void *)bytes;
    for (uint32_t i = 0; i < run->count; i++) {
        if (!rp_power_valid(priorities[i])) {
            return refuse(table, RP_COUNT_refused_priority, RP_BAD_PRIORITY);
        }
    }
    return 0;
}

uint64_t rp_writer_next(const struct rp_table *table, int writer) {
    return writer_of(table, writer)->next_sequence;
}

int rp_writer_far(const struct rp_table *table, int index, uint64_t gaps) {
    const struct rp_table_private *p = table->private;
    uint64_t holes = p->holes[index];
    uint64_t arrived = writer_of(table, index)->next_sequence - holes;
    holes += gaps;
    return holes > arrived + p->window / RP_HOLES_SHARE + 4
           || holes * (p->reach_behind + 1) > RP_WORK_MAX
           || p->bare + gaps > p->capacity / RP_BARE_SHARE;
}

/* ---- storing ---- */

/* Were so many steps with these flags admitted as items, where items are counted? */
static int is_admitted(const struct rp_table *table, uint32_t flags, uint32_t count) {
    return !rp_table_ordered(table) || !(flags & RP_RUN_ITEM) || table->private->admitted >= count;
}

/* A run of whole steps that continues its stream, nothing of it here yet and nothing under way. */
static int in_order(const struct rp_table *table, uint32_t index, const struct rp_run *run) {
    const struct rp_table_private *p = table->private;
    const struct rp_stream *stream = rp_stream_at(p, index, run->stream);
    if (run->piece_count > 1 || run->step != stream->next_step || run->sequence < stream->abandoned
        || !is_admitted(table, run->flags, run->count)
        || rp_hint_at(p, index, run->stream)->known > 0
        || rp_forgotten(p, rp_writer_at(p, index), run->sequence)) {
        return 0;
    }
    const struct rp_entry *entry = rp_entry_at(p, index, run->sequence);
    for (uint32_t i = 0; i < run->count; i++) {
        uint64_t key = rp_key_of(entry->key);
        if (rp_state_of(entry->key) != RP_ENTRY_EMPTY || key < stream->head
            || !rp_place_held(p, entry)) {
            return 0;
        }
        entry = rp_entry_after(p, index, entry);
    }
    return 1;
}

/* The step that is committed next has these bytes. */
static void sum_steps(struct rp_table_private *p, uint32_t slot, const uint8_t *bytes,
                      uint32_t count) {
    RP_SITE();
    rp_crc32c_rows(&p->sums[slot], bytes, p->step_bytes, count);
}

static void store_in_order(struct rp_table *table, uint32_t index, const struct rp_run *run,
                           const uint8_t *bytes) {
    struct rp_table_private *p = table->private;
    const uint8_t *source = bytes + priority_bytes(run);
    const struct rp_entry *entry = rp_entry_at(p, index, run->sequence);
    for (uint32_t i = 0; i < run->count;) {
        uint64_t key = rp_key_of(entry->key);
        uint32_t slot = rp_slot_of(p, key);
        uint32_t count = 0; /* steps that lie side by side */
        do {
            count++;
            entry = rp_entry_after(p, index, entry);
        } while (i + count < run->count && slot + count < p->capacity
                 && rp_key_of(entry->key) == key + count);
        size_t size = (size_t)count * p->step_bytes;
        rp_region_copy(p->steps + (size_t)slot * p->step_bytes, source, size);
        sum_steps(p, slot, source, count);
        source += size;
        i += count;
    }
    struct rp_commit commit = {index,      run->stream, run->sequence,
                               run->count, run->flags,  (const double *)(const void *)bytes};
    rp_store_steps(table, &commit);
    p->holes[index] -= run->count;
}

/* Commits the complete steps that follow the stream's newest one, as far as they are here. */
static void commit_chain(struct rp_table *table, uint32_t index, uint32_t stream) {
    struct rp_table_private *p = table->private;
    const struct rp_stream *state = rp_stream_at(p, index, stream);
    uint64_t sequence;
    while (rp_work_left(p) && rp_known_find(p, index, stream, state->next_step, &sequence) == 1) {
        struct rp_entry *entry = rp_entry_at(p, index, sequence);
        if (rp_state_of(entry->key) != RP_ENTRY_COMPLETE || !rp_place_held(p, entry)) {
            return;
        }
        if (rp_key_of(entry->key) < state->head) {
            lose(table, index, sequence);
            return;
        }
        double priority;
        memcpy(&priority, &entry->priority, sizeof priority);
        struct rp_commit commit = {index, stream, sequence, 1, rp_entry_flags(entry), &priority};
        rp_known_remove(p, index, sequence);
        rp_store_steps(table, &commit);
        rp_work_add(p, RP_WORK_COMMIT);
    }
}

/* Whether an arrival for an empty entry comes too late; makes the older one lost that it replaces.
 */
static int superseded(struct rp_table *table, uint32_t index, uint32_t stream, uint64_t sequence,
                      uint64_t step) {
    struct rp_table_private *p = table->private;
    const struct rp_stream *state = rp_stream_at(p, index, stream);
    uint64_t key = rp_key_of(rp_entry_at(p, index, sequence)->key);
    uint64_t other;
    if (sequence < state->abandoned || step < state->next_step || key < state->head) {
        return 1;
    }
    int found = rp_known_find(p, index, stream, step, &other);
    if (found == 1 && other < sequence) {
        lose(table, index, other);
        return 0;
    }
    return found != 0;
}

/* One step, or one piece of one, whose entry is empty or partial and whose slot is there. */
static void store_piece(struct rp_table *table, uint32_t index, const struct rp_run *run,
                        uint32_t i, const uint8_t *bytes) {
    struct rp_table_private *p = table->private;
    struct rp_intent *intent = table->intent;
    uint64_t sequence = run->sequence + i;
    struct rp_entry *entry = rp_entry_at(p, index, sequence);
    uint64_t key = rp_key_of(entry->key);
    uint32_t slot = rp_slot_of(p, key);
    uint8_t *step = p->steps + (size_t)slot * p->step_bytes;
    int fresh = rp_state_of(entry->key) == RP_ENTRY_EMPTY;
    uint32_t received = fresh ? 1 : rp_entry_received(entry) + 1u;
    uint32_t first = 0;
    uint32_t size = run->piece_count > 1 ? piece_range(p, run, &first) : p->step_bytes;
    uint16_t flags = run->flags & (i + 1 < run->count ? RP_RUN_FLAGS & ~RP_RUN_END : RP_RUN_FLAGS);
    uint64_t state = received == run->piece_count ? RP_ENTRY_COMPLETE : RP_ENTRY_PARTIAL;
    rp_region_copy(step + first, bytes + priority_bytes(run) + (size_t)i * p->step_bytes, size);
    if (state == RP_ENTRY_COMPLETE) {
        sum_steps(p, slot, step, 1);
    }
    if (fresh) {
        rp_intent_set(intent, &entry->step, run->step + i);
        if (run->flags & RP_RUN_PRIORITY) { /* else an older one stays: it is not read */
            uint64_t priority;
            memcpy(&priority, bytes + 8 * i, sizeof priority);
            rp_intent_set(intent, &entry->priority, priority);
        }
        for (uint32_t word = 0; word < p->bitmap_words; word++) {
            rp_intent_set(intent, &entry->pieces[word], 0);
        }
    }
    if (p->bitmap_words > 0) {
        uint64_t *word = &entry->pieces[run->piece / 64];
        rp_intent_set(intent, word, (fresh ? 0 : *word) | (uint64_t)1 << run->piece % 64);
    }
    rp_intent_set(intent, &entry->facts,
                  rp_entry_facts(run->stream, flags, run->piece_count, received));
    rp_intent_set(intent, &entry->key, rp_key_word(state, key));
    if (!fresh) {
        rp_known_remove(p, index, sequence);
    }
    p->holes[index] -= (uint64_t)fresh;
    rp_store_commit(table);
    rp_known_add(p, index, sequence);
}

/* It would be whole and wait, where none may (rp_table_ordered), or be an item not admitted. */
static int is_unwanted(const struct rp_table *table, uint32_t index, const struct rp_entry *entry,
                       const struct rp_run *run, uint64_t step) {
    uint32_t here = rp_state_of(entry->key) == RP_ENTRY_PARTIAL ? rp_entry_received(entry) : 0;
    return rp_table_ordered(table) && here + 1 == run->piece_count
           && (step != rp_stream_at(table->private, index, run->stream)->next_step
               || !is_admitted(table, run->flags, 1));
}

/* One step of a run that is not in order, whatever state its sequence is in. */
static void store_step(struct rp_table *table, uint32_t index, const struct rp_run *run, uint32_t i,
                       const uint8_t *bytes) {
    struct rp_table_private *p = table->private;
    uint64_t sequence = run->sequence + i;
    struct rp_entry *entry = rp_entry_at(p, index, sequence);
    if (rp_forgotten(p, rp_writer_at(p, index), sequence) || rp_entry_done(entry)) {
        table->counters[RP_COUNT_pushes_repeated]++;
    } else if (!rp_place_held(p, entry)) {
        lose_place(table, index, sequence,
                   rp_entry_known(entry) ? rp_entry_stream(entry) : run->stream);
    } else if (rp_piece_repeated(entry, run)) {
        table->counters[RP_COUNT_pushes_repeated]++;
    } else if (rp_state_of(entry->key) == RP_ENTRY_EMPTY
               && superseded(table, index, run->stream, sequence, run->step + i)) {
        lose(table, index, sequence);
    } else if (is_unwanted(table, index, entry, run, run->step + i)) {
        lose(table, index, sequence);
    } else {
        store_piece(table, index, run, i, bytes);
        commit_chain(table, index, run->stream);
    }
}

/* What has become of the run's sequences: its first steps stored, its last ones lost. The answer
 * has the first step's key only where the keys of all its steps are at hand and follow one another.
 * They do not follow where another writer's step came between two reservations: a client that
 * counted on from the first key would then name steps that are not its own. */
static void answer_run(const struct rp_table_private *p, uint32_t index, const struct rp_run *run,
                       struct rp_run_done *done) {
    const struct rp_writer *writer = rp_writer_at(p, index);
    uint64_t end = run->sequence + run->count;
    uint64_t sequence = run->sequence;
    const struct rp_entry *entry = rp_entry_at(p, index, sequence);
    uint64_t first = entry->key; /* state and key in one word */
    int consecutive = !rp_forgotten(p, writer, sequence);
    memset(done, 0, sizeof *done);
    for (uint64_t key = first; sequence < end; sequence++, key++) {
        uint64_t word = entry->key;
        if (rp_state_of(word) != RP_ENTRY_COMMITTED && !rp_forgotten(p, writer, sequence)) {
            break;
        }
        consecutive &= word == key;
        entry = rp_entry_after(p, index, entry);
    }
    done->committed = (uint16_t)(sequence - run->sequence);
    for (uint64_t open = sequence; open < end; open++) {
        uint64_t key = rp_key_of(first) + (open - run->sequence);
        consecutive &= rp_key_of(rp_entry_at(p, index, open)->key) == key;
    }
    done->key = consecutive ? rp_key_of(first) : 0;
    for (; end > sequence; end--) {
        if (rp_state_of(rp_entry_at(p, index, end - 1)->key) != RP_ENTRY_LOST) {
            break;
        }
        done->lost++;
    }
}

void rp_writer_resume(struct rp_table *table, uint32_t index) {
    struct rp_table_private *p = table->private;
    for (uint32_t stream = 0; stream < rp_writer_at(p, index)->streams; stream++) {
        rp_work_begin(p);
        commit_chain(table, index, stream);
    }
    pass_done(p, index);
}

void rp_writer_run(struct rp_table *table, int writer, const struct rp_run *run,
                   const uint8_t *bytes, struct rp_run_done *done) {
    struct rp_table_private *p = table->private;
    uint32_t index = (uint32_t)writer;
    uint64_t end = run->sequence + run->count;
    assert(table->intent->count == 0);
    if (rp_writer_at(p, index)->next_sequence < end) {
        rp_store_reserve(table, index, end);
    }
    if (in_order(table, index, run)) {
        store_in_order(table, index, run, bytes);
    } else {
        for (uint32_t i = 0; i < run->count; i++) {
            store_step(table, index, run, i, bytes);
        }
        commit_chain(table, index, run->stream); /* what an earlier datagram had to leave */
    }
    advance(table, index);
    answer_run(p, index, run, done);
}
