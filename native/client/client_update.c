/* Priorities: copied at post, cut into datagrams, applied by the server in the order of their
 * ids.
 *
 * Entries stand in one ring, a posted update is a segment of it. Datagrams are cut off the oldest
 * segment, numbered 1, 2, 3 ... in the session, and up to CLIENT_UPDATES_MAX are in flight. The
 * server takes them only in order: one that came too early is sent again after the missing one.
 * An id that was used must arrive, even if its request was abandoned. So an abandoned segment is
 * dropped only while none of it has a number yet.
 *
 *     base_id <= ids in datagrams < next_id <= base_id + CLIENT_UPDATES_MAX
 *     used == sum over segments of count; segments before segment_cut are cut wholly
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"
#include "base/power.h"

static struct client_segment *segment_at(struct client_updates *updates, uint32_t i) {
    return &updates->segments[(updates->segment_first + i) % updates->segments_max];
}

static struct client_update *datagram_of(struct client_updates *updates, uint64_t id) {
    return &updates->datagrams[id % CLIENT_UPDATES_MAX];
}

uint32_t rp_client_update_room(const struct rp_client *client) {
    const struct client_updates *updates = &client->updates;
    int full = updates->segment_count == updates->segments_max;
    return full ? 0 : updates->capacity - updates->used;
}

/* ---- posting ---- */

static uint32_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return (uint32_t)(key >> 32);
}

/* Appends the entry, or overwrites the one of the same key in this post (the last wins). Returns
 * entries added. `mask`: as many places as the post has keys for, so that few lines are touched. */
static uint32_t append(struct client_updates *updates, uint32_t mask, uint32_t count, uint64_t key,
                       double priority) {
    uint32_t at = hash(key) & mask;
    while (updates->seen[at].stamp == updates->stamp) {
        struct rp_update_entry *entry = &updates->entries[updates->seen[at].entry];
        if (entry->key == key) {
            entry->priority = priority;
            return 0;
        }
        at = (at + 1) & mask;
    }
    uint32_t place = (updates->fill + count) % updates->capacity;
    updates->seen[at] = (struct client_seen){updates->stamp, place};
    updates->entries[place] = (struct rp_update_entry){key, priority};
    return 1;
}

static void next_stamp(struct client_updates *updates) {
    if (++updates->stamp == 0) {
        memset(updates->seen, 0, updates->seen_places * sizeof *updates->seen);
        updates->stamp = 1;
    }
}

static int check_post(const struct rp_client *client, const double *priorities, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!rp_power_valid(priorities[i])) {
            return -RP_BAD_PRIORITY;
        }
    }
    if (count == 0 || count > client->updates.capacity) {
        return -RP_BAD_ARGUMENT;
    }
    return count > rp_client_update_room(client) ? -RP_FULL : 0;
}

static int post(struct rp_client *client, uint16_t table, uint64_t epoch, const uint64_t *keys,
                const double *priorities, uint32_t count, uint64_t deadline_ns) {
    struct client_updates *updates = &client->updates;
    int number = rp_client_ticket_new(client, RP_OP_UPDATE, table, deadline_ns, 0);
    if (number < 0) {
        return number;
    }
    struct client_ticket *ticket = rp_client_ticket_at(client, number);
    rp_client_sender_remove(client, &ticket->sender); /* the queue sends, not the ticket */
    ticket->of.update.count = count;
    next_stamp(updates);
    uint32_t added = 0, mask = rp_client_places(count) - 1;
    for (uint32_t i = 0; i < count; i++) {
        added += append(updates, mask, added, keys[i], priorities[i]);
    }
    *segment_at(updates, updates->segment_count++) =
        (struct client_segment){.epoch = epoch,
                                .count = added,
                                .table = table,
                                .ticket = rp_client_ticket_index(client, ticket)};
    updates->fill = (updates->fill + added) % updates->capacity;
    updates->used += added;
    rp_client_sender_add(client, &updates->sender);
    return number;
}

int rp_client_update(struct rp_client *client, uint16_t table, uint64_t epoch,
                     const uint64_t *keys, const double *priorities, uint32_t count,
                     struct rp_updated *result, uint64_t deadline_ns) {
    int number = check_post(client, priorities, count);
    if (number == 0) {
        number = post(client, table, epoch, keys, priorities, count, deadline_ns);
    }
    if (number > 0) {
        rp_client_ticket_at(client, number)->of.update.result = result;
    }
    return number;
}

/* Tickets are left for other requests: a learner that queues updates still draws batches. */
int rp_client_update_queue(struct rp_client *client, uint16_t table, uint64_t epoch,
                           const uint64_t *keys, const double *priorities, uint32_t count,
                           uint64_t deadline_ns) {
    struct client_updates *updates = &client->updates;
    uint32_t room =
        updates->queued_open < updates->queued_max ? rp_client_update_room(client) : 0;
    if (count > 0 && room == 0) {
        return 0;
    }
    count = rp_min(count, room);
    int status = check_post(client, priorities, count);
    if (status < 0) {
        return status;
    }
    int number = post(client, table, epoch, keys, priorities, count, deadline_ns);
    if (number < 0) {
        return number == -RP_FULL ? 0 : number;
    }
    rp_client_ticket_at(client, number)->queued = 1;
    updates->queued_open++;
    updates->queued.posted += count;
    return (int)count;
}

void rp_client_update_reaped(struct rp_client *client, const struct client_ticket *ticket) {
    struct client_updates *updates = &client->updates;
    struct rp_update_state *state = &updates->queued;
    updates->queued_open--;
    const struct rp_updated *sum = &ticket->of.update.sum;
    state->finished += ticket->of.update.count;
    state->applied += sum->applied;
    state->stale += sum->stale;
    state->unknown += sum->unknown;
    if (ticket->status == -RP_UNKNOWN_TABLE || ticket->status == -RP_SERVER_RESTARTED) {
        /* as with an old epoch: all keys without an answer count as stale */
        state->stale += ticket->of.update.count - sum->applied - sum->stale - sum->unknown;
    } else if (ticket->status != RP_OK) {
        state->failed += ticket->of.update.count;
        state->status = state->status != 0 ? state->status : ticket->status;
    }
}

void rp_client_update_state(struct rp_client *client, struct rp_update_state *state) {
    *state = client->updates.queued;
    client->updates.queued.status = 0;
}

int rp_client_update_busy(const struct rp_client *client) {
    return client->updates.queued_open > 0;
}

/* ---- sending ---- */

static void send_datagram(struct rp_client *client, struct client_update *update) {
    struct client_updates *updates = &client->updates;
    const struct client_segment *segment = &updates->segments[update->segment];
    struct rp_update head = {.epoch = segment->epoch, .count = update->count};
    uint8_t *body = rp_client_out_body(client);
    uint32_t before_end = updates->capacity - update->first;
    uint32_t part = rp_min(update->count, before_end);
    memcpy(body, &head, sizeof head);
    body += sizeof head;
    memcpy(body, &updates->entries[update->first], part * sizeof *updates->entries);
    memcpy(body + part * sizeof *updates->entries, updates->entries,
           (update->count - part) * sizeof *updates->entries);
    rp_client_out_seal(client, RP_OP_UPDATE, segment->table, update->id,
                       (uint32_t)(sizeof head + update->count * sizeof *updates->entries));
    update->flight = rp_client_flight_start(
        client, OWNER_UPDATE, (uint16_t)(update->id % CLIENT_UPDATES_MAX), NULL, update->tries);
    update->tries += update->tries < 32;
    update->state = UPDATE_FLYING;
}

/* Frees finished segments at the front. */
static void pop_segments(struct client_updates *updates) {
    while (updates->segment_count > 0) {
        const struct client_segment *segment = segment_at(updates, 0);
        if (segment->cut < segment->count || segment->open > 0) {
            return;
        }
        updates->used -= segment->count;
        updates->segment_first = (updates->segment_first + 1) % updates->segments_max;
        updates->segment_count--;
        updates->segment_cut -= updates->segment_cut > 0;
    }
}

/* The next datagram, cut off the oldest segment that has entries left; or null. */
static struct client_update *cut_next(struct rp_client *client) {
    struct client_updates *updates = &client->updates;
    uint32_t most = (client->session.mtu - RP_HEADER_BYTES - (uint32_t)sizeof(struct rp_update))
                    / (uint32_t)sizeof(struct rp_update_entry);
    while (updates->segment_cut < updates->segment_count) {
        uint32_t at = (updates->segment_first + updates->segment_cut) % updates->segments_max;
        struct client_segment *segment = &updates->segments[at];
        uint32_t left = segment->count - segment->cut;
        int dropped = segment->ticket == CLIENT_NONE && segment->cut == 0;
        uint32_t count = dropped ? left : rp_min(left, most);
        uint32_t first = updates->cut;
        updates->cut = (updates->cut + count) % updates->capacity;
        segment->cut += count;
        updates->segment_cut += segment->cut == segment->count;
        if (dropped) {
            pop_segments(updates);
            continue;
        }
        segment->open++;
        struct client_update *update = datagram_of(updates, updates->next_id);
        *update = (struct client_update){.id = updates->next_id++,
                                         .first = first,
                                         .count = count,
                                         .segment = at,
                                         .state = UPDATE_DUE};
        return update;
    }
    return NULL;
}

/* The datagram to send now: one that was cut and has to be sent again, or the next one. Null where
 * as many as allowed are under way: an answer, or a timer, makes room and adds the sender again. */
static struct client_update *due_next(struct rp_client *client) {
    struct client_updates *updates = &client->updates;
    for (uint64_t id = updates->base_id; id < updates->next_id; id++) {
        struct client_update *update = datagram_of(updates, id);
        if (update->state == UPDATE_DUE) {
            return update;
        }
    }
    int full = updates->next_id - updates->base_id == CLIENT_UPDATES_MAX;
    return full ? NULL : cut_next(client);
}

enum client_sending rp_client_update_send(struct rp_client *client) {
    struct client_update *update = due_next(client);
    if (update == NULL) {
        return SEND_NOTHING;
    }
    send_datagram(client, update);
    return SEND_DONE;
}

/* ---- answers ---- */

static void land(struct client_update *update, struct rp_client *client) {
    if (update->state == UPDATE_FLYING) {
        rp_client_flight_end(client, update->flight, NULL);
    }
}

static void finish_segment(struct rp_client *client, struct client_segment *segment) {
    if (segment->ticket != CLIENT_NONE) {
        struct client_ticket *ticket = &client->tickets[segment->ticket];
        if (ticket->of.update.result != NULL) {
            *ticket->of.update.result = ticket->of.update.sum;
        }
        rp_client_ticket_finish(client, ticket, ticket->of.update.failed);
    }
}

static void settle(struct rp_client *client, struct client_update *update, int status,
                   const struct rp_updated *result) {
    struct client_updates *updates = &client->updates;
    struct client_segment *segment = &updates->segments[update->segment];
    land(update, client);
    update->state = UPDATE_DONE;
    if (segment->ticket != CLIENT_NONE) {
        struct client_ticket *ticket = &client->tickets[segment->ticket];
        ticket->of.update.sum.applied += result->applied;
        ticket->of.update.sum.stale += result->stale;
        ticket->of.update.sum.unknown += result->unknown;
        if (status != RP_OK
            && status != RP_STALE_EPOCH) { /* stale keys are expected, those of an old epoch too */
            ticket->of.update.failed = -status;
        }
    }
    segment->open--;
    if (segment->open == 0 && segment->cut == segment->count) {
        finish_segment(client, segment);
    }
    pop_segments(updates);
    while (updates->base_id < updates->next_id
           && datagram_of(updates, updates->base_id)->state == UPDATE_DONE) {
        datagram_of(updates, updates->base_id++)->state = UPDATE_FREE;
    }
    for (uint64_t id = updates->base_id; id < updates->next_id; id++) {
        struct client_update *held = datagram_of(updates, id);
        held->state = held->state == UPDATE_HELD ? UPDATE_DUE : held->state;
    }
    rp_client_sender_add(client, &updates->sender);
}

static void lost(struct rp_client *client, struct client_update *update) {
    rp_client_flight_end(client, update->flight, NULL);
    update->state = UPDATE_DUE;
    rp_client_sender_add(client, &client->updates.sender);
}

void rp_client_update_lost(struct rp_client *client, uint16_t flight) {
    lost(client, &client->updates.datagrams[client->flights[flight].owner]);
}

/* EARLY: a datagram before this one has not arrived. If it was sent no later than this one, it is
 * lost, and both are sent again, in order. */
static void early(struct rp_client *client, struct client_update *update) {
    struct client_updates *updates = &client->updates;
    struct client_update *base = datagram_of(updates, updates->base_id);
    if (update->state != UPDATE_FLYING || update == base) {
        return;
    }
    uint64_t sent_ns = client->flights[update->flight].sent_ns;
    land(update, client);
    update->state = UPDATE_DUE;
    if (base->state == UPDATE_FLYING) {
        struct client_flight *flight = &client->flights[base->flight];
        if (flight->sent_ns <= sent_ns) {
            rp_client_credit_lost(client, flight);
            lost(client, base);
        } else {
            update->state = UPDATE_HELD;
        }
    }
    rp_client_sender_add(client, &updates->sender);
}

int rp_client_update_answer(struct rp_client *client, const struct rp_view *view) {
    struct client_updates *updates = &client->updates;
    uint64_t id = view->message->id;
    uint16_t status = rp_client_answer_status(view);
    struct rp_updated result = {0};
    if (id < updates->base_id || id >= updates->next_id) {
        return -RP_COUNT_drop_unsolicited;
    }
    struct client_update *update = datagram_of(updates, id);
    if (update->state == UPDATE_DONE) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (status == RP_EARLY) {
        early(client, update);
        return CLIENT_TAKEN;
    }
    if (view->message->size == sizeof(struct rp_answer) + sizeof result) {
        memcpy(&result, view->body + sizeof(struct rp_answer), sizeof result);
    } else if (status == RP_OK) {
        return -RP_COUNT_drop_size;
    }
    uint64_t sum = (uint64_t)result.applied + result.stale + result.unknown;
    if (result.reserved != 0 || sum > update->count) {
        return -RP_COUNT_drop_reserved;
    }
    settle(client, update, status, &result);
    return CLIENT_TAKEN;
}

void rp_client_update_abandon(struct rp_client *client, uint16_t ticket) {
    struct client_updates *updates = &client->updates;
    for (uint32_t i = 0; i < updates->segment_count; i++) {
        struct client_segment *segment = segment_at(updates, i);
        if (segment->ticket == ticket) {
            segment->ticket = CLIENT_NONE;
        }
    }
}

/* A new session counts from 1; what was queued for the old one is dropped (its tickets have
 * ended). */
void rp_client_update_reset(struct rp_client *client) {
    struct client_updates *updates = &client->updates;
    for (uint32_t i = 0; i < CLIENT_UPDATES_MAX; i++) {
        if (updates->datagrams[i].state == UPDATE_FLYING) {
            rp_client_flight_end(client, updates->datagrams[i].flight, NULL);
        }
        updates->datagrams[i].state = UPDATE_FREE;
    }
    rp_client_sender_remove(client, &updates->sender);
    updates->next_id = 1;
    updates->base_id = 1;
    updates->fill = 0;
    updates->cut = 0;
    updates->used = 0;
    updates->segment_first = 0;
    updates->segment_count = 0;
    updates->segment_cut = 0;
}
