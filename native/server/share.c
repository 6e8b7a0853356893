/* A session's share of the server's time. A request of 96 bytes may ask for a batch that takes a
 * millisecond, or for 32 datagrams, and a PUSH may name steps that have to be looked for in vain.
 * Who sends thousands of them at once would be served first and alone, since what waits in a socket
 * is served in its order. Two bounds, by which such requests are dropped before any work is done
 * for them:
 *
 * - Of one turn: the items of `records` + 1 of the largest batches. A client has at most `records`
 *   of them under way and asks for the next when one has come, so that a turn, whose requests came
 *   before its answers, brings as many and a spare one.
 * - Of time, where datagrams are left behind in the port: the turn's time is charged to the
 *   sessions that it was long for, by their work, and who is in debt for more than SLACK_NS is
 *   refused until that has passed. All together take two thirds of the time, each as much as the
 *   other:
 *
 *       debt ends = max(debt ends, now) + time taken * sessions that take * 3 / 2
 *
 * A turn's time is what a clock says: the thread may have been asleep, or another's work have been
 * long. So no debt is longer than DEBT_NS. Who closes its session and opens another one has none:
 * three datagrams and two round trips are the price. A server that finds its port empty charges
 * nobody: what nobody else waits for is no one's loss.
 */
#include "server/share.h"

#include "base/minmax.h"
#include "server/server_state.h"

enum {
    DATAGRAM_WORK = 8, /* a datagram takes about as long as drawing so many items */
    WINDOW_MS = 100,   /* who took within the last one or two of these shares the time */
    SLACK_NS = 5000000,
    DEBT_NS = 100000000,
};

void rp_share_begin(struct rp_server *server, int behind) {
    struct rp_shares *shares = &server->shares;
    uint64_t window = server->now_ns / (WINDOW_MS * 1000000ull);
    shares->behind = behind;
    shares->taker_count = 0;
    shares->work = 0;
    if (shares->window != window) {
        shares->sharers_last = shares->window + 1 == window ? shares->sharers : 0;
        shares->sharers = 0;
        shares->window = window;
    }
}

/* What the line counts of this turn, from 0 where it is its first. 16 bits of the turn's number are
 * enough: who comes back by chance in a turn of the same number is held as in that one. */
static struct rp_line *line_now(struct rp_server *server, uint32_t session) {
    struct rp_line *line = &server->lines[session];
    if (line->share_turn != (uint16_t)server->turn) {
        line->share_turn = (uint16_t)server->turn;
        line->turn_drawn = 0;
        line->turn_work = 0;
    }
    return line;
}

int rp_share_allows(struct rp_server *server, uint32_t session, uint32_t items) {
    const struct rp_line *line = line_now(server, session);
    uint64_t most = (uint64_t)server->limits.batch_max * (server->limits.records + 1);
    if ((uint64_t)line->turn_drawn + items > most) {
        return 0;
    }
    return !server->shares.behind || line->debt_end_ns <= server->now_ns + SLACK_NS;
}

/* There is room for all who may take: a turn serves a burst, and releases as many. */
_Static_assert(RP_SHARE_TAKERS >= RP_BURST + RP_RELEASES_MAX + RP_BURST, "and pairs one for each");

void rp_share_take(struct rp_server *server, uint32_t session, uint64_t work) {
    struct rp_shares *shares = &server->shares;
    if (!shares->behind || work == 0) {
        return;
    }
    struct rp_line *line = line_now(server, session);
    if (line->turn_work == 0) {
        shares->takers[shares->taker_count++] = session;
    }
    line->turn_work += work;
    shares->work += work;
}

void rp_share_drawn(struct rp_server *server, uint32_t session, uint32_t items) {
    line_now(server, session)->turn_drawn += items;
    rp_share_take(server, session, items);
}

void rp_share_sent(struct rp_server *server, uint32_t session, uint32_t datagrams) {
    rp_share_take(server, session, (uint64_t)DATAGRAM_WORK * datagrams);
}

/* The session is one of those that share the time of this window. */
static void count_sharer(struct rp_shares *shares, struct rp_line *line) {
    if (line->share_window != (uint32_t)shares->window) {
        line->share_window = (uint32_t)shares->window;
        shares->sharers++;
    }
}

static void charge(const struct rp_server *server, struct rp_line *line, double took_ns) {
    const struct rp_shares *shares = &server->shares;
    uint64_t sharers = rp_max(shares->sharers, shares->sharers_last);
    double debt_ns = took_ns * (double)sharers * 3 / 2;
    uint64_t from_ns = rp_max(line->debt_end_ns, server->now_ns);
    uint64_t most_ns = server->now_ns + DEBT_NS;
    uint64_t end_ns = debt_ns < DEBT_NS ? from_ns + (uint64_t)debt_ns : most_ns;
    line->debt_end_ns = rp_min(end_ns, most_ns);
}

void rp_share_end(struct rp_server *server, uint32_t requests, uint64_t elapsed_ns) {
    struct rp_shares *shares = &server->shares;
    for (uint32_t i = 0; i < shares->taker_count; i++) {
        count_sharer(shares, &server->lines[shares->takers[i]]);
    }
    double work = (double)(shares->work + (uint64_t)DATAGRAM_WORK * requests);
    for (uint32_t i = 0; i < shares->taker_count; i++) {
        struct rp_line *line = &server->lines[shares->takers[i]];
        charge(server, line, (double)elapsed_ns * (double)line->turn_work / work);
    }
    shares->taker_count = 0;
}
