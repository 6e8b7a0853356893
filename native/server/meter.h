/* What a server measures beside its counters: how long requests take and wait, how old what is
 * drawn is, and what each session does. One increment a fact, nothing allocated, nothing kept over
 * an attach: all of it lies in the region's volatile part.
 *
 * A histogram has a fixed number of buckets, two to an octave, so that a quantile read from it is
 * wrong by half its value at most:
 *
 *     bucket b holds the values v with bound(b - 1) < v <= bound(b);  bound(0) = 0, bound(1) = 1
 *     sum of counts == values ever recorded
 *
 * A session is known by its place (0 .. sessions_max - 1). The next session of that place takes the
 * place's numbers over, so they only rise. There are at most RP_SESSIONS_METERED + 1 sets of
 * numbers, the last one for all places beyond.
 */
#ifndef RP_METER_H
#define RP_METER_H

#include "base/minmax.h"
#include "protocol/status.h"
#include "protocol/wire.h"

struct rp_server;

/* [cffi] */
enum rp_meter_limits {
    RP_BUCKETS = 128,         /* two for each of 64 bits: any value has one */
    RP_AGES_EVERY = 4,        /* of so many items of a batch, the first one's age is recorded */
    RP_OPERATIONS = 24,       /* numbers of operations are below this */
    RP_COUNTERS_MAX = 128,    /* and those of counters below this */
    RP_SESSIONS_METERED = 64, /* places with numbers of their own; those beyond share one */
};

struct rp_histogram {
    uint64_t sum; /* of the values */
    uint64_t counts[RP_BUCKETS];
};

struct rp_session_meter { /* of one place, since the server was opened */
    uint64_t requests;    /* accepted for it: neither damaged nor seen before */
    uint64_t answers;     /* datagrams sent to it */
    uint64_t bytes_in;    /* of its requests and answers, headers included */
    uint64_t bytes_out;
    uint64_t steps;       /* committed */
    uint64_t items;       /* drawn, or read by keys */
    uint64_t refused;     /* requests answered with a refusal */
    uint64_t dropped;     /* requests not answered: seen before, no room, beyond
                           * its share, or too far ahead */
};

struct rp_session_state { /* of one place with numbers of its own, now */
    uint64_t silence_ns; /* since its last accepted request */
    uint64_t open;       /* 1 or 0 */
};

struct rp_table_measures {
    struct rp_table_info info;
    struct rp_histogram ages; /* of every fourth item drawn: steps stored since its anchor */
    uint64_t samples_waiting; /* requests held back now */
    uint64_t pushes_waiting;
    uint64_t holds_samples;   /* 1: a draw of one item would wait now; 0 */
    uint64_t holds_inserts;   /* 1: one new item would wait now; 0 */
    uint64_t fifo;            /* 1: a queue */
};

struct rp_measures { /* one consistent look at a server */
    uint64_t counters[RP_COUNTERS_MAX];
    uint64_t incarnation;
    uint64_t weights_version;
    uint64_t sessions;    /* open now */
    uint64_t dropped_in;  /* datagrams lost below the server, a lower bound: transport.h */
    uint64_t dropped_out; /* datagrams the network did not take */
    uint64_t table_count;
    uint64_t fact_count;
    /* Requests by operation: from when they were received to when the turn that served them had
     * answered, in ns. How long a held-back one waited is not in here. */
    struct rp_histogram operations[RP_OPERATIONS];
    /* Requests held back, in ns: until admitted or given up */
    struct rp_histogram samples_waited;
    struct rp_histogram pushes_waited;
    struct rp_session_meter meters[RP_SESSIONS_METERED + 1];
    struct rp_session_state states[RP_SESSIONS_METERED];
    struct rp_table_measures tables[RP_TABLES_MAX];
    struct rp_fact facts[RP_FACTS_MAX]; /* of its transport; fact_count of them */
};

const char *rp_operation_name(int operation); /* "push", ...; null where there is none */
uint64_t rp_histogram_bound(int bucket);      /* the largest value it holds, inclusive */
/* [/cffi] */
_Static_assert((int)RP_COUNTER_COUNT <= RP_COUNTERS_MAX, "a look has room for every counter");
_Static_assert((int)RP_OP_COUNT <= RP_OPERATIONS, "a look has room for every operation");

static inline uint32_t rp_histogram_bucket(uint64_t value) {
    if (value < 2) {
        return (uint32_t)value;
    }
    uint32_t octave = 63 ^ (uint32_t)__builtin_clzll(value); /* 63 less it, in one instruction */
    return 2 * octave + (uint32_t)(value >> (octave - 1) & 1);
}

static inline void rp_histogram_add(struct rp_histogram *histogram, uint64_t value) {
    histogram->sum += value;
    histogram->counts[rp_histogram_bucket(value)]++;
}

/* ---- a server's own ---- */

struct rp_meters { /* in struct rp_server */
    struct rp_histogram operations[RP_OP_COUNT];
    struct rp_histogram waited[2]; /* by enum rp_wait_kind */
    struct rp_histogram ages[RP_TABLES_MAX];
    struct rp_session_meter sessions[RP_SESSIONS_METERED + 1];
    uint32_t served_count;          /* requests of the turn under way */
    uint8_t served[RP_BURST];       /* their operations */
};

/* The numbers of a session's place. */
static inline struct rp_session_meter *rp_meter_session(struct rp_meters *meters,
                                                        uint32_t session) {
    uint32_t place = rp_min(session, RP_SESSIONS_METERED);
    return &meters->sessions[place];
}

static inline void rp_meter_served(struct rp_meters *meters, uint8_t operation) {
    meters->served[meters->served_count++] = operation;
}

/* The time of each request of a turn that took so long. */
void rp_meter_turn(struct rp_meters *meters, uint64_t elapsed_ns);
/* The ages of a batch just drawn from the table. */
void rp_meter_ages(struct rp_meters *meters, uint32_t table, const struct rp_batch *head,
                   const struct rp_batch_item *items);

#endif
