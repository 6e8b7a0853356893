/* Numbered requests that are applied at most once: one record per session and kind of request.
 *
 * Ids of one kind count 1, 2, 3 ... in a session. The record keeps the newest id that was taken and
 * a bit for each of the RP_ONCE_WINDOW ids up to it that says whether that one is done. What a done
 * request was answered with lies beside it: a SAMPLE's batch in any free slot, what the others were
 * told at id mod what is kept.
 * SAMPLE, UPDATE and PUBLISH each have a record of their own, so no kind holds up another.
 *
 *     newest == 0  =>  done == 0          bit i of done: id newest - i is done
 *     an id in (0, newest - RP_ONCE_WINDOW] is RP_ONCE_OLD for ever
 *
 * Both words change through the server's intent, in the same commit as what the request changed:
 * after a crash a request is done with its record, or not at all.
 */
#ifndef RP_ONCE_H
#define RP_ONCE_H

#include <stdint.h>

#include "table/intent.h"

enum { RP_ONCE_WINDOW = 64 };

struct rp_once { /* in the region */
    uint64_t newest;
    uint64_t done;
};

enum rp_once_state {
    RP_ONCE_NEW,  /* larger than every id taken so far */
    RP_ONCE_OPEN, /* in the window and not done: late, or taken and not ended */
    RP_ONCE_DONE, /* in the window and done */
    RP_ONCE_OLD,  /* below the window: no longer known */
};

/* What is known of an id; id > 0. */
enum rp_once_state rp_once_look(const struct rp_once *once, uint64_t id);
/* Adds to the intent: this id is taken (newest is at least id), and, where `done`, done. An
 * RP_ONCE_OLD id changes nothing. */
void rp_once_take(struct rp_once *once, struct rp_intent *intent, uint64_t id, int done);
/* Adds to the intent, where it changes anything: of the RP_ONCE_WINDOW ids below this one, the id
 * 1 + i below is done unless bit i of `under_way` is 1. */
void rp_once_tell(struct rp_once *once, struct rp_intent *intent, uint64_t id, uint64_t under_way);

#endif
