/* A server's config as a file, for the program without Python: what `replay-server serve
 * tables.toml --compile FILE` writes (replay_server/serving/compiled.py) and replay-serve reads.
 *
 * Columns and plans are resolved there; here every byte is checked and nothing is copied but
 * numbers: columns, picks and specs are used where they lie. All numbers are little-endian; nothing
 * is aligned to more than 4 bytes. In order:
 *
 *     head       struct rp_compiled_head
 *     table_count times:
 *         struct rp_compiled_table
 *         column_count times struct rp_column       {u32 offset, size, pad_first (0 or 1)}
 *         plan_count times: struct rp_compiled_plan, then
 *             pick_count times struct rp_pick       {u16 column, i16 offset}
 *         spec_bytes bytes, then zeros up to a multiple of 4
 *
 * and nothing behind. Names are zero-padded and end in a zero. What the numbers may be is the
 * core's to say (rp_server_bytes): this reader answers only for the file.
 */
#ifndef RP_COMPILED_H
#define RP_COMPILED_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/config.h"
#include "protocol/wire.h"

#define RP_COMPILED_MAGIC "RPTABLES"
enum rp_compiled_limits {
    RP_COMPILED_VERSION = 2,
    RP_COMPILED_SEEDED = 1, /* flag: the seed is the file's; else the program draws one */
    RP_COMPILED_BYTES_MAX = 8 << 20,
    RP_COMPILED_ERROR_BYTES = 256,
};

struct rp_compiled_head {
    uint8_t magic[8];
    uint32_t version;
    uint32_t bytes; /* of the whole file */
    uint32_t crc;   /* CRC-32C of all that follows this field */
    uint32_t flags;
    uint32_t table_count;
    uint32_t sessions_max;
    uint32_t batch_max;
    uint32_t records;
    uint32_t mtu;
    uint32_t receive_budget;
    uint32_t idle_ms;
    uint32_t lapse_ms;
    uint32_t sessions_per_address;
    uint32_t reserved; /* 0 */
    uint64_t weights_max;
    uint64_t seed; /* 0 without the flag */
};

struct rp_compiled_table {
    uint8_t name[RP_NAME_BYTES];
    uint32_t capacity;
    uint32_t step_bytes;
    uint32_t column_count;
    uint32_t plan_count;
    uint32_t writers_max;
    uint32_t streams_max;
    uint32_t window;
    uint32_t pieces_max;
    uint32_t spec_bytes;
    uint32_t fifo;
    double alpha;
    uint64_t min_size;
    double samples_per_insert;
    double error_min;
    double error_max;
};

struct rp_compiled_plan {
    uint8_t name[RP_NAME_BYTES];
    uint32_t pick_count;
    uint32_t reserved; /* 0 */
};

/* A config and what it points to: itself, and the bytes it was read from. */
struct rp_compiled {
    struct rp_server_config config;
    uint32_t seeded;
    uint32_t reserved;
    struct rp_table_config tables[RP_TABLES_MAX];
    struct rp_plan plans[RP_TABLES_MAX][RP_PLANS_MAX];
};

/* Reads `size` bytes, aligned to 8, which have to outlive *compiled. 0, or -1 with a sentence in
 * error[RP_COMPILED_ERROR_BYTES]. */
int rp_compiled_read(struct rp_compiled *compiled, const uint8_t *bytes, size_t size,
                     char *error);

#endif
