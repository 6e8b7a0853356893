/* A service: a region, a port and a server, and the thread that turns it.
 *
 * The server is turned by its own thread (rp_service_start), by hand (rp_service_turn), or, over
 * loopback, by the clients that wait; all of them through one gate. The port is opened before the
 * region, because the server's limits depend on what the port can take.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/minmax.h"
#include "drive/clock.h"
#include "drive/ports.h"
#include "drive/pump_gate.h"
#include "drive/pump.h"
#include "drive/service_memory.h"
#include "os/forks.h"
#include "os/limits.h"
#include "os/system.h"
#include "os/word.h"
#include "replay.h"
#include "transport/transport_loopback.h"
#include "transport/url.h"

/* A sleeping server wakes this often: time's own work is due every 100 ms (RP_TICK_MS). */
enum { SPIN_US_DEFAULT = 20, SLEEP_NS_MAX = 100000000 };

struct rp_service {
    struct rp_gate gate;
    _Atomic uint32_t ended; /* 1: nothing is left but the handle; who ends it too sleeps on this */
    struct rp_server *server;
    struct rp_port *port;
    struct rp_memory region;
    struct rp_pump pump;
    struct rp_service_options options;
    char address[RP_URL_TEXT_BYTES];
    char lost[RP_ERROR_BYTES]; /* why no client can reach it again, once that is so */
    char remarks[2][RP_ERROR_BYTES]; /* what else its transport said: first, and then */
    char little[RP_ERROR_BYTES]; /* that its port holds less than a datagram of each session */
    char changes[RP_ERROR_BYTES]; /* this and below: as it was when it opened */
    uint64_t bytes;
    uint64_t ran_ns; /* for how long its thread had run, behind the last turn, if that left some */
    uint64_t seed;
    int attached;
};

#ifndef RP_VERSION
#error "RP_VERSION is missing: the build takes it from pyproject.toml"
#endif
#define QUOTED(word) #word
#define TEXT_OF(macro) QUOTED(macro)
_Static_assert(sizeof TEXT_OF(RP_VERSION) > 1, "pyproject.toml has a version");

const char *rp_version(void) {
    return TEXT_OF(RP_VERSION);
}

int rp_status_count(void) {
    return RP_STATUS_COUNT;
}

int rp_counter_count(void) {
    return RP_COUNTER_COUNT;
}

static uint64_t service_now(struct rp_service *service) {
    const struct rp_transport *transport = rp_port_transport(service->port);
    uint64_t own = transport->now ? transport->now(service->port) : 0;
    return own ? own : rp_clock_ns();
}

/* ---- turning ---- */

/* For how long of a turn this thread ran. Asked only where datagrams are left behind, since then it
 * matters, and known only from the second such turn on: 0 in the first. Turns that receive nothing
 * in between are taken in, up to what the turn itself took. */
static uint64_t ran_of(struct rp_service *service, uint64_t elapsed_ns) {
    uint64_t before_ns = service->ran_ns;
    service->ran_ns = rp_server_is_behind(service->server) ? rp_clock_ran_ns() : 0;
    return rp_clock_between(before_ns, service->ran_ns, elapsed_ns);
}

static uint32_t turn_inside(struct rp_service *service) {
    uint64_t now = service_now(service);
    uint32_t received = rp_server_turn(service->server, service->port, now);
    if (received) {
        uint64_t elapsed_ns = service_now(service) - now;
        rp_server_end_turn(service->server, elapsed_ns, ran_of(service, elapsed_ns));
    }
    return received;
}

static uint32_t service_turn(void *owner) {
    int received = rp_service_turn(owner);
    return received > 0 ? (uint32_t)received : 0;
}

static void service_sleep(void *owner) {
    struct rp_service *service = owner;
    rp_port_transport(service->port)->wait(service->port, SLEEP_NS_MAX);
}

static void service_wake(void *owner) {
    struct rp_service *service = owner;
    rp_port_transport(service->port)->wake(service->port);
}

int rp_service_turn(struct rp_service *service) {
    int status = rp_gate_enter(&service->gate);
    if (!status) {
        status = (int)turn_inside(service);
        rp_gate_leave(&service->gate);
    }
    return status;
}

uint64_t rp_memory_most(const char **whose) {
    struct rp_memory_limit limit = rp_memory_limit("");
    *whose = limit.whose;
    return limit.bytes;
}

int rp_pins(void) {
    return RP_PINS;
}

int rp_service_start(struct rp_service *service) {
    const struct rp_service_options *options = &service->options;
    struct rp_pump_job job = {
        .turn = service_turn, .sleep = service_sleep, .wake = service_wake, .owner = service,
        .spin_ns = 1000u * (uint64_t)(options->spin_us ? options->spin_us : SPIN_US_DEFAULT),
        .busy_poll = options->busy_poll, .core = options->core};
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_gate_enter(&service->gate); /* in a forked child nobody ends what is awaited */
        if (!status) {
            status = options->virtual_clock ? -RP_BAD_ARGUMENT
                                            : rp_pump_start(&service->pump, &job);
            rp_gate_leave(&service->gate);
        }
        if (status == RP_PENDING) {
            rp_pump_await(&service->pump);
        }
    }
    return status;
}

/* The turn that may be under way needs the gate. */
int rp_service_stop(struct rp_service *service) {
    int status = rp_gate_enter(&service->gate);
    if (!status) {
        rp_gate_leave(&service->gate);
        rp_pump_stop(&service->pump);
    }
    return status;
}

/* ---- what it reports ---- */

const char *rp_service_address(const struct rp_service *service) {
    return service->address;
}

uint64_t rp_service_memory(const struct rp_service *service) {
    return service->bytes;
}

int rp_service_attached(const struct rp_service *service) {
    return service->attached;
}

uint64_t rp_service_seed(const struct rp_service *service) {
    return service->seed;
}

const char *rp_service_changes(const struct rp_service *service) {
    return service->changes;
}

int rp_service_counters(struct rp_service *service, uint64_t *counters) {
    int status = rp_gate_enter(&service->gate);
    if (!status) {
        memcpy(counters, rp_server_counters(service->server), RP_COUNTER_COUNT * sizeof *counters);
        rp_gate_leave(&service->gate);
    }
    return status;
}

uint32_t rp_service_sessions(struct rp_service *service) {
    uint32_t sessions = 0;
    if (!rp_gate_enter(&service->gate)) {
        sessions = rp_server_sessions(service->server);
        rp_gate_leave(&service->gate);
    }
    return sessions;
}

uint64_t rp_service_incarnation(struct rp_service *service) {
    uint64_t incarnation = 0;
    if (!rp_gate_enter(&service->gate)) {
        incarnation = rp_server_incarnation(service->server);
        rp_gate_leave(&service->gate);
    }
    return incarnation;
}

uint64_t rp_service_weights_version(struct rp_service *service) {
    uint64_t version = 0;
    if (!rp_gate_enter(&service->gate)) {
        version = rp_server_weights_version(service->server);
        rp_gate_leave(&service->gate);
    }
    return version;
}

uint64_t rp_service_dropped(struct rp_service *service) {
    uint64_t dropped = 0;
    if (!rp_gate_enter(&service->gate)) {
        dropped = rp_port_base(service->port)->dropped_out;
        rp_gate_leave(&service->gate);
    }
    return dropped;
}

uint64_t rp_service_dropped_in(struct rp_service *service) {
    uint64_t dropped = 0;
    if (!rp_gate_enter(&service->gate)) {
        dropped = rp_port_base(service->port)->dropped_in;
        rp_gate_leave(&service->gate);
    }
    return dropped;
}

int rp_service_measure(struct rp_service *service, struct rp_measures *measures) {
    int status = rp_gate_enter(&service->gate);
    if (!status) {
        rp_server_measure(service->server, service_now(service), measures);
        measures->dropped_in = rp_port_base(service->port)->dropped_in;
        measures->dropped_out = rp_port_base(service->port)->dropped_out;
        measures->fact_count = rp_port_facts(service->port, measures->facts);
        rp_gate_leave(&service->gate);
    }
    return status;
}

const char *rp_service_lost(struct rp_service *service) {
    if (!rp_gate_enter(&service->gate)) {
        const struct rp_transport *transport = rp_port_transport(service->port);
        const char *why = transport->lost ? transport->lost(service->port) : NULL;
        if (why && !service->lost[0]) {
            snprintf(service->lost, sizeof service->lost, "%s", why);
        }
        rp_gate_leave(&service->gate);
    }
    return service->lost[0] ? service->lost : NULL;
}

const char *rp_service_remark(struct rp_service *service) {
    if (!rp_gate_enter(&service->gate)) {
        const struct rp_transport *transport = rp_port_transport(service->port);
        const char *what = transport->remark ? transport->remark(service->port) : NULL;
        char *remark = service->remarks[service->remarks[0][0] != 0];
        if (what && !remark[0] && strcmp(what, service->remarks[0]) != 0) {
            snprintf(remark, RP_ERROR_BYTES, "%s", what);
        }
        rp_gate_leave(&service->gate);
    }
    const char *said = service->remarks[1][0] ? service->remarks[1]
        : service->remarks[0][0] ? service->remarks[0] : service->little;
    return said[0] ? said : NULL;
}

/* ---- opening and closing ---- */

uint64_t rp_service_bytes(const struct rp_server_config *config, const char *url, char *error) {
    struct rp_url parsed;
    struct rp_server_config filled = *config;
    if (rp_url_parse(&parsed, url, error)) {
        return 0;
    }
    filled.mtu = parsed.mtu ? parsed.mtu : config->mtu ? config->mtu : parsed.mtu_default;
    filled.receive_budget = config->receive_budget ? config->receive_budget : UINT16_MAX;
    return rp_server_bytes(&filled, error);
}

/* How many datagrams clients may have under way towards a port that holds `room` of them: half. A
 * quarter may hold repeats of datagrams that are there already. Another quarter may count as full
 * though it was read: the kernel frees the space of read datagrams in shares as large as that.
 *
 * One for each session is the least, also where the port holds fewer: nobody could ask for anything
 * without one. The host's bounds are no reason to refuse: most sessions are idle most of the time,
 * and what finds no room then is lost and sent again, as on any network. */
static uint32_t promised(uint32_t room, const struct rp_server_config *config) {
    uint32_t half = room / 2, sessions = config->sessions_max;
    uint32_t most = rp_max(room, sessions);
    uint32_t wanted = config->receive_budget ? config->receive_budget : rp_max(half, sessions);
    return rp_min(wanted, most);
}

/* Says so where not even one datagram of each session fits. */
static void remark_room(struct rp_service *service, uint32_t sessions) {
    const struct rp_port_base *port = rp_port_base(service->port);
    const char *more = port->transport->more_room;
    if (port->receive_budget < sessions) {
        snprintf(service->little, sizeof service->little,
                 "%.80s: %u datagrams of %u bytes fit in here, %u sessions may send at once: "
                 "more are lost and sent again; a smaller ?mtu= fits more%s",
                 service->address, port->receive_budget, port->mtu, sessions, more ? more : "");
    }
}

static int open_port(struct rp_service *service, struct rp_server_config *config, const char *url,
                     char *error) {
    const struct rp_service_options *options = &service->options;
    struct rp_port_options wanted = {
        .serve = 1, .insecure = (int)options->insecure, .mtu = config->mtu,
        .virtual_clock = (int)options->virtual_clock,
        .receive_bytes = options->receive_bytes, .send_bytes = options->send_bytes,
        .zmq = options->zmq};
    struct rp_peer own;
    int status = rp_ports_open(&service->port, url, &wanted, &own, service->address, error);
    if (status) {
        return status;
    }
    if (options->virtual_clock && !rp_loopback_is(service->port)) {
        snprintf(error, RP_ERROR_BYTES, "%.100s: only loopback:// has a virtual clock", url);
        return -RP_BAD_ARGUMENT;
    }
    uint32_t room = rp_port_base(service->port)->receive_budget;
    config->mtu = rp_port_base(service->port)->mtu;
    config->receive_budget = promised(room, config);
    remark_room(service, config->sessions_max);
    return 0;
}

/* Before a region is mapped: was it made for this configuration? */
static int check_region(const struct rp_memory *region, const struct rp_server_config *config,
                        char *error) {
    size_t bytes;
    const void *state = rp_memory_state(region, &bytes, error);
    if (!state) {
        return -RP_BAD_REGION;
    }
    int status = rp_server_compare(state, bytes, config, error);
    munmap((void *)state, bytes);
    return status;
}

static int open_server(struct rp_service *service, const struct rp_server_config *config,
                       char *error) {
    struct rp_memory *region = &service->region;
    const char *path = service->options.region_path;
    struct rp_segments segments;
    uint8_t entropy[32];
    int status = rp_server_segments(config, &segments, error);
    if (status) {
        return status;
    }
    if (rp_entropy(entropy, sizeof entropy)) {
        snprintf(error, RP_ERROR_BYTES, "no random bytes from the system: %s", strerror(errno));
        return -RP_SYSTEM;
    }
    status = rp_memory_open(region, path, error);
    status = status || !region->attached ? status : check_region(region, config, error);
    status = status ? status : rp_memory_map(region, &segments, error);
    if (status) {
        return status;
    }
    uint64_t now = service_now(service);
    status = (!region->attached ? rp_server_create
              : service->options.verify ? rp_server_attach_verified : rp_server_attach)(
        &service->server, region->base, region->bytes, config, entropy, now, error);
    if (!status) {
        service->bytes = region->bytes;
        service->attached = region->attached;
        service->seed = rp_server_seed(service->server);
        snprintf(service->changes, sizeof service->changes, "%s",
                 rp_server_changes(service->server));
        rp_server_backing(service->server, rp_memory_allocate, region);
        status = rp_memory_keep(region, path, error);
    }
    return status;
}

/* In a forked child: a socket or a locked file left here would outlive the server. A loopback port
 * is left: its hub's locks may be held for ever. */
static void leave_in_child(void *owner) {
    struct rp_service *service = owner;
    if (service->port && !rp_loopback_is(service->port)) {
        rp_port_close(service->port);
    }
    rp_memory_forget(&service->region);
}

int rp_service_open(struct rp_service **opened, const struct rp_server_config *config,
                    const char *url, const struct rp_service_options *options, char *error) {
    struct rp_server_config filled = *config;
    struct rp_service *service = calloc(1, sizeof *service);
    *opened = NULL;
    if (!service) {
        snprintf(error, RP_ERROR_BYTES, "no memory for a service");
        return -RP_NO_MEMORY;
    }
    service->options = *options;
    rp_memory_none(&service->region);
    rp_gate_open(&service->gate, leave_in_child, service);
    int status = open_port(service, &filled, url, error);
    status = status ? status : open_server(service, &filled, error);
    service->options.region_path = NULL; /* the caller's, and used up */
    if (status) {
        rp_service_close(service);
        return status;
    }
    if (rp_loopback_is(service->port)) {
        rp_loopback_attend(service->port, service_turn, service);
    }
    *opened = service;
    return 0;
}

/* In a forked child nobody ends what is awaited. */
static void await_end(struct rp_service *service) {
    while (!rp_gate_forked(&service->gate) && !service->ended) {
        rp_word_wait(&service->ended, 0, RP_WORD_FOREVER);
    }
}

/* The first to come ends it, the others wait until it has. */
void rp_service_end(struct rp_service *service) {
    if (!service) {
        return;
    }
    if (rp_gate_close(&service->gate)) {
        await_end(service);
        return;
    }
    rp_gate_leave(&service->gate); /* no call is admitted any more; the turning thread has to end */
    rp_pump_stop(&service->pump);
    if (service->port && rp_loopback_is(service->port)) {
        rp_loopback_attend(service->port, NULL, NULL);
    }
    if (service->server) {
        rp_server_last_turn(service->server, service->port, service_now(service),
                           service->region.folder[0] != 0);
    }
    rp_forks_hold();
    rp_port_close(service->port);
    service->port = NULL;
    rp_forks_allow();
    rp_memory_close(&service->region);
    service->ended = 1;
    rp_word_wake(&service->ended);
}

void rp_service_free(struct rp_service *service) {
    rp_service_end(service);
    if (service) {
        rp_gate_free(&service->gate);
        free(service);
    }
}

void rp_service_close(struct rp_service *service) {
    rp_service_end(service);
    rp_service_free(service);
}
