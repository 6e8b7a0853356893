/* The gate: the one lock of a service or a link; it knows fair turns, closing, and forks.
 *
 * A thread that turns or posts is inside the gate, for one turn or one post. The gate admits
 * threads in the order in which they came. So a driver that turns without a pause, or threads that
 * ask for counters in a loop, make a thread wait for one stay of each thread before it, no more.
 *
 * A call that sleeps in its middle steps out and in again (rp_gate_step_out), and is counted.
 * Closing refuses all calls that come later, and those that waited at the gate. Then it waits until
 * the calls that had stepped out are over. So the thread that closes is alone, and may free what
 * the gate guards. The gate itself stays where it is until no thread can call any more: the owner
 * of the handle has to know when that is. Until then every call is answered with -RP_CLOSED.
 *
 * In a forked child every entry is refused: the thread that drove the object, and perhaps held its
 * lock, is not there. A child has to release sockets and locked files at once: the function that
 * was given to rp_gate_open does that. The state that this function reads is changed only while
 * forks are held (os/forks.h): so a child finds it from before the change or after.
 *
 *   the ticket that is inside = serving < next, or none is: serving == next
 *   outside = calls under way that stepped out
 */
#ifndef RP_PUMP_GATE_H
#define RP_PUMP_GATE_H

#include <stdint.h>

struct rp_gate {
    _Atomic uint32_t next;     /* the ticket that the next one to come takes */
    _Atomic uint32_t serving;  /* the ticket that may be inside; waiting threads sleep on it */
    _Atomic uint32_t sleepers; /* threads that sleep on it, or are about to */
    _Atomic uint32_t outside;  /* written inside; the closer sleeps on it */
    int closed;                /* inside only */
    uint32_t forks;            /* forks that lay behind this process when the gate was opened */
    void (*forked)(void *owner);
    void *owner;
    struct rp_gate *before, *after; /* in the list of this process's gates */
};

/* forked(owner) is called in every forked child, which has one thread; it may close and free, and
 * must take no lock. */
void rp_gate_open(struct rp_gate *gate, void (*forked)(void *owner), void *owner);
/* No thread is inside, waits, or will come: the memory may be freed. */
void rp_gate_free(struct rp_gate *gate);

/* 0: the caller is inside. -RP_FORKED, -RP_CLOSED: it is not, and never will be. */
int rp_gate_enter(struct rp_gate *gate);
void rp_gate_leave(struct rp_gate *gate);
int rp_gate_forked(const struct rp_gate *gate);

/* From inside, for a call that goes on: it may be closed when it is inside again. */
void rp_gate_step_out(struct rp_gate *gate);
void rp_gate_step_in(struct rp_gate *gate);
/* From inside: lets waiting threads go first, and is inside again. */
void rp_gate_yield(struct rp_gate *gate);
int rp_gate_closed(const struct rp_gate *gate); /* inside only */

/* Enters, and refuses all calls from now on. 0: the caller is inside, and closes. Else as in
 * rp_gate_enter: it was closed before. Calls that stepped out are still under way: wake them, then
 * drain. */
int rp_gate_close(struct rp_gate *gate);
/* The closer, from inside: waits until no call is under way but its own. */
void rp_gate_drain(struct rp_gate *gate);

#endif
