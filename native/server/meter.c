/* Names, bounds, and one consistent look at everything a server measures. What is counted on the
 * way is inline in meter.h; here rp_meter_ages runs for a batch and rp_meter_turn
 * for a turn.
 */
#include "server/meter.h"

#include <string.h>

#include "server/server_state.h"

static const char *const names[RP_OP_COUNT] = {
    [RP_OP_HELLO] = "hello",   [RP_OP_OPEN] = "open",     [RP_OP_ECHO] = "echo",
    [RP_OP_CLOSE] = "close",   [RP_OP_PING] = "ping",     [RP_OP_TABLE] = "table",
    [RP_OP_WRITER] = "writer", [RP_OP_PUSH] = "push",     [RP_OP_SAMPLE] = "sample",
    [RP_OP_PULL] = "pull",     [RP_OP_UPDATE] = "update", [RP_OP_PUBLISH] = "publish",
    [RP_OP_BLOB] = "blob",     [RP_OP_STATS] = "stats",   [RP_OP_RESET] = "reset",
    [RP_OP_CANCEL] = "cancel",
};

const char *rp_operation_name(int operation) {
    return operation >= 0 && operation < RP_OP_COUNT ? names[operation] : NULL;
}

uint64_t rp_histogram_bound(int bucket) {
    if (bucket < 2) {
        return bucket < 0 ? 0 : (uint64_t)bucket;
    }
    uint32_t octave = (uint32_t)bucket / 2;
    return ((3 + (uint64_t)bucket % 2) << (octave - 1)) - 1;
}

void rp_meter_ages(struct rp_meters *meters, uint32_t table, const struct rp_batch *head,
                   const struct rp_batch_item *items) {
    struct rp_histogram *ages = &meters->ages[table];
    uint64_t newest = head->head - 1;
    uint64_t sum = 0;
    uint32_t count = head->count;
    for (uint32_t i = 0; i < count; i += RP_AGES_EVERY) {
        uint64_t age = newest - items[i].key;
        ages->counts[rp_histogram_bucket(age)]++;
        sum += age;
    }
    ages->sum += sum;
}

void rp_meter_turn(struct rp_meters *meters, uint64_t elapsed_ns) {
    uint32_t bucket = rp_histogram_bucket(elapsed_ns);
    for (uint32_t i = 0; i < meters->served_count; i++) {
        struct rp_histogram *histogram = &meters->operations[meters->served[i]];
        histogram->sum += elapsed_ns;
        histogram->counts[bucket]++;
    }
    meters->served_count = 0;
}

static void measure_table(const struct rp_server *server, uint32_t number,
                          struct rp_table_measures *measures) {
    const struct rp_table *table = &server->tables[number];
    uint64_t need;
    uint32_t by_size;
    rp_table_info(table, &measures->info);
    measures->ages = server->meters.ages[number];
    measures->samples_waiting = server->waiting[RP_WAIT_SAMPLE][number].count;
    measures->pushes_waiting = server->waiting[RP_WAIT_PUSH][number].count;
    measures->holds_samples = rp_limiter_may_sample(table, 1, &need, &by_size) != 1;
    measures->fifo = (uint64_t)rp_table_fifo(table);
    measures->holds_inserts = rp_limiter_may_insert(table, 1, &need) != 1;
}

void rp_server_measure(const struct rp_server *server, uint64_t now_ns,
                       struct rp_measures *measures) {
    const struct rp_meters *meters = &server->meters;
    memset(measures, 0, sizeof *measures); /* places, tables and numbers that are not there, too */
    memcpy(measures->counters, server->counters, sizeof server->counters);
    measures->incarnation = rp_server_incarnation(server);
    measures->weights_version = rp_server_weights_version(server);
    measures->sessions = server->open;
    measures->table_count = server->limits.table_count;
    memcpy(measures->operations, meters->operations, sizeof meters->operations);
    measures->samples_waited = meters->waited[RP_WAIT_SAMPLE];
    measures->pushes_waited = meters->waited[RP_WAIT_PUSH];
    memcpy(measures->meters, meters->sessions, sizeof meters->sessions);
    for (uint32_t i = 0; i < server->limits.sessions_max && i < RP_SESSIONS_METERED; i++) {
        measures->states[i].open = server->sessions[i].connection != 0;
        measures->states[i].silence_ns = now_ns - server->lines[i].heard_ns;
    }
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        measure_table(server, i, &measures->tables[i]);
    }
}
