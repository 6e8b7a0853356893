/* Cookies of addresses, and the nonces that opened a session with one.
 *
 * A cookie is a keyed hash of an address, a nonce and a period; it is good in its period and the
 * next. A nonce that opened a session is remembered in its period and the next: exactly as long as
 * its cookie is good. So a nonce opens one session only, whatever became of that session, and a
 * late copy of OPEN costs a look-up. A period ends after 64 s. It ends sooner once it remembers as
 * many nonces as it has room for: then cookies end sooner too, and nothing else changes.
 *
 *     place[p & 1][i].period == p: this place is taken, in period p; else it is free
 *     count <= room, and a period has more than twice as many places: a look-up always ends
 *
 * Cost: two hashes of 48 bytes, and a few places of each period. No pass over anything.
 */
#ifndef RP_COOKIE_H
#define RP_COOKIE_H

#include <stdint.h>

#include "transport/transport.h"

struct rp_server;

enum rp_cookie_limits {
    RP_COOKIE_PERIOD_S = 64,
    RP_COOKIE_NONCES_MIN = 1024, /* a period remembers at least so many, and 2 for each session */
};

struct rp_opened_by { /* one nonce */
    uint64_t name; /* keyed hash of address and nonce */
    uint64_t connection;
    uint64_t period;
};

struct rp_cookies { /* volatile: dies with the key */
    struct rp_opened_by *place[2];
    uint32_t mask;
    uint32_t room;
    uint32_t count; /* nonces of this period */
    uint32_t reserved;
    uint64_t period;
    uint64_t began_ns;
};

uint64_t rp_cookies_bytes(uint32_t sessions_max);
/* `memory`: that many zero bytes. */
void rp_cookies_open(struct rp_server *server, void *memory);

uint64_t rp_cookie_of(struct rp_server *server, const struct rp_peer *peer, uint64_t nonce);
int rp_cookie_good(struct rp_server *server, const struct rp_peer *peer, uint64_t nonce,
                   uint64_t cookie);

/* The connection that this nonce opened from this address, or 0. */
uint64_t rp_cookie_opened(const struct rp_server *server, const struct rp_peer *peer,
                          uint64_t nonce);
/* It has opened `connection` now. */
void rp_cookie_use(struct rp_server *server, const struct rp_peer *peer, uint64_t nonce,
                   uint64_t connection);

#endif
