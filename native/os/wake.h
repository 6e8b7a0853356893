/* Sleeping that another thread can end: an eventfd, or a pipe, beside at most one socket.
 *
 * rp_wake_set makes the sleep under way, or the next one, return at once. One thread sleeps, any
 * may wake it. Time is a duration here: nothing reads a clock.
 */
#ifndef RP_OS_WAKE_H
#define RP_OS_WAKE_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "os/posix.h"

#ifdef RP_POSIX
#include <fcntl.h>
#include <limits.h>
#else
#include <sys/eventfd.h>
#endif

struct rp_wake { /* one descriptor, or the two of a pipe; -1: not open */
    int read, set;
};

static inline void rp_wake_close(struct rp_wake *wake) {
    if (wake->read >= 0) {
        close(wake->read);
    }
    if (wake->set >= 0 && wake->set != wake->read) {
        close(wake->set);
    }
    wake->read = wake->set = -1;
}

/* 0, or -1 with errno. */
static inline int rp_wake_open(struct rp_wake *wake) {
#ifndef RP_POSIX
    wake->read = wake->set = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return wake->read < 0 ? -1 : 0;
#else
    int ends[2] = {-1, -1};
    int failed = pipe(ends) < 0;
    for (int i = 0; i < 2 && !failed; i++) {
        failed = fcntl(ends[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[i], F_SETFL, O_NONBLOCK) < 0;
    }
    *wake = (struct rp_wake){.read = ends[0], .set = ends[1]};
    if (failed) {
        rp_wake_close(wake);
    }
    return failed ? -1 : 0;
#endif
}

static inline void rp_wake_set(const struct rp_wake *wake) {
    uint64_t one = 1;
    ssize_t written = write(wake->set, &one, sizeof one);
    (void)written; /* it fails only when there is no room: then it is set anyway */
}

enum { RP_POLL_NAP_NS = 10000000 };

/* poll(2) of a duration; where only milliseconds can be had, not shorter than it. A process whose
 * limit of open files has become less than `count` is answered EINVAL, after a nap: its caller asks
 * again at once. */
static inline int rp_poll(struct pollfd *waits, nfds_t count, uint64_t timeout_ns) {
#ifndef RP_POSIX
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                            .tv_nsec = (long)(timeout_ns % 1000000000u)};
    int found = ppoll(waits, count, &time, NULL);
#else
    uint64_t ms = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0);
    int found = poll(waits, count, ms < INT_MAX ? (int)ms : INT_MAX);
#endif
    if (found < 0 && errno == EINVAL) {
        struct timespec nap = {.tv_nsec = timeout_ns < RP_POLL_NAP_NS ? (long)timeout_ns
                                                                      : RP_POLL_NAP_NS};
        (void)nanosleep(&nap, NULL);
    }
    return found;
}

/* All that was set is taken: an eventfd's count in one read, a pipe's words by the hundred. */
static inline void rp_wake_take(const struct rp_wake *wake) {
    uint64_t words[128];
    while (read(wake->read, words, sizeof words) == (ssize_t)sizeof words) {
    }
}

/* Sleeps until `socket` (-1: none) is readable, `wake` is set, or the time is over. Returns 1 where
 * the socket is readable or has an error pending. */
static inline int rp_wake_sleep(const struct rp_wake *wake, int socket, uint64_t timeout_ns) {
    struct pollfd waits[2] = {{.fd = wake->read, .events = POLLIN},
                              {.fd = socket, .events = POLLIN}};
    int ready = rp_poll(waits, 2, timeout_ns);
    if (ready <= 0) {
        return 0; /* time is over, or a signal: the caller looks again either way */
    }
    if (waits[0].revents) {
        rp_wake_take(wake);
    }
    return waits[1].revents != 0;
}

#endif
