/* Credit: how many full datagrams each session may have in flight, so that all together never
 * exceed what the port can take in one go.
 *
 * Every session may always have one datagram in flight. The rest (receive_budget - sessions_max) is
 * shared by the sessions that ask for more. Where the port holds fewer datagrams than there are
 * sessions, nothing is shared, and what finds no room is lost and sent again.
 *
 * A grant lapses a fixed time after it was made, so the list of grants in order of time is also in
 * order of lapsing: taking back costs one step per lapsed grant. The client counts the same time
 * from before the answer's arrival, so it stops first.
 *
 *     sum over sessions of credit == granted_sum <= receive_budget - sessions_max
 */
#include <assert.h>

#include "base/minmax.h"
#include "server/server_state.h"

static uint32_t pool_size(const struct rp_server *server) {
    return server->limits.receive_budget - server->limits.sessions_max;
}

static void unlink_grant(struct rp_server *server, uint32_t session) {
    struct rp_line *line = &server->lines[session];
    if (line->previous == RP_NOBODY) {
        server->granted_first = line->next;
    } else {
        server->lines[line->previous].next = line->next;
    }
    if (line->next == RP_NOBODY) {
        server->granted_last = line->previous;
    } else {
        server->lines[line->next].previous = line->previous;
    }
    line->granted = 0;
    server->granted_count--;
}

static void append_grant(struct rp_server *server, uint32_t session) {
    struct rp_line *line = &server->lines[session];
    line->previous = server->granted_last;
    line->next = RP_NOBODY;
    if (server->granted_last == RP_NOBODY) {
        server->granted_first = session;
    } else {
        server->lines[server->granted_last].next = session;
    }
    server->granted_last = session;
    line->granted = 1;
    server->granted_count++;
}

void rp_credit_drop(struct rp_server *server, uint32_t session) {
    struct rp_line *line = &server->lines[session];
    if (line->granted) {
        unlink_grant(server, session);
        server->granted_sum -= line->credit;
        line->credit = 0;
    }
}

void rp_credit_lapse(struct rp_server *server) {
    while (server->granted_first != RP_NOBODY
           && server->lines[server->granted_first].lapse_ns <= server->now_ns) {
        rp_credit_drop(server, server->granted_first);
    }
}

uint32_t rp_credit_grant(struct rp_server *server, uint32_t session, uint32_t want) {
    rp_credit_drop(server, session);
    if (want <= 1) {
        return 1;
    }
    uint32_t share = pool_size(server) / (server->granted_count + 1);
    /* older, larger grants may not have lapsed yet */
    uint32_t left = pool_size(server) - server->granted_sum;
    uint32_t credit = want - 1;
    credit = rp_min(credit, share);
    credit = rp_min(credit, left);
    struct rp_line *line = &server->lines[session];
    line->credit = credit;
    line->lapse_ns = server->now_ns + (uint64_t)server->limits.lapse_ms * 1000000;
    server->granted_sum += credit;
    append_grant(server, session);
    return 1 + credit;
}

void rp_credit_check(const struct rp_server *server) {
    uint32_t count = 0;
    uint32_t sum = 0;
    uint64_t lapse_ns = 0;
    uint32_t before = RP_NOBODY;
    for (uint32_t i = server->granted_first; i != RP_NOBODY; i = server->lines[i].next) {
        assert(i < server->limits.sessions_max && server->sessions[i].connection != 0);
        const struct rp_line *line = &server->lines[i];
        assert(line->granted && line->previous == before && line->lapse_ns >= lapse_ns);
        lapse_ns = line->lapse_ns;
        before = i;
        sum += line->credit;
        count++;
        assert(count <= server->limits.sessions_max);
    }
    assert(server->granted_last == before && server->granted_count == count);
    assert(server->granted_sum == sum && sum <= pool_size(server));
}
