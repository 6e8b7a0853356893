/* How a memif client sleeps, and wakes its server. DPDK's driver polls alone (22.11), so what it
 * says as it connects is overheard (dpdk_gone.c): where its rings lie, and what it is called by.
 *
 * From its server: the client clears the flag of the ring it receives by, and the server, which
 * then finds it clear behind a burst, writes to the file it was told. That file is, in place of the
 * driver's eventfd, one end of a pair of stream sockets: the server can write there without ever
 * being held, which a peer's eventfd does not promise.
 * To its server: the driver looks at the other ring's flag itself, but without a fence between the
 * frames and that look, so it can miss a server that falls asleep just then. That is looked at
 * once more.
 *
 * A bell is a link's: it outlives connections. Its mapping is of a connection, and is unmapped when
 * the next one begins, behind every look at it (dpdk_quiet.c). Connections begin and speak in
 * DPDK's interrupt thread alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_memif.h"
#include "dpdk/memif.h"

enum {
    MAPPED = 1 << 16, /* of its region: rings of RP_MEMIF_RING_LOG2 lie there, in its beginning */
    HUSHED = 64,      /* calls that may have come before one was looked for */
};

int rp_bell_open(struct rp_memif_bell *bell) {
    memset(bell, 0, sizeof *bell);
    bell->pair[0] = bell->pair[1] = bell->server = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bell->pair)) {
        return -1;
    }
    bell->server = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); /* until there is one: its number */
    if (bell->server < 0) {
        rp_bell_close(bell);
        return -1;
    }
    return 0;
}

/* Nobody runs bursts, or sleeps: or, at the next connection, they do and see no ring any more. */
static void forget_rings(struct rp_memif_bell *bell) {
    atomic_store(&bell->from_server, NULL);
    atomic_store(&bell->to_server, NULL);
    if (bell->memory) {
        rp_bursts_await();
        rp_quiet_unmap(bell->memory, bell->size);
        bell->memory = NULL;
    }
}

void rp_bell_close(struct rp_memif_bell *bell) {
    forget_rings(bell);
    int files[] = {bell->pair[0], bell->pair[1], bell->server};
    for (int i = 0; i < 3; i++) {
        if (files[i] >= 0) {
            rp_quiet_close(files[i]);
        }
    }
    bell->control = 0;
    bell->pair[0] = bell->pair[1] = bell->server = -1;
}

void rp_bell_connected(struct rp_memif_bell *bell, int file) {
    struct rp_memif_bell *before = rp_memif_find_bell(file);
    if (before) { /* closed since, and its number is used again */
        before->control = 0;
    }
    forget_rings(bell);
    bell->control = file + 1;
}

/* ---- what the driver says ---- */

static void map(struct rp_memif_bell *bell, uint64_t size, int file) {
    size = rp_min(size, MAPPED);
    void *memory = bell->memory ? MAP_FAILED
        : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) {
        bell->memory = memory;
        bell->size = size;
    }
}

/* Its server takes no region with pages that are not there (dpdk_memif_lend.c). This client's
 * frames pass through all of them sooner or later. */
static void fill(uint64_t size, int file) {
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory != MAP_FAILED) {
        rp_quiet_unmap(memory, size);
    }
}

/* Returns the file to be sent in place of that one. */
static int meet(struct rp_memif_bell *bell, const struct rp_memif_ring_told *told, int file) {
    int lies_there = bell->memory && told->region == 0
        && (uint64_t)told->offset + RP_MEMIF_AT_SLOTS <= bell->size;
    uint8_t *ring = lies_there ? bell->memory + told->offset : NULL;
    if (!told->to_server) {
        bell->slots = 1u << told->log2;
        atomic_store(&bell->from_server, ring);
        return bell->pair[1];
    }
    if (dup3(file, bell->server, O_CLOEXEC) == bell->server) {
        atomic_store(&bell->to_server, ring);
    }
    return file;
}

ssize_t rp_bell_overhear(struct rp_memif_bell *bell, int to, const struct msghdr *message,
                         int flags) {
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct rp_memif_ring_told told;
    struct msghdr changed = *message;
    int file;
    const uint8_t *said = message->msg_iovlen == 1 ? message->msg_iov->iov_base : NULL;
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!said || message->msg_iov->iov_len != RP_MEMIF_MESSAGE || !header
        || header->cmsg_type != SCM_RIGHTS || message->msg_controllen < sizeof control) {
        return rp_memif_say(to, message, flags);
    }
    memcpy(&file, CMSG_DATA(header), sizeof file);
    if (rp_memif_region_told(said)) {
        fill(rp_memif_region_told(said), file);
        map(bell, rp_memif_region_told(said), file);
    } else if (rp_memif_ring_told(said, &told)) {
        file = meet(bell, &told, file);
    }
    memcpy(&control, header, sizeof control);
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    changed.msg_control = &control;
    changed.msg_controllen = sizeof control;
    return rp_memif_say(to, &changed, flags);
}

/* ---- sleeping, and waking the server ---- */

int rp_bell_ask(const struct rp_memif_bell *bell, int on) {
    uint8_t *ring = atomic_load_explicit(&bell->from_server, memory_order_acquire);
    if (!ring) {
        return -1;
    }
    rp_memif_let_call(ring, on);
    return on && rp_memif_room(ring) != bell->slots;
}

void rp_bell_hush(const struct rp_memif_bell *bell) {
    uint8_t calls[HUSHED];
    (void)recv(bell->pair[0], calls, sizeof calls, MSG_DONTWAIT);
}

int rp_bell_is_wanted(const struct rp_memif_bell *bell) {
    const uint8_t *ring = atomic_load_explicit(&bell->to_server, memory_order_acquire);
    return ring && rp_memif_wants_call(ring);
}

void rp_bell_ring(const struct rp_memif_bell *bell) {
    atomic_thread_fence(memory_order_seq_cst);
    if (rp_bell_is_wanted(bell)) {
        (void)eventfd_write(bell->server, 1);
    }
}
