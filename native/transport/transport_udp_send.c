/* Sending: one sendmmsg for a burst, one message for each train.
 *
 * A train is what the kernel can cut by itself: consecutive packets to one peer, equal in size but
 * the last. Where it cannot (a device without the means, a path too narrow, no way at all), it says
 * so at each train, whose datagrams are then sent one by one. That is not remembered: the refusal
 * is about the way to one peer, and other peers are not to pay for it. A peer behind such a way
 * costs one more call for each train, measured as 2 to 16 % of what its datagrams cost. Nothing is
 * queued here: datagrams that the kernel does not take are lost and counted.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "os/sockets.h"
#include "transport/transport_udp.h"

struct plan { /* the messages of one burst */
    uint32_t count;
    rp_datagram messages[RP_BURST];
    struct iovec vectors[RP_BURST];
    struct sockaddr_in6 to[RP_BURST];
    struct rp_control controls[RP_BURST];
};

uint32_t rp_udp_tx_lease(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    struct rp_udp_port *udp = (struct rp_udp_port *)(void *)port;
    return rp_lease_take(&udp->send, packets, count, udp->base.mtu);
}

/* How many packets from the first on may leave as one train. */
static uint32_t train_length(const struct rp_udp_port *port, const struct rp_packet *packets,
                             uint32_t count) {
    uint32_t size = packets[0].size;
    uint32_t bytes = size;
    uint32_t length = 1;
    while (port->gso && length < count && length < RP_UDP_TRAIN_MAX) {
        const struct rp_packet *next = &packets[length];
        if (!next->size || next->size > size || bytes + next->size > RP_UDP_TRAIN_BYTES
            || (!port->server.size && memcmp(&next->peer, &packets[0].peer, sizeof next->peer))) {
            break;
        }
        bytes += next->size;
        length++;
        if (next->size < size) {
            break; /* a shorter one ends its train */
        }
    }
    return length;
}

/* Adds packets[0 .. length) as one message; their vectors follow each other from `vector` on. */
static void add_message(const struct rp_udp_port *port, struct plan *plan, uint32_t vector,
                        const struct rp_packet *packets, uint32_t length) {
    uint32_t index = plan->count++;
    struct msghdr *message = &plan->messages[index].msg_hdr;
    *message = (struct msghdr){.msg_iov = &plan->vectors[vector], .msg_iovlen = length};
    for (uint32_t i = 0; i < length; i++) {
        assert(packets[i].size <= packets[i].capacity);
        plan->vectors[vector + i] =
            (struct iovec){.iov_base = packets[i].data, .iov_len = packets[i].size};
    }
    if (!port->server.size) {
        message->msg_namelen =
            rp_udp_peer_unpack(&packets[0].peer, port->family, &plan->to[index]);
        message->msg_name = &plan->to[index];
    }
    if (length > 1) {
        rp_train_mark(message, &plan->controls[index], packets[0].size);
    }
}

static void make_plan(const struct rp_udp_port *port, struct plan *plan,
                      const struct rp_packet *packets, uint32_t count) {
    plan->count = 0;
    for (uint32_t i = 0, length; i < count; i += length) {
        length = 1;
        if (packets[i].size) {
            length = train_length(port, &packets[i], count - i);
            add_message(port, plan, i, &packets[i], length);
        }
    }
}

/* A train the kernel refused: its datagrams, each alone. Returns how many were lost. */
static uint32_t send_singly(struct rp_udp_port *port, const struct msghdr *train) {
    uint32_t lost = 0;
    for (size_t i = 0; i < (size_t)train->msg_iovlen; i++) {
        struct msghdr one = {.msg_name = train->msg_name, .msg_namelen = train->msg_namelen,
                             .msg_iov = &train->msg_iov[i], .msg_iovlen = 1};
        lost += sendmsg(port->socket, &one, MSG_DONTWAIT) < 0;
    }
    return lost;
}

/* The first message was not taken, for the reason in errno. Returns how many messages to go on
 * behind: 0 to try it again. */
static uint32_t handle_refusal(struct rp_udp_port *port, const struct plan *plan, uint32_t first,
                               int *tries) {
    const struct msghdr *message = &plan->messages[first].msg_hdr;
    if ((errno == EINTR || errno == ECONNREFUSED) && ++*tries < 4) {
        return 0; /* the pending error was reported, which clears it */
    }
    int temporary = errno == EAGAIN || errno == ENOBUFS || errno == ECONNREFUSED || errno == EINTR;
    if (message->msg_iovlen > 1 && !temporary) {
        port->base.dropped_out += send_singly(port, message);
    } else {
        port->base.dropped_out += message->msg_iovlen;
    }
    return 1;
}

void rp_udp_tx_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct rp_udp_port *port = (struct rp_udp_port *)(void *)opaque;
    struct plan plan;
    make_plan(port, &plan, packets, count);
    int tries = 0;
    for (uint32_t sent = 0; sent < plan.count;) {
        int taken = rp_datagrams_send(port->socket, plan.messages + sent, plan.count - sent);
        sent += taken > 0 ? (uint32_t)taken : handle_refusal(port, &plan, sent, &tries);
    }
    rp_lease_end(&port->send, count);
}
