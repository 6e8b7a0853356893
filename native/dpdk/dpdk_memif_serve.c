/* A memif server: who comes to its socket, and the frames of those who are let in.
 *
 * A thread of its own speaks with peers, over the socket, until their rings are known. From then on
 * a peer is a lane's, and the port's thread alone touches its rings, in bursts. A peer that goes,
 * or that lies, is taken from its lane first; its memory is unmapped when every burst that may have
 * seen it has ended. Frames are copied into mbufs, and out of them, so nobody reads a peer's memory
 * but the lines below and memif.h.
 *
 * Who sleeps is called. Peers call this server by their eventfds, which it sleeps on and never
 * reads; other files could hold a poll. It calls them by sockets they sent, without ever being held
 * (MSG_DONTWAIT); who sent an eventfd for that is not called, as a write there could be. So burst
 * and sleep are as long as they would be without peers.
 *
 * Bounds: a visitor who is not at work after GREETING_NS is sent away; at most WAITING of those are
 * let in, one in BREATH_NS. Where they are so many, one who has said nothing for SILENT_NS goes as
 * the next one knocks, the first come first: so silence keeps nobody out. RP_MEMIF_BYTES of a peer
 * are mapped. A burst takes as many slots as it was asked for.
 *
 * Nothing of a peer's is closed here, nor by the kernel as a message is taken: that can last as
 * long as the peer likes (dpdk_memif_late.c). A message with several files is left in the
 * queue of its socket, and goes with that.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "dpdk/dpdk_memif.h"
#include "dpdk/dpdk_sleep.h"
#include "dpdk/memif.h"

enum {
    WAITING = 8, VISITORS = RP_DPDK_LANES + WAITING, NOBODY = RP_DPDK_LANES, TICK_MS = 100,
    SHUT_MS = 10, NAP_NS = 10000000, BREATH_NS = 1000000, TMPFS = 0x01021994,
};

static const uint64_t GREETING_NS = 2000000000, SILENT_NS = 50000000;

struct visitor {
    int file;      /* -1: this place is free */
    uint32_t lane; /* NOBODY: it has not said which */
    uint64_t until_ns; /* when it is to be at work */
    int calls;  /* the file it calls by; -1: it does not */
    int called; /* the one it is called by, in bursts; -1: it is not */
    struct rp_memif_peer peer;
};

struct rp_memif_server {
    _Atomic(struct visitor *) lanes[RP_DPDK_LANES]; /* at work there, or null */
    struct rte_mempool *pool;
    uint32_t room; /* bytes of a frame that an mbuf holds */
    _Atomic uint64_t refused;  /* visitors who broke the rules */
    _Atomic uint64_t unfit;    /* frames larger than where they were to go */
    uint32_t links;
    int files, called; /* what its port sleeps on, and calls itself by */
    int wake;
    pthread_t thread;
    struct rp_memif_socket socket;
    struct visitor *owners[RP_DPDK_LANES]; /* from here on: the thread's */
    struct visitor visitors[VISITORS];
};

/* ---- bursts ---- */

/* The lane is empty from the next burst on; the thread sees to the rest when the file says so. */
static void expel(struct rp_memif_server *server, uint32_t lane, const struct visitor *visitor)
{
    atomic_store(&server->lanes[lane], NULL);
    atomic_fetch_add_explicit(&server->refused, 1, memory_order_relaxed);
    (void)shutdown(visitor->file, SHUT_RDWR);
}

/* Frames of up to `count` slots, each in one of the mbufs; *used slots. -1: the peer lies. A frame
 * in several slots is dropped with all of them. */
static int copy_in(struct rp_memif_server *server, struct rp_memif_peer *peer,
                   struct rte_mbuf **mbufs, uint32_t count, uint32_t *used)
{
    struct rp_memif_slot slot;
    int got = 0;
    for (*used = 0; *used < count; ++*used) {
        if (rp_memif_read(peer, &peer->in, *used, &slot)) {
            return -1 - got;
        }
        int is_rest = peer->in.is_chained != 0;
        peer->in.is_chained = slot.is_chained;
        if (is_rest || slot.size > server->room || slot.is_chained) {
            atomic_fetch_add_explicit(&server->unfit, !is_rest, memory_order_relaxed);
            continue;
        }
        struct rte_mbuf *mbuf = mbufs[got++];
        memcpy(rte_pktmbuf_mtod(mbuf, void *), slot.data, slot.size);
        mbuf->data_len = (uint16_t)slot.size;
        mbuf->pkt_len = slot.size;
    }
    return got;
}

uint32_t rp_memif_receive(struct rp_memif_server *server, uint32_t lane, struct rte_mbuf **mbufs,
                          uint32_t count)
{
    struct visitor *visitor = atomic_load_explicit(&server->lanes[lane], memory_order_acquire);
    uint32_t used = 0;
    if (!visitor) {
        return 0;
    }
    int filled = rp_memif_filled(&visitor->peer.in);
    if (filled <= 0) {
        if (filled < 0) {
            expel(server, lane, visitor);
        }
        return 0;
    }
    count = count < (uint32_t)filled ? count : (uint32_t)filled;
    if (rp_pool_take(server->pool, mbufs, count, RTE_PKTMBUF_HEADROOM)) {
        /* one at a time is an end to being short */
        count = rp_pool_take(server->pool, mbufs, 1, RTE_PKTMBUF_HEADROOM) == 0;
    }
    int got = copy_in(server, &visitor->peer, mbufs, count, &used);
    if (got < 0) {
        expel(server, lane, visitor);
        got = -1 - got;
    } else {
        rp_memif_advance(&visitor->peer.in, used);
    }
    if ((uint32_t)got < count) {
        rp_pool_give(server->pool, mbufs + got, count - (uint32_t)got);
    }
    return (uint32_t)got;
}

/* What was sent is in place. A call too many is lost: the ones before are still to be heard. */
static void call(const struct visitor *visitor)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (visitor->called >= 0 && rp_memif_wants_call(visitor->peer.out.memory)) {
        (void)send(visitor->called, NULL, 0, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

uint32_t rp_memif_transmit(struct rp_memif_server *server, uint32_t lane, struct rte_mbuf **mbufs,
                           uint32_t count)
{
    struct visitor *visitor = atomic_load_explicit(&server->lanes[lane], memory_order_acquire);
    struct rp_memif_slot slot;
    int filled = visitor ? rp_memif_filled(&visitor->peer.out) : 0;
    uint32_t sent = 0, room = filled > 0 ? (uint32_t)filled : 0;
    int lies = filled < 0;
    count = count < room ? count : room;
    while (sent < count && !lies) {
        const struct rte_mbuf *mbuf = mbufs[sent];
        lies = rp_memif_read(&visitor->peer, &visitor->peer.out, sent, &slot) != 0;
        if (!lies) {
            uint32_t fits = mbuf->data_len <= slot.size;
            if (fits) {
                memcpy(slot.data, rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len);
            } else { /* of no use to a peer whose frames are smaller */
                atomic_fetch_add_explicit(&server->unfit, 1, memory_order_relaxed);
            }
            rp_memif_written(&visitor->peer.out, sent, fits ? mbuf->data_len : 0);
            sent++;
        }
    }
    if (lies) {
        expel(server, lane, visitor);
    } else if (sent) {
        rp_memif_advance(&visitor->peer.out, sent);
        call(visitor);
    }
    rp_pool_give(server->pool, mbufs, sent);
    return sent;
}

void rp_memif_tell(const struct rp_memif_server *server, struct rp_fact *facts, uint32_t *count)
{
    rp_fact_add(facts, count, RP_FACT_IN, "device_errors", "frames larger than their place, or in "
                "parts", atomic_load(&server->unfit));
    rp_fact_add(facts, count, RP_FACT_COUNT, "memif_peers_refused",
                "memif peers that led out of their memory, or spoke against the protocol",
                atomic_load(&server->refused));
    rp_fact_add(facts, count, RP_FACT_LEVEL, "memif_files_closing",
                "files of memif's peers whose closing has not ended; 64 keep others out",
                rp_late_count());
}

/* ---- sleeping ---- */

void rp_memif_files(const struct rp_memif_server *server, int *files, int *wake)
{
    *files = server->files;
    *wake = server->called;
}

int rp_memif_ask(struct rp_memif_server *server, int on)
{
    int some = 0;
    for (uint32_t lane = 0; lane < server->links; lane++) {
        struct visitor *visitor = atomic_load_explicit(&server->lanes[lane], memory_order_acquire);
        if (visitor) {
            rp_memif_let_call(visitor->peer.in.memory, on);
            some |= on && rp_memif_room(visitor->peer.in.memory) != 0;
        }
    }
    return some;
}

/* By which a peer calls. It may be any file: to ask one of FUSE whether it is readable can last. */
static int is_eventfd(int file)
{
    static const char eventfd_name[] = "anon_inode:[eventfd]";
    char path[32], name[sizeof eventfd_name + 1];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return readlink(path, name, sizeof name) == sizeof eventfd_name - 1
           && memcmp(name, eventfd_name, sizeof eventfd_name - 1) == 0;
}

/* By which a peer is called: a send there returns at once, whoever has the other end. */
static int is_socket(int file)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof domain;
    return getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX
           && getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_DGRAM;
}

static void keep_file(struct visitor *visitor, int to_server, int file)
{
    int *kept = to_server ? &visitor->calls : &visitor->called;
    if (file >= 0 && *kept < 0 && (to_server ? is_eventfd : is_socket)(file)) {
        *kept = file;
    } else if (file >= 0) {
        rp_late_close(file);
    }
}

/* At work: it calls from now on, and what it sent already is looked for. */
static void let_call(const struct rp_memif_server *server, const struct visitor *visitor)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    if (visitor->calls >= 0) {
        (void)epoll_ctl(server->files, EPOLL_CTL_ADD, visitor->calls, &event);
    }
    (void)eventfd_write(server->called, 1);
}

/* No burst has it any more. Its socket closes late, so it hears at once that this is the end, and
 * can put nothing into its queue. */
static void close_files(const struct rp_memif_server *server, const struct visitor *visitor)
{
    if (visitor->calls >= 0) { /* the peer may have it still: closing it here would not do */
        (void)epoll_ctl(server->files, EPOLL_CTL_DEL, visitor->calls, NULL);
        rp_late_close(visitor->calls);
    }
    if (visitor->called >= 0) {
        rp_late_close(visitor->called);
    }
    (void)shutdown(visitor->file, SHUT_RDWR);
    rp_late_close(visitor->file);
}

/* ---- visitors ---- */

static void leave(struct rp_memif_server *server, struct visitor *visitor)
{
    struct rp_memif_peer *peer = &visitor->peer;
    if (visitor->lane != NOBODY) {
        atomic_store(&server->lanes[visitor->lane], NULL);
        server->owners[visitor->lane] = NULL;
    }
    if (peer->state == RP_MEMIF_READY) {
        rp_bursts_await();
    }
    for (uint32_t i = 0; i < peer->region_count; i++) {
        rp_quiet_unmap(peer->regions[i].memory, peer->regions[i].size);
    }
    close_files(server, visitor);
    visitor->file = -1;
}

static void send_away(struct rp_memif_server *server, struct visitor *visitor)
{
    atomic_fetch_add_explicit(&server->refused, 1, memory_order_relaxed);
    leave(server, visitor);
}

/* Its memory cannot shrink, and no file system but the kernel's own is behind it: a page of it is
 * there whenever it is touched. Hugepages are not, once they have run out. */
static uint8_t *map_region(int file, uint64_t size)
{
    struct stat about;
    struct statfs system;
    int seals = fcntl(file, F_GET_SEALS); /* refused by files that are no memfd */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstatfs(file, &system)
        || (unsigned long)system.f_type != TMPFS || fstat(file, &about)
        || (uint64_t)about.st_size < size) {
        return NULL;
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The message that comes next, where it is: its size, or -1. And whether files come with it, more
 * than one of them where there is room for one: that one is open from now on. */
static ssize_t peek(int from, uint8_t *message, int *file, int *has_more)
{
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {message, RP_MEMIF_MESSAGE};
    struct msghdr all = {.msg_iov = &part, .msg_iovlen = 1};
    if (file) {
        all.msg_control = control.bytes;
        all.msg_controllen = CMSG_LEN(sizeof *file); /* one file, no more */
    }
    ssize_t size = recvmsg(from, &all, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *has_more = size >= 0 && (all.msg_flags & MSG_CTRUNC) != 0;
    const struct cmsghdr *header = size >= 0 && file ? CMSG_FIRSTHDR(&all) : NULL;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS
        && header->cmsg_len == CMSG_LEN(sizeof *file)) {
        memcpy(file, CMSG_DATA(header), sizeof *file);
    }
    return size;
}

/* A message that was looked at. It leaves the queue if all that comes with it is open here, so that
 * the kernel has nothing to close. */
static int take(struct visitor *visitor, uint8_t *message, int has_files, uint8_t *answer)
{
    uint64_t size = rp_memif_maps(&visitor->peer, message);
    uint8_t *memory = NULL;
    struct rp_memif_ring_told ring;
    int tells_ring = rp_memif_ring_told(message, &ring), file = -1;
    int is_stray = has_files && !size && !tells_ring;
    if (has_files) {
        (void)peek(visitor->file, message, &file, &has_files);
    }
    if (!has_files) {
        (void)recv(visitor->file, message, RP_MEMIF_MESSAGE, MSG_DONTWAIT);
        memory = size && file >= 0 ? map_region(file, size) : NULL;
    }
    int heard = rp_memif_hear(&visitor->peer, message, memory, answer);
    if (tells_ring) {
        keep_file(visitor, ring.to_server != 0, file);
    } else if (file >= 0) {
        rp_late_close(file);
    }
    if ((has_files || is_stray) && heard >= 0) {
        rp_memif_refuse(answer, "One file may come, with a region or a ring, while there is room");
        heard = -1;
    }
    return heard;
}

/* Null, or why it cannot have the lane it asked for. */
static const char *claim_lane(struct rp_memif_server *server, struct visitor *visitor)
{
    uint32_t lane = visitor->peer.id;
    if (lane >= server->links) {
        return "ID not found";
    }
    if (server->owners[lane]) {
        return "Already connected";
    }
    server->owners[lane] = visitor;
    visitor->lane = lane;
    return NULL;
}

static int say(const struct visitor *visitor, const uint8_t *answer)
{
    return send(visitor->file, answer, RP_MEMIF_MESSAGE, MSG_DONTWAIT | MSG_NOSIGNAL)
        == RP_MEMIF_MESSAGE ? 0 : -1;
}

/* One message. */
static void hear(struct rp_memif_server *server, struct visitor *visitor)
{
    uint8_t message[RP_MEMIF_MESSAGE], answer[RP_MEMIF_MESSAGE];
    int has_files;
    ssize_t size = peek(visitor->file, message, NULL, &has_files);
    if (size < 0 && errno == EAGAIN) {
        return;
    }
    if (size <= 0) { /* it is gone */
        leave(server, visitor);
        return;
    }
    rp_memif_refuse(answer, "Invalid message size");
    int heard = size == RP_MEMIF_MESSAGE ? take(visitor, message, has_files, answer)
        : -1;
    int stays = heard > 0;
    if (stays && visitor->lane == NOBODY) {
        const char *taken = claim_lane(server, visitor);
        if (taken) {
            rp_memif_refuse(answer, taken);
            stays = 0;
        }
    }
    if (stays && visitor->peer.state == RP_MEMIF_READY) {
        visitor->until_ns = 0;
        atomic_store_explicit(&server->lanes[visitor->lane], visitor, memory_order_release);
        let_call(server, visitor);
    }
    int said = heard ? say(visitor, answer) : 0;
    if (heard < 0) {
        send_away(server, visitor);
    } else if (!stays || said) {
        leave(server, visitor);
    }
}

/* A place for the next one: a free one, or that of the visitor who has been silent longest; null:
 * there is none now. */
static struct visitor *find_place(struct rp_memif_server *server)
{
    uint32_t waiting = 0;
    struct visitor *place = NULL, *silent = NULL;
    for (uint32_t i = 0; i < VISITORS; i++) {
        struct visitor *visitor = &server->visitors[i];
        int waits = visitor->file >= 0 && visitor->until_ns;
        waiting += (uint32_t)waits;
        place = visitor->file < 0 ? visitor : place;
        if (waits && visitor->peer.state == RP_MEMIF_GREETED
            && (!silent || visitor->until_ns < silent->until_ns)) {
            silent = visitor;
        }
    }
    if (waiting < WAITING) {
        return place;
    }
    uint64_t until = rp_wire_now_ns() + GREETING_NS - SILENT_NS;
    return silent && silent->until_ns <= until ? silent : NULL;
}

static void let_in(struct rp_memif_server *server, struct visitor *visitor)
{
    const struct timespec nap = {0, NAP_NS}, breath = {0, BREATH_NS};
    uint8_t greeting[RP_MEMIF_MESSAGE];
    if (visitor->file >= 0 && visitor->peer.state != RP_MEMIF_GREETED) {
        return; /* it has spoken just now */
    }
    if (visitor->file >= 0) {
        send_away(server, visitor);
    }
    int file = accept4(server->socket.file, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (file < 0) {
        nanosleep(&nap, NULL); /* most likely this process has no file left */
        return;
    }
    rp_forks_close(file);
    nanosleep(&breath, NULL); /* who comes and goes without end keeps no processor busy */
    memset(visitor, 0, sizeof *visitor);
    visitor->file = file;
    visitor->lane = NOBODY;
    visitor->calls = visitor->called = -1;
    visitor->until_ns = rp_wire_now_ns() + GREETING_NS;
    rp_memif_greet(greeting);
    if (say(visitor, greeting)) {
        leave(server, visitor);
    }
}

/* Those who are still not at work; returns how many are waited for. */
static uint32_t send_slow_ones_away(struct rp_memif_server *server)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < VISITORS; i++) {
        struct visitor *visitor = &server->visitors[i];
        if (visitor->file >= 0 && visitor->until_ns) {
            waiting++;
            if (visitor->until_ns < rp_wire_now_ns()) {
                send_away(server, visitor);
            }
        }
    }
    return waiting;
}

static void *attend(void *argument)
{
    enum { WAKE, DOOR, FIRST };
    struct rp_memif_server *server = argument;
    struct pollfd files[FIRST + VISITORS];
    for (;;) {
        uint32_t waiting = send_slow_ones_away(server);
        struct visitor *place = rp_late_count() < RP_LATE_MOST ? find_place(server) : NULL;
        files[WAKE] = (struct pollfd){server->wake, POLLIN, 0};
        files[DOOR] = (struct pollfd){place ? server->socket.file : -1, POLLIN, 0};
        for (uint32_t i = 0; i < VISITORS; i++) {
            files[FIRST + i] = (struct pollfd){server->visitors[i].file, POLLIN, 0};
        }
        int tick = !place ? SHUT_MS : waiting ? TICK_MS : -1;
        if (poll(files, FIRST + VISITORS, tick) < 0) {
            continue;
        }
        if (files[WAKE].revents) {
            return NULL;
        }
        for (uint32_t i = 0; i < VISITORS; i++) {
            if (files[FIRST + i].revents) {
                hear(server, &server->visitors[i]);
            }
        }
        if (files[DOOR].revents) {
            let_in(server, place);
        }
    }
}

/* ---- life ---- */

struct rp_memif_server *rp_memif_serve(const struct rp_dpdk_options *options,
                                       struct rte_mempool *pool, char *why, size_t size)
{
    struct rp_memif_server *server = calloc(1, sizeof *server);
    snprintf(why, size, "no memory for a memif server");
    if (!server) {
        return NULL;
    }
    server->pool = pool;
    server->room = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
    server->links = options->links;
    for (uint32_t i = 0; i < VISITORS; i++) {
        server->visitors[i].file = -1;
    }
    if (rp_memif_listen(&server->socket, options->socket, options->group, why, size)) {
        goto no_socket;
    }
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake < 0) {
        goto no_wake;
    }
    if (rp_sleep_files(&server->files, &server->called)) {
        goto no_thread;
    }
    if (rp_memif_start(&server->thread, attend, server)) {
        goto no_thread;
    }
    return server;
no_thread:
    rp_sleep_unfile(&server->files, &server->called);
    rp_quiet_close(server->wake);
no_wake:
    snprintf(why, size, "no memif server: this process has no file or thread left");
    rp_memif_unlisten(&server->socket);
no_socket:
    free(server);
    return NULL;
}

void rp_memif_end(struct rp_memif_server *server)
{
    (void)eventfd_write(server->wake, 1);
    pthread_join(server->thread, NULL);
    for (uint32_t i = 0; i < VISITORS; i++) {
        if (server->visitors[i].file >= 0) {
            leave(server, &server->visitors[i]);
        }
    }
    rp_memif_unlisten(&server->socket);
    rp_sleep_unfile(&server->files, &server->called);
    rp_quiet_close(server->wake);
    free(server);
}
