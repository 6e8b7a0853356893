/* A wire of rings within this process. A net_ring server makes a hub: two rings for each client it
 * may have, each with one writer and one reader, and one pool for all, since frames pass by
 * reference. A hub is found by the server's address and goes with the last port on it.
 */
#include <pthread.h>
#include <rte_eth_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk/dpdk_parts.h"
#include "protocol/status.h"

enum { WHY_BYTES = 80 };

struct rp_hub {
    struct rp_hub *next; /* in the list, while it is served */
    char host[RP_URL_HOST_BYTES];
    uint16_t port;
    uint32_t mtu; /* what an mbuf of its pool holds */
    uint32_t members; /* 1 for the server */
    _Atomic int is_left; /* by the server; its successor makes another hub */
    struct rte_mempool *pool;
    struct rte_ring *up[RP_DPDK_LANES];   /* to the server */
    struct rte_ring *down[RP_DPDK_LANES]; /* to a client */
    uint8_t taken[RP_DPDK_LANES];
    _Atomic uint32_t used; /* lanes that ever had a client: the first ones */
};

static pthread_mutex_t hubs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_hub *hubs;

static void drain(struct rte_ring *ring) {
    void *mbuf;
    while (ring && rte_ring_dequeue(ring, &mbuf) == 0) {
        rte_pktmbuf_free(mbuf);
    }
}

static struct rp_hub *find_hub(const struct rp_wire_place *place) {
    struct rp_hub *hub = hubs;
    while (hub && (hub->port != place->port || strcmp(hub->host, place->host) != 0)) {
        hub = hub->next;
    }
    return hub;
}

static void free_hub(struct rp_hub *hub) {
    for (uint32_t i = 0; i < RP_DPDK_LANES; i++) {
        drain(hub->up[i]);
        drain(hub->down[i]);
        rte_ring_free(hub->up[i]);
        rte_ring_free(hub->down[i]);
    }
    rp_pool_close(hub->pool, 0);
    free(hub);
}

static struct rte_ring *make_ring(void) {
    char name[RTE_RING_NAMESIZE];
    snprintf(name, sizeof name, "rp_ring_%u", rp_wire_number());
    return rte_ring_create(name, RP_DPDK_RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

static struct rp_hub *make_hub(const struct rp_wire_place *place) {
    struct rp_hub *hub = calloc(1, sizeof *hub);
    int whole = hub != NULL;
    if (whole) {
        snprintf(hub->host, sizeof hub->host, "%s", place->host);
        hub->port = place->port;
        hub->mtu = place->mtu;
        hub->pool = rp_pool_open_shifted(RP_DPDK_HUB_MBUFS, rp_pool_room(place->mtu));
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
static int join_hub(struct rp_wire *wire, const struct rp_wire_place *place, char *error) {
    struct rp_hub *hub = find_hub(place);
    char why[WHY_BYTES];
    if (place->serve) {
        if (hub) {
            return rp_dpdk_refuse(error, place, RP_SYSTEM, "the address is taken");
        }
        hub = make_hub(place);
        if (!hub) {
            return rp_dpdk_refuse(error, place, RP_NO_MEMORY, "no memory for frames");
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
        if (place->mtu > hub->mtu) {
            snprintf(why, sizeof why, "mtu=%u is too large: that server has mtu=%u, say no more",
                     place->mtu, hub->mtu);
            return rp_dpdk_refuse(error, place, RP_BAD_ARGUMENT, why);
        }
        hub->taken[wire->slot] = 1;
        hub->used = hub->used > wire->slot ? hub->used : wire->slot + 1;
    }
    hub->members++;
    wire->hub = hub;
    wire->used = place->serve ? &hub->used : NULL;
    wire->in_memory = 1;
    wire->is_shifted = 1;
    wire->pool = hub->pool;
    return 0;
}

int rp_ring_open(struct rp_wire *wire, const struct rp_wire_place *place, char *error) {
    char name[RTE_ETH_NAME_MAX_LEN / 2], device[RTE_ETH_NAME_MAX_LEN];
    pthread_mutex_lock(&hubs_lock);
    int status = join_hub(wire, place, error);
    pthread_mutex_unlock(&hubs_lock);
    if (status) {
        return status;
    }
    struct rp_hub *hub = wire->hub;
    snprintf(name, sizeof name, "rp%u", rp_wire_number());
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
void rp_ring_leave(struct rp_wire *wire) {
    struct rp_hub *hub = wire->hub;
    pthread_mutex_lock(&hubs_lock);
    for (struct rp_hub **at = &hubs; *at && wire->slot == RP_DPDK_LANES; at = &(*at)->next) {
        if (*at == hub) {
            *at = hub->next;
            atomic_store(&hub->is_left, 1);
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

const char *rp_ring_lost(const struct rp_hub *hub) {
    return atomic_load(&hub->is_left) ? "the server of this process that it reached has closed"
        : NULL;
}
