/* Receiving: the kernel fills buffers, each of them one datagram or, with GRO, a train of them.
 *
 * A train's datagrams are lent where they lie. That needs slices that start at multiples of 8:
 * every datagram of this protocol is a multiple of 8 long, and a train of other sizes, which only a
 * stranger sends, is spread out in its buffer, last datagram first. Buffers are taken from a stack,
 * so that a quiet port keeps to one that is in the cache.
 *
 * A call asks for as many messages as are likely to come, judged by the last call. Each message
 * asked for costs some 30 ns even if it does not come, and the kernel looks in vain once more where
 * one is missing. A port that polls for a single answer asks for one; under load it asks for twice
 * as many as came.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/minmax.h"
#include "os/sockets.h"
#include "transport/transport_udp.h"

static uint8_t *buffer_at(struct rp_udp_port *port, uint32_t buffer) {
    return port->receive.memory + (size_t)buffer * RP_UDP_STRIDE;
}

/* The segment size the kernel reports (0: a single datagram), and what it has dropped so far: a
 * train that found no room is one drop there, and nobody knows how many datagrams it was. */
static uint32_t read_control(struct rp_udp_port *port, struct msghdr *message) {
    uint32_t dropped = port->kernel_dropped;
    uint32_t segment = rp_datagram_control(message, &dropped);
    port->base.dropped_in += dropped - port->kernel_dropped;
    port->kernel_dropped = dropped;
    return segment;
}

static uint32_t datagrams_of(const struct rp_udp_arrival *arrival) {
    return arrival->size ? (arrival->size + arrival->segment - 1) / arrival->segment : 1;
}

/* Moves slices of odd size to multiples of 8. 0 where they do not fit. */
static int spread(uint8_t *data, struct rp_udp_arrival *arrival) {
    uint32_t count = datagrams_of(arrival);
    uint32_t stride = (arrival->segment + 7) & ~7u;
    if ((uint64_t)count * stride > RP_UDP_BUFFER_BYTES + RP_UDP_SPREAD_BYTES) {
        return 0;
    }
    for (uint32_t i = count; i-- > 1;) {
        uint32_t from = i * arrival->segment;
        uint32_t size = arrival->size - from;
        size = rp_min(size, arrival->segment);
        memmove(data + (size_t)i * stride, data + from, size);
    }
    arrival->stride = stride;
    return 1;
}

static void free_buffer(struct rp_udp_receive *receive, uint32_t buffer) {
    assert(receive->holds[buffer] == 0 && receive->free_count < RP_UDP_BUFFERS);
    receive->free[receive->free_count++] = (uint16_t)buffer;
}

/* Whether the server sent it. Before the port was connected anybody could send to it, and what came
 * then waits in front. A system may name no sender at a connected socket: we know no more there. */
static int is_servers(const struct rp_udp_port *port, const struct sockaddr_in6 *from) {
    struct rp_peer sender;
    rp_udp_peer_pack(&sender, from);
    return from->sin6_family == AF_UNSPEC
        || memcmp(&sender, &port->connected, sizeof sender) == 0;
}

/* Drops the newest arrival, under this reason. */
static void drop_arrival(struct rp_udp_port *port, uint64_t *reason) {
    struct rp_udp_receive *receive = &port->receive;
    const struct rp_udp_arrival *arrival = &receive->arrivals[receive->waiting];
    port->base.dropped_in += datagrams_of(arrival);
    *reason += datagrams_of(arrival);
    free_buffer(receive, arrival->buffer);
}

/* Notes what one message brought. An empty one is dropped, one larger than the mtu (which is cut
 * off where buffers are no larger), one from port 0, to which no answer can be sent, and at a
 * client's port one that is not the server's. */
static void note_arrival(struct rp_udp_port *port, rp_datagram *message, uint32_t buffer,
                         const struct sockaddr_in6 *from) {
    struct rp_udp_receive *receive = &port->receive;
    struct rp_udp_arrival *arrival = &receive->arrivals[receive->waiting];
    uint32_t segment = read_control(port, &message->msg_hdr);
    *arrival = (struct rp_udp_arrival){.buffer = buffer, .size = message->msg_len,
                                       .segment = segment ? segment : message->msg_len};
    arrival->stride = arrival->segment;
    int nobody = !port->server.size && from->sin6_port == 0; /* of both families, at one place */
    int large = arrival->segment > port->base.mtu || (message->msg_hdr.msg_flags & MSG_TRUNC);
    if (!arrival->size || nobody || large
        || (arrival->segment % 8 && arrival->size > arrival->segment
            && !spread(buffer_at(port, buffer), arrival))) {
        drop_arrival(port, &port->unusable);
        return;
    }
    if (port->server.size && !is_servers(port, from)) {
        drop_arrival(port, &port->strangers);
        return;
    }
    if (port->server.size) {
        arrival->peer = port->server;
    } else {
        rp_udp_peer_pack(&arrival->peer, from);
    }
    receive->holds[buffer] = (uint16_t)datagrams_of(arrival);
    receive->waiting++;
}

/* One recvmmsg into as many free buffers as a burst can use. A pending error (no socket listens at
 * a peer's port) is consumed by the call that reports it, so a second try has the true result. */
static int receive_messages(struct rp_udp_port *port, rp_datagram *messages, uint32_t count) {
    for (int tries = 0; tries < 4; tries++) {
        int got = rp_datagrams_receive(port->socket, messages, count);
        if (got >= 0 || (errno != EINTR && errno != ECONNREFUSED)) {
            return got;
        }
    }
    return 0;
}

static void fill(struct rp_udp_port *port, uint32_t count) {
    struct rp_udp_receive *receive = &port->receive;
    rp_datagram messages[RP_UDP_RECEIVE_MAX];
    struct iovec vectors[RP_UDP_RECEIVE_MAX];
    struct sockaddr_in6 from[RP_UDP_RECEIVE_MAX];
    struct rp_control controls[RP_UDP_RECEIVE_MAX];
    count = rp_min(count, RP_UDP_RECEIVE_MAX);
    uint32_t room = rp_min(count, receive->free_count);
    count = rp_min(room, receive->ask);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t buffer = receive->free[receive->free_count - 1 - i];
        vectors[i].iov_base = buffer_at(port, buffer);
        vectors[i].iov_len = port->gro ? RP_UDP_BUFFER_BYTES : port->base.mtu;
        from[i].sin6_family = AF_UNSPEC;
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &from[i], .msg_namelen = sizeof from[i],
            .msg_iov = &vectors[i], .msg_iovlen = 1,
            .msg_control = &controls[i], .msg_controllen = sizeof controls[i]};
    }
    int got = count ? receive_messages(port, messages, count) : 0;
    receive->ask = got <= 0 ? 1 : 2 * (uint32_t)got;
    receive->filled = got > 0 && (uint32_t)got == room;
    uint16_t filled[RP_UDP_RECEIVE_MAX];
    for (int i = 0; i < got; i++) {
        filled[i] = receive->free[--receive->free_count];
    }
    receive->first = 0;
    for (int i = 0; i < got; i++) {
        note_arrival(port, &messages[i], filled[i], &from[i]);
    }
}

/* Lends the next slice of the oldest arrival. */
static void lend(struct rp_udp_port *port, struct rp_packet *packet) {
    struct rp_udp_receive *receive = &port->receive;
    struct rp_udp_arrival *arrival = &receive->arrivals[receive->first];
    uint32_t size = rp_min(arrival->size, arrival->segment);
    packet->data = buffer_at(port, arrival->buffer) + arrival->offset;
    packet->size = size;
    packet->capacity = 0;
    packet->peer = arrival->peer;
    packet->misdirected = 0;
    packet->token = arrival->buffer;
    arrival->offset += arrival->stride;
    arrival->size -= size;
    if (arrival->size == 0) {
        receive->first++;
        receive->waiting--;
    }
}

uint32_t rp_udp_rx_burst(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct rp_udp_port *port = (struct rp_udp_port *)(void *)opaque;
    uint32_t lent = 0;
    assert(count <= RP_BURST);
    if (!port->receive.waiting) {
        fill(port, count);
    }
    while (lent < count && port->receive.waiting) {
        lend(port, &packets[lent++]);
    }
    port->base.left_behind = port->receive.waiting || port->receive.filled;
    return lent;
}

void rp_udp_rx_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct rp_udp_port *port = (struct rp_udp_port *)(void *)opaque;
    struct rp_udp_receive *receive = &port->receive;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t buffer = (uint32_t)packets[i].token;
        assert(buffer < RP_UDP_BUFFERS && receive->holds[buffer] > 0);
        packets[i].data = NULL;
        if (--receive->holds[buffer] == 0) {
            free_buffer(receive, buffer);
        }
    }
}
