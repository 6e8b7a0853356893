/* Closing what strangers filled. A close can last as long as its sender likes: that of a socket
 * with unsent data which lingers, that of a file of FUSE, and that of a local socket which still
 * has such a file in its queue. So files that a peer of memif sent, and sockets it sent messages
 * to, are closed by threads that do nothing else. Nobody waits for them.
 *
 * Bounds: THREADS close at a time, so that one file which does not close holds up no other. While
 * RP_LATE_MOST are not closed yet, no server lets anybody in, so four servers of a
 * process never reach LATE. One more than those stays open, and is counted for good.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "dpdk/dpdk_memif.h"

enum { THREADS = 32, LATE = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int late[LATE];
static uint32_t waiting, threads;
static _Atomic uint32_t held;

static void *close_late(void *unused)
{
    pthread_mutex_lock(&lock);
    while (waiting) {
        int file = late[--waiting];
        pthread_mutex_unlock(&lock);
        rp_quiet_close(file);
        atomic_fetch_sub(&held, 1);
        pthread_mutex_lock(&lock);
    }
    threads--;
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Signals are for the threads of who serves. */
int rp_memif_start(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

void rp_late_close(int file)
{
    pthread_t thread;
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&held, 1);
    if (waiting < LATE) {
        late[waiting++] = file;
    }
    if (threads < THREADS && rp_memif_start(&thread, close_late, NULL) == 0) {
        (void)pthread_detach(thread);
        threads++;
    } /* else it is closed by one of those, or with the next file */
    pthread_mutex_unlock(&lock);
}

uint32_t rp_late_count(void)
{
    return atomic_load(&held);
}
