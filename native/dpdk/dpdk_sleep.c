/* How a port sleeps until something can be received.
 *
 * Some devices have a file that becomes readable: raw sockets and AF_XDP have one for each queue,
 * and peers of memif write to one where their ring's flag asks for it (dpdk_memif_serve.c,
 * dpdk_memif_bell.c). The port sleeps on an epoll of that file and of its own `wake`. Before it
 * sleeps it asks its peers for calls, and then looks for frames once more, so that no frame is
 * missed in between. Other devices have no such file: there the port takes naps.
 *
 * Every sleep has a bound, as a call can be lost: PAUSES below. The first sleep behind something
 * received is the shortest; each sleep in vain is twice as long as the one before. So a lost call
 * costs a busy port little, and an idle port sleeps long. A file may be readable where nothing
 * comes (no mbuf is free, or its socket failed): then the port takes a nap, so no file keeps a core
 * busy.
 *
 * One thread sleeps. Another one may run bursts meanwhile: state that both use is atomic.
 */
#include <errno.h>
#include <rte_ring.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/minmax.h"
#include "dpdk/dpdk_memif.h"
#include "dpdk/dpdk_sleep.h"

static const struct pauses {
    uint64_t least_ns, most_ns;
} naps = {4000, 200000}, sleeps = {100000, 10000000};

enum { SLACK_NS = 1000, SECOND_NS = 1000000000, MS_NS = 1000000, EVENTS = 8, WAKE = 1 };

static int add(int files, int file, uint32_t events, uint64_t what) {
    struct epoll_event event = {.events = events, .data.u64 = what};
    return epoll_ctl(files, EPOLL_CTL_ADD, file, &event);
}

/* An epoll reports its events once, and it is never read: so it is set until then, not after. */
int rp_sleep_files(int *files, int *wake) {
    *files = epoll_create1(EPOLL_CLOEXEC);
    *wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (*files >= 0 && *wake >= 0 && add(*files, *wake, EPOLLIN | EPOLLET, WAKE) == 0) {
        return 0;
    }
    rp_sleep_unfile(files, wake);
    return -1;
}

void rp_sleep_unfile(int *files, int *wake) {
    if (*files >= 0) {
        rp_quiet_close(*files);
    }
    if (*wake >= 0) {
        rp_quiet_close(*wake);
    }
    *files = *wake = -1;
}

/* Of a device whose sockets are listed: the one of this queue, as they were opened one by one. */
static int socket_of(const struct rp_wire *wire) {
    const struct rp_sockets *sockets = wire->sockets;
    uint32_t queues = wire->queues ? wire->queues->count : 1;
    return sockets && sockets->count == queues ? sockets->list[wire->lanes[0].queue].file : -1;
}

int rp_sleep_open(struct rp_sleep *sleep, struct rp_wire *wire) {
    sleep->files = sleep->wake = sleep->socket = -1;
    rp_bursts_open(&sleep->looks);
    if (wire->served) {
        rp_memif_files(wire->served, &sleep->files, &sleep->wake);
        sleep->is_lent = 1;
        return 0;
    }
    sleep->socket = socket_of(wire);
    int file = wire->bell ? wire->bell->pair[0] : sleep->socket;
    if (file < 0) {
        return 0; /* naps */
    }
    if (rp_sleep_files(&sleep->files, &sleep->wake)) {
        return -1;
    }
    if (add(sleep->files, file, EPOLLIN, 0)) {
        rp_sleep_unfile(&sleep->files, &sleep->wake);
        return -1;
    }
    atomic_store(&wire->seat.wake, sleep->wake);
    return 0;
}

void rp_sleep_forget(struct rp_sleep *sleep) {
    if (!sleep->is_lent) {
        rp_sleep_unfile(&sleep->files, &sleep->wake);
    }
}

void rp_sleep_close(struct rp_sleep *sleep) {
    rp_bursts_close(&sleep->looks);
    rp_sleep_forget(sleep);
}

void rp_sleep_wake(const struct rp_sleep *sleep) {
    if (sleep->wake >= 0) {
        (void)eventfd_write(sleep->wake, 1);
    } /* else no nap is long */
}

/* Not even the caller's timer slack, 50 us of default, is added to so short a time. */
static void nap(uint64_t ns) {
    struct timespec time = {0, (long)ns};
    int slack = prctl(PR_GET_TIMERSLACK);
    if (slack > SLACK_NS) {
        (void)prctl(PR_SET_TIMERSLACK, SLACK_NS);
    }
    (void)nanosleep(&time, NULL);
    if (slack > SLACK_NS) {
        (void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
    }
}

/* Says whether peers are to wake this port from now on. 1: frames have come meanwhile; -1: no peer
 * can wake it. The memory looked at is another process's, and unmapped when that process ends. */
static int ask(struct rp_sleep *sleep, struct rp_wire *wire, int on) {
    int some = 0;
    rp_burst_begin(&sleep->looks);
    if (wire->served) {
        some = rp_memif_ask(wire->served, on);
    } else if (wire->bell) {
        some = rp_bell_ask(wire->bell, on);
    } else if (wire->share) {
        atomic_store(&wire->seat.is_asleep, on);
        some = on && rte_ring_count(wire->seat.ring) > 0;
    }
    rp_burst_end(&sleep->looks);
    return some;
}

static int wait_for_files(int files, struct epoll_event *events, uint64_t ns) {
    const struct timespec time = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
    int count = epoll_pwait2(files, events, EVENTS, &time, NULL);
    if (count < 0 && errno != EINTR) { /* a kernel before 5.11, or a container that forbids it */
        count = epoll_wait(files, events, EVENTS, (int)((ns + MS_NS - 1) / MS_NS));
    }
    return count;
}

/* 1: something other than `wake` ended it. */
static int sleep_for(struct rp_sleep *sleep, struct rp_wire *wire, uint64_t ns) {
    struct epoll_event events[EVENTS];
    int count = wait_for_files(sleep->files, events, ns), ready = 0;
    for (int i = 0; i < count; i++) {
        ready |= events[i].data.u64 != WAKE;
        if (events[i].events & EPOLLERR && sleep->socket >= 0) { /* its link went down: read once */
            int error;
            socklen_t size = sizeof error;
            (void)getsockopt(sleep->socket, SOL_SOCKET, SO_ERROR, &error, &size);
        }
    }
    if (ready && wire->bell) {
        rp_bell_clear(wire->bell);
    }
    if (count == 0) {
        atomic_store_explicit(&sleep->is_stale, 1, memory_order_relaxed);
    }
    return ready;
}

static uint64_t least(uint64_t one, uint64_t other) {
    return rp_min(one, other);
}

int rp_sleep_wait(struct rp_sleep *sleep, struct rp_wire *wire, uint64_t timeout_ns) {
    uint64_t received = atomic_load_explicit(&sleep->received, memory_order_relaxed);
    int in_vain = received == sleep->received_before, ready = 0;
    sleep->received_before = received;
    sleep->doublings = in_vain ? sleep->doublings + (sleep->doublings < 16) : 0;
    uint64_t pause = least(timeout_ns, least(naps.least_ns << sleep->doublings, naps.most_ns));
    if (sleep->files < 0 || (in_vain && sleep->was_ready)) {
        sleep->was_ready = 0;
        nap(pause);
        return 0;
    }
    int some = ask(sleep, wire, 1);
    if (some == 0) {
        ready = sleep_for(sleep, wire, least(timeout_ns, least(sleeps.least_ns << sleep->doublings,
                                                               sleeps.most_ns)));
    } else if (some < 0) {
        nap(pause);
    }
    (void)ask(sleep, wire, 0);
    sleep->was_ready = ready || some > 0;
    return sleep->was_ready;
}
