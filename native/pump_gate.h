/* The gate: the one lock of a service or a link, polite and aware of forks.
 *
 * Whoever turns or posts is inside, for one turn or one post. A driver that turns without a pause
 * would keep everybody else out of a plain mutex, so those who wait are counted, and a driver lets
 * them go first (rp_gate_yield). In a forked child every entry is refused: the thread that drove
 * the object, and perhaps held its lock, is not there.
 */
#ifndef RP_PUMP_GATE_H
#define RP_PUMP_GATE_H

#include <pthread.h>
#include <stdint.h>

struct rp_gate {
    pthread_mutex_t lock;
    _Atomic uint32_t wanted; /* threads that are waiting to enter */
    uint32_t forks;          /* forks that lay behind this process when the gate was opened */
};

void rp_gate_open(struct rp_gate *gate);
void rp_gate_close(struct rp_gate *gate); /* nobody is inside or waits */
/* 0: the caller is inside. -RP_FORKED: it is not, and never will be in this process. */
int rp_gate_enter(struct rp_gate *gate);
void rp_gate_leave(struct rp_gate *gate);
/* From inside: lets those who wait go first, and is inside again. */
void rp_gate_yield(struct rp_gate *gate);
int rp_gate_forked(const struct rp_gate *gate);

#endif
