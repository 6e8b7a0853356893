/* A server's configuration at open: its tables and its limits. All of it is copied into the region;
 * the caller keeps ownership of everything pointed to. rp_server_bytes checks it; its sentence says
 * what is wrong and what would be right.
 */
#ifndef RP_CONFIG_H
#define RP_CONFIG_H

#include <stdint.h>

/* [cffi] */
struct rp_column {     /* one field of a step's record */
    uint32_t offset;   /* bytes from the record's start */
    uint32_t size;     /* bytes, > 0 */
    /* behind the episode's start: 1 = repeat the episode's first row, 0 = zeros */
    uint32_t pad_first;
};

struct rp_pick {       /* one copy of a plan: this column of the step at anchor + offset */
    uint16_t column;
    int16_t offset;
};

/* what one sampled item holds: its picks back to back, padded with zeros to 8 bytes */
struct rp_plan {
    char name[32];
    const struct rp_pick *picks;
    uint32_t pick_count;
};

struct rp_table_config {
    char name[32];
    uint32_t capacity;      /* steps */
    /* of one record, a multiple of 8; columns must not overlap or leave it */
    uint32_t step_bytes;
    const struct rp_column *columns;
    uint32_t column_count;
    const struct rp_plan *plans;
    uint32_t plan_count;
    double alpha;           /* mass = priority^alpha; 0 makes every item equally likely */
    uint64_t min_size;      /* items created before the first draw; at least 1 is taken */
    double samples_per_insert; /* 0 = no limiter; else Reverb's rule with the two bounds below */
    double error_min;
    double error_max;
    /* 1: a queue. Items are drawn oldest step first, each once, and writers wait while error_max
     * items wait to be drawn. Then alpha 0, samples_per_insert 1, error_min 0, min_size 1 */
    uint32_t fifo;
    uint32_t writers_max;
    uint32_t streams_max;   /* of one writer */
    /* sequences one writer may have unanswered; window * writers_max <= capacity / 16 */
    uint32_t window;
    uint32_t pieces_max;
    const void *spec;       /* the column spec as the client library reads it back; opaque here */
    uint32_t spec_bytes;
};

struct rp_server_config {
    const struct rp_table_config *tables;
    uint32_t table_count;
    uint32_t sessions_max;
    uint32_t batch_max;      /* items of one batch */
    uint32_t records;        /* batches a session has under way at once */
    uint32_t mtu;            /* the largest datagram this server's port can take */
    /* full datagrams that may be in flight towards it, all sessions together; one of each at
     * least, whatever its port holds */
    uint32_t receive_budget;
    uint32_t idle_ms;        /* silence after which a session is given up */
    uint32_t lapse_ms;       /* life of a granted credit */
    uint64_t weights_max;    /* bytes; 0 = no weights are kept */
    /* of sessions_max, what one other host's addresses may have; 0 = all. Not kept in the region:
     * each start sets it */
    uint32_t sessions_per_address;
    uint32_t first_lap;      /* drawn by the caller: where keys begin (rp_table_lap) */
    uint64_t seed;           /* of the draws; session ids and cookies never come from it */
    uint32_t seed_drawn;     /* 1: the seed was drawn; a region keeps the one it was made with */
};
/* [/cffi] */

#endif
