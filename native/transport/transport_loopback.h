/* Loopback: datagrams between ports of one process, over a hub of bounded queues.
 *
 * A server's port makes a hub and gives it its name; clients' ports join it by that name. A sent
 * datagram is copied into a buffer of its receiver; where the receiver's queue is full it is lost
 * and counted, as on any network. An address is (place in the hub, number of the joining), so that
 * an answer to a closed port never reaches the port that has its place now.
 *
 * The server may have no thread: a client's wait runs the server's turn, through the function given
 * to rp_loopback_attend, under the hub's turn lock. Once the server's port has closed, its clients'
 * ports are lost, and their waits end. With a virtual clock each such turn is a
 * microsecond and a wait that finds nothing lets its time-out pass at once: a run of one thread can
 * then be repeated bit by bit.
 *
 * Locks, in this order: the hub's turn lock, whatever the turn takes, the hub's queue lock.
 */
#ifndef RP_TRANSPORT_LOOPBACK_H
#define RP_TRANSPORT_LOOPBACK_H

#include "transport/transport.h"
#include "transport/url.h"

enum rp_loopback_limits {
    RP_LOOPBACK_PORTS_MAX = 256,   /* of one hub, the server's included */
    RP_LOOPBACK_QUEUE_MIN = 64,    /* datagrams */
    RP_LOOPBACK_QUEUE_MAX = 1024,
    RP_LOOPBACK_QUEUE_BYTES = 4 << 20,
    RP_LOOPBACK_TURN_NS = 1000,    /* virtual time of one turn */
};

rp_port_opener rp_loopback_open;

/* 1 where this port belongs to a hub. */
int rp_loopback_is(struct rp_port *port);

/* The server's port: waiting clients call turn(owner), which returns the datagrams it received,
 * from now on; null ends it, and once it has returned no call is under way. */
void rp_loopback_attend(struct rp_port *port, uint32_t (*turn)(void *owner), void *owner);

/* A client's port: one turn of the server, where it has given one to be run. Returns what it
 * received. */
uint32_t rp_loopback_turn(struct rp_port *port);

#endif
