/* Holds are counted under one lock, and the handler that fork calls first waits until there is none
 * but the forking thread's own. It keeps the lock until the fork is over, so no hold begins
 * meanwhile. A child has no other thread, hence no hold but its own, and a lock made anew: the old
 * one belongs to a thread of its parent's.
 */
#include "os/forks.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "os/system.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock;
static pthread_cond_t allowed; /* a hold has ended, and a fork may wait for it */
static uint32_t held;          /* by all threads */
static _Thread_local uint32_t own;
static void (*watcher)(void);

static void take(void) {
    int failed = pthread_mutex_lock(&lock);
    assert(!failed);
}

static void leave(void) {
    int failed = pthread_mutex_unlock(&lock);
    assert(!failed);
}

static void make_lock(void) {
    rp_mutex_make(&lock);
    int failed = pthread_cond_init(&allowed, NULL);
    assert(!failed);
}

static void before_fork(void) {
    take();
    while (held > own) {
        pthread_cond_wait(&allowed, &lock);
    }
}

static void in_child(void) {
    held = own;
    make_lock();
    if (watcher) {
        watcher();
    }
}

static void begin(void) {
    make_lock();
    int failed = pthread_atfork(before_fork, leave, in_child);
    assert(!failed);
}

void rp_forks_hold(void) {
    pthread_once(&once, begin);
    take();
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
