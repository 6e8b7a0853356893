/* Pushing through a link. A push is taken as far as the client's queue has room. Where there is no
 * room the caller drives until something moved, for its time-out at most, and tries again. All
 * calls copy.
 */
#include <stddef.h>

#include "drive/link_drive.h"

struct rows { /* what one call pushes or creates, and how far it has got */
    uint16_t table;
    uint16_t stream; /* of a run of steps */
    const uint16_t *streams; /* of creates */
    const uint64_t *numbers;
    const double *priorities;
    const uint8_t *bytes;
    uint32_t run_flags;
    uint32_t count;
    uint32_t taken;
};

/* Inside the gate: takes what there is room for and counts it in rows->taken. Returns 0 where the
 * call is done, RP_PENDING, or, where nothing was taken, a negative status. Never the count itself:
 * RP_PENDING is a number too. */
typedef int take_rows(struct rp_client *client, struct rows *rows);

struct push_wait {
    struct rows *rows;
    take_rows *take;
};

static int take_run(struct rp_client *client, struct rows *rows) {
    int taken = rp_client_push(client, rows->table, rows->stream, rows->bytes, rows->count,
                               rows->run_flags, rows->priorities);
    rows->taken = taken > 0 ? (uint32_t)taken : 0;
    return taken > 0 ? 0 : taken == 0 || taken == -RP_FULL ? RP_PENDING : taken;
}

static int take_creates(struct rp_client *client, struct rows *rows) {
    int status = 0;
    while (rows->taken < rows->count && status == 0) {
        uint32_t i = rows->taken;
        status = rp_client_create(client, rows->table, rows->streams[i], rows->numbers[i],
                                  rows->priorities ? rows->priorities[i] : 0.0,
                                  rows->priorities ? 0 : RP_CREATE_MAXIMUM);
        rows->taken += status == 0;
    }
    return status == -RP_FULL ? RP_PENDING : rows->taken ? 0 : status;
}

static int try_take(struct rp_link *link, void *argument) {
    struct push_wait *wait = argument;
    int result = wait->take(link->client, wait->rows);
    rp_link_posted(link);
    return result;
}

/* Returns how many were taken, 0 where the queue stayed full, or a negative status. */
static int take_all(struct rp_link *link, struct rows *rows, take_rows *take, uint64_t timeout_ns) {
    struct push_wait wait = {rows, take};
    int result = rp_link_until(link, try_take, &wait, timeout_ns);
    return result < 0 ? result : (int)rows->taken;
}

int rp_link_push(struct rp_link *link, uint16_t table, uint16_t stream, const uint8_t *steps,
                 uint32_t count, uint32_t flags, const double *priorities, uint64_t timeout_ns) {
    struct rows rows = {.table = table, .stream = stream, .bytes = steps, .count = count,
                        .run_flags = flags, .priorities = priorities};
    return count ? take_all(link, &rows, take_run, timeout_ns) : 0;
}

int rp_link_create(struct rp_link *link, uint16_t table, const uint16_t *streams,
                   const uint64_t *steps, const double *priorities, uint32_t count,
                   uint64_t timeout_ns) {
    struct rows rows = {.table = table, .streams = streams, .numbers = steps,
                        .priorities = priorities, .count = count};
    return count ? take_all(link, &rows, take_creates, timeout_ns) : 0;
}

int rp_link_flush(struct rp_link *link, uint16_t table) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        rp_client_flush(link->client, table);
        rp_link_posted(link);
        rp_gate_leave(&link->gate);
    }
    return status;
}

/* Flushes at every look: steps whose place was lost before commit fill a new datagram. */
static int is_settled(struct rp_link *link, void *argument) {
    struct rp_push_state state;
    uint16_t table = *(uint16_t *)argument;
    rp_client_flush(link->client, table);
    rp_client_push_state(link->client, table, &state);
    return state.status < 0 ? state.status : state.messages_open ? RP_PENDING : 0;
}

int rp_link_settle(struct rp_link *link, uint16_t table, uint64_t timeout_ns) {
    return rp_link_until(link, is_settled, &table, timeout_ns);
}

int rp_link_push_state(struct rp_link *link, uint16_t table, struct rp_push_state *state) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        rp_client_push_state(link->client, table, state);
        rp_gate_leave(&link->gate);
    }
    return status;
}

int rp_link_ledger(struct rp_link *link, struct rp_push_key *keys, uint32_t count) {
    int taken = rp_gate_enter(&link->gate);
    if (!taken) {
        taken = (int)rp_client_ledger(link->client, keys, count);
        rp_gate_leave(&link->gate);
    }
    return taken;
}

int rp_link_keys(struct rp_link *link, uint16_t table, uint64_t first, uint64_t *keys,
                 uint32_t count) {
    int written = rp_gate_enter(&link->gate);
    if (!written) {
        written = (int)rp_client_keys(link->client, table, first, keys, count);
        rp_gate_leave(&link->gate);
    }
    return written;
}

int rp_link_loss(struct rp_link *link, uint16_t table, uint64_t *stored_through,
                 uint64_t *in_doubt, uint64_t *lost) {
    int status = rp_gate_enter(&link->gate);
    if (!status) {
        rp_client_loss(link->client, table, stored_through, in_doubt, lost);
        rp_gate_leave(&link->gate);
    }
    return status;
}
