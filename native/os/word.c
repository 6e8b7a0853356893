/* Words as in word.h. Where there is no futex, a wait takes the lock of the word's bucket, looks at
 * the word and only then sleeps. A waker changes the word first and takes the lock second. So
 * either the waker finds the sleeper asleep, or the sleeper finds the word changed. Each sleeper
 * has a condition of its own, on its stack and in its bucket's list: so a wake ends the sleeps of
 * one word and of the bits that it names, and no others.
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

#include "os/system.h"

enum { BUCKETS = 64, SECONDS_MAX = 1 << 30 };

struct sleeper {
    const _Atomic uint32_t *word;
    uint32_t bits;
    pthread_cond_t woken;
    struct sleeper *before, *after; /* in its bucket */
};

struct bucket {
    pthread_mutex_t lock;
    struct sleeper *sleepers;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct bucket buckets[BUCKETS];

/* Also in a forked child, where a lock may be held by a thread that is not there any more, and
 * nobody sleeps. */
static void make_buckets(void) {
    for (int i = 0; i < BUCKETS; i++) {
        buckets[i].sleepers = NULL;
        rp_mutex_make(&buckets[i].lock);
    }
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
    int failed = pthread_mutex_lock(&bucket->lock);
    assert(!failed);
    return bucket;
}

static void leave_bucket(struct bucket *bucket) {
    int failed = pthread_mutex_unlock(&bucket->lock);
    assert(!failed);
}

static void lie_down(struct bucket *bucket, struct sleeper *sleeper) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifndef __APPLE__ /* which has relative waits in its place */
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    int failed = pthread_cond_init(&sleeper->woken, &attributes);
    assert(!failed);
    pthread_condattr_destroy(&attributes);
    sleeper->after = bucket->sleepers;
    if (sleeper->after) {
        sleeper->after->before = sleeper;
    }
    bucket->sleepers = sleeper;
}

static void get_up(struct bucket *bucket, struct sleeper *sleeper) {
    *(sleeper->before ? &sleeper->before->after : &bucket->sleepers) = sleeper->after;
    if (sleeper->after) {
        sleeper->after->before = sleeper->before;
    }
    pthread_cond_destroy(&sleeper->woken);
}

static void sleep_for(struct bucket *bucket, struct sleeper *sleeper, uint64_t timeout_ns) {
    uint64_t seconds = timeout_ns / 1000000000u;
    struct timespec time = {.tv_sec = (time_t)(seconds < SECONDS_MAX ? seconds : SECONDS_MAX),
                            .tv_nsec = (long)(timeout_ns % 1000000000u)};
#ifdef __APPLE__
    pthread_cond_timedwait_relative_np(&sleeper->woken, &bucket->lock, &time);
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time.tv_sec += now.tv_sec;
    time.tv_nsec += now.tv_nsec;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&sleeper->woken, &bucket->lock, &time);
#endif
}

static void wait_on(_Atomic uint32_t *word, uint32_t value, uint32_t bits, uint64_t timeout_ns) {
    struct bucket *bucket = lock_bucket(word);
    if (atomic_load(word) == value) {
        struct sleeper sleeper = {.word = word, .bits = bits};
        lie_down(bucket, &sleeper);
        sleep_for(bucket, &sleeper, timeout_ns);
        get_up(bucket, &sleeper);
    }
    leave_bucket(bucket);
}

void rp_word_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
    wait_on(word, value, UINT32_MAX, timeout_ns);
}

void rp_word_wake(_Atomic uint32_t *word) {
    rp_word_wake_bits(word, UINT32_MAX);
}

void rp_word_wait_bits(_Atomic uint32_t *word, uint32_t value, uint32_t bits) {
    wait_on(word, value, bits, RP_WORD_FOREVER);
}

void rp_word_wake_bits(_Atomic uint32_t *word, uint32_t bits) {
    struct bucket *bucket = lock_bucket(word);
    for (struct sleeper *each = bucket->sleepers; each; each = each->after) {
        if (each->word == word && each->bits & bits) {
            pthread_cond_signal(&each->woken);
        }
    }
    leave_bucket(bucket);
}

#endif
