/* Which of many sockets have something, and a second's tick: epoll(7) and timerfd on Linux, else
 * poll(2) over a list, and the clock.
 *
 * Used by one thread at a time, but for rp_ready_sleep: one other thread may sleep meanwhile. What
 * is added or changed then counts in its sleep too. A socket is reported again and again while it
 * has something.
 */
#ifndef RP_OS_READY_H
#define RP_OS_READY_H

#include <stdint.h>

#include "os/posix.h"
#ifdef RP_POSIX
#include <pthread.h>
#endif
#include "os/wake.h"

enum rp_ready_events { RP_READY_IN = 1, RP_READY_OUT = 2 }; /* IN: also an end, or an error */
#define RP_READY_SECOND UINT32_MAX /* the key of the tick: another second has passed */

struct rp_ready_event {
    uint32_t key; /* as it was added with */
    uint32_t events;
};

struct rp_ready {
#ifndef RP_POSIX
    int poll, timer;
#else
    struct pollfd *waits;
    uint32_t *keys;
    uint32_t count, capacity, first; /* of the next look, so that each has its turn */
    uint64_t ticked_ns;
    pthread_mutex_t lock;            /* of all above where it is changed, and of `sleeper` */
    const struct rp_wake *sleeper;   /* ends the sleep under way; null: there is none */
    struct pollfd *asleep;           /* the sleeper's own: its wake, then a copy of `waits` */
#endif
};

/* For `capacity` sockets at most. 0, or -1 with errno. */
int rp_ready_open(struct rp_ready *ready, uint32_t capacity);
void rp_ready_close(struct rp_ready *ready);
/* `events`: what is looked for; 0: an end or an error alone. 0, or -1 with errno. */
int rp_ready_add(struct rp_ready *ready, int socket, uint32_t key, uint32_t events);
void rp_ready_change(struct rp_ready *ready, int socket, uint32_t key, uint32_t events);
void rp_ready_remove(struct rp_ready *ready, int socket); /* before it is closed */
/* What there is now, `count` of it at most. */
uint32_t rp_ready_look(struct rp_ready *ready, struct rp_ready_event *events, uint32_t count);
/* Whole seconds since the last call that returned any, or since open. */
uint32_t rp_ready_seconds(struct rp_ready *ready);
/* As rp_wake_sleep, for all of them: 1 where there is something to look at. It may return early. */
int rp_ready_sleep(struct rp_ready *ready, const struct rp_wake *wake, uint64_t timeout_ns);

#endif
