/* Words as in word.h. Where there is no futex, a wait takes the lock of the word's bucket, looks at
 * the word and only then sleeps. A waker changes the word first and takes the lock second. So
 * either the waker finds the sleeper asleep, or the sleeper finds the word changed.
 */
#include "os/word.h"

#include "os/posix.h"

#ifndef RP_POSIX

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void rp_word_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                            .tv_nsec = (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
            timeout_ns == RP_WORD_FOREVER ? NULL : &time, NULL, 0);
}

void rp_word_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void rp_word_wait_bits(_Atomic uint32_t *word, uint32_t value, uint32_t bits) {
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, NULL, NULL, bits);
}

void rp_word_wake_bits(_Atomic uint32_t *word, uint32_t bits) {
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, bits);
}

#else

#include <assert.h>
#include <pthread.h>
#include <time.h>

enum { BUCKETS = 64, SECONDS_MAX = 1 << 30 };

struct bucket {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct bucket buckets[BUCKETS];

/* Also in a forked child, where a lock may be held by a thread that is not there any more. */
static void make_buckets(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifndef __APPLE__ /* which has relative waits in its place */
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    for (int i = 0; i < BUCKETS; i++) {
        pthread_mutex_init(&buckets[i].lock, NULL);
        pthread_cond_init(&buckets[i].changed, &attributes);
    }
    pthread_condattr_destroy(&attributes);
}

static void begin(void) {
    make_buckets();
    int failed = pthread_atfork(NULL, NULL, make_buckets);
    assert(!failed);
}

static struct bucket *lock_bucket(const _Atomic uint32_t *word) {
    uint64_t address = (uintptr_t)word;
    struct bucket *bucket = &buckets[address * 0x9e3779b97f4a7c15u >> 58];
    pthread_once(&once, begin);
    pthread_mutex_lock(&bucket->lock);
    return bucket;
}

static void sleep_for(struct bucket *bucket, uint64_t timeout_ns) {
    uint64_t seconds = timeout_ns / 1000000000u;
    struct timespec time = {.tv_sec = (time_t)(seconds < SECONDS_MAX ? seconds : SECONDS_MAX),
                            .tv_nsec = (long)(timeout_ns % 1000000000u)};
#ifdef __APPLE__
    pthread_cond_timedwait_relative_np(&bucket->changed, &bucket->lock, &time);
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time.tv_sec += now.tv_sec;
    time.tv_nsec += now.tv_nsec;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&bucket->changed, &bucket->lock, &time);
#endif
}

void rp_word_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
    struct bucket *bucket = lock_bucket(word);
    if (atomic_load(word) == value) {
        sleep_for(bucket, timeout_ns);
    }
    pthread_mutex_unlock(&bucket->lock);
}

void rp_word_wake(_Atomic uint32_t *word) {
    struct bucket *bucket = lock_bucket(word);
    pthread_cond_broadcast(&bucket->changed);
    pthread_mutex_unlock(&bucket->lock);
}

void rp_word_wait_bits(_Atomic uint32_t *word, uint32_t value, uint32_t bits) {
    (void)bits; /* all are woken, and look again */
    rp_word_wait(word, value, RP_WORD_FOREVER);
}

void rp_word_wake_bits(_Atomic uint32_t *word, uint32_t bits) {
    (void)bits;
    rp_word_wake(word);
}

#endif
