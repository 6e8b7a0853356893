/* The clock. It is read in drive/ and in os/ only, and by the data plane in dpdk/: engines get the
 * time from their caller, and a transport that waits leaves the clock to os/ (a sleep's end, a
 * second's tick). */
#ifndef RP_CLOCK_H
#define RP_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "base/minmax.h"

static inline uint64_t rp_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The time between two looks at a clock, at most `most`; 0 before the first look (0), and where the
 * clock went back. Of looks at two threads' clocks it says nothing but that it is within `most`. */
static inline uint64_t rp_clock_between(uint64_t before_ns, uint64_t now_ns, uint64_t most) {
    return before_ns != 0 && now_ns > before_ns ? rp_min(now_ns - before_ns, most) : 0;
}

/* How long the calling thread has run: not while it slept, or waited for a core. A system call. */
static inline uint64_t rp_clock_ran_ns(void) {
    struct timespec ran;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (uint64_t)ran.tv_sec * 1000000000u + (uint64_t)ran.tv_nsec;
}

#endif
