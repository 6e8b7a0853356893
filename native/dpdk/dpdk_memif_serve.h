/* A memif server, as its two files share it: dpdk_memif_serve.c, the rings of those at work, and
 * dpdk_memif_visitors.c, who comes and goes. */
#ifndef RP_DPDK_MEMIF_SERVE_H
#define RP_DPDK_MEMIF_SERVE_H

#include "dpdk/dpdk_memif.h"
#include "dpdk/memif.h"

enum { RP_MEMIF_WAITING = 8, RP_MEMIF_VISITORS = RP_DPDK_LANES + RP_MEMIF_WAITING };

struct visitor {
    int file;      /* -1: this place is free */
    uint32_t lane; /* RP_DPDK_LANES: it is not at work */
    uint64_t until_ns; /* when it is to be at work; 0: it is */
    uint64_t heard_ns; /* when it came, or its last message was dealt with */
    int calls;  /* the file it calls by; -1: it does not */
    int ear;    /* what that is heard through; -1: it is not at work */
    int called; /* the one it is called by, until it is at work; -1: none */
    struct rp_memif_peer peer;
    struct rp_memif_loan *loan; /* of the region it named last, whose message waits; or null */
    uint8_t message[RP_MEMIF_MESSAGE];
};

struct rp_memif_server {
    _Atomic(struct visitor *) lanes[RP_DPDK_LANES]; /* at work there, or null */
    struct rte_mempool *pool;
    uint32_t room; /* bytes of a frame that an mbuf holds */
    _Atomic uint64_t refused;  /* visitors that broke the protocol */
    _Atomic uint64_t unkept;   /* those whose memory cannot be made to stay */
    _Atomic uint64_t unfit;    /* frames larger than where they were to go */
    uint32_t links;
    int files, called; /* what its port sleeps on, and is called by from here */
    int wake; /* it is to end, a loan has ended, or a peer was expelled */
    _Atomic int ends;
    pthread_t thread;
    struct rp_memif_socket socket;
    struct rp_memif_caller callers[RP_DPDK_LANES];
    struct visitor *owners[RP_DPDK_LANES]; /* from here on: the thread's */
    struct visitor visitors[RP_MEMIF_VISITORS];
};

#endif
