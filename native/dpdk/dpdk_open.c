/* Opening a port: it reads the url, starts DPDK, opens the wire, and sets the port's address on it.
 * Also the border: the one symbol that the core looks up. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "dpdk/dpdk_port.h"
#include "protocol/status.h"

static const uint64_t TIMEOUT_NS = 5000000000;

enum {
    PORT_FIRST = 49152, PORT_COUNT = 16384,
    EARLY = 8, /* a burst on shared memory is cheap, and its reader waits for it */
};

/* As its device is called; else locally administered, and one for each address of a network. */
static void name_host(struct rp_frame_host *host, const uint8_t *mac) {
    static const uint8_t none[RP_FRAME_MAC];
    if (memcmp(mac, none, sizeof none) != 0) {
        memcpy(host->mac, mac, sizeof host->mac);
        return;
    }
    host->mac[0] = 0x02;
    host->mac[1] = 0x52;
    memcpy(host->mac + 2, host->ip, RP_FRAME_IP);
}

uint16_t rp_dpdk_some_port(void) {
    uint16_t random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    return (uint16_t)(PORT_FIRST + random % PORT_COUNT);
}

/* One that no other link of this process has on that device: of so many in a row one is free. */
static uint16_t find_port(struct rp_wire *wire) {
    uint16_t first = rp_dpdk_some_port();
    for (uint32_t i = 0; i < RP_DPDK_SHARERS; i++) {
        uint16_t port = (uint16_t)(PORT_FIRST + (first - PORT_FIRST + i) % PORT_COUNT);
        if (!wire->share || rp_share_name(wire->share, &wire->seat, port) == 0) {
            return port;
        }
    }
    return 0;
}

/* Sets this port's address, and for a client its server's. */
static void settle(struct port *port, const struct rp_frame_host *at,
                   const struct rp_dpdk_options *options) {
    static const uint8_t unsaid[RP_FRAME_IP];
    port->host = *at;
    if (port->is_client) {
        port->server = *at;
        memcpy(port->hop, at->ip, sizeof port->hop);
        rp_dpdk_pack(&port->server_peer, &port->server, 0);
        port->host.port = find_port(&port->wire);
        port->host.ip[3] = (uint8_t)((at->ip[3] + port->wire.slot) % 254 + 1);
        if (memcmp(options->ip, unsaid, sizeof unsaid) != 0) {
            memcpy(port->host.ip, options->ip, RP_FRAME_IP);
        }
    }
    if (memcmp(options->gateway, unsaid, sizeof unsaid) != 0) {
        memcpy(port->hop, options->gateway, sizeof port->hop);
    }
    if (port->wire.queues) {
        port->host.first_port = port->wire.queues->first_port;
        port->host.port_count = (uint16_t)port->wire.queues->count;
    }
    name_host(&port->host, port->wire.mac);
    rp_dpdk_pack(&port->base.address, &port->host, 0);
}

static void print_bound(char *bound, const struct rp_url *url, uint16_t port,
                        const struct rp_dpdk_options *options) {
    if (options->vdev > RP_VDEV_MEMIF) { /* over whatever its clients have */
        snprintf(bound, RP_URL_TEXT_BYTES, "udp://%.15s:%u", url->host, port);
    } else if (options->vdev == RP_VDEV_RING) {
        snprintf(bound, RP_URL_TEXT_BYTES, "dpdk://%.15s:%u?vdev=net_ring", url->host, port);
    } else {
        snprintf(bound, RP_URL_TEXT_BYTES, "dpdk://%.15s:%u?vdev=net_memif,role=client,socket=%s",
                 url->host, port, options->socket);
    }
}

/* Checks all that can be checked before DPDK starts. */
static int check_url(struct rp_frame_host *at, struct rp_dpdk_options *parsed,
                     const struct rp_url *url, const struct rp_port_options *options, char *error) {
    const char *wrong = NULL;
    memset(at, 0, sizeof *at);
    if (inet_pton(AF_INET, url->host, at->ip) != 1 || at->ip[0] == 0 || at->ip[0] >= 224) {
        wrong = "HOST is the server's own IPv4 address on the DPDK network, such as 10.0.0.1";
    } else if (!options->serve && !url->port) {
        wrong = "a client needs the server's port";
    } else if (options->mtu > RP_DPDK_MTU_MAX) {
        wrong = "over dpdk:// the mtu is at most 8960 bytes";
    }
    if (wrong) {
        snprintf(error, RP_URL_ERROR_BYTES, "dpdk://%.60s:%u: %.120s", url->host, url->port, wrong);
        return -RP_BAD_ARGUMENT;
    }
    at->port = url->port ? url->port : rp_dpdk_some_port();
    return rp_dpdk_read_options(parsed, url, at->ip, options->serve, error);
}

/* Protected mode, as over udp://; and what a device lacks. */
static int check_device(const struct rp_dpdk_options *parsed, const struct rp_url *url,
                        const struct rp_port_options *options, char *error) {
    char why[RP_URL_ERROR_BYTES - 40];
    int status = 0;
    if (parsed->vdev > RP_VDEV_MEMIF && options->serve && !options->insecure) {
        status = RP_INSECURE;
        snprintf(why, sizeof why,
                 "other hosts could reach it, and there is no key: take vdev=net_ring or "
                 "net_memif, or say insecure (--insecure) if all who can reach it are trusted");
    } else {
        status = rp_card_check(parsed, why, sizeof why);
    }
    if (status) {
        snprintf(error, RP_URL_ERROR_BYTES, "dpdk://%.20s:%u: %s", url->host, url->port, why);
    }
    return -status;
}

/* The datagrams in flight towards all links of a device are to fit its ring, more or less. */
static uint32_t budget(const struct rp_wire *wire) {
    return RP_DPDK_BUDGET / (wire->share ? wire->share->count : 1);
}

static int open_port(struct rp_port **opened, const struct rp_url *url,
                     const struct rp_port_options *options, struct rp_peer *server, char *bound,
                     char *error) {
    struct rp_dpdk_options parsed;
    struct rp_frame_host at;
    int status = check_url(&at, &parsed, url, options, error);
    status = status ? status : check_device(&parsed, url, options, error);
    if (status) {
        return status;
    }
    uint64_t wait = options->timeout_ns ? options->timeout_ns : TIMEOUT_NS, now = rp_wire_now_ns();
    struct rp_wire_place place = {.port = at.port, .serve = options->serve, .mtu = options->mtu,
                                  .until_ns = wait < UINT64_MAX - now ? now + wait : UINT64_MAX};
    struct port *port = calloc(1, sizeof *port);
    snprintf(place.host, sizeof place.host, "%s", url->host);
    if (!port) {
        return rp_dpdk_refuse_plainly(error, &place, RP_NO_MEMORY, "no memory for a port");
    }
    status = rp_eal_start(&parsed.eal, error);
    status = status ? status : rp_wire_open(&port->wire, &place, &parsed, error);
    if (status) {
        free(port);
        return status;
    }
    port->base = (struct rp_port_base){.transport = &rp_dpdk_transport, .mtu = options->mtu,
                                       .receive_budget = budget(&port->wire),
                                       .early = port->wire.in_memory ? EARLY : 0};
    port->process = getpid();
    port->is_client = !options->serve;
    port->base.is_within = port->is_client && port->wire.hub;
    if (rp_sleep_open(&port->sleep, &port->wire)) {
        rp_wire_close(&port->wire);
        rp_sleep_close(&port->sleep);
        free(port);
        return rp_dpdk_refuse_plainly(error, &place, RP_SYSTEM, "this process has no file left");
    }
    rp_bursts_open(&port->bursts);
    settle(port, &at, &parsed);
    *server = port->is_client ? port->server_peer : port->base.address;
    print_bound(bound, url, at.port, &parsed);
    if (port->is_client) {
        rp_arp_resolve(port, place.until_ns); /* without an answer its sends ask */
    }
    rp_arp_opened(port);
    *opened = (struct rp_port *)port;
    return 0;
}

/* ---- the border ---- */

static uint64_t dropped(struct rp_port *opaque, int kind) {
    return kind >= 0 && kind < RP_FRAME_KINDS ? own(opaque)->drops[kind] : 0;
}

static uint32_t in_use(struct rp_port *opaque) {
    return rte_mempool_in_use_count(own(opaque)->wire.pool);
}

#define SHOWN __attribute__((visibility("default")))
extern const int rp_dpdk_takes_cards;
SHOWN const int rp_dpdk_takes_cards = 1; /* port= works: for `replay_server doctor` */
extern const struct rp_dpdk_object rp_dpdk_object;
SHOWN const struct rp_dpdk_object rp_dpdk_object = {
    .layout = RP_DPDK_LAYOUT,
    .open = open_port,
    .dropped = dropped,
    .in_use = in_use,
    .leaked = rp_pool_leaked,
    .waits = rp_bursts_waits,
    .learn_forks = rp_forks_learn,
};
