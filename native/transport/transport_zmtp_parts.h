/* Inside the ZMTP server: what its connections (transport_zmtp_speak.c) and its bursts
 * (transport_zmtp.c) share. Not for others.
 */
#ifndef RP_TRANSPORT_ZMTP_PARTS_H
#define RP_TRANSPORT_ZMTP_PARTS_H

#include "os/ready.h"
#include "transport/transport_lend.h"
#include "transport/transport_udp.h"
#include "transport/transport_zmtp.h"

enum { MORE = 1, LONG = 2, COMMAND = 4, GREETING = 64, SHORT_HEAD = 2, LONG_HEAD = 9 };
enum { FRAMES_A_VISIT = 8, ACCEPTS = 8, EVENTS = 32, CONTEXT_MAX = 16, LISTENER = UINT16_MAX };

enum stage { FREE = 0, AWAITS_GREETING, AWAITS_READY, OPEN };
/* What protects a connection's place against newcomers: the one with least is ended first. */
enum hold { HOLD_NO_HANDSHAKE, HOLD_NO_SESSION, HOLD_IDLE, HOLD_IN_USE };

struct connection {
    int socket;
    uint32_t generation;
    enum stage stage;
    int queued;   /* it stands in the ring */
    uint32_t session; /* of the last answer, see rp_packet; 0: it was to a mere stranger, or none */
    uint32_t used_s;  /* the port's `seconds` when it came, or was last answered in a session */
    uint64_t used;    /* the same as a number: the smaller, the longer ago */
    uint64_t host;   /* as transport.h has it: 0 for this machine's own */
    int stalled;  /* the network took less than there was: `ready` reports when it takes more */
    uint32_t in_first, in_end;   /* of `in`: read and not taken */
    /* of `out`, which begins with a frame, or the greeting: not yet taken by the network */
    uint32_t out_first, out_end;
    uint8_t *in, *out;
};

struct zmtp_port {
    struct rp_port_base base;
    int listener;
    int newcomer; /* accepted, and in no place yet; -1: none */
    struct rp_wake wake;
    struct rp_ready ready;
    uint32_t seconds; /* since open, as `ready` counted them */
    uint64_t uses;
    struct rp_udp_own own;
    _Atomic uint32_t ring_count;
    uint32_t ring_first;
    uint16_t ring[RP_ZMTP_CONNECTIONS_MAX];
    struct connection connections[RP_ZMTP_CONNECTIONS_MAX];
    uint32_t open;
    uint64_t ended; /* connections ended for what they said */
    uint64_t refused;
    uint64_t displaced; /* connections ended for a newcomer */
    uint64_t not_accepted; /* times the system had no descriptor or memory for a newcomer */
    struct rp_slots slots;
    struct rp_lease lease;
    uint8_t *memory;  /* of all connections */
};

static inline uint16_t rp_zmtp_index(const struct zmtp_port *port,
                                     const struct connection *connection) {
    return (uint16_t)(connection - port->connections);
}

/* Accepts those that want to connect, a bounded number. Where the system has no descriptor for one,
 * none is accepted, or looked for, until rp_zmtp_second. */
void rp_zmtp_accept(struct zmtp_port *port);
/* Another second has passed. */
void rp_zmtp_second(struct zmtp_port *port);
/* A free place for a newcomer from this host; null where no connection has to give its place up. */
struct connection *rp_zmtp_place(struct zmtp_port *port, uint64_t host);
/* It is answered in this session, whose client may have had another connection before. 0: in no
 * session, which does not count as use of the place. */
void rp_zmtp_answered(struct zmtp_port *port, struct connection *connection, uint32_t session);
/* Datagrams that wait for it are counted as not taken. */
void rp_zmtp_end(struct zmtp_port *port, struct connection *connection);
/* It has something to be taken: to the end of the ring, unless it stands there. */
void rp_zmtp_queue(struct zmtp_port *port, struct connection *connection);
/* Reads on. 1: there is more than before. It may end the connection. */
int rp_zmtp_read(struct zmtp_port *port, struct connection *connection);
/* Frames that have come whole, `count` of them at most, as packets. Returns how many were lent. It
 * may end the connection. */
uint32_t rp_zmtp_take(struct zmtp_port *port, struct connection *connection,
                      struct rp_packet *packets, uint32_t count);
/* Room for `size` bytes behind what waits to leave, or null. */
uint8_t *rp_zmtp_room(struct connection *connection, uint32_t size);
/* What waits leaves as far as the network takes it. It may end the connection. */
void rp_zmtp_drain(struct zmtp_port *port, struct connection *connection);

#endif
