/* Sessions: what the server remembers of one client, and how it is found, opened, moved and
 * given up.
 *
 * The persistent half (struct rp_session) lies in the region and changes by intents only; a
 * server killed and attached again answers repeats as if nothing had happened. The volatile half
 * (struct rp_line) is what one process can afford to forget: the replay window, the packet
 * counter, when the client was last heard, its credit.
 *
 *     connection == 0 (free)  or  connection mod 4096 == the session's index
 *     record_id[i]: whose batch lies in slot i of the session's records; 0: it is free
 *     what an update was answered with is kept at id mod 64, a publication's version at id mod 8,
 *     for ids no further than that below the newest of their kind
 *
 *     the places whose connection is 0 are the list that begins at free_first
 *
 * Limits: RP_SESSIONS_MAX sessions; a look-up by connection costs one load, by nonce and by host
 * one in a hash table (cookie.h, hosts.h).
 */
#ifndef RP_SESSION_H
#define RP_SESSION_H

#include <stdint.h>

#include "protocol/flow.h"
#include "server/once.h"
#include "transport/transport.h"
#include "protocol/wire.h"

struct rp_server;
struct rp_table;

enum rp_session_limits {
    RP_SESSION_INDEX_BITS = 12, /* low bits of a connection: its index */
    RP_PUBLISHED_KEPT = 8,      /* publications of a session whose versions are remembered */
    RP_NOBODY = 0xFFFFFFFF,     /* no session, no note: ends a list */
};

struct rp_update_words { /* one recorded update: status and three counts in two words */
    uint64_t applied_stale;
    uint64_t unknown_status;
};

struct rp_session { /* in the region; every word changes through the server's intent */
    uint64_t connection;
    uint64_t peer[sizeof(struct rp_peer) / 8];
    uint64_t agreed;        /* mtu | receive budget << 32 | version << 48 */
    uint64_t idle_ms;       /* as promised to the client, which chooses by it when to send a PING */
    struct rp_once sample;  /* done: drawn, withdrawn, or said to be */
    struct rp_once update;  /* done: applied, or refused for good */
    struct rp_once publish; /* taken: a piece of it was accepted; done: it became a version */
    uint64_t record_id[RP_RECORDS_MAX];
    struct rp_update_words updated[RP_UPDATE_RECORDS];
    uint64_t published[RP_PUBLISHED_KEPT];
};
_Static_assert((int)RP_UPDATE_RECORDS == (int)RP_ONCE_WINDOW,
               "every update that is known has an answer");
_Static_assert((int)RP_TOLD_OF == (int)RP_ONCE_WINDOW, "what is told of is remembered");
_Static_assert(sizeof(struct rp_peer) % 8 == 0, "a peer is stored in whole words");
_Static_assert(RP_SESSIONS_MAX == 1 << RP_SESSION_INDEX_BITS,
               "an index fits the connection's low bits");

struct rp_account { /* share.c: what a place's sessions took of the server's time */
    uint64_t window;  /* the last one it asked in, and the time it took up to then, of late */
    uint64_t used_ns;
    uint64_t work;    /* of the turn it last asked in */
    uint32_t drawn;
    uint32_t served;  /* requests that were let through */
    uint32_t turn;    /* the number of that turn */
    uint32_t shared;  /* one more than the last window it took in; 0: none */
};

struct rp_line { /* volatile: one session's, while this process lives */
    struct rp_replay replay;
    uint64_t packet;     /* of the next answer */
    uint64_t heard_ns;   /* when its last accepted datagram came */
    uint64_t host;       /* whom it counts for: hosts.h */
    uint64_t lapse_ns;   /* when the granted credit ends at the server */
    uint32_t credit;     /* granted beyond the one datagram every session has */
    uint32_t previous;   /* neighbours in the list of grants, oldest first; RP_NOBODY at its ends */
    uint32_t next;       /* of a free place: the free one behind it */
    uint32_t granted;    /* 1: in that list */
    /* the newest weights version it ever began to pull: no older one is kept for it again */
    uint64_t pull_version;
    uint64_t pull_ns;      /* when it last asked for a datagram it had not asked for before */
    uint64_t pull_end_ns;  /* the version is not kept for it beyond this time */
    uint64_t turn;       /* it was last answered in; and how many datagrams of trains it was sent */
    uint32_t turn_sent;
    uint32_t pull_next;  /* the first datagram of that version it has not asked for yet */
    uint16_t want;       /* of its last request */
    struct rp_account account;
};

static inline uint32_t rp_session_mtu(const struct rp_session *session) {
    return (uint32_t)session->agreed;
}

static inline uint32_t rp_session_budget(const struct rp_session *session) {
    return (uint32_t)(session->agreed >> 32 & 0xFFFF);
}

/* The next 64 bits for ids, epochs and packet numbers: SipHash of a counter under the entropy's
 * first half. */
uint64_t rp_session_random(struct rp_server *server);
/* The same, never 0. */
uint64_t rp_session_random_id(struct rp_server *server);
/* A number of this process for table `table`, secret like the cookies' key; it uses up no id. */
uint64_t rp_session_salt(const struct rp_server *server, uint32_t table);

/* The index of the session with this connection, or RP_NOBODY. */
uint32_t rp_session_find(const struct rp_server *server, uint64_t connection);
/* Opens one; where no place is free, silent sessions are given up first. Returns its index or
 * RP_NOBODY. */
uint32_t rp_session_open(struct rp_server *server, const struct rp_peer *peer, uint64_t host,
                         uint64_t agreed);
int rp_session_at(const struct rp_session *session, const struct rp_peer *peer);
void rp_session_peer(const struct rp_session *session, struct rp_peer *peer);
void rp_session_move(struct rp_server *server, uint32_t index, const struct rp_peer *peer,
                     uint64_t host);
/* Closes its writers, drops its notes and credit, and frees it. */
void rp_session_close(struct rp_server *server, uint32_t index);
/* The half of it that lies in the region: all that there is before the sessions are counted. */
void rp_session_end(struct rp_server *server, uint32_t index);
/* Its place is free: the next session takes it. */
void rp_session_free(struct rp_server *server, uint32_t index);
/* Looks at RP_TICK_SESSIONS sessions, from where the last call ended, and closes those that have
 * been silent longer than the server's idle_ms and longer than they were promised, RP_EXPIRED_MAX
 * at most. */
void rp_session_expire(struct rp_server *server);
/* For a newcomer that finds no place: looks at all sessions and closes those that were silent for
 * too long, RP_EXPIRED_MAX at most. The last look has found the earliest time at
 * which a session can have been silent for too long: before that, and while rp_server_may_give_up
 * says no, nothing is looked at. So a crowd of newcomers does not cost a look each. */
void rp_session_give_up_silent(struct rp_server *server);
/* For a session that finds no free writer's place in the table: closes one that holds such a place
 * and has been silent for too long. 1, or 0: there is none, or rp_server_may_give_up says no. */
int rp_session_give_up_writer(struct rp_server *server, const struct rp_table *table);
/* Its volatile half anew, at open and at attach; the account of time stays the place's. */
void rp_session_line(struct rp_server *server, uint32_t index);

#endif
