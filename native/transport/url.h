/* URLs, and the registry of transports: which scheme opens which kind of port.
 *
 *     loopback://NAME[?mtu=N]        in this process
 *     udp://HOST:PORT[?mtu=N]        kernel UDP; HOST a name, an IPv4 address, an IPv6 one in []
 *     zmq+tcp://HOST:PORT[?mtu=N]    ZeroMQ over TCP; clients and keys: by Python's socket
 *     dpdk://HOST:PORT?vdev=...      past the kernel; its options: see transport_dpdk.h
 *
 * A scheme this build does not have is a typed error whose sentence names those it has, or how to
 * get it. Ports are allocated here, at open, and freed by their transport's close.
 */
#ifndef RP_URL_H
#define RP_URL_H

#include <stdint.h>

#include "transport/transport.h"

enum rp_url_limits {
    RP_URL_SCHEME_BYTES = 16,
    RP_URL_HOST_BYTES = 254, /* a host: of a url's 255 bytes no more are left for it */
    RP_URL_NAME_BYTES = 64,  /* a loopback name */
    RP_URL_NUMBER_BYTES = 64, /* an address, with %INTERFACE */
    RP_URL_TEXT_BYTES = 256,
    RP_URL_ERROR_BYTES = 256,
};

struct rp_url {
    char scheme[RP_URL_SCHEME_BYTES];
    char host[RP_URL_HOST_BYTES]; /* without brackets */
    char number[RP_URL_NUMBER_BYTES]; /* its address, where it has been looked up; else empty */
    uint32_t mtu;                 /* 0: not said */
    uint32_t mtu_default;         /* its transport's; RP_MTU_HOST where that is larger and the
                                     host is this one: localhost, a number of 127/8, ::1 */
    uint16_t port;
    char options[RP_URL_TEXT_BYTES]; /* NAME=VALUE&..., for schemes that have options of their own;
                                        mtu is read already */
};

struct rp_zmq_socket; /* transport_zmq.h */

struct rp_port_options {
    int serve;              /* 1: bind the address; 0: speak to it */
    int insecure;           /* 1: may bind an address that other hosts can reach */
    int virtual_clock;      /* loopback, serve: time counts turns */
    uint32_t mtu;           /* where the url says none; 0: the transport's default */
    uint32_t receive_bytes; /* socket buffers to ask for; 0: 8 MiB */
    uint32_t send_bytes;
    const struct rp_zmq_socket *zmq; /* zmq+tcp: what Python opened; null: there is none */
    uint64_t timeout_ns;    /* a client, where a server's answer opens its port; 0: 5 s */
};

/* What a transport brings: opens a port for a parsed url; options->mtu is filled in and legal.
 * Writes bound[RP_URL_TEXT_BYTES]. Returns 0, or a negative status with a sentence in error. */
typedef int rp_port_opener(struct rp_port **port, const struct rp_url *url,
                           const struct rp_port_options *options, struct rp_peer *server,
                           char *bound, char *error);

/* 0, or -RP_BAD_ARGUMENT or -RP_NO_TRANSPORT with a sentence in error[RP_URL_ERROR_BYTES]. */
int rp_url_parse(struct rp_url *url, const char *text, char *error);

/* Opens the port `text` names. *server is the address a client speaks to (serve: this port's own).
 * bound[RP_URL_TEXT_BYTES] is the url by which it is reached, port resolved; may be null. Returns 0
 * or a negative status with a sentence in error. */
int rp_port_open(struct rp_port **port, const char *text, const struct rp_port_options *options,
                 struct rp_peer *server, char *bound, char *error);

/* As rp_port_open, of a url that is parsed already, from `text`. */
int rp_url_open(struct rp_port **port, const struct rp_url *url, const char *text,
                const struct rp_port_options *options, struct rp_peer *server, char *bound,
                char *error);

/* Looks up the host of a url, where its port is opened by that: who opens it asks no name server
 * then. 0, or -RP_BAD_ARGUMENT with a sentence. */
int rp_url_look_up(struct rp_url *url, const struct rp_port_options *options, char *error);

void rp_port_close(struct rp_port *port); /* null is fine */

#endif
