/* The server's end of zmq+tcp:// without keys: ZeroMQ's protocol (ZMTP 3, mechanism NULL) spoken
 * here, over sockets of our own, so that all a stranger can make us keep has a bound.
 *
 * libzmq bounds a frame and a number of whole messages, but not one message of endless frames: it
 * keeps what it has of it, hundreds of megabytes a second. Here a frame is a datagram, whatever
 * message it belongs to, and goes to the engine as soon as it is whole.
 *
 * Connections have places in a fixed array; each has room for what is read and not yet taken, and
 * for what the network has not taken yet. That memory is mapped once and touched by use; it is
 * given back when the connection ends. A greeting of another kind, a frame larger than the largest
 * mtu, an unknown command before READY: the connection ends. The PINGs of a visit have one answer.
 *
 * A newcomer that finds no place free takes another connection's: first that of one that has not
 * finished the handshake; else of one without a session, as the last answer to it shows, whatever
 * it claims; else of one that was not answered for RP_ZMTP_IDLE_S. Of several it takes the one that
 * was of use longest ago. Where all are in use the newcomer is refused. A session holds one place,
 * that of its last answer. A client that lost its connection makes a new one and keeps its session.
 * A host that is not this machine has RP_ZMTP_OF_A_HOST places at most; beyond that its newcomers
 * take places of its own.
 *
 * Threads as for any port; `wait` looks at descriptors, and at whether frames are left.
 */
#ifndef RP_TRANSPORT_ZMTP_H
#define RP_TRANSPORT_ZMTP_H

#include "transport/transport.h"
#include "transport/url.h"

enum rp_zmtp_limits {
    RP_ZMTP_CONNECTIONS_MAX = 256,
    RP_ZMTP_OF_A_HOST = 192, /* of them, where it is another machine; so few as its sessions */
    RP_ZMTP_IDLE_S = 60,     /* a client that waits is answered more often: it keeps itself alive */
    RP_ZMTP_IN_BYTES = 128 << 10,  /* of a connection: a largest frame and what came behind it */
    RP_ZMTP_OUT_BYTES = 512 << 10, /* answers beyond it are lost and counted */
};

rp_port_opener rp_zmtp_open;

#endif
