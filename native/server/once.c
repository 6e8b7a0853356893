/* The record of a session's numbered requests: see once.h. */
#include "base/minmax.h"
#include "server/once.h"

enum rp_once_state rp_once_look(const struct rp_once *once, uint64_t id) {
    if (id > once->newest) {
        return RP_ONCE_NEW;
    }
    uint64_t behind = once->newest - id;
    if (behind >= RP_ONCE_WINDOW) {
        return RP_ONCE_OLD;
    }
    return once->done >> behind & 1 ? RP_ONCE_DONE : RP_ONCE_OPEN;
}

/* The bits as they stand where `newest` is the newest id. */
static uint64_t moved(const struct rp_once *once, uint64_t newest) {
    uint64_t by = newest - once->newest;
    return by < RP_ONCE_WINDOW ? once->done << by : 0;
}

void rp_once_take(struct rp_once *once, struct rp_intent *intent, uint64_t id, int done) {
    uint64_t newest = rp_max(once->newest, id);
    uint64_t bits = moved(once, newest);
    if (done && newest - id < RP_ONCE_WINDOW) {
        bits |= 1ull << (newest - id);
    }
    rp_intent_set(intent, &once->newest, newest);
    rp_intent_set(intent, &once->done, bits);
}

void rp_once_tell(struct rp_once *once, struct rp_intent *intent, uint64_t id, uint64_t under_way) {
    uint64_t below = id - 1, ids = below < 64 ? (1ull << below) - 1 : UINT64_MAX; /* from 1 on */
    uint64_t done = ~under_way & ids; /* bit i: below - i */
    if (done == 0) {
        return;
    }
    uint64_t newest = rp_max(once->newest, below - (uint64_t)__builtin_ctzll(done));
    uint64_t bits = moved(once, newest);
    if (newest < below) {
        bits |= done >> (below - newest);
    } else if (newest - below < RP_ONCE_WINDOW) {
        bits |= done << (newest - below);
    }
    if (bits != once->done || newest != once->newest) {
        rp_intent_set(intent, &once->newest, newest);
        rp_intent_set(intent, &once->done, bits);
    }
}
