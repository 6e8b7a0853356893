/* A table: the ring of steps, its writers, the items anchored in it, their exact tree, and the
 * limiter.
 *
 * Memory comes in four blocks, so that others may map the ring and nothing else:
 *     state  header | columns, picks, spec | slots (item and links words) | leaf masses | writers
 *     keys   key words, and a checksum of each step; and
 *     steps  the ring
 *     local  tree nodes and all else of this process; the other three hold no pointer
 * Slot = key mod capacity for step, words, leaf alike. A slot's key word holds its state in the
 * top 12 bits (free, reserved, committed) and its key in the other 52; generations start at 1,
 * so no key is 0. store.h has the words in detail.
 *
 * Item word: rows since the episode's start (saturating), flags (end, item created, item
 * evicted), and behind / ahead of the item. Links word: where the previous and next step of the
 * stream are.
 *
 *     leaf > 0  =>  committed, item created, not evicted, every step of its window alive
 *     head - capacity <= key of a live slot < head
 *     keys rise along a stream; reserved slots <= window * writers_max <= capacity / 16
 *
 * Functions that change the region either are whole transactions (rp_writer_*) or add to an
 * intent the caller commits (drawing and updating). After either the caller calls rp_table_settle,
 * which brings the tree up to date: once for a whole datagram, before anybody draws or asks how
 * many items there are. No clocks, no sockets, no allocation.
 * Everything a peer can influence is checked by status, never asserted.
 */
#ifndef RP_TABLE_H
#define RP_TABLE_H

#include "protocol/compare.h"
#include "protocol/config.h"
#include "table/intent.h"
#include "base/power.h"
#include "base/random.h"
#include "base/sum_tree.h"
#include "protocol/status.h"
#include "protocol/wire.h"

enum rp_slot_state { RP_SLOT_FREE = 0, RP_SLOT_RESERVED = 1, RP_SLOT_COMMITTED = 2 };

struct rp_table_header; /* in the region, private to the table's files */

struct rp_table { /* process-local handle; lies in the region's volatile part, rebuilt at attach */
    struct rp_table_header *header;
    struct rp_intent *intent; /* the server's one log, used by the rp_writer_* transactions */
    uint64_t *counters; /* RP_COUNTER_COUNT numbers, the server's; every refusal bumps one */
    struct rp_tree tree;
    struct rp_power power;
    uint32_t number;
    struct rp_table_private *private; /* the implementation's pointers and scratch */
};

/* ---- life ---- */

struct rp_table_sizes { /* bytes of each block: multiples of 64 */
    size_t state;
    size_t keys;
    size_t steps;
    size_t local;
};

struct rp_table_memory { /* where they lie, 64-byte aligned; all but local outlive the process */
    void *state;
    void *keys;
    void *steps;
    void *local;
};

/* Bytes the table needs: 0, or -RP_BAD_ARGUMENT with a sentence where the config is impossible (it
 * names the smallest legal capacity where that is what is wrong). */
int rp_table_sizes(const struct rp_table_config *config, struct rp_table_sizes *sizes,
                   char error[256]);
/* The `first_lap` of a server's table `number`, for a lap that the server has `drawn`: keys without
 * their epoch are taken by their numbers alone, so no two tables of it ever issue any alike. Where
 * 0 was drawn, 0: all begin at their capacity, so that runs can be repeated. */
uint64_t rp_table_lap(const struct rp_table_config *config, uint32_t number, uint32_t drawn);
/* Lays the table out in zeroed memory. Epoch must not be 0; `salt` is known to no peer, and only
 * this process needs it. Keys begin `first_lap` laps of the ring late, so many modulo what leaves
 * half of all keys: tables made one after another, with a lap drawn for each, issue none alike.
 * Returns 0 or -status with error. */
int rp_table_create(struct rp_table *table, const struct rp_table_memory *memory,
                    const struct rp_table_config *config,
                    uint32_t number, uint64_t seed, uint64_t epoch, uint64_t salt,
                    uint64_t first_lap, struct rp_intent *intent, uint64_t *counters,
                    char error[256]);
/* After rp_intent_recover: checks the layout, rebuilds the tree from the leaves. -RP_BAD_REGION if
 * it is damaged. */
int rp_table_attach(struct rp_table *table, const struct rp_table_memory *memory, uint32_t number,
                    uint64_t salt, struct rp_intent *intent, uint64_t *counters, char error[256]);
/* A stored table's state against a configuration: the comparison's sentence says what is wrong. */
void rp_table_compare(const void *state, uint32_t number, const struct rp_table_config *config,
                      struct rp_comparison *comparison);
/* Adds to the intent what may change and does: the limiter. The configuration was compared. */
void rp_table_adopt(struct rp_table *table, const struct rp_table_config *config);
/* Does this configuration's limiter let fewer items in at once than the table's? */
int rp_table_narrows(const struct rp_table *table, const struct rp_table_config *config);
/* Empties the table under a new epoch; writers keep their places but lose their streams (whole
 * transaction). */
void rp_table_reset(struct rp_table *table, uint64_t epoch);
struct rp_damage { /* what a look at stored bytes found */
    uint64_t steps; /* committed ones that were looked at */
    uint64_t damaged; /* of them, those that are not what was written */
    uint64_t key; /* of the damaged one with the smallest key; 0 = none */
};
/* Compares the committed steps of the slots from `first` on, `count` of them at most, with their
 * checksums, and adds to damage (zero it before the first call). Returns the next slot to look at:
 * the capacity where that was all. */
uint32_t rp_table_verify_steps(const struct rp_table *table, uint32_t first, uint32_t count,
                               struct rp_damage *damage);
/* Every invariant above, asserted, against brute force where the table is small. */
void rp_table_check(const struct rp_table *table);

/* ---- facts ---- */

void rp_table_info(const struct rp_table *table,
                   struct rp_table_info *info); /* number included, names too */
uint64_t rp_table_epoch(const struct rp_table *table);
/* Links followed so far in vain: for creates that made no item, and in counting those of a PUSH of
 * which one or all made none. */
uint64_t rp_table_vain(const struct rp_table *table);
/* Ends what rp_writer_create_items counted last; 1: its links were followed in vain, too. */
void rp_table_asked(struct rp_table *table, int in_vain);
uint64_t rp_table_capacity(const struct rp_table *table);
/* Is it a queue, whose items are drawn oldest step first, each once? */
int rp_table_fifo(const struct rp_table *table);
uint32_t rp_table_plan_count(const struct rp_table *table);
uint32_t rp_table_item_bytes(const struct rp_table *table, uint32_t plan);
const void *rp_table_spec(const struct rp_table *table, uint32_t *bytes, uint32_t *crc);

/* ---- writing: each call is one or several whole transactions ---- */

/* A writer place for `session`; the one it has if it has one. Returns its index or
 * -RP_NO_WRITER_FREE. */
int rp_writer_open(struct rp_table *table, uint64_t session, uint16_t streams);
/* Writer places, and whose one is; 0 = free. */
uint32_t rp_writer_places(const struct rp_table *table);
uint64_t rp_writer_session(const struct rp_table *table, uint32_t writer);
/* The session's writer, or -RP_NOT_A_WRITER. */
int rp_writer_find(const struct rp_table *table, uint64_t session);
/* Where the body of a PUSH of this writer is kept while it waits: room for any. */
enum { RP_HELD_BYTES = (RP_MTU_MAX + 63) & ~63 };
uint8_t *rp_writer_held(const struct rp_table *table, int writer);
/* Cuts its open episodes (the last stored row becomes the closing one) and frees the place. */
void rp_writer_close(struct rp_table *table, int writer);
void rp_writer_granted(const struct rp_table *table, int writer, struct rp_writer_granted *granted);
/* Checks a run against window, streams, steps, pieces, priorities, without changing anything: 0 or
 * -status. A whole PUSH is checked run by run before any of it is applied. Like everything here
 * that refuses, it bumps the refusal's counter itself. A late message of a sequence that was
 * reserved long ago is never refused for its step: it is answered as lost. RP_RUN_END with
 * RP_RUN_ITEM, or RP_RUN_ITEM where plans reach further: BAD_ARGUMENT. */
int rp_writer_check(const struct rp_table *table, int writer, const struct rp_run *run,
                    const uint8_t *bytes);
/* The first sequence of the writer that is not reserved. */
uint64_t rp_writer_next(const struct rp_table *table, int writer);
/* Would `gaps` more holes lie too far ahead of the steps that arrived to be accepted now? A hole is
 * a sequence that is reserved, and not arrived: it costs the table a step. A writer may have a few
 * holes more than steps of it arrived, and no more than one datagram may evict (store.h). All
 * writers together, closed ones included, may have so many that 7 of 8 slots of the ring are left
 * to steps. A writer that sends in order never waits. `gaps`: those of a PUSH's runs up to this
 * one, in order. */
int rp_writer_far(const struct rp_table *table, int writer, uint64_t gaps);
/* Are steps stored only in the order of their stream? They are where a limiter counts items and
 * steps become items as they are stored: a step that waited for an earlier one would become an item
 * that the limiter had not admitted. */
int rp_table_ordered(const struct rp_table *table);
/* Where they are: begins a PUSH; its runs follow in their order. */
void rp_writer_ask(struct rp_table *table);
/* Counts the items that the run would make; repeats make none. Returns 0 where a step of it would
 * wait for an earlier one that is not stored and does not come with this PUSH, else 1. */
int rp_writer_ask_run(struct rp_table *table, int writer, const struct rp_run *run);
/* What was counted since: no more are made by the runs that are stored next. */
uint64_t rp_writer_asked(const struct rp_table *table);
/* Items that the creates of a PUSH, of which it may take only some: as many as may be looked up
 * (store.h), beginning where the last PUSH ended. */
uint32_t rp_writer_create_items(const struct rp_table *table, int writer,
                                const struct rp_create *creates, uint32_t count,
                                uint32_t *taken);
/* Checks a create's stream, flags and priority: 0, -RP_BAD_STREAM, -RP_BAD_ARGUMENT or
 * -RP_BAD_PRIORITY. */
int rp_writer_check_create(const struct rp_table *table, int writer,
                           const struct rp_create *create);
/* Stores the run: reserves in sequence order, copies, commits what is in order. Repeats are
 * answered, not stored. */
void rp_writer_run(struct rp_table *table, int writer, const struct rp_run *run,
                   const uint8_t *bytes, struct rp_run_done *done);
/* Creates one item. Returns RP_OK, RP_EXISTS, RP_NOT_YET, RP_OVERWRITTEN, RP_CLOSING_ROW or
 * RP_UNKNOWN_STEP (a positive enum rp_status, as it goes into the answer). */
int rp_writer_create(struct rp_table *table, int writer, const struct rp_create *create);
/* Makes the creates that were taken, as far as the work of a PUSH goes, at least one, with a status
 * for each. The others are NOT_YET, and the next PUSH begins with them. */
void rp_writer_create_all(struct rp_table *table, int writer, const struct rp_create *creates,
                          uint32_t count, uint32_t taken, uint8_t *statuses);
/* done_through and lost_total of an answer. */
void rp_writer_progress(const struct rp_table *table, int writer, struct rp_pushed *answer);

/* ---- the limiter: Reverb's rule, counting items ---- */

/* May `items` more items be created now? 1, or 0 with how many must be drawn first; -RP_NEVER_FITS.
 */
int rp_limiter_may_insert(const struct rp_table *table, uint64_t items, uint64_t *need);
/* May a batch of `count` be drawn now? 1; 0 with how many items must be created first and whether
 * it is the minimum size that holds it back; -RP_NEVER_FITS; -RP_NOTHING_DRAWABLE where the
 * limiter would admit it and no item has a positive mass. */
int rp_limiter_may_sample(const struct rp_table *table, uint32_t count, uint64_t *need,
                          uint32_t *by_size);

/* ---- drawing and updating: add to the server's intent; the caller commits, then settles ---- */

/* Draws `request->count` items into head and items (memory nothing names yet) and adds the
 * generator's and limiter's words. RP_OK or -status: NOTHING_DRAWABLE, UNKNOWN_PLAN, BAD_ARGUMENT
 * (stratified with a uniform part). A queue draws its oldest items in order and adds their leaf
 * words: they are drawn no more. It takes neither a stratified draw nor a uniform part, and has
 * NOTHING_DRAWABLE for more than can be drawn. */
int rp_table_draw(struct rp_table *table, const struct rp_sample *request, struct rp_batch *head,
                  struct rp_batch_item *items);
/* The same for RP_SAMPLE_KEYS: looks `count` keys up. A key whose step is no item (it never was, or
 * was evicted) has mass, behind and ahead 0 and is read as that step alone, if it lives. No intent
 * is touched. */
int rp_table_lookup(const struct rp_table *table, const struct rp_sample *request,
                    const uint64_t *keys, struct rp_batch *head, struct rp_batch_item *items);
/* Adds the leaf words of `count` updates (at most RP_MTU_MAX / 16); priorities were validated. In a
 * queue an item without a mass is stale, whatever took it: it was drawn, or its priority was 0. */
void rp_table_update(struct rp_table *table, const struct rp_update_entry *entries, uint32_t count,
                     struct rp_updated *result);
/* After the commits: brings the tree up to date with the leaves that changed. */
void rp_table_settle(struct rp_table *table);

/* ---- reading ---- */

/* Copies bytes [offset, offset + size) of the item under the plan to target, by executing the
 * plan's picks. Returns 1; or 0 where the item's anchor or window has been overwritten since: then
 * target is zeroed. */
int rp_table_gather(const struct rp_table *table, uint32_t plan, const struct rp_batch_item *item,
                    uint32_t offset, uint32_t size, uint8_t *target);

/* Asks for the anchor's row ahead of a gather: worth it some ten items before. Any key will do. */
void rp_table_prefetch(const struct rp_table *table, const struct rp_batch_item *item);

#endif
