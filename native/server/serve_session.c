/* HELLO, OPEN, ECHO, CLOSE, PING: how a session begins, moves and ends.
 *
 * HELLO costs the server no memory: its answer is a cookie over the address, and only a client that
 * echoes it from there gets a session. The same cookie, over the connection in place of a nonce,
 * moves a session to a new address.
 */
#include <string.h>

#include "base/minmax.h"
#include "server/serve.h"

static uint32_t agreed_mtu(const struct rp_server *server, uint32_t mtu) {
    return rp_min(mtu, server->limits.mtu) & ~7u;
}

static int all_zero(const uint8_t *bytes, size_t size) {
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum |= bytes[i];
    }
    return sum == 0;
}

/* Does each end have what the other insists on? */
static int features_meet(uint64_t features, uint64_t required) {
    return (required & ~(uint64_t)RP_FEATURES_SPOKEN) == 0
           && (RP_FEATURES_REQUIRED & ~features) == 0;
}

/* Whether these versions and features allow a session: RP_OK, or why not. */
static enum rp_status hello_refused(const struct rp_hello *hello) {
    if (hello->version_min > RP_VERSION_MAX || hello->version_max < RP_VERSION_MIN
        || hello->version_min > hello->version_max) {
        return RP_BAD_VERSION;
    }
    return features_meet(hello->features, hello->required) ? RP_OK : RP_BAD_FEATURE;
}

/* Both refusals say what is spoken here, in the layout of every version. */
int rp_serve_hello(struct rp_call *call) {
    const struct rp_hello *hello = (const void *)call->view.body;
    struct rp_cookie cookie = {
        .version_min = RP_VERSION_MIN,
        .version_max = RP_VERSION_MAX,
        .features = RP_FEATURES_SPOKEN,
        .required = RP_FEATURES_REQUIRED,
    };
    if (rp_version_known(call->view.outer->version)
        && !all_zero(hello->reserved, sizeof hello->reserved)) {
        return -RP_BAD_RESERVED;
    }
    call->status = (uint16_t)hello_refused(hello);
    if (call->status != RP_OK) {
        rp_serve_count_refusal(call->server, -(int)call->status);
    } else if (hello->mtu < RP_MTU_MIN || call->view.message->id == 0) {
        return -RP_BAD_ARGUMENT;
    } else {
        cookie.cookie = rp_cookie_of(call->server, call->peer, call->view.message->id);
        cookie.version = rp_min(hello->version_max, RP_VERSION_MAX);
        cookie.mtu = agreed_mtu(call->server, hello->mtu);
        rp_server_count(call->server, RP_COUNT_hellos);
    }
    memcpy(rp_serve_room(call), &cookie, sizeof cookie);
    return sizeof cookie;
}

static int opened(struct rp_call *call) {
    const struct rp_limits *limits = &call->server->limits;
    const struct rp_session *session = rp_serve_session(call);
    const struct rp_open *open = (const void *)call->view.body;
    struct rp_opened answer = {
        .session = session->connection,
        .mtu = rp_session_mtu(session),
        .idle_ms = (uint32_t)session->idle_ms,
        .batch_max = limits->batch_max,
        .records = (uint16_t)limits->records,
        .update_records = RP_UPDATE_RECORDS,
        .table_count = (uint16_t)limits->table_count,
        .train_max = RP_TRAIN_MAX,
        .weights_max = (uint32_t)limits->weights_max,
        .features = open->features & RP_FEATURES_SPOKEN,
    };
    memcpy(rp_serve_room(call), &answer, sizeof answer);
    return sizeof answer;
}

static int open_checked(const struct rp_open *open) {
    if (!rp_version_known(open->version)) {
        return -RP_BAD_VERSION;
    }
    if (!features_meet(open->features, open->required)) {
        return -RP_BAD_FEATURE;
    }
    if (open->mtu < RP_MTU_MIN || open->receive_budget == 0) {
        return -RP_BAD_ARGUMENT;
    }
    _Static_assert(offsetof(struct rp_open, key_id) + 80 == sizeof *open, "zero up to the end");
    return all_zero(open->key_id, sizeof *open - offsetof(struct rp_open, key_id))
               ? 0
               : -RP_BAD_RESERVED;
}

static int share_held(const struct rp_server *server, uint64_t host) {
    return host != 0 && rp_hosts_count(server, host) >= server->sessions_per_address;
}

/* Does this host have its whole share of sessions, none of them silent for too long? This machine
 * (0) has no bound. */
static int share_taken(struct rp_server *server, uint64_t host) {
    if (share_held(server, host)) {
        rp_session_give_up_silent(server);
    }
    return share_held(server, host);
}

/* A new session of this nonce: its index, or -status. */
static int open_new(struct rp_call *call) {
    struct rp_server *server = call->server;
    const struct rp_open *open = (const void *)call->view.body;
    uint64_t host = rp_hosts_number(server, call->turn->port, call->peer);
    if (share_taken(server, host)) {
        return -RP_ADDRESS_FULL;
    }
    uint64_t agreed = agreed_mtu(server, open->mtu) | (uint64_t)open->receive_budget << 32
                      | (uint64_t)open->version << 48;
    uint32_t index = rp_session_open(server, call->peer, host, agreed);
    if (index == RP_NOBODY) {
        return -RP_NO_SESSION_FREE;
    }
    rp_cookie_use(server, call->peer, call->view.message->id, server->sessions[index].connection);
    return (int)index;
}

/* The session that this nonce opened before; a late copy opens no other. */
static int open_again(const struct rp_call *call, uint64_t connection) {
    const struct rp_server *server = call->server;
    uint32_t index = rp_session_find(server, connection);
    int here = index != RP_NOBODY && rp_session_at(&server->sessions[index], call->peer);
    return here ? (int)index : -RP_BAD_COOKIE;
}

int rp_serve_open(struct rp_call *call) {
    struct rp_server *server = call->server;
    const struct rp_open *open = (const void *)call->view.body;
    uint64_t nonce = call->view.message->id;
    int result = open_checked(open);
    if (result < 0) {
        return result;
    }
    if (!rp_cookie_good(server, call->peer, nonce, open->cookie)) {
        return -RP_BAD_COOKIE;
    }
    uint64_t before = rp_cookie_opened(server, call->peer, nonce);
    int index = before != 0 ? open_again(call, before) : open_new(call);
    if (index < 0) {
        return index;
    }
    call->session = (uint32_t)index;
    server->lines[call->session].heard_ns = server->now_ns;
    server->lines[call->session].want = call->view.message->want;
    return opened(call);
}

int rp_serve_echo(struct rp_call *call) {
    struct rp_server *server = call->server;
    const struct rp_session *session = rp_serve_session(call);
    const struct rp_echo *echo = (const void *)call->view.body;
    if (!rp_cookie_good(server, call->peer, session->connection, echo->cookie)) {
        return -RP_BAD_COOKIE;
    }
    int result = rp_serve_accept(call);
    if (result == 0 && !rp_session_at(session, call->peer)) {
        uint64_t host = rp_hosts_number(server, call->turn->port, call->peer);
        if (host != server->lines[call->session].host && share_taken(server, host)) {
            return -RP_ADDRESS_FULL;
        }
        rp_session_move(server, call->session, call->peer, host);
    }
    return result;
}

/* The answer is sealed while the session still exists; it leaves at the end of the turn. */
int rp_serve_close(struct rp_call *call) {
    rp_serve_send(call, 0);
    rp_session_close(call->server, call->session);
    rp_server_count(call->server, RP_COUNT_sessions_closed);
    return RP_SERVED;
}

int rp_serve_ping(struct rp_call *call) {
    (void)call;
    return 0;
}
