/* One queue lock for a whole hub. Loopback serves tests, notebooks and --sync runs: there a lock
 * that is easy to reason about is worth the contention it costs. For the same reason each datagram
 * is copied: each port owns its memory, and nothing is shared but the queues.
 *
 * A port's buffers are all of one stride. Those not in the free stack are queued or lent; the sum
 * is the queue's bound plus one burst, so that a port that holds a burst can still be sent to.
 */
#include "transport/transport_loopback.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "os/system.h"
#include "os/wake.h"
#include "protocol/status.h"
#include "transport/transport_lend.h"

struct hub {
    struct hub *next; /* in the list of named hubs, while it has a server */
    char name[RP_URL_HOST_BYTES];
    pthread_mutex_t queue_lock; /* ports, and every port's queue and free stack */
    pthread_mutex_t turn_lock;  /* turn, owner */
    struct loopback_port *ports[RP_LOOPBACK_PORTS_MAX];
    uint32_t port_count; /* the hub goes with its last port */
    uint64_t joined;
    uint32_t (*turn)(void *owner);
    void *owner;
    _Atomic uint64_t virtual_ns; /* 0: the clock is the system's */
};

struct queued {
    uint32_t buffer;
    uint32_t size;
    struct rp_peer from;
};

struct loopback_port {
    struct rp_port_base base;
    struct hub *hub;
    uint32_t index;
    uint32_t stride;
    uint32_t queue_max;
    uint32_t queue_first;
    uint32_t queue_count;
    uint32_t free_count;
    int sleeping;  /* under the queue lock: a delivery has to wake it */
    struct rp_wake wake;
    uint32_t *free;
    struct queued *queue;
    uint8_t *receive; /* (queue_max + RP_BURST) buffers */
    struct rp_lease lease;
};

static pthread_mutex_t hubs_lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct hub *hubs; /* those that can be found by name */

static struct loopback_port *own(struct rp_port *port) {
    return (struct loopback_port *)(void *)port;
}

/* Locks that know their holder: one that is left or taken twice ends the program at once. */
static void lock(pthread_mutex_t *mutex) {
    int failed = pthread_mutex_lock(mutex);
    assert(!failed);
}

static void unlock(pthread_mutex_t *mutex) {
    int failed = pthread_mutex_unlock(mutex);
    assert(!failed);
}

/* ---- bursts ---- */

static uint32_t loopback_rx_burst(struct rp_port *opaque, struct rp_packet *packets,
                                  uint32_t count) {
    struct loopback_port *port = own(opaque);
    assert(count <= RP_BURST);
    lock(&port->hub->queue_lock);
    count = rp_min(count, port->queue_count);
    for (uint32_t i = 0; i < count; i++) {
        const struct queued *entry = &port->queue[port->queue_first];
        memset(&packets[i], 0, sizeof packets[i]);
        packets[i].data = port->receive + (size_t)entry->buffer * port->stride;
        packets[i].size = entry->size;
        packets[i].peer = entry->from;
        packets[i].token = entry->buffer;
        port->queue_first = (port->queue_first + 1) % port->queue_max;
    }
    port->queue_count -= count;
    unlock(&port->hub->queue_lock);
    return count;
}

static void loopback_rx_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct loopback_port *port = own(opaque);
    lock(&port->hub->queue_lock);
    for (uint32_t i = 0; i < count; i++) {
        assert(port->free_count + port->queue_count < port->queue_max + RP_BURST);
        port->free[port->free_count++] = (uint32_t)packets[i].token;
        packets[i].data = NULL;
    }
    unlock(&port->hub->queue_lock);
}

static uint32_t loopback_tx_lease(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    return rp_lease_take(&own(port)->lease, packets, count, rp_port_base(port)->mtu);
}

/* The port an address names, or null: gone, or not of this hub. */
static struct loopback_port *find_port(struct hub *hub, const struct rp_peer *peer) {
    uint32_t index;
    memcpy(&index, peer->bytes + 8, sizeof index);
    if (peer->size != 12 || index >= RP_LOOPBACK_PORTS_MAX || !hub->ports[index]) {
        return NULL;
    }
    struct loopback_port *port = hub->ports[index];
    return memcmp(&port->base.address, peer, sizeof *peer) == 0 ? port : NULL;
}

/* 1 where the receiver took it. Under the queue lock. */
static int deliver(struct loopback_port *from, const struct rp_packet *packet) {
    struct loopback_port *to = find_port(from->hub, &packet->peer);
    if (!to || packet->size > to->base.mtu || to->queue_count == to->queue_max || !to->free_count) {
        return 0;
    }
    uint32_t buffer = to->free[--to->free_count];
    struct queued *entry = &to->queue[(to->queue_first + to->queue_count++) % to->queue_max];
    memcpy(to->receive + (size_t)buffer * to->stride, packet->data, packet->size);
    *entry = (struct queued){.buffer = buffer, .size = packet->size, .from = from->base.address};
    if (to->sleeping) {
        to->sleeping = 0;
        rp_wake_set(&to->wake);
    }
    return 1;
}

static void loopback_tx_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct loopback_port *port = own(opaque);
    lock(&port->hub->queue_lock);
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size) {
            assert(packets[i].size <= packets[i].capacity);
            port->base.dropped_out += !deliver(port, &packets[i]);
        }
    }
    rp_lease_end(&port->lease, count);
    unlock(&port->hub->queue_lock);
}

/* ---- waiting ---- */

static int has_queued(struct loopback_port *port, int sleeping) {
    lock(&port->hub->queue_lock);
    int some = port->queue_count > 0;
    port->sleeping = sleeping && !some;
    unlock(&port->hub->queue_lock);
    return some;
}

/* A client's wait is the server's turn, where the server has given one to be run. Returns what it
 * received: 0 where there is nothing more to do. */
uint32_t rp_loopback_turn(struct rp_port *port) {
    struct hub *hub = own(port)->hub;
    uint32_t received = 0;
    lock(&hub->turn_lock);
    if (hub->turn) {
        if (hub->virtual_ns) {
            hub->virtual_ns += RP_LOOPBACK_TURN_NS;
        }
        received = hub->turn(hub->owner);
    }
    unlock(&hub->turn_lock);
    return received;
}

enum { TURNS_MAX = 64 }; /* of a server that others keep busy, within one wait */

/* Where time is counted in turns no thread sleeps: time passes at once. */
static int loopback_wait(struct rp_port *opaque, uint64_t timeout_ns) {
    struct loopback_port *port = own(opaque);
    int sleeps = port->hub->virtual_ns == 0;
    uint32_t turns = 0;
    while (port->index > 0 && !has_queued(port, 0) && rp_loopback_turn(opaque)) {
        if (++turns == TURNS_MAX) {
            return 0; /* the caller knows how long it may go on */
        }
    }
    if (has_queued(port, sleeps)) {
        return 1;
    }
    if (sleeps) {
        rp_wake_sleep(&port->wake, -1, timeout_ns);
        return has_queued(port, 0);
    }
    port->hub->virtual_ns += timeout_ns;
    return 0;
}

static void loopback_wake(struct rp_port *opaque) {
    rp_wake_set(&own(opaque)->wake);
}

static uint64_t loopback_now(struct rp_port *opaque) {
    return own(opaque)->hub->virtual_ns;
}

/* ---- life ---- */

/* Takes the hub out of the list of names. Under hubs_lock. */
static void unlist(struct hub *hub) {
    for (struct hub **at = &hubs; *at; at = &(*at)->next) {
        if (*at == hub) {
            *at = hub->next;
            return;
        }
    }
}

/* The server has closed: sleeping threads look again. Under hubs_lock: no port closes meanwhile. */
static void wake_all(struct hub *hub) {
    for (uint32_t i = 0; i < RP_LOOPBACK_PORTS_MAX; i++) {
        if (hub->ports[i]) {
            rp_wake_set(&hub->ports[i]->wake);
        }
    }
}

static void free_port(struct loopback_port *port) {
    rp_wake_close(&port->wake);
    free(port->free);
    free(port->queue);
    free(port->receive);
    free(port->lease.memory);
    free(port);
}

static void loopback_close(struct rp_port *opaque) {
    struct loopback_port *port = own(opaque);
    struct hub *hub = port->hub;
    lock(&hubs_lock);
    lock(&hub->queue_lock);
    hub->ports[port->index] = NULL;
    uint32_t left = --hub->port_count;
    unlock(&hub->queue_lock);
    if (port->index == 0) {
        unlist(hub);
        wake_all(hub);
    }
    unlock(&hubs_lock);
    free_port(port);
    if (left == 0) {
        free(hub);
    }
}

static const char *loopback_lost(struct rp_port *opaque) {
    struct hub *hub = own(opaque)->hub;
    lock(&hub->queue_lock);
    int closed = !hub->ports[0];
    unlock(&hub->queue_lock);
    return closed ? "the server of this process has closed" : NULL;
}

static uint32_t loopback_facts(struct rp_port *port, struct rp_fact *facts) {
    uint32_t count = 0;
    rp_fact_add(facts, &count, RP_FACT_OUT, "not_taken",
                "datagrams to a port that has gone, or whose queue is full",
                rp_port_base(port)->dropped_out);
    return count;
}

static const struct rp_transport loopback_transport = {
    .name = "loopback",
    .rx_burst = loopback_rx_burst,
    .rx_release = loopback_rx_release,
    .tx_lease = loopback_tx_lease,
    .tx_send = loopback_tx_send,
    .wait = loopback_wait,
    .close = loopback_close,
    .wake = loopback_wake,
    .facts = loopback_facts,
    .now = loopback_now,
    .lost = loopback_lost,
};

static struct loopback_port *make_port(uint32_t mtu) {
    struct loopback_port *port = calloc(1, sizeof *port);
    if (!port) {
        return NULL;
    }
    uint32_t queue_max = RP_LOOPBACK_QUEUE_BYTES / mtu;
    queue_max = rp_min(queue_max, RP_LOOPBACK_QUEUE_MAX);
    queue_max = rp_max(queue_max, RP_LOOPBACK_QUEUE_MIN);
    port->base.transport = &loopback_transport;
    port->base.mtu = mtu;
    port->base.receive_budget = queue_max;
    port->stride = (mtu + 63) & ~63u;
    port->queue_max = queue_max;
    port->free_count = queue_max + RP_BURST;
    (void)rp_wake_open(&port->wake);
    port->free = calloc(port->free_count, sizeof *port->free);
    port->queue = calloc(queue_max, sizeof *port->queue);
    port->receive = aligned_alloc(64, (size_t)port->free_count * port->stride);
    if (!rp_lease_open(&port->lease, mtu) || port->wake.read < 0 || !port->free || !port->queue
        || !port->receive) {
        free_port(port);
        return NULL;
    }
    for (uint32_t i = 0; i < port->free_count; i++) {
        port->free[i] = i;
    }
    return port;
}

static struct hub *make_hub(const char *name) {
    struct hub *hub = calloc(1, sizeof *hub);
    if (hub) {
        snprintf(hub->name, sizeof hub->name, "%s", name);
        rp_mutex_make(&hub->queue_lock);
        rp_mutex_make(&hub->turn_lock);
    }
    return hub;
}

/* Gives the port the first free place. 0 where the hub is full. */
static int join(struct hub *hub, struct loopback_port *port) {
    lock(&hub->queue_lock);
    uint32_t index = 0;
    while (index < RP_LOOPBACK_PORTS_MAX && hub->ports[index]) {
        index++;
    }
    if (index < RP_LOOPBACK_PORTS_MAX) {
        uint64_t joined = ++hub->joined;
        hub->ports[index] = port;
        hub->port_count++;
        port->hub = hub;
        port->index = index;
        port->base.address.size = 12;
        memcpy(port->base.address.bytes, &joined, 8);
        memcpy(port->base.address.bytes + 8, &index, 4);
    }
    unlock(&hub->queue_lock);
    return index < RP_LOOPBACK_PORTS_MAX;
}

static struct hub *find_hub(const char *name) {
    struct hub *hub = hubs;
    while (hub && strcmp(hub->name, name) != 0) {
        hub = hub->next;
    }
    return hub;
}

static int fail(struct loopback_port *port, int status, char *error, const char *format,
                const char *name) {
    if (port) {
        free_port(port);
    }
    snprintf(error, RP_URL_ERROR_BYTES, format, name);
    return -status;
}

/* Under hubs_lock. */
static int serve(struct loopback_port *port, const char *name, int virtual_clock, char *error) {
    if (find_hub(name)) {
        return fail(port, RP_SYSTEM, error,
                    "loopback://%.63s is served already in this process: choose another name",
                    name);
    }
    struct hub *hub = make_hub(name);
    if (!hub) {
        return fail(port, RP_NO_MEMORY, error, "no memory for the hub loopback://%.63s", name);
    }
    hub->virtual_ns = virtual_clock ? 1000000000u : 0;
    join(hub, port);
    hub->next = hubs;
    hubs = hub;
    return 0;
}

/* Under hubs_lock. */
static int visit(struct loopback_port *port, const char *name, struct rp_peer *server,
                 char *error) {
    struct hub *hub = find_hub(name);
    if (!hub) {
        return fail(port, RP_SYSTEM, error,
                    "nobody serves loopback://%.63s in this process; loopback:// never leaves its "
                    "process: serve at udp://127.0.0.1:0 for several",
                    name);
    }
    if (!join(hub, port)) {
        return fail(port, RP_FULL, error, "loopback://%.63s has no place left for a client", name);
    }
    *server = hub->ports[0]->base.address;
    return 0;
}

/* A child serves nothing, whatever its parent served; and the lock may be held for ever. */
static void forget_hubs(void) {
    rp_mutex_make(&hubs_lock);
    hubs = NULL;
}

static void watch_forks(void) {
    rp_mutex_make(&hubs_lock);
    int failed = pthread_atfork(NULL, NULL, forget_hubs);
    assert(!failed);
}

int rp_loopback_open(struct rp_port **port, const struct rp_url *url,
                     const struct rp_port_options *options, struct rp_peer *server, char *bound,
                     char *error) {
    struct loopback_port *made = make_port(options->mtu);
    if (!made) {
        return fail(NULL, RP_NO_MEMORY, error, "no memory for a port of loopback://%.63s",
                    url->host);
    }
    pthread_once(&once, watch_forks);
    lock(&hubs_lock);
    int status = options->serve ? serve(made, url->host, options->virtual_clock, error)
                                : visit(made, url->host, server, error);
    unlock(&hubs_lock);
    if (status) {
        return status;
    }
    if (options->serve) {
        *server = made->base.address;
    }
    snprintf(bound, RP_URL_TEXT_BYTES, "loopback://%.63s", url->host);
    *port = (struct rp_port *)(void *)made;
    return 0;
}

int rp_loopback_is(struct rp_port *port) {
    return rp_port_transport(port) == &loopback_transport;
}

void rp_loopback_attend(struct rp_port *port, uint32_t (*turn)(void *owner), void *owner) {
    struct hub *hub = own(port)->hub;
    lock(&hub->turn_lock);
    hub->turn = turn;
    hub->owner = owner;
    unlock(&hub->turn_lock);
}
