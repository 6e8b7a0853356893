/* How a memif client sleeps, and wakes its server. DPDK's driver only polls (22.11). So the
 * messages it sends as it connects are read on their way (dpdk_gone.c): they say where its rings
 * lie, and by which file it is to be called.
 *
 * Being called by the server: the client clears the flag of the ring it receives by. The server
 * finds the flag clear behind a burst, and then writes to the client's file. In place of the
 * driver's eventfd that file is one end of a pair of stream sockets: the server can write to it
 * without ever having to wait, which a peer's eventfd does not promise.
 * Calling the server: the driver looks at the other ring's flag itself, but without a fence between
 * the frames and that look. So it can miss a server that falls asleep just then, and the flag is
 * looked at here once more.
 *
 * A bell belongs to a link, and outlives connections. Its mapping belongs to a connection, and is
 * unmapped when the next one begins, once no burst looks at it any more (dpdk_quiet.c). Connections
 * begin and send messages in DPDK's interrupt thread alone.
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
    CALLS = 64,       /* calls that may have come before one was looked for */
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

/* At the end no thread bursts or sleeps. At the next connection they may, but see no ring then. */
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
static int meet(struct rp_memif_bell *bell, const struct rp_memif_ring_place *place, int file) {
    int lies_there = bell->memory && place->region == 0
        && (uint64_t)place->offset + RP_MEMIF_AT_SLOTS <= bell->size;
    uint8_t *ring = lies_there ? bell->memory + place->offset : NULL;
    if (!place->to_server) {
        bell->slots = 1u << place->log2;
        atomic_store(&bell->from_server, ring);
        return bell->pair[1];
    }
    if (dup3(file, bell->server, O_CLOEXEC) == bell->server) {
        atomic_store(&bell->to_server, ring);
    }
    return file;
}

/* A device keeps its number for life, but its link may change (rp_memif_mend). */
static ssize_t forward_plain(const struct rp_memif_bell *bell, int to, const struct msghdr *message,
                             int flags) {
    uint8_t words[RP_MEMIF_MESSAGE];
    struct iovec part = {words, sizeof words};
    struct msghdr changed = *message;
    if (message->msg_iovlen != 1 || message->msg_iov->iov_len != sizeof words) {
        return rp_memif_sendmsg(to, message, flags);
    }
    memcpy(words, message->msg_iov->iov_base, sizeof words);
    changed.msg_iov = &part;
    return rp_memif_sendmsg(to, rp_memif_ask_for(words, bell->id) ? &changed : message, flags);
}

ssize_t rp_bell_forward(struct rp_memif_bell *bell, int to, const struct msghdr *message,
                        int flags) {
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct rp_memif_ring_place place;
    struct msghdr changed = *message;
    int file;
    const uint8_t *said = message->msg_iovlen == 1 ? message->msg_iov->iov_base : NULL;
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!said || message->msg_iov->iov_len != RP_MEMIF_MESSAGE || !header
        || header->cmsg_type != SCM_RIGHTS || message->msg_controllen < sizeof control) {
        return forward_plain(bell, to, message, flags);
    }
    memcpy(&file, CMSG_DATA(header), sizeof file);
    if (rp_memif_parse_region(said)) {
        fill(rp_memif_parse_region(said), file);
        map(bell, rp_memif_parse_region(said), file);
    } else if (rp_memif_parse_ring(said, &place)) {
        file = meet(bell, &place, file);
    }
    memcpy(&control, header, sizeof control);
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    changed.msg_control = &control;
    changed.msg_controllen = sizeof control;
    return rp_memif_sendmsg(to, &changed, flags);
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

void rp_bell_clear(const struct rp_memif_bell *bell) {
    uint8_t calls[CALLS];
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
