/* A wire of shared memory between two processes of one host, memif: its client, by DPDK's driver,
 * which lends its own memory. The server: dpdk_memif_visitors.c, dpdk_memif_serve.c.
 */
#include <dlfcn.h>
#include <rte_bus_vdev.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dpdk/dpdk_memif.h"
#include "dpdk/memif.h"
#include "protocol/status.h"

/* All links are tried twice: one that was in use may be free a moment later. */
enum { PASSES = 2, LINK_NAP_NS = 5000000, MEND_NS = 200000000, VDEV_ARGUMENTS = 256,
       ANSWER_NS = 5000000, ANSWER_NAP_NS = 100000 };

/* The memif links this process is a client on. Two devices of one number on a socket would be
 * refused by the driver, which then keeps an Ethernet port for ever (DPDK 22.11). So a device's
 * number is its place here, and the link it asks for its bell's. */
static struct rp_memif_link {
    char socket[sizeof((struct rp_dpdk_options *)0)->socket];
    int is_named;   /* by id=: no other link will do */
    int is_opening; /* its opener waits for the server, and has let go of the lock of wires */
    struct rp_memif_bell bell;
} links[RTE_MAX_ETHPORTS];
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER; /* sockets and ids there */

static int is_up(uint16_t device) {
    struct rte_eth_link link = {0};
    return rte_eth_link_get_nowait(device, &link) == 0 && link.link_status;
}

struct memif {
    struct rp_wire *wire;
    const struct rp_wire_place *place;
    const char *socket;
    uint32_t id;
    int is_named;
    int failed;
    struct rp_memif_visit visit;
    const struct rp_memif_link *link;
    char reason[sizeof((struct rp_memif_bell *)0)->reason]; /* of the last refusal */
};

/* EAL also loads the driver as a plugin, which would not wait for bursts. The driver linked into
 * this object registered first, and must be the one that is used. */
static int is_ours(uint16_t device) {
    struct rte_eth_dev_info device_info;
    Dl_info driver, here;
    return rte_eth_dev_info_get(device, &device_info) == 0
           && dladdr(device_info.driver_name, &driver) && dladdr(links, &here)
           && driver.dli_fbase == here.dli_fbase;
}

static int make_memif(const struct memif *memif) {
    char name[RTE_ETH_NAME_MAX_LEN], arguments[VDEV_ARGUMENTS];
    uint16_t device;
    snprintf(name, sizeof name, "net_memif%u", rp_wire_number());
    snprintf(arguments, sizeof arguments,
             "role=client,id=%u,socket=%s,socket-abstract=no,rsize=10,bsize=%u",
             (unsigned)(memif->link - links), memif->socket, rp_pool_room(memif->place->mtu));
    if (rte_vdev_init(name, arguments)) {
        return -1;
    }
    if (rte_eth_dev_get_port_by_name(name, &device) || !is_ours(device)) {
        (void)rte_vdev_uninit(name);
        return -1;
    }
    return rp_wire_start(memif->wire, device, name, 1);
}

static void start_there(void *argument) {
    struct memif *memif = argument;
    rp_memif_visit(&memif->visit);
    memif->failed = make_memif(memif);
    rp_memif_visit(NULL);
}

/* What came of a link. Only an answer shows that it cannot be had, so the answer is waited for.
 * OPENING: by another client of this process, which may give it up. */
enum joining { JOINED, REFUSED, OPENING, SILENT, NOBODY, STRANGER, NO_FILE };

static const struct rp_memif_link *find_link(const char *socket, uint32_t id) {
    for (uint32_t i = 0; i < RTE_MAX_ETHPORTS; i++) {
        if (links[i].bell.id == id && strcmp(links[i].socket, socket) == 0) {
            return &links[i];
        }
    }
    return NULL;
}

/* A place in links[] for this link, or null, and why: it is taken here, or no file is left. */
static struct rp_memif_link *claim(const struct memif *memif, enum joining *why) {
    struct rp_memif_link *unused = links, *end = links + RTE_MAX_ETHPORTS;
    pthread_mutex_lock(&links_lock);
    const struct rp_memif_link *same = find_link(memif->socket, memif->id);
    while (unused < end && unused->socket[0]) {
        unused++;
    }
    *why = same && same->is_opening ? OPENING : REFUSED;
    if (same || unused == end) {
        unused = NULL;
    } else if (rp_bell_open(&unused->bell)) {
        *why = NO_FILE;
        unused = NULL;
    } else {
        snprintf(unused->socket, sizeof unused->socket, "%s", memif->socket);
        unused->bell.id = memif->id;
        unused->is_named = memif->is_named;
        unused->is_opening = 1;
    }
    pthread_mutex_unlock(&links_lock);
    return unused;
}

static void give_up(struct rp_memif_link *link) {
    if (link) {
        rp_bell_close(&link->bell);
        pthread_mutex_lock(&links_lock);
        link->socket[0] = 0;
        pthread_mutex_unlock(&links_lock);
    }
}

/* Without the lock of wires: others need not wait for that server. */
static enum joining await_answer(const struct rp_wire *wire, const struct rp_wire_place *place,
                                 const struct rp_memif_bell *bell) {
    const struct timespec nap = {0, LINK_NAP_NS};
    enum joining joined = SILENT;
    uint64_t before = rp_wire_let_go();
    do {
        if (is_up(wire->devices[0])) {
            joined = JOINED;
        } else if (atomic_load(&bell->ends)) {
            joined = REFUSED;
        } else {
            nanosleep(&nap, NULL);
        }
    } while (joined == SILENT && rp_wire_now_ns() < place->until_ns);
    rp_wire_go_on(before);
    return joined;
}

static enum joining join_link(struct memif *memif) {
    enum joining joined;
    struct rp_memif_link *link = claim(memif, &joined);
    memif->reason[0] = 0;
    if (link) {
        memif->link = link;
        memif->visit = (struct rp_memif_visit){.bell = &link->bell};
        rp_wire_run(start_there, memif);
        joined = !memif->failed ? await_answer(memif->wire, memif->place, &link->bell)
            : memif->visit.strangers ? STRANGER : memif->visit.is_full ? SILENT : NOBODY;
    }
    if (joined == JOINED) {
        link->is_opening = 0;
        memif->wire->slot = memif->id;
        memif->wire->link = link;
        memif->wire->bell = &link->bell;
        return JOINED;
    }
    rp_wire_stop(memif->wire);
    if (link) { /* its driver uses it no more */
        memcpy(memif->reason, link->bell.reason, sizeof memif->reason);
    }
    give_up(link);
    return joined;
}

/* Refused as this link is not to be had; another one may be. */
static int says_elsewhere(const char *reason) {
    return strcmp(reason, RP_MEMIF_NO_ID) == 0 || strcmp(reason, RP_MEMIF_TAKEN) == 0;
}

static const char *explain(const struct memif *memif, enum joining joined, char *why, size_t size) {
    if (joined == NO_FILE) {
        return "this process has no file left: raise its limit (ulimit -n)";
    }
    if (joined == SILENT || joined == OPENING) {
        return "the server at that socket does not answer within the time allowed";
    }
    if (joined == NOBODY) {
        return "nobody serves at that socket";
    }
    if (joined == STRANGER) {
        snprintf(why, size, "user %u listens at that socket and would get this process's memory: "
                 "name a path in a folder of the server's own, which others may not write to",
                 memif->visit.stranger);
    } else if (!memif->reason[0] || says_elsewhere(memif->reason)) {
        return "no link is free: say links=N, up to 16, where it is served";
    } else {
        snprintf(why, size, "its server sends this client away: %s", memif->reason);
    }
    return why;
}

/* The first of its server's links that takes this client. */
static int join_memif(struct rp_wire *wire, const struct rp_wire_place *place,
                      const struct rp_dpdk_options *options, char *error) {
    struct memif memif = {.wire = wire, .place = place, .socket = options->socket,
                          .is_named = options->id >= 0};
    uint32_t first = options->id < 0 ? 0 : (uint32_t)options->id;
    uint32_t count = options->id < 0 ? RP_DPDK_LANES : 1, tries = 0;
    char why[RP_URL_ERROR_BYTES];
    enum joining joined;
    int others = 0; /* some links are being opened here: they may be free a moment later */
    do {
        memif.id = first + tries % count;
        joined = join_link(&memif);
        tries += joined != SILENT; /* a queue that was full: connect again */
        others |= joined == OPENING;
        if (joined == SILENT || (others && tries == PASSES * count)) {
            tries = joined == SILENT ? tries : 0;
            others = 0;
            rp_wire_nap();
        }
    } while ((joined == REFUSED || joined == SILENT || joined == OPENING)
             && tries < PASSES * count && rp_wire_now_ns() < place->until_ns);
    return joined == JOINED ? 0
        : rp_dpdk_refuse(error, place, RP_SYSTEM, explain(&memif, joined, why, sizeof why));
}

int rp_memif_open(struct rp_wire *wire, const struct rp_wire_place *place,
                  const struct rp_dpdk_options *options, char *error) {
    char why[RP_URL_ERROR_BYTES];
    wire->pool = rp_pool_open_shifted(RP_DPDK_MBUFS, rp_pool_room(place->mtu));
    if (!wire->pool) {
        return rp_dpdk_refuse(error, place, RP_NO_MEMORY, "no memory for frames");
    }
    wire->in_memory = 1;
    wire->is_shifted = 1;
    if (!place->serve) {
        return join_memif(wire, place, options, error);
    }
    wire->served = rp_memif_serve(options, wire->pool, why, sizeof why);
    wire->lane_count = options->links;
    return wire->served ? 0 : rp_dpdk_refuse(error, place, RP_SYSTEM, why);
}

/* The next of its server's links that no other client of this process has. */
static void turn_to_next(struct rp_memif_link *link) {
    uint32_t id = link->bell.id;
    pthread_mutex_lock(&links_lock);
    do {
        id = (id + 1) % RP_DPDK_LANES;
    } while (id != link->bell.id && find_link(link->socket, id));
    link->bell.id = id;
    pthread_mutex_unlock(&links_lock);
}

static void restart_there(void *argument) {
    struct rp_wire *wire = argument;
    struct rp_memif_visit visit = {.bell = wire->bell};
    (void)rte_eth_dev_stop(wire->devices[0]);
    if (atomic_load(&wire->bell->is_elsewhere) && !wire->link->is_named) {
        turn_to_next(wire->link);
    }
    wire->bell->reason[0] = 0;
    atomic_store(&wire->bell->is_elsewhere, 0);
    rp_memif_visit(&visit);
    wire->down = rte_eth_dev_start(wire->devices[0]) != 0;
    rp_memif_visit(NULL);
    wire->strangers += visit.strangers;
}

/* Another link may be free, says its server. Its answer takes less than a millisecond, or it has
 * other things to do: then it is not waited for, as the port's thread stands still meanwhile. */
static int is_sent_on(struct rp_wire *wire) {
    const struct timespec nap = {0, ANSWER_NAP_NS};
    uint64_t until_ns = rp_wire_now_ns() + ANSWER_NS;
    while (!wire->down && !is_up(wire->devices[0]) && !atomic_load(&wire->bell->is_elsewhere)
           && rp_wire_now_ns() < until_ns) {
        nanosleep(&nap, NULL);
    }
    return atomic_load(&wire->bell->is_elsewhere);
}

/* The driver's client gives up when its server goes; that one's successor is at the same socket.
 * There a newcomer may have its link by now, so it goes through all of them as at its opening. */
void rp_memif_mend(struct rp_wire *wire) {
    uint64_t now = rp_wire_now_ns();
    uint32_t tries = 0;
    if (now - wire->mended_ns < MEND_NS || (!wire->down && is_up(wire->devices[0]))) {
        return;
    }
    do {
        rp_wire_run(restart_there, wire);
        tries++;
    } while (!wire->link->is_named && tries < RP_DPDK_LANES && is_sent_on(wire));
    wire->mended_ns = rp_wire_now_ns();
}

void rp_memif_leave(struct rp_wire *wire) {
    if (wire->served) {
        rp_memif_end(wire->served);
    }
    give_up(wire->link);
}

void rp_memif_closed(int file) {
    struct rp_memif_bell *bell = rp_memif_find_bell(file);
    if (bell) {
        atomic_store(&bell->is_elsewhere, says_elsewhere(bell->reason));
        atomic_fetch_add(&bell->ends, 1);
        bell->control = 0;
    }
}

/* In DPDK's interrupt thread, where connections begin and end. */
struct rp_memif_bell *rp_memif_find_bell(int file) {
    for (uint32_t i = 0; i < RTE_MAX_ETHPORTS; i++) {
        if (links[i].bell.control == file + 1) {
            return &links[i].bell;
        }
    }
    return NULL;
}

