/* Holds are counted under one lock, and the handler that fork calls first waits until there is none
 * but the forking thread's own. It keeps the lock until the fork is over, so no hold begins
 * meanwhile. A child has no other thread, hence no hold but its own, and a lock made anew: the old
 * one belongs to a thread of its parent's.
 *
 * Where holds of several threads overlap there may never be a moment without one. So a thread that
 * holds nothing lets a fork that waits go first: one, as forks of several threads overlap, too. A
 * thread that holds already is what the fork waits for, and goes on.
 *
 * Who has the lock hears no signal: its handler may fork, and would wait for its own thread.
 */
#include "os/forks.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "os/system.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock;
static pthread_cond_t allowed;   /* a hold has ended, and a fork may wait for it */
static pthread_cond_t forked;    /* a fork is over, and holds may wait for it */
static uint32_t held;            /* by all threads */
static _Atomic uint32_t waiting; /* forks that have not begun */
static uint32_t turn;            /* counts forks */
static int registered;
static _Thread_local uint32_t own;
static _Thread_local sigset_t heard; /* signals as they are outside the lock */
static void (*watcher)(void);

/* A fork is counted before it has the lock, which the others may have in turns. */
static void take_for(uint32_t forks) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    heard = before;
    atomic_fetch_add(&waiting, forks);
    int failed = pthread_mutex_lock(&lock);
    assert(!failed);
}

static void take(void) {
    take_for(0);
}

static void leave(void) {
    sigset_t after = heard;
    int failed = pthread_mutex_unlock(&lock);
    assert(!failed);
    (void)pthread_sigmask(SIG_SETMASK, &after, NULL);
}

static void make_lock(void) {
    rp_mutex_make(&lock);
    int failed = pthread_cond_init(&allowed, NULL) || pthread_cond_init(&forked, NULL);
    assert(!failed);
}

static void before_fork(void) {
    take_for(1);
    while (held > own) {
        pthread_cond_wait(&allowed, &lock);
    }
    atomic_fetch_sub(&waiting, 1);
}

static void after_fork(void) {
    turn++;
    pthread_cond_broadcast(&forked);
    leave();
}

/* The watcher may hold, which writes `heard`. */
static void in_child(void) {
    sigset_t after = heard;
    held = own;
    atomic_store(&waiting, 0);
    registered = 1;
    make_lock();
    if (watcher) {
        watcher();
    }
    (void)pthread_sigmask(SIG_SETMASK, &after, NULL);
}

/* Where another thread forks while this runs, the child runs it again, with the handlers there
 * already: fork calls each as often as it is registered. */
static void begin(void) {
    if (!registered) {
        make_lock();
        int failed = pthread_atfork(before_fork, after_fork, in_child);
        assert(!failed);
    }
}

void rp_forks_hold(void) {
    pthread_once(&once, begin);
    take();
    uint32_t seen = turn;
    while (own == 0 && atomic_load(&waiting) && turn == seen) {
        pthread_cond_wait(&forked, &lock);
    }
    held++;
    own++;
    leave();
}

void rp_forks_allow(void) {
    assert(own > 0);
    take();
    held--;
    own--;
    pthread_cond_broadcast(&allowed);
    leave();
}

void rp_forks_watch(void (*function)(void)) {
    rp_forks_hold();
    watcher = function;
    rp_forks_allow();
}
