/* Wires with a network behind them: an Ethernet device of DPDK's, found by name. A PCI card, or a
 * virtual device on an interface of the kernel's: raw sockets, AF_XDP, a tap.
 *
 * Devices of the kernel's belong to the network namespace DPDK was started in: they are opened and
 * closed in its interrupt thread, which stays where the first dpdk:// url was opened.
 */
#define ALLOW_EXPERIMENTAL_API /* to hear that a card is unbound; so it is named in 22.11 still */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <rte_alarm.h>
#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dpdk_parts.h"
#include "status.h"

enum {
    IP_HEADERS = RP_FRAME_HEADERS - RP_FRAME_ETHERNET, /* what an interface's mtu counts beside */
    PACKET_HEADER = 128,    /* what AF_PACKET writes ahead of a frame in its ring, and more */
    PACKET_BLOCK = 1 << 16, /* bytes of its memory in one piece; no frame is larger */
    PACKET_RING_BYTES = 1 << 21,
    CARD_ROOM = 1024, /* cards take buffers in such steps */
    REAP_TRIES = 100, REAP_NAP_NS = 1000000,
    LOOK_US = 250000, /* between two looks for an interface */
    VDEV_ARGUMENTS = 160, WHY_BYTES = 180,
};

#define RX_SUMS ((uint64_t)RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM)

/* An open device. The first server's port on it is its shard 0's; those of the other shards, which
 * poll its other queues, join it. Where a client opened it, other clients share its queue. */
struct rp_card {
    struct rp_card *next;
    enum rp_vdev vdev;
    char what[sizeof ((struct rp_dpdk_options *)0)->eal.card]; /* an interface or a PCI address */
    char name[RTE_ETH_NAME_MAX_LEN]; /* DPDK's */
    uint16_t device;
    int is_probed;
    int is_configured;
    int is_started;
    uint32_t members;
    uint32_t taken; /* bit i: shard i is here */
    uint32_t mtu;
    uint32_t vlan;
    char host[RP_URL_HOST_BYTES]; /* a server's */
    int serves;
    uint8_t ip[RP_FRAME_IP]; /* this host's there */
    int64_t held;            /* the lock of that address on the interface; -1: none */
    uint32_t mbufs;
    struct rp_share share;
    struct rp_queues queues;
    uint8_t mac[RP_FRAME_MAC];
    struct rte_mempool *pool;
    atomic_int is_lost; /* unbound: the kernel waits until it is closed; or its interface is gone */
    unsigned interface; /* its number */
    char lost[96];
    uint32_t kept; /* mbufs of it that its driver takes at its start, and keeps at its end */
    struct rp_sockets sockets;
    int reads_sums;
    int writes_sums;
};

struct opening {
    struct rp_card *card;
    const struct rp_dpdk_options *options;
    uint32_t mtu;
    int status;
    char why[WHY_BYTES];
};

static const char no_ring[] = "no memory for a link";

static struct rp_card *cards; /* within the lock of wires */

static int fail(struct opening *opening, int status, const char *why, const char *what)
{
    snprintf(opening->why, sizeof opening->why, why, what);
    return status;
}

/* The largest datagram, said where one is too large. */
static int fail_mtu(struct opening *opening, uint32_t packet, const char *next)
{
    uint32_t largest = packet > IP_HEADERS ? (packet - IP_HEADERS) / 8 * 8 : 0;
    snprintf(opening->why, sizeof opening->why, "mtu=%u is too large: %s carries at most mtu=%u%s",
             opening->mtu, opening->card->what, largest, next);
    return RP_BAD_ARGUMENT;
}

/* ---- interfaces of the kernel's ---- */

static uint32_t frame_bytes(uint32_t mtu)
{
    uint32_t bytes = 2048;
    while (bytes < mtu + RP_FRAME_HEADERS + PACKET_HEADER) {
        bytes *= 2;
    }
    return bytes;
}

/* What an interface must be for a device on it, asked before its driver would. */
static int check_interface(struct opening *opening)
{
    uint32_t mtu = rp_interface_mtu(opening->card->what);
    if (!mtu) {
        return fail(opening, RP_SYSTEM, "there is no network interface %.16s here: `ip link` "
                    "lists them, each network namespace has its own", opening->card->what);
    }
    return mtu < opening->mtu + IP_HEADERS
        ? fail_mtu(opening, mtu, ", until ip link set raises its own mtu") : 0;
}

/* Nobody on this host has the address. */
static int check_address(struct opening *opening)
{
    struct rp_card *card = opening->card;
    const struct rp_hold hold = {.interface = card->what, .ip = card->ip, .vlan = card->vlan};
    return rp_interface_hold(&hold, &card->held, opening->why, sizeof opening->why) ? RP_SYSTEM : 0;
}

static int probe_vdev(struct opening *opening)
{
    struct rp_card *card = opening->card;
    char arguments[VDEV_ARGUMENTS];
    uint32_t frame = frame_bytes(opening->mtu);
    int status = card->vdev == RP_VDEV_TAP ? 0 : check_interface(opening);
    status = status ? status : check_address(opening);
    if (status) {
        return status;
    }
    snprintf(card->name, sizeof card->name, "%s%u", rp_vdev_name(card->vdev), rp_wire_number());
    if (card->vdev == RP_VDEV_AF_PACKET) {
        snprintf(arguments, sizeof arguments,
                 "iface=%s,qpairs=%u,blocksz=%u,framesz=%u,framecnt=%u", card->what,
                 card->queues.count, PACKET_BLOCK, frame, PACKET_RING_BYTES / frame);
    } else if (card->vdev == RP_VDEV_AF_XDP) {
        snprintf(arguments, sizeof arguments, "iface=%s,queue_count=%u", card->what,
                 card->queues.count);
    } else {
        snprintf(arguments, sizeof arguments, "iface=%s", card->what);
    }
    if (card->vdev != RP_VDEV_TAP && !rp_interface_may_open()) {
        return fail(opening, RP_SYSTEM, "the interface %.16s needs root, or CAP_NET_RAW and "
                    "CAP_NET_ADMIN (AF_XDP: CAP_SYS_ADMIN too)", card->what);
    }
    if (card->vdev == RP_VDEV_AF_XDP) { /* another process may have been killed just now */
        rp_xdp_await(card->what, card->queues.count);
    }
    if (rte_vdev_init(card->name, arguments)) {
        return fail(opening, RP_SYSTEM, card->vdev == RP_VDEV_TAP
                    ? "no tap %.16s: it needs root, or CAP_NET_ADMIN, and /dev/net/tun"
                    : "no device on the interface %.16s", card->what);
    }
    card->is_probed = 1;
    return 0;
}

/* ---- PCI cards ---- */

/* In DPDK's interrupt thread: somebody unbinds the card. Its owner closes it, not this thread. */
static void hear(const char *name, enum rte_dev_event_type event, void *argument)
{
    struct rp_card *card = argument;
    (void)name;
    if (event == RTE_DEV_EVENT_REMOVE) {
        atomic_store(&card->is_lost, 1);
    }
}

/* There too: an interface that was deleted tells nobody. */
static void look(void *argument)
{
    struct rp_card *card = argument;
    char name[IF_NAMESIZE];
    if (!if_indextoname(card->interface, name)) {
        atomic_store(&card->is_lost, 1);
    } else {
        (void)rte_eal_alarm_set(LOOK_US, look, card);
    }
}

static void look_after(struct rp_card *card)
{
    card->interface = if_nametoindex(card->what);
    snprintf(card->lost, sizeof card->lost, "the interface %.16s is gone: it was deleted, or moved "
             "to another namespace", card->what);
    if (card->interface) {
        (void)rte_eal_alarm_set(LOOK_US, look, card);
    }
}

const char *rp_card_lost(const struct rp_card *card)
{
    return atomic_load(&card->is_lost) ? card->lost : NULL;
}

static int probe_card(struct opening *opening)
{
    struct rp_card *card = opening->card;
    snprintf(card->name, sizeof card->name, "%s", card->what);
    if (rte_eth_dev_get_port_by_name(card->name, &card->device) && rte_dev_probe(card->name)) {
        return fail(opening, RP_SYSTEM, "no driver of DPDK's takes the card %s: python -m "
                    "replay_server doctor says why", card->name);
    }
    card->is_probed = 1;
    snprintf(card->lost, sizeof card->lost, "the card %.20s is taken away: it was unbound from its "
             "driver", card->what);
    (void)rte_dev_event_callback_register(card->name, hear, card);
    return 0;
}

/* ---- both ---- */

/* Bytes of a frame its mbufs must hold. */
static uint32_t room(const struct opening *opening)
{
    uint32_t bytes = rp_pool_room(opening->mtu);
    if (opening->card->vdev == RP_VDEV_AF_PACKET) { /* its driver copies what its ring holds */
        uint32_t frame = frame_bytes(opening->mtu);
        return bytes < frame ? frame : bytes;
    }
    return opening->card->vdev == RP_VDEV_PCI ? (bytes + CARD_ROOM - 1) / CARD_ROOM * CARD_ROOM
        : bytes;
}

static int set_queues(struct rp_card *card, const struct rte_eth_conf *conf)
{
    uint16_t receive = RP_DPDK_RING, transmit = RP_DPDK_RING;
    int socket = rte_eth_dev_socket_id(card->device);
    uint16_t queues = (uint16_t)card->queues.count;
    card->reads_sums = (conf->rxmode.offloads & RX_SUMS) != 0;
    card->writes_sums = (conf->txmode.offloads & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0;
    int failed = rte_eth_dev_configure(card->device, queues, queues, conf);
    card->is_configured = !failed;
    failed = failed ? failed
        : rte_eth_dev_adjust_nb_rx_tx_desc(card->device, &receive, &transmit);
    for (uint16_t queue = 0; queue < queues && !failed; queue++) {
        failed = rte_eth_rx_queue_setup(card->device, queue, receive, (unsigned)socket, NULL,
                                        card->pool);
        failed = failed ? failed
            : rte_eth_tx_queue_setup(card->device, queue, transmit, (unsigned)socket, NULL);
    }
    return failed ? failed : rte_eth_dev_start(card->device);
}

static int start_card(struct opening *opening)
{
    struct rp_card *card = opening->card;
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf;
    struct rte_ether_addr mac;
    uint32_t packet = opening->mtu + IP_HEADERS;
    memset(&conf, 0, sizeof conf);
    if (rte_eth_dev_get_port_by_name(card->name, &card->device)
        || rte_eth_dev_info_get(card->device, &info)) {
        return fail(opening, RP_SYSTEM, "%.40s is no Ethernet device", card->what);
    }
    int is_bound = card->vdev == RP_VDEV_PCI || card->vdev == RP_VDEV_AF_XDP;
    if (is_bound && packet > info.max_mtu) {
        return fail_mtu(opening, info.max_mtu, "");
    }
    if (card->vdev == RP_VDEV_PCI && packet > RTE_ETHER_MTU) {
        conf.rxmode.mtu = packet;
    }
    uint32_t most = info.max_rx_queues < info.max_tx_queues ? info.max_rx_queues
        : info.max_tx_queues;
    uint32_t drivers = card->vdev == RP_VDEV_AF_XDP ? RP_DPDK_XDP_MBUFS : 0;
    uint32_t mbufs = card->queues.count * (opening->options->mbufs + drivers + 1) - 1;
    if (card->queues.count > most) {
        snprintf(opening->why, sizeof opening->why, "queues=%u is too many: %.40s has %u",
                 card->queues.count, card->what, most);
        return RP_BAD_ARGUMENT;
    }
    if (card->queues.count > 1) {
        rp_queues_ask(&conf, &info);
    }
    conf.rxmode.offloads |= info.rx_offload_capa & RX_SUMS;
    conf.txmode.offloads |= info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    int socket = rte_eth_dev_socket_id(card->device);
    card->pool = card->vdev == RP_VDEV_AF_XDP ? rp_pool_open_paged(mbufs, socket)
        : rp_pool_open(mbufs, room(opening), socket);
    if (!card->pool) {
        return fail(opening, RP_NO_MEMORY, card->vdev == RP_VDEV_PCI
                    ? "no memory for the frames of %s on its own NUMA node"
                    : "no memory for the frames of %s", card->what);
    }
    if (set_queues(card, &conf) || rte_eth_macaddr_get(card->device, &mac)) {
        return fail(opening, RP_SYSTEM, card->vdev == RP_VDEV_AF_XDP
                    ? "AF_XDP does not start on %.40s (it needs root, or CAP_NET_RAW, "
                      "CAP_NET_ADMIN and CAP_SYS_ADMIN; and a queue nobody else has)"
                    : "the device on %.40s does not start", card->what);
    }
    memcpy(card->mac, mac.addr_bytes, sizeof card->mac);
    if (card->queues.count > 1) {
        rp_queues_settle(&card->queues, card->device, &info);
    }
    card->kept = card->vdev == RP_VDEV_AF_XDP ? rte_mempool_in_use_count(card->pool) : 0;
    card->is_started = 1;
    return 0;
}

/* Nobody on its network has the address; behind a tap is this host's kernel alone. */
static int claim_address(struct opening *opening)
{
    struct rp_card *card = opening->card;
    struct rp_claim claim = {.vlan = card->vlan, .device = card->device, .pool = card->pool,
                             .queues = (uint16_t)card->queues.count,
                             .probes = opening->options->probe != 0};
    memcpy(claim.host.mac, card->mac, sizeof claim.host.mac);
    memcpy(claim.host.ip, card->ip, sizeof claim.host.ip);
    return card->vdev != RP_VDEV_TAP && rp_arp_claim(&claim, opening->why, sizeof opening->why)
        ? RP_SYSTEM : 0;
}

static void open_there(void *argument)
{
    struct opening *opening = argument;
    struct rp_card *card = opening->card;
    struct rp_sockets before;
    rp_eal_hush();
    rp_sockets_list(&before, NULL);
    opening->status = card->vdev == RP_VDEV_PCI ? probe_card(opening) : probe_vdev(opening);
    if (!opening->status) {
        opening->status = start_card(opening);
    }
    if (!opening->status && card->vdev != RP_VDEV_PCI) {
        look_after(card);
    }
    rp_sockets_list(&card->sockets, &before);
    rp_sockets_keep_private(&card->sockets);
    rp_eal_unhush();
}

/* What was sent and not yet returned: an AF_XDP device gives it back at its next burst, or never
 * where its link is down. */
static void reap(struct rp_card *card)
{
    const struct timespec nap = {0, REAP_NAP_NS};
    struct rte_eth_link link = {0};
    for (int i = 0; i < REAP_TRIES; i++) {
        for (uint16_t queue = 0; queue < card->queues.count; queue++) {
            (void)rte_eth_tx_burst(card->device, queue, NULL, 0);
        }
        if (rte_mempool_in_use_count(card->pool) <= card->kept) {
            return;
        }
        nanosleep(&nap, NULL);
    }
    (void)rte_eth_link_get_nowait(card->device, &link);
    card->kept += link.link_status ? 0 : RP_DPDK_RING;
}

static void close_device(struct rp_card *card)
{
    const struct timespec nap = {0, REAP_NAP_NS};
    struct rte_eth_dev_info info = {0};
    (void)rte_eth_dev_info_get(card->device, &info);
    if (card->kept) {
        reap(card);
    }
    if (card->is_configured) {
        (void)rte_eth_dev_stop(card->device);
    }
    (void)rte_eth_dev_close(card->device);
    if (card->vdev != RP_VDEV_PCI) {
        (void)rte_vdev_uninit(card->name);
    } else if (info.device) {
        for (int i = 0; i < REAP_TRIES; i++) {
            if (rte_dev_event_callback_unregister(card->name, hear, card) != -EAGAIN) {
                break;
            }
            nanosleep(&nap, NULL); /* it runs, and waits for nothing */
        }
        (void)rte_dev_remove(info.device);
    }
}

static void close_there(void *argument)
{
    struct rp_card *card = argument;
    rp_eal_hush();
    (void)rte_eal_alarm_cancel(look, card);
    if (card->is_probed) {
        close_device(card);
    }
    rp_sockets_close(&card->sockets);
    if (card->is_probed && card->vdev == RP_VDEV_AF_XDP) {
        rp_xdp_await(card->what, card->queues.count);
    }
    rp_eal_unhush();
}

/* A card's own threads may be waited for while it starts: not in one of them. */
static void run_for(const struct rp_card *card, void (*run)(void *argument), void *argument)
{
    if (card->vdev == RP_VDEV_PCI) {
        run(argument);
    } else {
        rp_wire_run(run, argument);
    }
}

static struct rp_card *find_card(const char *what)
{
    struct rp_card *card = cards;
    while (card && strcmp(card->what, what) != 0) {
        card = card->next;
    }
    return card;
}

static void end_card(struct rp_card *card)
{
    run_for(card, close_there, card);
    if (card->pool && !card->is_started) { /* no socket has what its driver took in vain */
        card->kept = rte_mempool_in_use_count(card->pool);
    }
    rp_pool_close(card->pool, card->kept);
    rp_share_close(&card->share);
    rp_lock_give(card->held);
    free(card);
}

/* Null, or why this port is none of the card's next shards. */
static const char *check_shard(const struct rp_card *card, const struct rp_wire_place *place,
                               const struct rp_dpdk_options *options, char *why, size_t size)
{
    uint32_t count = card->queues.count, first = card->queues.first_port;
    uint32_t shard = (uint32_t)place->port - first;
    if (!card->serves) {
        snprintf(why, size, "clients of this process have that device open: serve in another "
                 "process, on a device of its own");
    } else if (count == 1 && options->queues == 1) {
        snprintf(why, size, "that device is open in this process already");
    } else if (options->queues != count || place->mtu != card->mtu
               || options->vlan != card->vlan || !place->serve
               || strcmp(place->host, card->host) != 0) {
        snprintf(why, size, "that device is open here already, for shards at %.20s, with queues=%u "
                 "and mtu=%u: say the same", card->host, count, card->mtu);
    } else if (shard >= count) {
        snprintf(why, size, "the shards of that device are at ports %u to %u", first,
                 first + count - 1);
    } else if (card->taken >> shard & 1) {
        snprintf(why, size, "the shard at that port is served already");
    } else {
        return NULL;
    }
    return why;
}

/* Null, or why this link cannot share the card with those that have it. */
static const char *check_link(const struct rp_card *card, const struct rp_wire_place *place,
                              const struct rp_dpdk_options *options, char *why, size_t size)
{
    if (card->serves) {
        snprintf(why, size, "that device is served in this process: its clients go in another "
                 "process, on a device of their own");
    } else if (card->vdev != options->vdev || memcmp(card->ip, options->ip, sizeof card->ip) != 0
               || card->vlan != options->vlan || card->mbufs != options->mbufs
               || card->mtu != place->mtu) {
        const uint8_t *ip = card->ip;
        snprintf(why, size, "links of this process share that device (%s), with "
                 "ip=%u.%u.%u.%u,mbufs=%u,mtu=%u and %s%.0u: say the same, or use another device",
                 card->vdev == RP_VDEV_PCI ? "port=" : rp_vdev_name(card->vdev), ip[0], ip[1],
                 ip[2], ip[3], card->mbufs, card->mtu, card->vlan ? "vlan=" : "no vlan=",
                 card->vlan);
    } else if (card->members == RP_DPDK_SHARERS) {
        snprintf(why, size, "%u links of this process share that device, and no more can: close "
                 "one, or use another process on another device", card->members);
    } else if (card->mbufs < (card->members + 1) * RP_DPDK_MBUFS_MIN) {
        snprintf(why, size, "mbufs=%u is too few for %u links on that device: say 8 for each, "
                 "where it is opened first", card->mbufs, card->members + 1);
    } else {
        return NULL;
    }
    return why;
}

/* A port's part of the card: a queue, or a place at the one that clients share. */
static int join_card(struct rp_wire *wire, struct rp_card *card, uint32_t shard)
{
    if (!card->serves && rp_share_join(&card->share, &wire->seat)) {
        return -1;
    }
    wire->share = card->serves ? NULL : &card->share;
    card->members++;
    card->taken |= 1u << shard;
    wire->card = card;
    wire->sockets = &card->sockets;
    wire->pool = card->pool;
    wire->queues = card->queues.count > 1 ? &card->queues : NULL;
    wire->lanes[0] = (struct rp_lane){card->device, (uint16_t)shard};
    wire->lane_count = 1;
    wire->devices[0] = card->device;
    wire->device_count = 1;
    wire->vlan = card->vlan;
    wire->reads_sums = card->reads_sums;
    wire->sum = card->writes_sums ? RP_FRAME_SUM_BY_CARD : RP_FRAME_SUM_HERE;
    wire->reaps = card->vdev == RP_VDEV_AF_XDP;
    if (card->vdev != RP_VDEV_TAP) { /* a tap's address is its kernel side's */
        memcpy(wire->mac, card->mac, sizeof wire->mac);
    }
    return 0;
}

static struct rp_card *new_card(const char *what, const struct rp_wire_place *place,
                                const struct rp_dpdk_options *options)
{
    struct rp_card *card = calloc(1, sizeof *card);
    if (card) {
        card->vdev = options->vdev;
        card->device = RTE_MAX_ETHPORTS; /* none yet */
        card->vlan = options->vlan;
        card->mtu = place->mtu;
        card->serves = place->serve;
        card->mbufs = options->mbufs;
        memcpy(card->ip, options->ip, sizeof card->ip);
        if (place->serve) {
            (void)inet_pton(AF_INET, place->host, card->ip);
        }
        card->held = -1;
        rp_share_open(&card->share, options->mbufs,
                      card->vdev == RP_VDEV_PCI ? 2 * RP_DPDK_RING : 0);
        card->queues.count = options->queues;
        card->queues.first_port = place->port;
        snprintf(card->host, sizeof card->host, "%s", place->host);
        snprintf(card->what, sizeof card->what, "%s", what);
    }
    return card;
}

int rp_card_open(struct rp_wire *wire, const struct rp_wire_place *place,
                 const struct rp_dpdk_options *options, char *error)
{
    const char *what = options->vdev == RP_VDEV_PCI ? options->eal.card : options->iface;
    struct opening opening = {.options = options, .mtu = place->mtu};
    struct rp_card *card = find_card(what);
    if (card && rp_card_lost(card)) {
        return rp_dpdk_refuse(error, place, RP_DEVICE_LOST, "that device was taken away, and this "
                              "process still has it open: close its clients and servers first");
    }
    if (card) {
        const char *wrong = (place->serve ? check_shard : check_link)(
            card, place, options, opening.why, sizeof opening.why);
        uint32_t shard = place->serve ? (uint32_t)place->port - card->queues.first_port : 0;
        return wrong ? rp_dpdk_refuse(error, place, RP_BAD_ARGUMENT, wrong)
            : !join_card(wire, card, shard) ? 0
            : rp_dpdk_refuse(error, place, RP_NO_MEMORY, no_ring);
    }
    if (place->port + options->queues - 1 > UINT16_MAX) {
        return rp_dpdk_refuse(error, place, RP_BAD_ARGUMENT,
                              "its shards take so many ports from this one on, up to 65535");
    }
    card = new_card(what, place, options);
    if (!card) {
        return rp_dpdk_refuse(error, place, RP_NO_MEMORY, "no memory for a card");
    }
    opening.card = card;
    run_for(card, open_there, &opening);
    opening.status = opening.status ? opening.status : claim_address(&opening);
    if (opening.status) {
        end_card(card);
        return rp_dpdk_refuse(error, place, opening.status, opening.why);
    }
    if (join_card(wire, card, 0)) {
        end_card(card);
        return rp_dpdk_refuse(error, place, RP_NO_MEMORY, no_ring);
    }
    wire->claimed = card->vdev != RP_VDEV_TAP;
    card->next = cards;
    cards = card;
    return 0;
}

void rp_card_leave(struct rp_wire *wire)
{
    struct rp_card *card = wire->card;
    if (wire->share) {
        rp_share_leave(wire->share, &wire->seat);
    }
    card->taken &= ~(1u << wire->lanes[0].queue);
    if (--card->members) {
        return;
    }
    for (struct rp_card **at = &cards; *at; at = &(*at)->next) {
        if (*at == card) {
            *at = card->next;
            break;
        }
    }
    end_card(card);
}
