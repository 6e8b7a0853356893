/* Inside a link: what the files link*.c share. Not for others. */
#ifndef RP_LINK_DRIVE_H
#define RP_LINK_DRIVE_H

#include "drive/pump_gate.h"
#include "drive/pump.h"
#include "replay.h"

struct rp_link {
    struct rp_gate gate;      /* all below, but for what threads sleep on, is touched inside it */
    struct rp_client *client;
    struct rp_port *port;
    void *memory;             /* the client's */
    size_t memory_bytes;
    int driven;               /* one thread drives: the pump, or a caller that waits */
    int pumped;               /* it is the pump */
    int unsent;               /* something was posted and left to the driver's next turn */
    uint64_t looked_ns;       /* when a turn last looked at the port */
    uint64_t asleep_until;    /* the driver sleeps in the port's wait until then; 0: it does not */
    _Atomic uint32_t progress; /* counts what moved; the followers' futex */
    _Atomic uint32_t followers; /* threads that sleep on it */
    struct rp_pump pump;
    struct rp_pump keeper;
    _Atomic uint32_t keeper_ends; /* its futex */
    uint64_t kept_ns; /* when it took a turn; another one was later where callers come */
    struct rp_link_options options;
    struct rp_spin spin;
    int passive; /* loopback: waiting is the server's turn, spinning would be in vain */
    int timed;   /* by a virtual clock */
    /* the server of this process has closed, or the device is lost: nothing is waited for now */
    int server_closed;
};

/* Inside the gate: whether what the caller waits for has come: RP_PENDING, or anything else. */
typedef int rp_link_done(struct rp_link *link, void *argument);

/* Drives, or follows another's driving, until done() is or the time is over (RP_SLICE_NS at most).
 * Enters and leaves the gate itself. Returns what done() said last, -RP_FORKED, or -RP_CLOSED where
 * the link or the server of this process closed meanwhile. */
int rp_link_until(struct rp_link *link, rp_link_done *done, void *argument, uint64_t timeout_ns);

/* The time by this link's clock, and a point in it; inside or outside the gate. */
uint64_t rp_link_now(struct rp_link *link);
uint64_t rp_link_deadline(struct rp_link *link, uint64_t timeout_ns);

/* Inside the gate, after a post: sends what was posted now, unless a driver is awake and is about
 * to send it. */
void rp_link_posted(struct rp_link *link);
/* The same for a caller that goes on waiting: it looks for answers there, so not here. */
void rp_link_posted_to_wait(struct rp_link *link);

/* Inside the gate: one turn. Returns the datagrams that moved. */
uint32_t rp_link_turn(struct rp_link *link);

/* ---- link_keep.c ---- */
/* Starts the keeper. Where no thread is to be had, callers alone speak for the link. */
void rp_link_keep(struct rp_link *link);
/* From inside: ends it, where there is one. */
void rp_link_end_keeper(struct rp_link *link);

#endif
