/* The server's life: create, attach, and the turn.
 *
 * Create lays the region out and writes the magic last, so that a process killed inside leaves a
 * region without one. Attach changes nothing before it knows that all of the region is its own and
 * was made for this configuration; then it redoes the intent, and everything derived or volatile is
 * built as at create. A turn is at the end of this file and fits a screen.
 */
#include "server/server.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/minmax.h"
#include "server/serve.h"
#include "server/server_state.h"

static int refuse(char error[256], int status, const char *why) {
    snprintf(error, 256, "%s", why);
    return -status;
}

size_t rp_server_bytes(const struct rp_server_config *config, char error[256]) {
    struct rp_region region;
    return rp_region_layout(config, &region, error) < 0 ? 0 : region.bytes;
}

static void remember_name(struct rp_server *server, uint32_t table) {
    struct rp_table_info info;
    rp_table_info(&server->tables[table], &info);
    memcpy(server->names[table], info.name, sizeof info.name);
}

/* Those that are there, and the places of those that are not: the lowest is taken first. */
static void open_sessions(struct rp_server *server) {
    for (uint32_t i = server->limits.sessions_max; i-- > 0;) {
        if (server->sessions[i].connection != 0) {
            rp_session_line(server, i);
            server->open++;
        } else {
            rp_session_free(server, i);
        }
    }
    server->weights_piece_ns = server->now_ns;
    server->weights_end_ns = server->now_ns + rp_weights_hold_ns(server->weights->size);
}

int rp_server_create(struct rp_server **result, void *memory, size_t bytes,
                     const struct rp_server_config *config, const uint8_t entropy[32],
                     uint64_t now_ns, char error[256]) {
    struct rp_region layout;
    int status = rp_region_layout(config, &layout, error);
    if (status) {
        return status;
    }
    if (bytes < layout.bytes || (uintptr_t)memory % 64 != 0) {
        return refuse(error, RP_BAD_ARGUMENT, "the region is too small or not aligned to 64 bytes");
    }
    struct rp_region *region = memory;
    *region = layout;
    struct rp_server *server = rp_region_open(memory, entropy, now_ns);
    server->sessions_per_address = config->sessions_per_address;
    region->incarnation = rp_session_random_id(server);
    region->attaches = 1;
    for (uint32_t i = 0; i < config->table_count; i++) {
        struct rp_table_memory at = rp_region_table(memory, i);
        /* Table 0 draws by the seed itself, so that one table's draws can be repeated from the
         * seed alone. */
        status = rp_table_create(&server->tables[i], &at, &config->tables[i], i, config->seed + i,
                                 rp_session_random_id(server), rp_session_salt(server, i),
                                 rp_table_lap(&config->tables[i], i, config->first_lap),
                                 &server->intent, server->counters, error);
        if (status) {
            return status;
        }
        remember_name(server, i);
    }
    open_sessions(server);
    region->sum = rp_region_sum(region);
    rp_region_seal(memory, config);
    __atomic_store_n(&region->magic, RP_REGION_MAGIC, __ATOMIC_RELEASE);
    *result = server;
    return 0;
}

static int attach_tables(struct rp_server *server, char error[256]) {
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        struct rp_table_memory at = rp_region_table(server->region, i);
        int status = rp_table_attach(&server->tables[i], &at, i, rp_session_salt(server, i),
                                     &server->intent, server->counters, error);
        if (status) {
            return status;
        }
        remember_name(server, i);
    }
    return 0;
}

/* Would the redo leave the header a valid one? Its limits, attaches and ending may change, within
 * what its checksum allows. A copy is tested: a region that is refused is left as it was. */
static int redo_keeps_header(const struct rp_region *region, const struct rp_intent_log *log) {
    struct rp_region after;
    uint64_t words[sizeof after / 8];
    _Static_assert(sizeof after % 8 == 0, "a redo writes words");
    memcpy(words, region, sizeof after);
    for (uint64_t i = 0; i < sizeof after / 8; i++) { /* other damage is rp_intent_recover's */
        words[i] = rp_intent_redone(log, 8 * i, words[i]);
    }
    memcpy(&after, words, sizeof after);
    return after.magic == region->magic && after.sum == region->sum
           && rp_region_sum(&after) == region->sum /* which is of the version too */
           && after.bytes == region->bytes
           && memcmp(after.locals, region->locals, sizeof after.locals) == 0;
}

/* What is refused before the assembly is dropped is left as it was, but for the words of the
 * process's memory and the redo of its intent, which every attach begins with. */
static int attach(struct rp_server **result, void *memory, size_t bytes,
                  const struct rp_server_config *config, const uint8_t entropy[32],
                  uint64_t now_ns, int steps_too, char error[256]) {
    char changes[RP_COMPARE_BYTES];
    int status = rp_region_compare(memory, bytes, config, changes, error);
    if (status) {
        return status;
    }
    if (bytes < rp_server_bytes(config, error)) {
        return refuse(error, RP_BAD_REGION,
                      "the region is shorter than the one that was created: start with a new one");
    }
    status = rp_region_sealed(memory, config, error);
    if (status) {
        return status;
    }
    rp_region_own(memory, config);
    struct rp_server *server = rp_region_open(memory, entropy, now_ns);
    server->sessions_per_address = config->sessions_per_address;
    server->limits = rp_region_limits(config);
    if (!redo_keeps_header(server->region, server->intent.log)
        || rp_intent_recover(&server->intent) < 0) {
        return refuse(error, RP_BAD_REGION,
                      "the region's intent log is damaged: start with a new region");
    }
    status = attach_tables(server, error);
    status = status || !steps_too ? status : rp_server_verify_steps(server, error);
    if (status) {
        return status;
    }
    rp_server_drop_assembly(server);
    status = rp_server_verify(server, error);
    if (status) {
        return status;
    }
    memcpy(server->changes, changes, sizeof changes);
    rp_region_adopt(server, config);
    rp_intent_set(&server->intent, &server->region->attaches, server->region->attaches + 1);
    rp_intent_commit(&server->intent);
    open_sessions(server);
    *result = server;
    return 0;
}

int rp_server_attach(struct rp_server **result, void *memory, size_t bytes,
                     const struct rp_server_config *config, const uint8_t entropy[32],
                     uint64_t now_ns, char error[256]) {
    return attach(result, memory, bytes, config, entropy, now_ns, 0, error);
}

int rp_server_attach_verified(struct rp_server **result, void *memory, size_t bytes,
                              const struct rp_server_config *config, const uint8_t entropy[32],
                              uint64_t now_ns, char error[256]) {
    return attach(result, memory, bytes, config, entropy, now_ns, 1, error);
}

void rp_server_backing(struct rp_server *server, rp_allocate *allocate, void *owner) {
    server->allocate = allocate;
    server->allocator = owner;
    rp_server_back_assembly(server);
}

/* ---- facts ---- */

const uint64_t *rp_server_counters(const struct rp_server *server) {
    return server->counters;
}

uint32_t rp_server_sessions(const struct rp_server *server) {
    return server->open;
}

struct rp_table *rp_server_table(struct rp_server *server, uint32_t number) {
    assert(number < server->limits.table_count);
    return &server->tables[number];
}

uint32_t rp_server_table_count(const struct rp_server *server) {
    return server->limits.table_count;
}

uint64_t rp_server_incarnation(const struct rp_server *server) {
    return server->region->incarnation;
}

uint64_t rp_server_weights_version(const struct rp_server *server) {
    return server->weights->newest;
}

uint64_t rp_server_seed(const struct rp_server *server) {
    return server->region->seed;
}

const char *rp_server_changes(const struct rp_server *server) {
    return server->changes;
}

/* ---- the turn ---- */

static void begin_turn(struct rp_server *server, uint64_t now_ns, int behind) {
    server->now_ns = now_ns;
    server->turn++;
    server->turn_sessions_last = server->turn_sessions > 0 ? server->turn_sessions : 1;
    server->turn_sessions = 0;
    server->meters.served_count = 0;
    rp_credit_lapse(server);
    rp_share_begin(server, behind);
}

/* Tells a standstill of the server from silence of its clients. An empty burst does not prove that
 * no datagram waits: the transport may have dropped foreign ones. So datagrams that came during the
 * standstill are received for some time of turns, before a session counts as silent. A second gap
 * in that time does not prolong it: so no rhythm of turns keeps silent sessions for ever. */
static void mind_gap(struct rp_server *server, uint64_t now_ns) {
    uint64_t gap_ns = now_ns - server->turned_ns;
    uint64_t most_ns = RP_GAP_MS * 1000000ull;
    uint64_t spent_ns = rp_min(gap_ns, most_ns);
    uint32_t idle_ms = server->limits.idle_ms;
    if (server->unheard_ns > 0) {
        server->unheard_ns -= rp_min(spent_ns, server->unheard_ns);
    } else if (gap_ns > most_ns) {
        server->unheard_ns = rp_min(idle_ms, RP_HEAR_MS) * 1000000ull;
    }
    server->turned_ns = now_ns;
}

/* Timed work: sessions that were silent for too long are given up, with all that they hold. It
 * takes at most RP_TICK_SESSIONS looks and RP_EXPIRED_MAX closes. Lapsed credit was taken back as
 * the turn began. Lapsed places in queues are removed when the queues are looked at. Pins and
 * assemblies of weights end by their own time, and need no work here. */
static void tick(struct rp_server *server) {
    server->tick_ns = server->now_ns + RP_TICK_MS * 1000000ull;
    if (rp_server_may_give_up(server)) {
        rp_session_expire(server);
    }
}

/* Receives, serves and answers a burst; then does what time asks for, also where nothing came. */
static uint32_t take_turn(struct rp_turn *turn, uint64_t now_ns) {
    struct rp_server *server = turn->server;
    const struct rp_transport *transport = rp_port_transport(turn->port);
    struct rp_packet received[RP_BURST];
    uint32_t count = transport->rx_burst(turn->port, received, RP_BURST);
    int due = now_ns >= server->tick_ns;
    int work = count > 0 || due || server->left_over;
    if (work) {
        begin_turn(server, now_ns, count == RP_BURST || rp_port_base(turn->port)->left_behind);
    }
    server->counters[RP_COUNT_turns] += count > 0;
    for (uint32_t i = 0; i < count; i++) {
        rp_share_came(server, received[i].size);
        rp_serve_datagram(turn, &received[i]);
    }
    transport->rx_release(turn->port, received, count);
    if (due) {
        tick(server);
    }
    if (work) {
        rp_serve_waiting(turn);
    }
    return count == 0 && server->left_over ? 1 : count; /* 1: go on, and do not sleep */
}

uint32_t rp_server_turn(struct rp_server *server, struct rp_port *port, uint64_t now_ns) {
    struct rp_turn turn;
    mind_gap(server, now_ns);
    if (!rp_serve_begin(&turn, server, port)) {
        /* no room for a single answer: nothing is received in this turn, but timed work is done */
        if (now_ns >= server->tick_ns) {
            begin_turn(server, now_ns, 0);
            tick(server);
        }
        return 0;
    }
    uint32_t count = take_turn(&turn, now_ns);
    rp_serve_end(&turn);
    return count;
}

int rp_server_is_behind(const struct rp_server *server) {
    return (int)server->shares.behind;
}

void rp_server_end_turn(struct rp_server *server, uint64_t elapsed_ns, uint64_t ran_ns) {
    rp_share_end(server, elapsed_ns, ran_ns);
    rp_meter_turn(&server->meters, elapsed_ns);
}

void rp_server_last_turn(struct rp_server *server, struct rp_port *port, uint64_t now_ns,
                         int region_stays) {
    struct rp_turn turn;
    if (rp_serve_begin(&turn, server, port)) {
        begin_turn(server, now_ns, 0);
        rp_serve_close_waiting(&turn, region_stays);
        rp_serve_end(&turn);
    }
}
