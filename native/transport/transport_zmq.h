/* ZeroMQ: the same datagrams as frames of messages, through a socket that Python opened.
 *
 * This package links no libzmq. Python makes the socket with pyzmq (a ROUTER that is bound, or a
 * DEALER that is connecting, CURVE and limits set) and hands it over together with the addresses of
 * the ten calls of the libzmq that pyzmq itself loaded. From then on bursts use it from C, without
 * Python's lock: a trainer that computes in Python holds nothing up, and the other way round.
 *
 * A message is one or more frames, each a datagram; a ROUTER sees the sender's routing id before
 * them, which is the peer's address here. A burst leaves as transport_lend.h cuts it.
 *
 * Received frames are lent where they lie, if they lie on 8 bytes, and copied if not. Frames that
 * are empty or larger than the mtu, and all of a sender whose routing id is no address of ours, are
 * dropped and counted. What a full queue does not take is lost and counted: nothing here blocks. A
 * client's queue fills while it has no connection, and leaves with the next one, late.
 *
 * Threads: the driver's lock is the full fence that libzmq asks for where a socket changes threads.
 * `wait` looks at descriptors only. The descriptor reports changes, not states, and any call may
 * clear the report: so `ready` says whether frames may wait that the descriptor does not report.
 */
#ifndef RP_TRANSPORT_ZMQ_H
#define RP_TRANSPORT_ZMQ_H

#include "transport/transport.h"
#include "transport/url.h"

/* [cffi] */
enum rp_zmq_limits {
    RP_ZMQ_MTU = 65504,           /* the default on this transport: the largest there is */
    RP_ZMQ_QUEUE_MAX = 256,       /* messages a peer's queue holds, each way: 16 MiB at most */
    RP_ZMQ_RECEIVE_BUDGET = 8192, /* full datagrams in flight towards a port, of all its peers */
    RP_ZMQ_ENDPOINT_BYTES = 100,
};

struct rp_zmq_socket {
    void *socket;   /* of libzmq; stays open until the port was closed */
    int descriptor; /* its ZMQ_FD */
    char endpoint[100]; /* "tcp://HOST:PORT": where it is bound, or what it connects to */
    int (*msg_init)(void *message);
    int (*msg_init_size)(void *message, size_t size);
    void *(*msg_data)(void *message);
    size_t (*msg_size)(const void *message);
    int (*msg_more)(const void *message);
    int (*msg_recv)(void *message, void *socket, int flags);
    int (*msg_send)(void *message, void *socket, int flags);
    int (*msg_close)(void *message);
    int (*getsockopt)(void *socket, int option, void *value, size_t *size);
};

/* The endpoint[RP_ZMQ_ENDPOINT_BYTES] of a zmq+tcp:// url, its host resolved, for libzmq to bind or
 * connect. guarded: 1 where only clients with a key get in, or that was waived (insecure). Returns
 * 0 or a negative status with a sentence in error[256]: protected mode is checked here. */
int rp_zmq_endpoint(const char *url, int serve, int guarded, char *endpoint, char *error);
/* [/cffi] */

/* With a socket of Python's; a server without one speaks the protocol itself (transport_zmtp.h). */
rp_port_opener rp_zmq_open;
/* The refusal to serve other hosts without a key: -RP_INSECURE, with its sentence. */
int rp_zmq_unguarded(const char *url, char *error);

#endif
