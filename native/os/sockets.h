/* Sockets that never wait and are not handed on to other programs, and many datagrams in a call.
 * Where a socket is marked so by a second call (POSIX), a program started between both has it.
 *
 * Linux: recvmmsg and sendmmsg, trains of datagrams cut and joined by the kernel (GSO, GRO), and
 * its count of what a full queue dropped. Else: a call for each datagram, no trains, no count.
 */
#ifndef RP_OS_SOCKETS_H
#define RP_OS_SOCKETS_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/posix.h"

#ifdef MSG_NOSIGNAL
enum { RP_SEND_FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL };
#else
enum { RP_SEND_FLAGS = MSG_DONTWAIT }; /* SO_NOSIGPIPE is set in its place */
#endif

struct rp_control { /* room for a segment's size and the count of overflows */
    _Alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint32_t))];
};

/* Asks for a buffer of that many bytes: past the system's bound where we may, else up to it. Linux
 * gives as much of it as it may. Other systems refuse the whole, and are asked for half as much,
 * until they agree. */
static inline void rp_socket_buffer(int socket, int option, uint32_t bytes) {
    int size = bytes < INT_MAX ? (int)bytes : INT_MAX;
#ifdef SO_RCVBUFFORCE
    int forced = option == SO_RCVBUF ? SO_RCVBUFFORCE : SO_SNDBUFFORCE;
    if (setsockopt(socket, SOL_SOCKET, forced, &size, sizeof size) == 0) {
        return;
    }
#endif
    while (setsockopt(socket, SOL_SOCKET, option, &size, sizeof size) < 0 && size > 4096) {
        size /= 2;
    }
}

#ifdef __linux__
#define RP_SOCKET_MORE ", and sysctl -w net.core.rmem_max=8388608 makes room"
#else
#define RP_SOCKET_MORE ", and a larger kern.ipc.maxsockbuf or its like makes room"
#endif

#ifndef RP_POSIX

typedef struct mmsghdr rp_datagram;

/* A descriptor, or -1 with errno. */
static inline int rp_socket_open(int family, int type) {
    return socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static inline int rp_socket_accept(int listener, struct sockaddr *address, socklen_t *size) {
    return accept4(listener, address, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* `place` becomes another descriptor of the socket `made`. */
static inline int rp_socket_move(int made, int place) {
    return dup3(made, place, O_CLOEXEC);
}

/* As many as came, or -1 with errno. */
static inline int rp_datagrams_receive(int socket, rp_datagram *messages, uint32_t count) {
    return recvmmsg(socket, messages, count, MSG_DONTWAIT, NULL);
}

static inline int rp_datagrams_send(int socket, rp_datagram *messages, uint32_t count) {
    return sendmmsg(socket, messages, count, MSG_DONTWAIT);
}

/* The kernel counts what it drops at this socket: 1 where it does so. */
static inline int rp_socket_count_drops(int socket) {
    int on = 1;
    return setsockopt(socket, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on) == 0;
}

/* Whether what comes is joined to trains from now on, or not: 1 where the kernel did so. */
static inline int rp_trains_join(int socket, int on) {
    return setsockopt(socket, SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
}

/* Whether the kernel cuts trains. */
static inline int rp_trains_cut(int socket) {
    int off = 0;
    return setsockopt(socket, SOL_UDP, UDP_SEGMENT, &off, sizeof off) == 0;
}

/* The message is a train of datagrams of this size. */
static inline void rp_train_mark(struct msghdr *message, struct rp_control *control,
                                 uint32_t segment) {
    uint16_t size = (uint16_t)segment;
    message->msg_control = control;
    message->msg_controllen = CMSG_SPACE(sizeof size);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof size);
    memcpy(CMSG_DATA(header), &size, sizeof size);
}

/* The segment size the kernel reports (0: a single datagram), and in *dropped, where it reports
 * that, what it has dropped at this socket so far. */
static inline uint32_t rp_datagram_control(struct msghdr *message, uint32_t *dropped) {
    int segment = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level == SOL_UDP && at->cmsg_type == UDP_GRO) {
            memcpy(&segment, CMSG_DATA(at), sizeof segment);
        } else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SO_RXQ_OVFL) {
            memcpy(dropped, CMSG_DATA(at), sizeof *dropped);
        }
    }
    return segment > 0 ? (uint32_t)segment : 0;
}

#else

typedef struct {
    struct msghdr msg_hdr;
    unsigned int msg_len;
} rp_datagram;

static inline int rp_socket_own(int made) {
    int failed = made >= 0
        && (fcntl(made, F_SETFD, FD_CLOEXEC) < 0 || fcntl(made, F_SETFL, O_NONBLOCK) < 0);
#ifdef SO_NOSIGPIPE
    int on = 1;
    failed = failed
        || (made >= 0 && setsockopt(made, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) < 0);
#endif
    if (failed) {
        close(made);
    }
    return failed ? -1 : made;
}

static inline int rp_socket_open(int family, int type) {
    return rp_socket_own(socket(family, type, 0));
}

static inline int rp_socket_accept(int listener, struct sockaddr *address, socklen_t *size) {
    return rp_socket_own(accept(listener, address, size));
}

static inline int rp_socket_move(int made, int place) {
    return dup2(made, place) < 0 ? -1 : fcntl(place, F_SETFD, FD_CLOEXEC);
}

static inline int rp_datagrams_receive(int socket, rp_datagram *messages, uint32_t count) {
    uint32_t got = 0;
    for (ssize_t size = 0; got < count; got++) {
        size = recvmsg(socket, &messages[got].msg_hdr, MSG_DONTWAIT);
        if (size < 0) {
            break;
        }
        messages[got].msg_len = (unsigned int)size;
    }
    return got || !count ? (int)got : -1;
}

static inline int rp_datagrams_send(int socket, rp_datagram *messages, uint32_t count) {
    uint32_t sent = 0;
    while (sent < count && sendmsg(socket, &messages[sent].msg_hdr, MSG_DONTWAIT) >= 0) {
        sent++;
    }
    return sent || !count ? (int)sent : -1;
}

static inline int rp_socket_count_drops(int socket) {
    (void)socket;
    return 0;
}

static inline int rp_trains_join(int socket, int on) {
    (void)socket, (void)on;
    return 0;
}

static inline int rp_trains_cut(int socket) {
    (void)socket;
    return 0;
}

static inline void rp_train_mark(struct msghdr *message, struct rp_control *control,
                                 uint32_t segment) {
    (void)message, (void)control, (void)segment; /* nobody makes trains here */
}

static inline uint32_t rp_datagram_control(struct msghdr *message, uint32_t *dropped) {
    (void)message, (void)dropped;
    return 0;
}

#endif

#endif
