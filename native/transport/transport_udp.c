/* Opening, waiting and closing; bursts are in transport_udp_receive.c and transport_udp_send.c. */
#include "transport/transport_udp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/status.h"
#include "os/forks.h"
#include "os/sockets.h"

static struct rp_udp_port *own(struct rp_port *port) {
    return (struct rp_udp_port *)(void *)port;
}

static int udp_wait(struct rp_port *opaque, uint64_t timeout_ns) {
    struct rp_udp_port *port = own(opaque);
    if (atomic_load_explicit(&port->receive.waiting, memory_order_relaxed)) {
        return 1;
    }
    return rp_wake_sleep(&port->wake, port->socket, timeout_ns);
}

static void udp_wake(struct rp_port *opaque) {
    rp_wake_set(&own(opaque)->wake);
}

static void udp_close(struct rp_port *opaque) {
    struct rp_udp_port *port = own(opaque);
    if (port->socket >= 0) {
        close(port->socket);
    }
    rp_wake_close(&port->wake);
    free(port->receive.memory);
    free(port->send.memory);
    free(port);
}

static uint32_t udp_facts(struct rp_port *opaque, struct rp_fact *facts) {
    const struct rp_udp_port *port = own(opaque);
    uint32_t count = 0;
    if (port->counts) { /* else it is not known: a 0 would say that there was none */
        rp_fact_add(facts, &count, RP_FACT_IN, "socket",
                    "lost at the socket: datagrams; where the kernel joins them, trains of up to "
                    "64", port->base.dropped_in - port->unusable - port->strangers);
    }
    rp_fact_add(facts, &count, RP_FACT_IN, "unusable",
                "empty, larger than the mtu, from port 0, or in a train that is not aligned",
                port->unusable);
    if (port->server.size) {
        rp_fact_add(facts, &count, RP_FACT_IN, "strangers",
                    "from another than the server, queued before the port was connected",
                    port->strangers);
    }
    rp_fact_add(facts, &count, RP_FACT_OUT, "not_taken", "datagrams the kernel did not take",
                port->base.dropped_out);
    return count;
}

static void set_options(struct rp_udp_port *port) {
    int off = 0, size = 0;
    socklen_t length = sizeof size;
    rp_socket_buffer(port->socket, SO_RCVBUF, port->receive_bytes);
    rp_socket_buffer(port->socket, SO_SNDBUF, port->send_bytes);
    (void)getsockopt(port->socket, SOL_SOCKET, SO_RCVBUF, &size, &length); /* else it stays 0 */
    port->base.receive_budget = rp_udp_budget((uint32_t)size, port->base.mtu);
    port->counts = rp_socket_count_drops(port->socket);
    if (port->family == AF_INET6) {
        (void)setsockopt(port->socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    port->gro = rp_trains_join(port->socket, 1);
    port->gso = rp_trains_cut(port->socket);
}

/* A socket at another local port, connected like the present one; -1 with errno. Where no socket is
 * to be had, bind says so. */
static int socket_at(const struct rp_udp_port *port, uint16_t local) {
    struct sockaddr_in6 from, to;
    socklen_t size = sizeof from;
    socklen_t to_size = rp_udp_peer_unpack(&port->server, port->family, &to);
    int made = rp_socket_open(port->family, SOCK_DGRAM);
    if (getsockname(port->socket, (struct sockaddr *)(void *)&from, &size) == 0) {
        from.sin6_port = htons(local); /* of both families, at the same place */
        if (bind(made, (struct sockaddr *)(void *)&from, size) == 0
            && connect(made, (struct sockaddr *)(void *)&to, to_size) == 0) {
            return made;
        }
    }
    close(made);
    return -1;
}

/* Another socket in the place of the port's; no fork begins while there are two. 1, or 0. */
static int move_socket(struct rp_udp_port *port, uint16_t local) {
    rp_forks_hold();
    int made = port->server.size ? socket_at(port, local) : -1;
    int moved = made >= 0 && rp_socket_move(made, port->socket) >= 0;
    if (made >= 0) {
        close(made);
    }
    rp_forks_allow();
    return moved;
}

/* The descriptor keeps its number, so a waiting thread need not learn a new one. That thread is
 * woken, because it sleeps on the old socket. */
static int udp_rebind(struct rp_port *opaque, uint16_t local) {
    struct rp_udp_port *port = own(opaque);
    struct sockaddr_in6 address;
    socklen_t size = sizeof address;
    int gso = port->gso, gro = port->gro;
    if (!move_socket(port, local)) {
        return -RP_SYSTEM;
    }
    port->kernel_dropped = 0; /* the new socket counts from there */
    set_options(port);
    if (!gro) {
        rp_udp_plain(opaque);
    }
    port->gso = gso;
    getsockname(port->socket, (struct sockaddr *)(void *)&address, &size);
    rp_udp_peer_pack(&port->base.address, &address);
    rp_wake_set(&port->wake);
    return 0;
}

static uint64_t udp_host(struct rp_port *port, const struct rp_peer *peer) {
    return rp_udp_host(&own(port)->own, peer);
}

static const struct rp_transport udp_transport = {
    .name = "udp",
    .rx_burst = rp_udp_rx_burst,
    .rx_release = rp_udp_rx_release,
    .tx_lease = rp_udp_tx_lease,
    .tx_send = rp_udp_tx_send,
    .wait = udp_wait,
    .close = udp_close,
    .wake = udp_wake,
    .rebind = udp_rebind,
    .facts = udp_facts,
    .host = udp_host,
    .more_room = RP_SOCKET_MORE,
};

static struct rp_udp_port *make_port(uint32_t mtu) {
    struct rp_udp_port *port = calloc(1, sizeof *port);
    if (!port) {
        return NULL;
    }
    port->base.transport = &udp_transport;
    port->base.mtu = mtu;
    port->socket = -1;
    port->receive.memory = aligned_alloc(64, (size_t)RP_UDP_BUFFERS * RP_UDP_STRIDE);
    port->receive.free_count = RP_UDP_BUFFERS;
    port->receive.ask = 1;
    for (uint32_t i = 0; i < RP_UDP_BUFFERS; i++) {
        port->receive.free[i] = (uint16_t)(RP_UDP_BUFFERS - 1 - i);
    }
    int leased = rp_lease_open(&port->send, mtu);
    (void)rp_wake_open(&port->wake); /* the last, so that errno is its own */
    if (!leased || port->wake.read < 0 || !port->receive.memory) {
        int why = port->wake.read < 0 ? errno : ENOMEM;
        udp_close((struct rp_port *)(void *)port);
        errno = why;
        return NULL;
    }
    return port;
}

static int system_error(const char *what, const char *address, char *error) {
    snprintf(error, RP_URL_ERROR_BYTES, "%.90s: %s: %s", address, what, strerror(errno));
    return -RP_SYSTEM;
}

static int bind_server(struct rp_udp_port *port, const struct sockaddr_in6 *address,
                       const char *text, char *error) {
    socklen_t size = port->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof *address;
    if (bind(port->socket, (const struct sockaddr *)(const void *)address, size) == 0) {
        return 0;
    }
    if (errno == EADDRINUSE) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "%.90s: the port is taken by another program, or by an earlier server of this one:"
                 " close that, choose another port, or 0 for any", text);
        return -RP_SYSTEM;
    }
    return system_error("cannot bind", text, error);
}

static int connect_client(struct rp_udp_port *port, const struct sockaddr_in6 *address,
                          const char *text, char *error) {
    socklen_t size = port->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof *address;
    rp_udp_peer_pack(&port->server, address);
    if (connect(port->socket, (const struct sockaddr *)(const void *)address, size) < 0) {
        return system_error("cannot reach it", text, error);
    }
    struct sockaddr_in6 reached;
    size = sizeof reached;
    if (getpeername(port->socket, (struct sockaddr *)(void *)&reached, &size) < 0) {
        return system_error("cannot reach it", text, error);
    }
    rp_udp_peer_pack(&port->connected, &reached);
    return 0;
}

/* Protected mode, as in Redis: without a key only this host, unless that is said in plain words. */
static int refuse_open_address(const char *text, char *error) {
    snprintf(error, RP_URL_ERROR_BYTES,
             "%.90s: other hosts could reach it, and there is no key: bind 127.0.0.1 or [::1], or "
             "say insecure (--insecure) if all who can reach it are trusted", text);
    return -RP_INSECURE;
}

static int open_socket(struct rp_udp_port *port, const struct sockaddr_in6 *address,
                       const struct rp_port_options *options, const char *text, char *error) {
    port->family = address->sin6_family;
    port->receive_bytes = options->receive_bytes ? options->receive_bytes : RP_UDP_SOCKET_BYTES;
    port->send_bytes = options->send_bytes ? options->send_bytes : RP_UDP_SOCKET_BYTES;
    port->socket = rp_socket_open(port->family, SOCK_DGRAM);
    if (port->socket < 0) {
        return system_error("cannot open a socket", text, error);
    }
    set_options(port);
    return options->serve ? bind_server(port, address, text, error)
                          : connect_client(port, address, text, error);
}

int rp_udp_open(struct rp_port **opened, const struct rp_url *url,
                const struct rp_port_options *options, struct rp_peer *server, char *bound,
                char *error) {
    struct sockaddr_in6 address;
    char text[RP_URL_TEXT_BYTES];
    int status = rp_udp_resolve(&address, url, error);
    if (status) {
        return status;
    }
    rp_udp_print(text, sizeof text, &address);
    if (options->serve && !options->insecure && !rp_udp_is_loopback(&address)) {
        return refuse_open_address(text, error);
    }
    if (!options->serve && url->port == 0) {
        snprintf(error, RP_URL_ERROR_BYTES, "%.90s: a client needs the server's port", text);
        return -RP_BAD_ARGUMENT;
    }
    struct rp_udp_port *port = make_port(options->mtu);
    if (!port) {
        int why = errno; /* EMFILE among them */
        snprintf(error, RP_URL_ERROR_BYTES, "%.90s: no port: %s", text, strerror(why));
        return why == ENOMEM ? -RP_NO_MEMORY : -RP_SYSTEM;
    }
    status = open_socket(port, &address, options, text, error);
    if (status) {
        udp_close((struct rp_port *)(void *)port);
        return status;
    }
    socklen_t size = sizeof address;
    getsockname(port->socket, (struct sockaddr *)(void *)&address, &size);
    rp_udp_peer_pack(&port->base.address, &address);
    rp_udp_print(bound, RP_URL_TEXT_BYTES, &address);
    if (options->serve) {
        rp_udp_own(&port->own);
    }
    *server = options->serve ? port->base.address : port->server;
    *opened = (struct rp_port *)(void *)port;
    return 0;
}

uint32_t rp_udp_offloads(struct rp_port *port) {
    return (own(port)->gso ? 1u : 0u) | (own(port)->gro ? 2u : 0u);
}

void rp_udp_plain(struct rp_port *port) {
    own(port)->gso = 0;
    if (rp_trains_join(own(port)->socket, 0)) {
        own(port)->gro = 0;
    }
}
