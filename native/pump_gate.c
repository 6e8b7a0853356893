/* The lock spins a little before it sleeps (glibc's adaptive kind): most turns are over in a
 * microsecond. Forks are counted by a handler of fork(2) itself, which costs a plain load at each
 * entry where getpid(2) would cost a system call.
 */
#include "pump_gate.h"

#include <assert.h>
#include <sched.h>

#include "status.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t forks; /* written in a child, before it has any thread but one */

static void count_fork(void)
{
    forks++;
}

static void watch_forks(void)
{
    int failed = pthread_atfork(NULL, NULL, count_fork);
    assert(!failed);
}

void rp_gate_open(struct rp_gate *gate)
{
    pthread_mutexattr_t attributes;
    pthread_once(&once, watch_forks);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&gate->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    gate->wanted = 0;
    gate->forks = forks;
}

void rp_gate_close(struct rp_gate *gate)
{
    if (!rp_gate_forked(gate)) {
        pthread_mutex_destroy(&gate->lock);
    }
}

int rp_gate_forked(const struct rp_gate *gate)
{
    return gate->forks != forks;
}

int rp_gate_enter(struct rp_gate *gate)
{
    if (rp_gate_forked(gate)) {
        return -RP_FORKED;
    }
    if (pthread_mutex_trylock(&gate->lock) != 0) {
        gate->wanted++;
        pthread_mutex_lock(&gate->lock);
        gate->wanted--;
    }
    return 0;
}

void rp_gate_leave(struct rp_gate *gate)
{
    pthread_mutex_unlock(&gate->lock);
}

void rp_gate_yield(struct rp_gate *gate)
{
    if (!gate->wanted) {
        return;
    }
    pthread_mutex_unlock(&gate->lock);
    while (gate->wanted) { /* ends: each who waits gets the lock, which nobody else keeps */
        sched_yield();
    }
    pthread_mutex_lock(&gate->lock);
}
