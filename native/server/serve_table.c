/* TABLE, WRITER, RESET, STATS: facts about tables and the server, and the few rare changes. */
#include <string.h>

#include "base/minmax.h"
#include "server/serve.h"

static int all_zero(const uint8_t *bytes, uint32_t count) {
    uint8_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum |= bytes[i];
    }
    return sum == 0;
}

/* By name; or by the header's number where the name is all zero. */
static const struct rp_table *find_table(const struct rp_call *call, const uint8_t *name) {
    const struct rp_server *server = call->server;
    if (all_zero(name, RP_NAME_BYTES)) {
        return rp_serve_table(call);
    }
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        if (memcmp(server->names[i], name, RP_NAME_BYTES) == 0) {
            return &server->tables[i];
        }
    }
    return NULL;
}

int rp_serve_info(struct rp_call *call) {
    const struct rp_table_request *request = (const void *)call->view.body;
    const struct rp_table *table = find_table(call, request->name);
    if (table == NULL) {
        return -RP_UNKNOWN_TABLE;
    }
    struct rp_table_info info;
    rp_table_info(table, &info);
    call->message.table = (uint16_t)table->number;
    memcpy(rp_serve_room(call), &info, sizeof info);
    return sizeof info;
}

/* A place may be held by a session whose client died: a silent one that holds a place here is given
 * up before anyone is refused, however many others are silent. */
static int open_writer(struct rp_call *call, struct rp_table *table, uint16_t streams) {
    uint64_t session = rp_serve_session(call)->connection;
    int writer = rp_writer_open(table, session, streams);
    if (writer == -RP_NO_WRITER_FREE) {
        rp_share_take(call->server, call->session, rp_writer_places(table)); /* all looked at */
        if (rp_session_give_up_writer(call->server, table)) {
            writer = rp_writer_open(table, session, streams);
        }
    }
    return writer;
}

int rp_serve_writer(struct rp_call *call) {
    const struct rp_writer_request *request = (const void *)call->view.body;
    struct rp_table *table = rp_serve_table(call);
    if (table == NULL) {
        return -RP_UNKNOWN_TABLE;
    }
    if (request->reserved[0] != 0 || request->reserved[1] != 0 || request->reserved[2] != 0) {
        return -RP_BAD_RESERVED;
    }
    if (request->streams == 0) {
        return -RP_BAD_ARGUMENT;
    }
    if (!rp_share_allows(call->server, call->session, 0)) {
        return rp_serve_drop(call, RP_COUNT_drop_share);
    }
    int writer = open_writer(call, table, request->streams);
    if (writer < 0) {
        return writer;
    }
    struct rp_writer_granted granted;
    rp_writer_granted(table, writer, &granted);
    memcpy(rp_serve_room(call), &granted, sizeof granted);
    return sizeof granted;
}

/* Names the epoch it wants to end: a repeat finds another one and only learns it. */
int rp_serve_reset(struct rp_call *call) {
    const struct rp_reset *request = (const void *)call->view.body;
    struct rp_table *table = rp_serve_table(call);
    if (table == NULL) {
        return -RP_UNKNOWN_TABLE;
    }
    if (request->epoch == rp_table_epoch(table)) {
        rp_table_reset(table, rp_session_random_id(call->server));
    }
    struct rp_reset_done done = {.epoch = rp_table_epoch(table)};
    memcpy(rp_serve_room(call), &done, sizeof done);
    return sizeof done;
}

int rp_serve_stats(struct rp_call *call) {
    const struct rp_stats_request *request = (const void *)call->view.body;
    const struct rp_server *server = call->server;
    struct rp_fact facts[RP_FACTS_MAX];
    int of_port = (request->first & RP_STATS_FACTS) != 0;
    const uint8_t *all = of_port ? (const void *)facts : (const void *)server->counters;
    uint32_t each = of_port ? sizeof facts[0] : sizeof server->counters[0];
    uint32_t total = of_port ? rp_port_facts(call->turn->port, facts) : RP_COUNTER_COUNT;
    uint32_t first = request->first & ~RP_STATS_FACTS;
    if (first > total) {
        return -RP_BAD_ARGUMENT;
    }
    uint32_t room = (rp_serve_room_bytes(call) - (uint32_t)sizeof(struct rp_stats)) / each;
    uint32_t count = rp_min(request->count, total - first);
    count = rp_min(count, room);
    struct rp_stats stats = {.first = request->first, .count = count, .total = total,
                             .sessions = server->open};
    uint8_t *answer = rp_serve_room(call);
    memcpy(answer, &stats, sizeof stats);
    memcpy(answer + sizeof stats, all + (size_t)each * first, (size_t)each * count);
    return (int)(sizeof stats + each * count);
}
