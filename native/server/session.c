/* Sessions: see session.h. Three kinds of datagrams are a reason to look at every session. The
 * first of a publication asks whether one pulls the weights that it would replace. An OPEN that
 * finds no place free asks whether one was silent for too long; then no other OPEN does, before
 * the next session can have been. A WRITER that finds none free asks so of those that hold one,
 * and pays for it with its session's share (share.h).
 *
 * Ids, epochs, cookies: two halves of the caller's entropy are two SipHash keys, one over a
 * counter, one over addresses. The draws' seed plays no part. The keys lie in the process's own
 * memory, in no file, and are new at attach. The ids of open sessions do lie in the region, so one
 * kept in a file must be as private as the process.
 */
#include "server/session.h"

#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "server/server_state.h"
#include "base/siphash.h"

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

/* From then on the session has been silent for too long. A server that took the region over may
 * allow less than its sessions were promised. */
static uint64_t too_long_ns(const struct rp_server *server, uint32_t index) {
    uint64_t promised_ms = server->sessions[index].idle_ms, idle_ms = server->limits.idle_ms;
    idle_ms = rp_max(promised_ms, idle_ms);
    return server->lines[index].heard_ns + idle_ms * 1000000 + 1;
}

static int idle_too_long(const struct rp_server *server, uint32_t index) {
    return server->sessions[index].connection != 0
           && server->now_ns >= too_long_ns(server, index);
}

/* ---- life ---- */

void rp_session_line(struct rp_server *server, uint32_t index) {
    /* Packet numbers rise over attaches too, or a client would take the new process's answers
     * for repeats. */
    uint64_t packet = server->region->attaches << 40 | (rp_session_random(server) >> 25);
    /* The account is the place's: free places are taken last in, first out, so who closes and opens
     * has its own past back. */
    server->lines[index] = (struct rp_line){
        .account = server->lines[index].account,
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
                   uint64_t agreed) {
    struct rp_session *session = &server->sessions[index];
    struct rp_intent *intent = &server->intent;
    struct rp_once *once[] = {&session->sample, &session->update, &session->publish};
    uint64_t number;
    do {
        number = rp_session_random(server) >> RP_SESSION_INDEX_BITS;
    } while (number == 0);
    rp_intent_set(intent, &session->connection, number << RP_SESSION_INDEX_BITS | index);
    rp_intent_set(intent, &session->agreed, agreed);
    rp_intent_set(intent, &session->idle_ms, server->limits.idle_ms);
    for (uint32_t i = 0; i < sizeof once / sizeof *once; i++) {
        rp_intent_set(intent, &once[i]->newest, 0);
        rp_intent_set(intent, &once[i]->done, 0);
    }
    for (uint32_t i = 0; i < server->limits.records; i++) {
        rp_intent_set(intent, &session->record_id[i], 0);
    }
    set_peer(server, session, peer);
    rp_intent_commit(intent);
    rp_session_line(server, index);
    server->open++;
}

void rp_session_free(struct rp_server *server, uint32_t index) {
    server->lines[index].next = server->free_first;
    server->free_first = index;
}

uint32_t rp_session_open(struct rp_server *server, const struct rp_peer *peer, uint64_t host,
                         uint64_t agreed) {
    if (server->free_first == RP_NOBODY) {
        rp_session_give_up_silent(server);
    }
    uint32_t index = server->free_first;
    if (index == RP_NOBODY) {
        return RP_NOBODY;
    }
    server->free_first = server->lines[index].next;
    create(server, index, peer, agreed);
    rp_hosts_set(server, index, host);
    rp_server_count(server, RP_COUNT_sessions_opened);
    return index;
}

void rp_session_move(struct rp_server *server, uint32_t index, const struct rp_peer *peer,
                     uint64_t host) {
    set_peer(server, &server->sessions[index], peer);
    rp_intent_commit(&server->intent);
    rp_hosts_set(server, index, host);
}

/* The session goes first, since its client may come back: a writer of it that is closed in part, or
 * gone, would look like one that lost nothing, or like a table made anew. Where this is killed in
 * between, the next server closes the writers (rp_region_adopt) before it ends another session. */
void rp_session_end(struct rp_server *server, uint32_t index) {
    struct rp_session *session = &server->sessions[index];
    uint64_t connection = session->connection;
    assert(connection != 0);
    if (server->weights->session == connection) {
        rp_intent_set(&server->intent, &server->weights->session, 0);
    }
    rp_intent_set(&server->intent, &server->region->ending, connection);
    rp_intent_set(&server->intent, &session->connection, 0);
    rp_intent_commit(&server->intent);
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        int writer = rp_writer_find(&server->tables[i], connection);
        if (writer >= 0) {
            rp_writer_close(&server->tables[i], writer);
        }
    }
}

void rp_session_close(struct rp_server *server, uint32_t index) {
    rp_session_end(server, index);
    rp_wait_drop(server, index);
    rp_credit_drop(server, index);
    rp_hosts_set(server, index, 0);
    rp_session_free(server, index);
    server->open--;
}

static void expire(struct rp_server *server, uint32_t index) {
    rp_session_close(server, index);
    rp_server_count(server, RP_COUNT_sessions_expired);
}

void rp_session_expire(struct rp_server *server) {
    uint32_t looks = rp_min(server->limits.sessions_max, RP_TICK_SESSIONS);
    uint32_t count = 0;
    for (uint32_t i = 0; i < looks && count < RP_EXPIRED_MAX; i++) {
        uint32_t index = server->tick_next;
        server->tick_next = index + 1 < server->limits.sessions_max ? index + 1 : 0;
        if (idle_too_long(server, index)) {
            expire(server, index);
            count++;
        }
    }
}

void rp_session_give_up_silent(struct rp_server *server) {
    uint64_t next_ns = UINT64_MAX;
    uint32_t count = 0;
    if (!rp_server_may_give_up(server) || server->now_ns < server->silent_ns) {
        return;
    }
    for (uint32_t i = 0; i < server->limits.sessions_max && count < RP_EXPIRED_MAX; i++) {
        if (idle_too_long(server, i)) {
            expire(server, i);
            count++;
        } else if (server->sessions[i].connection != 0 && too_long_ns(server, i) < next_ns) {
            next_ns = too_long_ns(server, i);
        }
    }
    if (count < RP_EXPIRED_MAX) { /* all were looked at; a session opened now was heard now */
        uint64_t opened_ns = server->now_ns + server->limits.idle_ms * 1000000ull + 1;
        server->silent_ns = rp_min(next_ns, opened_ns);
    }
}

int rp_session_give_up_writer(struct rp_server *server, const struct rp_table *table) {
    uint32_t places = rp_server_may_give_up(server) ? rp_writer_places(table) : 0;
    for (uint32_t i = 0; i < places; i++) {
        uint32_t index = rp_session_find(server, rp_writer_session(table, i));
        if (index != RP_NOBODY && idle_too_long(server, index)) {
            expire(server, index);
            return 1;
        }
    }
    return 0;
}
