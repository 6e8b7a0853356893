/* How many sessions each other host has: kept, not counted.
 *
 * A table of hosts with linear probing, by a keyed hash, so that a stranger cannot make entries
 * collide. A host whose last session ends leaves it, and those behind it move up.
 *
 *     count == 0: this place is free; the sum of all counts == the sessions of other hosts
 *     at most sessions_max places of more than twice as many are taken: a look-up always ends
 */
#ifndef RP_HOSTS_H
#define RP_HOSTS_H

#include <stdint.h>

#include "transport/transport.h"

struct rp_server;

struct rp_host {
    uint64_t number; /* as the transport reports it */
    uint64_t count;
};

struct rp_hosts { /* volatile */
    struct rp_host *place;
    uint32_t mask;
    uint32_t counted; /* 1: the sessions that an attach found have been counted */
};

uint64_t rp_hosts_bytes(uint32_t sessions_max);
/* `memory`: that many zero bytes. */
void rp_hosts_open(struct rp_server *server, void *memory);

/* The number of the peer's host, and 0 where nothing bounds its sessions. The first call counts
 * the sessions that were there before. */
uint64_t rp_hosts_number(struct rp_server *server, struct rp_port *port,
                         const struct rp_peer *peer);
/* The sessions of this host. */
uint64_t rp_hosts_count(const struct rp_server *server, uint64_t number);
/* The session at `index` is this host's from now on; 0: of none. */
void rp_hosts_set(struct rp_server *server, uint32_t index, uint64_t number);
void rp_hosts_check(const struct rp_server *server);

#endif
