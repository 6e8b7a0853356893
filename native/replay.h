/* The public face of the core, for Python (cffi) and for C: a service drives a server, a link
 * drives a client.
 *
 * Read with the parts of wire.h, config.h, meter.h, client.h and transport_zmq.h that stand between
 * the same marks: the binding's declarations are those six headers' marked parts, in that order.
 * Everything here may be called from any thread: each object has one lock, held for one turn or one
 * post at a time. Calls that wait return after RP_SLICE_NS at most, so that the caller can run its
 * signal handlers, but for rp_link_end and the probes, which say so. How long a request may take is
 * its own timeout_ns, counted from its post; then it ends by itself (TIMEOUT, or BLOCKED where the
 * limiter held it back).
 *
 * Statuses are 0 or negative (enum rp_status, negated); RP_PENDING is the one positive status. A
 * link or service in a forked child answers -RP_FORKED and does nothing: its sockets and files were
 * closed in the child by the fork. One that was ended answers -RP_CLOSED. Errors at open are
 * sentences in error[256]. Zero in any option means its default.
 */
#ifndef RP_REPLAY_H
#define RP_REPLAY_H

#include <stdint.h>

#include "client/client.h"
#include "protocol/config.h"
#include "base/crc32c.h"
#include "server/meter.h"
#include "server/server.h"
#include "protocol/status.h"
#include "transport/transport_zmq.h"
#include "protocol/wire.h"

/* [cffi] */
enum rp_drive_limits {
    RP_SLICE_NS = 50000000,  /* how long a waiting call keeps its caller, unless it says more */
    RP_ERROR_BYTES = 256,
    RP_URL_BYTES = 128,
};

struct rp_service;
struct rp_link;

/* ---- names ---- */
const char *rp_version(void);
/* Statuses are 0 .. count-1; rp_status_name(i) is "OK", "TIMEOUT", ... */
int rp_status_count(void);
const char *rp_status_name(int status); /* of its absolute value; "UNKNOWN" where there is none */
const char *rp_status_sentence(int status);
int rp_counter_count(void); /* how many counters, server's and client's alike */
const char *rp_counter_name(int counter);
const char *rp_counter_sentence(int counter);
uint32_t rp_crc32c(uint32_t crc, const void *data, size_t size);

/* ---- a service: region, port, server, and the thread that turns it ---- */
struct rp_service_options {
    /* null: anonymous memory. Else a folder: taken over if it exists, made if not */
    const char *region_path;
    /* 1: a region that is taken over is served only if every stored step is what was written;
     * that reads all of it */
    uint32_t verify;
    uint32_t insecure;        /* 1: may bind an address other hosts can reach, without a key */
    uint32_t busy_poll;       /* 1: its thread never sleeps */
    uint32_t spin_us;         /* how long its thread looks again before it sleeps; 20 */
    int32_t core;             /* 1 + the core its thread is pinned to; 0: not pinned */
    uint32_t receive_bytes;   /* socket buffers asked for; 8 MiB each */
    uint32_t send_bytes;
    /* loopback only: time is counted in turns, so that a run can be repeated bit by bit */
    uint32_t virtual_clock;
    const struct rp_zmq_socket *zmq; /* zmq+tcp only: the bound ROUTER; it outlives the service */
};

/* Region bytes a service of this config takes; 0 with a sentence where it is impossible. mtu and
 * receive_budget may be 0: the url's mtu, or the transport's, and what the port can take. */
uint64_t rp_service_bytes(const struct rp_server_config *config, const char *url, char *error);
/* loopback://NAME, udp://HOST:PORT[?mtu=N], zmq+tcp://HOST:PORT[?mtu=N]; port 0 = any free one.
 * dpdk://HOST:PORT?..., where the object that holds it is (transport_dpdk.h).
 * Returns 0 or a negative status with error. */
int rp_service_open(struct rp_service **service, const struct rp_server_config *config,
                    const char *url, const struct rp_service_options *options, char *error);
/* Bytes of memory that this process may have, and *whose they are: "this machine has", or a control
 * group's. A region in memory that is larger is refused. */
uint64_t rp_memory_most(const char **whose);
int rp_pins(void); /* whether a thread can be pinned to a core on this system */
/* Its own thread from now on; a second start does nothing. */
int rp_service_start(struct rp_service *service);
int rp_service_stop(struct rp_service *service); /* joins the thread; the server keeps its state */
/* One turn by hand; 0 where there is nothing more to do now, or negative. */
int rp_service_turn(struct rp_service *service);
/* The url clients use, port resolved. */
const char *rp_service_address(const struct rp_service *service);
/* Bytes of the region, were all of it used: pages not written yet take no memory. */
uint64_t rp_service_memory(const struct rp_service *service);
/* 1: the region was taken over from a folder. */
int rp_service_attached(const struct rp_service *service);
/* What a region that was taken over got from this configuration, in words; "" if nothing
 * differed. */
const char *rp_service_changes(const struct rp_service *service);
/* Of the draws: the configuration's, or the one the region was made with. */
uint64_t rp_service_seed(const struct rp_service *service);
/* Copies rp_counter_count() numbers. */
int rp_service_counters(struct rp_service *service, uint64_t *counters);
uint32_t rp_service_sessions(struct rp_service *service);
uint64_t rp_service_incarnation(struct rp_service *service);
uint64_t rp_service_weights_version(struct rp_service *service);
/* Everything measured so far, at one moment; 0 where there is nothing. 0, -RP_CLOSED or
 * -RP_FORKED. */
int rp_service_measure(struct rp_service *service, struct rp_measures *measures);
uint64_t rp_service_dropped(struct rp_service *service); /* datagrams the network did not take */
/* Datagrams dropped below the engine, at least: where the transport can know, and a train that the
 * kernel had no room for is one. */
uint64_t rp_service_dropped_in(struct rp_service *service);
/* Null, or a sentence once no client can reach this service again: its network card was taken away.
 * Close it. The sentence is the service's. */
const char *rp_service_lost(struct rp_service *service);
/* Null, or a sentence for the operator of this host, though the service goes on: its interface has
 * another MAC address, another host says it has its address, or its port holds fewer datagrams than
 * it has sessions. The sentence is the service's; a newer one may follow. */
const char *rp_service_remark(struct rp_service *service);
/* Ends it from any thread: other calls under way come to their end, all later ones are answered
 * with -RP_CLOSED or 0; its thread, port and memory are gone when this returns. Twice is fine. */
void rp_service_end(struct rp_service *service);
/* Frees the handle, which no other thread may have any more; ends it first. */
void rp_service_free(struct rp_service *service);
void rp_service_close(struct rp_service *service); /* both, for an only owner; null is fine */

/* ---- a link: port, client, and the thread that drives it: the waiting caller, or its pump ---- */
struct rp_link_options {
    uint32_t mtu;             /* where the url says none; 0: 8960 within this host, else
                                 1400; zmq+tcp: 65504 */
    uint32_t busy_poll;       /* 1: waits never sleep, nor the pump where there are 3 cores */
    uint32_t spin_us;         /* how long a wait looks again before it sleeps; 20 */
    int32_t core;             /* 1 + the core the pump is pinned to; 0: not pinned */
    uint32_t receive_bytes;   /* socket buffers asked for; 8 MiB each */
    uint32_t send_bytes;
    uint32_t requests_max;    /* these: as in rp_client_options, with its defaults */
    uint32_t messages_max;
    uint32_t batch_max;
    uint32_t tables_max;
    uint32_t retry_us_min;
    uint32_t retry_us_max;
    uint64_t connect_timeout_ns; /* 5 s */
    uint64_t seed;            /* of the retry jitter; 0: from the operating system */
    uint32_t unacknowledged_max; /* steps a writer takes beyond those stored; 2 * its window */
    uint32_t unkept;          /* 1: no thread speaks for it while no caller does */
    const struct rp_zmq_socket *zmq; /* zmq+tcp only: the DEALER; it outlives the link */
};

/* What all tables of a link share, and what each has for itself:
 *
 *     datagrams on their way   the server's credit and one window, in turns
 *     tickets                  requests_max; updates that are queued have three quarters at most.
 *                              A batch or blob takes one of 64 slots too; publications go one by
 *                              one
 *     push messages            messages_max, about 4 MiB. Each table's writer has one step's beside
 *                              them, and one for a create: so a limiter that holds one table back
 *                              stops no other, while the steps of all tables together are at most
 *                              as large as those messages. Beyond, the last writer has what is
 *                              left; and creates whose windows are not complete use the share up
 *     streams                  RP_STREAMS_MAX, for the widest writer that each table ever had
 *     the ledger of keys       256 datagrams' worth of steps; the oldest give way, whoever's they
 *                              are. rp_link_keys takes one table's
 *     updates                  a queue of 4 * batch_max keys, applied in the order of posting
 *     steps not acknowledged   each writer's own: unacknowledged_max
 */
/* Opens the port and begins to send HELLO; rp_link_connect drives it on. A wrong url, an unknown
 * transport or host is refused here. A server that does not answer is reported by rp_link_connect.
 */
int rp_link_open(struct rp_link **link, const char *url, const struct rp_link_options *options,
                 char *error);
/* 0: the session is open. RP_PENDING: call again. Negative: why not. */
int rp_link_connect(struct rp_link *link, uint64_t timeout_ns);
/* A thread of the link's own drives it from now on, until stop: posts leave and answers land
 * while the caller does something else. All calls below work alike with and without it. */
int rp_link_start_pump(struct rp_link *link);
int rp_link_stop_pump(struct rp_link *link);
/* Turns once; where that moved nothing, waits for something to move, at most timeout_ns. 1:
 * something moved. */
int rp_link_drive(struct rp_link *link, uint64_t timeout_ns);
/* Ends it from any thread: other calls under way end with -RP_CLOSED, as all later ones will. It
 * always sends CLOSE, waits at most timeout_ns for the answer, and stops the pump. Once a call has
 * ended so, its landing, blob or result memory is not touched any more. Twice is fine; who comes
 * while another one ends it does not wait. */
void rp_link_end(struct rp_link *link, uint64_t timeout_ns);
/* Frees the handle, which no other thread may have any more; ends it first. */
void rp_link_free(struct rp_link *link);
void rp_link_close(struct rp_link *link, uint64_t timeout_ns); /* both, for an only owner in C */

/* For callers in C. 1 open, 0 opening, negative: why not. */
int rp_link_state(struct rp_link *link);
int rp_link_counters(struct rp_link *link, uint64_t *counters);
int rp_link_limits(struct rp_link *link, struct rp_opened *limits);
uint64_t rp_link_incarnation(struct rp_link *link);
uint64_t rp_link_session(struct rp_link *link); /* for callers in C */
uint64_t rp_link_weights_version(struct rp_link *link); /* the newest that any answer named */
uint32_t rp_link_mtu(struct rp_link *link);
/* Datagrams the network did not take; for callers in C. */
uint64_t rp_link_dropped(struct rp_link *link);
/* What this end's transport counts of itself: facts[RP_FACTS_MAX]; returns how many. */
uint32_t rp_link_own_facts(struct rp_link *link, struct rp_fact *facts);

/* ---- tickets ----
 * RP_PENDING after timeout_ns (RP_SLICE_NS at most): call again. Else the request has ended: its
 * status; the ticket is freed. *blocked (may be null) says, whatever the status, what the limiter
 * waited for when it last held this request back; zeros: it never did. */
int rp_link_wait(struct rp_link *link, int ticket, uint64_t timeout_ns, struct rp_blocked *blocked);
/* The same without waiting or freeing, for callers in C. */
int rp_link_poll(struct rp_link *link, int ticket);
/* Frees it, ended or not: the memory it was to fill is the caller's again. */
void rp_link_take(struct rp_link *link, int ticket);

/* ---- requests: a ticket (> 0), or -RP_FULL, -RP_BAD_ARGUMENT, ...; see client.h for each ---- */
int rp_link_table(struct rp_link *link, const char *name, struct rp_table_info *info,
                  uint64_t timeout_ns);
int rp_link_table_number(struct rp_link *link, uint16_t table, struct rp_table_info *info,
                         uint64_t timeout_ns);
/* A writer that is asked for again has in the same session the streams that it was granted first.
 * In a later session it may have more: it gets a larger place in the link then, and the smaller one
 * is used up. All places of a link have RP_STREAMS_MAX streams together, so that ever wider writers
 * end with -RP_FULL: begin with the widest. */
int rp_link_writer(struct rp_link *link, const struct rp_table_info *info, uint16_t streams,
                   struct rp_writer_granted *granted, uint64_t timeout_ns);
/* timeout_ns 0: one answer is waited for; where the limiter holds the batch back it ends BLOCKED at
 * once. */
int rp_link_sample(struct rp_link *link, uint16_t table, const struct rp_sample *request,
                   const uint64_t *keys, const struct rp_landing *landing, uint64_t timeout_ns);
/* For callers in C: one request of as many keys as rp_link_update_room says. Python queues them. */
int rp_link_update(struct rp_link *link, uint16_t table, uint64_t epoch, const uint64_t *keys,
                   const double *priorities, uint32_t count, struct rp_updated *result,
                   uint64_t timeout_ns);
uint32_t rp_link_update_room(struct rp_link *link);
/* Queues new priorities: no ticket, results add up in rp_link_update_state. Returns how many keys
 * were taken; 0: the queue stayed full for patience_ns (RP_SLICE_NS at most), call again; or a
 * negative status. Each request gives up timeout_ns after its post. */
int rp_link_update_queue(struct rp_link *link, uint16_t table, uint64_t epoch,
                         const uint64_t *keys, const double *priorities, uint32_t count,
                         uint64_t timeout_ns, uint64_t patience_ns);
int rp_link_update_state(struct rp_link *link, struct rp_update_state *state);
/* Drives until no queued update is under way: 0, or RP_PENDING (call again). */
int rp_link_update_settle(struct rp_link *link, uint64_t timeout_ns);
int rp_link_publish(struct rp_link *link, const uint8_t *bytes, uint64_t size, uint64_t *version,
                    uint64_t timeout_ns);
int rp_link_blob(struct rp_link *link, uint16_t kind, uint16_t table, uint64_t wanted,
                 uint8_t *target, uint64_t capacity, uint64_t *size, uint64_t *version,
                 uint64_t timeout_ns);
int rp_link_stats(struct rp_link *link, uint64_t *counters, uint32_t *sessions,
                  uint64_t timeout_ns);
/* What the server's transport counts of itself: facts[RP_FACTS_MAX], *count of them. */
int rp_link_facts(struct rp_link *link, struct rp_fact *facts, uint32_t *count,
                  uint64_t timeout_ns);
int rp_link_reset(struct rp_link *link, uint16_t table, uint64_t epoch, uint64_t *new_epoch,
                  uint64_t timeout_ns);
int rp_link_ping(struct rp_link *link, uint64_t timeout_ns);

/* ---- whole calls: posted, waited for and landed in one ----
 *
 * The memory of a batch is the caller's, unmoved while its ticket is under way:
 *
 *     struct rp_place | its columns | gap | slab: arrays, their offsets as the shape says
 *
 * The slab starts at the next multiple of RP_SLAB_ALIGNMENT. */
enum { RP_SLAB_ALIGNMENT = 64 };
struct rp_shape { /* of the batches of one plan and size, made once; what it names outlives it */
    const struct rp_landing_column *columns; /* their targets are offsets in the slab */
    uint32_t column_count;
    uint32_t item_bytes;
    uint32_t count;    /* items */
    uint32_t consumes; /* as in rp_landing */
    uint64_t keys, masses, behind, ahead, totals, drawables, ages, valid; /* offsets of [count] */
    uint64_t probabilities, weights;
};
struct rp_place {
    struct rp_landing landing;
    double *probabilities; /* [count]: (1-u) mass/total + u/N; 0 where the item is not valid */
    float *weights;        /* [count]: (N times that)^-beta over the largest; 0 where that is 0 */
    uint32_t count;
    int32_t ticket;            /* of the draw under way; 0: none is; below: the place is shut */
    struct rp_blocked blocked; /* as in rp_link_wait, of the last look at it */
    struct rp_landing_column columns[];
};
struct rp_draw { /* a kind of draw, made once */
    const struct rp_shape *shape;
    struct rp_sample request;
    uint64_t incarnation; /* of the server it was made for; at another one it is -RP_STALE_EPOCH */
    double uniform;       /* the request's, as a number */
    uint16_t table;
};
/* Room for a batch of this shape, its slab being so large; memory starts at a multiple of 8. */
uint64_t rp_place_bytes(const struct rp_shape *shape, uint64_t slab_bytes);
/* Lays the place out; returns where the slab starts, in bytes from `place`. */
uint32_t rp_place_lay(struct rp_place *place, const struct rp_shape *shape);
/* After the landing: probabilities and weights. */
void rp_place_weigh(const struct rp_place *place, double uniform, double beta);

/* Draws into a place that is laid out: posts where place->ticket is 0, then waits, patience_ns
 * (RP_SLICE_NS at most). RP_PENDING: call again; where place->ticket is 0 then, the queue is full.
 * Else it has ended, and what landed is weighed. The rest is as in rp_link_sample. */
int rp_link_draw(struct rp_link *link, const struct rp_draw *draw, const uint64_t *keys,
                 double beta, struct rp_place *place, uint64_t timeout_ns, uint64_t patience_ns);
/* Posts alone: RP_PENDING, or why not. rp_link_draw goes on from there. */
int rp_link_draw_post(struct rp_link *link, const struct rp_draw *draw, struct rp_place *place,
                      uint64_t timeout_ns);
/* Gives up the draw and its memory, from any thread, and shuts the place: nothing is posted for it
 * any more. Another thread's call that is under way ends with -RP_CLOSED, and so do later ones. Of
 * a link that has ended, the memory is the caller's once that call has returned. */
void rp_link_draw_shut(struct rp_link *link, struct rp_place *place);

struct rp_setting { /* new priorities on their way, all zero before the first call */
    uint32_t done;  /* keys whose requests have ended */
    uint32_t part;  /* keys of the request under way */
    int32_t ticket; /* as in struct rp_place */
    uint32_t applied, stale, unknown; /* so far; keys of an epoch that is gone are stale */
    struct rp_updated answer;
    double largest; /* of all the priorities */
};
/* Sets priorities [count], as many at once as there is room for; none of them where one is wrong.
 * -RP_STALE_EPOCH: the server is another incarnation. The rest is as in rp_link_draw. */
int rp_link_set(struct rp_link *link, uint64_t incarnation, uint16_t table, uint64_t epoch,
                const uint64_t *keys, const double *priorities, uint32_t count,
                struct rp_setting *setting, uint64_t timeout_ns, uint64_t patience_ns);
/* The first of these that is no priority: NaN, infinite or below 0; count: there is none. */
uint32_t rp_priorities_usable(const double *priorities, uint32_t count);
/* The first of these that is above the bound; count: none is. */
uint32_t rp_priorities_above(const double *priorities, uint32_t count, double bound);

/* ---- whether what is about to be written is finite ---- */
struct rp_float_column { /* of a record */
    uint32_t offset; /* bytes from the record's start */
    uint32_t count;  /* numbers */
    uint32_t width;  /* bytes of one: 2, 4 or 8 */
};
struct rp_floats { /* the caller's; records lie in groups, such as the streams of one step */
    const uint8_t *records;
    const struct rp_float_column *columns;
    uint32_t record_bytes;
    uint32_t group; /* records */
    uint32_t column_count;
};
/* 1: the columns of all records of this group hold neither NaN nor infinity. */
int rp_floats_finite(const struct rp_floats *floats, uint64_t group);

/* ---- measuring a link: the same work over any transport (`bench --ladder`) ----
 * A put is `batch` steps pushed as items, in a table that holds steps of one column of `bytes`, its
 * writer open with one stream; a get is a sample of `batch` such items. What comes back is checked:
 * all of it, out of the time, where latency is measured; first and last word for a rate. */
enum rp_probe_work { RP_PROBE_PUT = 1, RP_PROBE_GET = 2 };
struct rp_probe {
    uint32_t work;  /* enum rp_probe_work */
    uint32_t bytes; /* of a step: a multiple of 8, at least 16 */
    uint32_t batch; /* steps or items of one call */
    uint32_t depth; /* gets under way at once for a rate, 8 at most */
    uint16_t table;
    uint16_t reserved;
    uint64_t patience_ns; /* a call that takes longer ends the measurement with its status */
    uint64_t next;        /* number of the next step; counts on from call to call */
    uint8_t *memory;      /* the caller's: batch * bytes, times depth where gets make a rate */
    uint64_t done;        /* result: steps stored or items landed */
    uint64_t spent_ns;    /* result: in calls; for a rate, until the last answer */
    uint64_t wrong;       /* result: items that were not a step that was put */
};
/* One call after the other until `count` were made or limit_ns passed; ns each in call_ns[count].
 * Returns how many, or a negative status. Keeps its caller for limit_ns and one call. */
int rp_link_probe_latency(struct rp_link *link, struct rp_probe *probe, uint32_t *call_ns,
                          uint32_t count, uint64_t limit_ns);
/* As much as the link takes for limit_ns, all of it answered at the end. 0 or a negative status. */
int rp_link_probe_rate(struct rp_link *link, struct rp_probe *probe, uint64_t limit_ns);

/* ---- pushing: no tickets ----
 * Each returns how many were taken, all copied: at least one, but perhaps not all, where the queue
 * has little room; 0 where it stayed full for timeout_ns (RP_SLICE_NS at most). Call again with the
 * rest. Or a negative status. 0 as timeout_ns: never waits. Full datagrams leave at once, others
 * with rp_link_flush or when they fill. */
int rp_link_push(struct rp_link *link, uint16_t table, uint16_t stream, const uint8_t *steps,
                 uint32_t count, uint32_t flags, const double *priorities, uint64_t timeout_ns);
/* Some steps of all streams, in the caller's memory. A step's rows go first, by stream; then its
 * closing rows; then, where items[step] is set, items at the largest priority so far for anchors
 * whose window is complete: `reach` rows follow, or the episode has ended. Lengths and numbers
 * begin as 0 with the writer and, like the place reached, are kept here by the calls. */
enum rp_block_marks {
    RP_BLOCK_ROW = 1, /* this stream took a step */
    RP_BLOCK_END = 2, /* its episode ended, behind that: the next of the closing rows is its */
};
struct rp_block {
    const uint8_t *rows;     /* [steps][streams][step_bytes] */
    const uint8_t *closings; /* [E][step_bytes], in the order of the marks */
    const uint8_t *marks;    /* [steps][streams] */
    const uint8_t *items;    /* [steps] */
    uint64_t *next_steps;    /* [streams] number of the next row, closing rows included */
    uint32_t *lengths;       /* [streams] rows of the open episode */
    uint32_t streams;
    uint32_t step_bytes;
    uint32_t reach;
    uint32_t steps;    /* how many there are */
    uint32_t finished; /* items of the steps before this one are posted */
    uint32_t step;     /* the place reached, 0 at first */
    uint32_t stream;
    uint32_t phase;    /* 0 rows, 1 closing rows, 2 items */
    uint32_t closing;
    uint32_t item;
};
/* Takes what there is room for; 0: all of it, RP_PENDING: call again, or a negative status. */
int rp_link_push_block(struct rp_link *link, uint16_t table, struct rp_block *block,
                       uint64_t timeout_ns);
/* An item at step steps[i] of stream streams[i]; priorities null: the table's largest so far. Best
 * once its window is complete: until then it keeps a message of the writer's share, and is asked
 * for again by time alone. */
int rp_link_create(struct rp_link *link, uint16_t table, const uint16_t *streams,
                   const uint64_t *steps, const double *priorities, uint32_t count,
                   uint64_t timeout_ns);
/* Lets what is being filled leave now. */
int rp_link_flush(struct rp_link *link, uint16_t table);
/* Flushes, then drives until nothing of the table's is unanswered. 0, RP_PENDING (call again),
 * or the status that ended the writer. */
int rp_link_settle(struct rp_link *link, uint16_t table, uint64_t timeout_ns);
int rp_link_push_state(struct rp_link *link, uint16_t table, struct rp_push_state *state);
/* How many keys of acknowledged steps were taken, or a negative status. */
int rp_link_ledger(struct rp_link *link, struct rp_push_key *keys, uint32_t count);
/* Keys of the table's steps first .. first + count - 1, of one stream, go from the ledger to
 * keys[step - first]. Earlier steps of the table are dropped; later ones, and other tables', stay.
 * Returns how many were written, or a negative status. */
int rp_link_keys(struct rp_link *link, uint16_t table, uint64_t first, uint64_t *keys,
                 uint32_t count);
int rp_link_loss(struct rp_link *link, uint16_t table, uint64_t *stored_through,
                 uint64_t *in_doubt, uint64_t *lost);
/* [/cffi] */

#endif
