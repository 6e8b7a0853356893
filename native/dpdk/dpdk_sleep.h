/* A port's sleep: dpdk_sleep.c. */
#ifndef RP_DPDK_SLEEP_H
#define RP_DPDK_SLEEP_H

#include "dpdk/dpdk_parts.h"

struct rp_sleep {
    int files;   /* an epoll: what ends a sleep; -1: it is a nap */
    int wake;    /* an eventfd, of those */
    int socket;  /* of its device's queue; -1: none */
    int is_lent; /* the first two are its memif server's */
    struct rp_bursts looks; /* of the sleeper, at memory of peers */
    /* results of the last wait */
    uint64_t received_before;
    uint32_t doublings; /* waits in vain, one behind the other */
    int was_ready;      /* its files said that something had come */
    /* shared by the thread that sleeps and the one that bursts */
    _Atomic uint64_t received; /* frames; by bursts */
    _Atomic int is_stale;      /* a sleep passed in vain, perhaps for want of mbufs */
};

/* An epoll with an eventfd in it; -1: no file left. And closed again. */
int rp_sleep_files(int *files, int *wake);
void rp_sleep_unfile(int *files, int *wake);
int rp_sleep_open(struct rp_sleep *sleep, struct rp_wire *wire); /* -1: no file left */
void rp_sleep_close(struct rp_sleep *sleep);
void rp_sleep_forget(struct rp_sleep *sleep); /* in a forked child */
/* Sleeps until something can be received (then 1), rp_sleep_wake is called, or some time has
 * passed: timeout_ns and 10 ms at most. */
int rp_sleep_wait(struct rp_sleep *sleep, struct rp_wire *wire, uint64_t timeout_ns);
void rp_sleep_wake(const struct rp_sleep *sleep);

#endif
