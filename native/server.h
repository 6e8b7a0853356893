/* The server's state machine: datagrams and the time in, datagrams out. It keeps no timers and
 * retransmits nothing.
 *
 * The caller owns the region (64-byte aligned, zeroed for create) and the port. Region:
 *     header (magic, version, layout hash, incarnation) | intent log | tables | sessions |
 *     sample records | weights versions and assembly | volatile part
 * The volatile part (this struct, replay windows, credit, notes of the waiting) is rebuilt at
 * attach; everything else survives the process.
 */
#ifndef RP_SERVER_H
#define RP_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "meter.h"
#include "status.h"
#include "transport.h"

struct rp_server;
struct rp_table;

/* Region bytes for this config; 0 with a sentence in error where it is impossible. */
size_t rp_server_bytes(const struct rp_server_config *config, char error[256]);
/* `entropy`: 32 bytes from the operating system (the simulator's from its seed); incarnation,
 * session ids, cookies and table epochs come from it. Returns 0 or -status with error; *server
 * points into the region. */
int rp_server_create(struct rp_server **server, void *region, size_t bytes,
                     const struct rp_server_config *config,
                     const uint8_t entropy[32], uint64_t now_ns, char error[256]);
/* Takes over a region a dead server left: redoes its intent, checks it, rebuilds what is
 * derived. Incarnation, epochs, sessions, windows and records are as they were; credit and notes
 * start anew. */
int rp_server_attach(struct rp_server **server, void *region, size_t bytes,
                     const uint8_t entropy[32], uint64_t now_ns, char error[256]);
/* One turn: receives a burst, applies and answers each datagram, sends. Returns datagrams
 * received. */
uint32_t rp_server_turn(struct rp_server *server, struct rp_port *port, uint64_t now_ns);
/* How long the last turn that received something took, transmission included: for the times of its
 * requests. */
void rp_server_took(struct rp_server *server, uint64_t elapsed_ns);
/* Everything measured so far, as of now_ns; what its port tells (dropped_in,
 * dropped_out, facts) is left as it is. */
void rp_server_measure(const struct rp_server *server, uint64_t now_ns, struct rp_measures *told);
const uint64_t *rp_server_counters(const struct rp_server *server); /* RP_COUNTER_COUNT numbers */
uint32_t rp_server_sessions(const struct rp_server *server);       /* open now */
/* for tests and in-process readers */
struct rp_table *rp_server_table(struct rp_server *server, uint32_t number);
uint32_t rp_server_table_count(const struct rp_server *server);
uint64_t rp_server_incarnation(const struct rp_server *server);
uint64_t rp_server_weights_version(const struct rp_server *server);
/* What its config said; an attached server goes by what it was created with. */
uint32_t rp_server_mtu(const struct rp_server *server);
uint32_t rp_server_receive_budget(const struct rp_server *server);
/* Every invariant of sessions, records and tables, asserted. */
void rp_server_check(const struct rp_server *server);

#endif
