/* What AF_XDP devices need beside their driver, DPDK 22.11's: the kernel lets go of a closed
 * socket's queue some time later, in a worker of its own. The next socket on that queue is refused
 * till then, and the driver goes on using freed memory where it meets that refusal: so it must not
 * meet it.
 */
#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dpdk_parts.h"

enum { TRIES = 500, NAP_NS = 2000000, CHUNK = 4096, RING = 2 };

static int set(int file, int option, const void *value, socklen_t size)
{
    return setsockopt(file, SOL_XDP, option, value, size);
}

/* Asks for the queue in a way that a driver which copies always refuses, after it looked whether
 * the queue is taken. 1: it is. */
static int is_taken(unsigned interface, uint32_t queue, void *memory)
{
    struct xdp_umem_reg umem = {.addr = (uintptr_t)memory, .len = 2 * CHUNK, .chunk_size = CHUNK};
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_ZEROCOPY,
                                   .sxdp_ifindex = interface, .sxdp_queue_id = queue};
    const int ring = RING;
    int file = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    int taken = file >= 0 && !set(file, XDP_UMEM_REG, &umem, sizeof umem)
        && !set(file, XDP_UMEM_FILL_RING, &ring, sizeof ring)
        && !set(file, XDP_UMEM_COMPLETION_RING, &ring, sizeof ring)
        && !set(file, XDP_RX_RING, &ring, sizeof ring)
        && bind(file, (const struct sockaddr *)(const void *)&address, sizeof address) != 0
        && errno == EBUSY;
    if (file >= 0) {
        close(file);
    }
    return taken;
}

void rp_xdp_await(const char *interface, uint32_t queues)
{
    const struct timespec nap = {0, NAP_NS};
    void *memory = mmap(NULL, 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    if (memory == MAP_FAILED) {
        return;
    }
    for (uint32_t queue = 0, tries = 0; queue < queues && tries < TRIES;) {
        if (is_taken(if_nametoindex(interface), queue, memory)) {
            tries++;
            nanosleep(&nap, NULL);
        } else {
            queue++;
        }
    }
    munmap(memory, 2 * CHUNK);
}
