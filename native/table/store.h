/* The store: how a table lies in memory, and the small words everything else reads and writes.
 *
 *     state  header | columns | picks | spec | slots | leaves | writers
 *     keys   keys | sums
 *     steps  steps
 *     local  private, hints, skips, known, nodes ...: of this process, rebuilt at attach
 *
 * A slot has three words. Its key lies in keys[], beside nothing else: keys and steps are the
 * ring. Its item and links lie in slots[]: they are what is drawn from the ring.
 *     key    state in the top 12 bits, key in the other 52
 *     item   rows since the episode's start (16, saturating) | flags (16) | behind (16) |
 *            ahead (16)
 *     links  keys back to the stream's previous step (32) | on to its next (32); 0 = none
 *
 * sums[] has the CRC-32C of each step's bytes, written like them while the slot is reserved. No
 * read compares it: rp_table_verify_steps does, when asked.
 *
 * Distances are exact: the neighbour is alive if and only if the slot of key - distance still
 * holds that key. Links run over episodes; windows stop at depth 0 behind and at the end flag
 * ahead.
 *
 * A window entry of a writer holds one sequence: state and key like a slot, then what arrived of
 * its step. A state moves empty -> partial -> complete -> committed, or to lost from any of the
 * first three. Entries of the last `window` sequences are kept, so that a repeat is answered
 * from them.
 *
 *     a slot is reserved  <=>  one entry of one writer, empty, partial or complete, holds its key
 *
 * Volatile, rebuilt at attach: done_through, owners (whose each writer's place is), hints (where a
 * create found its last anchor; how many steps of a stream wait), skips (anchor.c), the index of
 * steps that wait (known.c), items waiting for an earlier step, holes, bare slots, plan segments,
 * scratch.
 *
 * The work of one datagram is bounded, whoever sent it. A unit is a link followed, or an entry or
 * slot looked at. A PUSH has three passes: counting its creates for the limiter, storing its runs,
 * making its creates. A pass looks once at each step or create that it is about. For all else it
 * has RP_WORK_MAX units. It stops behind the step or create that spends the last one. So a PUSH
 * spends at most 3 * RP_WORK_MAX units, and what three such steps take beyond. When the units are
 * spent, the other creates are answered NOT_YET, and waiting steps stay where they are until the
 * next PUSH. That one begins with the create where this one ended. So a client that repeats a whole
 * PUSH makes progress: creates that were made before do not use the units up. Finding an anchor
 * takes at most RP_WALK_MAX units, a look into the index RP_BUCKET_MAX. Opening and closing a
 * writer looks at each entry of its window once.
 *
 * The step that a step overwrites costs a link or two; but reach_behind of them where an episode's
 * first row goes, after an attach, and while more than RP_FOLLOWERS streams take turns. An item
 * that is sent costs as many links as its plan's farthest picks are away: a table's plans say what
 * a batch may cost.
 *
 * Private to the table's files.
 */
#ifndef RP_STORE_H
#define RP_STORE_H

#include "table/plan.h"
#include "table/table.h"

enum rp_step_flags { RP_STEP_END = 1, RP_STEP_ITEM = 2, RP_STEP_EVICTED = 4 };

enum rp_entry_state {
    RP_ENTRY_EMPTY = 1,     /* reserved, nothing arrived */
    RP_ENTRY_PARTIAL = 2,   /* some pieces arrived */
    RP_ENTRY_COMPLETE = 3,  /* all bytes in place, an earlier step of the stream is missing */
    RP_ENTRY_COMMITTED = 4,
    RP_ENTRY_LOST = 5,      /* its place was lost before commit, or it was superseded */
};

#define RP_KEY_MASK (((uint64_t)1 << RP_KEY_BITS) - 1)

struct rp_slot {
    uint64_t item;
    uint64_t links;
};

struct rp_entry { /* one sequence; pieces[] has private->bitmap_words words */
    uint64_t key;
    uint64_t step;
    uint64_t facts; /* stream (16) | run flags (16) | piece_count (16) | pieces received (16) */
    uint64_t priority; /* the bits of the double, where the run brought one */
    uint64_t pieces[];
};

struct rp_stream {
    uint64_t next_step; /* committed so far */
    uint64_t head; /* key of the newest committed step; 0 = none */
    uint64_t abandoned; /* sequences below this are ignored: a step of the stream lost its place */
    uint64_t depth; /* rows the open episode has; 0 = none is open */
};

struct rp_writer { /* then `window` entries, then streams_max streams */
    uint64_t session; /* 0 = the place is free */
    uint64_t streams;
    uint64_t next_sequence; /* all below are reserved */
    uint64_t lost_total;
    uint64_t reserved[4];
};

struct rp_plan_facts {
    char name[RP_NAME_BYTES];
    uint32_t pick_first;
    uint32_t pick_count;
    uint32_t item_bytes;
    uint32_t reserved;
};

struct rp_table_facts { /* fixed for the table's life */
    char name[RP_NAME_BYTES];
    double alpha;
    double samples_per_insert;
    double error_min;
    double error_max;
    uint64_t min_size;
    uint32_t capacity;
    uint32_t step_bytes;
    uint32_t column_count;
    uint32_t plan_count;
    uint32_t pick_count;
    uint32_t spec_bytes;
    uint32_t spec_crc;
    uint32_t writers_max;
    uint32_t streams_max;
    uint32_t window;
    uint32_t pieces_max;
    uint32_t reach_behind;
    uint32_t reach_ahead;
    uint32_t fifo; /* 1: items are drawn oldest step first, each once */
    struct rp_plan_facts plans[RP_PLANS_MAX];
};

struct rp_table_header {
    uint64_t magic;
    uint64_t bytes; /* of state, keys and steps */
    uint64_t facts_crc; /* of the facts; nothing is laid out by them before it was compared */
    uint64_t parts_crc; /* of columns, picks and spec */
    uint64_t epoch;
    uint64_t resetting;     /* the epoch a reset is on its way to; 0 = none */
    uint64_t resetting_not; /* its complement: one damaged word empties no table */
    uint64_t head;
    uint64_t inserted;
    uint64_t sampled;
    uint64_t maximum; /* the largest mass so far */
    struct rp_random random;
    struct rp_table_facts facts;
};

struct rp_table_layout {
    struct rp_table_sizes sizes;
    size_t columns; /* offsets in the state */
    size_t picks;
    size_t spec;
    size_t slots;
    size_t leaves;
    size_t writers;
    size_t sums; /* offset in the keys */
    size_t parts; /* offsets in the local memory, which starts with the private struct */
    size_t hints;
    size_t skips;
    size_t known;
    size_t done;
    size_t nodes;
    size_t held;
    size_t seen;
    size_t writer_bytes;
    uint32_t bitmap_words;
    uint32_t known_words;
};

struct rp_hint { /* of one stream of one writer */
    uint64_t step; /* where the last create found its anchor: key 0 = nowhere yet */
    uint64_t key;
    uint64_t known; /* its partial and complete entries */
    uint64_t block; /* key of its newest step whose number is a multiple of RP_SKIP_BLOCK */
    uint64_t asked; /* the PUSH, as p->asked counts them, that the rest is of */
    uint64_t next;  /* the step that continues the stream behind what this PUSH brings */
    uint64_t pieces_of; /* the sequence that its last piece was of */
    uint32_t pieces; /* new ones of that, in this PUSH */
    uint32_t mixed;  /* pieces of several steps in turn: each may be the last one of its step */
};

struct rp_rows { /* the window gather walked last: slots by distance from the anchor */
    uint64_t key;
    uint32_t behind_known;
    uint32_t ahead_known;
    uint32_t behind[RP_REACH_MAX + 1];
    uint32_t ahead[RP_REACH_MAX + 1];
};

enum rp_store_limits {
    RP_STEPS_AHEAD =
        4, /* windows a step may lie ahead of its stream's newest one and still be believed */
    RP_SKIP_BLOCK = 32, /* steps between two places of a stream that have a skip */
    RP_WALK_MAX = 512, /* links and skips a create follows at most to find its anchor */
    RP_BUCKET_MAX = 16, /* steps that wait under one hash; one more loses its place */
    RP_WORK_MAX = 1 << 16, /* units a pass of a PUSH may spend on what is not its own: see above */
    RP_WRITER_ARRAYS = 4, /* done_through, holes, create_from, owners */
    RP_HOLES_SHARE = 16, /* of its window: the holes a writer may have before anything arrived */
    RP_BARE_SHARE = 8, /* of the ring: beyond it no writer reserves ahead of what arrived */
    RP_WORK_COMMIT = 16, /* units that committing a step that waited, or losing it, counts for */

    RP_UPDATE_MAX = RP_MTU_MAX / 16, /* entries of one update */
    RP_UPDATE_AHEAD = 32, /* keys of an update whose words are on their way */
    RP_DRAW_CHUNK = 256,
    RP_COMMIT_CHUNK = 2048,
    RP_FOLLOWERS = 1024, /* streams that may take turns before an eviction has to walk again */
    RP_DIRTY_MAX = 1024, /* leaf groups that may wait for the tree beyond a transaction */
};

struct rp_follower { /* of a stored step: its last row whose window may reach back to it */
    uint64_t key;
    uint64_t follower; /* its key; 0: none, its episode ends before */
};

struct rp_table_private {
    uint64_t *keys;
    uint32_t *sums;
    struct rp_slot *slots;
    uint64_t *leaves;
    uint8_t *steps;
    uint8_t *writers;
    struct rp_hint *hints; /* [writers_max][streams_max] */
    uint32_t *skips; /* [capacity]: distances in keys, see anchor.c */
    uint32_t *known; /* [writers_max][known_words]: see known.c */
    uint64_t *done_through; /* [writers_max]: the first sequence that is not done */
    uint64_t *holes; /* [writers_max]: sequences that were reserved and have not arrived */
    uint64_t bare; /* slots of issued keys that hold no committed step: reserved, or given up */
    uint64_t *create_from; /* [writers_max]: the create, modulo their count, a PUSH begins with */
    uint64_t *owners; /* [writers_max]: the writers' sessions side by side, for who looks at all */
    uint8_t *held; /* [writers_max][RP_HELD_BYTES]: PUSHes that wait; pages not written cost
                    * nothing */
    uint64_t *seen; /* a bit for each slot; scratch of the verifier */
    uint64_t salt; /* odd; what the index hashes with */
    uint64_t work; /* units this pass spent; 0 again with a check of a run or create (so before
                    * counting), after counting creates, and before making them */
    uint64_t work_total; /* units ever spent: tests look at it */
    uint64_t work_vain;  /* units ever spent on creates that made no item */
    uint64_t work_asked; /* units spent on counting those of this PUSH */
    uint64_t mass_max;
    uint64_t head; /* of the header, as of the last commit */
    uint64_t asked;    /* PUSHes of an ordered table */
    uint64_t admitted; /* items that this one may make */
    size_t writer_bytes;
    uint32_t head_slot;
    uint32_t capacity;
    uint32_t step_bytes;
    uint32_t window;
    uint32_t known_bits;
    uint32_t known_words;
    uint32_t writers_max;
    uint32_t streams_max;
    uint32_t entry_words;
    uint32_t bitmap_words;
    uint32_t reach_behind;
    uint32_t reach_ahead;
    uint32_t dirty_count;
    struct rp_plan_parts plans[RP_PLANS_MAX];
    struct rp_rows rows;
    struct rp_follower followers[RP_FOLLOWERS]; /* by key: see store.c */
    uint32_t dirty[RP_DIRTY_MAX + RP_INTENT_WORDS]; /* slots whose leaf group the tree has not
                                                     * summed again since one of it changed */
    uint32_t slots_drawn[RP_DRAW_CHUNK];
    uint32_t ranks[RP_DRAW_CHUNK];
    uint64_t targets[RP_DRAW_CHUNK];
    double priorities[RP_UPDATE_MAX];
    uint32_t update_slots[RP_UPDATE_MAX];
    uint64_t masses[RP_UPDATE_MAX];
};

/* ---- key words, item words, links ---- */

static inline uint64_t rp_key_word(uint64_t state, uint64_t key) {
    return state << RP_KEY_BITS | key;
}
static inline uint64_t rp_key_of(uint64_t word) {
    return word & RP_KEY_MASK;
}
static inline uint32_t rp_state_of(uint64_t word) {
    return (uint32_t)(word >> RP_KEY_BITS);
}
static inline uint64_t rp_item_word(uint64_t depth, uint64_t flags, uint64_t behind,
                                    uint64_t ahead) {
    return depth | flags << 16 | behind << 32 | ahead << 48;
}
static inline uint16_t rp_item_depth(uint64_t word) {
    return (uint16_t)word;
}
static inline uint16_t rp_item_flags(uint64_t word) {
    return (uint16_t)(word >> 16);
}
static inline uint16_t rp_item_behind(uint64_t word) {
    return (uint16_t)(word >> 32);
}
static inline uint16_t rp_item_ahead(uint64_t word) {
    return (uint16_t)(word >> 48);
}
static inline uint64_t rp_links_word(uint64_t previous, uint64_t next) {
    return previous | next << 32;
}
static inline uint32_t rp_link_previous(uint64_t links) {
    return (uint32_t)links;
}
static inline uint32_t rp_link_next(uint64_t links) {
    return (uint32_t)(links >> 32);
}

/* The slot of a key in [head - capacity, head + capacity): no division, the head's slot is at hand.
 */
static inline uint32_t rp_slot_of(const struct rp_table_private *p, uint64_t key) {
    int64_t slot = (int64_t)p->head_slot + (int64_t)(key - p->head);
    if (slot < 0) {
        slot += p->capacity;
    } else if (slot >= p->capacity) {
        slot -= p->capacity;
    }
    return (uint32_t)slot;
}

/* The slot where `key` is stored and committed, or null: overwritten, never issued, reserved. */
static inline struct rp_slot *rp_alive(const struct rp_table_private *p, uint64_t key) {
    if (p->head - 1 - key >= p->capacity) {
        return 0;
    }
    uint32_t slot = rp_slot_of(p, key);
    return p->keys[slot] == rp_key_word(RP_SLOT_COMMITTED, key) ? &p->slots[slot] : 0;
}
static inline uint64_t rp_key_at(const struct rp_table_private *p, const struct rp_slot *slot) {
    return rp_key_of(p->keys[slot - p->slots]);
}

/* The stream's neighbours of a committed step, or null. */
static inline struct rp_slot *rp_previous(const struct rp_table_private *p,
                                          const struct rp_slot *slot) {
    uint32_t distance = rp_link_previous(slot->links);
    return distance ? rp_alive(p, rp_key_at(p, slot) - distance) : 0;
}
static inline struct rp_slot *rp_next(const struct rp_table_private *p,
                                      const struct rp_slot *slot) {
    uint32_t distance = rp_link_next(slot->links);
    return distance ? rp_alive(p, rp_key_at(p, slot) + distance) : 0;
}

/* An item: created, and its window still stored. */
static inline int rp_is_item(uint64_t item) {
    return (rp_item_flags(item) & (RP_STEP_ITEM | RP_STEP_EVICTED)) == RP_STEP_ITEM;
}

/* ---- writers ---- */

static inline struct rp_writer *rp_writer_at(const struct rp_table_private *p, uint32_t writer) {
    return (struct rp_writer *)(p->writers + p->writer_bytes * writer);
}
static inline struct rp_entry *rp_entry_at(const struct rp_table_private *p, uint32_t writer,
                                           uint64_t sequence) {
    uint64_t *entries = (uint64_t *)(rp_writer_at(p, writer) + 1);
    return (struct rp_entry *)(entries + sequence % p->window * p->entry_words);
}
static inline struct rp_stream *rp_stream_at(const struct rp_table_private *p, uint32_t writer,
                                             uint32_t stream) {
    uint64_t *entries = (uint64_t *)(rp_writer_at(p, writer) + 1);
    return (struct rp_stream *)(entries + (size_t)p->window * p->entry_words) + stream;
}
/* The entry of the next sequence: a walk along a run divides once, not at each step. */
static inline struct rp_entry *rp_entry_after(const struct rp_table_private *p, uint32_t writer,
                                              const struct rp_entry *entry) {
    uint64_t *first = (uint64_t *)(rp_writer_at(p, writer) + 1);
    uint64_t *after = (uint64_t *)entry + p->entry_words;
    return (struct rp_entry *)(after < first + (size_t)p->window * p->entry_words ? after : first);
}
static inline struct rp_hint *rp_hint_at(const struct rp_table_private *p, uint32_t writer,
                                         uint32_t stream) {
    return &p->hints[(size_t)writer * p->streams_max + stream];
}
static inline int rp_entry_known(const struct rp_entry *entry) {
    uint32_t state = rp_state_of(entry->key);
    return state == RP_ENTRY_PARTIAL || state == RP_ENTRY_COMPLETE;
}
static inline int rp_entry_done(const struct rp_entry *entry) {
    return rp_state_of(entry->key) >= RP_ENTRY_COMMITTED;
}
/* The slot of an entry under way still holds its reservation. */
static inline int rp_place_held(const struct rp_table_private *p, const struct rp_entry *entry) {
    return p->head - rp_key_of(entry->key) <= p->capacity;
}
static inline void rp_work_begin(struct rp_table_private *p) {
    p->work = 0;
}
static inline void rp_work_add(struct rp_table_private *p, uint64_t units) {
    p->work += units;
    p->work_total += units;
}
static inline int rp_work_left(const struct rp_table_private *p) {
    return p->work < RP_WORK_MAX;
}
static inline uint64_t rp_entry_facts(uint64_t stream, uint64_t flags, uint64_t piece_count,
                                      uint64_t received) {
    return stream | flags << 16 | piece_count << 32 | received << 48;
}
static inline uint16_t rp_entry_stream(const struct rp_entry *entry) {
    return (uint16_t)entry->facts;
}
static inline uint16_t rp_entry_flags(const struct rp_entry *entry) {
    return (uint16_t)(entry->facts >> 16);
}
static inline uint16_t rp_entry_piece_count(const struct rp_entry *entry) {
    return (uint16_t)(entry->facts >> 32);
}
static inline uint16_t rp_entry_received(const struct rp_entry *entry) {
    return (uint16_t)(entry->facts >> 48);
}

/* ---- layout.c ---- */

/* Checks a config and copies its numbers; 0 or -RP_BAD_ARGUMENT with a sentence. */
int rp_facts_from(const struct rp_table_config *config, struct rp_table_facts *facts,
                  char error[256]);
void rp_layout_of(const struct rp_table_facts *facts, struct rp_table_layout *layout);

/* ---- table.c ---- */

/* Is this the header of a table of this build, and undamaged? */
int rp_table_sound(const struct rp_table_header *header, uint32_t number, char error[256]);
/* Slots in use lie side by side: they were issued one after another since the last reset. Before
 * the next reset none of their key words is 0 again. */
uint64_t rp_used_slots(const struct rp_table_private *p);

/* ---- table_verify.c ---- */

/* Do the words that change hold together? 0, or -RP_BAD_REGION with a sentence. */
int rp_table_verify(const struct rp_table *table, char error[256]);
/* The rest, once the index of steps that wait is there. */
int rp_table_verify_known(const struct rp_table *table, char error[256]);

/* ---- writer.c ---- */

/* At attach: ends what a writer's interrupted run left between two transactions: complete steps
 * whose predecessor is stored. */
void rp_writer_resume(struct rp_table *table, uint32_t writer);
/* Clears what a place was used for, nothing more: its session stays as it is. */
void rp_writer_clear(struct rp_table *table, uint32_t writer);

/* ---- what a sequence has come to: writer.c, ask.c ---- */

/* Sequences older than the window's memory are done. */
static inline int rp_forgotten(const struct rp_table_private *p, const struct rp_writer *writer,
                               uint64_t sequence) {
    return writer->next_sequence > p->window && sequence < writer->next_sequence - p->window;
}

/* A piece against the pieces of the same step that are here already. */
static inline int rp_piece_agrees(const struct rp_entry *entry, const struct rp_run *run) {
    return rp_state_of(entry->key) != RP_ENTRY_PARTIAL
           || (rp_entry_stream(entry) == run->stream && entry->step == run->step
               && rp_entry_flags(entry) == run->flags
               && rp_entry_piece_count(entry) == run->piece_count);
}

static inline int rp_piece_repeated(const struct rp_entry *entry, const struct rp_run *run) {
    uint32_t state = rp_state_of(entry->key);
    return state == RP_ENTRY_COMPLETE || rp_entry_done(entry) || !rp_piece_agrees(entry, run)
           || (state == RP_ENTRY_PARTIAL && entry->pieces[run->piece / 64] >> run->piece % 64 & 1);
}

/* ---- known.c: by stream and step, the entries that are partial or complete ---- */

uint32_t rp_known_bits(uint32_t window);
/* Finds the entry that holds this step of the stream. 1 with its sequence; 0; -1 where there is
 * none and no room for one either. */
int rp_known_find(struct rp_table_private *p, uint32_t writer, uint32_t stream, uint64_t step,
                  uint64_t *sequence);
void rp_known_add(struct rp_table_private *p, uint32_t writer, uint64_t sequence);
void rp_known_remove(struct rp_table_private *p, uint32_t writer, uint64_t sequence);
/* The entry is about to be cleared, with all the writer has. */
void rp_known_forget(struct rp_table_private *p, uint32_t writer, uint64_t sequence);
/* The writer has none. Cost: all the index. */
void rp_known_clear(struct rp_table_private *p, uint32_t writer);

/* ---- anchor.c ---- */

/* The stream's step of this number was committed under `key`. */
void rp_skip_note(struct rp_table_private *p, uint32_t writer, uint32_t stream, uint64_t step,
                  uint64_t key);
static inline int rp_skip_wanted(uint64_t step) { /* a block's first step, or its last */
    return (step + 1) % RP_SKIP_BLOCK <= 1;
}
/* At attach: the skips of a stream's steps that are stored. */
void rp_skip_derive(struct rp_table_private *p, uint32_t writer, uint32_t stream);

/* ---- store.c ---- */

/* Adds a leaf's new mass to the intent and remembers to settle it. */
void rp_leaf_set(struct rp_table *table, uint32_t slot, uint64_t mass);
/* Commits the intent and brings the head up to date. The tree is left to rp_table_settle: nothing
 * is drawn before the datagram is done, and its transactions mostly change the same few groups. */
void rp_store_commit(struct rp_table *table);
/* Reserves sequences up to goal, as many transactions as that takes. */
void rp_store_reserve(struct rp_table *table, uint32_t writer, uint64_t goal);

struct rp_commit { /* consecutive steps of a stream, their bytes in place, the first one the
                      stream's next */
    uint32_t writer;
    uint32_t stream;
    uint64_t sequence;
    uint32_t count;
    uint32_t flags; /* of the run; RP_RUN_END is about the last step */
    const double *priorities; /* with RP_RUN_PRIORITY */
};
/* Makes the steps committed, linked, and items where the run says so. */
void rp_store_steps(struct rp_table *table, const struct rp_commit *commit);
/* Makes a step an item. */
void rp_store_item(struct rp_table *table, uint32_t slot, uint16_t behind, uint16_t ahead,
                   uint64_t mass);

#endif
