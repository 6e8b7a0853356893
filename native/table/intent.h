/* One intent record serves every change of the region: a redo log of resolved
 * after-images.
 *
 * The order of every change: bytes first (rp_region_copy into memory nothing points to yet);
 * then the after-images into the log, then its commit flag; then the words themselves; then the
 * flag is cleared; only then an answer leaves. A process killed anywhere leaves either no flag
 * (nothing happened) or a flag (rp_intent_recover redoes the words, which does no harm twice).
 * Kill -9 needs program order only, so each step is a release store behind a compiler barrier
 * and there is no fsync. What is derived (tree nodes, counts) is not logged: attach rebuilds it.
 *
 *     flag == 0  or  (flag == 1 and count <= RP_INTENT_WORDS and every offset lies in the region
 *     and not in the log)
 */
#ifndef RP_INTENT_H
#define RP_INTENT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/site.h"

enum rp_intent_limits { RP_INTENT_WORDS = 16384 };

struct rp_after {
    uint64_t offset; /* of a 64-bit word, from the region's start, a multiple of 8 */
    uint64_t value;
};

struct rp_intent_log { /* lies in the region */
    uint64_t committed;
    uint64_t count;
    struct rp_after after[RP_INTENT_WORDS];
};

struct rp_intent { /* process-local handle, by which the log is filled */
    uint8_t *region;
    size_t region_bytes;
    struct rp_intent_log *log;
    uint64_t count; /* after-images of the change being put together; the log's own count is set at
                       commit */
};

void rp_intent_open(struct rp_intent *intent, void *region, size_t region_bytes,
                    struct rp_intent_log *log);
/* After-images still free in the change being put together. */
uint64_t rp_intent_room(const struct rp_intent *intent);
/* Adds one after-image; the word keeps its old value until commit. Asserts room: callers bound
 * their changes. */
static inline void rp_intent_set(struct rp_intent *intent, uint64_t *word, uint64_t value) {
    uint64_t offset = (uint64_t)((uint8_t *)word - intent->region);
    assert(intent->count < RP_INTENT_WORDS);
    assert(offset % 8 == 0 && offset < intent->region_bytes);
    intent->log->after[intent->count++] = (struct rp_after){offset, value};
}
/* Commits, applies, clears. Afterwards the change is done and the log empty. */
void rp_intent_commit(struct rp_intent *intent);
/* At attach: redoes a committed change, drops an uncommitted one. 1 = redone, 0 = dropped or none,
 * -RP_BAD_REGION where the log itself is damaged. */
int rp_intent_recover(struct rp_intent *intent);
/* What a word of the region, `value` now, will be once a committed change is redone. Nothing of the
 * log is trusted. Takes time by the log's length. */
uint64_t rp_intent_redone(const struct rp_intent_log *log, uint64_t offset, uint64_t value);

/* Copies bytes into region memory that nothing names yet. A kill inside leaves garbage that is not
 * read. */
void rp_region_copy(void *target, const void *source, size_t size);
/* Clears such memory. */
void rp_region_clear(void *target, size_t size);

/* Every call is a place the simulator can kill at: the site is the caller's line. */
#define rp_intent_set(intent, word, value) \
    do { \
        RP_SITE(); \
        rp_intent_set(intent, word, value); \
    } while (0)
#define rp_intent_commit(intent) \
    do { \
        RP_SITE(); \
        rp_intent_commit(intent); \
    } while (0)
#define rp_region_copy(target, source, size) \
    do { \
        RP_SITE(); \
        rp_region_copy(target, source, size); \
    } while (0)
#define rp_region_clear(target, size) \
    do { \
        RP_SITE(); \
        rp_region_clear(target, size); \
    } while (0)

#endif
