/* A memif server's visitors: who comes to its socket, and how one of them becomes a peer at work.
 *
 * A thread of its own exchanges messages with visitors, over the socket, until their rings are
 * known. From then on a peer has a lane, and the port's thread its rings (dpdk_memif_serve.c). A
 * peer that leaves, or breaks the protocol, is taken from its lane first. Its memory is unmapped
 * when every burst that may have seen it has ended. The thread answers peers: a peer that makes one
 * answer last long gets no other.
 *
 * Bounds: a visitor that is not at work after HANDSHAKE_NS is sent away. At most RP_MEMIF_WAITING
 * of those are admitted, one in BREATH_NS. Where there are so many, the next one to come displaces
 * one that has been silent for SILENT_NS, whatever it said before; the one silent longest goes
 * first. A lane is whose who first completes its messages: who only asks for it keeps nobody from
 * it. So visitors that say little keep no other one out. RP_MEMIF_BYTES of a peer are mapped.
 *
 * No file of a peer's is mapped or closed here, nor closed by the kernel as a message is taken:
 * that can last as long as the peer likes (dpdk_memif_lend.c, dpdk_memif_late.c). A message with
 * several files is left in the queue of its socket, and is freed with that.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dpdk/dpdk_memif_serve.h"
#include "dpdk/dpdk_sleep.h"
#include "os/thread.h"

enum {
    NOBODY = RP_DPDK_LANES, TICK_MS = 100, SHUT_MS = 10, NAP_NS = 10000000, BREATH_NS = 1000000,
    ANSWER_NS = 2000000, /* of processor time: its list of watchers is that long */
};

static const uint64_t HANDSHAKE_NS = 2000000000, SILENT_NS = 50000000;

/* ---- the files that wake each other ---- */

static void keep_file(struct visitor *visitor, int to_server, int file) {
    int *kept = to_server ? &visitor->calls : &visitor->called;
    int is_fit = file >= 0 && *kept < 0
        && (to_server ? rp_call_is_eventfd(file) : rp_call_is_socket(file, visitor->file));
    if (is_fit) {
        rp_forks_close(file);
        *kept = file;
    } else if (file >= 0) {
        rp_late_close(file);
    }
}

/* At work: it calls from now on, and is called; what it sent already is looked for. */
static void let_call(struct rp_memif_server *server, struct visitor *visitor) {
    if (visitor->calls >= 0) {
        visitor->ear = rp_ear_open(server->files, visitor->calls);
    }
    rp_caller_take(&server->callers[visitor->lane], visitor->called);
    visitor->called = -1;
    (void)eventfd_write(server->called, 1);
}

/* No burst has it any more. */
static void close_files(struct rp_memif_server *server, const struct visitor *visitor) {
    if (visitor->ear >= 0) {
        rp_ear_close(server->files, visitor->ear);
    }
    if (visitor->calls >= 0) {
        rp_late_close(visitor->calls);
    }
    if (visitor->called >= 0) {
        rp_late_close(visitor->called);
    }
    if (visitor->lane != NOBODY) {
        rp_caller_take(&server->callers[visitor->lane], -1);
    }
    rp_late_shut(visitor->file);
}

/* ---- visitors ---- */

static void leave(struct rp_memif_server *server, struct visitor *visitor) {
    struct rp_memif_peer *peer = &visitor->peer;
    if (visitor->lane != NOBODY) {
        atomic_store(&server->lanes[visitor->lane], NULL);
        server->owners[visitor->lane] = NULL;
        rp_bursts_await();
    }
    for (uint32_t i = 0; i < peer->region_count; i++) {
        rp_quiet_unmap(peer->regions[i].memory, peer->regions[i].size);
    }
    close_files(server, visitor);
    visitor->file = -1;
    if (visitor->loan) {
        rp_loan_forget(visitor->loan);
        visitor->loan = NULL;
    }
}

static void send_away(struct rp_memif_server *server, struct visitor *visitor) {
    atomic_fetch_add_explicit(&server->refused, 1, memory_order_relaxed);
    leave(server, visitor);
}

/* Reads the next message without taking it: its size, or -1. Its first file is open from now on,
 * unless `file` is null. *has_more: more files come with it than were opened. */
static ssize_t peek(int from, uint8_t *message, int *file, int *has_more) {
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

/* Takes a message that was looked at. It leaves the queue if all files that come with it are open
 * here, so that the kernel has none to close. Returns what rp_memif_hear does. A region begins a
 * loan here, and its message is heard when the loan has ended. */
static int take(const struct rp_memif_server *server, struct visitor *visitor, int has_files,
                uint8_t *answer) {
    uint8_t *message = visitor->message;
    uint64_t size = rp_memif_maps(&visitor->peer, message);
    struct rp_memif_ring_place ring;
    int is_ring = rp_memif_parse_ring(message, &ring), file = -1;
    int is_stray = has_files && !size && !is_ring;
    if (has_files) {
        (void)peek(visitor->file, message, &file, &has_files);
    }
    if (!has_files) {
        (void)recv(visitor->file, message, RP_MEMIF_MESSAGE, MSG_DONTWAIT);
    }
    if (!has_files && size && file >= 0) {
        visitor->loan = rp_loan_begin(file, size, server->wake);
        file = -1;
    }
    int heard = visitor->loan ? 0 : rp_memif_hear(&visitor->peer, message, NULL, answer);
    if (is_ring) {
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

/* Null, or why it cannot have the lane it asked for; as things are, another one may be first. */
static const char *why_no_lane(const struct rp_memif_server *server,
                               const struct visitor *visitor) {
    uint32_t lane = visitor->peer.id;
    return lane >= server->links ? RP_MEMIF_NO_ID : server->owners[lane] ? RP_MEMIF_TAKEN : NULL;
}

static void begin_work(struct rp_memif_server *server, struct visitor *visitor) {
    visitor->lane = visitor->peer.id;
    visitor->until_ns = 0;
    server->owners[visitor->lane] = visitor;
    atomic_store_explicit(&server->lanes[visitor->lane], visitor, memory_order_release);
    let_call(server, visitor);
}

/* -1: it is not to be spoken with any more. Of long answers there is one, and of unread ones. */
static int say(struct rp_memif_server *server, const struct visitor *visitor,
               const uint8_t *answer) {
    uint64_t before = rp_memif_spent_ns();
    int is_refused = !rp_memif_is_read(visitor->file);
    ssize_t sent = is_refused ? -1
        : send(visitor->file, answer, RP_MEMIF_MESSAGE, MSG_DONTWAIT | MSG_NOSIGNAL);
    is_refused |= rp_memif_spent_ns() - before > ANSWER_NS;
    atomic_fetch_add_explicit(&server->refused, (uint64_t)is_refused, memory_order_relaxed);
    return sent == RP_MEMIF_MESSAGE && !is_refused ? 0 : -1;
}

/* Acts on a message: 1, 0 and -1 are rp_memif_hear's. */
static void settle(struct rp_memif_server *server, struct visitor *visitor, int heard,
                   uint8_t *answer) {
    const char *why = heard > 0 ? why_no_lane(server, visitor) : NULL;
    int stays = heard > 0 && !why;
    visitor->heard_ns = rp_wire_now_ns();
    if (why) {
        rp_memif_refuse(answer, why);
    } else if (stays && visitor->peer.state == RP_MEMIF_READY) {
        begin_work(server, visitor);
    }
    int said = heard ? say(server, visitor, answer) : 0;
    if (heard < 0) {
        send_away(server, visitor);
    } else if (!stays || said) {
        leave(server, visitor);
    }
}

/* One message. */
static void hear(struct rp_memif_server *server, struct visitor *visitor) {
    uint8_t answer[RP_MEMIF_MESSAGE];
    int has_files;
    ssize_t size = peek(visitor->file, visitor->message, NULL, &has_files);
    if (size <= 0) {
        if (size == 0 || errno != EAGAIN) { /* it is gone */
            leave(server, visitor);
        }
        return;
    }
    rp_memif_refuse(answer, "Invalid message size");
    int heard = size == RP_MEMIF_MESSAGE ? take(server, visitor, has_files, answer) : -1;
    if (!visitor->loan) {
        settle(server, visitor, heard, answer);
    }
}

/* The message of a region, if that has become memory by now, or will not. */
static void hear_region(struct rp_memif_server *server, struct visitor *visitor) {
    uint8_t answer[RP_MEMIF_MESSAGE], *memory;
    const char *why;
    if (!visitor->loan || !rp_loan_take(visitor->loan, &memory, &why)) {
        return;
    }
    visitor->loan = NULL;
    int heard = rp_memif_hear(&visitor->peer, visitor->message, memory, answer);
    if (why) {
        atomic_fetch_add_explicit(&server->unkept, 1, memory_order_relaxed);
        rp_memif_refuse(answer, why);
    }
    settle(server, visitor, heard, answer);
}

/* It is not at work, and does nothing for that. */
static int is_silent(const struct visitor *visitor) {
    return visitor->file >= 0 && visitor->until_ns && !visitor->loan
        && visitor->heard_ns + SILENT_NS <= rp_wire_now_ns();
}

/* A place for the next one: a free one, or that of the visitor that has been silent longest; null:
 * there is none now. */
static struct visitor *find_place(struct rp_memif_server *server) {
    uint32_t waiting = 0;
    struct visitor *place = NULL, *silent = NULL;
    for (uint32_t i = 0; i < RP_MEMIF_VISITORS; i++) {
        struct visitor *visitor = &server->visitors[i];
        waiting += visitor->file >= 0 && visitor->until_ns;
        place = visitor->file < 0 ? visitor : place;
        if (is_silent(visitor) && (!silent || visitor->heard_ns < silent->heard_ns)) {
            silent = visitor;
        }
    }
    return waiting < RP_MEMIF_WAITING ? place : silent;
}

static void let_in(struct rp_memif_server *server, struct visitor *visitor) {
    const struct timespec nap = {0, NAP_NS}, breath = {0, BREATH_NS};
    uint8_t hello[RP_MEMIF_MESSAGE];
    if (visitor->file >= 0 && !is_silent(visitor)) {
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
    nanosleep(&breath, NULL); /* so endless visits keep no processor busy */
    memset(visitor, 0, sizeof *visitor);
    visitor->file = file;
    visitor->lane = NOBODY;
    visitor->calls = visitor->ear = visitor->called = -1;
    visitor->heard_ns = rp_wire_now_ns();
    visitor->until_ns = visitor->heard_ns + HANDSHAKE_NS;
    rp_memif_write_hello(hello);
    if (say(server, visitor, hello)) {
        leave(server, visitor);
    }
}

/* Ends visitors that were expelled, or whose handshake is late; returns how many still have time.
 */
static uint32_t send_some_away(struct rp_memif_server *server) {
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < RP_MEMIF_VISITORS; i++) {
        struct visitor *visitor = &server->visitors[i];
        if (visitor->file >= 0 && !visitor->until_ns) {
            if (atomic_load(&server->lanes[visitor->lane]) != visitor) {
                leave(server, visitor);
            }
        } else if (visitor->file >= 0) {
            waiting++;
            if (visitor->until_ns < rp_wire_now_ns()) {
                send_away(server, visitor);
            }
        }
    }
    return waiting;
}

static void *attend(void *argument) {
    enum { WAKE, DOOR, FIRST };
    const struct timespec nap = {0, NAP_NS};
    struct rp_memif_server *server = argument;
    struct pollfd files[FIRST + RP_MEMIF_VISITORS];
    eventfd_t woken;
    while (!server->ends) {
        uint32_t waiting = send_some_away(server);
        rp_late_go_on();
        struct visitor *place = rp_late_count() < RP_LATE_MOST ? find_place(server) : NULL;
        files[WAKE] = (struct pollfd){server->wake, POLLIN, 0};
        files[DOOR] = (struct pollfd){place ? server->socket.file : -1, POLLIN, 0};
        for (uint32_t i = 0; i < RP_MEMIF_VISITORS; i++) {
            const struct visitor *visitor = &server->visitors[i];
            files[FIRST + i] = (struct pollfd){visitor->loan ? -1 : visitor->file, POLLIN, 0};
        }
        int tick = !place ? SHUT_MS : waiting ? TICK_MS : -1;
        if (poll(files, FIRST + RP_MEMIF_VISITORS, tick) < 0) {
            nanosleep(&nap, NULL); /* most likely this process may have no so many files now */
            continue;
        }
        if (files[WAKE].revents) {
            (void)eventfd_read(server->wake, &woken);
        }
        for (uint32_t i = 0; i < RP_MEMIF_VISITORS; i++) {
            hear_region(server, &server->visitors[i]);
            if (files[FIRST + i].revents) {
                hear(server, &server->visitors[i]);
            }
        }
        if (files[DOOR].revents) {
            let_in(server, place);
        }
    }
    return NULL;
}

/* ---- life ---- */

static void end_callers(struct rp_memif_server *server, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        rp_caller_end(&server->callers[i]);
    }
}

static int start_callers(struct rp_memif_server *server) {
    for (uint32_t i = 0; i < server->links; i++) {
        if (rp_caller_start(&server->callers[i])) {
            end_callers(server, i);
            return -1;
        }
    }
    return 0;
}

struct rp_memif_server *rp_memif_serve(const struct rp_dpdk_options *options,
                                       struct rte_mempool *pool, char *why, size_t size) {
    struct rp_memif_server *server = calloc(1, sizeof *server);
    snprintf(why, size, "no memory for a memif server");
    if (!server) {
        return NULL;
    }
    server->pool = pool;
    server->room = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
    server->links = options->links;
    for (uint32_t i = 0; i < RP_MEMIF_VISITORS; i++) {
        server->visitors[i].file = -1;
    }
    if (rp_memif_listen(&server->socket, options->socket, options->group, why, size)) {
        goto no_socket;
    }
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake < 0) {
        goto no_wake;
    }
    if (rp_sleep_files(&server->files, &server->called) || start_callers(server)) {
        goto no_callers;
    }
    if (rp_thread_start(&server->thread, NULL, attend, server)) {
        goto no_thread;
    }
    return server;
no_thread:
    end_callers(server, server->links);
no_callers:
    rp_sleep_unfile(&server->files, &server->called);
    rp_quiet_close(server->wake);
no_wake:
    snprintf(why, size, "no memif server: this process has no file or thread left");
    rp_memif_unlisten(&server->socket);
no_socket:
    free(server);
    return NULL;
}

void rp_memif_end(struct rp_memif_server *server) {
    server->ends = 1;
    (void)eventfd_write(server->wake, 1);
    pthread_join(server->thread, NULL);
    for (uint32_t i = 0; i < RP_MEMIF_VISITORS; i++) {
        if (server->visitors[i].file >= 0) {
            leave(server, &server->visitors[i]);
        }
    }
    end_callers(server, server->links);
    rp_memif_unlisten(&server->socket);
    rp_sleep_unfile(&server->files, &server->called);
    rp_quiet_close(server->wake);
    free(server);
}
