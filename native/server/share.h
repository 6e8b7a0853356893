/* What one session may take of the server's time while others wait: share.c. Volatile. */
#ifndef RP_SHARE_H
#define RP_SHARE_H

#include "protocol/wire.h"

struct rp_server;

enum {
    RP_SHARE_TAKERS = 4 * RP_BURST,
    RP_SHARE_PLAIN_NS = 5000, /* of each request's time that is nobody's account */
};

struct rp_shares { /* in struct rp_server */
    uint64_t window;       /* number of the window of time that `sharers` is of */
    uint64_t used_ns;      /* by all takers, of late */
    uint64_t debt_end_ns;  /* when what they took is paid for */
    uint64_t work;         /* of this turn's takers; 0 while not behind */
    uint64_t others;       /* work of this turn that nobody pays for */
    uint32_t behind;       /* 1: datagrams waited in the port behind this turn's */
    uint32_t sharers;      /* sessions that took in this window, and in the one before */
    uint32_t sharers_last;
    uint32_t taker_count;  /* sessions that took in this turn: they are charged as it ends */
    uint32_t takers[RP_SHARE_TAKERS];
};

/* As a turn begins. `behind`: its burst did not empty the port. */
void rp_share_begin(struct rp_server *server, int behind);
/* May the session be served at length in this turn, and so many more items be drawn for it? */
int rp_share_allows(struct rp_server *server, uint32_t session, uint32_t items);
/* It took so much work, counted in items drawn. */
void rp_share_take(struct rp_server *server, uint32_t session, uint64_t work);
/* The same, of what one turn has a bound for: items drawn, links followed in vain. */
void rp_share_drawn(struct rp_server *server, uint32_t session, uint64_t items);
void rp_share_sent(struct rp_server *server, uint32_t session, uint32_t datagrams);
/* A datagram came, of so many bytes, whatever it is; and a PUSH stored so many steps and items:
 * neither is in anybody's account, but both take a part of the turn. */
void rp_share_came(struct rp_server *server, uint32_t bytes);
void rp_share_stored(struct rp_server *server, uint64_t count);
/* The turn took so long; for `ran_ns` of that, at most, the thread ran. */
void rp_share_end(struct rp_server *server, uint64_t elapsed_ns, uint64_t ran_ns);

#endif
