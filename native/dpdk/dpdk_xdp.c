/* What AF_XDP devices need beside their driver, DPDK 22.11's.
 *
 * When its device ends, or does not start, the driver removes whatever XDP program is on the
 * interface: also another process's, or a firewall's. So it does not run where it would not get the
 * interface for itself: where there is a program that is not AF_XDP's own, or where another process
 * has one of the queues. The program that a killed process left is taken over. If another program
 * has taken the place of ours since, or if the kernel does not say which is there, the driver is
 * ended in a network namespace that has none. If no such namespace can be had the driver is not
 * ended: its rings and sockets are taken from it.
 *
 * The kernel frees a closed socket's queue some time later, in a worker of its own. Until then the
 * next socket on that queue is refused, and a driver that meets that refusal goes on using freed
 * memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_parts.h"

enum { TRIES = 500, NAP_NS = 2000000, CHUNK = 4096, RING = 2, QUEUES_MAX = 1024 };

static int set(int file, int option, const void *value, socklen_t size) {
    return setsockopt(file, SOL_XDP, option, value, size);
}

/* Asks for the queue in a way that the kernel always refuses for a driver that copies, but only
 * after it has looked whether the queue is taken. 0: it is free; or EBUSY; or why it cannot be
 * asked for.
 *
 * A card's driver that needs no copy grants it: a free queue starts again, as it does once more for
 * the device that opens then. Nothing else is known that every kernel refuses so late. */
static int ask_for(unsigned interface, uint32_t queue, void *memory) {
    struct xdp_umem_reg umem = {.addr = (uintptr_t)memory, .len = 2 * CHUNK, .chunk_size = CHUNK};
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_ZEROCOPY,
                                   .sxdp_ifindex = interface, .sxdp_queue_id = queue};
    const int ring = RING;
    int file = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    int failed = file < 0 || set(file, XDP_UMEM_REG, &umem, sizeof umem)
        || set(file, XDP_UMEM_FILL_RING, &ring, sizeof ring)
        || set(file, XDP_UMEM_COMPLETION_RING, &ring, sizeof ring)
        || set(file, XDP_RX_RING, &ring, sizeof ring);
    int why = failed ? errno : 0;
    if (!failed && bind(file, (const struct sockaddr *)(const void *)&address, sizeof address) != 0
        && errno == EBUSY) {
        why = EBUSY;
    }
    if (file >= 0) {
        rp_quiet_close(file);
    }
    return why;
}

int rp_xdp_await(unsigned interface, uint32_t queues, uint32_t *queue) {
    const struct timespec nap = {0, NAP_NS};
    void *memory = mmap(NULL, 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    int why = memory == MAP_FAILED ? ENOMEM : 0;
    *queue = 0;
    for (uint32_t tries = 0; !why && *queue < queues;) {
        why = ask_for(interface, *queue, memory);
        if (why == EBUSY && ++tries < TRIES) {
            why = 0;
            nanosleep(&nap, NULL);
        } else if (!why) {
            ++*queue;
        }
    }
    if (memory != MAP_FAILED) {
        rp_quiet_unmap(memory, 2 * CHUNK);
    }
    return why;
}

static int check_program(const struct rp_netdev *link, char *why, size_t size) {
    char name[BPF_OBJ_NAME_LEN];
    if (!link->has_program) {
        return 0;
    }
    if (link->program && rp_bpf_name(link->program, name, sizeof name)) {
        snprintf(why, size, "%s has an XDP program, and this user may not see whose: AF_XDP needs "
                 "root, or CAP_NET_RAW, CAP_NET_ADMIN and CAP_SYS_ADMIN", link->name);
        return -1;
    }
    if (!link->program || strcmp(name, rp_bpf_own) != 0) {
        snprintf(why, size, "%s has an XDP program of another kind, %s, which AF_XDP would "
                 "replace: take another interface, or have who put it there remove it", link->name,
                 link->program ? name : "several");
        return -1;
    }
    return 0;
}

int rp_xdp_check(unsigned interface, uint32_t queues, char *why, size_t size) {
    struct rp_netdev link;
    uint32_t taken;
    int failed = rp_netdev_read(interface, &link);
    if (failed) {
        snprintf(why, size, "the kernel does not tell of the interface: %s", strerror(-failed));
        return -1;
    }
    if (check_program(&link, why, size)) {
        return -1;
    }
    queues = rp_max(link.queues, queues);
    failed = rp_xdp_await(interface, rp_min(queues, QUEUES_MAX), &taken);
    if (failed == EBUSY) {
        snprintf(why, size, "a socket of another process, or of this one, has queue %u of %s over "
                 "AF_XDP, and two cannot: close it, or take another interface", taken, link.name);
    } else if (failed) {
        snprintf(why, size, "AF_XDP does not start on %s: it needs root, or CAP_NET_RAW, "
                 "CAP_NET_ADMIN and CAP_SYS_ADMIN (%s)", link.name, strerror(failed));
    }
    return failed ? -1 : 0;
}

/* Whether what its driver would remove there is its own. Of an interface that is gone it removes
 * nothing. */
static int may_remove(unsigned interface, uint32_t program) {
    char name[BPF_OBJ_NAME_LEN];
    struct rp_netdev link;
    int failed = rp_netdev_read(interface, &link);
    if (failed || !link.has_program) {
        return !failed || failed == -ENODEV;
    }
    return program ? link.program == program
        : link.program && !rp_bpf_name(link.program, name, sizeof name)
          && strcmp(name, rp_bpf_own) == 0;
}

enum rp_xdp_end rp_xdp_hide(unsigned interface, uint32_t program, int *here) {
    *here = -1;
    if (may_remove(interface, program)) {
        return RP_XDP_END_IT;
    }
    *here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (*here >= 0 && unshare(CLONE_NEWNET)) {
        rp_quiet_close(*here);
        *here = -1;
    }
    return *here < 0 ? RP_XDP_LEAVE_IT : RP_XDP_HIDDEN;
}

void rp_xdp_unhide(int here) {
    if (here >= 0) {
        (void)setns(here, CLONE_NEWNET);
        rp_quiet_close(here);
    }
}
