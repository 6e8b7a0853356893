/* A sleep over many sockets and the bursts of another thread share nothing but what they
 * should, and seconds are counted, in the Linux build and in the POSIX one.
 *
 * What another thread does while a sleeper is on its way into poll(2) is made certain: this program
 * has a poll and a ppoll of its own, which do it first. The storm at the end runs under the thread
 * sanitizer too (make native-tsan).
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "drive/clock.h"
#include "os/ready.h"

enum { SOCKETS = 8 };

static const uint64_t SECOND_NS = 1000000000u;

static struct rp_ready ready;
static struct rp_wake wake;
static int near[SOCKETS], far[SOCKETS];
static void (*beside)(void); /* what another thread does before the sleep begins; null: nothing */

/* ---- poll(2), with somebody beside it ---- */

static int polled(struct pollfd *waits, nfds_t count, const struct timespec *timeout) {
    struct timespec time = timeout ? *timeout : (struct timespec){0};
    int sleeps = !timeout || time.tv_sec || time.tv_nsec;
    if (sleeps && beside) {
        void (*once)(void) = beside;
        beside = NULL;
        once();
    }
    return (int)syscall(SYS_ppoll, waits, count, timeout ? &time : NULL, NULL, 0);
}

int poll(struct pollfd *waits, nfds_t count, int ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    return polled(waits, count, ms < 0 ? NULL : &time);
}

int ppoll(struct pollfd *waits, nfds_t count, const struct timespec *timeout,
          const sigset_t *mask) {
    CHECK(mask == NULL);
    return polled(waits, count, timeout);
}

/* ---- a world ---- */

static void open_all(void) {
    CHECK(rp_ready_open(&ready, SOCKETS) == 0 && rp_wake_open(&wake) == 0);
    for (uint32_t i = 0; i < SOCKETS; i++) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        near[i] = ends[0];
        far[i] = ends[1];
    }
}

static void close_all(void) {
    for (uint32_t i = 0; i < SOCKETS; i++) {
        close(near[i]);
        close(far[i]);
    }
    rp_ready_close(&ready);
    rp_wake_close(&wake);
}

static int is_set(void) {
    struct pollfd there = {.fd = wake.read, .events = POLLIN};
    return poll(&there, 1, 0) == 1;
}

/* Keys that a look reports, but for the tick's. */
static uint32_t look(void) {
    struct rp_ready_event events[SOCKETS + 1];
    uint32_t keys = 0, count = rp_ready_look(&ready, events, SOCKETS + 1);
    for (uint32_t i = 0; i < count; i++) {
        keys |= events[i].key < SOCKETS ? 1u << events[i].key : 0;
    }
    return keys;
}

/* ---- beside a sleep ---- */

static void a_look(void) {
    (void)look();
}

/* Given a look of another thread's while a sleeper is on its way. Expect the sleeper to keep its
 * wake: one that is lost is left set. */
static void check_look_beside(void) {
    open_all();
    CHECK(rp_ready_add(&ready, near[0], 0, RP_READY_IN) == 0);
    rp_wake_set(&wake);
    beside = a_look;
    (void)rp_ready_sleep(&ready, &wake, 20 * SECOND_NS);
    CHECK(!beside && !is_set(), "the sleep did not see its wake");
    close_all();
    check_group("a look beside a sleep leaves it its wake");
}

static void add_one(void) {
    CHECK(rp_ready_add(&ready, near[1], 1, RP_READY_IN) == 0);
}

static void ask_for_room(void) {
    rp_ready_change(&ready, near[1], 1, RP_READY_OUT);
}

static void close_one(void) {
    rp_ready_remove(&ready, near[1]);
    close(near[1]);
    near[1] = -1;
}

/* Given a socket that is added, asked for more, or taken out while another thread is on its way to
 * sleep. Expect what there is now to end the sleep, not the tick a second later, and then nothing
 * of what was taken out. The tick may come first on a machine that is busy: it is tried again. */
static void check_change_beside(void (*change)(void), uint32_t expected) {
    int ended = 0;
    for (int tries = 0; !ended && tries < 20; tries++) {
        open_all();
        CHECK(rp_ready_add(&ready, near[0], 0, RP_READY_IN) == 0);
        CHECK(change == add_one || rp_ready_add(&ready, near[1], 1, 0) == 0);
        CHECK(change != add_one || write(far[1], "x", 1) == 1);
        CHECK(change != close_one || write(far[0], "x", 1) == 1);
        beside = change;
        (void)rp_ready_sleep(&ready, &wake, 20 * SECOND_NS);
        ended = rp_ready_seconds(&ready) == 0;
        CHECK(look() == expected && !beside);
        close_all();
    }
    CHECK(ended, "only the tick ended a sleep");
}

/* ---- seconds ---- */

static void pass(uint64_t ns) {
    struct timespec time = {.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
    while (nanosleep(&time, &time) != 0) {
    }
}

/* Given seconds that are asked for at odd moments. Expect all that have passed: what is left of one
 * counts for the next. */
static void check_seconds(void) {
    open_all();
    uint64_t begin = rp_clock_ns();
    pass(SECOND_NS * 16 / 10);
    uint64_t seconds = rp_ready_seconds(&ready);
    pass(SECOND_NS * 5 / 10);
    uint64_t passed = (rp_clock_ns() - begin) / SECOND_NS;
    seconds += rp_ready_seconds(&ready);
    CHECK(passed >= 2 && seconds >= passed, "%d of %d", (int)seconds, (int)passed);
    close_all();
    check_group("no part of a second is lost");
}

/* Given a sleep of which the tick alone is the end. Expect it to say that there is something. */
static void check_tick(void) {
    open_all();
    int some = 0;
    for (int sleeps = 0; !some && sleeps < 1000; sleeps++) {
        some = rp_ready_sleep(&ready, &wake, 20 * SECOND_NS);
    }
    CHECK(some, "a second has passed, and nobody says so");
    CHECK(rp_ready_seconds(&ready) >= 1);
    close_all();
    check_group("a sleep says that a second has passed");
}

/* ---- many of them ---- */

static _Atomic int ends;

static void *sleep_on(void *argument) {
    (void)argument;
    while (!atomic_load(&ends)) {
        (void)rp_ready_sleep(&ready, &wake, 20 * SECOND_NS);
    }
    return NULL;
}

/* Given a sleeper, and bursts of another thread that add, change, look and take out. Expect neither
 * to write what the other reads, and every wake to arrive. */
static void check_storm(void) {
    pthread_t thread;
    open_all();
    CHECK(pthread_create(&thread, NULL, sleep_on, NULL) == 0);
    for (int i = 0, rounds = check_rounds(3000); i < rounds; i++) {
        uint32_t k = (uint32_t)i % SOCKETS;
        CHECK(rp_ready_add(&ready, near[k], k, RP_READY_IN) == 0);
        CHECK(look() == 0);
        rp_ready_change(&ready, near[k], k, RP_READY_IN | RP_READY_OUT);
        CHECK(look() == 1u << k);
        (void)rp_ready_seconds(&ready);
        rp_ready_remove(&ready, near[k]);
        if (i % 64 == 0) {
            sched_yield();
        }
    }
    atomic_store(&ends, 1);
    rp_wake_set(&wake);
    CHECK(pthread_join(thread, NULL) == 0);
    close_all();
    check_group("bursts beside a sleeper");
}

int main(void) {
    check_look_beside();
    check_change_beside(add_one, 1u << 1);
    check_change_beside(ask_for_room, 1u << 1);
    check_change_beside(close_one, 1u << 0);
    check_group("what is changed beside a sleep ends it");
    check_seconds();
    check_tick();
    check_storm();
    return check_done("test_ready");
}
