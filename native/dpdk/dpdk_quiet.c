/* Memory that bursts use, and that another thread unmaps: DPDK's interrupt thread, when a memif
 * client's driver loses its server, or a memif server's own thread, when it loses a peer
 * (dpdk_memif_visitors.c). Both mark the link as down first. A burst that begins later sees the
 * mark and touches nothing. So before anything is closed or unmapped it is enough to wait until
 * every burst that runs now has ended. No burst ever waits.
 *
 * The driver does not wait by itself (DPDK 22.11). It is linked into this object, where its close()
 * and munmap() are these (-Wl,--wrap).
 * Bursts count their begin and end in plain stores; the order between a begin and the look at the
 * mark is enforced from the other side, by membarrier(2), or by fences where a kernel has none.
 */
#include <linux/membarrier.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dpdk/dpdk_parts.h"

enum { SPINS = 1000, QUIET_NAP_NS = 20000 };

int __real_close(int file);
int __wrap_close(int file);
int __real_munmap(void *address, size_t size);
int __wrap_munmap(void *address, size_t size);

int rp_burst_fences = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_bursts *ports;
static _Atomic uint64_t waits;

static int membarrier(int command) {
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

void rp_bursts_open(struct rp_bursts *bursts) {
    pthread_mutex_lock(&lock);
    rp_burst_fences = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
    bursts->next = ports;
    ports = bursts;
    pthread_mutex_unlock(&lock);
}

void rp_bursts_close(struct rp_bursts *bursts) {
    struct rp_bursts **at = &ports;
    pthread_mutex_lock(&lock);
    while (*at && *at != bursts) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = bursts->next;
    }
    pthread_mutex_unlock(&lock);
}

/* A burst moves a bounded number of frames and waits at most for another one's, so it ends. */
static void wait_for_end(const struct rp_bursts *bursts) {
    const struct timespec nap = {0, QUIET_NAP_NS};
    uint32_t begun = atomic_load_explicit(&bursts->count, memory_order_acquire);
    for (uint32_t tries = 0; begun % 2 != 0; tries++) {
        if (tries > SPINS) {
            nanosleep(&nap, NULL);
        }
        if (atomic_load_explicit(&bursts->count, memory_order_acquire) != begun) {
            return;
        }
    }
}

void rp_bursts_await(void) {
    pthread_mutex_lock(&lock);
    atomic_thread_fence(memory_order_seq_cst);
    if (!rp_burst_fences) {
        (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
    for (const struct rp_bursts *bursts = ports; bursts; bursts = bursts->next) {
        wait_for_end(bursts);
    }
    pthread_mutex_unlock(&lock);
}

static void wait_for_bursts(void) {
    waits++;
    rp_bursts_await();
}

int __wrap_close(int file) {
    wait_for_bursts();
    rp_forks_forget(file);
    rp_memif_closed(file);
    return __real_close(file);
}

int __wrap_munmap(void *address, size_t size) {
    wait_for_bursts();
    return __real_munmap(address, size);
}

void rp_quiet_close(int file) {
    rp_forks_forget(file);
    (void)__real_close(file);
}

void rp_quiet_unmap(void *address, size_t size) {
    (void)__real_munmap(address, size);
}

uint64_t rp_bursts_waits(void) {
    return waits;
}
