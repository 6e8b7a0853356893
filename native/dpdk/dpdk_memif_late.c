/* Closing files that strangers sent. A stranger can make a close last as long as it likes: that of
 * a lingering socket with unsent data, that of a file of FUSE, and that of a local socket with such
 * a file still in its queue. A shutdown of a socket can last as well, since it wakes all that watch
 * the other end. So files that a memif peer sent, and sockets it sent messages to, are closed by
 * threads of their own. These threads also take lent memory, before its file is closed, since that
 * can last too (dpdk_memif_lend.c). No other thread waits for them.
 *
 * Bounds: THREADS files are closed at a time, so that one file which does not close holds up no
 * other. While RP_LATE_MOST are not closed yet, no server of this process admits a peer, so four
 * servers never reach LATE. A file beyond LATE stays open, and is counted for good; its memory is
 * not lent.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "dpdk/dpdk_memif.h"
#include "os/thread.h"

enum { THREADS = RP_LATE_MOST, LATE = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late {
    int file;
    struct rp_memif_loan *loan; /* or null */
    int is_shut; /* it is shut down first, so that its other end learns of it */
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

static void start_one(void) {
    pthread_t thread;
    if (waiting && threads < THREADS && rp_thread_start(&thread, NULL, close_late, NULL) == 0) {
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
