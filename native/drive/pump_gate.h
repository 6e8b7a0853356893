/* The gate: the one lock of a service or a link; it knows fair turns, closing, and forks.
 *
 * Whoever turns or posts is inside, for one turn or one post, and the gate lets them in in the
 * order in which they came: a driver that turns without a pause, or threads that ask for counters
 * in a loop, keep nobody waiting for more than one stay of each thread that was there before.
 *
 * A call that sleeps in its middle steps out and in again (rp_gate_step_out), and is counted.
 * Closing refuses all who come later, and those who waited at the gate; it then waits until the
 * calls that had stepped out are over. So the one owner of closing is alone, and may free what the
 * gate guards. The gate itself stays where it is until nobody can call any more: that is for the
 * owner of the handle to know, and every later call is answered with -RP_CLOSED.
 *
 * In a forked child every entry is refused: the thread that drove the object, and perhaps held its
 * lock, is not there. What a child has to let go of at once, sockets and locked files, is let go of
 * by the function that was given to rp_gate_open. What that function looks at changes between
 * rp_gate_hold_forks and rp_gate_allow_forks: a child finds it before the change, or behind it.
 *
 *   the ticket that is inside = serving < next, or nobody is: serving == next
 *   outside = calls under way that stepped out
 */
#ifndef RP_PUMP_GATE_H
#define RP_PUMP_GATE_H

#include <stdint.h>

struct rp_gate {
    _Atomic uint32_t next;     /* the ticket that the next one to come takes */
    _Atomic uint32_t serving;  /* the ticket that may be inside; those who wait sleep on it */
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
/* From the one to the other fork(2) waits, and so do other threads that open or free gates, or
 * hold: a few closes of files. Whoever holds does none of these itself. Not in `forked`. */
void rp_gate_hold_forks(void);
void rp_gate_allow_forks(void);
/* Nobody is inside, waits, or will come: the memory may go. */
void rp_gate_free(struct rp_gate *gate);

/* 0: the caller is inside. -RP_FORKED, -RP_CLOSED: it is not, and never will be. */
int rp_gate_enter(struct rp_gate *gate);
void rp_gate_leave(struct rp_gate *gate);
int rp_gate_forked(const struct rp_gate *gate);

/* From inside, for a call that goes on: it may be closed when it is inside again. */
void rp_gate_step_out(struct rp_gate *gate);
void rp_gate_step_in(struct rp_gate *gate);
/* From inside: lets those who wait go first, and is inside again. */
void rp_gate_yield(struct rp_gate *gate);
int rp_gate_closed(const struct rp_gate *gate); /* inside only */

/* Enters, and refuses everybody from now on. 0: the caller is inside, and closes; else as enter: it
 * was closed before. Calls that stepped out are still under way: wake them, then drain. */
int rp_gate_close(struct rp_gate *gate);
/* The closer, from inside: waits until no call is under way but its own. */
void rp_gate_drain(struct rp_gate *gate);

#endif
