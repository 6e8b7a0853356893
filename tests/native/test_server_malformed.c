/* Whatever a peer sends, the server stays up, its invariants hold, and exactly the named
 * counter moves. One line a case: what is wrong, the status answered (or DROPPED), the counter.
 *
 * A case is a good datagram of one operation, then one change of it at a byte offset of the
 * datagram, sealed again unless the case says otherwise. Afterwards: a walk at random over
 * changed datagrams, sealed again, behind an open session. */
#include "base/random.h"
#include "script.h"

enum { DROPPED = 0xFFFF, SEALED = 0, RAW = 1, MESSAGE = 40, BODY = 56 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client client;
static uint64_t epoch, rows_epoch;
static uint64_t next[2]; /* the good pushes' sequence and step, by table */
static uint64_t next_update;

struct datagram {
    uint8_t data[2048] __attribute__((aligned(8)));
    uint32_t size;
};

/* ---- good datagrams ---- */

static void good_push(struct datagram *d, uint8_t *op, uint16_t *table, uint32_t *size) {
    static struct script_push push;
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, next[0], next[0], 3, 0);
    script_push_create(&push, 0, next[0], 1.0);
    memcpy(rp_packet_body(d->data), push.body, push.size);
    *op = RP_OP_PUSH;
    *table = 0;
    *size = push.size;
}

static void good_rows(struct datagram *d, uint8_t *op, uint16_t *table, uint32_t *size) {
    static struct script_push push;
    script_push_begin(&push, rows_epoch);
    script_push_run(&push, 0, next[1], next[1], 3, RP_RUN_ITEM | RP_RUN_PRIORITY);
    script_push_run(&push, 1, next[1] + 3, next[1], 2, RP_RUN_ITEM);
    memcpy(rp_packet_body(d->data), push.body, push.size);
    *op = RP_OP_PUSH;
    *table = 1;
    *size = push.size;
}

#define GOOD(name, operation, number, ...) \
    static void good_##name(struct datagram *d, uint8_t *op, uint16_t *table, uint32_t *size) \
    { \
        struct { __VA_ARGS__; } body = BODY_##name; \
        memcpy(rp_packet_body(d->data), &body, sizeof body); \
        *op = (operation); \
        *table = (number); \
        *size = sizeof body; \
    }

#define BODY_hello {{.version_min = 2, .version_max = 2, .mtu = 1400, .features = 2, .required = 2}}
#define BODY_open {{.cookie = 5, .features = 2, .required = 2, .mtu = 1400, .version = 2, \
                    .receive_budget = 64, .identity = "any bytes"}}
#define BODY_echo {{5}}
#define BODY_info {{"main"}}
#define BODY_writer {{.streams = 1}}
#define BODY_sample {{.count = 3, .budget = 2}}
#define BODY_keys {{.count = 2, .mode = 2, .budget = 2}, {512, 513}}
#define BODY_pull {{1, 0, 1}}
#define BODY_update {{epoch, 2, 0}, {{512, 1.0}, {513, 2.0}}}
#define BODY_publish {{2000, 0, 1000, 7}, {0}}
#define BODY_blob {{.kind = RP_BLOB_SPEC, .count = 1}}
#define BODY_stats {{0, 10}}
#define BODY_reset {{1}}
#define BODY_ping {0}
GOOD(hello, RP_OP_HELLO, 0, struct rp_hello request)
GOOD(open, RP_OP_OPEN, 0, struct rp_open request)
GOOD(echo, RP_OP_ECHO, 0, struct rp_echo request)
GOOD(info, RP_OP_TABLE, 0, struct rp_table_request request)
GOOD(writer, RP_OP_WRITER, 0, struct rp_writer_request request)
GOOD(sample, RP_OP_SAMPLE, 0, struct rp_sample request)
GOOD(keys, RP_OP_SAMPLE, 0, struct rp_sample request; uint64_t keys[2])
GOOD(pull, RP_OP_PULL, 0, struct rp_pull request)
GOOD(update, RP_OP_UPDATE, 0, struct rp_update request; struct rp_update_entry entries[2])
GOOD(publish, RP_OP_PUBLISH, 0, struct rp_publish request; uint8_t bytes[1000])
GOOD(blob, RP_OP_BLOB, 0, struct rp_blob_request request)
GOOD(stats, RP_OP_STATS, 0, struct rp_stats_request request)
GOOD(reset, RP_OP_RESET, 0, struct rp_reset request)
GOOD(ping, RP_OP_PING, 0, uint64_t nothing)

typedef void good(struct datagram *, uint8_t *, uint16_t *, uint32_t *);

/* The good datagram, sealed as script.h would; ids of all operations are `id`. */
static void build(struct datagram *d, good *make, uint64_t id) {
    uint8_t op;
    uint16_t table;
    uint32_t size;
    memset(d, 0, sizeof *d);
    make(d, &op, &table, &size);
    size = (size + 7) & ~7u;
    size = size > RP_REQUEST_BODY_MIN ? size : RP_REQUEST_BODY_MIN;
    struct rp_message message = {.op = op, .table = table, .want = 1, .id = id};
    uint64_t connection = op == RP_OP_HELLO || op == RP_OP_OPEN ? 0 : client.connection;
    d->size = rp_packet_seal(d->data, &message, size, connection, ++client.packet);
}

/* A checksum over whatever is there now. */
static void reseal(struct datagram *d) {
    static const uint8_t zeros[16];
    uint32_t crc = rp_crc32c(rp_crc32c(0, d->data, 24), zeros, 16);
    crc = rp_crc32c(crc, d->data + 40, d->size - 40);
    memcpy(d->data + 24, &crc, sizeof crc);
}

/* ---- the list ---- */

static const struct bad {
    const char *what;
    good *make;
    uint32_t offset; /* of the change, from the datagram's start */
    uint32_t bytes;  /* of the change; 0: none */
    uint64_t value;
    int32_t longer; /* bytes more, or fewer, than there should be */
    int raw;        /* RAW: not sealed again */
    uint16_t status;
    enum rp_counter counter;
} list[] = {
#define TO(type, field) BODY + (uint32_t)offsetof(struct type, field)
    /* headers */
    {"nothing", good_ping, 0, 0, 0, -96, RAW, DROPPED, RP_COUNT_drop_size},
    {"half a header", good_ping, 0, 0, 0, -56, RAW, DROPPED, RP_COUNT_drop_size},
    {"length no multiple of 8", good_ping, 0, 0, 0, 3, SEALED, DROPPED, RP_COUNT_drop_size},
    {"longer than the mtu", good_ping, 0, 0, 0, 1400, SEALED, DROPPED, RP_COUNT_drop_size},
    {"size below length", good_ping, 44, 2, 32, 0, SEALED, DROPPED, RP_COUNT_drop_size},
    {"size above length", good_ping, 44, 2, 48, 0, SEALED, DROPPED, RP_COUNT_drop_size},
    {"longer than its size", good_ping, 44, 2, 40, 8, SEALED, DROPPED, RP_COUNT_drop_size},
    {"size of 65535", good_ping, 44, 2, 65535, 0, SEALED, DROPPED, RP_COUNT_drop_size},
    {"magic", good_ping, 0, 4, 0x314C5053, 0, SEALED, DROPPED, RP_COUNT_drop_magic},
    {"version 0", good_ping, 4, 1, 0, 0, SEALED, DROPPED, RP_COUNT_drop_version},
    {"version 1", good_ping, 4, 1, 1, 0, SEALED, DROPPED, RP_COUNT_drop_version},
    {"a flipped bit", good_ping, 60, 1, 1, 0, RAW, DROPPED, RP_COUNT_drop_checksum},
    {"a flipped checksum", good_ping, 24, 1, 77, 0, RAW, DROPPED, RP_COUNT_drop_checksum},
    {"reserved byte 5", good_ping, 5, 1, 1, 0, SEALED, DROPPED, RP_COUNT_drop_reserved},
    {"a long tag", good_ping, 28, 4, 1, 0, SEALED, DROPPED, RP_COUNT_drop_reserved},
    {"reserved byte behind op", good_ping, 41, 1, 1, 0, SEALED, DROPPED, RP_COUNT_drop_reserved},
    {"operation 0", good_ping, 40, 1, 0, 0, SEALED, RP_BAD_OP, RP_COUNT_drop_op},
    {"operation 23", good_ping, 40, 1, 23, 0, SEALED, RP_BAD_OP, RP_COUNT_drop_op},
    {"operation 127", good_ping, 40, 1, 127, 0, SEALED, RP_BAD_OP, RP_COUNT_drop_op},
    {"operation 127 of nobody", good_hello, 40, 1, 127, 0, SEALED, DROPPED, RP_COUNT_drop_op},
    {"an answer", good_ping, 40, 1, 0x85, 0, SEALED, DROPPED, RP_COUNT_drop_unsolicited},
    {"answer to nothing", good_ping, 40, 1, 0x80, 0, SEALED, DROPPED, RP_COUNT_drop_unsolicited},
    /* sessions */
    {"connection 0", good_ping, 8, 8, 0, 0, SEALED, RP_UNKNOWN_SESSION, RP_COUNT_unknown_session},
    {"index beyond all", good_ping, 8, 8, 4095, 0, SEALED, RP_UNKNOWN_SESSION,
     RP_COUNT_unknown_session},
    {"free index", good_ping, 8, 8, 3, 0, SEALED, RP_UNKNOWN_SESSION, RP_COUNT_unknown_session},
    {"packet 0", good_ping, 16, 8, 0, 0, SEALED, DROPPED, RP_COUNT_drop_replayed},
    {"hello in a session", good_hello, 8, 8, 4096, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"open in a session", good_open, 8, 8, 4096, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"hello a table", good_hello, 42, 2, 1, 0, SEALED, RP_BAD_RESERVED, RP_COUNT_drop_reserved},
    {"hello unpadded", good_hello, 0, 0, 0, -8, SEALED, RP_BAD_SIZE, RP_COUNT_drop_size},
    {"hello padding", good_hello, BODY + 63, 1, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"hello too short for any refusal", good_hello, 0, 0, 0, -32, SEALED, DROPPED,
     RP_COUNT_drop_size},
    {"hello of the future", good_hello, BODY, 4, 3 | 4 << 16, 0, SEALED, RP_BAD_VERSION,
     RP_COUNT_drop_version},
    {"hello of the past", good_hello, BODY, 4, 1 | 1 << 16, 0, SEALED, RP_BAD_VERSION,
     RP_COUNT_drop_version},
    {"hello of no versions", good_hello, BODY, 4, 0, 0, SEALED, RP_BAD_VERSION,
     RP_COUNT_drop_version},
    {"hello without checksums", good_hello, TO(rp_hello, features), 8, 1, 0, SEALED,
     RP_BAD_FEATURE, RP_COUNT_refused_feature},
    {"hello insists on sealing", good_hello, TO(rp_hello, required), 8, 10, 0, SEALED,
     RP_BAD_FEATURE, RP_COUNT_refused_feature},
    {"hello insists on the unknown", good_hello, TO(rp_hello, required), 8, 1ull << 63, 0, SEALED,
     RP_BAD_FEATURE, RP_COUNT_refused_feature},
    {"hello's nonce 0", good_hello, 48, 8, 0, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"hello versions crossed", good_hello, BODY, 4, 2 | 1 << 16, 0, SEALED, RP_BAD_VERSION,
     RP_COUNT_drop_version},
    {"hello mtu", good_hello, BODY + 4, 4, 511, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"open with a table", good_open, 42, 2, 1, 0, SEALED, RP_BAD_RESERVED, RP_COUNT_drop_reserved},
    {"open cookie", good_open, 0, 0, 0, 0, SEALED, RP_BAD_COOKIE, RP_COUNT_cookie_refused},
    {"open version", good_open, TO(rp_open, version), 2, 0, 0, SEALED, RP_BAD_VERSION,
     RP_COUNT_drop_version},
    {"open mtu", good_open, TO(rp_open, mtu), 4, 8, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"open budget", good_open, TO(rp_open, receive_budget), 2, 0, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"open without checksums", good_open, TO(rp_open, features), 8, 1, 0, SEALED, RP_BAD_FEATURE,
     RP_COUNT_refused_feature},
    {"open insists on sealing", good_open, TO(rp_open, required), 8, 10, 0, SEALED,
     RP_BAD_FEATURE, RP_COUNT_refused_feature},
    {"open with a key's number", good_open, TO(rp_open, key_id), 1, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"open with half a key", good_open, TO(rp_open, ephemeral) + 31, 1, 1, 0, SEALED,
     RP_BAD_RESERVED, RP_COUNT_drop_reserved},
    {"open with a proof", good_open, TO(rp_open, proof), 1, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"open's last byte", good_open, BODY + 127, 1, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"open a word short", good_open, 0, 0, 0, -8, SEALED, RP_BAD_SIZE, RP_COUNT_drop_size},
    {"echo cookie", good_echo, 0, 0, 0, 0, SEALED, RP_BAD_COOKIE, RP_COUNT_cookie_refused},
    {"ping with a body", good_ping, BODY, 1, 1, 0, SEALED, RP_BAD_RESERVED, RP_COUNT_drop_reserved},
    {"ping too long", good_ping, 0, 0, 0, 8, SEALED, RP_BAD_SIZE, RP_COUNT_drop_size},
    {"ping too short", good_ping, 0, 0, 0, -8, SEALED, DROPPED, RP_COUNT_drop_size},
    {"ping a table", good_ping, 42, 2, 1, 0, SEALED, RP_BAD_RESERVED, RP_COUNT_drop_reserved},
    /* tables */
    {"table name", good_info, BODY, 1, 'n', 0, SEALED, RP_UNKNOWN_TABLE, RP_COUNT_refused_table},
    {"table name unended", good_info, BODY + 24, 8, ~0ull, 0, SEALED, RP_UNKNOWN_TABLE,
     RP_COUNT_refused_table},
    {"writer of no table", good_writer, 42, 2, 65535, 0, SEALED, RP_UNKNOWN_TABLE,
     RP_COUNT_refused_table},
    {"writer of no streams", good_writer, BODY, 2, 0, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"writer reserved", good_writer, BODY + 6, 2, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"reset of no table", good_reset, 42, 2, 2, 0, SEALED, RP_UNKNOWN_TABLE,
     RP_COUNT_refused_table},
    {"stats beyond the end", good_stats, BODY, 4, 1u << 30, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"facts beyond the end", good_stats, BODY, 4, RP_STATS_FACTS | 49, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    /* push */
    {"push epoch", good_push, BODY, 8, 1, 0, SEALED, RP_STALE_EPOCH, RP_COUNT_refused_epoch},
    {"push of no table", good_push, 42, 2, 7, 0, SEALED, RP_UNKNOWN_TABLE, RP_COUNT_refused_table},
    {"push of nothing", good_ping, 40, 1, RP_OP_PUSH, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"push reserved", good_push, TO(rp_push, reserved), 4, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"65535 runs", good_push, TO(rp_push, run_count), 2, 65535, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"65535 creates", good_push, TO(rp_push, create_count), 2, 65535, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"a create too few", good_push, TO(rp_push, create_count), 2, 0, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"no run", good_push, TO(rp_push, run_count), 2, 0, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
#define RUN(field) BODY + 16 + (uint32_t)offsetof(struct rp_run, field)
    {"run size 4 GiB", good_push, RUN(size), 4, 0xFFFFFFF8, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"run size uneven", good_push, RUN(size), 4, 47, 0, SEALED, RP_BAD_SIZE, RP_COUNT_drop_size},
    {"run size a step less", good_push, RUN(size), 4, 32, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"run of no steps", good_push, RUN(count), 2, 0, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"run of four, three there", good_push, RUN(count), 2, 4, 0, SEALED, RP_BAD_PIECE,
     RP_COUNT_refused_piece},
    {"run of 65535", good_push, RUN(count), 2, 65535, 0, SEALED, RP_BAD_PIECE,
     RP_COUNT_refused_piece},
    {"run flags", good_push, RUN(flags), 2, 8, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"run priority, no item", good_push, RUN(flags), 2, 4, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"run items in windows", good_push, RUN(flags), 2, 2, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"run reserved", good_push, RUN(reserved), 2, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"run stream", good_push, RUN(stream), 2, 2, 0, SEALED, RP_BAD_STREAM,
     RP_COUNT_refused_stream},
    {"run sequence", good_push, RUN(sequence), 8, 14, 0, SEALED, RP_BAD_SEQUENCE,
     RP_COUNT_refused_sequence},
    {"run sequence at the end of numbers", good_push, RUN(sequence), 8, ~0ull, 0, SEALED,
     RP_BAD_SEQUENCE, RP_COUNT_refused_sequence},
    {"run step at the end of numbers", good_push, RUN(step), 8, ~0ull, 0, SEALED, RP_BAD_STEP,
     RP_COUNT_refused_step},
    {"no pieces", good_push, RUN(piece_count), 2, 0, 0, SEALED, RP_BAD_PIECE,
     RP_COUNT_refused_piece},
    {"too many pieces", good_push, RUN(piece_count), 2, 5, 0, SEALED, RP_BAD_PIECE,
     RP_COUNT_refused_piece},
    {"a piece of three steps", good_push, RUN(piece_count), 2, 2, 0, SEALED, RP_BAD_PIECE,
     RP_COUNT_refused_piece},
    {"piece beyond the count", good_push, RUN(piece), 2, 1, 0, SEALED, RP_BAD_PIECE,
     RP_COUNT_refused_piece},
#define CREATE(field) BODY + 16 + 32 + 48 + (uint32_t)offsetof(struct rp_create, field)
    {"create stream", good_push, CREATE(stream), 2, 2, 0, SEALED, RP_BAD_STREAM,
     RP_COUNT_refused_stream},
    {"create flags", good_push, CREATE(flags), 2, 2, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"create maximum and priority", good_push, CREATE(flags), 2, 1, 0, SEALED, RP_BAD_PRIORITY,
     RP_COUNT_refused_priority},
    {"create in another table", good_push, CREATE(table), 2, 1, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"create reserved", good_push, CREATE(reserved), 2, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"create NaN", good_push, CREATE(priority), 8, 0x7FF8000000000000, 0, SEALED, RP_BAD_PRIORITY,
     RP_COUNT_refused_priority},
    {"row priority infinite", good_rows, BODY + 48 + 8, 8, 0x7FF0000000000000, 0, SEALED,
     RP_BAD_PRIORITY, RP_COUNT_refused_priority},
    {"row priorities missing", good_rows, RUN(flags), 2, 2, 0, SEALED, RP_BAD_PIECE,
     RP_COUNT_refused_piece},
    {"rows that end", good_rows, RUN(flags), 2, 7, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    /* sample, pull */
    {"sample of no table", good_sample, 42, 2, 2, 0, SEALED, RP_UNKNOWN_TABLE,
     RP_COUNT_refused_table},
    {"sample a word short", good_sample, 0, 0, 0, -8, SEALED, DROPPED, RP_COUNT_drop_size},
    {"sample too long", good_sample, 0, 0, 0, 8, SEALED, RP_BAD_SIZE, RP_COUNT_drop_size},
    {"sample's padding", good_sample, BODY + 32, 1, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"sample of 2^32 - 1", good_sample, TO(rp_sample, count), 4, ~0u, 0, SEALED,
     RP_BATCH_TOO_LARGE, RP_COUNT_refused_batch},
    {"sample plan", good_sample, TO(rp_sample, plan), 2, 2, 0, SEALED, RP_UNKNOWN_PLAN,
     RP_COUNT_refused_plan},
    {"sample mode", good_sample, TO(rp_sample, mode), 1, 255, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"keys of an unknown mode", good_keys, TO(rp_sample, mode), 1, 3, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"sample's fields", good_sample, TO(rp_sample, fields), 2, 1, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"sample id 0", good_sample, 48, 8, 0, 0, SEALED, RP_BAD_ARGUMENT, RP_COUNT_refused_argument},
    {"sample before there is any", good_sample, 0, 0, 0, 0, SEALED, RP_BLOCKED,
     RP_COUNT_samples_blocked},
    {"keys that are not there", good_keys, TO(rp_sample, count), 4, 3, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"2^32 - 1 keys", good_keys, TO(rp_sample, count), 4, ~0u, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"2^29 + 2 keys", good_keys, TO(rp_sample, count), 4, (1u << 29) + 2, 0, SEALED, RP_BAD_SIZE,
     RP_COUNT_drop_size},
    {"pull of nothing drawn", good_pull, 0, 0, 0, 0, SEALED, RP_FORGOTTEN,
     RP_COUNT_samples_forgotten},
    {"pull of id 0", good_pull, BODY, 8, 0, 0, SEALED, RP_FORGOTTEN, RP_COUNT_samples_forgotten},
    {"pull of 2^32 - 1", good_pull, TO(rp_pull, count), 4, ~0u, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    /* update, publish, blob */
    {"update of more than is there", good_update, TO(rp_update, count), 4, 3, 0, SEALED,
     RP_BAD_SIZE, RP_COUNT_drop_size},
    {"update of 2^28 + 2", good_update, TO(rp_update, count), 4, (1u << 28) + 2, 0, SEALED,
     RP_BAD_SIZE, RP_COUNT_drop_size},
    {"update reserved", good_update, TO(rp_update, reserved), 4, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"update id 0", good_update, 48, 8, 0, 0, SEALED, RP_BAD_ARGUMENT, RP_COUNT_refused_argument},
    {"update id too early", good_update, 48, 8, ~0ull, 0, SEALED, RP_EARLY, RP_COUNT_updates_early},
    {"publish with a table", good_publish, 42, 2, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"publish 2^64 - 1", good_publish, BODY, 8, ~0ull, 0, SEALED, RP_TOO_LARGE,
     RP_COUNT_refused_blob},
    {"publish offset", good_publish, BODY + 8, 8, ~0ull - 7, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"publish piece 0", good_publish, BODY + 16, 4, 0, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"publish id 0", good_publish, 48, 8, 0, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"publish half a piece", good_publish, 0, 0, 0, -504, SEALED, RP_BAD_SIZE, RP_COUNT_drop_size},
    {"blob kind", good_blob, TO(rp_blob_request, kind), 2, 0, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"blob reserved", good_blob, TO(rp_blob_request, reserved), 2, 1, 0, SEALED, RP_BAD_RESERVED,
     RP_COUNT_drop_reserved},
    {"blob datagram", good_blob, TO(rp_blob_request, first), 4, ~0u, 0, SEALED, RP_BAD_ARGUMENT,
     RP_COUNT_refused_argument},
    {"blob of no table", good_blob, 42, 2, 9, 0, SEALED, RP_UNKNOWN_TABLE, RP_COUNT_refused_table},
    {"weights before any", good_blob, TO(rp_blob_request, kind), 2, 2, 0, SEALED, RP_NO_WEIGHTS,
     RP_COUNT_refused_blob},
};

static void fresh(void) {
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    epoch = script_writer(&script, &client, 0, 2).epoch;
    rows_epoch = script_writer(&script, &client, 1, 2).epoch;
}

static void change(struct datagram *d, const struct bad *bad) {
    d->size = (uint32_t)((int32_t)d->size + bad->longer);
    if (bad->longer % 8 == 0 && bad->longer != 0 && !bad->raw) {
        uint16_t size = (uint16_t)(d->size - RP_HEADER_BYTES);
        memcpy(d->data + 44, &size, sizeof size);
    }
    memcpy(d->data + bad->offset, &bad->value, bad->bytes);
    if (!bad->raw) {
        reseal(d);
    }
}

/* Of the counters that may move in a case besides the named one: traffic, and none other. */
static void check_counters(const struct bad *bad, const uint64_t *before) {
    for (int i = RP_COUNT_drop_size; i < RP_COUNTER_COUNT; i++) {
        uint64_t moved = rp_server_counters(script.server)[i] - before[i];
        CHECK(moved == (i == (int)bad->counter), "%s: %s moved by %" PRIu64, bad->what,
              rp_counter_name(i), moved);
    }
}

static void test_list(void) {
    static struct datagram d;
    uint64_t before[RP_COUNTER_COUNT];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fresh();
        build(&d, list[i].make, 1);
        change(&d, &list[i]);
        memcpy(before, rp_server_counters(script.server), sizeof before);
        script_put_raw(&script, &client.peer, d.data, d.size);
        uint32_t answers = script_turn(&script);
        CHECK(answers == (list[i].status != DROPPED), "%s: %u answers", list[i].what, answers);
        if (answers > 0) {
            uint16_t status = script_answer(&script, 0).status;
            CHECK(status == list[i].status, "%s: %s", list[i].what, rp_status_name(status));
            CHECK(script.port.out[0].size <= d.size, "%s is amplified", list[i].what);
        }
        check_counters(&list[i], before);
        rp_server_check(script.server);
        CHECK(script_ask(&script, &client, RP_OP_PING, 0, 9, NULL, 0).status == RP_OK);
        script_close(&script);
    }
    printf("  %zu malformed datagrams\n", sizeof list / sizeof *list);
}

/* ---- at random ---- */

static void mutate(struct datagram *d, struct rp_random *random) {
    static const uint64_t edges[] = {0, 1, 7, 8, 255, 65535, 1ull << 31, 0xFFFFFFFF, 1ull << 52,
                                     1ull << 63, ~0ull};
    for (uint64_t n = rp_random_below(random, 4); n > 0; n--) {
        uint32_t at = BODY - 16 + (uint32_t)rp_random_below(random, d->size - BODY + 8);
        uint32_t bytes = 1u << rp_random_below(random, 4);
        uint64_t value = rp_random_below(random, 3) ? rp_random_below(random, 40)
                                                    : edges[rp_random_below(random, 11)];
        bytes = at + bytes <= d->size ? bytes : 1;
        if (at / 2 != 22) { /* the size field: rp_packet_open would stop it */
            memcpy(d->data + at, &value, bytes);
        }
    }
    reseal(d);
}

/* Where the good pushes go on: near the end of what each writer has reserved. */
static void follow(struct rp_random *random) {
    if (rp_server_sessions(script.server) == 0) {
        script_connect(&script, &client);
        next_update = 1;
    }
    for (uint16_t i = 0; i < 2; i++) {
        struct rp_writer_granted granted = script_writer(&script, &client, i, 2);
        uint64_t back = rp_random_below(random, 8);
        next[i] = granted.next_sequence > back ? granted.next_sequence - back : 0;
        *(i == 0 ? &epoch : &rows_epoch) = granted.epoch;
    }
}

static void test_random(uint64_t seed) {
    static good *const all[] = {good_push,  good_rows, good_push,   good_rows,    good_sample,
                                good_keys,  good_pull, good_update, good_publish, good_blob,
                                good_writer, good_info, good_stats,  good_reset,   good_ping,
                                good_rows,  good_echo, good_push};
    static struct datagram d;
    struct rp_random random;
    rp_random_seed(&random, seed);
    fresh();
    for (uint32_t i = 0; i < (uint32_t)check_rounds(60000); i++) {
        good *make = all[rp_random_below(&random, sizeof all / sizeof *all)];
        uint64_t id = 1 + rp_random_below(&random, 8) + i % 300 / 20;
        build(&d, make, make == good_update ? next_update : id);
        mutate(&d, &random);
        script_put_raw(&script, &client.peer, d.data, d.size);
        script_later(&script, 1);
        if (script_turn(&script) > 0) {
            struct script_answer answer = script_answer(&script, 0);
            int updated = answer.view.message->op == (RP_OP_UPDATE | RP_ANSWER);
            next_update += updated && answer.view.message->id == next_update && answer.size > 0;
        }
        if (i % 300 == 0 && rp_server_sessions(script.server) > 0) {
            script_ask(&script, &client, RP_OP_CLOSE, 0, 1, NULL, 0);
        }
        if (i % 8 == 0) {
            follow(&random);
        }
        if (i % 5000 == 2500) {
            script_kill(&script);
        }
    }
    script_close(&script);
    next[0] = next[1] = 0;
    check_group("60000 changed datagrams behind a session, kills between them");
}

int main(void) {
    uint64_t seed = check_seed(20240923);
    test_list();
    test_random(seed);
    return check_done("test_server_malformed");
}
