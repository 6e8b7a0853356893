/* The session: HELLO for a cookie, OPEN with it, ECHO from a new address, PING in silence, and
 * a new opening when the server no longer knows us.
 *
 *     HELLO -> OPENING -> OPEN -> (UNKNOWN_SESSION) -> HELLO ...          any -> ENDED
 *
 * The first opening gives up after connect_timeout_ns. Later ones go on as long as the client
 * lives: every request has its own deadline, and a restart of the server may take long. The numbers
 * of samples, updates and publications start again from 1 with each session.
 */
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

/* A nonce per attempt, so that a session that was given up is not found again. */
static uint64_t next_nonce(struct rp_client *client) {
    uint64_t mixed =
        client->options.nonce + 0x9E3779B97F4A7C15ull * client->session.reopen_count++;
    return mixed != 0 ? mixed : 1;
}

void rp_client_session_begin(struct rp_client *client) {
    struct client_session *session = &client->session;
    session->handshake.kind = TIMER_HANDSHAKE;
    session->connect.kind = TIMER_CONNECT;
    session->keepalive.kind = TIMER_KEEPALIVE;
    session->state = SESSION_HELLO;
    session->mtu = client->options.mtu;
    session->nonce = next_nonce(client);
    session->tries = 0;
    session->echoing = 0;
    session->moves = 0;
    session->due = DUE_HANDSHAKE;
    rp_client_timer_stop(client, &session->keepalive);
    if (!session->opened_before) {
        rp_client_timer_set(client, &session->connect,
                            client->now_ns + client->options.connect_timeout_ns);
    }
    client->send_pending = 1;
}

void rp_client_session_end(struct rp_client *client, int status) {
    struct client_session *session = &client->session;
    session->state = SESSION_ENDED;
    session->status = status;
    session->due = 0;
    rp_client_timer_stop(client, &session->handshake);
    rp_client_timer_stop(client, &session->connect);
    rp_client_timer_stop(client, &session->keepalive);
    for (uint32_t i = 0; i < client->tickets_max; i++) {
        struct client_ticket *ticket = &client->tickets[i];
        if (ticket->used && ticket->status == RP_PENDING) {
            rp_client_ticket_finish(client, ticket, status);
        }
    }
    for (uint32_t i = 0; i < client->options.tables_max; i++) {
        rp_client_writer_end(client, &client->writers[i], status);
    }
    rp_client_update_reset(client);
}

/* ---- sending ---- */

static void send_hello(struct rp_client *client) {
    struct rp_hello hello = {
        .version_min = RP_VERSION_MIN,
        .version_max = RP_VERSION_MAX,
        .mtu = client->options.mtu,
        .features = RP_FEATURES_SPOKEN,
        .required = RP_FEATURES_REQUIRED,
    };
    memcpy(rp_client_out_body(client), &hello, sizeof hello);
    rp_client_out_seal(client, RP_OP_HELLO, 0, client->session.nonce, sizeof hello);
}

static void send_open(struct rp_client *client) {
    struct client_session *session = &client->session;
    struct rp_open open = {.cookie = session->cookie,
                           .features = RP_FEATURES_SPOKEN,
                           .required = RP_FEATURES_REQUIRED,
                           .mtu = session->mtu,
                           .version = session->version,
                           .receive_budget = (uint16_t)client->options.receive_budget};
    memcpy(rp_client_out_body(client), &open, sizeof open);
    rp_client_out_seal(client, RP_OP_OPEN, 0, session->nonce, sizeof open);
}

void rp_client_session_send(struct rp_client *client, uint8_t due) {
    struct client_session *session = &client->session;
    if (due == DUE_PING) {
        if (session->state == SESSION_OPEN) {
            (void)rp_client_out_body(client);
            rp_client_out_seal(client, RP_OP_PING, 0, session->ping_id, 0);
        }
        return;
    }
    if (due == DUE_ECHO) {
        struct rp_echo echo = {.cookie = session->echo_cookie};
        memcpy(rp_client_out_body(client), &echo, sizeof echo);
        rp_client_out_seal(client, RP_OP_ECHO, 0, session->echo_id, sizeof echo);
    } else if (session->state == SESSION_HELLO) {
        send_hello(client);
    } else if (session->state == SESSION_OPENING) {
        send_open(client);
    }
    rp_client_timer_set(client, &session->handshake,
                        client->now_ns + rp_client_credit_timeout(client, session->tries));
    if (session->tries > 0) {
        rp_client_count(client, RP_COUNT_retransmissions);
    }
    session->tries += session->tries < 32;
}

/* ---- timers ---- */

/* A third of the idle time in silence: PING, and again, sooner, while it is not answered. */
static void keep_alive(struct rp_client *client) {
    struct client_session *session = &client->session;
    uint64_t quiet = session->keepalive_ns;
    if (session->ping_tries == 0 && client->now_ns - session->last_sent_ns < quiet) {
        rp_client_timer_set(client, &session->keepalive, session->last_sent_ns + quiet);
        return;
    }
    if (session->ping_tries == 0) {
        session->ping_id = rp_client_id(client, CLIENT_NONE);
    }
    session->due |= DUE_PING;
    uint64_t wait = rp_client_credit_timeout(client, session->ping_tries);
    session->ping_tries += session->ping_tries < 32;
    rp_client_timer_set(client, &session->keepalive,
                        client->now_ns + rp_min(wait, quiet));
}

void rp_client_session_timer(struct rp_client *client, struct client_timer *timer) {
    struct client_session *session = &client->session;
    if (timer->kind == TIMER_CONNECT) {
        rp_client_count(client, RP_COUNT_timeouts);
        rp_client_session_end(client, -RP_TIMEOUT);
    } else if (timer->kind == TIMER_HANDSHAKE) {
        session->due |= session->echoing ? DUE_ECHO : DUE_HANDSHAKE;
    } else {
        keep_alive(client);
    }
}

/* ---- answers ---- */

static int hello_answered(struct rp_client *client, const struct rp_view *view) {
    struct client_session *session = &client->session;
    uint16_t status = rp_client_answer_status(view);
    struct rp_cookie cookie;
    if (session->state != SESSION_HELLO || view->message->id != session->nonce
        || view->outer->connection != 0) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (status == RP_BAD_VERSION || status == RP_BAD_FEATURE) {
        rp_client_session_end(client, -(int)status);
        return CLIENT_TAKEN;
    }
    if (status != RP_OK) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (view->message->size != sizeof(struct rp_answer) + sizeof cookie) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&cookie, view->body + sizeof(struct rp_answer), sizeof cookie);
    if (!rp_version_known(cookie.version) || cookie.mtu < RP_MTU_MIN
        || cookie.mtu > client->options.mtu || cookie.mtu % 8 != 0) {
        return -RP_COUNT_drop_reserved;
    }
    if ((RP_FEATURES_REQUIRED & ~cookie.features) | (cookie.required & ~RP_FEATURES_SPOKEN)) {
        rp_client_session_end(client, -RP_BAD_FEATURE);
        return CLIENT_TAKEN;
    }
    session->cookie = cookie.cookie;
    session->mtu = cookie.mtu;
    session->version = cookie.version;
    session->state = SESSION_OPENING;
    session->tries = 0;
    session->due = DUE_HANDSHAKE;
    return CLIENT_TAKEN;
}

static int opened_valid(const struct rp_client *client, const struct rp_opened *opened) {
    return opened->session != 0 && opened->mtu >= RP_MTU_MIN && opened->mtu <= client->session.mtu
           && opened->mtu % 8 == 0 && opened->idle_ms > 0 && opened->batch_max > 0
           && opened->batch_max <= RP_BATCH_MAX && opened->records > 0
           && opened->records <= RP_RECORDS_MAX && opened->update_records >= CLIENT_UPDATES_MAX
           && opened->table_count <= RP_TABLES_MAX && opened->train_max > 0
           && opened->weights_max <= RP_BLOB_BYTES_MAX
           && (opened->features & RP_FEATURES_REQUIRED) == RP_FEATURES_REQUIRED;
}

static void opened_now(struct rp_client *client, const struct rp_opened *opened,
                       uint64_t incarnation) {
    struct client_session *session = &client->session;
    session->state = SESSION_OPEN;
    session->opened = *opened;
    session->mtu = opened->mtu;
    session->incarnation = incarnation;
    session->replay = (struct rp_replay){0};
    session->weights_version = 0;
    session->ping_tries = 0;
    session->keepalive_ns = opened->idle_ms * CLIENT_MS / 3;
    session->opened_before = 1;
    client->sample_id = 0;
    client->untold = 0;
    client->publish_id = 0;
    client->cancel_count = 0;
    rp_client_timer_stop(client, &session->handshake);
    rp_client_timer_stop(client, &session->connect);
    rp_client_timer_set(client, &session->keepalive, client->now_ns); /* finds when, by itself */
    rp_client_credit_init(client);
    rp_client_messages_begin(client);
}

static int open_answered(struct rp_client *client, const struct rp_view *view) {
    struct client_session *session = &client->session;
    uint16_t status = rp_client_answer_status(view);
    struct rp_answer answer;
    struct rp_opened opened;
    if (session->state != SESSION_OPENING || view->message->id != session->nonce) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (status == RP_BAD_COOKIE) { /* it took too long: a cookie lives two minutes */
        session->state = SESSION_HELLO;
        session->nonce = next_nonce(client); /* or a session with this one was closed already */
        session->due = DUE_HANDSHAKE;
        return CLIENT_TAKEN;
    }
    int full = status == RP_NO_SESSION_FREE || status == RP_ADDRESS_FULL;
    if (full && session->opened_before) { /* another session may expire */
        session->state = SESSION_HELLO;
        rp_client_timer_set(client, &session->handshake, client->now_ns + CLIENT_REASK_NS);
        return CLIENT_TAKEN;
    }
    if (status != RP_OK) {
        rp_client_session_end(client, -(int)status);
        return CLIENT_TAKEN;
    }
    if (view->message->size != sizeof answer + sizeof opened) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&answer, view->body, sizeof answer);
    memcpy(&opened, view->body + sizeof answer, sizeof opened);
    if (!opened_valid(client, &opened) || view->outer->connection != opened.session) {
        return -RP_COUNT_drop_reserved;
    }
    opened_now(client, &opened, answer.incarnation);
    (void)rp_replay_accept(&session->replay, view->outer->packet);
    return CLIENT_TAKEN;
}

static void repeat_flights(struct rp_client *client) {
    for (uint32_t i = 0; i < client->flights_used; i++) {
        if (client->flights[i].used) {
            rp_client_timer_set(client, &client->flights[i].timer, client->now_ns);
        }
    }
}

/* Our new address was echoed: everything that was refused is due again now. */
static int echo_answered(struct rp_client *client, const struct rp_view *view) {
    struct client_session *session = &client->session;
    if (!session->echoing || view->message->id != session->echo_id) {
        return -RP_COUNT_drop_unsolicited;
    }
    uint16_t status = rp_client_answer_status(view);
    session->echoing = 0;
    session->due &= (uint8_t)~DUE_ECHO;
    rp_client_timer_stop(client, &session->handshake);
    if (status == RP_OK) {
        repeat_flights(client);
    }
    return CLIENT_TAKEN;
}

int rp_client_session_answer(struct rp_client *client, const struct rp_view *view) {
    switch (view->message->op & ~RP_ANSWER) {
    case RP_OP_HELLO: return hello_answered(client, view);
    case RP_OP_OPEN: return open_answered(client, view);
    default: return echo_answered(client, view);
    }
}

/* Is it a datagram of ours that left from the present port? The low half of its number decides. */
static int sent_by_us(const struct client_session *session, uint32_t packet) {
    uint32_t age = (uint32_t)session->packet - packet;
    return age != 0 && age <= session->packet - session->rebound;
}

/* ADDRESS_CHANGED, which names a datagram of ours: its cookie is echoed, one at a time. */
static int moved(struct rp_client *client, const struct rp_view *view) {
    struct client_session *session = &client->session;
    struct rp_address_changed changed;
    if (view->message->size != sizeof(struct rp_answer) + sizeof changed) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&changed, view->body + sizeof(struct rp_answer), sizeof changed);
    if (changed.reserved != 0) {
        return -RP_COUNT_drop_reserved;
    }
    if (view->outer->connection == 0 || !sent_by_us(session, changed.packet)) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (!session->echoing) {
        session->echoing = 1;
        session->echo_cookie = changed.cookie;
        session->echo_id = rp_client_id(client, CLIENT_NONE);
        session->tries = 0;
        session->due |= DUE_ECHO;
    }
    return CLIENT_TAKEN;
}

/* The server does not know this session: a new one. Requests that change nothing go on in it. */
static void session_lost(struct rp_client *client, uint64_t incarnation) {
    int status =
        incarnation == client->session.incarnation ? -RP_SESSION_EXPIRED : -RP_SERVER_RESTARTED;
    rp_client_count(client, RP_COUNT_reconnects);
    for (uint32_t i = 0; i < client->options.tables_max; i++) {
        rp_client_writer_end(client, &client->writers[i], status);
    }
    for (uint32_t i = 0; i < client->tickets_max; i++) {
        struct client_ticket *ticket = &client->tickets[i];
        if (ticket->used && ticket->status == RP_PENDING) {
            rp_client_ticket_reopened(client, ticket, status);
        }
    }
    rp_client_update_reset(client);
    if (client->closing) {
        rp_client_session_end(client, -RP_CLOSED);
    } else {
        rp_client_session_begin(client);
    }
}

/* UNKNOWN_SESSION or WRONG_QUEUE: it names a datagram of ours, of this session and sent from the
 * present port. Only a host that saw that datagram can name it. */
static int refused(struct rp_client *client, const struct rp_view *view) {
    struct client_session *session = &client->session;
    struct rp_answer answer;
    struct rp_refused named;
    int opening = session->state == SESSION_HELLO || session->state == SESSION_OPENING;
    if (view->message->size != sizeof answer + sizeof named) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&answer, view->body, sizeof answer);
    memcpy(&named, view->body + sizeof answer, sizeof named);
    if (!sent_by_us(session, named.packet) || view->outer->connection != 0
        || session->state == SESSION_ENDED
        || named.connection != (opening ? 0 : session->opened.session)
        || (opening && (view->message->id != session->nonce
                        || answer.status == RP_UNKNOWN_SESSION))) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (named.reserved != 0) {
        return -RP_COUNT_drop_reserved;
    }
    if (answer.status == RP_UNKNOWN_SESSION) {
        session_lost(client, answer.incarnation);
    } else {
        session->wrong_queue = 1;
        session->local_port = named.port;
    }
    return CLIENT_TAKEN;
}

int rp_client_session_refused(struct rp_client *client, const struct rp_view *view) {
    return rp_client_answer_status(view) == RP_ADDRESS_CHANGED ? moved(client, view)
                                                               : refused(client, view);
}

/* If the named port cannot be had, the next datagram leaves from the present one, and its answer
 * names another port. */
void rp_client_session_rebind(struct rp_client *client, struct rp_port *port) {
    struct client_session *session = &client->session;
    const struct rp_transport *transport = rp_port_transport(port);
    session->wrong_queue = 0;
    if (session->state == SESSION_ENDED) {
        return;
    }
    if (transport->rebind == NULL || ++session->moves > CLIENT_MOVES_MAX) {
        rp_client_session_end(client, -RP_WRONG_QUEUE);
        return;
    }
    if (transport->rebind(port, session->local_port) == 0) {
        rp_client_count(client, RP_COUNT_rebinds);
    }
    session->rebound = session->packet;
    if (session->state != SESSION_OPEN) {
        session->tries = 0;
        session->due = DUE_HANDSHAKE;
    } else if (session->echoing) {
        session->tries = 0;
        session->due |= DUE_ECHO;
    } else if (session->ping_tries > 0) {
        session->due |= DUE_PING;
    }
    repeat_flights(client);
}

void rp_client_end(struct rp_client *client, int status) {
    rp_client_session_end(client, status);
}
