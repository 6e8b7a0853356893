/* The client's life, its turn, and where each received datagram goes: see client.h, and
 * client_state.h for the map.
 *
 * A received datagram passes these checks in order: the headers (flow.h), the session, the replay
 * window, and whether it answers a request. A datagram that fails one is dropped and counted. Only
 * an answer that was taken renews the credit.
 */
#include "client/client.h"

#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

enum {
    REPLAY_JUMP = 1 << 24, /* a server that took its region over counts from somewhere else */
    SENT_MAX = 1 << 12,    /* packets whose time of sending is kept */
};

/* ---- memory ----
 *
 * The memory laid out here is as large as the options may ever need. Its pages are touched when
 * they are first used, so an idle client is small. Nothing is read before it was written, except
 * what link_pools clears.
 */

struct carver {
    uint8_t *base; /* null: only measures */
    size_t at;
};

static void *carve(struct carver *carver, size_t count, size_t size) {
    void *memory = carver->base != NULL ? carver->base + carver->at : NULL;
    carver->at += (count * size + 63) & ~(size_t)63;
    return memory;
}

static uint32_t slots_max(const struct rp_client_options *options) {
    return rp_min(options->requests_max, CLIENT_FETCHES_MAX);
}

static uint32_t update_entries(const struct rp_client_options *options) {
    return 4 * options->batch_max;
}

/* How many packets have their time of sending kept: those of all flights, and as many repeats, but
 * no more than a window holds. */
static uint32_t sent_places(uint32_t flights_max) {
    return rp_client_places(rp_min(flights_max, SENT_MAX / 2));
}

static void carve_requests(struct rp_client *client, struct carver *carver) {
    const struct rp_client_options *options = &client->options;
    client->tickets_max = options->requests_max + 1;
    client->tickets = carve(carver, client->tickets_max, sizeof *client->tickets);
    client->slots = carve(carver, slots_max(options), sizeof *client->slots);
    client->slot_bytes = rp_client_slot_open(NULL, NULL, options->batch_max);
    client->slot_memory = carve(carver, slots_max(options), client->slot_bytes);
    struct client_updates *updates = &client->updates;
    updates->entries = carve(carver, update_entries(options), sizeof *updates->entries);
    updates->seen_places = rp_client_places(update_entries(options));
    updates->seen = carve(carver, updates->seen_places, sizeof *updates->seen);
    updates->segments = carve(carver, options->requests_max, sizeof *updates->segments);
}

/* By default as many as hold one largest step: most of them, and of memory in all, at the smallest
 * mtu that may be agreed on. */
static uint32_t messages_most(const struct rp_client_options *options) {
    return options->messages_max > 0 ? options->messages_max
                                     : rp_client_messages_default(RP_MTU_MIN);
}

/* And those that the writers' shares may take beside them. */
static uint32_t message_places(const struct rp_client_options *options) {
    return rp_client_message_places(messages_most(options));
}

static void carve_messages(struct rp_client *client, struct carver *carver) {
    const struct rp_client_options *options = &client->options;
    uint32_t mtu = options->messages_max > 0 ? options->mtu : RP_MTU_MIN;
    client->messages = carve(carver, message_places(options), sizeof *client->messages);
    client->message_memory =
        carve(carver, message_places(options), rp_client_message_bytes(mtu));
    client->scratch = carve(carver, options->mtu - RP_HEADER_BYTES, 1);
}

/* Lays everything out behind the struct; with a null base it only measures. */
static size_t lay_out(struct rp_client *client, uint8_t *base) {
    const struct rp_client_options *options = &client->options;
    struct carver carver = {base, 0};
    (void)carve(&carver, 1, sizeof *client);
    client->slots_max = slots_max(options);
    uint32_t messages = messages_most(options), runs = rp_client_runs_max(options->mtu);
    client->flights_max = messages + 4 * options->requests_max + CLIENT_UPDATES_MAX
                          + 4 * CLIENT_PIECES_MAX;
    client->heap_max = client->flights_max + 2 * options->requests_max + message_places(options)
                       + options->tables_max + 3;
    client->ledger_max =
        CLIENT_LEDGER_DATAGRAMS * rp_min(runs, CLIENT_RANGES_MAX);
    client->heap = carve(&carver, client->heap_max + 1, sizeof *client->heap);
    client->flights = carve(&carver, client->flights_max, sizeof *client->flights);
    client->credit.sent_mask = sent_places(client->flights_max) - 1;
    client->credit.sent_ns =
        carve(&carver, client->credit.sent_mask + 1, sizeof *client->credit.sent_ns);
    client->writers = carve(&carver, options->tables_max, sizeof *client->writers);
    client->streams = carve(&carver, RP_STREAMS_MAX, sizeof *client->streams);
    client->ledger = carve(&carver, client->ledger_max, sizeof *client->ledger);
    carve_requests(client, &carver);
    carve_messages(client, &carver);
    return carver.at;
}

/* ---- life ---- */

static int refuse(char error[256], const char *why) {
    size_t size = rp_min(strlen(why), 255);
    memcpy(error, why, size);
    error[size] = 0;
    return -RP_BAD_ARGUMENT;
}

static void set_default(uint32_t *option, uint32_t value) {
    *option = *option != 0 ? *option : value;
}

static int settle_options(struct rp_client_options *options, char error[256]) {
    set_default(&options->mtu, RP_MTU_DEFAULT);
    set_default(&options->receive_budget, 64);
    set_default(&options->requests_max, 64);
    set_default(&options->batch_max, 4096);
    set_default(&options->tables_max, RP_TABLES_MAX);
    set_default(&options->retry_us_min, 20000);
    set_default(&options->retry_us_max, RP_RETRY_US_MAX);
    if (options->connect_timeout_ns > UINT64_MAX / 2) { /* added to now, it is to stay later */
        options->connect_timeout_ns = UINT64_MAX / 2;
    }
    if (options->connect_timeout_ns == 0) {
        options->connect_timeout_ns = 5000 * CLIENT_MS;
    }
    if (options->mtu < RP_MTU_MIN || options->mtu > RP_MTU_MAX || options->mtu % 8 != 0) {
        return refuse(error, "mtu must be a multiple of 8 from 512 to 65504 bytes");
    }
    if (options->receive_budget > 0xFFFF) {
        options->receive_budget = 0xFFFF;
    }
    if (options->requests_max > 1024 || options->messages_max > 32768) {
        return refuse(error, "requests_max is at most 1024 and messages_max at most 32768");
    }
    if (options->batch_max > RP_BATCH_MAX || options->tables_max > RP_TABLES_MAX) {
        return refuse(error, "batch_max is at most 65536 and tables_max at most 16");
    }
    if (options->retry_us_max < options->retry_us_min || options->retry_us_max > 60000000) {
        return refuse(error, "retry_us_max lies between retry_us_min and 60 seconds");
    }
    return 0;
}

size_t rp_client_bytes(const struct rp_client_options *options, char error[256]) {
    struct rp_client measure = {.options = *options};
    return settle_options(&measure.options, error) == 0 ? lay_out(&measure, NULL) : 0;
}

static void link_pools(struct rp_client *client) {
    const struct rp_client_options *options = &client->options;
    memset(client->tickets, 0, client->tickets_max * sizeof *client->tickets);
    memset(client->writers, 0, options->tables_max * sizeof *client->writers);
    for (uint32_t i = 0; i < options->requests_max; i++) {
        client->tickets[i].next = (uint16_t)(i + 1 < options->requests_max ? i + 1 : CLIENT_NONE);
    }
    client->slot_free = CLIENT_NONE;
    client->flight_free = CLIENT_NONE;
    client->sample_first = CLIENT_NONE;
    client->publisher = CLIENT_NONE;
    for (uint32_t i = 0; i < options->tables_max; i++) {
        client->writers[i].sender =
            (struct client_sender){.kind = SENDER_WRITER, .index = (uint16_t)i};
        client->writers[i].timer =
            (struct client_timer){.kind = TIMER_WRITER, .index = (uint16_t)i};
    }
}

int rp_client_open(struct rp_client **client_out, void *memory, size_t bytes,
                   const struct rp_client_options *options, const struct rp_peer *server,
                   uint64_t now_ns, char error[256]) {
    struct rp_client_options settled = *options;
    int status = settle_options(&settled, error);
    if (status < 0) {
        return status;
    }
    if (bytes < rp_client_bytes(options, error) || (uintptr_t)memory % 64 != 0) {
        return refuse(
            error, "the block is smaller than rp_client_bytes says, or not aligned to 64 bytes");
    }
    struct rp_client *client = memory;
    memset(client, 0, sizeof *client);
    client->options = settled;
    (void)lay_out(client, memory);
    link_pools(client);
    client->now_ns = now_ns;
    client->updates.capacity = update_entries(&settled);
    client->updates.stamp = UINT32_MAX; /* the first post clears the stamps */
    client->updates.segments_max = settled.requests_max;
    client->updates.queued_max = settled.requests_max - settled.requests_max / 4;
    client->updates.sender = (struct client_sender){.kind = SENDER_UPDATES};
    rp_random_seed(&client->random, settled.seed);
    client->session.server = *server;
    client->session.packet = 1;
    client->session.rebound = 1;
    rp_client_session_begin(client);
    rp_client_update_reset(client);
    *client_out = client;
    return 0;
}

/* ---- receiving ---- */

static int header_counter(int status) {
    switch (-status) {
    case RP_BAD_MAGIC: return RP_COUNT_drop_magic;
    case RP_BAD_VERSION: return RP_COUNT_drop_version;
    case RP_BAD_CHECKSUM: return RP_COUNT_drop_checksum;
    case RP_BAD_RESERVED: return RP_COUNT_drop_reserved;
    default: return RP_COUNT_drop_size;
    }
}

/* Is it one of those that end or move a session, whatever the operation they answer? */
static int refuses_session(uint16_t status) {
    return status == RP_UNKNOWN_SESSION || status == RP_ADDRESS_CHANGED
           || status == RP_WRONG_QUEUE;
}

/* Hands an answer to its request. */
static int dispatch(struct rp_client *client, const struct rp_view *view) {
    uint8_t op = view->message->op & (uint8_t)~RP_ANSWER;
    uint16_t status = rp_client_answer_status(view);
    if (refuses_session(status)) {
        return rp_client_session_refused(client, view);
    }
    switch (op) {
    case RP_OP_HELLO:
    case RP_OP_OPEN:
    case RP_OP_ECHO: return rp_client_session_answer(client, view);
    case RP_OP_PUSH: return rp_client_push_answer(client, view);
    case RP_OP_SAMPLE: return rp_client_sample_answer(client, view);
    case RP_OP_PULL: return rp_client_pull_answer(client, view);
    case RP_OP_UPDATE: return rp_client_update_answer(client, view);
    case RP_OP_PUBLISH: return rp_client_publish_answer(client, view);
    case RP_OP_BLOB: return rp_client_blob_answer(client, view);
    case RP_OP_CANCEL: return CLIENT_TAKEN; /* whatever it says: nothing waits for it */
    default: return rp_client_request_answer(client, view);
    }
}

/* Is it of this session, and new? Refusals of a session come without one. */
static int check_session(struct rp_client *client, const struct rp_view *view) {
    struct client_session *session = &client->session;
    uint64_t connection = view->outer->connection;
    if (session->state != SESSION_OPEN) {
        uint8_t op = view->message->op & (uint8_t)~RP_ANSWER;
        return op == RP_OP_HELLO || op == RP_OP_OPEN ? CLIENT_TAKEN : -RP_COUNT_drop_unsolicited;
    }
    if (connection == 0) {
        return refuses_session(rp_client_answer_status(view)) ? CLIENT_TAKEN
                                                              : -RP_COUNT_drop_unsolicited;
    }
    if (connection != session->opened.session) {
        return -RP_COUNT_drop_unsolicited;
    }
    uint64_t packet = view->outer->packet;
    if (packet < session->replay.newest && session->replay.newest - packet > REPLAY_JUMP) {
        session->replay = (struct rp_replay){0};
    }
    return rp_replay_accept(&session->replay, packet) ? CLIENT_TAKEN : -RP_COUNT_drop_replayed;
}

static int check_answer(const struct rp_view *view) {
    if (!(view->message->op & RP_ANSWER) || !rp_op_known(view->message->op)) {
        return -RP_COUNT_drop_op;
    }
    if (view->message->size < sizeof(struct rp_answer)) {
        return -RP_COUNT_drop_size;
    }
    if (rp_client_answer_status(view) >= RP_STATUS_COUNT) {
        return -RP_COUNT_drop_reserved;
    }
    return CLIENT_TAKEN;
}

/* Whether the session has a place at the client's present address: not between a refusal that says
 * there is no place and the session's next answer. */
static void note_place(struct client_session *session, uint16_t status) {
    if (status == RP_ADDRESS_FULL || status == RP_NO_SESSION_FREE) {
        session->full = -(int32_t)status;
    } else if (session->state == SESSION_OPEN) {
        session->full = 0;
    }
}

static void receive_one(struct rp_client *client, const struct rp_packet *packet) {
    struct rp_view view;
    rp_client_count(client, RP_COUNT_datagrams_in);
    client->counters[RP_COUNT_bytes_in] += packet->size;
    int result = rp_packet_open(packet->data, packet->size, client->options.mtu, &view);
    if (result < 0) {
        rp_client_count(client, header_counter(result));
        return;
    }
    result = check_answer(&view);
    result = result > 0 ? check_session(client, &view) : result;
    result = result > 0 ? dispatch(client, &view) : result;
    assert(result != 0); /* taken, or dropped under a counter of its own */
    if (result < 0) {
        rp_client_count(client, -result);
        return;
    }
    struct rp_answer answer;
    memcpy(&answer, view.body, sizeof answer);
    if (answer.status == RP_WRONG_QUEUE) { /* another shard's: nothing of it is this session's */
        return;
    }
    client->session.moves = 0;
    note_place(&client->session, answer.status);
    rp_client_credit_echoed(client, view.message->want);
    if (client->session.state == SESSION_OPEN
        && answer.incarnation == client->session.incarnation) {
        rp_client_credit_granted(client, &answer);
        if (answer.weights_version > client->session.weights_version) {
            client->session.weights_version = answer.weights_version;
        }
    }
}

static uint32_t receive(struct rp_client *client, struct rp_port *port) {
    uint32_t count = rp_port_transport(port)->rx_burst(port, client->packets, RP_BURST);
    for (uint32_t i = 0; i < count; i++) {
        receive_one(client, &client->packets[i]);
    }
    if (count > 0) {
        rp_port_transport(port)->rx_release(port, client->packets, count);
        rp_client_count(client, RP_COUNT_turns);
    }
    if (client->session.wrong_queue) {
        rp_client_session_rebind(client, port);
    }
    return count;
}

/* ---- the turn ---- */

static void flight_lost(struct rp_client *client, uint16_t index) {
    struct client_flight *flight = &client->flights[index];
    rp_client_credit_timed_out(client, flight);
    switch (flight->kind) {
    case OWNER_TICKET:
        rp_client_ticket_lost(client, &client->tickets[flight->owner], index);
        return;
    case OWNER_MESSAGE: rp_client_message_lost(client, flight->owner); return;
    default: rp_client_update_lost(client, index);
    }
}

static void fire(struct rp_client *client, struct client_timer *timer) {
    switch (timer->kind) {
    case TIMER_FLIGHT: flight_lost(client, timer->index); return;
    case TIMER_DEADLINE:
    case TIMER_AGAIN: rp_client_ticket_timer(client, timer); return;
    case TIMER_MESSAGE: rp_client_message_timer(client, timer->index); return;
    case TIMER_WRITER: rp_client_writer_timer(client, &client->writers[timer->index]); return;
    default: rp_client_session_timer(client, timer);
    }
}

uint32_t rp_client_turn(struct rp_client *client, struct rp_port *port, uint64_t now_ns) {
    client->now_ns = now_ns;
    uint32_t received = receive(client, port);
    struct client_timer *timer;
    while ((timer = rp_client_timer_next(client)) != NULL) {
        fire(client, timer);
    }
    return received + rp_client_out_turn(client, port);
}

uint32_t rp_client_send(struct rp_client *client, struct rp_port *port, uint64_t now_ns) {
    client->now_ns = now_ns;
    return rp_client_out_turn(client, port);
}

uint64_t rp_client_deadline(const struct rp_client *client) {
    if (client->send_pending) {
        return client->now_ns;
    }
    return client->heap_count > 0 ? client->heap[1]->due_ns : UINT64_MAX;
}

/* ---- facts ---- */

int rp_client_state(const struct rp_client *client) {
    if (client->session.state == SESSION_ENDED) {
        return client->session.status;
    }
    return client->session.state == SESSION_OPEN;
}

const uint64_t *rp_client_counters(const struct rp_client *client) {
    return client->counters;
}

uint64_t rp_client_incarnation(const struct rp_client *client) {
    return client->session.incarnation;
}

uint64_t rp_client_session(const struct rp_client *client) {
    return client->session.opened.session;
}

uint64_t rp_client_weights_version(const struct rp_client *client) {
    return client->session.weights_version;
}

uint32_t rp_client_mtu(const struct rp_client *client) {
    return client->session.opened_before ? client->session.mtu : 0;
}

void rp_client_limits(const struct rp_client *client, struct rp_opened *limits) {
    *limits = client->session.opened;
}

uint16_t rp_client_answer_status(const struct rp_view *view) {
    uint16_t status;
    memcpy(&status, view->body + offsetof(struct rp_answer, status), sizeof status);
    return status;
}
