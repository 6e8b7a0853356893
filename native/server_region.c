/* Where things lie: the config is checked, every part of the region gets its offset, and a
 * handle is built that points into them.
 *
 * The same function computes the layout for rp_server_bytes and for create, so the two cannot
 * differ. The header keeps all offsets; attach reads them back, and trusts them because their
 * hash covers them, the limits and the sizes of the structs of this build.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server_state.h"
#include "siphash.h"

enum { ALIGN = 64, LAYOUT_VERSION = 2 };

static int refuse(char error[256], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, 256, format, arguments);
    va_end(arguments);
    return -RP_BAD_ARGUMENT;
}

/* ---- the config ---- */

struct bound { /* one number of the config and what it may be */
    const char *name;
    uint64_t value;
    uint64_t least;
    uint64_t most;
};

static int check_numbers(const struct rp_server_config *config, char error[256]) {
    struct bound bounds[] = {
        {"table_count", config->table_count, 1, RP_TABLES_MAX},
        {"sessions_max", config->sessions_max, 1, RP_SESSIONS_MAX},
        {"batch_max", config->batch_max, 1, RP_BATCH_MAX},
        {"records", config->records, 1, RP_RECORDS_MAX},
        {"mtu", config->mtu, RP_MTU_MIN, RP_MTU_MAX},
        {"receive_budget", config->receive_budget, config->sessions_max, 1 << 24},
        {"idle_ms", config->idle_ms, 1, UINT32_MAX},
        {"lapse_ms", config->lapse_ms, 1, UINT32_MAX / 1000},
        {"weights_max", config->weights_max, 0, RP_BLOB_BYTES_MAX},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const struct bound *b = &bounds[i];
        if (b->value < b->least || b->value > b->most) {
            return refuse(error, "%s is %llu, but must lie between %llu%s and %llu", b->name,
                          (unsigned long long)b->value, (unsigned long long)b->least,
                          strcmp(b->name, "receive_budget") == 0 ? " (one datagram a session)" : "",
                          (unsigned long long)b->most);
        }
    }
    if (config->mtu % 8 != 0) {
        return refuse(error, "mtu is %u, but must be a multiple of 8", config->mtu);
    }
    return 0;
}

static int check_names(const struct rp_server_config *config, char error[256]) {
    for (uint32_t i = 0; i < config->table_count; i++) {
        const char *name = config->tables[i].name;
        if (name[0] == 0 || memchr(name, 0, RP_NAME_BYTES) == NULL) {
            return refuse(error, "table %u needs a name of 1 to %d bytes", i, RP_NAME_BYTES - 1);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(name, config->tables[j].name) == 0) {
                return refuse(error, "tables %u and %u are both named \"%s\"", j, i, name);
            }
        }
    }
    return 0;
}

/* ---- the layout ---- */

static uint64_t rounded(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Gives the part the next place; no sum overflows, as every part is bounded well below 2^60. */
static uint64_t place(struct rp_region *region, uint64_t bytes) {
    uint64_t at = region->bytes;
    region->bytes += rounded(bytes);
    return at;
}

static uint64_t record_bytes(const struct rp_limits *limits) {
    return rounded(sizeof(struct rp_record)
                   + (uint64_t)limits->batch_max * sizeof(struct rp_batch_item));
}

uint64_t rp_weights_pieces_max(const struct rp_limits *limits) {
    return limits->weights_max / rp_publish_piece(RP_MTU_MIN) + 1;
}

static uint64_t bitmap_bytes(const struct rp_limits *limits) {
    return rounded((rp_weights_pieces_max(limits) + 63) / 64 * 8);
}

static uint64_t weights_bytes(const struct rp_limits *limits) {
    return rounded(sizeof(struct rp_weights)) + bitmap_bytes(limits)
           + RP_WEIGHTS_SLOTS * rounded(limits->weights_max);
}

static uint64_t note_count(const struct rp_limits *limits) {
    return (uint64_t)RP_WAIT_KINDS * limits->sessions_max * limits->table_count;
}

static uint64_t volatile_bytes(const struct rp_limits *limits) {
    return rounded(sizeof(struct rp_server))
           + rounded(limits->table_count * sizeof(struct rp_table))
           + rounded(limits->sessions_max * sizeof(struct rp_line))
           + rounded(note_count(limits) * sizeof(struct rp_note));
}

static struct rp_limits limits_of(const struct rp_server_config *config) {
    return (struct rp_limits){
        .table_count = config->table_count,
        .sessions_max = config->sessions_max,
        .batch_max = config->batch_max,
        .records = config->records,
        .mtu = config->mtu,
        .receive_budget = config->receive_budget,
        .idle_ms = config->idle_ms,
        .lapse_ms = config->lapse_ms,
        .weights_max = config->weights_max,
    };
}

int rp_region_layout(const struct rp_server_config *config, struct rp_region *region,
                     char error[256]) {
    error[0] = 0;
    int status = check_numbers(config, error);
    status = status < 0 ? status : check_names(config, error);
    if (status < 0) {
        return status;
    }
    *region = (struct rp_region){.version = LAYOUT_VERSION, .limits = limits_of(config)};
    const struct rp_limits *limits = &region->limits;
    place(region, sizeof *region);
    region->log = place(region, sizeof(struct rp_intent_log));
    for (uint32_t i = 0; i < config->table_count; i++) {
        size_t bytes = rp_table_bytes(&config->tables[i], error);
        if (bytes == 0) {
            return -RP_BAD_ARGUMENT;
        }
        region->tables[i] = place(region, bytes);
    }
    region->sessions = place(region, limits->sessions_max * sizeof(struct rp_session));
    region->records = place(region, (uint64_t)limits->sessions_max * (limits->records + 1)
                                        * record_bytes(limits));
    region->weights = place(region, weights_bytes(limits));
    region->volatile_part = place(region, volatile_bytes(limits));
    region->layout = rp_region_hash(region);
    return 0;
}

uint64_t rp_region_hash(const struct rp_region *region) {
    static const uint8_t key[16] = "replay region";
    struct rp_region text = *region; /* without what changes while the region lives */
    text.magic = text.layout = text.incarnation = text.attaches = 0;
    uint64_t sizes[] = {sizeof(struct rp_region), sizeof(struct rp_intent_log),
                        sizeof(struct rp_session), sizeof(struct rp_record),
                        sizeof(struct rp_weights), sizeof(struct rp_server),
                        sizeof(struct rp_table), sizeof(struct rp_line), sizeof(struct rp_note)};
    return rp_siphash(key, &text, sizeof text) ^ rp_siphash(key, sizes, sizeof sizes);
}

/* ---- the handle ---- */

static void open_lists(struct rp_server *server) {
    server->granted_first = RP_NOBODY;
    server->granted_last = RP_NOBODY;
    for (uint32_t kind = 0; kind < RP_WAIT_KINDS; kind++) {
        for (uint32_t table = 0; table < RP_TABLES_MAX; table++) {
            server->waiting[kind][table] = (struct rp_queue){RP_NOBODY, RP_NOBODY, 0, 0};
        }
    }
    server->turn_sessions = 1;
}

struct rp_server *rp_region_open(void *memory, const uint8_t entropy[32], uint64_t now_ns) {
    uint8_t *base = memory;
    struct rp_region *region = memory;
    const struct rp_limits *limits = &region->limits;
    uint8_t *at = base + region->volatile_part;
    memset(at, 0, volatile_bytes(limits));
    struct rp_server *server = (void *)at;
    server->region = region;
    server->limits = *limits;
    server->now_ns = now_ns;
    memcpy(server->id_key, entropy, sizeof server->id_key);
    memcpy(server->cookie_key, entropy + sizeof server->id_key, sizeof server->cookie_key);
    at += rounded(sizeof *server);
    server->tables = (void *)at;
    at += rounded(limits->table_count * sizeof(struct rp_table));
    server->lines = (void *)at;
    at += rounded(limits->sessions_max * sizeof(struct rp_line));
    server->notes = (void *)at;
    server->sessions = (void *)(base + region->sessions);
    server->records = base + region->records;
    server->record_bytes = record_bytes(limits);
    server->weights = (void *)(base + region->weights);
    server->weights_bitmap = (void *)(base + region->weights + rounded(sizeof(struct rp_weights)));
    server->weights_bytes = (uint8_t *)server->weights_bitmap + bitmap_bytes(limits);
    server->weights_stride = rounded(limits->weights_max);
    open_lists(server);
    rp_intent_open(&server->intent, memory, region->bytes, (void *)(base + region->log));
    return server;
}
