/* A ticket lock: a thread that comes takes a number, a thread that leaves calls the next one. The
 * thread that is next spins a little before it sleeps, since most turns are over in a microsecond;
 * the others sleep at once. All sleep on the number that is served. Each is woken by a bit of its
 * own, so that one leaving wakes one thread (beyond 32 in line, those 32 apart).
 *
 * No call is lost: a thread that goes to sleep raises `sleepers` and then looks at the number; a
 * thread that leaves raises the number and then looks at `sleepers`.
 *
 * Forks are counted by a handler of fork(2) itself, which costs a plain load at each entry where
 * getpid(2) would cost a system call.
 */
#include "drive/pump_gate.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "drive/pump.h"
#include "os/forks.h"
#include "os/word.h"
#include "protocol/status.h"

enum { SPINS_MAX = 100, BITS = 32 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* taken while forks are held */
static struct rp_gate *list;
static uint32_t forks; /* written in a child, before it has any thread but one */

/* ---- forks ---- */

static void take_list(void) {
    rp_forks_hold();
    int failed = pthread_mutex_lock(&list_lock);
    assert(!failed);
}

static void leave_list(void) {
    int failed = pthread_mutex_unlock(&list_lock);
    assert(!failed);
    rp_forks_allow();
}

/* The gates of the parent are let go of: they are in no list here. Nobody has its lock: who takes
 * that holds forks. */
static void in_child(void) {
    forks++;
    for (struct rp_gate *gate = list; gate; gate = gate->after) {
        gate->forked(gate->owner);
    }
    list = NULL;
}

static void watch_forks(void) {
    rp_forks_watch(in_child);
}

int rp_gate_forked(const struct rp_gate *gate) {
    return gate->forks != forks;
}

/* ---- life ---- */

void rp_gate_open(struct rp_gate *gate, void (*forked)(void *owner), void *owner) {
    pthread_once(&once, watch_forks);
    *gate = (struct rp_gate){.forked = forked, .owner = owner};
    take_list();
    gate->forks = forks;
    gate->after = list;
    if (list) {
        list->before = gate;
    }
    list = gate;
    leave_list();
}

void rp_gate_free(struct rp_gate *gate) {
    if (rp_gate_forked(gate)) {
        return;
    }
    take_list();
    *(gate->before ? &gate->before->after : &list) = gate->after;
    if (gate->after) {
        gate->after->before = gate->before;
    }
    leave_list();
}

/* ---- the lock ---- */

static void wait_for(struct rp_gate *gate, uint32_t ticket) {
    for (int spins = 0; spins < SPINS_MAX && ticket - atomic_load(&gate->serving) == 1; spins++) {
        rp_pump_relax();
    }
    if (atomic_load(&gate->serving) == ticket) {
        return;
    }
    atomic_fetch_add(&gate->sleepers, 1);
    for (uint32_t serving; (serving = atomic_load(&gate->serving)) != ticket;) {
        rp_word_wait_bits(&gate->serving, serving, 1u << ticket % BITS);
    }
    atomic_fetch_sub(&gate->sleepers, 1);
}

static void lock(struct rp_gate *gate) {
    uint32_t ticket = atomic_fetch_add(&gate->next, 1);
    if (atomic_load(&gate->serving) != ticket) {
        wait_for(gate, ticket);
    }
}

static void unlock(struct rp_gate *gate) {
    uint32_t serving = atomic_fetch_add(&gate->serving, 1) + 1;
    if (atomic_load(&gate->sleepers)) {
        rp_word_wake_bits(&gate->serving, 1u << serving % BITS);
    }
}

int rp_gate_enter(struct rp_gate *gate) {
    if (rp_gate_forked(gate)) {
        return -RP_FORKED;
    }
    lock(gate);
    if (gate->closed) {
        unlock(gate);
        return -RP_CLOSED;
    }
    return 0;
}

void rp_gate_leave(struct rp_gate *gate) {
    unlock(gate);
}

void rp_gate_step_out(struct rp_gate *gate) {
    atomic_fetch_add(&gate->outside, 1);
    unlock(gate);
}

void rp_gate_step_in(struct rp_gate *gate) {
    lock(gate);
    atomic_fetch_sub(&gate->outside, 1);
    if (gate->closed) {
        rp_word_wake(&gate->outside);
    }
}

void rp_gate_yield(struct rp_gate *gate) {
    if (atomic_load(&gate->next) - atomic_load(&gate->serving) > 1) {
        rp_gate_step_out(gate);
        rp_gate_step_in(gate);
    }
}

/* ---- closing ---- */

int rp_gate_closed(const struct rp_gate *gate) {
    return gate->closed;
}

int rp_gate_close(struct rp_gate *gate) {
    int status = rp_gate_enter(gate);
    if (!status) {
        gate->closed = 1;
    }
    return status;
}

void rp_gate_drain(struct rp_gate *gate) {
    uint32_t outside = atomic_load(&gate->outside);
    while (outside) {
        unlock(gate);
        rp_word_wait(&gate->outside, outside, RP_WORD_FOREVER);
        lock(gate);
        outside = atomic_load(&gate->outside);
    }
}
