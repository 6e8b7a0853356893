/* Where things lie: the config is checked, every part of the region gets its offset, and a
 * handle is built that points into them.
 *
 * The same function computes the layout for rp_server_bytes and for create, so the two cannot
 * differ. The header keeps all offsets; attach reads them back, and trusts them because a checksum
 * covers them and they are those that this build computes (server_adopt.c). An offset names a word
 * of any segment: they lie in one range of addresses, each at a page of its own.
 *
 * The process's memory behind the segments lies in no file. So another build may have sized it
 * otherwise: attach writes this build's own sizes, and what the header said of them counts for
 * nothing.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/server_state.h"
#include "base/siphash.h"

enum { ALIGN = 64 };

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

static uint64_t rounded_to(uint64_t unit, uint64_t bytes) {
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t rounded(uint64_t bytes) {
    return rounded_to(ALIGN, bytes);
}

/* Gives the part the next place; no sum overflows, as every part is bounded well below 2^60. */
static uint64_t place(struct rp_region *region, uint64_t bytes) {
    uint64_t at = region->bytes;
    region->bytes += rounded(bytes);
    return at;
}

/* A segment ends, the next one begins: returns where. */
static uint64_t turn_page(struct rp_region *region) {
    region->bytes = rounded_to(RP_SEGMENT_ALIGN, region->bytes);
    return region->bytes;
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
    return rounded(sizeof(struct rp_weights)) + bitmap_bytes(limits);
}

static uint64_t record_count(const struct rp_limits *limits) {
    return (uint64_t)limits->sessions_max * limits->records;
}

static uint64_t note_count(const struct rp_limits *limits) {
    return (uint64_t)RP_WAIT_KINDS * limits->sessions_max * limits->table_count;
}

static uint64_t volatile_bytes(const struct rp_limits *limits) {
    return rounded(sizeof(struct rp_server))
           + rounded(limits->table_count * sizeof(struct rp_table))
           + rounded(limits->sessions_max * sizeof(struct rp_line))
           + rounded(rp_cookies_bytes(limits->sessions_max))
           + rounded(rp_hosts_bytes(limits->sessions_max))
           + rounded(note_count(limits) * sizeof(struct rp_note));
}

struct rp_limits rp_region_limits(const struct rp_server_config *config) {
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

/* A segment ends with its seal, the next one begins: returns where. */
static uint64_t seal_page(struct rp_region *region) {
    place(region, sizeof(struct rp_seal));
    return turn_page(region);
}

/* The tables' sizes are known to be good by now. */
static void place_rings(struct rp_region *region, const struct rp_table_sizes *sizes) {
    region->state_bytes = turn_page(region);
    for (uint32_t i = 0; i < region->limits.table_count; i++) {
        region->keys[i] = place(region, sizes[i].keys);
        region->steps[i] = seal_page(region);
        place(region, sizes[i].steps);
        seal_page(region);
    }
    region->blobs = place(region, RP_WEIGHTS_SLOTS * rounded(region->limits.weights_max));
    if (region->limits.weights_max > 0) {
        seal_page(region);
    }
}

int rp_region_layout(const struct rp_server_config *config, struct rp_region *region,
                     char error[256]) {
    struct rp_table_sizes sizes[RP_TABLES_MAX];
    error[0] = 0;
    int status = check_numbers(config, error);
    status = status < 0 ? status : check_names(config, error);
    for (uint32_t i = 0; status == 0 && i < config->table_count; i++) {
        status = rp_table_sizes(&config->tables[i], &sizes[i], error);
    }
    if (status < 0) {
        return status;
    }
    *region = (struct rp_region){
        .version = RP_REGION_VERSION, .limits = rp_region_limits(config), .seed = config->seed};
    const struct rp_limits *limits = &region->limits;
    place(region, sizeof *region);
    region->log = place(region, sizeof(struct rp_intent_log));
    for (uint32_t i = 0; i < config->table_count; i++) {
        region->tables[i] = place(region, sizes[i].state);
    }
    region->sessions = place(region, limits->sessions_max * sizeof(struct rp_session));
    region->weights = place(region, weights_bytes(limits));
    region->records = place(region, record_count(limits) * record_bytes(limits));
    place_rings(region, sizes);
    region->volatile_part = place(region, volatile_bytes(limits));
    for (uint32_t i = 0; i < config->table_count; i++) {
        region->locals[i] = place(region, sizes[i].local);
    }
    return 0;
}

uint64_t rp_region_sum(const struct rp_region *region) {
    static const uint8_t key[16] = "replay region";
    struct rp_region text = *region; /* without what changes, or comes from each configuration */
    text.magic = text.sum = text.attaches = text.ending = 0;
    text.bytes = 0;
    memset(text.locals, 0, sizeof text.locals);
    text.limits.mtu = text.limits.receive_budget = 0;
    text.limits.idle_ms = text.limits.lapse_ms = 0;
    uint64_t sizes[] = {sizeof(struct rp_region), sizeof(struct rp_intent_log),
                        sizeof(struct rp_session), sizeof(struct rp_record),
                        sizeof(struct rp_weights)};
    return rp_siphash(key, &text, sizeof text) ^ rp_siphash(key, sizes, sizeof sizes);
}

/* ---- the segments ---- */

enum { STATE, FIRST_KEYS, FIRST_STEPS, WEIGHTS = RP_SEGMENTS_MAX - 1 };

void rp_segment_name(uint32_t number, char name[RP_SEGMENT_NAME_BYTES]) {
    if (number == STATE || number == WEIGHTS) {
        snprintf(name, RP_SEGMENT_NAME_BYTES, "%s", number == STATE ? "state" : "weights");
        return;
    }
    uint32_t of_table = number - FIRST_KEYS;
    snprintf(name, RP_SEGMENT_NAME_BYTES, "table%u.%s", of_table / 2,
             of_table % 2 == 0 ? "keys" : "steps");
}

static struct rp_segment *add_segment(struct rp_segments *segments, uint32_t number,
                                      uint64_t offset, uint64_t end) {
    struct rp_segment *segment = &segments->segment[segments->count++];
    *segment = (struct rp_segment){.offset = offset, .bytes = end - offset};
    rp_segment_name(number, segment->name);
    memcpy(segment->what, segment->name, sizeof segment->name);
    return segment;
}

static void add_ring(struct rp_segments *segments, const struct rp_region *region, uint32_t table,
                     const char *table_name) {
    uint64_t end = table + 1 < region->limits.table_count ? region->keys[table + 1]
                                                          : region->blobs;
    add_segment(segments, FIRST_KEYS + 2 * table, region->keys[table], region->steps[table]);
    struct rp_segment *steps =
        add_segment(segments, FIRST_STEPS + 2 * table, region->steps[table], end);
    snprintf(steps->what, sizeof steps->what, "the steps of table %s", table_name);
}

int rp_server_segments(const struct rp_server_config *config, struct rp_segments *segments,
                       char error[256]) {
    struct rp_region region;
    int status = rp_region_layout(config, &region, error);
    if (status < 0) {
        return status;
    }
    uint64_t records = record_count(&region.limits) * record_bytes(&region.limits);
    *segments = (struct rp_segments){.bytes = region.bytes};
    struct rp_segment *state = add_segment(segments, STATE, 0, region.state_bytes);
    snprintf(state->what, sizeof state->what, "%s",
             records > region.state_bytes / 2
                 ? "sample records: sessions x records x batch_max x 24 bytes"
                 : "items and their priorities");
    for (uint32_t i = 0; i < config->table_count; i++) {
        add_ring(segments, &region, i, config->tables[i].name);
    }
    if (region.volatile_part > region.blobs) {
        struct rp_segment *weights =
            add_segment(segments, WEIGHTS, region.blobs, region.volatile_part);
        snprintf(weights->what, sizeof weights->what, "weights: %d x weights_max",
                 RP_WEIGHTS_SLOTS);
        weights->at_need = 1;
    }
    return 0;
}

/* ---- seals ---- */

static struct rp_seal seal_of(const struct rp_region *region, uint32_t segment) {
    return (struct rp_seal){
        .magic = RP_SEAL_MAGIC, .incarnation = region->incarnation, .segment = segment};
}

static uint64_t seal_at(const struct rp_segment *segment) {
    return segment->offset + segment->bytes - sizeof(struct rp_seal);
}

void rp_region_seal(void *memory, const struct rp_server_config *config) {
    struct rp_segments segments;
    char error[256];
    int status = rp_server_segments(config, &segments, error);
    assert(status == 0); /* it was laid out by the same configuration */
    for (uint32_t i = 1; i < segments.count; i++) {
        struct rp_seal seal = seal_of(memory, i);
        memcpy((uint8_t *)memory + seal_at(&segments.segment[i]), &seal, sizeof seal);
    }
}

int rp_region_sealed(const void *memory, const struct rp_server_config *config, char error[256]) {
    struct rp_segments segments;
    int status = rp_server_segments(config, &segments, error);
    for (uint32_t i = 1; status == 0 && i < segments.count; i++) {
        const struct rp_segment *segment = &segments.segment[i];
        struct rp_seal seal = seal_of(memory, i);
        if (memcmp((const uint8_t *)memory + seal_at(segment), &seal, sizeof seal) != 0) {
            snprintf(error, 256,
                     "%s is not the one that was made with the region's state, or is damaged: put "
                     "the right one back, or start with a new region",
                     segment->name);
            status = -RP_BAD_REGION;
        }
    }
    return status;
}

/* ---- the handle ---- */

static void open_lists(struct rp_server *server) {
    server->granted_first = RP_NOBODY;
    server->granted_last = RP_NOBODY;
    server->free_first = RP_NOBODY;
    for (uint32_t kind = 0; kind < RP_WAIT_KINDS; kind++) {
        for (uint32_t table = 0; table < RP_TABLES_MAX; table++) {
            server->waiting[kind][table] = (struct rp_queue){RP_NOBODY, RP_NOBODY, 0};
        }
    }
}

void rp_region_own(struct rp_region *region, const struct rp_server_config *config) {
    struct rp_region layout;
    char error[256];
    int status = rp_region_layout(config, &layout, error);
    assert(status == 0); /* the region was compared with the same configuration */
    region->bytes = layout.bytes;
    memcpy(region->locals, layout.locals, sizeof region->locals);
}

struct rp_table_memory rp_region_table(void *memory, uint32_t table) {
    const struct rp_region *region = memory;
    uint8_t *base = memory;
    return (struct rp_table_memory){.state = base + region->tables[table],
                                    .keys = base + region->keys[table],
                                    .steps = base + region->steps[table],
                                    .local = base + region->locals[table]};
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
    server->turned_ns = now_ns;
    memcpy(server->id_key, entropy, sizeof server->id_key);
    memcpy(server->cookie_key, entropy + sizeof server->id_key, sizeof server->cookie_key);
    at += rounded(sizeof *server);
    server->tables = (void *)at;
    at += rounded(limits->table_count * sizeof(struct rp_table));
    server->lines = (void *)at;
    at += rounded(limits->sessions_max * sizeof(struct rp_line));
    server->notes = (void *)at;
    at += rounded(note_count(limits) * sizeof(struct rp_note));
    rp_hosts_open(server, at);
    at += rounded(rp_hosts_bytes(limits->sessions_max));
    rp_cookies_open(server, at);
    server->sessions = (void *)(base + region->sessions);
    server->records = base + region->records;
    server->record_bytes = record_bytes(limits);
    server->weights = (void *)(base + region->weights);
    server->weights_bitmap = (void *)(base + region->weights + rounded(sizeof(struct rp_weights)));
    server->weights_bytes = base + region->blobs;
    server->weights_stride = rounded(limits->weights_max);
    open_lists(server);
    rp_intent_open(&server->intent, memory, region->volatile_part, (void *)(base + region->log));
    return server;
}
