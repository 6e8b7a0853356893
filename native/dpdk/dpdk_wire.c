/* Devices, pools, and two kinds of wire: rings within this process, and memif between two.
 *
 * A net_ring server makes a hub: two rings for each client it may have, each with one writer and
 * one reader, and one pool for all, since frames pass by reference. A hub is found by the server's
 * address and goes with the last port on it.
 */
#include <errno.h>
#include <pthread.h>
#include <rte_alarm.h>
#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "dpdk_parts.h"
#include "status.h"

enum { LINK_TRIES = 60, LINK_NAP_NS = 5000000, VDEV_ARGUMENTS = 256 };

struct rp_hub {
    struct rp_hub *next; /* in the list, while it is served */
    char host[RP_URL_HOST_BYTES];
    uint16_t port;
    uint32_t members; /* 1 for the server */
    struct rte_mempool *pool;
    struct rte_ring *up[RP_DPDK_LANES];   /* to the server */
    struct rte_ring *down[RP_DPDK_LANES]; /* to a client */
    uint8_t taken[RP_DPDK_LANES];
};

static pthread_mutex_t hubs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_hub *hubs;
static _Atomic uint32_t names; /* of rings, pools and devices: never twice */
static _Atomic uint64_t leaked;

/* The memif links this process is a client on. A second device on one of them would be refused by
 * the driver, which then keeps its Ethernet port for ever (DPDK 22.11). */
static struct rp_memif_link {
    char socket[sizeof((struct rp_dpdk_options *)0)->socket];
    uint32_t id;
} links[RTE_MAX_ETHPORTS];

int rp_dpdk_refuse(char *error, const struct rp_wire_place *place, int status, const char *what)
{
    char said[120];
    rp_eal_said(said, sizeof said);
    snprintf(error, RP_URL_ERROR_BYTES, "dpdk://%.40s:%u: %.80s%s%.100s", place->host, place->port,
             what, said[0] ? ": " : "", said);
    return -status;
}

/* ---- DPDK's interrupt thread ---- */

/* The memif driver handles its peers' coming and going in that thread, without a lock that a
 * device's start and end would take too (DPDK 22.11: two threads freed one control channel). So
 * devices start and end there as well. */
struct job {
    void (*run)(void *argument);
    void *argument;
    sem_t done;
};

static void run_job(void *argument)
{
    struct job *job = argument;
    job->run(job->argument);
    sem_post(&job->done);
}

static void run_there(void (*run)(void *argument), void *argument)
{
    struct job job = {.run = run, .argument = argument};
    sem_init(&job.done, 0, 0);
    if (rte_eal_alarm_set(1, run_job, &job)) {
        run_job(&job);
    }
    while (sem_wait(&job.done)) { /* a signal came */
    }
    sem_destroy(&job.done);
}

/* ---- pools and devices ---- */

uint32_t rp_pool_room(uint32_t mtu)
{
    uint32_t room = (mtu + RP_FRAME_HEADERS + RP_DPDK_SHIFT + 63) / 64 * 64;
    return room < 2048 ? 2048 : room;
}

struct rte_mempool *rp_pool_open(uint32_t mbufs, uint32_t mtu)
{
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof name, "rp_pool_%u", names++);
    return rte_pktmbuf_pool_create(name, mbufs, RP_DPDK_CACHE, 0,
                                   (uint16_t)(RTE_PKTMBUF_HEADROOM + rp_pool_room(mtu)),
                                   SOCKET_ID_ANY);
}

void rp_pool_close(struct rte_mempool *pool)
{
    uint32_t lost = pool ? rte_mempool_in_use_count(pool) : 0;
    leaked += lost;
    if (!lost) { /* else somebody may still write there */
        rte_mempool_free(pool);
    }
}

uint64_t rp_pool_leaked(void)
{
    return leaked;
}

int rp_wire_start(struct rp_wire *wire, uint16_t device, const char *name, uint32_t queues)
{
    struct rte_eth_conf plain;
    memset(&plain, 0, sizeof plain);
    uint32_t index = wire->device_count++;
    wire->devices[index] = device;
    snprintf(wire->names[index], sizeof wire->names[index], "%s", name);
    int failed = rte_eth_dev_configure(device, (uint16_t)queues, (uint16_t)queues, &plain);
    for (uint16_t queue = 0; queue < queues && !failed; queue++) {
        failed = rte_eth_rx_queue_setup(device, queue, RP_DPDK_RING, 0, NULL, wire->pool);
        failed = failed ? failed : rte_eth_tx_queue_setup(device, queue, RP_DPDK_RING, 0, NULL);
        if (wire->lane_count < RP_DPDK_LANES) {
            wire->lanes[wire->lane_count++] = (struct rp_lane){device, queue};
        }
    }
    return failed ? failed : rte_eth_dev_start(device);
}

static void stop_devices(void *argument)
{
    struct rp_wire *wire = argument;
    for (uint32_t i = 0; i < wire->device_count; i++) {
        (void)rte_eth_dev_stop(wire->devices[i]);
        (void)rte_eth_dev_close(wire->devices[i]);
        (void)rte_vdev_uninit(wire->names[i]);
    }
    wire->device_count = 0;
    wire->lane_count = 0;
}

void rp_wire_stop(struct rp_wire *wire)
{
    if (wire->device_count) {
        run_there(stop_devices, wire);
    }
}

/* ---- rings ---- */

static void drain(struct rte_ring *ring)
{
    void *mbuf;
    while (ring && rte_ring_dequeue(ring, &mbuf) == 0) {
        rte_pktmbuf_free(mbuf);
    }
}

static struct rp_hub *find_hub(const struct rp_wire_place *place)
{
    struct rp_hub *hub = hubs;
    while (hub && (hub->port != place->port || strcmp(hub->host, place->host) != 0)) {
        hub = hub->next;
    }
    return hub;
}

static void free_hub(struct rp_hub *hub)
{
    for (uint32_t i = 0; i < RP_DPDK_LANES; i++) {
        drain(hub->up[i]);
        drain(hub->down[i]);
        rte_ring_free(hub->up[i]);
        rte_ring_free(hub->down[i]);
    }
    rp_pool_close(hub->pool);
    free(hub);
}

static struct rte_ring *make_ring(void)
{
    char name[RTE_RING_NAMESIZE];
    snprintf(name, sizeof name, "rp_ring_%u", names++);
    return rte_ring_create(name, RP_DPDK_RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

static struct rp_hub *make_hub(const struct rp_wire_place *place)
{
    struct rp_hub *hub = calloc(1, sizeof *hub);
    int whole = hub != NULL;
    if (whole) {
        snprintf(hub->host, sizeof hub->host, "%s", place->host);
        hub->port = place->port;
        hub->pool = rp_pool_open(RP_DPDK_HUB_MBUFS, place->mtu);
        whole = hub->pool != NULL;
        for (uint32_t i = 0; i < RP_DPDK_LANES; i++) {
            hub->up[i] = make_ring();
            hub->down[i] = make_ring();
            whole = whole && hub->up[i] && hub->down[i];
        }
        if (!whole) {
            free_hub(hub);
        }
    }
    return whole ? hub : NULL;
}

/* Inside the lock. */
static int join_hub(struct rp_wire *wire, const struct rp_wire_place *place, char *error)
{
    struct rp_hub *hub = find_hub(place);
    if (place->serve) {
        if (hub) {
            return rp_dpdk_refuse(error, place, RP_SYSTEM, "the address is taken");
        }
        hub = make_hub(place);
        if (!hub) {
            return rp_dpdk_refuse(error, place, RP_NO_MEMORY,
                                  "no memory for frames, say memory= in the first url");
        }
        hub->next = hubs;
        hubs = hub;
    } else {
        while (hub && wire->slot < RP_DPDK_LANES && hub->taken[wire->slot]) {
            wire->slot++;
        }
        if (!hub || wire->slot == RP_DPDK_LANES) {
            return rp_dpdk_refuse(error, place, RP_SYSTEM,
                                  hub ? "all 16 clients' places are taken"
                                  : "nobody serves there in this process");
        }
        hub->taken[wire->slot] = 1;
    }
    hub->members++;
    wire->hub = hub;
    wire->pool = hub->pool;
    return 0;
}

int rp_ring_open(struct rp_wire *wire, const struct rp_wire_place *place, char *error)
{
    char name[RTE_ETH_NAME_MAX_LEN / 2], device[RTE_ETH_NAME_MAX_LEN];
    pthread_mutex_lock(&hubs_lock);
    int status = join_hub(wire, place, error);
    pthread_mutex_unlock(&hubs_lock);
    if (status) {
        return status;
    }
    struct rp_hub *hub = wire->hub;
    snprintf(name, sizeof name, "rp%u", names++);
    snprintf(device, sizeof device, "net_ring_%s", name);
    int port = place->serve
        ? rte_eth_from_rings(name, hub->up, RP_DPDK_LANES, hub->down, RP_DPDK_LANES, 0)
        : rte_eth_from_rings(name, &hub->down[wire->slot], 1, &hub->up[wire->slot], 1, 0);
    if (port < 0
        || rp_wire_start(wire, (uint16_t)port, device, place->serve ? RP_DPDK_LANES : 1)) {
        return rp_dpdk_refuse(error, place, RP_SYSTEM, "no ring device");
    }
    return 0;
}

/* After its devices were stopped: a client's rings are emptied by their one reader. */
void rp_ring_leave(struct rp_wire *wire)
{
    struct rp_hub *hub = wire->hub;
    pthread_mutex_lock(&hubs_lock);
    for (struct rp_hub **at = &hubs; *at && wire->slot == RP_DPDK_LANES; at = &(*at)->next) {
        if (*at == hub) {
            *at = hub->next;
            break;
        }
    }
    if (wire->slot < RP_DPDK_LANES) {
        drain(hub->down[wire->slot]);
        hub->taken[wire->slot] = 0;
    }
    int last = --hub->members == 0;
    pthread_mutex_unlock(&hubs_lock);
    if (last) {
        free_hub(hub);
    }
}

/* ---- memif ---- */

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

static int make_memif(const struct memif *memif)
{
    char name[RTE_ETH_NAME_MAX_LEN], arguments[VDEV_ARGUMENTS];
    uint16_t device;
    snprintf(name, sizeof name, "net_memif%u", names++);
    snprintf(arguments, sizeof arguments,
             "role=%s,id=%u,socket=%s,socket-abstract=no,rsize=10,bsize=%u",
             memif->place->serve ? "server" : "client", memif->id, memif->socket,
             rp_pool_room(memif->place->mtu));
    if (rte_vdev_init(name, arguments)) {
        return -1;
    }
    if (rte_eth_dev_get_port_by_name(name, &device)) {
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
    run_there(start_there, &memif);
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

/* The first of its server's links that takes this client. */
static int join_memif(struct rp_wire *wire, const struct rp_wire_place *place,
                      const struct rp_dpdk_options *options, char *error)
{
    const struct timespec nap = {0, LINK_NAP_NS};
    uint32_t first = options->id < 0 ? 0 : (uint32_t)options->id;
    uint32_t end = options->id < 0 ? RP_DPDK_LANES : first + 1;
    int answered = 0;
    for (uint32_t id = first; id < end; id++) {
        struct rp_memif_link *link = claim(options->socket, id);
        int started = link && start_memif(wire, place, options->socket, id) == 0;
        answered = answered || !link || started;
        for (int tries = 0; started && tries < LINK_TRIES; tries++) {
            if (is_up(wire->devices[0])) {
                wire->slot = id;
                wire->link = link;
                return 0;
            }
            nanosleep(&nap, NULL);
        }
        rp_wire_stop(wire);
        if (link) {
            link->socket[0] = 0;
        }
    }
    return rp_dpdk_refuse(error, place, RP_SYSTEM,
                          answered ? "no link is free: say links=N, up to 16, where it is served"
                          : "nobody serves at that socket");
}

/* A killed server leaves its socket's file, which would refuse the next. 1: a server is there. */
static int clear_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int failed = file < 0 || connect(file, (struct sockaddr *)&address, sizeof address) != 0;
    if (failed && errno == ECONNREFUSED) {
        unlink(path); /* only a socket refuses */
    }
    if (file >= 0) {
        close(file);
    }
    return !failed;
}

int rp_memif_open(struct rp_wire *wire, const struct rp_wire_place *place,
                  const struct rp_dpdk_options *options, char *error)
{
    wire->pool = rp_pool_open(RP_DPDK_MBUFS, place->mtu);
    if (!wire->pool) {
        return rp_dpdk_refuse(error, place, RP_NO_MEMORY,
                              "no memory for frames, say memory= in the first url");
    }
    if (!place->serve) {
        return join_memif(wire, place, options, error);
    }
    if (clear_socket(options->socket)) {
        return rp_dpdk_refuse(error, place, RP_SYSTEM, "a server has that socket already");
    }
    for (uint32_t id = 0; id < options->links; id++) {
        if (start_memif(wire, place, options->socket, id)) {
            return rp_dpdk_refuse(error, place, RP_SYSTEM, "no memif device at that socket");
        }
    }
    return 0;
}

/* ---- both ---- */

int rp_wire_open(struct rp_wire *wire, const struct rp_wire_place *place,
                 const struct rp_dpdk_options *options, char *error)
{
    memset(wire, 0, sizeof *wire);
    wire->slot = place->serve ? RP_DPDK_LANES : 0;
    rp_eal_listen();
    int status = options->vdev == RP_VDEV_RING ? rp_ring_open(wire, place, error)
        : rp_memif_open(wire, place, options, error);
    if (status) {
        rp_wire_close(wire);
    }
    return status;
}

void rp_wire_close(struct rp_wire *wire)
{
    rp_wire_stop(wire);
    if (wire->hub) {
        rp_ring_leave(wire);
    } else {
        if (wire->link) {
            wire->link->socket[0] = 0;
        }
        rp_pool_close(wire->pool);
    }
    memset(wire, 0, sizeof *wire);
}
