/* The server's state machine: datagrams and the time in, datagrams out. It keeps no timers and
 * retransmits nothing.
 *
 * The caller owns the region (page-aligned where it is mapped, zeroed for create) and the port.
 * The region is one range of addresses, cut into segments at page boundaries; each may be a file:
 *     state            header, intent log, sessions, sample records, weights' words, and of each
 *                      table all but its ring: private to the server
 *     tableN.keys      key words of the ring and its steps' checksums: a reader that maps the ring
 *                      finds here what is stored
 *     tableN.steps     the steps
 *     weights          the bytes of the published versions
 * Each but the first ends with a seal, by which attach recognises a file of another region. Behind
 * the last one lies memory of this process alone (this struct, replay windows, credit, notes of the
 * waiting requests, trees). It is rebuilt at attach. The segments survive the process; they hold no
 * pointer, and no key that guards a cookie.
 */
#ifndef RP_SERVER_H
#define RP_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/config.h"
#include "server/meter.h"
#include "protocol/status.h"
#include "transport/transport.h"

struct rp_server;
struct rp_table;

enum rp_segment_limits {
    RP_SEGMENTS_MAX = 2 + 2 * 16, /* state, weights, and two of each table */
    RP_SEGMENT_NAME_BYTES = 24,
};

/* Each segment is mapped from its file, so it begins where a page of memory may: pages have 4 KiB
 * on x86-64, and up to 64 KiB elsewhere. A region is of one kind of machine; another's is refused.
 * `make POSIX=1` defines the larger unit, so that any machine can test it. */
#ifndef RP_SEGMENT_ALIGN
#ifdef __x86_64__
#define RP_SEGMENT_ALIGN 4096
#else
#define RP_SEGMENT_ALIGN 65536
#endif
#endif

struct rp_segment {
    char name[RP_SEGMENT_NAME_BYTES];
    uint64_t offset; /* multiples of RP_SEGMENT_ALIGN */
    uint64_t bytes;
    char what[72];    /* for people: what takes the room */
    uint32_t at_need; /* 1: pages not written need no room yet: see rp_server_backing */
};

struct rp_segments {
    uint32_t count;
    struct rp_segment segment[RP_SEGMENTS_MAX];
    uint64_t bytes; /* of the whole range, what lies behind the segments included */
};

/* The file name of each segment that a region may have: 0 `state`, then `keys` and `steps` of each
 * table, and the last one `weights`. */
void rp_segment_name(uint32_t number, char name[RP_SEGMENT_NAME_BYTES]);

/* Region bytes for this config; 0 with a sentence in error where it is impossible. */
size_t rp_server_bytes(const struct rp_server_config *config, char error[256]);
/* The same, by segment: 0 or -status. */
int rp_server_segments(const struct rp_server_config *config, struct rp_segments *segments,
                       char error[256]);
/* Compares a region with a configuration before it is mapped as a whole: `state` is that segment
 * as it was found. 0, or -RP_BAD_REGION and a sentence that names the first difference and both
 * values. Limits of time, mtu, receive budget and limiter may differ: attach takes the
 * configuration's. */
int rp_server_compare(const void *state, size_t bytes, const struct rp_server_config *config,
                      char error[256]);
/* `entropy`: 32 bytes from the operating system (the simulator's from its seed); incarnation,
 * session ids, cookies and table epochs come from it. Returns 0 or -status with error; *server
 * points into the region. */
int rp_server_create(struct rp_server **server, void *region, size_t bytes,
                     const struct rp_server_config *config,
                     const uint8_t entropy[32], uint64_t now_ns, char error[256]);
/* Takes over a region a dead server left: compares it with the configuration and each segment's
 * seal with the region's, redoes its intent, checks it, rebuilds what is derived. Incarnation,
 * epochs, sessions, windows and records are as they were; credit and notes start empty. */
int rp_server_attach(struct rp_server **server, void *region, size_t bytes,
                     const struct rp_server_config *config, const uint8_t entropy[32],
                     uint64_t now_ns, char error[256]);
/* The same, but only if rp_server_verify_steps finds no damage. That is asked before sessions,
 * limiters or anything else in the region is changed. */
int rp_server_attach_verified(struct rp_server **server, void *region, size_t bytes,
                              const struct rp_server_config *config, const uint8_t entropy[32],
                              uint64_t now_ns, char error[256]);
/* Compares every stored step with its checksum, which reads all of the rings: 0, or -RP_BAD_REGION
 * and a sentence that names the first table with damaged steps, how many and one of their keys. */
int rp_server_verify_steps(const struct rp_server *server, char error[256]);
/* What attach took over from the configuration, in words; "" if nothing differed. */
const char *rp_server_changes(const struct rp_server *server);
uint64_t rp_server_seed(const struct rp_server *server);
/* Weights take room at need: when a publication says its size. The function answers 1 where the
 * range of the region has its room now, 0 where it cannot. */
typedef int rp_allocate(void *owner, uint64_t offset, uint64_t bytes);
void rp_server_backing(struct rp_server *server, rp_allocate *allocate, void *owner);
/* One turn: receives a burst, applies and answers each datagram, sends. Returns datagrams
 * received. It returns 1 also where none came but the next turn has work at once. So a driver that
 * turns until 0 may then sleep. */
uint32_t rp_server_turn(struct rp_server *server, struct rp_port *port, uint64_t now_ns);
/* The last turn: answers each waiting SAMPLE and PUSH, once, that the server closes, as far as the
 * network takes it. region_stays: 1 where another server may take the region over; then a waiting
 * PUSH gets no answer, and waits for that server. */
void rp_server_last_turn(struct rp_server *server, struct rp_port *port, uint64_t now_ns,
                         int region_stays);
/* Behind each turn that received something, with how long it took, transmission included: the time
 * of each of its requests; and for how long of that the thread ran, as far as is known: what its
 * sessions took of the server's time. A driver that leaves it out holds no session to its share. */
void rp_server_end_turn(struct rp_server *server, uint64_t elapsed_ns, uint64_t ran_ns);
/* Did the last turn leave datagrams behind in its port? Only then does `ran_ns` matter. */
int rp_server_is_behind(const struct rp_server *server);
/* Everything measured so far, as of now_ns. What its port reports (dropped_in, dropped_out, facts)
 * is 0, and so is what this server has none of. */
void rp_server_measure(const struct rp_server *server, uint64_t now_ns,
                       struct rp_measures *measures);
const uint64_t *rp_server_counters(const struct rp_server *server); /* RP_COUNTER_COUNT numbers */
uint32_t rp_server_sessions(const struct rp_server *server);       /* open now */
/* for tests and in-process readers */
struct rp_table *rp_server_table(struct rp_server *server, uint32_t number);
uint32_t rp_server_table_count(const struct rp_server *server);
uint64_t rp_server_incarnation(const struct rp_server *server);
uint64_t rp_server_weights_version(const struct rp_server *server);
/* Every invariant of sessions, records and tables, asserted. */
void rp_server_check(const struct rp_server *server);

#endif
