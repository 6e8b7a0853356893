/* A region and the configuration it is opened with: see compare.h.
 *
 * Only the segment `state` is looked at, and nothing is trusted before the checksum of the header
 * has been compared. What may change is how long things last (idle_ms, lapse_ms), what the port
 * carries (mtu, receive_budget) and the tables' limiters; they are changed in one transaction.
 *
 * The promises to a session hold while it lasts. So a smaller mtu is refused, and a shorter idle_ms
 * is for sessions to come. A limiter that admits fewer items at once ends the sessions of the
 * table's writers, whose messages bring as many items as the old limiter admitted.
 */
#include <stdio.h>
#include <string.h>

#include "protocol/compare.h"
#include "server/server_state.h"

static int refuse(char error[256], const char *why) {
    snprintf(error, 256, "%s", why);
    return -RP_BAD_REGION;
}

static int refuse_build(char error[256]) {
    return refuse(error, "the region was laid out by another build or is damaged: serve it with "
                         "the build that made it, or name another region");
}

static int check_header(const struct rp_region *region, size_t bytes, char error[256]) {
    if (bytes < sizeof *region || region->magic != RP_REGION_MAGIC) {
        return refuse(error, "the region holds no server, it was never made whole: start with a "
                             "new one");
    }
    if (region->version != RP_REGION_VERSION || region->sum != rp_region_sum(region)) {
        return refuse_build(error);
    }
    if (bytes < region->state_bytes) {
        return refuse(error, "the region is shorter than the one that was created: start with a "
                             "new one");
    }
    return 0;
}

static void compare_limits(struct rp_comparison *c, const struct rp_limits *had,
                           const struct rp_limits *wants) {
    rp_compare_number(c, "table count", had->table_count, wants->table_count);
    rp_compare_number(c, "sessions", had->sessions_max, wants->sessions_max);
    rp_compare_number(c, "batch_max", had->batch_max, wants->batch_max);
    rp_compare_number(c, "records", had->records, wants->records);
    rp_compare_number(c, "weights_max", had->weights_max, wants->weights_max);
    rp_compare_change(c, "mtu", had->mtu, wants->mtu);
    rp_compare_change(c, "receive_budget", had->receive_budget, wants->receive_budget);
    rp_compare_change(c, "idle_ms", had->idle_ms, wants->idle_ms);
    rp_compare_change(c, "lapse_ms", had->lapse_ms, wants->lapse_ms);
}

/* Do all parts of the segments lie where this build puts them? The checksum alone does not prove
 * that: it covers what the build that made the region knew. */
static int lies_alike(const struct rp_region *had, const struct rp_region *wants) {
    size_t first = offsetof(struct rp_region, log);
    size_t end = offsetof(struct rp_region, locals);
    return memcmp((const uint8_t *)had + first, (const uint8_t *)wants + first, end - first) == 0;
}

/* A session was promised datagrams of a size that the port has to carry. A region that is refused
 * is left as it was: so the sessions that a redo would begin or end are worked out, not changed. */
static int check_sessions(const struct rp_region *region, const void *state, uint32_t mtu,
                          char error[256]) {
    const struct rp_session *sessions = (const void *)((const uint8_t *)state + region->sessions);
    const struct rp_intent_log *log = (const void *)((const uint8_t *)state + region->log);
    for (uint32_t i = 0; i < region->limits.sessions_max; i++) {
        uint64_t at = region->sessions + i * sizeof *sessions;
        struct rp_session session = sessions[i];
        session.connection = rp_intent_redone(
            log, at + offsetof(struct rp_session, connection), session.connection);
        session.agreed =
            rp_intent_redone(log, at + offsetof(struct rp_session, agreed), session.agreed);
        uint32_t agreed = rp_session_mtu(&session);
        if (session.connection != 0 && agreed > mtu) {
            snprintf(error, 256,
                     "a session in the region agreed on datagrams of %u bytes, this port takes %u: "
                     "say ?mtu=%u, or name another region",
                     agreed, mtu, agreed);
            return -RP_BAD_REGION;
        }
    }
    return 0;
}

int rp_region_compare(const void *state, size_t bytes, const struct rp_server_config *config,
                      char changes[256], char error[256]) {
    const struct rp_region *region = state;
    struct rp_comparison c = {.error = ""};
    struct rp_region wanted;
    int status = check_header(region, bytes, error);
    status = status < 0 ? status : rp_region_layout(config, &wanted, error);
    if (status < 0) {
        return status;
    }
    compare_limits(&c, &region->limits, &wanted.limits);
    if (!config->seed_drawn) {
        rp_compare_number(&c, "seed", region->seed, config->seed);
    }
    for (uint32_t i = 0; !c.error[0] && i < config->table_count; i++) {
        rp_table_compare((const uint8_t *)state + region->tables[i], i, &config->tables[i], &c);
    }
    memcpy(changes, c.changes, sizeof c.changes);
    if (c.error[0]) {
        memcpy(error, c.error, sizeof c.error);
        return -RP_BAD_REGION;
    }
    if (!lies_alike(region, &wanted)) {
        return refuse_build(error);
    }
    return check_sessions(region, state, config->mtu, error);
}

int rp_server_compare(const void *state, size_t bytes, const struct rp_server_config *config,
                      char error[256]) {
    char changes[RP_COMPARE_BYTES];
    return rp_region_compare(state, bytes, config, changes, error);
}

/* Writers whose session ended as the server before was killed. */
static void close_orphans(struct rp_server *server, struct rp_table *table) {
    for (uint32_t i = 0; i < rp_writer_places(table); i++) {
        uint64_t session = rp_writer_session(table, i);
        if (session != 0 && rp_session_find(server, session) == RP_NOBODY) {
            rp_writer_close(table, (int)i);
        }
    }
}

/* Before anything is adopted: killed in between, the next server ends those that are left. */
static void end_writers(struct rp_server *server, const struct rp_table *table) {
    for (uint32_t i = 0; i < rp_writer_places(table); i++) {
        uint32_t index = rp_session_find(server, rp_writer_session(table, i));
        if (index != RP_NOBODY) {
            rp_session_end(server, index);
            rp_server_count(server, RP_COUNT_sessions_expired);
        }
    }
}

/* Nothing verified what is left in a place that no session has, and a new one writes its own
 * records' names alone. */
static void clear_free_sessions(struct rp_server *server) {
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        struct rp_session *session = &server->sessions[i];
        if (session->connection == 0) {
            rp_region_clear(session->record_id, sizeof session->record_id);
        }
    }
}

void rp_region_adopt(struct rp_server *server, const struct rp_server_config *config) {
    struct rp_limits now = rp_region_limits(config);
    uint64_t words[sizeof now / 8];
    memcpy(words, &now, sizeof now);
    clear_free_sessions(server);
    for (uint32_t i = 0; i < config->table_count; i++) { /* all, before another session ends */
        close_orphans(server, &server->tables[i]);
    }
    for (uint32_t i = 0; i < config->table_count; i++) {
        if (rp_table_narrows(&server->tables[i], &config->tables[i])) {
            end_writers(server, &server->tables[i]);
        }
    }
    for (size_t i = 0; i < sizeof now / 8; i++) {
        rp_intent_set(&server->intent, (uint64_t *)(void *)&server->region->limits + i, words[i]);
    }
    for (uint32_t i = 0; i < config->table_count; i++) {
        rp_table_adopt(&server->tables[i], &config->tables[i]);
    }
}
