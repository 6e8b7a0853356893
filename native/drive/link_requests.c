/* What a link's callers post and ask: each call enters the gate, hands its arguments to the
 * client's function of the same name, and leaves. Time-outs become deadlines on the link's clock
 * here.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "drive/link_drive.h"

/* ---- asking ---- */

int rp_link_state(struct rp_link *link) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        status = rp_client_state(link->client);
        rp_gate_leave(&link->gate);
    }
    return status;
}

int rp_link_counters(struct rp_link *link, uint64_t *counters) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        memcpy(counters, rp_client_counters(link->client), RP_COUNTER_COUNT * sizeof *counters);
        rp_gate_leave(&link->gate);
    }
    return status;
}

int rp_link_limits(struct rp_link *link, struct rp_opened *limits) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        rp_client_limits(link->client, limits);
        rp_gate_leave(&link->gate);
    }
    return status;
}

static uint64_t ask(struct rp_link *link, uint64_t (*question)(const struct rp_client *)) {
    uint64_t answer = 0;
    if (!rp_gate_enter(&link->gate)) {
        answer = question(link->client);
        rp_gate_leave(&link->gate);
    }
    return answer;
}

uint64_t rp_link_incarnation(struct rp_link *link) {
    return ask(link, rp_client_incarnation);
}

uint64_t rp_link_session(struct rp_link *link) {
    return ask(link, rp_client_session);
}

uint64_t rp_link_weights_version(struct rp_link *link) {
    return ask(link, rp_client_weights_version);
}

static uint64_t widen_mtu(const struct rp_client *client) {
    return rp_client_mtu(client);
}

uint32_t rp_link_mtu(struct rp_link *link) {
    return (uint32_t)ask(link, widen_mtu);
}

uint32_t rp_link_own_facts(struct rp_link *link, struct rp_fact *facts) {
    uint32_t count = 0;
    if (!rp_gate_enter(&link->gate)) {
        count = rp_port_facts(link->port, facts);
        rp_gate_leave(&link->gate);
    }
    return count;
}

uint64_t rp_link_dropped(struct rp_link *link) {
    uint64_t dropped = 0;
    if (!rp_gate_enter(&link->gate)) {
        dropped = rp_port_base(link->port)->dropped_out;
        rp_gate_leave(&link->gate);
    }
    return dropped;
}

/* ---- waiting ---- */

static int is_open(struct rp_link *link, void *argument) {
    (void)argument;
    int state = rp_client_state(link->client);
    return state == 1 ? 0 : state == 0 ? RP_PENDING : state;
}

int rp_link_connect(struct rp_link *link, uint64_t timeout_ns) {
    return rp_link_until(link, is_open, NULL, timeout_ns);
}

static int has_moved(struct rp_link *link, void *argument) {
    return atomic_load(&link->progress) == *(uint32_t *)argument ? RP_PENDING : 1;
}

int rp_link_drive(struct rp_link *link, uint64_t timeout_ns) {
    uint32_t before = atomic_load(&link->progress);
    int moved = rp_link_until(link, has_moved, &before, timeout_ns);
    return moved == RP_PENDING ? 0 : moved;
}

struct ticket_wait {
    int ticket;
    struct rp_blocked *blocked;
};

static int has_ended(struct rp_link *link, void *argument) {
    const struct ticket_wait *wait = argument;
    int status = rp_client_poll(link->client, wait->ticket);
    if (wait->blocked) {
        rp_client_blocked(link->client, wait->ticket, wait->blocked);
    }
    if (status != RP_PENDING) {
        rp_client_take(link->client, wait->ticket);
    }
    return status;
}

int rp_link_wait(struct rp_link *link, int ticket, uint64_t timeout_ns,
                 struct rp_blocked *blocked) {
    struct ticket_wait wait = {ticket, blocked};
    return rp_link_until(link, has_ended, &wait, timeout_ns);
}

int rp_link_poll(struct rp_link *link, int ticket) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        status = rp_client_poll(link->client, ticket);
        rp_gate_leave(&link->gate);
    }
    return status;
}

void rp_link_take(struct rp_link *link, int ticket) {
    if (!rp_gate_enter(&link->gate)) {
        rp_client_take(link->client, ticket);
        rp_link_posted(link); /* a SAMPLE that waits is withdrawn */
        rp_gate_leave(&link->gate);
    }
}

/* ---- requests ---- */

/* Ends a request's post: sends it on its way where it was taken, and leaves the gate. */
static int post_end(struct rp_link *link, int ticket) {
    if (ticket > 0) {
        rp_link_posted(link);
    }
    rp_gate_leave(&link->gate);
    return ticket;
}

int rp_link_table(struct rp_link *link, const char *name, struct rp_table_info *info,
                  uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_table(link->client, name, info, deadline));
}

int rp_link_table_number(struct rp_link *link, uint16_t table, struct rp_table_info *info,
                         uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_table_number(link->client, table, info, deadline));
}

int rp_link_writer(struct rp_link *link, const struct rp_table_info *info, uint16_t streams,
                   struct rp_writer_granted *granted, uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_writer(link->client, info, streams, granted, deadline));
}

int rp_link_sample(struct rp_link *link, uint16_t table, const struct rp_sample *request,
                   const uint64_t *keys, const struct rp_landing *landing, uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    /* 0: waits for an answer, not for the limiter */
    uint64_t deadline = timeout_ns ? rp_link_deadline(link, timeout_ns) : 0;
    return post_end(link, rp_client_sample(link->client, table, request, keys, landing, deadline));
}

int rp_link_update(struct rp_link *link, uint16_t table, uint64_t epoch, const uint64_t *keys,
                   const double *priorities, uint32_t count, struct rp_updated *result,
                   uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_update(link->client, table, epoch, keys, priorities, count,
                                           result, deadline));
}

static uint64_t widen_update_room(const struct rp_client *client) {
    return rp_client_update_room(client);
}

uint32_t rp_link_update_room(struct rp_link *link) {
    return (uint32_t)ask(link, widen_update_room);
}

struct queue_wait {
    uint16_t table;
    uint32_t count;
    uint64_t epoch;
    uint64_t timeout_ns;
    const uint64_t *keys;
    const double *priorities;
    int taken;
};

static int try_queue(struct rp_link *link, void *argument) {
    struct queue_wait *wait = argument;
    wait->taken = rp_client_update_queue(link->client, wait->table, wait->epoch, wait->keys,
                                         wait->priorities, wait->count,
                                         rp_link_deadline(link, wait->timeout_ns));
    if (wait->taken > 0) {
        rp_link_posted(link);
    }
    return wait->taken == 0 ? RP_PENDING : 0;
}

int rp_link_update_queue(struct rp_link *link, uint16_t table, uint64_t epoch,
                         const uint64_t *keys, const double *priorities, uint32_t count,
                         uint64_t timeout_ns, uint64_t patience_ns) {
    struct queue_wait wait = {.table = table, .count = count, .epoch = epoch,
                              .timeout_ns = timeout_ns, .keys = keys, .priorities = priorities};
    int result = count ? rp_link_until(link, try_queue, &wait, patience_ns) : 0;
    return result < 0 ? result : wait.taken;
}

int rp_link_update_state(struct rp_link *link, struct rp_update_state *state) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        rp_client_update_state(link->client, state);
        rp_gate_leave(&link->gate);
    }
    return status;
}

static int is_updated(struct rp_link *link, void *argument) {
    (void)argument;
    return rp_client_update_busy(link->client) ? RP_PENDING : 0;
}

int rp_link_update_settle(struct rp_link *link, uint64_t timeout_ns) {
    return rp_link_until(link, is_updated, NULL, timeout_ns);
}

int rp_link_publish(struct rp_link *link, const uint8_t *bytes, uint64_t size, uint64_t *version,
                    uint64_t timeout_ns) {
    /* Before the gate: nobody waits for the sum of a large blob. */
    uint32_t crc = size <= RP_BLOB_BYTES_MAX ? rp_crc32c(0, bytes, size) : 0;
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_publish_summed(link->client, bytes, size, crc, version,
                                                   deadline));
}

int rp_link_blob(struct rp_link *link, uint16_t kind, uint16_t table, uint64_t wanted,
                 uint8_t *target, uint64_t capacity, uint64_t *size, uint64_t *version,
                 uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_blob(link->client, kind, table, wanted, target, capacity, size,
                                         version, deadline));
}

int rp_link_stats(struct rp_link *link, uint64_t *counters, uint32_t *sessions,
                  uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_stats(link->client, counters, sessions, deadline));
}

int rp_link_facts(struct rp_link *link, struct rp_fact *facts, uint32_t *count,
                  uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_facts(link->client, facts, count, deadline));
}

int rp_link_reset(struct rp_link *link, uint16_t table, uint64_t epoch, uint64_t *new_epoch,
                  uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    uint64_t deadline = rp_link_deadline(link, timeout_ns);
    return post_end(link, rp_client_reset(link->client, table, epoch, new_epoch, deadline));
}

int rp_link_ping(struct rp_link *link, uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    return post_end(link, rp_client_ping(link->client, rp_link_deadline(link, timeout_ns)));
}
