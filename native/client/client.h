/* The client's state machine: requests posted, datagrams and the time in, datagrams out. It
 * drives all reliability: it numbers, repeats, backs off and gives up; the server only answers
 * (PROTOCOL.md, sections 1 to 5).
 *
 * A request is posted and gets a ticket (> 0); turns move it; rp_client_poll returns how it ended;
 * rp_client_take frees the ticket. Memory for steps is copied at post. Memory for answers (landing,
 * blobs, keys) belongs to the caller; turns write to it until the ticket has ended. All queues are
 * bounded: a post that finds no room returns -RP_FULL and changes nothing. One thread owns a
 * client. The engine allocates nothing.
 *
 * Lost server: on UNKNOWN_SESSION the client opens a new session by itself. Requests that change
 * nothing (sample, pull, table, blob, stats) go on. Pushes, creates and updates under way end with
 * RP_SERVER_RESTARTED (the incarnation changed) or RP_SESSION_EXPIRED. So does every later push,
 * until rp_client_writer is called again. A publication under way ends with RP_SESSION_EXPIRED,
 * since it may have been made; where the server is another one it is made there.
 * rp_client_loss says how many steps were stored, in doubt, and lost.
 */
#ifndef RP_CLIENT_H
#define RP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/status.h"
#include "transport/transport.h"
#include "protocol/wire.h"

struct rp_client;

/* With its eighth of jitter: a request that waits is repeated within a second (PROTOCOL.md 5). */
enum { RP_RETRY_US_MAX = 800000 };

/* [cffi] */
struct rp_client_options {
    uint32_t mtu;                /* the port's */
    uint32_t receive_budget;     /* datagrams the port can take in one go */
    uint32_t requests_max;       /* tickets at once, pushes not counted; 64 */
    /* push datagrams unanswered; about 4 MiB: one largest step. Where others hold all of them, a
     * table's writer takes a step's more: together as many again, at most */
    uint32_t messages_max;
    uint32_t batch_max;          /* items of the largest batch this client will ask for; 4096 */
    uint32_t tables_max;         /* tables used at once; 16 */
    uint32_t retry_us_min;       /* first repeat before a round trip was measured; 20000 */
    uint32_t retry_us_max;       /* back-off bound; RP_RETRY_US_MAX */
    uint64_t connect_timeout_ns; /* HELLO and OPEN give up after this */
    uint64_t nonce;              /* random; names the session while it opens */
    uint64_t seed;               /* jitter */
    /* steps one table's writer may have taken beyond those stored; 2 * its window */
    uint32_t unacknowledged_max;
};

struct rp_landing_column { /* where one pick of an item goes: target + item * stride */
    uint8_t *target;
    uint64_t stride; /* bytes between items; steps of one column lie back to back inside it */
    uint32_t item_offset; /* bytes from the start of the item as sent */
    uint32_t size;        /* bytes */
};

/* Owned by the caller, unmoved until the ticket has ended. Columns rise by item_offset and do not
 * overlap; what no column names is not landed. */
struct rp_landing {
    const struct rp_landing_column *columns;
    uint32_t column_count;
    uint32_t item_bytes; /* of the plan, as the table's info says */
    uint32_t consumes;   /* 1: of a queue, whose items are drawn once, none in place of another */
    uint64_t *keys;      /* [count] each of these; may be null */
    uint64_t *masses;
    uint16_t *behind;
    uint16_t *ahead;
    uint64_t *totals; /* mass and N at each item's draw (redraws are draws of their own) */
    uint32_t *drawables;
    uint64_t *ages; /* steps inserted since the item's step, at its draw */
    uint8_t
        *valid; /* 0 where the item was overwritten and could not be drawn again (SHORT_BATCH) */
};

struct rp_update_state { /* what has become of queued updates since the client was opened */
    uint64_t posted;   /* keys taken */
    uint64_t finished; /* keys of requests that have ended, well or not */
    uint64_t applied;
    uint64_t stale;
    uint64_t unknown;
    uint64_t failed; /* keys of requests that ended with a status */
    int32_t status;  /* of the first that did since it was last asked; 0: none */
    uint32_t reserved;
};

struct rp_push_key { /* one acknowledged step, as it left the ledger */
    uint64_t step;
    uint64_t key;
    uint32_t stream;
    uint32_t table;
};

struct rp_push_state { /* what a table's writer has done so far */
    uint64_t steps_posted;
    uint64_t steps_stored; /* acknowledged */
    uint64_t items_posted;
    uint64_t items_created; /* answered OK or EXISTS */
    /* Answered otherwise: closing rows; items overwritten before they were created; items that were
     * made, whose answer was lost, and that were overwritten before a repeat asked. */
    uint64_t items_failed;
    uint64_t steps_resent;  /* lost their place before commit; sent under new sequences */
    uint64_t messages_open; /* datagrams not yet finished */
    uint64_t need;  /* items to be drawn before a blocked writer may go on; 0 = not blocked */
    int32_t status; /* 0, or the negative status that ended the writer */
    uint32_t window;
    uint64_t unacknowledged;     /* steps_posted - steps_stored <= unacknowledged_max */
    uint64_t unacknowledged_max; /* as chosen, or 2 * window */
    uint32_t blocked;            /* 1: the limiter holds it back now: need > 0 */
    uint32_t reserved;
};
/* [/cffi] */

/* ---- life ---- */
size_t rp_client_bytes(const struct rp_client_options *options, char error[256]);
/* memory: of any content; most of it is not touched before it is used. */
int rp_client_open(struct rp_client **client, void *memory, size_t bytes,
                   const struct rp_client_options *options, const struct rp_peer *server,
                   uint64_t now_ns, char error[256]);
/* One turn: receives a burst, moves requests on, sends what is due. Returns datagrams received
 * plus sent. */
uint32_t rp_client_turn(struct rp_client *client, struct rp_port *port, uint64_t now_ns);
/* The sending half of a turn: what was just posted leaves without a look at what has come. Returns
 * datagrams sent. */
uint32_t rp_client_send(struct rp_client *client, struct rp_port *port, uint64_t now_ns);
/* When the next timer is due (ns, the clock of the turns); UINT64_MAX if none. */
uint64_t rp_client_deadline(const struct rp_client *client);
/* 1 = session open, 0 = opening, negative = why not (TIMEOUT, NO_SESSION_FREE, BAD_VERSION,
 * CLOSED). */
int rp_client_state(const struct rp_client *client);
const uint64_t *rp_client_counters(const struct rp_client *client);
uint64_t rp_client_incarnation(const struct rp_client *client);
uint64_t rp_client_session(const struct rp_client *client);
uint64_t rp_client_weights_version(
    const struct rp_client *client);                    /* the newest that any answer named */
uint32_t rp_client_mtu(const struct rp_client *client); /* agreed; 0 before open */
void rp_client_limits(const struct rp_client *client, struct rp_opened *limits);
void rp_client_check(const struct rp_client *client);

/* ---- tickets ---- */
/* RP_PENDING (positive) while under way; RP_OK (0) or a negative status once ended. */
int rp_client_poll(const struct rp_client *client, int ticket);
/* Limiter detail of a ticket that waits or timed out: items needed, by minimum size or limiter.
 */
void rp_client_blocked(const struct rp_client *client, int ticket, struct rp_blocked *blocked);
/* Frees the ticket, ended or not; a request under way is abandoned (its late answers are counted
 * and dropped). */
void rp_client_take(struct rp_client *client, int ticket);

/* ---- requests ----
 * Each returns a ticket (above 0) or a negative status. Every one: -RP_FULL, no ticket is free or
 * too much is under way; -RP_CLOSED, rp_client_close was called; what ended the session, if one
 * ended. Besides: -RP_BAD_ARGUMENT, an argument that cannot be; -RP_BATCH_TOO_LARGE (sample);
 * -RP_BAD_PRIORITY (update); -RP_TOO_LARGE (publish). */
/* name: zero-terminated. info is written when the ticket ends well. A writer that is asked for
 * again goes on where it is, with the streams that it has. One that a refusal ended, behind steps
 * that the server took, gets no successor in its session: -RP_BAD_STEP. */
int rp_client_table(struct rp_client *client, const char *name, struct rp_table_info *info,
                    uint64_t deadline_ns);
int rp_client_table_number(struct rp_client *client, uint16_t table, struct rp_table_info *info,
                           uint64_t deadline_ns);
int rp_client_writer(struct rp_client *client, const struct rp_table_info *info, uint16_t streams,
                     struct rp_writer_granted *granted, uint64_t deadline_ns);
/* Draws request->count items (mode, plan, uniform as given; epoch 0 = any) and lands them. Items
 * overwritten on the way are asked for again, twice at most, then SHORT_BATCH. A blocked request
 * waits until deadline_ns, then -RP_BLOCKED, or -RP_FULL where this client's other batches held it
 * back. Where deadline_ns <= the turn's time only one answer is waited for, and a
 * blocked request ends at once. keys: only for RP_SAMPLE_KEYS, request->count of them, any number
 * (cut into datagrams here). They are the caller's, unmoved until the ticket has ended. A key whose
 * step is not stored lands as not valid, and the batch is a SHORT_BATCH. */
int rp_client_sample(struct rp_client *client, uint16_t table, const struct rp_sample *request,
                     const uint64_t *keys, const struct rp_landing *landing,
                     uint64_t deadline_ns);
/* Of a key that comes twice the last priority counts; that is settled here, before cutting into
 * datagrams. Copied at post: at most rp_client_update_room entries now. result sums over the
 * datagrams; may be null. */
int rp_client_update(struct rp_client *client, uint16_t table, uint64_t epoch,
                     const uint64_t *keys, const double *priorities, uint32_t count,
                     struct rp_updated *result, uint64_t deadline_ns);
uint32_t rp_client_update_room(const struct rp_client *client);
/* The same without a ticket: it cannot be waited for by itself. Returns how many of the keys were
 * taken, 0 where the queue is full, or a negative status. Queued updates have three quarters of the
 * tickets at most. */
int rp_client_update_queue(struct rp_client *client, uint16_t table, uint64_t epoch,
                           const uint64_t *keys, const double *priorities, uint32_t count,
                           uint64_t deadline_ns);
void rp_client_update_state(struct rp_client *client, struct rp_update_state *state);
int rp_client_update_busy(const struct rp_client *client); /* 1: queued ones are under way */
/* bytes stays the caller's, unmoved until the ticket has ended; *version is what the server gave
 * it. */
int rp_client_publish(struct rp_client *client, const uint8_t *bytes, uint64_t size,
                      uint64_t *version, uint64_t deadline_ns);
/* The same, where the caller has summed the bytes (rp_crc32c from 0): 1 GiB takes 0.1 s. */
int rp_client_publish_summed(struct rp_client *client, const uint8_t *bytes, uint64_t size,
                             uint32_t crc, uint64_t *version, uint64_t deadline_ns);
/* kind RP_BLOB_SPEC (of table) or RP_BLOB_WEIGHTS (version 0 = newest). At most `capacity` bytes
 * land in target, else -RP_TOO_LARGE and *size. */
int rp_client_blob(struct rp_client *client, uint16_t kind, uint16_t table, uint64_t wanted,
                   uint8_t *target, uint64_t capacity, uint64_t *size, uint64_t *version,
                   uint64_t deadline_ns);
/* counters: RP_COUNTER_COUNT numbers of the server's, missing ones 0. */
int rp_client_stats(struct rp_client *client, uint64_t *counters, uint32_t *sessions,
                    uint64_t deadline_ns);
/* facts[RP_FACTS_MAX]: what the server's transport counts of itself, *count of them. */
int rp_client_facts(struct rp_client *client, struct rp_fact *facts, uint32_t *count,
                    uint64_t deadline_ns);
int rp_client_reset(struct rp_client *client, uint16_t table, uint64_t epoch, uint64_t *new_epoch,
                    uint64_t deadline_ns);
int rp_client_ping(struct rp_client *client, uint64_t deadline_ns);
int rp_client_close(struct rp_client *client,
                    uint64_t deadline_ns); /* sends CLOSE; best effort, bounded */
/* The network is lost: requests that wait, and those posted from now on, end with `status`. */
void rp_client_end(struct rp_client *client, int status);

/* ---- pushing: no tickets; progress by rp_client_push_state ---- */
/* Appends `count` consecutive steps of a stream, step_bytes each, to the datagram being filled;
 * copied. Whole steps go into runs; a step larger than a datagram is cut into pieces. flags:
 * RP_RUN_END (the last step closes the episode), RP_RUN_ITEM, RP_RUN_PRIORITY with
 * priorities[count]. Returns how many steps were taken, or a negative status. Fewer than count were
 * taken where the queue is full or unacknowledged_max is reached: take turns, then go on with the
 * rest. END is applied with the last step. */
int rp_client_push(struct rp_client *client, uint16_t table, uint16_t stream,
                   const uint8_t *steps, uint32_t count, uint32_t flags,
                   const double *priorities);
/* Creates an item at the step numbered `step` of the stream (0, 1, 2 ... in order of
 * rp_client_push). Call it once all rows of the item's window were pushed: a create that comes
 * earlier is repeated by time alone, and the ring may come round before. It goes into the datagram
 * being filled, or a later one. flags: RP_CREATE_MAXIMUM. 0, -RP_FULL, -RP_BAD_ARGUMENT,
 * -RP_BAD_PRIORITY, -RP_BAD_STREAM, -RP_NOT_A_WRITER, or what ended the writer. */
int rp_client_create(struct rp_client *client, uint16_t table, uint16_t stream, uint64_t step,
                     double priority, uint32_t flags);
/* Lets the datagram being filled leave at the next turn, full or not. */
void rp_client_flush(struct rp_client *client, uint16_t table);
void rp_client_push_state(const struct rp_client *client, uint16_t table,
                          struct rp_push_state *state);
/* Takes up to `count` acknowledged (stream, step, key) triples, oldest first; the steps of one
 * stream in their order. The ledger keeps the newest 256 datagrams' worth and forgets older ones
 * that were not taken. */
uint32_t rp_client_ledger(struct rp_client *client, struct rp_push_key *keys, uint32_t count);
/* Moves the keys of the table's steps first .. first + count - 1, of one stream, from the ledger to
 * keys[step - first]; returns how many. Earlier steps of the table are dropped. Later ones, and
 * those of other tables, stay: they may be of a call that began since. */
uint32_t rp_client_keys(struct rp_client *client, uint16_t table, uint64_t first, uint64_t *keys,
                        uint32_t count);
/* After SERVER_RESTARTED or SESSION_EXPIRED: steps surely stored, in doubt (sent, unanswered),
 * never sent. */
void rp_client_loss(const struct rp_client *client, uint16_t table, uint64_t *stored_through,
                    uint64_t *in_doubt, uint64_t *lost);

#endif
