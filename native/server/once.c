/* The record of a session's numbered requests: see once.h. */
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

void rp_once_take(struct rp_once *once, struct rp_intent *intent, uint64_t id, int done) {
    uint64_t newest = once->newest;
    uint64_t bits = once->done;
    if (id > newest) {
        bits = id - newest < RP_ONCE_WINDOW ? bits << (id - newest) : 0;
        newest = id;
    }
    if (done && newest - id < RP_ONCE_WINDOW) {
        bits |= 1ull << (newest - id);
    }
    rp_intent_set(intent, &once->newest, newest);
    rp_intent_set(intent, &once->done, bits);
}
