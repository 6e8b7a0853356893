/* A session's share of the server's time. A request of 96 bytes may ask for a batch that takes a
 * millisecond, or for 32 datagrams, an UPDATE sets hundreds of leaves, a PUSH may name steps that
 * have to be looked for in vain, a WRITER looks at every place where none is free, and the first
 * piece of a publication at every session. Who sends thousands of them at once would be served
 * first and alone, since what waits in a socket is served in its order. Two bounds, by which such
 * requests are dropped before any work is done for them:
 *
 * - Of one turn, also where nobody waits: the items of `records` + 1 of the largest batches, and as
 *   many links followed in vain. A client has at most `records` batches under way and asks for the
 *   next when one has come, so that a turn, whose requests came before its answers, brings as many
 *   and a spare one.
 * - Of time, where datagrams are left behind in the port: all that takes time so may take two
 *   thirds of it, as one debt of all sessions, added to as each turn ends:
 *
 *       debt ends = max(debt ends, turn's begin) + time taken * 3 / 2
 *
 *   Beyond SLACK_NS of debt each is allowed the mean of what all took of late, times how far the
 *   debt is from ALL_NS: 1 at SLACK_NS, 0 at ALL_NS. It has to shrink: of many that take alike half
 *   are always below the mean, and would keep the debt where nobody is let through. What is of
 *   late: half of it counts in the next window of time, a quarter in the one behind that. A place
 *   keeps all of its account, this turn's part too, when another session takes it.
 *
 *   Time in which the server's thread had no core, in the midst of a turn, is nobody's debt, and
 *   pays none.
 *
 *   What a session took is what its requests cost beyond RP_SHARE_PLAIN_NS each: a port full of
 *   plain ones is served within ALL_NS. So many that ask for little each are no debt, however busy
 *   the server is; each waits for the others' one, and dropping any would only have it sent again.
 *
 * A driver may know no better than a clock for how long its thread ran: so no debt is longer than
 * DEBT_NS when a turn ends. A burst that empties the port charges nobody, and refuses nobody: what
 * nobody else waits for is no one's loss. So requests that come fast, but are fewer than a burst,
 * may take all of the time.
 */
#include "server/share.h"

#include <assert.h>

#include "base/minmax.h"
#include "server/server_state.h"

enum {
    /* In items drawn, about: a datagram, as many of its bytes as take like one, and a step or item
     * that a PUSH stores. */
    DATAGRAM_WORK = 8,
    ITEM_BYTES = 256,
    STORED_WORK = 3,
    WINDOW_NS = 100000000,
    SLACK_NS = 5000000,
    ALL_NS = 25000000,
    DEBT_NS = 100000000,
};

/* What is left of it some windows later. */
static uint64_t halved(uint64_t value, uint64_t windows) {
    return windows < 64 ? value >> windows : 0;
}

void rp_share_begin(struct rp_server *server, int behind) {
    struct rp_shares *shares = &server->shares;
    uint64_t window = server->now_ns / WINDOW_NS;
    shares->behind = behind;
    shares->taker_count = 0;
    shares->work = shares->others = 0;
    if (shares->window != window) {
        shares->sharers_last = shares->window + 1 == window ? shares->sharers : 0;
        shares->sharers = 0;
        shares->used_ns = halved(shares->used_ns, window - shares->window);
        shares->window = window;
    }
}

/* The place's account as it is in this turn and window. 32 bits of the turn's number are enough:
 * who comes back by chance in a turn of the same number is held as in that one. */
static struct rp_account *account_now(struct rp_server *server, uint32_t session) {
    struct rp_account *account = &server->lines[session].account;
    if (account->turn != (uint32_t)server->turn) {
        account->turn = (uint32_t)server->turn;
        account->drawn = 0;
        account->work = 0;
        account->served = 0;
        account->used_ns = halved(account->used_ns, server->shares.window - account->window);
        account->window = server->shares.window;
    }
    return account;
}

/* Does it take less than the part that so long a debt, from SLACK_NS to ALL_NS, leaves it? */
static int takes_little(const struct rp_shares *shares, const struct rp_account *account,
                        uint64_t debt_ns) {
    double sharers = (double)rp_max(shares->sharers, shares->sharers_last);
    double left = (double)(ALL_NS - debt_ns) / (ALL_NS - SLACK_NS);
    return (double)account->used_ns * sharers < (double)shares->used_ns * left;
}

/* What a taker has taken of a turn in which each piece of work took so long. */
static uint64_t taken_ns(const struct rp_account *account, double each_ns) {
    uint64_t took_ns = (uint64_t)(each_ns * (double)account->work);
    uint64_t plain_ns = (uint64_t)RP_SHARE_PLAIN_NS * account->served;
    return took_ns > plain_ns ? took_ns - plain_ns : 0;
}

static int allows(const struct rp_server *server, const struct rp_account *account,
                  uint32_t items) {
    const struct rp_shares *shares = &server->shares;
    uint64_t most = (uint64_t)server->limits.batch_max * (server->limits.records + 1);
    if ((uint64_t)account->drawn + items > most) {
        return 0;
    }
    if (!shares->behind || shares->debt_end_ns <= server->now_ns + SLACK_NS) {
        return 1;
    }
    uint64_t debt_ns = shares->debt_end_ns - server->now_ns;
    return debt_ns <= ALL_NS && takes_little(shares, account, debt_ns);
}

int rp_share_allows(struct rp_server *server, uint32_t session, uint32_t items) {
    if (!server->shares.behind && items == 0) {
        return 1;
    }
    struct rp_account *account = account_now(server, session);
    int allowed = allows(server, account, items);
    account->served += (uint32_t)allowed;
    return allowed;
}

/* A turn has fewer takers: each datagram and each release may be one, and what it is paired with.
 * Who would be one more is not charged. */
_Static_assert(RP_SHARE_TAKERS >= 2 * (RP_BURST + RP_RELEASES_MAX), "there is room for all");

void rp_share_take(struct rp_server *server, uint32_t session, uint64_t work) {
    struct rp_shares *shares = &server->shares;
    if (!shares->behind || work == 0) {
        return;
    }
    struct rp_account *account = account_now(server, session);
    if (account->work == 0) {
        if (shares->taker_count == RP_SHARE_TAKERS) {
            return;
        }
        shares->takers[shares->taker_count++] = session;
    }
    account->work += work;
    shares->work += work;
}

void rp_share_drawn(struct rp_server *server, uint32_t session, uint64_t items) {
    struct rp_account *account = account_now(server, session);
    account->drawn = (uint32_t)rp_min(account->drawn + items, UINT32_MAX);
    rp_share_take(server, session, items);
}

void rp_share_sent(struct rp_server *server, uint32_t session, uint32_t datagrams) {
    rp_share_take(server, session, (uint64_t)DATAGRAM_WORK * datagrams);
}

void rp_share_came(struct rp_server *server, uint32_t bytes) {
    server->shares.others += DATAGRAM_WORK + bytes / ITEM_BYTES;
}

void rp_share_stored(struct rp_server *server, uint64_t count) {
    server->shares.others += STORED_WORK * count;
}

void rp_share_end(struct rp_server *server, uint64_t elapsed_ns, uint64_t ran_ns) {
    struct rp_shares *shares = &server->shares;
    assert(ran_ns <= elapsed_ns);
    double all = (double)(shares->work + shares->others);
    double each_ns = (double)ran_ns / rp_max(all, 1.0); /* of work */
    uint64_t taken = 0;
    for (uint32_t i = 0; i < shares->taker_count; i++) {
        struct rp_account *account = &server->lines[shares->takers[i]].account;
        uint64_t took_ns = taken_ns(account, each_ns);
        shares->sharers += account->shared != (uint32_t)shares->window + 1;
        account->shared = (uint32_t)shares->window + 1;
        account->used_ns += took_ns;
        taken += took_ns;
    }
    shares->used_ns += taken;
    if (shares->behind) {
        uint64_t from_ns = rp_max(shares->debt_end_ns, server->now_ns);
        uint64_t most_ns = server->now_ns + elapsed_ns + DEBT_NS;
        uint64_t more_ns = taken * 3 / 2 + (elapsed_ns - ran_ns); /* the core was another's: */
        shares->debt_end_ns = rp_min(from_ns + more_ns, most_ns); /* that pays nothing */
    }
}
