/* Closing what strangers filled. A close can last as long as its sender likes: that of a socket
 * with unsent data which lingers, that of a file of FUSE, and that of a local socket which still
 * has such a file in its queue; and so can telling the other end of a socket, which wakes all who
 * watch it. So files that a peer of memif sent, and sockets it sent messages
 * to, are closed by threads that do nothing else, but for memory: what can be held there is done
 * before its file is closed (dpdk_memif_lend.c). Nobody waits for them.
 *
 * Bounds: THREADS close at a time, so that one file which does not close holds up no other. While
 * RP_LATE_MOST are not closed yet, no server of this process lets anybody in, so four of them
 * never reach LATE. One more than those stays open, and is counted for good; nothing is lent.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "dpdk/dpdk_memif.h"

enum { THREADS = RP_LATE_MOST, LATE = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late {
    int file;
    struct rp_memif_loan *loan; /* or null */
    int is_shut; /* its other end is to be told */
} late[LATE];
static uint32_t waiting, threads;
static _Atomic uint32_t held;

static void *close_late(void *unused) {
    pthread_mutex_lock(&lock);
    while (waiting) {
        const struct late one = late[--waiting];
        pthread_mutex_unlock(&lock);
        if (one.is_shut) { /* others may have copies of it, a forked child say */
            (void)shutdown(one.file, SHUT_RDWR);
        }
        if (one.loan) {
            rp_loan_fulfil(one.loan);
        }
        rp_quiet_close(one.file);
        atomic_fetch_sub(&held, 1);
        pthread_mutex_lock(&lock);
    }
    threads--;
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Signals are for the threads of who serves. */
int rp_memif_start(pthread_t *thread, void *(*run)(void *argument), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void start_one(void) {
    pthread_t thread;
    if (waiting && threads < THREADS && rp_memif_start(&thread, close_late, NULL) == 0) {
        (void)pthread_detach(thread);
        threads++;
    }
}

static void add(int file, struct rp_memif_loan *loan, int is_shut) {
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&held, 1);
    if (waiting < LATE) {
        late[waiting++] = (struct late){file, loan, is_shut};
    }
    start_one(); /* else one of those closes it, or one that is started later */
    pthread_mutex_unlock(&lock);
}

void rp_late_lend(int file, struct rp_memif_loan *loan) {
    add(file, loan, 0);
}

void rp_late_go_on(void) {
    pthread_mutex_lock(&lock);
    start_one();
    pthread_mutex_unlock(&lock);
}

void rp_late_close(int file) {
    add(file, NULL, 0);
}

void rp_late_shut(int file) {
    add(file, NULL, 1);
}

uint32_t rp_late_count(void) {
    return atomic_load(&held);
}
