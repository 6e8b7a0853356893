/* The client's inside, shared by its files only. One idea per file:
 *
 *     client.c          life, the turn on one screen, receiving
 *     client_time.c     the heap of timers, and the flights (datagrams that wait for an answer)
 *     client_credit.c   credit, the window, the round-trip timer
 *     client_out.c      leasing, filling, sealing; which sender is next
 *     client_session.c  HELLO, OPEN, ECHO, PING; the lost server
 *     client_request.c  tickets, and the requests of one datagram
 *     client_fetch.c    many datagrams of one thing: which came, which to ask for
 *     client_sample.c   batches: rounds, redraws; client_land.c where their bytes go
 *     client_records.c  until when the server keeps them
 *     client_update.c   priorities, in order; client_blob.c blobs; client_publish.c weights
 *     client_check.c    every invariant, asserted
 *     client_push.c     posting steps and creates, the ledger
 *     client_message.c  the states of a message; client_pushed.c their answers
 *     client_repair.c   lost places
 *
 * A flight is one datagram under way. It has a timer. Its answer ends it, or else its timer, and
 * then its owner decides what to send. A sender is a ticket, a writer or the queue of updates with
 * something to send; senders stand in one list, round robin. All memory lies behind struct
 * rp_client in the caller's block. Pointers lead out of it only to memory that the caller lent.
 *
 *     in_flight == flights alive <= flights_max         expected == sum over flights of left
 *     a timer is in the heap  <=>  its position > 0
 *     a ticket that ended has no flight, sender or timer
 */
#ifndef RP_CLIENT_STATE_H
#define RP_CLIENT_STATE_H

#include "client/client.h"
#include "protocol/flow.h"
#include "base/random.h"

enum client_limits {
    CLIENT_UPDATES_MAX = 16,        /* update datagrams in flight */
    CLIENT_PIECES_MAX = 32,         /* pieces of a publication in flight */
    CLIENT_AHEAD_MAX = 1 << 16,     /* datagrams of one thing that are told apart; a power of two */
    CLIENT_COLUMNS_MAX = 64,        /* of a landing, after adjacent ones were merged */
    CLIENT_FETCHES_MAX = 64,        /* batches and blobs under way */
    CLIENT_RESTARTS_MAX = 3,        /* times a forgotten batch or a replaced blob is begun again */
    CLIENT_REDRAWS_MAX = 2,         /* rounds for items that were overwritten on their way */
    CLIENT_MOVES_MAX = 128,         /* local ports tried in a row; with 16 queues 1 in 4000 fails */
    CLIENT_RANGES_MAX = 256,        /* runs of one datagram the ledger has room for */
    CLIENT_LEDGER_DATAGRAMS = 256,  /* and so many datagrams' worth of them */
    CLIENT_WANT_MIN = 16,
};
enum { CLIENT_NONE = 0xFFFF };
#define CLIENT_MS 1000000ull
#define CLIENT_CANCELS_MAX 64 /* one more is not sent, as if it were lost */
#define CLIENT_REASK_NS (500 * CLIENT_MS) /* notes at the server can be lost with it */
#define CLIENT_BUSY_NS (50 * CLIENT_MS)
#define CLIENT_LAST_LOOK_NS (1000 * CLIENT_MS) /* what a queue's draw may take beyond its time */
#define CLIENT_PROBES_SILENT 3 /* unanswered repeats after which it counts as blocked no more */
#define CLIENT_UNASSIGNED UINT64_MAX /* a run that has no sequence yet */
#define CLIENT_SEQUENCE_MAX (UINT64_MAX / 2) /* granted at most: no sequence ever reaches it */

enum client_timer_kind {
    TIMER_FLIGHT,   /* index: flight */
    TIMER_DEADLINE, /* ticket */
    TIMER_AGAIN,    /* ticket: blocked or busy, ask again */
    TIMER_MESSAGE,  /* message: answered, but not finished */
    TIMER_WRITER,   /* writer: blocked, ask again */
    TIMER_HANDSHAKE,
    TIMER_CONNECT,
    TIMER_KEEPALIVE,
};

struct client_timer {
    uint64_t due_ns;
    uint32_t position; /* in the heap, from 1; 0 = not set */
    uint16_t kind;
    uint16_t index;
};

enum client_owner { OWNER_TICKET, OWNER_MESSAGE, OWNER_UPDATE };

struct client_flight {
    struct client_timer timer;
    uint64_t sent_ns;
    uint64_t id;
    uint32_t first; /* fetches: datagrams [first, first + count); publications: the piece */
    uint32_t count;
    uint32_t left;  /* answers still expected */
    uint16_t next;  /* of the same owner, or of the free list */
    uint16_t owner; /* index */
    uint8_t kind;   /* enum client_owner */
    uint8_t used;
};

enum client_sending { SEND_NOTHING, SEND_DONE, SEND_WAIT };
enum client_sender_kind { SENDER_TICKET, SENDER_WRITER, SENDER_UPDATES };

struct client_sender {
    struct client_sender *next, *previous;
    uint16_t index;
    uint8_t kind;
    uint8_t listed;
};

struct client_fetch {   /* many datagrams of one thing; see client_fetch.c */
    uint64_t *received; /* bitmap: a ring over [base, base + CLIENT_AHEAD_MAX) */
    uint64_t *asked;    /* bitmap: received, or part of a flight */
    uint32_t base;      /* a multiple of 64; all below were received */
    uint32_t count;
    uint32_t received_count;
    uint32_t cursor; /* nothing below it is unasked */
};

struct client_sample {
    struct rp_landing landing; /* the columns it points to stay the caller's */
    const uint64_t *keys;
    struct rp_sample request; /* of the whole; a round's count differs */
    struct rp_batch head;     /* of the round, as received */
    uint64_t *holes;          /* bitmap over the items of the round: overwritten */
    uint32_t *map;            /* a redraw's item i lands at map[i] */
    struct rp_landing_column *columns; /* the slot's */
    uint32_t column_count; /* 0: too many, the landing's own are used */
    uint32_t first_item;   /* a round without map: item i lands at first_item + i */
    uint32_t round_count;
    uint32_t first_budget; /* datagrams its first train was to have; 0: it was not sent yet */
    uint32_t words;
    uint32_t payload;
    uint64_t bytes;
    uint16_t asked_packet; /* that carried the last question: the low bits of its number */
    uint8_t mapped;
    uint8_t drawn; /* an answer with data has come */
    uint8_t redraws;
    uint8_t restarts;
    uint8_t short_batch;
};

/* The place in the whole batch of an item of the round. */
static inline uint32_t client_sample_position(const struct client_sample *sample, uint32_t item) {
    return sample->mapped ? sample->map[item] : sample->first_item + item;
}

struct client_blob {
    uint8_t *target;
    uint64_t capacity;
    uint64_t *size_out;
    uint64_t *version_out;
    uint64_t wanted;
    uint64_t version;
    uint64_t size;
    uint64_t summed; /* bytes, from the first */
    uint32_t sum;    /* of these */
    uint32_t crc;
    uint16_t kind;
    uint8_t known; /* the first datagram has come, with version, size and crc */
    uint8_t restarts;
};

struct client_publish {
    const uint8_t *bytes;
    uint64_t size;
    uint64_t *version_out;
    uint32_t crc;
    uint32_t piece;
    uint8_t restarts;
    uint8_t begun;
    uint8_t waits; /* BUSY */
};

struct client_slot { /* what a ticket of many datagrams needs */
    struct client_fetch fetch;
    struct client_sample sample;
    struct rp_landing_column columns[CLIENT_COLUMNS_MAX];
    uint16_t next_free;
};

struct client_ticket {
    struct client_sender sender;
    struct client_timer deadline;
    struct client_timer again;
    uint64_t id;
    struct rp_blocked blocked;
    int32_t status;
    uint16_t serial;
    uint16_t table;
    uint16_t flights; /* list */
    uint16_t flight_count;
    uint16_t slot;
    uint16_t next; /* free list, or the list of samples */
    uint8_t used;
    uint8_t op;
    uint8_t tries;
    uint8_t queued;      /* an update without a ticket at the caller: freed when it ends */
    uint8_t no_wait;     /* a sample that waits for an answer alone */
    uint8_t was_blocked; /* the last answer was BLOCKED: until its data come the sample waits */
    uint64_t answer_ns;  /* how long an answer is waited for once its time is over; 0: it is not */
    union {
        struct {
            uint8_t name[RP_NAME_BYTES];
            struct rp_table_info *info;
        } table_info;
        struct {
            struct rp_writer_granted *granted;
            uint32_t step_bytes;
            uint32_t items_max;
            uint16_t streams;
        } writer;
        struct {
            struct rp_updated *result;
            struct rp_updated sum;
            int32_t failed;
            uint32_t count; /* keys posted */
        } update;
        struct {
            uint8_t *target;  /* of counters, or of facts */
            uint32_t *sessions;
            uint32_t *fact_count; /* facts: how many there are; null: counters are asked for */
            uint32_t first;
        } stats;
        struct {
            uint64_t epoch;
            uint64_t *new_epoch;
        } reset;
        struct client_blob blob;
        struct client_publish publish;
    } of;
};

/* ---- updates ---- */

struct client_segment { /* one posted update in the ring of entries */
    uint64_t epoch;
    uint32_t count;
    uint32_t cut;    /* entries that are in datagrams already */
    uint32_t open;   /* datagrams not answered */
    uint16_t ticket; /* CLIENT_NONE: it was abandoned */
    uint16_t table;
};

enum client_update_state { UPDATE_FREE, UPDATE_DUE, UPDATE_FLYING, UPDATE_HELD, UPDATE_DONE };

struct client_update { /* one datagram: id % CLIENT_UPDATES_MAX */
    uint64_t id;
    uint32_t first; /* place in the ring of entries */
    uint32_t count;
    uint32_t segment;
    uint16_t flight;
    uint8_t state;
    uint8_t tries;
};

struct client_updates {
    struct client_sender sender;
    struct rp_update_entry *entries; /* ring */
    struct client_seen { /* open addressing over the entries of one post */
        uint32_t stamp; /* the post's */
        uint32_t entry;
    } *seen;
    uint32_t stamp;
    uint32_t seen_places;
    uint32_t capacity;
    uint32_t fill; /* places in the ring: the next entry goes here */
    uint32_t cut;  /* the next datagram begins here */
    uint32_t used; /* entries of segments that are not finished */
    uint64_t next_id;
    uint64_t base_id;                /* the lowest id not answered */
    struct client_segment *segments; /* ring */
    uint32_t segments_max;
    uint32_t segment_first;
    uint32_t segment_count;
    uint32_t segment_cut; /* how many of them, from the first, are cut wholly */
    uint32_t queued_open; /* tickets of queued updates; at most queued_max */
    uint32_t queued_max;
    struct rp_update_state queued;
    struct client_update datagrams[CLIENT_UPDATES_MAX];
};

/* ---- pushes ---- */

enum client_message_state {
    MESSAGE_FREE,
    MESSAGE_FILLING,
    MESSAGE_UNSENT, /* closed; its runs may have no sequences yet */
    MESSAGE_FLYING,
    MESSAGE_AGAIN,    /* lost on its way, or to be asked again: in the writer's list */
    MESSAGE_ANSWERED, /* some runs or creates are not final: a timer asks again */
    MESSAGE_BLOCKED,
};

struct client_run_state {
    uint64_t key;       /* of the run's first step; 0 = no answer has named it */
    uint16_t reported;  /* so many of its first steps are stored, as the server reported */
    uint16_t committed; /* and so many are acknowledged: in order along the stream; committed <=
                           reported */
    uint16_t lost;
};

struct client_message {
    struct client_timer timer;
    uint8_t *body; /* rp_push | runs | creates */
    struct client_run_state *runs;
    uint8_t *created; /* a status each; RP_NOT_YET = not final */
    uint64_t id;
    uint64_t lost_seen;      /* lost_total at its last answer */
    uint64_t first_sequence; /* the lowest of its runs; UINT64_MAX where it has none, or was not
                                sent */
    /* The writer's sequences when it was sent first; UINT64_MAX before. Once they are done, each
     * create of it can be made, or never could. */
    uint64_t posted_through;
    uint32_t body_size; /* while it is filled: header and runs; its creates stand at the end of
                           the room, last first */
    uint32_t last_run;  /* where in the body; 0 = none */
    uint32_t steps;
    uint32_t items; /* creates, and steps that are items at once */
    uint16_t run_count;
    uint16_t create_count;
    uint16_t next, previous; /* of the writer, in the order of posting; or the free list */
    uint16_t again_next;
    uint16_t flight;
    uint16_t writer;
    uint8_t state;
    uint8_t tries;
    uint8_t answered;
    uint8_t was_due; /* answered when all through that sequence was done */
};

struct client_stream {
    uint64_t next_step;
    uint64_t committed;   /* steps below this are acknowledged */
    uint64_t repair_from; /* UINT64_MAX: no place was lost */
    uint64_t pieces_step; /* 1 + the step in pieces that got a sequence last; all its pieces share
                             it */
    uint64_t pieces_sequence;
};

struct client_writer {
    _Alignas(64) struct client_sender sender; /* four lines in all: a writer's place is a shift */
    struct client_timer timer;
    struct rp_push_state state;
    uint64_t epoch;
    uint64_t next_sequence;
    uint64_t done_through;
    uint64_t lost_total;
    uint64_t in_doubt; /* set when the writer ends */
    uint64_t never_sent;
    uint64_t resent_from; /* next_sequence when places were lost last; 0: the messages' sequences
                             rise in the order of posting */
    struct client_stream *streams;
    uint32_t step_bytes;
    uint32_t piece_count;   /* datagrams one step takes */
    uint32_t steps_max;     /* of one message */
    uint32_t items_max;     /* of one message: as many as the limiter can admit at once */
    uint16_t answered_open; /* messages in MESSAGE_ANSWERED */
    uint16_t unsent;        /* messages in MESSAGE_UNSENT */
    uint16_t flying;
    uint16_t blocked_count;
    uint16_t table;
    uint16_t stream_count;
    uint16_t share;       /* messages that it may hold whatever others hold; see client_message.c */
    uint16_t stream_room; /* 0: a place that no writer was ever asked for */
    uint16_t probe; /* of a blocked writer: the message that asks; CLIENT_NONE = none under way */
    uint16_t noted; /* the blocked message that has the place in the server's queue, as far as is
                     * known while the timer runs; or NONE */
    uint16_t first, last;  /* messages, in the order of posting */
    uint16_t first_unsent; /* nothing before it is unsent */
    uint16_t filling;
    uint16_t again_first, again_last;
    uint8_t live;
    uint8_t flush;
    uint8_t blocked; /* one message probes; the others wait */
    uint8_t repairing;
};

struct client_range { /* the ledger's entry: keys of consecutive steps follow by one */
    uint64_t step;
    uint64_t key;
    uint32_t stream;
    uint16_t table;
    uint16_t count;
};

/* ---- session ---- */

enum client_session_state { SESSION_HELLO, SESSION_OPENING, SESSION_OPEN, SESSION_ENDED };
enum client_due { DUE_HANDSHAKE = 1, DUE_ECHO = 2, DUE_PING = 4 };

struct client_session {
    struct client_timer handshake;
    struct client_timer connect;
    struct client_timer keepalive;
    struct rp_peer server;
    struct rp_opened opened;
    struct rp_replay replay;
    uint64_t nonce;
    uint64_t cookie;
    uint64_t echo_cookie;
    uint64_t echo_id;
    uint64_t ping_id;
    uint64_t incarnation;
    uint64_t weights_version;
    uint64_t packet; /* next */
    uint64_t last_sent_ns;
    uint64_t reopen_count;
    uint64_t keepalive_ns;
    uint64_t rebound; /* the first packet sent from the present local port */
    int32_t status;
    int32_t full; /* why there is no place for it where the client is now; 0: there is */
    uint32_t mtu; /* agreed; the port's before */
    uint16_t version;
    uint8_t state;
    uint8_t due; /* bits of enum client_due */
    uint8_t tries;
    uint8_t ping_tries;
    uint8_t opened_before;
    uint8_t echoing;
    uint8_t wrong_queue; /* at the end of this look at the port: go on from local_port */
    uint8_t moves;       /* in a row, without an answer in between */
    uint16_t local_port; /* 0: any other one */
};

struct client_credit {
    uint64_t lapse_ns;
    uint64_t srtt_ns; /* 0: not measured */
    uint64_t rttvar_ns;
    uint64_t halved_ns;
    uint64_t pull_halved_ns; /* 0: nothing that was pulled was lost yet */
    uint64_t backed_off_ns; /* flights sent before were part of the time-outs already counted */
    uint64_t *sent_ns;      /* ring by packet number: when it was sent; 0: measured */
    uint32_t sent_mask;
    uint64_t asked_ns;      /* when what was answered last was sent; 0: nothing was */
    uint32_t back_off; /* time-outs since a round trip was measured: each doubles the next one */
    uint32_t credit;
    uint32_t window;      /* in 256ths of a datagram */
    uint32_t pull_window; /* datagrams that may be on their way here */
    uint32_t in_flight;
    uint32_t expected;
};

struct client_out { /* the packets leased in this turn */
    struct rp_port *port;
    struct rp_packet *packets;
    uint32_t leased;
    uint32_t used;
    uint32_t sent;
};

struct rp_client {
    struct rp_client_options options;
    uint64_t now_ns;
    uint64_t serial; /* of ids */
    uint64_t sample_id;
    uint64_t publish_id;
    uint8_t send_pending; /* something could be sent that was not: the next turn is due now */
    uint8_t closing;
    struct client_session session;
    struct client_credit credit;
    struct client_out out;
    struct rp_random random;
    struct client_sender *sender_first;
    struct client_sender *sender_last;
    uint32_t sender_count;
    struct client_timer **heap; /* from 1 */
    uint32_t heap_count;
    uint32_t heap_max;
    struct client_flight *flights;
    uint32_t flights_max;
    uint32_t flights_used; /* those beyond were never started, nor written */
    uint16_t flight_free;
    struct client_ticket *tickets;
    uint32_t tickets_max; /* requests_max, and the last one for a CLOSE where all are held */
    uint16_t ticket_free;
    uint16_t sample_first; /* tickets of samples under way, in the order of posting */
    struct client_cancel { /* samples to be withdrawn, or whose record is to be given up */
        uint64_t id;
        uint16_t table;
    } cancels[CLIENT_CANCELS_MAX];
    uint32_t cancel_count;
    uint32_t untold; /* samples that ended since one was sent, which tells of all */
    uint16_t publisher;    /* the ticket whose publication is under way: one at a time */
    struct client_slot *slots;
    uint8_t *slot_memory; /* slot_bytes for each: bitmaps and map */
    size_t slot_bytes;
    uint32_t slots_max;
    uint32_t slots_used; /* those beyond were never taken, nor written */
    uint16_t slot_free;
    struct client_updates updates;
    struct client_message *messages;
    uint8_t *message_memory; /* message_bytes for each: body, run states, create states */
    size_t message_bytes;
    uint32_t messages_max;   /* as the option says, or by the agreed mtu */
    uint32_t message_places; /* those, and the ones for shares */
    uint32_t messages_used; /* those beyond were never filled, nor written */
    uint16_t message_free;
    uint32_t message_free_count; /* those never filled among them */
    uint8_t *scratch; /* one body, for repairs */
    struct client_writer *writers;
    struct client_stream *streams;
    uint32_t streams_used;
    struct client_range *ledger; /* ring */
    uint32_t ledger_max;
    uint32_t ledger_first;
    uint32_t ledger_count;
    uint32_t ledger_taken; /* steps of the first range that were taken */
    uint64_t counters[RP_COUNTER_COUNT];
    struct rp_packet packets[RP_BURST];
};

static inline void rp_client_count(struct rp_client *client, int counter) {
    client->counters[counter]++;
}

#endif
