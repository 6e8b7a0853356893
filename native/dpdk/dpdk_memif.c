/* A wire of shared memory between two processes of one host, memif: its client, by DPDK's driver,
 * which lends its own memory. The server is dpdk_memif_serve.c.
 */
#include <dlfcn.h>
#include <rte_bus_vdev.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dpdk_memif.h"
#include "status.h"

/* Where the server is slow, each link is tried a second time, for longer. */
enum {
    LINK_TRIES = 60, LINK_TRIES_LONG = 400, LINK_NAP_NS = 5000000, MEND_NS = 200000000,
    VDEV_ARGUMENTS = 256,
};

/* The memif links this process is a client on. A second device on one of them would be refused by
 * the driver, which then keeps its Ethernet port for ever (DPDK 22.11). */
static struct rp_memif_link {
    char socket[sizeof((struct rp_dpdk_options *)0)->socket];
    uint32_t id;
} links[RTE_MAX_ETHPORTS];

static int is_up(uint16_t device)
{
    struct rte_eth_link link = {0};
    return rte_eth_link_get_nowait(device, &link) == 0 && link.link_status;
}

struct memif {
    struct rp_wire *wire;
    const struct rp_wire_place *place;
    const char *socket;
    uint32_t id;
    int failed;
};

/* EAL loads the driver as a plugin too, which would not wait for bursts: the one linked into this
 * object registered first, and is to be the one that is used. */
static int is_ours(uint16_t device)
{
    struct rte_eth_dev_info device_info;
    Dl_info driver, here;
    return rte_eth_dev_info_get(device, &device_info) == 0
           && dladdr(device_info.driver_name, &driver) && dladdr(links, &here)
           && driver.dli_fbase == here.dli_fbase;
}

static int make_memif(const struct memif *memif)
{
    char name[RTE_ETH_NAME_MAX_LEN], arguments[VDEV_ARGUMENTS];
    uint16_t device;
    snprintf(name, sizeof name, "net_memif%u", rp_wire_number());
    snprintf(arguments, sizeof arguments,
             "role=client,id=%u,socket=%s,socket-abstract=no,rsize=10,bsize=%u", memif->id,
             memif->socket, rp_pool_room(memif->place->mtu));
    if (rte_vdev_init(name, arguments)) {
        return -1;
    }
    if (rte_eth_dev_get_port_by_name(name, &device) || !is_ours(device)) {
        (void)rte_vdev_uninit(name);
        return -1;
    }
    return rp_wire_start(memif->wire, device, name, 1);
}

static void start_there(void *argument)
{
    struct memif *memif = argument;
    memif->failed = make_memif(memif);
}

static int start_memif(struct rp_wire *wire, const struct rp_wire_place *place, const char *socket,
                       uint32_t id)
{
    struct memif memif = {wire, place, socket, id, 0};
    rp_wire_run(start_there, &memif);
    return memif.failed;
}

/* A place in links[] for this link, or null: it is taken here. */
static struct rp_memif_link *claim(const char *socket, uint32_t id)
{
    struct rp_memif_link *unused = NULL;
    for (uint32_t i = 0; i < RTE_MAX_ETHPORTS; i++) {
        if (!links[i].socket[0]) {
            unused = &links[i];
        } else if (links[i].id == id && strcmp(links[i].socket, socket) == 0) {
            return NULL;
        }
    }
    if (unused) {
        snprintf(unused->socket, sizeof unused->socket, "%s", socket);
        unused->id = id;
    }
    return unused;
}

/* 1: joined, 0: not, -1: nobody serves at that socket. */
static int join_link(struct rp_wire *wire, const struct rp_wire_place *place, const char *socket,
                     uint32_t id, int tries)
{
    const struct timespec nap = {0, LINK_NAP_NS};
    struct rp_memif_link *link = claim(socket, id);
    uint64_t waits = rp_bursts_waits();
    int started = link && start_memif(wire, place, socket, id) == 0;
    for (int i = 0; started && i < tries; i++) {
        if (is_up(wire->devices[0])) {
            wire->slot = id;
            wire->link = link;
            return 1;
        }
        if (i > 0 && rp_bursts_waits() != waits) {
            break; /* the driver closed something: most likely this link, which was refused */
        }
        nanosleep(&nap, NULL);
    }
    rp_wire_stop(wire);
    if (link) {
        link->socket[0] = 0;
    }
    return !link || started ? 0 : -1;
}

/* The first of its server's links that takes this client. */
static int join_memif(struct rp_wire *wire, const struct rp_wire_place *place,
                      const struct rp_dpdk_options *options, char *error)
{
    static const int tries[] = {LINK_TRIES, LINK_TRIES_LONG};
    char why[RP_URL_ERROR_BYTES] = "nobody serves at that socket";
    uint32_t user;
    uint64_t strangers = rp_memif_strangers(&user);
    uint32_t first = options->id < 0 ? 0 : (uint32_t)options->id;
    uint32_t end = options->id < 0 ? RP_DPDK_LANES : first + 1;
    int joined = -1;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t id = first; id < end; id++) {
            joined = join_link(wire, place, options->socket, id, tries[pass]);
            if (joined != 0) {
                break;
            }
        }
        if (joined != 0) {
            break;
        }
    }
    if (joined == 0) {
        snprintf(why, sizeof why, "no link is free: say links=N, up to 16, where it is served");
    } else if (rp_memif_strangers(&user) != strangers) {
        snprintf(why, sizeof why, "user %u listens at that socket and would get this process's "
                 "memory: name a path in a folder of the server's own, which others may not write "
                 "to", user);
    }
    return joined > 0 ? 0 : rp_dpdk_refuse(error, place, RP_SYSTEM, why);
}

int rp_memif_open(struct rp_wire *wire, const struct rp_wire_place *place,
                  const struct rp_dpdk_options *options, char *error)
{
    char why[RP_URL_ERROR_BYTES];
    wire->pool = rp_pool_open_shifted(RP_DPDK_MBUFS, place->mtu);
    if (!wire->pool) {
        return rp_dpdk_refuse(error, place, RP_NO_MEMORY, "no memory for frames");
    }
    wire->in_memory = 1;
    if (!place->serve) {
        return join_memif(wire, place, options, error);
    }
    wire->served = rp_memif_serve(options, wire->pool, why, sizeof why);
    wire->lane_count = options->links;
    return wire->served ? 0 : rp_dpdk_refuse(error, place, RP_SYSTEM, why);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void restart_there(void *argument)
{
    struct rp_wire *wire = argument;
    uint32_t user;
    uint64_t strangers = rp_memif_strangers(&user);
    (void)rte_eth_dev_stop(wire->devices[0]);
    wire->down = rte_eth_dev_start(wire->devices[0]) != 0;
    wire->strangers += rp_memif_strangers(&user) - strangers;
}

/* The driver's client gives up when its server goes; that one's successor is at the same socket. */
void rp_memif_mend(struct rp_wire *wire)
{
    uint64_t now = now_ns();
    if (now - wire->mended_ns < MEND_NS || (!wire->down && is_up(wire->devices[0]))) {
        return;
    }
    rp_wire_run(restart_there, wire);
    wire->mended_ns = now_ns();
}

void rp_memif_leave(struct rp_wire *wire)
{
    if (wire->served) {
        rp_memif_end(wire->served);
    }
    if (wire->link) {
        wire->link->socket[0] = 0;
    }
}
