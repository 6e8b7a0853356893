/* Whatever is wrong with an answer, the client drops it, says so in a counter of its own, and
 * gets what it asked for by asking again. One line for each thing that may be wrong. */
#include "client_world.h"

enum {
    ANSWER = RP_HEADER_BYTES,
    BODY = RP_ANSWER_BYTES,
    PAYLOAD = sizeof(struct rp_batch_datagram) + 2 * 8, /* of a batch of these items */
};

static const struct wrong { /* `bytes` at `offset` of the answer to `op` are changed */
    const char *what;
    uint8_t op;
    uint32_t offset;
    uint64_t flip;
    int unsealed; /* 1: the checksum is left as it was */
    enum rp_counter counter;
} wrongs[] = {
    {"magic", RP_OP_TABLE, 0, 1, 1, RP_COUNT_drop_magic},
    {"version", RP_OP_TABLE, 4, 6, 1, RP_COUNT_drop_version},
    {"a bit on the way", RP_OP_TABLE, BODY, 4, 1, RP_COUNT_drop_checksum},
    {"an operation that is none", RP_OP_TABLE, 40, 0x70, 0, RP_COUNT_drop_op},
    {"a request", RP_OP_TABLE, 40, 0x80, 0, RP_COUNT_drop_op},
    {"reserved in the message header", RP_OP_TABLE, 41, 1, 0, RP_COUNT_drop_reserved},
    {"another id", RP_OP_TABLE, 48, 1 << 20, 0, RP_COUNT_drop_unsolicited},
    {"another session", RP_OP_TABLE, 12, 1, 0, RP_COUNT_drop_unsolicited},
    {"no session", RP_OP_PING, 8, 0, 0, RP_COUNT_drop_unsolicited},
    {"a status that is none", RP_OP_TABLE, ANSWER + 16, 0x4000, 0, RP_COUNT_drop_reserved},
    {"the first status that is none", RP_OP_TABLE, ANSWER + 16, RP_STATUS_COUNT, 0,
     RP_COUNT_drop_reserved},
    {"another table's name", RP_OP_TABLE, BODY, 1, 0, RP_COUNT_drop_reserved},
    {"an odd step size", RP_OP_TABLE, BODY + 120, 1, 0, RP_COUNT_drop_reserved},
    {"no window", RP_OP_WRITER, BODY + 16, SCRIPT_WINDOW, 0, RP_COUNT_drop_reserved},
    {"a sequence nobody comes to", RP_OP_WRITER, BODY + 15, 0x80, 0, RP_COUNT_drop_reserved},
    {"no streams", RP_OP_WRITER, BODY + 20, 1, 0, RP_COUNT_drop_reserved},
    {"too many streams", RP_OP_WRITER, BODY + 20, RP_STREAMS_MAX, 0, RP_COUNT_drop_reserved},
    {"too many pieces", RP_OP_WRITER, BODY + 22, 0x4000, 0, RP_COUNT_drop_reserved},
    {"counters not asked for", RP_OP_STATS, BODY, 5, 0, RP_COUNT_drop_size},
    {"more counters than bytes", RP_OP_STATS, BODY + 4, 256, 0, RP_COUNT_drop_size},
    {"done beyond what was sent", RP_OP_PUSH, BODY, 1 << 20, 0, RP_COUNT_drop_reserved},
    {"more runs than were sent", RP_OP_PUSH, BODY + 16, 2, 0, RP_COUNT_drop_reserved},
    {"a key of more than 52 bits", RP_OP_PUSH, BODY + 24 + 7, 0x80, 0, RP_COUNT_drop_reserved},
    {"more steps than were sent", RP_OP_PUSH, BODY + 32, 64, 0, RP_COUNT_drop_reserved},
    {"another datagram count", RP_OP_SAMPLE, BODY + 4, 2, 0, RP_COUNT_drop_size},
    {"a datagram beyond the last", RP_OP_SAMPLE, BODY, 8, 0, RP_COUNT_drop_size},
    {"another payload", RP_OP_SAMPLE, BODY + 8, 8, 0, RP_COUNT_drop_size},
    {"another item count", RP_OP_SAMPLE, BODY + PAYLOAD + 28, 1, 0, RP_COUNT_drop_reserved},
    {"an item's reserved", RP_OP_SAMPLE, BODY + PAYLOAD + 48 + 20, 1, 0, RP_COUNT_drop_reserved},
    {"the next one's", RP_OP_SAMPLE, BODY + PAYLOAD + 72 + 20, 1, 0, RP_COUNT_drop_reserved},
    {"an item's key", RP_OP_SAMPLE, BODY + PAYLOAD + 96 + 7, 0x80, 0, RP_COUNT_drop_reserved},
    {"holes beyond the items", RP_OP_SAMPLE, BODY + 16 + 15, 0x80, 0, RP_COUNT_drop_reserved},
    {"more updates than were sent", RP_OP_UPDATE, BODY, 64, 0, RP_COUNT_drop_reserved},
    {"an update's reserved field", RP_OP_UPDATE, BODY + 12, 1, 0, RP_COUNT_drop_reserved},
    {"a piece never sent", RP_OP_PUBLISH, BODY, 1 << 20, 0, RP_COUNT_drop_reserved},
    {"a blob of other payload", RP_OP_BLOB, BODY + 28, 8, 0, RP_COUNT_drop_reserved},
    {"a blob too large", RP_OP_BLOB, BODY + 12, 1, 0, RP_COUNT_drop_reserved},
};

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info info;

/* Changes the first answer of that operation on its way to the client. 1 = there was one. */
static int change(struct world *world, const struct wrong *wrong) {
    struct world_port *port = &world->ports[1];
    for (uint32_t i = 0; i < port->count; i++) {
        uint8_t *data = port->queue[i].data;
        struct rp_outer outer;
        struct rp_message message;
        memcpy(&outer, data, sizeof outer);
        memcpy(&message, data + sizeof outer, sizeof message);
        if (message.op != (wrong->op | RP_ANSWER)) {
            continue;
        }
        uint32_t left = port->queue[i].size - wrong->offset;
        for (uint32_t k = 0; k < 8 && k < left; k++) {
            data[wrong->offset + k] ^= (uint8_t)(wrong->flip >> 8 * k);
        }
        if (wrong->offset == 8) {
            memset(data + 8, 0, 8);
        }
        if (!wrong->unsealed) {
            uint32_t crc;
            memset(data + 24, 0, 16);
            crc = rp_crc32c(0, data, port->queue[i].size);
            memcpy(data + 24, &crc, 4);
        }
        return 1;
    }
    return 0;
}

struct asked {
    uint64_t values[8], counters[RP_COUNTER_COUNT], version, size;
    struct rp_landing_column column;
    struct rp_landing landing;
    struct rp_writer_granted granted;
    struct rp_updated updated;
    uint8_t blob[4000];
};

static int ask(struct world *world, uint8_t op, struct asked *asked) {
    uint64_t later = world_later(world, 5000), key = info.capacity;
    struct rp_sample request = {.count = 8};
    double priority = 2;
    asked->column = (struct rp_landing_column){(uint8_t *)asked->values, 8, 0, 8};
    asked->landing = (struct rp_landing){
        .columns = &asked->column, .column_count = 1, .item_bytes = 16};
    switch (op) {
    case RP_OP_TABLE: return rp_client_table(world->client, "rows", &info, later);
    case RP_OP_PING: return rp_client_ping(world->client, later);
    case RP_OP_WRITER:
        return rp_client_writer(world->client, &info, 1, &asked->granted, later);
    case RP_OP_STATS: return rp_client_stats(world->client, asked->counters, NULL, later);
    case RP_OP_SAMPLE:
        return rp_client_sample(world->client, 1, &request, NULL, &asked->landing, later);
    case RP_OP_UPDATE:
        return rp_client_update(world->client, 1, info.epoch, &key, &priority, 1, &asked->updated,
                                later);
    case RP_OP_PUBLISH:
        return rp_client_publish(world->client, asked->blob, sizeof asked->blob, &asked->version,
                                 later);
    default:
        return rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, asked->blob,
                              sizeof asked->blob, &asked->size, &asked->version, later);
    }
}

static int has_ended(struct world *world, uint8_t op, int ticket) {
    struct rp_push_state state;
    if (op != RP_OP_PUSH) {
        return rp_client_poll(world->client, ticket) != RP_PENDING;
    }
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.status == 0);
    return state.messages_open == 0;
}

static void push_one(struct world *world) {
    uint64_t step[2] = {1, 1};
    CHECK(rp_client_push(world->client, 1, 0, (const uint8_t *)step, 1, RP_RUN_ITEM, NULL) == 1);
    rp_client_flush(world->client, 1);
}

/* Given one answer that is wrong. Expect its counter to move, once, and the request to end well. */
static void situation(struct world *world, const struct wrong *wrong) {
    static struct asked asked;
    const uint64_t *counters = rp_client_counters(world->client);
    uint64_t before = counters[wrong->counter];
    int ticket = 0, changed = 0;
    if (wrong->op == RP_OP_PUSH) {
        push_one(world);
    } else {
        ticket = ask(world, wrong->op, &asked);
        CHECK(ticket > 0, "%s: %d", wrong->what, ticket);
    }
    uint64_t end = world_later(world, 6000);
    while (world_turn(world), !has_ended(world, wrong->op, ticket)) {
        changed = changed || change(world, wrong);
        CHECK(world->now_ns < end, "%s: the request never ends", wrong->what);
        world_advance(world, 10 * WORLD_MS);
    }
    CHECK(changed, "%s: nothing was changed", wrong->what);
    CHECK(counters[wrong->counter] == before + 1, "%s: %s moved by %" PRIu64, wrong->what,
          rp_counter_name(wrong->counter), counters[wrong->counter] - before);
    if (wrong->op != RP_OP_PUSH) {
        int status = rp_client_poll(world->client, ticket);
        CHECK(status == 0, "%s: status %d", wrong->what, status);
        rp_client_take(world->client, ticket);
    }
}

/* Lets the first answer of this operation come a second time, under another packet's number. */
static int repeat(struct world *world, uint8_t op) {
    struct world_port *port = &world->ports[1];
    struct world_datagram *first = world_find(port, op | RP_ANSWER, 0);
    if (first == NULL) {
        return 0;
    }
    struct world_datagram *second = &port->queue[port->count++];
    *second = *first;
    second->data = malloc(first->size);
    memcpy(second->data, first->data, first->size);
    ((struct rp_outer *)(void *)second->data)->packet += 32; /* within the window of what is new */
    world_reseal(second);
    return 1;
}

/* Given an answer that comes twice. Expect the second one to be counted as asked for by nobody, and
 * to change nothing. */
static void situation_twice(struct world *world, uint8_t op) {
    static struct asked asked;
    const uint64_t *counters = rp_client_counters(world->client);
    uint64_t before = counters[RP_COUNT_drop_unsolicited];
    int ticket = 0, repeated = 0;
    if (op == RP_OP_PUSH) {
        push_one(world);
    } else {
        ticket = ask(world, op, &asked);
    }
    while (world_turn(world), !has_ended(world, op, ticket) || !repeated) {
        repeated = repeated || repeat(world, op);
        world_advance(world, 10 * WORLD_MS);
    }
    world_run(world, WORLD_MS);
    CHECK(counters[RP_COUNT_drop_unsolicited] == before + 1, "operation %u: %" PRIu64, op,
          counters[RP_COUNT_drop_unsolicited] - before);
    if (op != RP_OP_PUSH) {
        CHECK(rp_client_poll(world->client, ticket) == 0);
        rp_client_take(world->client, ticket);
    }
}

int main(void) {
    static struct asked asked;
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    struct world *world = world_open(&config, 1);
    world_connect(world);
    CHECK(world_wait(world, ask(world, RP_OP_TABLE, &asked)) == 0);
    CHECK(world_wait(world, ask(world, RP_OP_WRITER, &asked)) == 0);
    for (uint32_t i = 0; i < 8; i++) {
        push_one(world);
        world_run(world, WORLD_MS);
    }
    CHECK(world_wait(world, ask(world, RP_OP_PUBLISH, &asked)) == 0);
    for (uint32_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        situation(world, &wrongs[i]);
    }
    static const uint8_t ops[] = {RP_OP_TABLE, RP_OP_PING, RP_OP_WRITER, RP_OP_STATS, RP_OP_PUSH,
                                  RP_OP_SAMPLE, RP_OP_UPDATE, RP_OP_PUBLISH, RP_OP_BLOB};
    for (uint32_t i = 0; i < sizeof ops; i++) {
        situation_twice(world, ops[i]);
    }
    world_close(world);
    check_group("an answer that comes twice counts once");
    check_group("each wrong answer is dropped, counted, and asked for again");
    return check_done("test_client_malformed");
}
