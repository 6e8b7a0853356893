/* Kernel UDP: recvmmsg and sendmmsg on one socket, with GSO and GRO where the kernel has them.
 *
 * Receive: 64 buffers of 64 KiB; with GRO one buffer brings a whole train, whose datagrams are lent
 * as slices of it, and it is free again when its last slice was released. Transmit: one arena of
 * RP_BURST packets; consecutive packets to one peer, equal in size but the last, leave as one
 * train. A client's socket is connected: the kernel drops what others send to it. What they sent
 * while it had a port and was not connected yet, at open and at a rebind, is dropped here, by its
 * sender.
 *
 * An address is {family u16, port u16 (network order), scope u32, address 16 bytes}, 24 bytes; an
 * IPv4-mapped IPv6 address is written as IPv4.
 *
 * The receive budget is what the socket buffer, as read back, holds of full datagrams in the
 * kernel's own count (its truesize: 2304 bytes for 1400). Nothing here reads a clock.
 *
 * What the kernel loses at the socket, for a full queue or a wrong checksum, it counts in what it
 * queues: datagrams, or with GRO whole trains. So `dropped_in` is a lower bound, and exact without
 * GRO. In the POSIX build nobody counts that: the fact is left out.
 */
#ifndef RP_TRANSPORT_UDP_H
#define RP_TRANSPORT_UDP_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "os/wake.h"
#include "transport/transport.h"
#include "transport/transport_lend.h"
#include "transport/url.h"

enum rp_udp_limits {
    RP_UDP_BUFFERS = 64,          /* receive buffers */
    RP_UDP_BUFFER_BYTES = 65536,  /* the largest train the kernel hands over */
    RP_UDP_SPREAD_BYTES = 1024,   /* room to move a train of odd sizes apart to multiples of 8 */
    RP_UDP_STRIDE = 65536 + 1024 + 128, /* no power of two: buffers in different cache sets */
    RP_UDP_RECEIVE_MAX = 16,      /* buffers filled by one recvmmsg */
    RP_UDP_TRAIN_MAX = 64,        /* datagrams of one train */
    RP_UDP_TRAIN_BYTES = 65000,
    RP_UDP_SOCKET_BYTES = 8 << 20, /* socket buffers asked for by default */
    RP_UDP_PEER_BYTES = 24,
    RP_UDP_OWN_MAX = 256, /* addresses of this machine's that are known; of others its clients count
                           * as another host's */
};

rp_port_opener rp_udp_open;

/* Whether this port sends and receives trains in the kernel: bit 0 GSO, bit 1 GRO. */
uint32_t rp_udp_offloads(struct rp_port *port);
/* Turns both off, for tests and comparisons. Before the first burst. */
void rp_udp_plain(struct rp_port *port);

/* ---- shared by the transport's own files ---- */

struct rp_udp_arrival { /* a buffer the kernel filled, not all of it lent yet */
    struct rp_peer peer;
    uint32_t buffer;
    uint32_t size;    /* bytes not lent yet */
    uint32_t offset;  /* of the next slice */
    uint32_t segment; /* bytes of every slice but the last */
    uint32_t stride;  /* bytes between slices: segment, a multiple of 8 */
};

struct rp_udp_receive {
    uint8_t *memory; /* RP_UDP_BUFFERS * RP_UDP_STRIDE */
    uint16_t holds[RP_UDP_BUFFERS]; /* slices of each buffer lent or to be lent */
    uint16_t free[RP_UDP_BUFFERS];
    uint32_t free_count;
    uint32_t ask;   /* how many messages the next recvmmsg asks for, at least 1 */
    int filled;     /* 1: the last one brought as many as there was room for */
    uint32_t first; /* arrivals[first .. first + waiting) are not lent yet */
    _Atomic uint32_t waiting;
    struct rp_udp_arrival arrivals[RP_UDP_RECEIVE_MAX];
};

struct rp_udp_own { /* this machine's addresses as they were when they were looked up */
    uint32_t count;
    struct rp_peer peers[RP_UDP_OWN_MAX];
};

struct rp_udp_port {
    struct rp_port_base base;
    int socket;
    struct rp_wake wake;
    int family;    /* of the socket: an IPv6 one writes IPv4 peers as mapped addresses */
    struct rp_peer server; /* a client's: where it is connected to; of size 0 at a server's */
    struct rp_peer connected; /* the same as the kernel names it: to 0.0.0.0 leads to 127.0.0.1 */
    int gso;
    int gro;
    int counts;              /* the kernel reports what it drops */
    uint32_t kernel_dropped; /* what the kernel reported last; it wraps */
    struct rp_udp_own own;
    uint64_t unusable;       /* of dropped_in, what the kernel did hand over */
    uint64_t strangers;      /* and what another than the server had sent */
    uint32_t receive_bytes; /* socket buffers asked for */
    uint32_t send_bytes;
    struct rp_udp_receive receive;
    struct rp_lease send;
};

uint32_t rp_udp_rx_burst(struct rp_port *port, struct rp_packet *packets, uint32_t count);
void rp_udp_rx_release(struct rp_port *port, struct rp_packet *packets, uint32_t count);
uint32_t rp_udp_tx_lease(struct rp_port *port, struct rp_packet *packets, uint32_t count);
void rp_udp_tx_send(struct rp_port *port, struct rp_packet *packets, uint32_t count);

/* Between the kernel's addresses and peers. `family` is the socket's. */
void rp_udp_peer_pack(struct rp_peer *peer, const struct sockaddr_in6 *address);
socklen_t rp_udp_peer_unpack(const struct rp_peer *peer, int family, struct sockaddr_in6 *address);
/* Resolves a host (IPv4 first) and port. 0 or a negative status with a sentence. */
int rp_udp_resolve(struct sockaddr_in6 *address, const struct rp_url *url, char *error);
/* Resolves the host of a url and keeps its address there: who opens it then asks no name server. */
int rp_udp_look_up(struct rp_url *url, char *error);
int rp_udp_is_loopback(const struct sockaddr_in6 *address);
/* udp://ADDRESS:PORT, of a link-local address with its %INTERFACE: a url that leads there. */
void rp_udp_print(char *text, size_t capacity, const struct sockaddr_in6 *address);
/* Looks at the system's interfaces, for a server. */
void rp_udp_own(struct rp_udp_own *own);
/* What `host` of a transport answers (transport.h), for an address that was packed. */
uint64_t rp_udp_host(const struct rp_udp_own *own, const struct rp_peer *peer);
/* Full datagrams a socket buffer of that many bytes holds, in the kernel's count. */
uint32_t rp_udp_budget(uint32_t socket_bytes, uint32_t mtu);

#endif
