/* Devices on interfaces of the kernel's: raw sockets, AF_XDP, a tap. The interface is checked
 * before its driver runs. Later it is looked at from time to time, since no event reports that an
 * interface is deleted, or that its XDP program is removed. One that goes and comes back between
 * two looks has let go of its sockets, so those are looked at too.
 */
#include <errno.h>
#include <rte_alarm.h>
#include <rte_bus_vdev.h>
#include <stdio.h>

#include "base/minmax.h"
#include "dpdk/dpdk_card.h"
#include "protocol/status.h"

enum {
    PACKET_HEADER = 128,    /* what AF_PACKET writes ahead of a frame in its ring, and more */
    PACKET_BLOCK = 1 << 16, /* bytes of its memory in one piece; no frame is larger */
    PACKET_RING_BYTES = 1 << 21,
    VDEV_ARGUMENTS = 160, USE_BYTES = 80,
    XDP_PACKET = 3506, /* what is left of a page for one; the kernel's limit on a veth, too */
    TAP_PACKET = 1500, /* a tap's mtu: its driver sends none larger, whatever ip link set says */
};

uint32_t rp_vdev_frame(uint32_t mtu) {
    uint32_t bytes = 2048;
    while (bytes < mtu + RP_FRAME_HEADERS + PACKET_HEADER) {
        bytes *= 2;
    }
    return bytes;
}

/* What an interface must be for a device on it, checked before its driver runs. */
static int check_interface(struct rp_opening *opening) {
    uint32_t mtu = rp_interface_mtu(opening->card->what);
    if (!mtu && opening->card->interface) {
        return rp_card_fail(opening, RP_SYSTEM, "the kernel gives no mtu of %.16s: it was deleted "
                            "just now, or this process has no file left (ulimit -n)",
                            opening->card->what);
    }
    if (!mtu) {
        return rp_card_fail(opening, RP_SYSTEM, "there is no network interface %.16s here: `ip "
                            "link` lists them, each network namespace has its own",
                            opening->card->what);
    }
    if (!rp_interface_is_ethernet(opening->card->what)) {
        return rp_card_fail(opening, RP_BAD_ARGUMENT, "%.16s is no Ethernet interface (a tunnel, "
                            "or lo): its frames have no MAC addresses; name one that has some",
                            opening->card->what);
    }
    uint32_t packet = opening->mtu + RP_CARD_IP_HEADERS;
    if (opening->card->vdev == RP_VDEV_AF_XDP && packet > XDP_PACKET) {
        return rp_card_fail_mtu(opening, rp_min(mtu, XDP_PACKET), mtu < XDP_PACKET
                                ? ", and over AF_XDP 3472 once ip link set raises its own mtu"
                                : " over AF_XDP, as its frames lie in one page each");
    }
    return mtu < packet
        ? rp_card_fail_mtu(opening, mtu, ", until ip link set raises its own mtu") : 0;
}

/* Its driver would take a tap that is there, and delete it at its end. */
static int check_tap(struct rp_opening *opening) {
    if (opening->card->interface) {
        return rp_card_fail(opening, RP_SYSTEM, "there is an interface %.16s already, and net_tap "
                            "makes its own: say a name that nothing has", opening->card->what);
    }
    return opening->mtu + RP_CARD_IP_HEADERS > TAP_PACKET
        ? rp_card_fail_mtu(opening, TAP_PACKET, ", as a tap") : 0;
}

/* Checks that no other process or kernel on this host has the address, or the interface in a way
 * that shuts this device out. */
static int hold(struct rp_opening *opening) {
    struct rp_card *card = opening->card;
    const struct rp_hold wanted = {.interface = card->what, .index = card->interface,
                                   .alone = card->vdev != RP_VDEV_AF_PACKET, .ip = card->ip,
                                   .vlan = card->vlan};
    return rp_interface_hold(&wanted, &card->held, &card->beside, opening->why,
                             sizeof opening->why) ? RP_SYSTEM : 0;
}

/* AF_XDP would cut this host off. */
static int check_use(struct rp_opening *opening) {
    char what[USE_BYTES];
    if (opening->options->take == 1
        || !rp_interface_use(opening->card->interface, what, sizeof what)) {
        return 0;
    }
    return rp_card_fail(opening, RP_SYSTEM, "%.70s, and AF_XDP takes every frame that comes there: "
                        "take an interface that this host does not use, or say take=on", what);
}

/* Its driver would leave the flows of further queues to the kernel, which answers none. */
static int check_channels(struct rp_opening *opening) {
    const struct rp_card *card = opening->card;
    struct rp_channels channels = rp_interface_channels(card->what);
    if (channels.spread <= card->queues.count) {
        return 0;
    }
    snprintf(opening->why, sizeof opening->why, "%.16s spreads what comes over %u receive queues, "
             "and AF_XDP would hear %u: say `ethtool -L %.16s %s %u`, or take net_af_packet",
             card->what, channels.spread, card->queues.count, card->what, channels.kind,
             card->queues.count);
    return RP_SYSTEM;
}

int rp_vdev_check(struct rp_opening *opening) {
    struct rp_card *card = opening->card;
    int status = card->vdev == RP_VDEV_TAP ? check_tap(opening) : check_interface(opening);
    status = status ? status : hold(opening);
    if (!status && card->vdev != RP_VDEV_TAP && !rp_interface_may_open()) {
        return rp_card_fail(opening, RP_SYSTEM, "the interface %.16s needs root, or CAP_NET_RAW "
                            "and CAP_NET_ADMIN (AF_XDP: CAP_SYS_ADMIN too)", card->what);
    }
    if (!status && card->vdev == RP_VDEV_AF_XDP) {
        status = check_use(opening);
        status = status ? status : check_channels(opening);
    }
    if (!status && card->vdev == RP_VDEV_AF_XDP) {
        status = rp_xdp_check(card->interface, card->queues.count, opening->why,
                              sizeof opening->why) ? RP_SYSTEM : 0;
    }
    return status;
}

int rp_vdev_probe(struct rp_opening *opening) {
    struct rp_card *card = opening->card;
    char arguments[VDEV_ARGUMENTS];
    uint32_t frame = rp_vdev_frame(opening->mtu);
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
    rp_packet_begin();
    if (rte_vdev_init(card->name, arguments)) {
        return rp_card_fail(opening, RP_SYSTEM, card->vdev == RP_VDEV_TAP
                            ? "no tap %.16s: it needs root, or CAP_NET_ADMIN, and /dev/net/tun"
                            : "no device on the interface %.16s", card->what);
    }
    card->is_probed = 1;
    return 0;
}

/* ---- while it is open ---- */

/* In DPDK's interrupt thread. Where the kernel gives no answer nothing changes. */
static void look(void *argument) {
    struct rp_card *card = argument;
    struct rp_netdev link;
    int status = rp_netdev_read(card->interface, &link);
    if (status == -ENODEV) {
        atomic_store(&card->is_lost, 1);
    } else if (!rp_sockets_bound(&card->sockets, card->interface)) {
        snprintf(card->lost, sizeof card->lost, "the interface %.16s is gone, and back: it was "
                 "deleted, or moved to another namespace, and let go of this server", card->what);
        atomic_store(&card->is_lost, 1);
    } else if (status == 0 && card->program && card->program != link.program) {
        snprintf(card->lost, sizeof card->lost, "the XDP program of %.16s, which brought its "
                 "frames here, was %s", card->what, link.has_program ? "replaced" : "removed");
        atomic_store(&card->is_lost, 1);
    } else {
        if (status == 0) {
            rp_card_see_link(card, link.has_carrier);
            atomic_store(&card->is_short, card->vdev != RP_VDEV_TAP
                         && link.mtu < card->mtu + RP_CARD_IP_HEADERS);
            rp_card_see_mac(card, card->vdev == RP_VDEV_TAP ? 0 : link.mac);
        }
        (void)rte_eal_alarm_set(RP_CARD_LOOK_US, look, card);
    }
}

void rp_vdev_watch(struct rp_card *card) {
    struct rp_netdev link = {0};
    struct rp_naming naming;
    snprintf(naming.name, sizeof naming.name, "%s", card->what);
    rp_interface_name(&naming); /* a tap has a number from now on */
    card->interface = naming.index;
    if (card->vdev != RP_VDEV_TAP && rp_netdev_read(card->interface, &link) == 0) {
        card->program = card->vdev == RP_VDEV_AF_XDP ? link.program : 0;
        atomic_store(&card->has_carrier, link.has_carrier);
    }
    snprintf(card->lost, sizeof card->lost, "the interface %.16s is gone: it was deleted, or moved "
             "to another namespace", card->what);
    if (card->interface) {
        (void)rte_eal_alarm_set(RP_CARD_LOOK_US, look, card);
    }
}

void rp_vdev_unwatch(struct rp_card *card) {
    (void)rte_eal_alarm_cancel(look, card);
}
