/* How a memif server and its peers wake each other, with no wait between its port and their files.
 *
 *     sleeper      how it asks to be called        by which file it is called     writer
 *     the server   flag of the ring it reads       an eventfd the peer sent       the peer
 *     a peer       flag of the ring it reads       a stream socket the peer sent  a caller, here
 *
 * The kernel keeps a list for each file, of all that watch it. A write to the file goes through
 * that list, and a thread that adds itself to the list, or removes itself, waits meanwhile. A peer
 * can make the lists of the files it sent millions long (an epoll may watch a file under many
 * numbers, and there may be many epolls). Going through such a list takes a processor hundreds of
 * milliseconds. So:
 *
 * To call a peer, a burst marks its lane's caller, a thread that does nothing else. The caller has
 * the peer's file until it is given the next one, and closes it (late). So no other thread waits
 * for the file, and a peer holds up only the calls of its own lane. The caller sends without
 * waiting. A peer that sent an eventfd is not called, as a write to that could wait for ever. A
 * long send takes processor time all the same, perhaps of the port's own core, where most kernels
 * do not interrupt it. So behind a send of more than LONG_NS the caller rests a hundred times as
 * long, even if another peer has the lane by then: all calls of a lane take a hundredth of one core
 * at most. A peer that is not called looks by itself, or sleeps on. A sent byte is this process's
 * memory until it is read, even if the peer has left: so no second call, and no second answer, is
 * sent before the first one is read.
 *
 * To be called by a peer, the peer's eventfd is put into an epoll of its own, an ear, and the ear
 * into the epoll that the port sleeps on. Those are the server's own files, with short lists. An
 * ear is taken out first, then closed (late) with the eventfd in it.
 */
#include <stdio.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dpdk/dpdk_memif.h"
#include "os/thread.h"

enum { NO_FILE = -1, AS_BEFORE = -2, END = -3 }; /* in place of a file */
enum { LONG_NS = 100000, RESTS = 100, SECOND_NS = 1000000000 };

/* ---- to call ---- */

uint64_t rp_memif_spent_ns(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

int rp_memif_is_read(int file) {
    int unread = 0;
    return ioctl(file, SIOCOUTQ, &unread) == 0 && unread == 0;
}

/* Returns until when to rest behind it; 0: it was short. A peer that has not read the last call
 * gets no other: when it reads that one it also finds the frames that have come since. */
static uint64_t send_call(int file) {
    uint64_t before = rp_memif_spent_ns();
    if (rp_memif_is_read(file)) {
        (void)send(file, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    uint64_t spent = rp_memif_spent_ns() - before;
    return spent > LONG_NS ? rp_wire_now_ns() + RESTS * spent : 0;
}

/* Waits until something has changed, or the rest is over; returns the end of the rest, or 0. */
static uint64_t await_turn(struct rp_memif_caller *caller, uint64_t rests_until) {
    const struct timespec until = {(time_t)(rests_until / SECOND_NS),
                                   (long)(rests_until % SECOND_NS)};
    if (!rests_until) {
        (void)sem_wait(&caller->turn);
        return 0;
    }
    (void)sem_clockwait(&caller->turn, CLOCK_MONOTONIC, &until);
    return rp_wire_now_ns() < rests_until ? rests_until : 0;
}

static void *send_calls(void *argument) {
    struct rp_memif_caller *caller = argument;
    uint64_t rests_until = 0;
    int file = NO_FILE, next;
    do {
        rests_until = await_turn(caller, rests_until);
        next = atomic_exchange(&caller->next, AS_BEFORE);
        if (next != AS_BEFORE) {
            if (file >= 0) {
                rp_late_close(file);
            }
            file = next;
        }
        int can_call = file >= 0 && !rests_until;
        if (can_call && atomic_exchange(&caller->is_due, 0)) { /* else it stays: no turn for it */
            rests_until = send_call(file);
        }
    } while (next != END);
    return NULL;
}

static void hand_over(struct rp_memif_caller *caller, int next) {
    int file = atomic_exchange(&caller->next, next);
    if (file >= 0) { /* of a peer that left before the thread heard of it */
        rp_late_close(file);
    }
    (void)sem_post(&caller->turn);
}

int rp_caller_start(struct rp_memif_caller *caller) {
    atomic_init(&caller->next, AS_BEFORE);
    atomic_init(&caller->is_due, 0);
    if (sem_init(&caller->turn, 0, 0)) {
        return -1;
    }
    if (rp_thread_start(&caller->thread, NULL, send_calls, caller)) {
        (void)sem_destroy(&caller->turn);
        return -1;
    }
    return 0;
}

void rp_caller_end(struct rp_memif_caller *caller) {
    hand_over(caller, END);
    pthread_join(caller->thread, NULL);
    (void)sem_destroy(&caller->turn);
}

void rp_caller_take(struct rp_memif_caller *caller, int file) {
    hand_over(caller, file);
}

void rp_caller_call(struct rp_memif_caller *caller) {
    if (!atomic_exchange(&caller->is_due, 1)) {
        (void)sem_post(&caller->turn);
    }
}

static int read_option(int file, int option, void *value, socklen_t size) {
    socklen_t got = size;
    return getsockopt(file, SOL_SOCKET, option, value, &got) == 0 && got == size;
}

/* Whether a peer can be called by that file: a stream socket, where a send does not wait, whatever
 * process has the other end. A datagram socket is refused: one without a name may be given a name
 * first, which is searched among the names of its network namespace, and the peer may have taken
 * any number of those. The other end must be of the process at the other end of `control`: else the
 * peer could hand over a connection to some service, and this process would be the one that sends
 * to it. */
int rp_call_is_socket(int file, int control) {
    struct ucred other = {0}, peer = {0};
    int domain = 0, type = 0;
    return read_option(file, SO_DOMAIN, &domain, sizeof domain) && domain == AF_UNIX
        && read_option(file, SO_TYPE, &type, sizeof type) && type == SOCK_STREAM
        && read_option(file, SO_PEERCRED, &other, sizeof other)
        && read_option(control, SO_PEERCRED, &peer, sizeof peer)
        && other.pid == peer.pid && other.uid == peer.uid;
}

/* ---- to be called ---- */

/* By which a peer calls. It may be any file: to ask one of FUSE whether it is readable can last. */
int rp_call_is_eventfd(int file) {
    static const char eventfd_name[] = "anon_inode:[eventfd]";
    char path[32], name[sizeof eventfd_name + 1];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return readlink(path, name, sizeof name) == sizeof eventfd_name - 1
        && memcmp(name, eventfd_name, sizeof eventfd_name - 1) == 0;
}

int rp_ear_open(int files, int file) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int ear = epoll_create1(EPOLL_CLOEXEC);
    if (ear < 0 || epoll_ctl(files, EPOLL_CTL_ADD, ear, &event)) {
        if (ear >= 0) {
            rp_quiet_close(ear);
        }
        return -1;
    }
    rp_forks_close(ear); /* a child that had it would keep the eventfd in it */
    (void)epoll_ctl(ear, EPOLL_CTL_ADD, file, &event); /* after that: then nothing waits for it */
    return ear;
}

void rp_ear_close(int files, int ear) {
    (void)epoll_ctl(files, EPOLL_CTL_DEL, ear, NULL);
    rp_late_close(ear);
}
