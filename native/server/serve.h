/* One request being served: what every handler gets, and what it may do.
 *
 * A handler is called with one leased packet, once the request's size, reserved fields and session
 * were checked. It writes its answer behind rp_answer, where rp_serve_room points, and returns the
 * answer's bytes. Or it returns a negative status, which is answered in rp_answer alone; or
 * RP_SERVED where it sent its datagrams by rp_serve_send. It stores nothing before it has checked
 * everything; what it may do before is to look after its session's place in a queue.
 */
#ifndef RP_SERVE_H
#define RP_SERVE_H

#include "server/server_state.h"

enum { RP_SERVED = 0x7FFFFFFF };

struct rp_turn { /* one turn's transmit room; lives on rp_server_turn's stack */
    struct rp_server *server;
    struct rp_port *port;
    uint32_t leased;
    uint32_t used;
    uint32_t sent; /* in this turn, before the present lease */
    uint32_t reserved;
    struct rp_packet packets[RP_BURST];
};

struct rp_call {
    struct rp_turn *turn;
    struct rp_server *server;
    struct rp_view view;
    const struct rp_peer *peer; /* where the request came from, and the answer goes */
    uint32_t session;           /* index, or RP_NOBODY */
    uint16_t status;            /* of the answer: RP_OK, unless a handler sets it beside a body */
    uint16_t counted;           /* 1: the refusal was counted where it arose */
    uint16_t paired;            /* 1: a PUSH admitted for the sake of the first waiting SAMPLE */
    uint16_t released;          /* 1: a PUSH that waits, read from its copy */
    struct rp_message message;  /* of the answer */
};

struct rp_asked { /* what is to be admitted */
    uint64_t items; /* to be drawn, or to be created */
    int far;        /* PUSH: if admitted, it would be dropped */
    uint8_t *held;  /* PUSH: where its body is kept while it waits */
    struct rp_sample request; /* PUSH: its epoch alone */
};

/* ---- turn room ---- */
/* Leases about what the last turn needed; 0 where the port has no room at all. */
int rp_serve_begin(struct rp_turn *turn, struct rp_server *server, struct rp_port *port);
/* The slow path of the next one: sends the full packets and leases new ones. */
int rp_serve_refill(struct rp_turn *turn, uint32_t count);
/* Makes sure that `count` (at most RP_BURST) packets are leased and unused; sends what is full.
 * 1 or 0. */
static inline int rp_serve_lease(struct rp_turn *turn, uint32_t count) {
    return turn->leased - turn->used >= count || rp_serve_refill(turn, count);
}
/* In a train, behind each datagram: sends what is written so far where that gains something. */
void rp_serve_early(struct rp_turn *turn);
/* Gives everything back: what was written is sent. */
void rp_serve_end(struct rp_turn *turn);
/* Serves one received datagram. */
void rp_serve_datagram(struct rp_turn *turn, const struct rp_packet *packet);
/* Answers the waiting requests whose time has come. */
void rp_serve_waiting(struct rp_turn *turn);
/* Answers the waiting requests that the server closes. */
void rp_serve_close_waiting(struct rp_turn *turn, int region_stays);

/* ---- for handlers ---- */
struct rp_session *rp_serve_session(const struct rp_call *call);
/* Where the answer's own bytes go, behind rp_answer, in the next leased packet. */
uint8_t *rp_serve_room(const struct rp_call *call);
/* Bytes there: what the session's mtu leaves. */
uint32_t rp_serve_room_bytes(const struct rp_call *call);
/* Seals the next packet with `size` bytes of answer and counts it as used. */
void rp_serve_send(struct rp_call *call, uint32_t size);
/* The most datagrams that one request is answered with: what its client takes in one go. */
uint32_t rp_serve_train(const struct rp_call *call);
/* How many datagrams of trains the session may still be sent in this turn. Other answers are one a
 * request, and no part of it. */
uint32_t rp_serve_datagrams_left(const struct rp_call *call);
/* So many of a train were sent: they count in its part of the turn, and of the time. */
void rp_serve_train_sent(struct rp_call *call, uint32_t count);
/* Leases so many for what was asked to be sent again or further: 0, or as rp_serve_drop. */
int rp_serve_lease_train(struct rp_call *call, uint32_t count);
/* The table of the message header, or null. */
struct rp_table *rp_serve_table(const struct rp_call *call);
/* Does a body hold exactly `need` bytes, rounded up to 8 and to the least body, the rest zero? 0
 * or -status. */
int rp_serve_exact(const struct rp_view *view, uint64_t need);
/* Takes a request of a known session as coming from its client: 0, or RP_SERVED where its packet
 * number was seen before. Nothing of the session moves before. */
int rp_serve_accept(struct rp_call *call);
/* Ends a request with what its handler returned: counts a refusal, sends the answer that was not
 * sent yet, and draws the SAMPLE that a PUSH was admitted for. A released request may find no room:
 * its client asks again. */
void rp_serve_finish(struct rp_call *call, int result);
/* Counts a refusal under its status. */
void rp_serve_count_refusal(struct rp_server *server, int status);
/* A session's request that is not answered: counted under `reason`, a drop_*; it asks
 * again. Returns RP_SERVED. */
int rp_serve_drop(struct rp_call *call, enum rp_counter reason);
/* May this request go on now? 0: yes, and its place in the queue, if it had one, is given up.
 * -status: never. Else it is held back: the bytes of its BLOCKED answer, which is written. It then
 * stands in the queue, unless another request of its session does. RP_SERVED: a released request
 * that keeps its place; nothing is written. */
int rp_serve_admit(struct rp_call *call, enum rp_wait_kind kind, const struct rp_table *table,
                   const struct rp_asked *asked);
/* Behind the answer to a PUSH that was admitted for a waiting SAMPLE's sake: draws that SAMPLE. */
void rp_serve_pair(struct rp_call *call);
/* Writes the BLOCKED answer and counts it. Returns its bytes. */
int rp_serve_hold(struct rp_call *call, enum rp_wait_kind kind, const struct rp_blocked *blocked);

/* ---- handlers, one per operation ---- */
int rp_serve_hello(struct rp_call *call);
int rp_serve_open(struct rp_call *call);
int rp_serve_echo(struct rp_call *call);
int rp_serve_close(struct rp_call *call);
int rp_serve_ping(struct rp_call *call);
int rp_serve_info(struct rp_call *call);
int rp_serve_writer(struct rp_call *call);
int rp_serve_push(struct rp_call *call);
int rp_serve_sample(struct rp_call *call);
int rp_serve_pull(struct rp_call *call);
int rp_serve_update(struct rp_call *call);
int rp_serve_publish(struct rp_call *call);
int rp_serve_blob(struct rp_call *call);
int rp_serve_stats(struct rp_call *call);
int rp_serve_reset(struct rp_call *call);
int rp_serve_cancel(struct rp_call *call);

/* Draws for a request that may go on now and sends its first train: also for waiting requests.
 * Where its session has no slot for a record it is held back: the bytes of its BLOCKED answer. */
int rp_serve_draw(struct rp_call *call, struct rp_table *table, const struct rp_sample *request);
/* The session's SAMPLE of this id, where it was not drawn, never will be. */
void rp_serve_use_up(struct rp_call *call, uint64_t id);
/* Has the session room for the record of another batch? */
int rp_serve_can_record(const struct rp_server *server, uint32_t session);
/* This SAMPLE of the session is done: nothing is kept of it. */
void rp_serve_sample_done(struct rp_server *server, uint32_t session, uint64_t id);

/* ---- batches as datagrams: serve_batch.c ---- */
/* Datagrams the record's batch is cut into at the session's mtu. */
uint32_t rp_serve_batch_datagrams(const struct rp_call *call, const struct rp_record *record);
/* Sends datagrams [first, first + count) of the batch, fewer where the transmit room ends. */
void rp_serve_batch(struct rp_call *call, const struct rp_record *record, uint32_t first,
                    uint32_t count);

#endif
