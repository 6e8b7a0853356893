/* The redo log: see intent.h. Between any two stores a process may die; in the simulator each
 * such gap is a site.
 *
 * rp_intent_set, rp_intent_commit, rp_region_copy and rp_region_clear are macros around the
 * functions of the same name, so that a site stands at every call; the names in parentheses
 * below are the functions themselves.
 */
#include "table/intent.h"

#include <assert.h>
#include <string.h>

#include "protocol/status.h"

/* The compiler keeps stores on their side of this; the processor keeps them in order for every
 * process that maps the region. */
static void fence(void) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void rp_intent_open(struct rp_intent *intent, void *region, size_t region_bytes,
                    struct rp_intent_log *log) {
    assert((uintptr_t)region % 8 == 0 && (uintptr_t)log % 8 == 0);
    *intent = (struct rp_intent){.region = region, .region_bytes = region_bytes, .log = log};
}

uint64_t rp_intent_room(const struct rp_intent *intent) {
    return RP_INTENT_WORDS - intent->count;
}

static void apply(const struct rp_intent *intent) {
    const struct rp_after *after = intent->log->after;
    const struct rp_after *end = after + intent->log->count;
    uint8_t *region = intent->region; /* in a register: for the compiler a store might change it */
    for (; after < end; after++) {
        RP_SITE();
        uint64_t *word = (uint64_t *)(region + after->offset);
        __atomic_store_n(word, after->value, __ATOMIC_RELEASE);
    }
}

void(rp_intent_commit)(struct rp_intent *intent) {
    struct rp_intent_log *log = intent->log;
    assert(log->committed == 0);
    if (intent->count == 0) {
        return;
    }
    log->count = intent->count;
    fence();
    RP_SITE();
    __atomic_store_n(&log->committed, 1, __ATOMIC_RELEASE);
    fence();
    apply(intent);
    RP_SITE();
    fence();
    __atomic_store_n(&log->committed, 0, __ATOMIC_RELEASE);
    fence();
    intent->count = 0;
}

static int in_log(const struct rp_intent *intent, uint64_t offset) {
    uint64_t log = (uint64_t)((const uint8_t *)intent->log - intent->region);
    return offset >= log && offset < log + sizeof *intent->log;
}

int rp_intent_recover(struct rp_intent *intent) {
    struct rp_intent_log *log = intent->log;
    intent->count = 0;
    if (log->committed == 0) {
        return 0;
    }
    if (log->committed != 1 || log->count > RP_INTENT_WORDS) {
        return -RP_BAD_REGION;
    }
    for (uint64_t i = 0; i < log->count; i++) {
        uint64_t offset = log->after[i].offset;
        if (offset % 8 != 0 || offset > intent->region_bytes - 8 || in_log(intent, offset)) {
            return -RP_BAD_REGION;
        }
    }
    apply(intent);
    RP_SITE();
    fence();
    __atomic_store_n(&log->committed, 0, __ATOMIC_RELEASE);
    return 1;
}

uint64_t rp_intent_redone(const struct rp_intent_log *log, uint64_t offset, uint64_t value) {
    uint64_t count = log->committed == 0 ? 0 : log->count;
    for (uint64_t i = 0; i < count && i < RP_INTENT_WORDS; i++) {
        value = log->after[i].offset == offset ? log->after[i].value : value;
    }
    return value;
}

void(rp_region_copy)(void *target, const void *source, size_t size) {
    size_t half = size / 2;
    memcpy(target, source, half);
    RP_SITE();
    memcpy((uint8_t *)target + half, (const uint8_t *)source + half, size - half);
    fence();
}

void(rp_region_clear)(void *target, size_t size) {
    size_t half = size / 2;
    memset(target, 0, half);
    RP_SITE();
    memset((uint8_t *)target + half, 0, size - half);
    fence();
}
