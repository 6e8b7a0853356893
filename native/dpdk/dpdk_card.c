/* Wires with a network behind them: an Ethernet device of DPDK's, found by name. A PCI card, or a
 * virtual device on an interface of the kernel's: raw sockets, AF_XDP, a tap.
 *
 * Devices of the kernel's belong to the network namespace DPDK was started in: they are opened and
 * closed in its interrupt thread, which stays where the first dpdk:// url was opened.
 */
#define ALLOW_EXPERIMENTAL_API /* to hear that a card is unbound; so it is named in 22.11 still */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rte_alarm.h>
#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dpdk/dpdk_card.h"
#include "base/minmax.h"
#include "protocol/status.h"

enum {
    CARD_ROOM = 1024, /* cards take buffers in such steps */
    REAP_TRIES = 100, REAP_NAP_NS = 1000000,
};

#define RX_SUMS ((uint64_t)RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM)

static const char no_ring[] = "no memory for a link";

static struct rp_card *cards; /* within the lock of wires */

int rp_card_fail(struct rp_opening *opening, int status, const char *why, const char *what) {
    snprintf(opening->why, sizeof opening->why, why, what);
    return status;
}

int rp_card_fail_mtu(struct rp_opening *opening, uint32_t packet, const char *next) {
    uint32_t largest = packet > RP_CARD_IP_HEADERS ? (packet - RP_CARD_IP_HEADERS) / 8 * 8 : 0;
    snprintf(opening->why, sizeof opening->why, "mtu=%u is too large: %s carries at most mtu=%u%s",
             opening->mtu, opening->card->what, largest, next);
    return RP_BAD_ARGUMENT;
}

/* ---- PCI cards ---- */

/* In DPDK's interrupt thread: the card is being unbound. Its owner closes it, not this thread. */
static void hear(const char *name, enum rte_dev_event_type event, void *argument) {
    struct rp_card *card = argument;
    (void)name;
    if (event == RTE_DEV_EVENT_REMOVE) {
        atomic_store(&card->is_lost, 1);
    }
}

const char *rp_card_lost(const struct rp_card *card) {
    return atomic_load(&card->is_lost) ? card->lost : NULL;
}

static int probe_card(struct rp_opening *opening) {
    struct rp_card *card = opening->card;
    snprintf(card->name, sizeof card->name, "%s", card->what);
    if (rte_eth_dev_get_port_by_name(card->name, &card->device) && rte_dev_probe(card->name)) {
        return rp_card_fail(opening, RP_SYSTEM, "no driver of DPDK's takes the card %s: python -m "
                    "replay_server doctor says why", card->name);
    }
    card->is_probed = 1;
    snprintf(card->lost, sizeof card->lost, "the card %.20s is taken away: it was unbound from its "
             "driver", card->what);
    (void)rte_dev_event_callback_register(card->name, hear, card);
    return 0;
}

/* ---- both ---- */

/* Its driver copies what comes into mbufs: no device writes to these. */
static int is_copied(const struct rp_card *card) {
    return card->vdev == RP_VDEV_AF_PACKET || card->vdev == RP_VDEV_TAP;
}

/* Bytes of a frame its mbufs must hold. */
static uint32_t room(const struct rp_opening *opening) {
    uint32_t bytes = rp_pool_room(opening->mtu);
    if (opening->card->vdev == RP_VDEV_AF_PACKET) { /* its driver copies what its ring holds */
        uint32_t frame = rp_vdev_frame(opening->mtu);
        return rp_max(bytes, frame);
    }
    return opening->card->vdev == RP_VDEV_PCI ? (bytes + CARD_ROOM - 1) / CARD_ROOM * CARD_ROOM
        : bytes;
}

static int set_queues(struct rp_card *card, const struct rte_eth_conf *conf) {
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

static int start_card(struct rp_opening *opening) {
    struct rp_card *card = opening->card;
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf;
    struct rte_ether_addr mac;
    uint32_t packet = opening->mtu + RP_CARD_IP_HEADERS;
    memset(&conf, 0, sizeof conf);
    if (rte_eth_dev_get_port_by_name(card->name, &card->device)
        || rte_eth_dev_info_get(card->device, &info)) {
        return rp_card_fail(opening, RP_SYSTEM, "%.40s is no Ethernet device", card->what);
    }
    int is_bound = card->vdev == RP_VDEV_PCI || card->vdev == RP_VDEV_AF_XDP;
    if (is_bound && packet > info.max_mtu) {
        return rp_card_fail_mtu(opening, info.max_mtu, "");
    }
    if (card->vdev == RP_VDEV_PCI && packet > RTE_ETHER_MTU) {
        conf.rxmode.mtu = packet;
    }
    uint32_t most = rp_min(info.max_rx_queues, info.max_tx_queues);
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
    card->is_shifted = is_copied(card);
    card->pool = card->vdev == RP_VDEV_AF_XDP
        ? rp_pool_open_paged(mbufs, card->queues.count * drivers, socket)
        : card->is_shifted ? rp_pool_open_shifted(mbufs, room(opening))
        : rp_pool_open(mbufs, room(opening), socket);
    if (!card->pool) {
        return rp_card_fail(opening, RP_NO_MEMORY, card->vdev == RP_VDEV_PCI
                    ? "no memory for the frames of %s on its own NUMA node"
                    : "no memory for the frames of %s", card->what);
    }
    if (set_queues(card, &conf) || rte_eth_macaddr_get(card->device, &mac)) {
        return rp_card_fail(opening, RP_SYSTEM, card->vdev == RP_VDEV_AF_XDP
                    ? "AF_XDP does not start on %.40s (it needs root, or CAP_NET_RAW, "
                      "CAP_NET_ADMIN and CAP_SYS_ADMIN; a queue nobody else has; an mtu whose "
                      "frames fit in a page, on a veth 3506 at most)"
                    : "the device on %.40s does not start", card->what);
    }
    atomic_store(&card->mac, rp_mac_number(mac.addr_bytes));
    if (card->queues.count > 1) {
        rp_queues_settle(&card->queues, card->device, &info);
    }
    card->kept = card->vdev == RP_VDEV_AF_XDP ? rte_mempool_in_use_count(card->pool) : 0;
    card->is_started = 1;
    return 0;
}

/* Checks that no host on its network has the address; behind a tap is only this host's kernel. That
 * takes as long as the network does: without the lock of wires. */
static int claim_address(struct rp_opening *opening) {
    struct rp_card *card = opening->card;
    struct rp_claim claim = {.vlan = card->vlan, .device = card->device, .pool = card->pool,
                             .queues = (uint16_t)card->queues.count,
                             .probes = opening->options->probe != 0,
                             .has_carrier = &card->has_carrier,
                             .until_ns = card->serves ? UINT64_MAX : opening->until_ns};
    uint64_t mac = atomic_load(&card->mac);
    memcpy(claim.host.mac, &mac, sizeof claim.host.mac);
    memcpy(claim.host.ip, card->ip, sizeof claim.host.ip);
    if (card->vdev == RP_VDEV_TAP) {
        return 0;
    }
    uint64_t before = rp_wire_let_go();
    int failed = rp_arp_claim(&claim, opening->why, sizeof opening->why);
    rp_wire_go_on(before);
    return failed ? RP_SYSTEM : 0;
}

/* The same of a card's link, there too. */
static void look(void *argument) {
    struct rp_card *card = argument;
    struct rte_eth_link link = {0};
    if (!atomic_load(&card->is_lost)) {
        if (!rte_eth_link_get_nowait(card->device, &link)) {
            rp_card_see_link(card, link.link_status);
        }
        (void)rte_eal_alarm_set(RP_CARD_LOOK_US, look, card);
    }
}

static void watch(struct rp_card *card) {
    struct rte_eth_link link = {.link_status = 1}; /* where its driver cannot say */
    if (card->vdev == RP_VDEV_PCI) {
        (void)rte_eth_link_get_nowait(card->device, &link);
        atomic_store(&card->has_carrier, link.link_status);
        (void)rte_eal_alarm_set(RP_CARD_LOOK_US, look, card);
    } else {
        rp_vdev_watch(card);
    }
}

static void open_device(void *argument) {
    struct rp_opening *opening = argument;
    struct rp_card *card = opening->card;
    opening->status = card->vdev == RP_VDEV_PCI ? probe_card(opening) : rp_vdev_probe(opening);
    if (!opening->status) {
        opening->status = start_card(opening);
    }
    if (!opening->status) {
        watch(card);
    }
}

static void open_watched(struct rp_opening *opening) {
    struct rp_card *card = opening->card;
    int is_xdp = card->vdev == RP_VDEV_AF_XDP;
    int domain = card->vdev == RP_VDEV_AF_PACKET ? AF_PACKET : is_xdp ? AF_XDP : 0;
    card->spare = is_xdp ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if ((is_xdp && card->spare < 0)
        || rp_sockets_watch(&card->sockets, domain, card->what, open_device, opening)) {
        opening->status = rp_card_fail(opening, RP_SYSTEM, "no device on %.16s: this process has "
                                       "no file left to look at its own (ulimit -n), or no memory",
                                       card->what);
    }
    if (is_xdp && !card->program) { /* there was no file to ask by, until now */
        card->program = card->sockets.bpf.program;
    }
}

static void open_there(void *argument) {
    struct rp_opening *opening = argument;
    rp_eal_mute();
    opening->status = opening->card->vdev == RP_VDEV_PCI ? 0 : rp_vdev_check(opening);
    if (!opening->status) {
        open_watched(opening);
    }
    rp_eal_unmute();
}

/* Mbufs that were sent and have not come back: an AF_XDP device returns them at its next burst, or
 * never where its link is down. */
static void reap(struct rp_card *card) {
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

static void close_device(struct rp_card *card) {
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

/* The kernel may write to the pool as long as a socket lives, in whatever process. Afterwards no
 * one writes to the mbufs that a driver which was not ended has of it. */
static void await_sockets(struct rp_card *card, int stays) {
    uint32_t queue;
    if (rp_xdp_await(card->interface, card->queues.count, &queue)) {
        card->kept = 0;
    } else if (stays) {
        card->kept = rte_mempool_in_use_count(card->pool);
    }
}

static void close_there(void *argument) {
    struct rp_card *card = argument;
    int here = -1, is_xdp = card->is_probed && card->vdev == RP_VDEV_AF_XDP;
    enum rp_xdp_end end = RP_XDP_END_IT;
    rp_eal_mute();
    rp_vdev_unwatch(card);
    (void)rte_eal_alarm_cancel(look, card);
    if (card->spare >= 0) {
        rp_quiet_close(card->spare);
    }
    if (is_xdp) {
        rp_bpf_ends(&card->sockets.bpf);
        end = rp_xdp_hide(card->interface, card->program, &here);
    }
    if (end == RP_XDP_LEAVE_IT) {
        rp_sockets_unmap(&card->sockets);
    } else if (card->is_probed) {
        close_device(card);
    }
    rp_xdp_unhide(here);
    rp_sockets_close(&card->sockets);
    if (is_xdp) {
        await_sockets(card, end == RP_XDP_LEAVE_IT);
    }
    rp_eal_unmute();
}

/* A card's own threads may be waited for while it starts: not in one of them. */
static void run_for(const struct rp_card *card, void (*run)(void *argument), void *argument) {
    if (card->vdev == RP_VDEV_PCI) {
        run(argument);
    } else {
        rp_wire_run(run, argument);
    }
}

/* An interface by its number: it may have several names, and what was deleted has left its own. */
static struct rp_card *find_card(const struct rp_naming *naming) {
    struct rp_card *card = cards;
    while (card
           && !(strcmp(card->what, naming->name) == 0
                && (card->interface == naming->index || rp_card_lost(card)))
           && !(naming->index && card->interface == naming->index)) {
        card = card->next;
    }
    return card;
}

/* The same, once no other port of this process opens it any more; null: there is none. */
static struct rp_card *await_card(const struct rp_naming *naming,
                                  const struct rp_wire_place *place) {
    struct rp_card *card = find_card(naming);
    while (card && card->is_opening
           && (place->serve || rp_wire_now_ns() < place->until_ns)) {
        rp_wire_nap();
        card = find_card(naming);
    }
    return card;
}

static void unlist(const struct rp_card *card) {
    for (struct rp_card **at = &cards; *at; at = &(*at)->next) {
        if (*at == card) {
            *at = card->next;
            break;
        }
    }
}

static void end_card(struct rp_card *card) {
    unlist(card);
    run_for(card, close_there, card);
    if (card->pool && !card->is_started) { /* no socket has what its driver took in vain */
        card->kept = rte_mempool_in_use_count(card->pool);
    }
    rp_pool_close(card->pool, card->kept);
    rp_share_close(&card->share);
    rp_lock_give(card->held);
    rp_lock_give(card->beside);
    free(card);
}

static struct rp_card *new_card(const struct rp_naming *naming, const struct rp_wire_place *place,
                                const struct rp_dpdk_options *options) {
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
        card->held = card->beside = card->spare = -1;
        rp_share_open(&card->share, options->mbufs,
                      card->vdev == RP_VDEV_PCI ? 2 * RP_DPDK_RING : 0);
        card->queues.count = options->queues;
        card->queues.first_port = place->port;
        snprintf(card->host, sizeof card->host, "%s", place->host);
        card->interface = naming->index;
        snprintf(card->what, sizeof card->what, "%s", naming->name);
    }
    return card;
}

int rp_card_open(struct rp_wire *wire, const struct rp_wire_place *place,
                 const struct rp_dpdk_options *options, char *error) {
    struct rp_opening opening = {.options = options, .mtu = place->mtu,
                                 .until_ns = place->until_ns};
    struct rp_naming naming = {.index = 0};
    snprintf(naming.name, sizeof naming.name, "%s",
             options->vdev == RP_VDEV_PCI ? options->eal.card : options->iface);
    if (options->vdev != RP_VDEV_PCI) {
        rp_wire_run(rp_interface_name, &naming);
    }
    struct rp_card *card = await_card(&naming, place);
    if (card && card->is_opening) {
        return rp_dpdk_refuse_plainly(error, place, RP_SYSTEM, "this process opens that device, "
                                      "which takes longer than this client may wait");
    }
    if (card && rp_card_lost(card)) {
        return rp_dpdk_refuse(error, place, RP_DEVICE_LOST, "that device was taken away, and this "
                              "process still has it open: close its clients and servers first");
    }
    if (card) {
        const char *wrong = rp_card_why_not(card, place, options, opening.why, sizeof opening.why);
        uint32_t shard = place->serve ? (uint32_t)place->port - card->queues.first_port : 0;
        return wrong ? rp_dpdk_refuse(error, place, RP_BAD_ARGUMENT, wrong)
            : !rp_card_join(wire, card, shard) ? 0
            : rp_dpdk_refuse(error, place, RP_NO_MEMORY, no_ring);
    }
    if (place->port + options->queues - 1 > UINT16_MAX) {
        return rp_dpdk_refuse(error, place, RP_BAD_ARGUMENT,
                              "its shards take so many ports from this one on, up to 65535");
    }
    card = new_card(&naming, place, options);
    if (!card) {
        return rp_dpdk_refuse(error, place, RP_NO_MEMORY, "no memory for a card");
    }
    opening.card = card;
    card->is_opening = 1;
    card->next = cards;
    cards = card;
    run_for(card, open_there, &opening);
    opening.status = opening.status ? opening.status : claim_address(&opening);
    card->is_opening = 0;
    if (opening.status) {
        end_card(card);
        return rp_dpdk_refuse(error, place, opening.status, opening.why);
    }
    if (rp_card_join(wire, card, 0)) {
        end_card(card);
        return rp_dpdk_refuse(error, place, RP_NO_MEMORY, no_ring);
    }
    wire->claimed = card->vdev != RP_VDEV_TAP;
    return 0;
}

void rp_card_leave(struct rp_wire *wire) {
    struct rp_card *card = wire->card;
    if (wire->share) {
        rp_share_leave(wire->share, &wire->seat);
    }
    card->taken &= ~(1u << wire->lanes[0].queue);
    if (--card->members == 0) {
        end_card(card);
    } else {
        rp_queues_share_out(&card->queues, card->taken);
    }
}
