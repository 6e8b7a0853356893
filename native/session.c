/* Sessions: see session.h. Opening and closing look at every session once, which 4096 of them
 * make a matter of microseconds; everything that happens per datagram is one load and a
 * comparison.
 *
 * Ids, epochs, cookies: two halves of the caller's entropy are two SipHash keys, one over a
 * counter, one over addresses. The draws' seed plays no part. The keys lie in the volatile part
 * and are replaced at attach; a region kept in a file must therefore be as private as the
 * process.
 */
#include "session.h"

#include <assert.h>
#include <string.h>

#include "server_state.h"
#include "siphash.h"

uint64_t rp_session_random(struct rp_server *server) {
    uint64_t counter = server->drawn++;
    return rp_siphash(server->id_key, &counter, sizeof counter);
}

uint64_t rp_session_random_id(struct rp_server *server) {
    uint64_t id;
    do {
        id = rp_session_random(server);
    } while (id == 0);
    return id;
}

/* No counter of ids and no cookie's text has this length. */
uint64_t rp_session_salt(const struct rp_server *server, uint32_t table) {
    return rp_siphash(server->cookie_key, &table, sizeof table);
}

/* ---- cookies ---- */

static uint64_t cookie_of(const struct rp_server *server, const struct rp_peer *peer,
                          uint64_t nonce, uint64_t period) {
    struct {
        struct rp_peer peer;
        uint64_t nonce;
        uint64_t period;
    } text = {*peer, nonce, period};
    _Static_assert(sizeof text == sizeof(struct rp_peer) + 16, "no padding is hashed");
    return rp_siphash(server->cookie_key, &text, sizeof text);
}

static uint64_t cookie_period(const struct rp_server *server) {
    return server->now_ns / (RP_COOKIE_PERIOD_S * 1000000000ull);
}

uint64_t rp_session_cookie(const struct rp_server *server, const struct rp_peer *peer,
                           uint64_t nonce) {
    return cookie_of(server, peer, nonce, cookie_period(server));
}

int rp_session_cookie_good(const struct rp_server *server, const struct rp_peer *peer,
                           uint64_t nonce, uint64_t cookie) {
    uint64_t period = cookie_period(server);
    return cookie == cookie_of(server, peer, nonce, period)
           || (period > 0 && cookie == cookie_of(server, peer, nonce, period - 1));
}

/* ---- finding ---- */

uint32_t rp_session_find(const struct rp_server *server, uint64_t connection) {
    uint32_t index = connection & (RP_SESSIONS_MAX - 1);
    int known = connection != 0 && index < server->limits.sessions_max
                && server->sessions[index].connection == connection;
    return known ? index : RP_NOBODY;
}

int rp_session_at(const struct rp_session *session, const struct rp_peer *peer) {
    return memcmp(session->peer, peer, sizeof *peer) == 0;
}

void rp_session_peer(const struct rp_session *session, struct rp_peer *peer) {
    memcpy(peer, session->peer, sizeof *peer);
}

static uint32_t find_opened(const struct rp_server *server, const struct rp_peer *peer,
                            uint64_t nonce) {
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        const struct rp_session *session = &server->sessions[i];
        if (session->connection != 0 && session->nonce == nonce && rp_session_at(session, peer)) {
            return i;
        }
    }
    return RP_NOBODY;
}

/* The place that was freed longest ago: closed sessions are remembered as long as can be. */
static uint32_t find_free(const struct rp_server *server) {
    uint32_t found = RP_NOBODY;
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        if (server->sessions[i].connection == 0
            && (found == RP_NOBODY
                || server->lines[i].closed_ns < server->lines[found].closed_ns)) {
            found = i;
        }
    }
    return found;
}

int rp_session_closed(const struct rp_server *server, const struct rp_peer *peer, uint64_t nonce) {
    uint64_t life_ns = 2 * RP_COOKIE_PERIOD_S * 1000000000ull;
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        const struct rp_session *session = &server->sessions[i];
        const struct rp_line *line = &server->lines[i];
        if (session->connection == 0 && line->closed_ns != 0 && session->nonce == nonce
            && server->now_ns - line->closed_ns < life_ns && rp_session_at(session, peer)) {
            return 1;
        }
    }
    return 0;
}

int rp_session_over_share(const struct rp_server *server, struct rp_port *port,
                          const struct rp_peer *peer, uint64_t nonce) {
    uint64_t (*host_of)(struct rp_port *, const struct rp_peer *) =
        rp_port_transport(port)->host;
    uint32_t share = server->sessions_per_address;
    uint64_t host = host_of != NULL && share != 0 ? host_of(port, peer) : 0;
    uint32_t count = 0;
    if (host == 0 || find_opened(server, peer, nonce) != RP_NOBODY) {
        return 0;
    }
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        struct rp_peer other;
        rp_session_peer(&server->sessions[i], &other);
        count += server->sessions[i].connection != 0 && host_of(port, &other) == host;
    }
    return count >= share;
}

static int idle_too_long(const struct rp_server *server, uint32_t index) {
    uint64_t silence_ns = server->now_ns - server->lines[index].heard_ns;
    return server->sessions[index].connection != 0
           && silence_ns > (uint64_t)server->limits.idle_ms * 1000000;
}

/* ---- life ---- */

void rp_session_line(struct rp_server *server, uint32_t index) {
    /* Packet numbers rise over attaches too, or a client would take the new process's answers
     * for repeats. */
    uint64_t packet = server->region->attaches << 40 | (rp_session_random(server) >> 25);
    server->lines[index] = (struct rp_line){
        .packet = packet,
        .heard_ns = server->now_ns,
        .previous = RP_NOBODY,
        .next = RP_NOBODY,
        .want = 1,
    };
}

static void set_peer(struct rp_server *server, struct rp_session *session,
                     const struct rp_peer *peer) {
    uint64_t words[sizeof(struct rp_peer) / 8];
    memcpy(words, peer, sizeof words);
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++) {
        rp_intent_set(&server->intent, &session->peer[i], words[i]);
    }
}

static void create(struct rp_server *server, uint32_t index, const struct rp_peer *peer,
                   uint64_t nonce, uint64_t agreed) {
    struct rp_session *session = &server->sessions[index];
    struct rp_intent *intent = &server->intent;
    struct rp_once *once[] = {&session->sample, &session->update, &session->publish};
    uint64_t number;
    do {
        number = rp_session_random(server) >> RP_SESSION_INDEX_BITS;
    } while (number == 0);
    rp_intent_set(intent, &session->connection, number << RP_SESSION_INDEX_BITS | index);
    rp_intent_set(intent, &session->nonce, nonce);
    rp_intent_set(intent, &session->agreed, agreed);
    for (uint32_t i = 0; i < sizeof once / sizeof *once; i++) {
        rp_intent_set(intent, &once[i]->newest, 0);
        rp_intent_set(intent, &once[i]->done, 0);
    }
    rp_intent_set(intent, &session->sample_drawn, 0);
    for (uint32_t i = 0; i <= server->limits.records; i++) {
        rp_intent_set(intent, &session->record_id[i], 0);
    }
    set_peer(server, session, peer);
    rp_intent_commit(intent);
    rp_session_line(server, index);
    server->open++;
}

uint32_t rp_session_open(struct rp_server *server, const struct rp_peer *peer, uint64_t nonce,
                         uint64_t agreed) {
    uint32_t index = find_opened(server, peer, nonce);
    if (index != RP_NOBODY) {
        return index;
    }
    index = find_free(server);
    if (index == RP_NOBODY && rp_session_expire(server, server->limits.sessions_max) > 0) {
        index = find_free(server);
    }
    if (index == RP_NOBODY) {
        return RP_NOBODY;
    }
    create(server, index, peer, nonce, agreed);
    rp_server_count(server, RP_COUNT_sessions_opened);
    return index;
}

void rp_session_move(struct rp_server *server, uint32_t index, const struct rp_peer *peer) {
    set_peer(server, &server->sessions[index], peer);
    rp_intent_commit(&server->intent);
}

/* The writers go first: killed in between, the session is still there and is closed again. */
void rp_session_close(struct rp_server *server, uint32_t index) {
    struct rp_session *session = &server->sessions[index];
    assert(session->connection != 0);
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        int writer = rp_writer_find(&server->tables[i], session->connection);
        if (writer >= 0) {
            rp_writer_close(&server->tables[i], writer);
        }
    }
    if (server->weights->session == session->connection) {
        rp_intent_set(&server->intent, &server->weights->session, 0);
    }
    rp_intent_set(&server->intent, &session->connection, 0);
    rp_intent_commit(&server->intent);
    rp_wait_drop(server, index);
    rp_credit_drop(server, index);
    server->lines[index].closed_ns = server->now_ns;
    server->open--;
}

uint32_t rp_session_expire(struct rp_server *server, uint32_t looks) {
    uint32_t count = 0;
    if (!rp_server_may_give_up(server)) {
        return 0;
    }
    looks = looks < server->limits.sessions_max ? looks : server->limits.sessions_max;
    for (uint32_t i = 0; i < looks && count < RP_EXPIRED_MAX; i++) {
        uint32_t index = server->tick_next;
        server->tick_next = index + 1 < server->limits.sessions_max ? index + 1 : 0;
        if (idle_too_long(server, index)) {
            rp_session_close(server, index);
            rp_server_count(server, RP_COUNT_sessions_expired);
            count++;
        }
    }
    return count;
}
