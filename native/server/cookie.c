/* Cookies and the nonces they were used with: see cookie.h. The server's key dies with the process,
 * and every cookie with it. So the nonces that are remembered may die with it too.
 */
#include "server/cookie.h"

#include <assert.h>

#include "base/minmax.h"
#include "server/server_state.h"
#include "base/siphash.h"

static uint32_t nonces_room(uint32_t sessions_max) {
    uint32_t room = 2 * sessions_max;
    return rp_max(room, RP_COOKIE_NONCES_MIN);
}

static uint32_t place_count(uint32_t sessions_max) {
    return rp_hash_places(nonces_room(sessions_max));
}

uint64_t rp_cookies_bytes(uint32_t sessions_max) {
    return 2ull * place_count(sessions_max) * sizeof(struct rp_opened_by);
}

void rp_cookies_open(struct rp_server *server, void *memory) {
    struct rp_opened_by *places = memory;
    uint32_t count = place_count(server->limits.sessions_max);
    server->cookies = (struct rp_cookies){
        .place = {places, places + count},
        .mask = count - 1,
        .room = nonces_room(server->limits.sessions_max),
        .period = 2, /* so that no free place seems to be of this one or the one before */
        .began_ns = server->now_ns,
    };
}

/* ---- cookies ---- */

static uint64_t hash(const struct rp_server *server, const struct rp_peer *peer, uint64_t nonce,
                     uint64_t period) {
    struct {
        struct rp_peer peer;
        uint64_t nonce;
        uint64_t period;
    } text = {*peer, nonce, period};
    _Static_assert(sizeof text == sizeof(struct rp_peer) + 16, "no padding is hashed");
    return rp_siphash(server->cookie_key, &text, sizeof text);
}

/* Periods end at multiples of their length, however seldom they are looked at. */
static void pass_time(struct rp_server *server) {
    struct rp_cookies *c = &server->cookies;
    uint64_t length_ns = RP_COOKIE_PERIOD_S * 1000000000ull;
    uint64_t ended = (server->now_ns - c->began_ns) / length_ns;
    if (ended > 0) {
        c->period += ended;
        c->began_ns += ended * length_ns;
        c->count = 0;
    }
}

uint64_t rp_cookie_of(struct rp_server *server, const struct rp_peer *peer, uint64_t nonce) {
    pass_time(server);
    return hash(server, peer, nonce, server->cookies.period);
}

int rp_cookie_good(struct rp_server *server, const struct rp_peer *peer, uint64_t nonce,
                   uint64_t cookie) {
    pass_time(server);
    uint64_t period = server->cookies.period;
    return cookie == hash(server, peer, nonce, period)
           || cookie == hash(server, peer, nonce, period - 1);
}

/* ---- nonces ---- */

/* Of no period: the same as long as the server lives, and no cookie. */
static uint64_t name_of(const struct rp_server *server, const struct rp_peer *peer,
                        uint64_t nonce) {
    return hash(server, peer, nonce, 0);
}

/* The place of this name in a period, or the free one where it would be written. */
static struct rp_opened_by *place_of(const struct rp_cookies *c, uint64_t period, uint64_t name) {
    struct rp_opened_by *places = c->place[period & 1];
    uint64_t i = name & c->mask;
    while (places[i].period == period && places[i].name != name) {
        i = (i + 1) & c->mask;
    }
    return &places[i];
}

uint64_t rp_cookie_opened(const struct rp_server *server, const struct rp_peer *peer,
                          uint64_t nonce) {
    const struct rp_cookies *c = &server->cookies;
    uint64_t name = name_of(server, peer, nonce);
    for (uint64_t period = c->period; period + 1 >= c->period; period--) {
        const struct rp_opened_by *place = place_of(c, period, name);
        if (place->period == period) {
            return place->connection;
        }
    }
    return 0;
}

void rp_cookie_use(struct rp_server *server, const struct rp_peer *peer, uint64_t nonce,
                   uint64_t connection) {
    struct rp_cookies *c = &server->cookies;
    uint64_t name = name_of(server, peer, nonce);
    assert(rp_cookie_opened(server, peer, nonce) == 0 && c->count < c->room);
    *place_of(c, c->period, name) = (struct rp_opened_by){name, connection, c->period};
    if (++c->count == c->room) { /* rather than forget a nonce, the period ends now */
        c->period++;
        c->began_ns = server->now_ns;
        c->count = 0;
    }
}
