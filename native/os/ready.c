/* Readiness as in ready.h: what epoll keeps in the kernel, poll(2) is given anew at each look.
 *
 * poll writes into the list that it is given. So a sleeper gives it a list of its own, copied under
 * a lock that nobody holds while polling. A change made while it sleeps wakes it, since its copy
 * does not have that: its caller looks again, and sleeps on a new copy.
 */
#include "os/ready.h"

#ifndef RP_POSIX

#include <stddef.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

enum { AT_ONCE = 32 };

static int control(struct rp_ready *ready, int operation, int file, uint32_t key, uint32_t events) {
    struct epoll_event event = {.data.u32 = key};
    event.events = (events & RP_READY_IN ? (uint32_t)EPOLLIN : 0)
        | (events & RP_READY_OUT ? (uint32_t)EPOLLOUT : 0);
    return epoll_ctl(ready->poll, operation, file, &event);
}

int rp_ready_open(struct rp_ready *ready, uint32_t capacity) {
    struct itimerspec seconds = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
    (void)capacity;
    ready->poll = epoll_create1(EPOLL_CLOEXEC);
    ready->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (ready->poll < 0 || ready->timer < 0 || timerfd_settime(ready->timer, 0, &seconds, NULL) < 0
        || control(ready, EPOLL_CTL_ADD, ready->timer, RP_READY_SECOND, RP_READY_IN) < 0) {
        rp_ready_close(ready);
        return -1;
    }
    return 0;
}

void rp_ready_close(struct rp_ready *ready) {
    if (ready->timer >= 0) {
        close(ready->timer);
    }
    if (ready->poll >= 0) {
        close(ready->poll);
    }
    ready->timer = ready->poll = -1;
}

int rp_ready_add(struct rp_ready *ready, int socket, uint32_t key, uint32_t events) {
    return control(ready, EPOLL_CTL_ADD, socket, key, events);
}

void rp_ready_change(struct rp_ready *ready, int socket, uint32_t key, uint32_t events) {
    (void)control(ready, EPOLL_CTL_MOD, socket, key, events);
}

void rp_ready_remove(struct rp_ready *ready, int socket) {
    (void)epoll_ctl(ready->poll, EPOLL_CTL_DEL, socket, NULL);
}

uint32_t rp_ready_look(struct rp_ready *ready, struct rp_ready_event *events, uint32_t count) {
    struct epoll_event ready_now[AT_ONCE];
    int found = epoll_wait(ready->poll, ready_now, count < AT_ONCE ? (int)count : AT_ONCE, 0);
    for (int i = 0; i < found; i++) {
        uint32_t other = ready_now[i].events & ~(uint32_t)EPOLLOUT;
        events[i].key = ready_now[i].data.u32;
        events[i].events = (ready_now[i].events & EPOLLOUT ? (uint32_t)RP_READY_OUT : 0)
            | (other ? (uint32_t)RP_READY_IN : 0);
    }
    return found > 0 ? (uint32_t)found : 0;
}

uint32_t rp_ready_seconds(struct rp_ready *ready) {
    uint64_t seconds;
    return read(ready->timer, &seconds, sizeof seconds) == sizeof seconds ? (uint32_t)seconds : 0;
}

int rp_ready_sleep(struct rp_ready *ready, const struct rp_wake *wake, uint64_t timeout_ns) {
    return rp_wake_sleep(wake, ready->poll, timeout_ns);
}

#else

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/system.h"

static const uint64_t SECOND_NS = 1000000000u;

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

int rp_ready_open(struct rp_ready *ready, uint32_t capacity) {
    *ready = (struct rp_ready){.capacity = capacity, .ticked_ns = clock_ns()};
    ready->waits = calloc(capacity, sizeof *ready->waits);
    ready->keys = calloc(capacity, sizeof *ready->keys);
    ready->asleep = calloc(capacity + 1, sizeof *ready->asleep);
    rp_mutex_make(&ready->lock);
    if (!ready->waits || !ready->keys || !ready->asleep) {
        rp_ready_close(ready);
        return -1;
    }
    return 0;
}

/* In a forked child too, where a sleeper of the parent's may have the lock for ever: so that is not
 * destroyed, which frees nothing on the systems we know. */
void rp_ready_close(struct rp_ready *ready) {
    free(ready->waits);
    free(ready->keys);
    free(ready->asleep);
    memset(ready, 0, sizeof *ready);
}

static void take(struct rp_ready *ready) {
    int failed = pthread_mutex_lock(&ready->lock);
    assert(!failed);
}

static void leave(struct rp_ready *ready) {
    int failed = pthread_mutex_unlock(&ready->lock);
    assert(!failed);
}

static void leave_changed(struct rp_ready *ready) {
    if (ready->sleeper) {
        rp_wake_set(ready->sleeper);
    }
    leave(ready);
}

static uint32_t place_of(const struct rp_ready *ready, int socket) {
    uint32_t place = 0;
    while (place < ready->count && ready->waits[place].fd != socket) {
        place++;
    }
    return place;
}

static void set(struct rp_ready *ready, uint32_t place, int socket, uint32_t key,
                uint32_t events) {
    ready->waits[place] = (struct pollfd){
        .fd = socket,
        .events = (short)((events & RP_READY_IN ? POLLIN : 0)
                          | (events & RP_READY_OUT ? POLLOUT : 0))};
    ready->keys[place] = key;
}

int rp_ready_add(struct rp_ready *ready, int socket, uint32_t key, uint32_t events) {
    if (ready->count == ready->capacity) {
        errno = ENOSPC;
        return -1;
    }
    take(ready);
    set(ready, ready->count++, socket, key, events);
    leave_changed(ready);
    return 0;
}

void rp_ready_change(struct rp_ready *ready, int socket, uint32_t key, uint32_t events) {
    uint32_t place = place_of(ready, socket);
    if (place < ready->count) {
        take(ready);
        set(ready, place, socket, key, events);
        leave_changed(ready);
    }
}

void rp_ready_remove(struct rp_ready *ready, int socket) {
    uint32_t place = place_of(ready, socket);
    if (place < ready->count) {
        take(ready);
        ready->waits[place] = ready->waits[--ready->count];
        ready->keys[place] = ready->keys[ready->count];
        leave_changed(ready);
    }
}

static uint64_t until_tick(const struct rp_ready *ready) {
    uint64_t now = clock_ns(), due = ready->ticked_ns + SECOND_NS;
    return now < due ? due - now : 0;
}

uint32_t rp_ready_look(struct rp_ready *ready, struct rp_ready_event *events, uint32_t count) {
    uint32_t found = 0;
    if (count && !until_tick(ready)) {
        events[found++] = (struct rp_ready_event){.key = RP_READY_SECOND, .events = RP_READY_IN};
    }
    if (poll(ready->waits, ready->count, 0) <= 0) {
        return found;
    }
    uint32_t place = ready->first;
    for (uint32_t i = 0; i < ready->count && found < count; i++) {
        place = (place + 1) % ready->count;
        short revents = ready->waits[place].revents;
        if (revents) {
            uint32_t in = revents & ~POLLOUT ? RP_READY_IN : 0;
            uint32_t out = revents & POLLOUT ? RP_READY_OUT : 0;
            events[found].key = ready->keys[place];
            events[found++].events = in | out;
        }
    }
    ready->first = place;
    return found;
}

uint32_t rp_ready_seconds(struct rp_ready *ready) {
    uint64_t seconds = until_tick(ready) ? 0 : (clock_ns() - ready->ticked_ns) / SECOND_NS;
    take(ready);
    ready->ticked_ns += seconds * SECOND_NS;
    leave(ready);
    return (uint32_t)seconds;
}

/* The sleeper's copy, with its wake before it; returns how many those are, and in *tick_ns how long
 * it is until a second has passed. */
static nfds_t lie_down(struct rp_ready *ready, const struct rp_wake *wake, uint64_t *tick_ns) {
    take(ready);
    uint32_t count = ready->count;
    ready->sleeper = wake;
    ready->asleep[0] = (struct pollfd){.fd = wake->read, .events = POLLIN};
    for (uint32_t i = 0; i < count; i++) { /* not the answers, which a look may be writing */
        ready->asleep[1 + i].fd = ready->waits[i].fd;
        ready->asleep[1 + i].events = ready->waits[i].events;
    }
    *tick_ns = until_tick(ready);
    leave(ready);
    return count + 1;
}

static int get_up(struct rp_ready *ready) {
    take(ready);
    ready->sleeper = NULL;
    int ticks = !until_tick(ready);
    leave(ready);
    return ticks;
}

int rp_ready_sleep(struct rp_ready *ready, const struct rp_wake *wake, uint64_t timeout_ns) {
    uint64_t tick_ns;
    nfds_t count = lie_down(ready, wake, &tick_ns);
    int polled = rp_poll(ready->asleep, count, timeout_ns < tick_ns ? timeout_ns : tick_ns);
    int woken = polled > 0 && ready->asleep[0].revents;
    int ticks = get_up(ready);
    if (woken) {
        rp_wake_take(wake);
    }
    return polled > woken || ticks;
}

#endif
