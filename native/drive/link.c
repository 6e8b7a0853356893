/* A link: a port and a client, and the thread that drives them.
 *
 * Driving is repeating turns; one thread at a time does it (`driven`). That is the pump, while it
 * runs, or else the first caller that waits. Other callers that wait meanwhile follow: they spin,
 * then sleep on `progress`, which is raised by each turn that moved something. A driver that stops
 * wakes them, and one of them drives on. So calls from several threads, with or without a pump, are
 * the same code.
 *
 * Posts go straight into the client, inside the gate, from the caller's own thread. (A ring of
 * commands to the pump would copy each step once more, and a push could not say at once how much of
 * it was taken.) While the driver sleeps the poster takes a turn itself, so that nothing waits for
 * a thread to wake up. The driver is woken in three cases only: its sleep is now too long; it is a
 * caller whose answer the poster's turn may have brought; or only a driver's turn moves the server.
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/minmax.h"
#include "drive/clock.h"
#include "drive/link_drive.h"
#include "drive/ports.h"
#include "os/forks.h"
#include "os/system.h"
#include "os/word.h"
#include "transport/transport_loopback.h"
#include "transport/url.h"

enum {
    SPIN_US_DEFAULT = 20,
    SLEEP_NS_MAX = 1000000000,
    LOOK_NS = 20000, /* posts look at the port this often */
};

uint64_t rp_link_now(struct rp_link *link) {
    const struct rp_transport *transport = rp_port_transport(link->port);
    uint64_t own = transport->now ? transport->now(link->port) : 0;
    return own ? own : rp_clock_ns();
}

uint64_t rp_link_deadline(struct rp_link *link, uint64_t timeout_ns) {
    uint64_t now = rp_link_now(link);
    return timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
}

/* ---- one turn, and waking the followers ---- */

static void wake_followers(struct rp_link *link) {
    atomic_fetch_add(&link->progress, 1);
    if (atomic_load(&link->followers)) {
        rp_word_wake(&link->progress);
    }
}

/* A server of this process that has closed never answers. Neither does a server behind a device
 * that was taken away. All requests that wait for it end at once. */
static void look_for_server(struct rp_link *link) {
    if (!link->server_closed && rp_port_transport(link->port)->lost(link->port)) {
        int is_within = link->passive || rp_port_base(link->port)->is_within;
        link->server_closed = 1;
        rp_client_end(link->client, is_within ? -RP_CLOSED : -RP_DEVICE_LOST);
        wake_followers(link);
    }
}

/* Inside the gate. Returns the datagrams that moved. A timer that was due may have ended a request,
 * so followers look again. A driver looks after each turn anyway. A due timer does not count as
 * something that moved: the driver would not wait then, and only waiting turns a loopback server.
 */
uint32_t rp_link_turn(struct rp_link *link) {
    uint64_t now = rp_link_now(link);
    link->looked_ns = now;
    link->unsent = 0;
    int due = rp_client_deadline(link->client) <= now;
    uint32_t moved = rp_client_turn(link->client, link->port, now);
    if (moved || due) {
        wake_followers(link);
    }
    if (!moved && rp_port_transport(link->port)->lost) {
        look_for_server(link);
    }
    return moved;
}

/* Over loopback a server may have no thread. So a caller that posts and never waits turns the
 * server too: without a turn of it, requests would be sent again in vain. */
static uint32_t turn_both(struct rp_link *link) {
    uint32_t moved = rp_link_turn(link);
    if (moved && rp_loopback_turn(link->port)) {
        rp_link_turn(link);
    }
    return moved;
}

/* Sends what was posted. A look at the port in vain costs as much as a send, so the port is looked
 * at only now and then: a caller that posts and never waits still gets its answers and repeats lost
 * datagrams. */
static uint32_t link_send(struct rp_link *link, int looks) {
    uint64_t now = rp_link_now(link);
    if (link->passive) {
        return turn_both(link);
    }
    if (looks && now - link->looked_ns >= LOOK_NS) {
        return rp_link_turn(link);
    }
    uint32_t sent = rp_client_send(link->client, link->port, now);
    if (sent) {
        wake_followers(link);
    }
    return sent;
}

static void posted(struct rp_link *link, int looks) {
    if (link->driven && !link->asleep_until) {
        link->unsent = 1;
        return;
    }
    uint32_t moved = link_send(link, looks);
    if (link->driven && (rp_client_deadline(link->client) < link->asleep_until
                         || (moved && (link->passive || !link->pumped)))) {
        rp_port_transport(link->port)->wake(link->port);
    }
}

void rp_link_posted(struct rp_link *link) {
    posted(link, 1);
}

void rp_link_posted_to_wait(struct rp_link *link) {
    posted(link, 0);
}

/* The thread that sets driven = 0 first sends everything that was posted before. A post leaves its
 * sending to a driver that is awake, and that driver may find its own call done without another
 * turn. */
static void stop_driving(struct rp_link *link) {
    if (link->unsent) {
        (void)link_send(link, 0);
    }
    link->driven = 0;
    wake_followers(link);
}

/* The driver, inside the gate, after a turn that moved nothing: leaves it and sleeps until
 * something arrives, a timer is due, or `until`. */
static void sleep_outside(struct rp_link *link, uint64_t now, uint64_t until) {
    uint64_t deadline = rp_client_deadline(link->client);
    until = rp_min(deadline, until);
    until = rp_max(until, now);
    link->asleep_until = until ? until : 1;
    rp_gate_step_out(&link->gate);
    rp_port_transport(link->port)->wait(link->port, until - now);
    rp_gate_step_in(&link->gate);
    link->asleep_until = 0;
}

/* ---- waiting callers ---- */

struct wait_state {
    uint64_t start;
    uint64_t timeout;
    uint64_t idle_since; /* 0: something moved at the last look */
    int leads;
};

/* A driver's first step: a look at once would be in vain where answers have not come so soon. */
static void sleep_first(struct rp_link *link, struct wait_state *state) {
    uint64_t now = rp_link_now(link);
    if (rp_client_deadline(link->client) > now) {
        state->idle_since = now;
        sleep_outside(link, now, state->start + state->timeout);
    }
}

/* A driver's step, inside the gate. */
static void lead(struct rp_link *link, struct wait_state *state) {
    int sleeps = !link->passive && !link->options.busy_poll && !rp_spin_pays(&link->spin);
    if (sleeps && !state->idle_since) {
        sleep_first(link, state);
    }
    if (rp_link_turn(link)) {
        if (state->idle_since) {
            rp_spin_learn(&link->spin, link->looked_ns - state->idle_since);
        }
        state->idle_since = 0;
        rp_gate_yield(&link->gate);
        return;
    }
    if (link->server_closed) {
        return;
    }
    if (link->options.busy_poll && !link->passive) { /* asking the time costs as much as a look */
        rp_gate_yield(&link->gate);
        rp_pump_relax();
        return;
    }
    uint64_t now = rp_link_now(link);
    state->idle_since = state->idle_since ? state->idle_since : now;
    if (!link->passive && !sleeps && now - state->idle_since < link->spin.for_ns) {
        rp_gate_yield(&link->gate);
        rp_pump_relax();
    } else {
        sleep_outside(link, now, state->start + state->timeout);
    }
}

/* Another thread drives: looks at the count of what moved for a while, then sleeps on it. */
static void follow(struct rp_link *link, struct wait_state *state) {
    uint32_t seen = atomic_load(&link->progress);
    uint64_t begin = rp_clock_ns();
    uint64_t passed = rp_link_now(link) - state->start;
    uint64_t left = passed < state->timeout ? state->timeout - passed : 0;
    uint64_t spin = rp_min(link->spin.for_ns, left);
    rp_gate_step_out(&link->gate);
    while (atomic_load(&link->progress) == seen && rp_clock_ns() - begin < spin) {
        rp_pump_relax();
    }
    atomic_fetch_add(&link->followers, 1);
    if (atomic_load(&link->progress) == seen) {
        rp_word_wait(&link->progress, seen, left);
    }
    atomic_fetch_sub(&link->followers, 1);
    rp_gate_step_in(&link->gate);
}

int rp_link_until(struct rp_link *link, rp_link_done *done, void *argument, uint64_t timeout_ns) {
    struct wait_state state = {.timeout = timeout_ns < RP_SLICE_NS ? timeout_ns : RP_SLICE_NS};
    int result = rp_gate_enter(&link->gate);
    if (result) {
        return result;
    }
    state.start = rp_link_now(link);
    result = done(link, argument);
    for (int steps = 0; result == RP_PENDING; steps++) {
        uint64_t now = state.leads && !link->passive ? link->looked_ns : rp_link_now(link);
        if (steps > 1 && now - state.start >= state.timeout) {
            break; /* not before a turn was taken behind a look at the port */
        }
        if (!state.leads && !link->driven) {
            state.leads = link->driven = 1;
        }
        (state.leads ? lead : follow)(link, &state);
        result = done(link, argument);
        if (result == RP_PENDING && (link->server_closed || rp_gate_closed(&link->gate))) {
            result = -RP_CLOSED;
        }
    }
    if (state.leads) {
        stop_driving(link);
    }
    rp_gate_leave(&link->gate);
    return result;
}

/* ---- the pump ---- */

static uint32_t pump_turn(void *owner) {
    struct rp_link *link = owner;
    if (rp_gate_enter(&link->gate)) {
        return 0; /* closing: its end is near */
    }
    uint32_t moved = rp_link_turn(link);
    rp_gate_leave(&link->gate);
    return moved;
}

/* The last turn before the sleep and the start of the sleep are one stay in the gate: so a later
 * post finds the driver asleep. */
static void pump_sleep(void *owner) {
    struct rp_link *link = owner;
    if (rp_gate_enter(&link->gate)) {
        return;
    }
    if (!rp_link_turn(link)) {
        uint64_t now = rp_link_now(link);
        sleep_outside(link, now, now + SLEEP_NS_MAX);
    }
    rp_gate_leave(&link->gate);
}

static void pump_wake(void *owner) {
    struct rp_link *link = owner;
    rp_port_transport(link->port)->wake(link->port);
}

/* A pump that spins needs a core beside those on which its caller and perhaps a server spin. */
static int has_core_to_spin(void) {
    return rp_cores() > 2;
}

/* Takes the driving over from a caller that waits: done when the pump drives. */
static int take_over(struct rp_link *link, void *argument) {
    if (rp_gate_closed(&link->gate)) {
        return -RP_CLOSED;
    }
    if (link->pumped && link->pump.state == RP_PUMP_RUNS) {
        return 0;
    }
    if (link->driven) {
        return RP_PENDING;
    }
    int status = rp_pump_start(&link->pump, argument); /* its first turn waits at the gate */
    link->driven = link->pumped = !status;
    return status;
}

int rp_link_start_pump(struct rp_link *link) {
    const struct rp_link_options *options = &link->options;
    struct rp_pump_job job = {.turn = pump_turn, .sleep = pump_sleep, .wake = pump_wake,
                              .owner = link, .spin_ns = link->spin.for_ns,
                              .busy_poll = options->busy_poll && !link->passive
                                           && has_core_to_spin(),
                              .core = options->core};
    int status = RP_PENDING;
    if (link->timed) {
        return -RP_BAD_ARGUMENT; /* a thread would pass virtual time as it pleases */
    }
    while (status == RP_PENDING) {
        status = rp_link_until(link, take_over, &job, RP_SLICE_NS);
    }
    return status;
}

/* From inside. */
static void end_pump(struct rp_link *link) {
    if (!link->pumped) {
        return;
    }
    rp_gate_step_out(&link->gate);
    rp_pump_stop(&link->pump);
    rp_gate_step_in(&link->gate);
    if (link->pumped && link->pump.state == RP_PUMP_NONE) { /* it was not started again */
        link->pumped = 0;
        stop_driving(link);
    }
}

int rp_link_stop_pump(struct rp_link *link) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        end_pump(link);
        rp_gate_leave(&link->gate);
    }
    return status;
}

/* ---- opening ---- */

static int draw_entropy(void *target, size_t size, char *error) {
    if (rp_entropy(target, size) == 0) {
        return 0;
    }
    snprintf(error, RP_ERROR_BYTES, "no random bytes from the system: %s", strerror(errno));
    return -RP_SYSTEM;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise) {
    return value ? value : otherwise;
}

static int fill_options(const struct rp_link *link, struct rp_client_options *filled, char *error) {
    const struct rp_link_options *options = &link->options;
    *filled = (struct rp_client_options){
        .mtu = rp_port_base(link->port)->mtu,
        .receive_budget = rp_port_base(link->port)->receive_budget,
        .requests_max = or_default(options->requests_max, 64),
        .messages_max = options->messages_max,
        .batch_max = or_default(options->batch_max, 4096),
        .tables_max = or_default(options->tables_max, RP_TABLES_MAX),
        .retry_us_min = or_default(options->retry_us_min, 20000),
        .retry_us_max = or_default(options->retry_us_max, RP_RETRY_US_MAX),
        .connect_timeout_ns =
            options->connect_timeout_ns ? options->connect_timeout_ns : 5000000000u,
        .seed = options->seed,
        .unacknowledged_max = options->unacknowledged_max};
    int status = draw_entropy(&filled->nonce, sizeof filled->nonce, error);
    if (!status && !filled->seed) {
        status = draw_entropy(&filled->seed, sizeof filled->seed, error);
    }
    return status;
}

/* The client's, which no forked child gets. 0 or an errno. */
static int map_memory(struct rp_link *link) {
    rp_forks_hold();
    void *memory = mmap(NULL, link->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int failed = memory == MAP_FAILED ? errno : 0;
    if (!failed) {
        rp_pages_not_for_children(memory, link->memory_bytes);
        link->memory = memory;
    }
    rp_forks_allow();
    return failed;
}

/* The time to connect in began with the opening of the port, which may have taken much of it. */
static int open_client(struct rp_link *link, const struct rp_peer *server, uint64_t began_ns,
                       char *error) {
    struct rp_client_options filled;
    int status = fill_options(link, &filled, error);
    if (status) {
        return status;
    }
    link->memory_bytes = rp_client_bytes(&filled, error);
    if (!link->memory_bytes) {
        return -RP_BAD_ARGUMENT;
    }
    int failed = map_memory(link);
    if (failed) {
        snprintf(error, RP_ERROR_BYTES, "the system refused %zu bytes for a client: %s",
                 link->memory_bytes, strerror(failed));
        return -RP_NO_MEMORY;
    }
    return rp_client_open(&link->client, link->memory, link->memory_bytes, &filled, server,
                          link->timed ? rp_link_now(link) : began_ns, error);
}

/* All but the handle. */
static void let_go(struct rp_link *link) {
    rp_forks_hold();
    rp_port_close(link->port);
    link->port = NULL;
    if (link->memory) {
        munmap(link->memory, link->memory_bytes);
        link->memory = NULL;
    }
    rp_forks_allow();
}

/* In a forked child: the parent's socket would outlive it here. A loopback port is left: its hub's
 * locks may be held for ever. */
static void leave_in_child(void *owner) {
    struct rp_link *link = owner;
    if (link->port && !rp_loopback_is(link->port)) {
        rp_port_close(link->port);
    }
    rp_pages_leave_in_child(link->memory, link->memory_bytes);
}

static void forget(struct rp_link *link) {
    rp_gate_free(&link->gate);
    free(link);
}

int rp_link_open(struct rp_link **opened, const char *url, const struct rp_link_options *options,
                 char *error) {
    struct rp_port_options wanted = {.mtu = options->mtu, .receive_bytes = options->receive_bytes,
                                     .send_bytes = options->send_bytes,
                                     .zmq = options->zmq,
                                     .timeout_ns = options->connect_timeout_ns};
    struct rp_peer server;
    struct rp_link *link = calloc(1, sizeof *link);
    uint64_t began = rp_clock_ns();
    *opened = NULL;
    if (!link) {
        snprintf(error, RP_ERROR_BYTES, "no memory for a link");
        return -RP_NO_MEMORY;
    }
    rp_gate_open(&link->gate, leave_in_child, link);
    link->options = *options;
    int status = rp_ports_open(&link->port, url, &wanted, &server, NULL, error);
    if (!status) {
        link->passive = rp_loopback_is(link->port);
        link->spin.for_ns =
            link->passive ? 0 : 1000u * (uint64_t)or_default(options->spin_us, SPIN_US_DEFAULT);
        link->timed = link->passive && rp_port_transport(link->port)->now(link->port) != 0;
        status = open_client(link, &server, began, error);
    }
    if (status) {
        let_go(link);
        forget(link);
        return status;
    }
    *opened = link;
    if (!link->passive && !options->unkept) {
        rp_link_keep(link);
    }
    return 0;
}

/* ---- closing ---- */

/* From inside, alone: sends the CLOSE, also where there is no time to wait, since a session that is
 * not closed keeps its place for long. Then drives until the server has answered, or `end`. */
static void say_close(struct rp_link *link, int ticket, uint64_t end) {
    struct wait_state state = {.start = rp_link_now(link)};
    state.timeout = end - state.start;
    if (ticket <= 0 || link->server_closed) {
        return;
    }
    (void)link_send(link, 0);
    while (!link->server_closed && rp_client_poll(link->client, ticket) == RP_PENDING
           && rp_link_now(link) < end) {
        lead(link, &state);
    }
}

/* Ends all requests first: once their callers have the answer, the memory is the callers' again. */
void rp_link_end(struct rp_link *link, uint64_t timeout_ns) {
    if (!link || rp_gate_close(&link->gate)) {
        return;
    }
    uint64_t end = rp_link_deadline(link, timeout_ns);
    int ticket = rp_client_close(link->client, UINT64_MAX);
    wake_followers(link);
    rp_port_transport(link->port)->wake(link->port);
    end_pump(link);
    rp_link_end_keeper(link);
    rp_gate_drain(&link->gate);
    say_close(link, ticket, end);
    let_go(link);
    rp_gate_leave(&link->gate);
}

/* Its threads use it until it has ended. */
void rp_link_free(struct rp_link *link) {
    rp_link_end(link, 0);
    if (link) {
        forget(link);
    }
}

void rp_link_close(struct rp_link *link, uint64_t timeout_ns) {
    rp_link_end(link, timeout_ns);
    rp_link_free(link);
}
