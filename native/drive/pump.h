/* The pump: a thread that repeats the turns of a job until it is stopped. Spins, then sleeps.
 *
 * It knows nothing of servers and clients: a job is three functions. Signals are blocked in it, so
 * that they reach the program's own threads; but not those of a fault, which are its own.
 */
#ifndef RP_PUMP_H
#define RP_PUMP_H

#include <pthread.h>
#include <stdint.h>

struct rp_pump_job {
    uint32_t (*turn)(void *owner); /* returns what moved; 0: nothing */
    void (*sleep)(void *owner);    /* until something may have moved, or wake is called */
    void (*wake)(void *owner);     /* from another thread: ends the sleep under way, or the next */
    void *owner;
    uint64_t spin_ns; /* how long turns are repeated in vain before it sleeps */
    uint32_t busy_poll; /* 1: it never sleeps */
    int32_t core;     /* 1 + the core it is pinned to; 0: not pinned */
};

struct rp_pump {
    struct rp_pump_job job;
    pthread_t thread;
    _Atomic int stop;
    _Atomic uint32_t state; /* enum rp_pump_state; threads that wait for the end sleep on it */
};

enum rp_pump_state { RP_PUMP_NONE = 0, RP_PUMP_RUNS = 1, RP_PUMP_ENDS = 2 };

/* 0, -RP_BAD_ARGUMENT where the core cannot be had, -RP_SYSTEM. A running pump is left as it is.
 * RP_PENDING: another thread is stopping it. One thread at a time may call this. */
int rp_pump_start(struct rp_pump *pump, const struct rp_pump_job *job);
/* Returns when the thread has ended, or where there was none. From any thread, but not while the
 * caller holds a lock that a turn waits for. */
void rp_pump_stop(struct rp_pump *pump);
/* Returns when no thread is stopping it any more. */
void rp_pump_await(struct rp_pump *pump);

enum { RP_SPIN_LATE = 4, RP_SPIN_AGAIN = 64 };

/* What the waits so far say about the next one: how many in a row took longer than spinning. */
struct rp_spin {
    uint64_t for_ns; /* how long one looks again and again before one sleeps */
    uint32_t late;
};

/* Whether the wait is likely to end while spinning. After RP_SPIN_LATE late waits it is not:
 * spinning would only keep the core from the thread that is to answer. One wait of
 * RP_SPIN_AGAIN tries it again. */
static inline int rp_spin_pays(const struct rp_spin *spin) {
    return spin->late < RP_SPIN_LATE || spin->late % RP_SPIN_AGAIN == 0;
}

static inline void rp_spin_learn(struct rp_spin *spin, uint64_t waited_ns) {
    spin->late = waited_ns < spin->for_ns ? 0 : spin->late + 1;
}

/* A spinning loop's hint to its core. */
static inline void rp_pump_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

#endif
