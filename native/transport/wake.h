/* Sleeping that another thread can end: an eventfd beside at most one socket in ppoll(2).
 *
 * rp_wake_set makes the sleep under way, or the next one, return at once. One thread sleeps, any
 * may wake it. Time is a duration here: nothing reads a clock.
 */
#ifndef RP_WAKE_H
#define RP_WAKE_H

#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* A descriptor, or -1 with errno. The caller closes it. */
static inline int rp_wake_open(void) {
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

static inline void rp_wake_set(int wake) {
    uint64_t one = 1;
    ssize_t written = write(wake, &one, sizeof one);
    (void)written; /* it fails only when the counter is full: then it is set anyway */
}

/* Sleeps until `socket` (-1: none) is readable, `wake` is set, or the time is over. Returns 1 where
 * the socket is readable or has an error to tell. */
static inline int rp_wake_sleep(int wake, int socket, uint64_t timeout_ns) {
    struct pollfd waits[2] = {{.fd = wake, .events = POLLIN}, {.fd = socket, .events = POLLIN}};
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                            .tv_nsec = (long)(timeout_ns % 1000000000u)};
    int ready = ppoll(waits, 2, &time, NULL);
    if (ready <= 0) {
        return 0; /* time is over, or a signal: the caller looks again either way */
    }
    if (waits[0].revents) {
        uint64_t count;
        ssize_t taken = read(wake, &count, sizeof count);
        (void)taken;
    }
    return waits[1].revents != 0;
}

#endif
