/* Reading a compiled config: see compiled.h. A cursor walks the file once; nothing is believed
 * before it is known to lie inside, and a right checksum excuses nothing. */
#include "appliance/compiled.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

/* A struct that is used in place, or copied whole, has the same layout in memory as in the file. */
_Static_assert(sizeof(struct rp_compiled_head) == 80, "the head has no padding");
_Static_assert(sizeof(struct rp_compiled_table) == 112, "a table has no padding");
_Static_assert(sizeof(struct rp_compiled_plan) == 40, "a plan has no padding");
_Static_assert(sizeof(struct rp_column) == 12 && sizeof(struct rp_pick) == 4, "used in place");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they lie");

struct cursor {
    const uint8_t *bytes;
    size_t size;
    size_t at;
    char *error;
};

static int refuse(char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, RP_COMPILED_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return -1;
}

/* `count` parts of `size` bytes each, or null: the file ends before them. */
static const void *take(struct cursor *cursor, uint32_t count, size_t size) {
    const uint8_t *here = cursor->bytes + cursor->at;
    if (count > (cursor->size - cursor->at) / size) {
        refuse(cursor->error, "it ends within its tables: byte %zu of %zu", cursor->at,
               cursor->size);
        return NULL;
    }
    cursor->at += count * size;
    return here;
}

static int read_name(struct cursor *cursor, char *name, const uint8_t *bytes) {
    size_t length = strnlen((const char *)bytes, RP_NAME_BYTES);
    for (size_t i = length; i < RP_NAME_BYTES; i++) {
        if (bytes[i]) {
            return refuse(cursor->error, "a name goes on behind its end, before byte %zu",
                          cursor->at);
        }
    }
    if (length == 0 || length == RP_NAME_BYTES) {
        return refuse(cursor->error, "a name is empty or has no end, before byte %zu", cursor->at);
    }
    memcpy(name, bytes, RP_NAME_BYTES);
    return 0;
}

static int read_plan(struct cursor *cursor, struct rp_plan *plan) {
    struct rp_compiled_plan head;
    const void *at = take(cursor, 1, sizeof head);
    if (!at) {
        return -1;
    }
    memcpy(&head, at, sizeof head);
    if (head.reserved || head.pick_count > RP_PICKS_MAX) {
        return refuse(cursor->error, "a plan has %u picks, %u is the limit", head.pick_count,
                      RP_PICKS_MAX);
    }
    plan->picks = take(cursor, head.pick_count, sizeof *plan->picks);
    plan->pick_count = head.pick_count;
    return plan->picks ? read_name(cursor, plan->name, head.name) : -1;
}

static int read_columns(struct cursor *cursor, struct rp_table_config *table) {
    table->columns = take(cursor, table->column_count, sizeof *table->columns);
    for (uint32_t i = 0; table->columns && i < table->column_count; i++) {
        if (table->columns[i].pad_first > 1) {
            return refuse(cursor->error, "column %u says %u where 0 or 1 is expected", i,
                          table->columns[i].pad_first);
        }
    }
    return table->columns ? 0 : -1;
}

static int read_spec(struct cursor *cursor, struct rp_table_config *table) {
    static const uint8_t zeros[4];
    table->spec = take(cursor, table->spec_bytes, 1);
    const void *rest = table->spec ? take(cursor, -table->spec_bytes % 4, 1) : NULL;
    if (rest && memcmp(rest, zeros, -table->spec_bytes % 4) != 0) {
        return refuse(cursor->error, "what fills a spec up is not zero, before byte %zu",
                      cursor->at);
    }
    return rest ? 0 : -1;
}

static int read_table(struct cursor *cursor, struct rp_table_config *table, struct rp_plan *plans) {
    struct rp_compiled_table head;
    const void *at = take(cursor, 1, sizeof head);
    if (!at) {
        return -1;
    }
    memcpy(&head, at, sizeof head);
    if (head.column_count > RP_COLUMNS_MAX || head.plan_count > RP_PLANS_MAX
        || head.spec_bytes > RP_SPEC_BYTES_MAX) {
        return refuse(cursor->error, "a table has %u columns, %u plans and a spec of %u bytes; the "
                      "limits are %u, %u and %u", head.column_count, head.plan_count,
                      head.spec_bytes, RP_COLUMNS_MAX, RP_PLANS_MAX, RP_SPEC_BYTES_MAX);
    }
    *table = (struct rp_table_config){
        .capacity = head.capacity, .step_bytes = head.step_bytes,
        .column_count = head.column_count, .plans = plans, .plan_count = head.plan_count,
        .alpha = head.alpha, .min_size = head.min_size,
        .samples_per_insert = head.samples_per_insert, .error_min = head.error_min,
        .error_max = head.error_max, .fifo = head.fifo, .writers_max = head.writers_max,
        .streams_max = head.streams_max, .window = head.window, .pieces_max = head.pieces_max,
        .spec_bytes = head.spec_bytes};
    int wrong = read_name(cursor, table->name, head.name) || read_columns(cursor, table);
    for (uint32_t i = 0; i < head.plan_count && !wrong; i++) {
        wrong = read_plan(cursor, &plans[i]);
    }
    return wrong || read_spec(cursor, table) ? -1 : 0;
}

/* Whether this is a compiled config at all, and whole. */
static int check_head(const struct rp_compiled_head *head, const uint8_t *bytes, size_t size,
                      char *error) {
    size_t summed = offsetof(struct rp_compiled_head, flags);
    if (memcmp(head->magic, RP_COMPILED_MAGIC, sizeof head->magic) != 0) {
        return refuse(error, "it is no compiled config: replay-server serve tables.toml "
                      "--compile FILE writes one");
    }
    if (head->version != RP_COMPILED_VERSION) {
        return refuse(error, "it is of version %u, this program reads %u: compile it anew",
                      head->version, RP_COMPILED_VERSION);
    }
    if (head->reserved != 0) {
        return refuse(error, "a reserved field of it is not 0: compile it anew");
    }
    if (head->bytes != size) {
        return refuse(error, "it has %zu bytes, %u were written: copy it again", size, head->bytes);
    }
    if (rp_crc32c(0, bytes + summed, size - summed) != head->crc) {
        return refuse(error, "its checksum is wrong: copy it again");
    }
    if (head->flags & ~(uint32_t)RP_COMPILED_SEEDED || (!head->flags && head->seed)
        || head->table_count < 1 || head->table_count > RP_TABLES_MAX) {
        return refuse(error, "its head makes no sense: %u tables (1 to %u), flags %u",
                      head->table_count, RP_TABLES_MAX, head->flags);
    }
    return 0;
}

int rp_compiled_read(struct rp_compiled *compiled, const uint8_t *bytes, size_t size, char *error) {
    struct rp_compiled_head head;
    struct cursor cursor = {bytes, size, sizeof head, error};
    if (size < sizeof head || size > RP_COMPILED_BYTES_MAX) {
        return refuse(error, "it has %zu bytes; a compiled config has %zu to %d", size, sizeof head,
                      RP_COMPILED_BYTES_MAX);
    }
    memcpy(&head, bytes, sizeof head);
    if (check_head(&head, bytes, size, error)) {
        return -1;
    }
    memset(compiled, 0, sizeof *compiled);
    for (uint32_t i = 0; i < head.table_count; i++) {
        if (read_table(&cursor, &compiled->tables[i], compiled->plans[i])) {
            return -1;
        }
    }
    if (cursor.at != size) {
        return refuse(error, "%zu bytes stand behind its tables", size - cursor.at);
    }
    compiled->seeded = head.flags & RP_COMPILED_SEEDED;
    compiled->config = (struct rp_server_config){
        .tables = compiled->tables, .table_count = head.table_count,
        .sessions_max = head.sessions_max, .batch_max = head.batch_max, .records = head.records,
        .mtu = head.mtu, .receive_budget = head.receive_budget, .idle_ms = head.idle_ms,
        .lapse_ms = head.lapse_ms, .sessions_per_address = head.sessions_per_address,
        .weights_max = head.weights_max, .seed = head.seed};
    return 0;
}
