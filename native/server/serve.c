/* From a received datagram to its handler and from there to an answer; the handlers are in
 * serve_*.c.
 *
 * One table says of each operation which clients may ask, how large its body is, and its handler.
 * Everything a peer sent is checked before it is read: rp_packet_open sees to the headers,
 * check_body to the body's size and reserved bytes where the operation has no trailer, and the
 * handlers with a trailer call rp_serve_exact themselves.
 */
#include "server/serve.h"

#include <assert.h>
#include <string.h>

#include "base/minmax.h"

enum needs { ANYONE, SESSION, NEW_ADDRESS };

static const struct operation {
    int (*serve)(struct rp_call *call);
    uint16_t bytes;   /* of its struct, where nothing may follow it */
    uint8_t needs;    /* NEW_ADDRESS: a session, but from any address */
    uint8_t trailer;  /* 1: more may follow the struct, the handler checks the size */
    uint8_t table;    /* 1: the message header may name a table */
} operations[RP_OP_COUNT] = {
    [RP_OP_HELLO] = {rp_serve_hello, sizeof(struct rp_hello), ANYONE, 0, 0},
    [RP_OP_OPEN] = {rp_serve_open, sizeof(struct rp_open), ANYONE, 0, 0},
    [RP_OP_ECHO] = {rp_serve_echo, sizeof(struct rp_echo), NEW_ADDRESS, 0, 0},
    [RP_OP_CLOSE] = {rp_serve_close, 0, SESSION, 0, 0},
    [RP_OP_PING] = {rp_serve_ping, 0, SESSION, 0, 0},
    [RP_OP_TABLE] = {rp_serve_info, sizeof(struct rp_table_request), SESSION, 0, 1},
    [RP_OP_WRITER] = {rp_serve_writer, sizeof(struct rp_writer_request), SESSION, 0, 1},
    [RP_OP_PUSH] = {rp_serve_push, 0, SESSION, 1, 1},
    [RP_OP_SAMPLE] = {rp_serve_sample, 0, SESSION, 1, 1},
    [RP_OP_PULL] = {rp_serve_pull, sizeof(struct rp_pull), SESSION, 0, 1},
    [RP_OP_UPDATE] = {rp_serve_update, 0, SESSION, 1, 1},
    [RP_OP_PUBLISH] = {rp_serve_publish, 0, SESSION, 1, 0},
    [RP_OP_BLOB] = {rp_serve_blob, sizeof(struct rp_blob_request), SESSION, 0, 1},
    [RP_OP_STATS] = {rp_serve_stats, sizeof(struct rp_stats_request), SESSION, 0, 0},
    [RP_OP_RESET] = {rp_serve_reset, sizeof(struct rp_reset), SESSION, 0, 1},
    [RP_OP_CANCEL] = {rp_serve_cancel, sizeof(struct rp_cancel), SESSION, 0, 1},
};

/* A smaller body is dropped: so a handler need not check whether its struct is there. */
_Static_assert(sizeof(struct rp_push) <= RP_REQUEST_BODY_MIN, "a PUSH has its struct");
_Static_assert(sizeof(struct rp_sample) <= RP_REQUEST_BODY_MIN, "a SAMPLE has its struct");
_Static_assert(sizeof(struct rp_update) <= RP_REQUEST_BODY_MIN, "an UPDATE has its struct");
_Static_assert(sizeof(struct rp_publish) <= RP_REQUEST_BODY_MIN, "a PUBLISH has its struct");

/* ---- counting refusals ---- */

static const uint8_t refusal_counter[RP_STATUS_COUNT] = {
    [RP_BAD_MAGIC] = RP_COUNT_drop_magic,
    [RP_BAD_VERSION] = RP_COUNT_drop_version,
    [RP_BAD_SIZE] = RP_COUNT_drop_size,
    [RP_BAD_CHECKSUM] = RP_COUNT_drop_checksum,
    [RP_BAD_OP] = RP_COUNT_drop_op,
    [RP_BAD_RESERVED] = RP_COUNT_drop_reserved,
    [RP_BAD_COOKIE] = RP_COUNT_cookie_refused,
    [RP_UNKNOWN_SESSION] = RP_COUNT_unknown_session,
    [RP_NO_SESSION_FREE] = RP_COUNT_sessions_refused,
    [RP_ADDRESS_CHANGED] = RP_COUNT_address_changed,
    [RP_UNKNOWN_TABLE] = RP_COUNT_refused_table,
    [RP_UNKNOWN_PLAN] = RP_COUNT_refused_plan,
    [RP_STALE_EPOCH] = RP_COUNT_refused_epoch,
    [RP_NO_WRITER_FREE] = RP_COUNT_refused_writer,
    [RP_NOT_A_WRITER] = RP_COUNT_refused_writer,
    [RP_BAD_STREAM] = RP_COUNT_refused_stream,
    [RP_BAD_SEQUENCE] = RP_COUNT_refused_sequence,
    [RP_BAD_STEP] = RP_COUNT_refused_step,
    [RP_BAD_PIECE] = RP_COUNT_refused_piece,
    [RP_BAD_PRIORITY] = RP_COUNT_refused_priority,
    [RP_BATCH_TOO_LARGE] = RP_COUNT_refused_batch,
    [RP_NOTHING_DRAWABLE] = RP_COUNT_samples_empty,
    [RP_NEVER_FITS] = RP_COUNT_refused_never_fits,
    [RP_GONE] = RP_COUNT_refused_blob,
    [RP_TOO_LARGE] = RP_COUNT_refused_blob,
    [RP_BUSY] = RP_COUNT_refused_blob,
    [RP_BAD_HASH] = RP_COUNT_refused_hash,
    [RP_NO_WEIGHTS] = RP_COUNT_refused_blob,
    [RP_BAD_ARGUMENT] = RP_COUNT_refused_argument,
    [RP_WRONG_QUEUE] = RP_COUNT_wrong_queue,
    [RP_BAD_FEATURE] = RP_COUNT_refused_feature,
    [RP_ADDRESS_FULL] = RP_COUNT_refused_address,
    [RP_DISK_FULL] = RP_COUNT_refused_disk,
};

/* Those that are absent here (BLOCKED, FORGOTTEN, EARLY) are counted where they arise, by
 * operation. CLOSED ends a wait, and is counted as its release. */
void rp_serve_count_refusal(struct rp_server *server, int status) {
    assert(status < 0 && status > -RP_STATUS_COUNT);
    uint8_t counter = refusal_counter[-status];
    if (counter != 0) {
        rp_server_count(server, counter);
    }
}

int rp_serve_drop(struct rp_call *call, enum rp_counter reason) {
    rp_server_count(call->server, reason);
    rp_meter_session(&call->server->meters, call->session)->dropped++;
    return RP_SERVED;
}

/* ---- transmit room ---- */

/* Every lease is given back whole, so a small one is cheap: a turn starts with what the last one
 * used, and takes full bursts where that was too little. */
enum { LEASE_MIN = 4 };

static void lease(struct rp_turn *turn, uint32_t count) {
    turn->leased = rp_port_transport(turn->port)->tx_lease(turn->port, turn->packets, count);
    turn->used = 0;
    assert(turn->leased <= count);
}

static void flush(struct rp_turn *turn) {
    if (turn->leased == 0) {
        return;
    }
    for (uint32_t i = turn->used; i < turn->leased; i++) {
        turn->packets[i].size = 0;
    }
    rp_port_transport(turn->port)->tx_send(turn->port, turn->packets, turn->leased);
    turn->sent += turn->used;
    turn->leased = 0;
}

int rp_serve_begin(struct rp_turn *turn, struct rp_server *server, struct rp_port *port) {
    assert(rp_port_base(port)->mtu >= server->limits.mtu);
    turn->server = server;
    turn->port = port;
    turn->sent = 0;
    uint32_t count = rp_max(server->turn_sent, LEASE_MIN);
    lease(turn, rp_min(count, RP_BURST));
    return turn->leased > 0;
}

int rp_serve_refill(struct rp_turn *turn, uint32_t count) {
    assert(count <= RP_BURST);
    flush(turn);
    lease(turn, RP_BURST);
    return turn->leased >= count;
}

void rp_serve_early(struct rp_turn *turn) {
    uint64_t early = rp_port_base(turn->port)->early;
    uint32_t left = turn->leased - turn->used;
    if (early != 0 && turn->used >= early && left > 0) {
        flush(turn);
        lease(turn, left);
    }
}

void rp_serve_end(struct rp_turn *turn) {
    flush(turn);
    turn->server->turn_sent = turn->sent;
}

uint32_t rp_serve_train(const struct rp_call *call) {
    uint32_t budget = rp_session_budget(rp_serve_session(call));
    return rp_min(budget, RP_TRAIN_MAX);
}

uint32_t rp_serve_datagrams_left(const struct rp_call *call) {
    const struct rp_server *server = call->server;
    const struct rp_line *line = &server->lines[call->session];
    uint32_t most = RP_TURN_DATAGRAMS / server->turn_sessions_last;
    most = rp_max(most, RP_PULL_TRAINS * RP_TRAIN_MAX);
    uint32_t sent = line->turn == server->turn ? line->turn_sent : 0;
    return sent < most ? most - sent : 0;
}

void rp_serve_train_sent(struct rp_call *call, uint32_t count) {
    call->server->lines[call->session].turn_sent += count;
    rp_share_sent(call->server, call->session, count);
}

int rp_serve_lease_train(struct rp_call *call, uint32_t count) {
    if (!rp_share_allows(call->server, call->session, 0)) {
        return rp_serve_drop(call, RP_COUNT_drop_share);
    }
    if (count > rp_serve_datagrams_left(call) || !rp_serve_lease(call->turn, count)) {
        return rp_serve_drop(call, RP_COUNT_drop_no_room);
    }
    return 0;
}

/* ---- answers ---- */

struct rp_session *rp_serve_session(const struct rp_call *call) {
    assert(call->session != RP_NOBODY);
    return &call->server->sessions[call->session];
}

uint8_t *rp_serve_room(const struct rp_call *call) {
    assert(call->turn->used < call->turn->leased);
    return rp_packet_body(call->turn->packets[call->turn->used].data) + sizeof(struct rp_answer);
}

uint32_t rp_serve_room_bytes(const struct rp_call *call) {
    uint32_t mtu = call->session == RP_NOBODY ? RP_MTU_MIN : rp_session_mtu(rp_serve_session(call));
    return mtu - RP_ANSWER_BYTES;
}

/* Does the answer go to a session's client? Not if the sender is a stranger, names a session from a
 * new address, or sends from there an ECHO that is refused or that proves nothing. */
static int to_client(const struct rp_call *call) {
    return call->session != RP_NOBODY && call->status != RP_ADDRESS_CHANGED
           && call->status != RP_BAD_COOKIE
           && (call->message.op != (RP_OP_ECHO | RP_ANSWER)
               || rp_session_at(rp_serve_session(call), call->peer));
}

/* What an applied request earns: nothing for others than clients. */
static uint16_t grant(struct rp_call *call) {
    if (!to_client(call)) {
        return 1;
    }
    return (uint16_t)rp_credit_grant(call->server, call->session,
                                     call->server->lines[call->session].want);
}

static uint64_t next_packet(struct rp_call *call) {
    struct rp_server *server = call->server;
    if (call->session == RP_NOBODY) {
        return rp_session_random(server) >> 16;
    }
    struct rp_line *line = &server->lines[call->session];
    if (line->turn != server->turn) {
        line->turn = server->turn;
        line->turn_sent = 0;
        server->turn_sessions++;
    }
    return line->packet++;
}

void rp_serve_send(struct rp_call *call, uint32_t size) {
    struct rp_server *server = call->server;
    struct rp_turn *turn = call->turn;
    struct rp_packet *packet = &turn->packets[turn->used];
    assert(size % 8 == 0 && size <= rp_serve_room_bytes(call));
    struct rp_answer answer = {
        .incarnation = server->region->incarnation,
        .weights_version = server->weights->newest,
        .status = call->status,
        .credit = grant(call),
        .lapse_us = server->limits.lapse_ms * 1000,
    };
    memcpy(rp_packet_body(packet->data), &answer, sizeof answer);
    uint64_t connection = call->session == RP_NOBODY ? 0 : rp_serve_session(call)->connection;
    /* a client that said HELLO in another version gets its answer in that version */
    uint8_t version = call->message.op == (RP_OP_HELLO | RP_ANSWER) ? call->view.outer->version
                                                                    : RP_VERSION_MAX;
    packet->size = rp_packet_seal_as(version, packet->data, &call->message,
                                     (uint32_t)sizeof answer + size, connection,
                                     next_packet(call));
    packet->peer = *call->peer;
    int stays = to_client(call) && call->message.op != (RP_OP_CLOSE | RP_ANSWER);
    packet->session = stays ? call->session + 1 : 0;
    turn->used++;
    rp_server_count(server, RP_COUNT_datagrams_out);
    server->counters[RP_COUNT_bytes_out] += packet->size;
    if (call->session != RP_NOBODY) {
        struct rp_session_meter *meter = rp_meter_session(&server->meters, call->session);
        meter->answers++;
        meter->bytes_out += packet->size;
    }
}

/* ---- bodies ---- */

struct rp_table *rp_serve_table(const struct rp_call *call) {
    uint16_t number = call->view.message->table;
    return number < call->server->limits.table_count ? &call->server->tables[number] : NULL;
}

int rp_serve_exact(const struct rp_view *view, uint64_t need) {
    uint64_t padded = (need + 7) & ~7ull;
    padded = rp_max(padded, RP_REQUEST_BODY_MIN);
    if (view->message->size != padded) {
        return -RP_BAD_SIZE;
    }
    uint64_t sum = 0;
    uint64_t at = need;
    for (; at % 8 != 0; at++) {
        sum |= view->body[at];
    }
    for (; at < padded; at += 8) {
        uint64_t word;
        memcpy(&word, view->body + at, sizeof word);
        sum |= word;
    }
    return sum == 0 ? 0 : -RP_BAD_RESERVED;
}

static int check_body(const struct rp_view *view, const struct operation *operation) {
    if (!operation->table && view->message->table != 0) {
        return -RP_BAD_RESERVED;
    }
    return operation->trailer ? 0 : rp_serve_exact(view, operation->bytes);
}

/* ---- one datagram ---- */

void rp_serve_finish(struct rp_call *call, int result) {
    if (result < 0) {
        if (!call->counted) {
            rp_serve_count_refusal(call->server, result);
        }
        if (call->session != RP_NOBODY) {
            rp_meter_session(&call->server->meters, call->session)->refused++;
        }
        call->status = (uint16_t)-result;
        result = 0;
    }
    if (result != RP_SERVED && rp_serve_lease(call->turn, 1)) {
        rp_serve_send(call, (uint32_t)result);
    }
    if (call->paired) {
        rp_serve_pair(call);
    }
}

/* A session heard from elsewhere: nothing is applied until that address has echoed this cookie. */
static int address_changed(struct rp_call *call) {
    const struct rp_session *session = rp_serve_session(call);
    struct rp_address_changed changed = {
        .cookie = rp_cookie_of(call->server, call->peer, session->connection),
        .packet = (uint32_t)call->view.outer->packet,
    };
    memcpy(rp_serve_room(call), &changed, sizeof changed);
    call->status = RP_ADDRESS_CHANGED;
    rp_server_count(call->server, RP_COUNT_address_changed);
    return sizeof changed;
}

/* A refusal that ends or moves a session names what it refuses: a late copy ends nothing. */
static int refuse_named(struct rp_call *call, enum rp_status status, uint16_t use_port) {
    struct rp_refused refused = {
        .connection = call->view.outer->connection,
        .packet = (uint32_t)call->view.outer->packet,
        .port = use_port,
    };
    memcpy(rp_serve_room(call), &refused, sizeof refused);
    call->status = (uint16_t)status;
    rp_serve_count_refusal(call->server, -(int)status);
    return sizeof refused;
}

static inline int accept(struct rp_call *call) {
    struct rp_server *server = call->server;
    struct rp_line *line = &server->lines[call->session];
    struct rp_session_meter *meter = rp_meter_session(&server->meters, call->session);
    if (!rp_replay_accept(&line->replay, call->view.outer->packet)) {
        rp_server_count(server, RP_COUNT_drop_replayed);
        meter->dropped++;
        return RP_SERVED;
    }
    meter->requests++;
    meter->bytes_in += RP_HEADER_BYTES + call->view.message->size;
    line->heard_ns = server->now_ns;
    line->want = call->view.message->want;
    return 0;
}

int rp_serve_accept(struct rp_call *call) {
    return accept(call);
}

/* May the sender ask for this operation? 0: yes; a refusal; or an answer's size, where it has been
 * answered. */
static int identify(struct rp_call *call, const struct operation *operation) {
    const struct rp_outer *outer = call->view.outer;
    struct rp_server *server = call->server;
    if (operation->needs == ANYONE) {
        return outer->connection == 0 ? 0 : -RP_BAD_RESERVED;
    }
    call->session = rp_session_find(server, outer->connection);
    if (call->session == RP_NOBODY) {
        return refuse_named(call, RP_UNKNOWN_SESSION, 0);
    }
    if (operation->needs == NEW_ADDRESS) {
        return 0;
    }
    const struct rp_session *session = rp_serve_session(call);
    if (!rp_session_at(session, call->peer)) {
        return address_changed(call);
    }
    int result = accept(call);
    if (result != 0) {
        return result;
    }
    uint32_t size = RP_HEADER_BYTES + call->view.message->size;
    return size <= rp_session_mtu(session) ? 0 : -RP_BAD_SIZE; /* more than was agreed on */
}

/* An operation of later versions, or of none: refused inside a session, dropped outside. */
static void serve_unknown(struct rp_call *call) {
    struct rp_server *server = call->server;
    uint32_t session = rp_session_find(server, call->view.outer->connection);
    if (session == RP_NOBODY || !rp_session_at(&server->sessions[session], call->peer)) {
        rp_serve_count_refusal(server, -RP_BAD_OP);
        return;
    }
    call->session = session;
    int result = rp_serve_accept(call);
    rp_serve_finish(call, result != 0 ? result : -RP_BAD_OP);
}

static void serve_opened(struct rp_call *call) {
    const struct rp_message *message = call->view.message;
    if (!rp_op_known(message->op)) {
        serve_unknown(call);
        return;
    }
    const struct operation *operation = &operations[message->op];
    rp_meter_served(&call->server->meters, message->op);
    int result = identify(call, operation);
    if (result == 0) {
        result = check_body(&call->view, operation);
        result = result < 0 ? result : operation->serve(call);
    }
    rp_serve_finish(call, result);
}

void rp_serve_datagram(struct rp_turn *turn, const struct rp_packet *packet) {
    struct rp_server *server = turn->server;
    struct rp_call call = {
        .turn = turn, .server = server, .peer = &packet->peer, .session = RP_NOBODY};
    rp_server_count(server, RP_COUNT_datagrams_in);
    server->counters[RP_COUNT_bytes_in] += packet->size;
    int status = rp_packet_open(packet->data, packet->size, server->limits.mtu, &call.view);
    if (status < 0) {
        rp_serve_count_refusal(server, status);
    } else if (call.view.message->op & RP_ANSWER) {
        rp_server_count(server, RP_COUNT_drop_unsolicited);
    } else if (call.view.message->size < RP_REQUEST_BODY_MIN) { /* its refusal would be larger */
        rp_server_count(server, RP_COUNT_drop_size);
    } else if (!rp_serve_lease(turn, 1)) {
        rp_server_count(server, RP_COUNT_drop_no_room);
    } else {
        const struct rp_message *message = call.view.message;
        call.message = (struct rp_message){
            .op = message->op | RP_ANSWER, .table = message->table, .id = message->id,
            .want = (uint16_t)call.view.outer->packet};
        if (packet->misdirected) { /* another shard's, which alone knows its session */
            rp_serve_send(&call, (uint32_t)refuse_named(&call, RP_WRONG_QUEUE, packet->use_port));
        } else {
            serve_opened(&call);
        }
    }
}
