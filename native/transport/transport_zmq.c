/* Bursts over a ZeroMQ socket, see transport_zmq.h. Each lent frame keeps its zmq_msg_t in a slot;
 * a slot has a buffer of its own for frames that lie askew. */
#include "transport/transport_zmq.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/status.h"
#include "transport/transport_lend.h"
#include "transport/transport_udp.h"
#include "transport/transport_zmtp.h"
#include "os/wake.h"

/* Of libzmq's interface, unchanged since 4.1: options, flags, and the size of a zmq_msg_t. */
enum { EVENTS = 15, EVENT_IN = 1, DONTWAIT = 1, SNDMORE = 2, MESSAGE_WORDS = 8 };

struct message {
    uint64_t opaque[MESSAGE_WORDS];
};

struct zmq_port {
    struct rp_port_base base;
    struct rp_zmq_socket zmq;
    int routes; /* a ROUTER: a message begins with its sender */
    struct rp_wake wake;
    _Atomic int sleeping; /* a wait is under way: readiness has to wake it */
    _Atomic int ready;
    int inside; /* the next frame belongs to the message of `sender` */
    struct rp_peer sender; /* size 0: no answer could reach it, its frames are dropped */
    struct rp_slots slots;
    struct rp_lease lease;
    struct message messages[RP_BURST]; /* of each slot */
};

static struct zmq_port *own(struct rp_port *port) {
    return (struct zmq_port *)(void *)port;
}

/* ---- receiving ---- */

static void read_sender(struct zmq_port *port, struct message *message) {
    size_t size = port->zmq.msg_size(message);
    memset(&port->sender, 0, sizeof port->sender);
    if (size <= RP_PEER_BYTES) {
        port->sender.size = (uint32_t)size;
        memcpy(port->sender.bytes, port->zmq.msg_data(message), size);
    }
}

/* A frame becomes a packet: 1. It is a sender's address, or nothing we take: 0. */
static int take(struct zmq_port *port, uint32_t slot, struct rp_packet *packet) {
    struct message *message = &port->messages[slot];
    int begins = port->routes && !port->inside;
    port->inside = port->zmq.msg_more(message);
    if (begins) {
        read_sender(port, message);
        return 0;
    }
    size_t size = port->zmq.msg_size(message);
    if (size == 0 || size > port->base.mtu || port->sender.size == 0) {
        port->base.dropped_in++;
        return 0;
    }
    memset(packet, 0, sizeof *packet);
    packet->data = port->zmq.msg_data(message);
    if ((uintptr_t)packet->data % 8) {
        packet->data = memcpy(rp_slots_buffer(&port->slots, slot), packet->data, size);
    }
    packet->size = (uint32_t)size;
    packet->peer = port->sender;
    packet->token = slot;
    return 1;
}

/* Frames that are dropped are work too: at most four for each that may be lent. */
static uint32_t zmq_rx_burst(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct zmq_port *port = own(opaque);
    uint32_t lent = 0;
    int drained = 0;
    assert(count <= RP_BURST);
    for (uint32_t look = 0; look < 4 * count && lent < count && port->slots.free_count; look++) {
        uint32_t slot = port->slots.free[port->slots.free_count - 1];
        struct message *message = &port->messages[slot];
        port->zmq.msg_init(message);
        if (port->zmq.msg_recv(message, port->zmq.socket, DONTWAIT) < 0) {
            port->zmq.msg_close(message);
            drained = 1;
            break;
        }
        if (take(port, slot, &packets[lent])) {
            port->slots.free_count--;
            lent++;
        } else {
            port->zmq.msg_close(message);
        }
    }
    port->ready = !drained;
    return lent;
}

static void zmq_rx_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct zmq_port *port = own(opaque);
    for (uint32_t i = 0; i < count; i++) {
        port->zmq.msg_close(&port->messages[packets[i].token]);
    }
    rp_slots_release(&port->slots, packets, count);
}

/* ---- sending ---- */

static uint32_t zmq_tx_lease(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    return rp_lease_take(&own(port)->lease, packets, count, rp_port_base(port)->mtu);
}

static int send_frame(struct zmq_port *port, const void *data, size_t size, int more) {
    struct message message;
    if (port->zmq.msg_init_size(&message, size) != 0) {
        return 0;
    }
    memcpy(port->zmq.msg_data(&message), data, size);
    if (port->zmq.msg_send(&message, port->zmq.socket, DONTWAIT | (more ? SNDMORE : 0)) < 0) {
        port->zmq.msg_close(&message);
        return 0;
    }
    return 1;
}

/* The first frame is refused where the queue is full or the peer has gone. A later frame fails only
 * for want of memory; then an empty frame ends the message that was begun. */
static void send_message(struct rp_port *opaque, const struct rp_packet *packets, uint32_t count) {
    struct zmq_port *port = own(opaque);
    const struct rp_peer *peer = &packets[0].peer;
    int taken = !port->routes || send_frame(port, peer->bytes, peer->size, 1);
    int begun = port->routes && taken;
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size) {
            assert(packets[i].size <= packets[i].capacity);
            taken = taken && send_frame(port, packets[i].data, packets[i].size, i + 1 < count);
            begun = begun || taken;
            port->base.dropped_out += !taken;
        }
    }
    if (begun && !taken) {
        (void)send_frame(port, "", 0, 0);
    }
}

/* Sending may have cleared the descriptor's report of a message that came meanwhile. */
static void look_for_news(struct zmq_port *port) {
    int events = 0;
    size_t size = sizeof events;
    if (port->zmq.getsockopt(port->zmq.socket, EVENTS, &events, &size) == 0
        && (events & EVENT_IN)) {
        port->ready = 1;
        if (port->sleeping) {
            rp_wake_set(&port->wake);
        }
    }
}

static void zmq_tx_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct zmq_port *port = own(opaque);
    if (rp_lease_send(&port->lease, opaque, packets, count, send_message)) {
        look_for_news(port);
    }
}

/* ---- waiting, opening, closing ---- */

static int zmq_wait(struct rp_port *opaque, uint64_t timeout_ns) {
    struct zmq_port *port = own(opaque);
    port->sleeping = 1; /* before `ready` is read: look_for_news writes and reads the other way */
    int some = port->ready || rp_wake_sleep(&port->wake, port->zmq.descriptor, timeout_ns);
    port->sleeping = 0;
    return some;
}

static void zmq_wake(struct rp_port *opaque) {
    rp_wake_set(&own(opaque)->wake);
}

/* The socket stays Python's; a forked child must not touch it at all, and this does not. */
static void zmq_close(struct rp_port *opaque) {
    struct zmq_port *port = own(opaque);
    rp_wake_close(&port->wake);
    free(port->slots.memory);
    free(port->lease.memory);
    free(port);
}

static uint32_t zmq_facts(struct rp_port *port, struct rp_fact *facts) {
    uint32_t count = 0;
    rp_fact_add(facts, &count, RP_FACT_IN, "unusable",
                "frames that are empty, larger than the mtu, or of a nameless sender",
                rp_port_base(port)->dropped_in);
    rp_fact_add(facts, &count, RP_FACT_OUT, "not_taken",
                "datagrams to a peer that has gone, or whose queue is full",
                rp_port_base(port)->dropped_out);
    return count;
}

static const struct rp_transport zmq_transport = {
    .name = "zmq",
    .rx_burst = zmq_rx_burst,
    .rx_release = zmq_rx_release,
    .tx_lease = zmq_tx_lease,
    .tx_send = zmq_tx_send,
    .wait = zmq_wait,
    .close = zmq_close,
    .wake = zmq_wake,
    .facts = zmq_facts,
};

static struct zmq_port *make_port(uint32_t mtu) {
    struct zmq_port *port = calloc(1, sizeof *port);
    if (!port) {
        return NULL;
    }
    port->base.transport = &zmq_transport;
    port->base.mtu = mtu;
    port->base.receive_budget = RP_ZMQ_RECEIVE_BUDGET;
    int why = rp_wake_open(&port->wake) ? errno : ENOMEM;
    if (!rp_slots_open(&port->slots, mtu) || !rp_lease_open(&port->lease, mtu)
        || port->wake.read < 0) {
        zmq_close((struct rp_port *)(void *)port);
        errno = why;
        return NULL;
    }
    return port;
}

int rp_zmq_open(struct rp_port **opened, const struct rp_url *url,
                const struct rp_port_options *options, struct rp_peer *server, char *bound,
                char *error) {
    if (!options->zmq && options->serve) {
        return rp_zmtp_open(opened, url, options, server, bound, error);
    }
    if (!options->zmq) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "zmq+tcp://%.60s:%u: a client's ZeroMQ sockets are opened by the Python package: "
                 "use its Client, or udp:// from here", url->host, url->port);
        return -RP_NO_TRANSPORT;
    }
    struct zmq_port *port = make_port(options->mtu);
    if (!port) {
        int why = errno; /* EMFILE among them */
        snprintf(error, RP_URL_ERROR_BYTES, "zmq+tcp://%.60s:%u: no port: %s", url->host,
                 url->port, strerror(why));
        return why == ENOMEM ? -RP_NO_MEMORY : -RP_SYSTEM;
    }
    port->zmq = *options->zmq;
    port->routes = options->serve;
    /* a DEALER has one peer, and all that comes is from it */
    port->sender = (struct rp_peer){.size = 1};
    port->base.address = port->sender;
    *server = port->sender;
    snprintf(bound, RP_URL_TEXT_BYTES, "zmq+%.110s", port->zmq.endpoint);
    *opened = (struct rp_port *)(void *)port;
    return 0;
}

int rp_zmq_unguarded(const char *url, char *error) {
    snprintf(error, RP_URL_ERROR_BYTES,
             "%.70s: other hosts could reach it, and there is no key: bind 127.0.0.1 or [::1], "
             "give curve_secret_key, or say insecure (--insecure) if all who can reach it are "
             "trusted", url);
    return -RP_INSECURE;
}

int rp_zmq_endpoint(const char *text, int serve, int guarded, char *endpoint, char *error) {
    struct rp_url url;
    struct sockaddr_in6 address;
    char host[RP_URL_TEXT_BYTES];
    int status = rp_url_parse(&url, text, error);
    status = status ? status : rp_udp_resolve(&address, &url, error);
    if (status) {
        return status;
    }
    rp_udp_print(host, sizeof host, &address);
    if (serve && !guarded && !rp_udp_is_loopback(&address)) {
        return rp_zmq_unguarded(text, error);
    }
    if (!serve && url.port == 0) {
        snprintf(error, RP_URL_ERROR_BYTES, "%.90s: a client needs the server's port", text);
        return -RP_BAD_ARGUMENT;
    }
    snprintf(endpoint, RP_ZMQ_ENDPOINT_BYTES, "tcp://%.90s", strstr(host, "://") + 3);
    return 0;
}
