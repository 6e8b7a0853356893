/* Tickets, and the requests that are one datagram each: TABLE, WRITER, STATS, RESET, PING, CLOSE.
 *
 * A ticket's number is its place and a serial, so that a number kept too long names nothing. A
 * request's id names the ticket's place too: an answer is found by its low bits and believed only
 * where the whole id agrees.
 *
 *     status == RP_PENDING  =>  deadline set
 *     status != RP_PENDING  =>  no flight, timer or sender
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

uint64_t rp_client_id(struct rp_client *client, uint16_t index) {
    return ++client->serial << 16 | index;
}

uint16_t rp_client_ticket_index(const struct rp_client *client,
                                const struct client_ticket *ticket) {
    return (uint16_t)(ticket - client->tickets);
}

/* ---- life of a ticket ---- */

size_t rp_client_slot_open(struct client_slot *slot, uint8_t *memory, uint32_t batch_max) {
    size_t bitmap = CLIENT_AHEAD_MAX / 8;
    size_t holes = (batch_max + 63) / 64 * sizeof(uint64_t);
    size_t map = (batch_max * sizeof(uint32_t) + 63) & ~(size_t)63;
    if (slot != NULL) {
        slot->fetch.received = (void *)memory;
        slot->fetch.asked = (void *)(memory + bitmap);
        slot->sample.columns = slot->columns;
        slot->sample.map = (void *)(memory + 2 * bitmap);
        slot->sample.holes = (void *)(memory + 2 * bitmap + map);
    }
    return 2 * bitmap + map + holes;
}

static int slots_left(const struct rp_client *client) {
    return client->slot_free != CLIENT_NONE || client->slots_used < client->slots_max;
}

/* The one freed last; one never taken where none is free. */
static void take_slot(struct rp_client *client, struct client_ticket *ticket) {
    if (client->slot_free != CLIENT_NONE) {
        ticket->slot = client->slot_free;
        client->slot_free = client->slots[ticket->slot].next_free;
        return;
    }
    ticket->slot = (uint16_t)client->slots_used++;
    (void)rp_client_slot_open(&client->slots[ticket->slot],
                              client->slot_memory + ticket->slot * client->slot_bytes,
                              client->options.batch_max);
}

static void free_slot(struct rp_client *client, struct client_ticket *ticket) {
    if (ticket->slot != CLIENT_NONE) {
        client->slots[ticket->slot].next_free = client->slot_free;
        client->slot_free = ticket->slot;
        ticket->slot = CLIENT_NONE;
    }
}

/* The ticket's number, or -RP_FULL, or why the client takes no more requests. */
int rp_client_ticket_new(struct rp_client *client, uint8_t op, uint16_t table,
                         uint64_t deadline_ns, int slot) {
    uint16_t index = client->ticket_free;
    if (client->session.state == SESSION_ENDED || client->closing) {
        return client->closing ? -RP_CLOSED : client->session.status;
    }
    if (index == CLIENT_NONE || (slot && !slots_left(client))) {
        return -RP_FULL;
    }
    struct client_ticket *ticket = &client->tickets[index];
    uint16_t serial = (uint16_t)((ticket->serial + 1) & 0x7FFF);
    client->ticket_free = ticket->next;
    *ticket = (struct client_ticket){
        .sender = {.index = index, .kind = SENDER_TICKET},
        .deadline = {.kind = TIMER_DEADLINE, .index = index},
        .again = {.kind = TIMER_AGAIN, .index = index},
        .status = RP_PENDING,
        .serial = serial,
        .table = table,
        .flights = CLIENT_NONE,
        .slot = CLIENT_NONE,
        .next = CLIENT_NONE,
        .used = 1,
        .op = op,
    };
    if (slot) {
        take_slot(client, ticket);
    }
    rp_client_timer_set(client, &ticket->deadline, deadline_ns);
    rp_client_sender_add(client, &ticket->sender);
    return (int)serial << 16 | (index + 1);
}

struct client_ticket *rp_client_ticket_at(struct rp_client *client, int number) {
    uint32_t index = ((uint32_t)number & 0xFFFF) - 1;
    if (number <= 0 || index >= client->tickets_max) {
        return NULL;
    }
    struct client_ticket *ticket = &client->tickets[index];
    return ticket->used && ticket->serial == number >> 16 ? ticket : NULL;
}

static void unlist_sample(struct rp_client *client, const struct client_ticket *ticket) {
    uint16_t index = rp_client_ticket_index(client, ticket);
    for (uint16_t *at = &client->sample_first; *at != CLIENT_NONE;
         at = &client->tickets[*at].next) {
        if (*at == index) {
            *at = ticket->next;
            return;
        }
    }
}

static void free_ticket(struct rp_client *client, struct client_ticket *ticket) {
    ticket->used = 0;
    ticket->next = client->ticket_free;
    client->ticket_free = rp_client_ticket_index(client, ticket);
}

void rp_client_ticket_finish(struct rp_client *client, struct client_ticket *ticket, int status) {
    if (ticket->status != RP_PENDING) {
        return;
    }
    ticket->status = status;
    rp_client_flights_end(client, &ticket->flights);
    rp_client_timer_stop(client, &ticket->deadline);
    rp_client_timer_stop(client, &ticket->again);
    rp_client_sender_remove(client, &ticket->sender);
    if (ticket->op == RP_OP_SAMPLE) {
        rp_client_sample_withdraw(client, ticket);
        unlist_sample(client, ticket);
        rp_client_records_done(client, ticket);
    }
    if (client->publisher == rp_client_ticket_index(client, ticket)) {
        client->publisher = CLIENT_NONE;
    }
    free_slot(client, ticket);
    if (ticket->op == RP_OP_CLOSE) {
        rp_client_session_end(client, -RP_CLOSED);
    }
    if (ticket->queued) {
        rp_client_update_reaped(client, ticket);
        free_ticket(client, ticket);
    }
}

int rp_client_poll(const struct rp_client *client, int number) {
    const struct client_ticket *ticket = rp_client_ticket_at((struct rp_client *)client, number);
    return ticket != NULL ? ticket->status : -RP_BAD_ARGUMENT;
}

void rp_client_blocked(const struct rp_client *client, int number, struct rp_blocked *blocked) {
    const struct client_ticket *ticket = rp_client_ticket_at((struct rp_client *)client, number);
    *blocked = ticket != NULL ? ticket->blocked : (struct rp_blocked){0};
}

void rp_client_take(struct rp_client *client, int number) {
    struct client_ticket *ticket = rp_client_ticket_at(client, number);
    if (ticket == NULL) {
        return;
    }
    uint16_t index = rp_client_ticket_index(client, ticket);
    if (ticket->op == RP_OP_UPDATE) {
        rp_client_update_abandon(client, index);
    }
    rp_client_ticket_finish(client, ticket, -RP_CLOSED);
    free_ticket(client, ticket);
}

void rp_client_ticket_timer(struct rp_client *client, struct client_timer *timer) {
    struct client_ticket *ticket = &client->tickets[timer->index];
    if (timer->kind == TIMER_AGAIN) {
        rp_client_sender_add(client, &ticket->sender);
        return;
    }
    int at_once = ticket->no_wait;
    if (ticket->answer_ns == 0
        && (at_once
            || (ticket->op == RP_OP_SAMPLE && rp_client_sample_last_look(client, ticket)))) {
        ticket->answer_ns = rp_min(client->options.connect_timeout_ns, CLIENT_LAST_LOOK_NS);
        rp_client_timer_set(client, &ticket->deadline, client->now_ns + ticket->answer_ns);
        return;
    }
    int full = client->session.full;
    int waited = ticket->was_blocked && ticket->answer_ns == 0;
    int status = full ? full : waited ? -RP_BLOCKED : -RP_TIMEOUT;
    rp_client_count(client, RP_COUNT_timeouts);
    if (ticket->op == RP_OP_SAMPLE) {
        int lacks = rp_client_records_lacks(client, ticket);
        status = rp_client_sample_ended(client, ticket, lacks ? -RP_FULL : status);
    } else if (ticket->op == RP_OP_PUBLISH && ticket->of.publish.waits) {
        status = -RP_BUSY;
    } else if (ticket->op == RP_OP_UPDATE) {
        rp_client_update_abandon(client, timer->index);
    }
    rp_client_ticket_finish(client, ticket, status);
}

/* The session it was sent in is gone: begin again in the next one, or end. */
void rp_client_ticket_reopened(struct rp_client *client, struct client_ticket *ticket,
                               int status) {
    rp_client_flights_end(client, &ticket->flights);
    rp_client_timer_stop(client, &ticket->again);
    int sent = ticket->id != 0; /* or about to be: it has its id from before its first piece */
    ticket->flight_count = 0;
    ticket->id = 0;
    ticket->tries = 0;
    switch (ticket->op) {
    case RP_OP_UPDATE:
        rp_client_update_abandon(client, rp_client_ticket_index(client, ticket));
        rp_client_ticket_finish(client, ticket, status);
        return;
    case RP_OP_CLOSE: rp_client_ticket_finish(client, ticket, RP_OK); return;
    case RP_OP_SAMPLE:
        if (status == -RP_SESSION_EXPIRED && rp_client_sample_at_stake(client, ticket)) {
            rp_client_ticket_finish(client, ticket, status); /* its batch may be lost */
            return;
        }
        rp_client_sample_round(client, ticket);
        break;
    case RP_OP_BLOB: ticket->of.blob.known = 0; break;
    case RP_OP_PUBLISH:
        /* It may have become whole; the record of that went with the session, so a repeat would be
         * a publication of its own, on top of what others published since. */
        if (sent && status == -RP_SESSION_EXPIRED) {
            rp_client_ticket_finish(client, ticket, status);
            return;
        }
        ticket->of.publish.begun = 0;
        ticket->of.publish.waits = 0;
        break;
    default: break;
    }
    rp_client_sender_add(client, &ticket->sender);
}

struct client_ticket *rp_client_ticket_find(struct rp_client *client, uint8_t op, uint64_t id) {
    uint32_t index = id & 0xFFFF;
    if (index >= client->tickets_max) {
        return NULL;
    }
    struct client_ticket *ticket = &client->tickets[index];
    int same =
        ticket->used && ticket->status == RP_PENDING && ticket->op == op && ticket->id == id;
    return same && id != 0 ? ticket : NULL;
}

/* ---- posting ---- */

static int post_table(struct rp_client *client, const char *name, uint16_t table,
                      struct rp_table_info *info, uint64_t deadline_ns) {
    size_t size = strnlen(name, RP_NAME_BYTES);
    if (size >= RP_NAME_BYTES) {
        return -RP_BAD_ARGUMENT;
    }
    int number = rp_client_ticket_new(client, RP_OP_TABLE, table, deadline_ns, 0);
    if (number > 0) {
        struct client_ticket *ticket = rp_client_ticket_at(client, number);
        memcpy(ticket->of.table_info.name, name, size);
        ticket->of.table_info.info = info;
    }
    return number;
}

int rp_client_table(struct rp_client *client, const char *name, struct rp_table_info *info,
                    uint64_t deadline_ns) {
    return name[0] == 0 ? -RP_BAD_ARGUMENT : post_table(client, name, 0, info, deadline_ns);
}

int rp_client_table_number(struct rp_client *client, uint16_t table, struct rp_table_info *info,
                           uint64_t deadline_ns) {
    return post_table(client, "", table, info, deadline_ns);
}

/* The most items of one message: half of the distance that the limiter allows between the two
 * sides. So a batch of up to the other half never waits for this message while it waits for the
 * batch. */
static uint32_t items_at_once(const struct rp_table_info *info) {
    double apart = info->error_max - info->error_min;
    if (!(info->samples_per_insert > 0)) {
        return UINT32_MAX;
    }
    double most = apart / (2 * info->samples_per_insert);
    return most < 1 ? 1 : most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

int rp_client_writer(struct rp_client *client, const struct rp_table_info *info, uint16_t streams,
                     struct rp_writer_granted *granted, uint64_t deadline_ns) {
    if (streams == 0 || streams > RP_STREAMS_MAX || info->step_bytes == 0
        || info->step_bytes % 8 != 0 || info->step_bytes > RP_STEP_BYTES_MAX) {
        return -RP_BAD_ARGUMENT;
    }
    int status = rp_client_writer_reserve(client, info->number, streams);
    if (status != 0) {
        return status;
    }
    int number = rp_client_ticket_new(client, RP_OP_WRITER, info->number, deadline_ns, 0);
    if (number > 0) {
        struct client_ticket *ticket = rp_client_ticket_at(client, number);
        ticket->of.writer.granted = granted;
        ticket->of.writer.step_bytes = info->step_bytes;
        ticket->of.writer.items_max = items_at_once(info);
        ticket->of.writer.streams = streams;
    }
    return number;
}

int rp_client_stats(struct rp_client *client, uint64_t *counters, uint32_t *sessions,
                    uint64_t deadline_ns) {
    int number = rp_client_ticket_new(client, RP_OP_STATS, 0, deadline_ns, 0);
    if (number > 0) {
        struct client_ticket *ticket = rp_client_ticket_at(client, number);
        ticket->of.stats.target = (uint8_t *)counters;
        ticket->of.stats.sessions = sessions;
        memset(counters, 0, RP_COUNTER_COUNT * sizeof *counters);
    }
    return number;
}

int rp_client_facts(struct rp_client *client, struct rp_fact *facts, uint32_t *count,
                    uint64_t deadline_ns) {
    int number = rp_client_ticket_new(client, RP_OP_STATS, 0, deadline_ns, 0);
    if (number > 0) {
        struct client_ticket *ticket = rp_client_ticket_at(client, number);
        ticket->of.stats.target = (uint8_t *)facts;
        ticket->of.stats.fact_count = count;
        memset(facts, 0, RP_FACTS_MAX * sizeof *facts);
        *count = 0;
    }
    return number;
}

int rp_client_reset(struct rp_client *client, uint16_t table, uint64_t epoch, uint64_t *new_epoch,
                    uint64_t deadline_ns) {
    int number = rp_client_ticket_new(client, RP_OP_RESET, table, deadline_ns, 0);
    if (number > 0) {
        struct client_ticket *ticket = rp_client_ticket_at(client, number);
        ticket->of.reset.epoch = epoch;
        ticket->of.reset.new_epoch = new_epoch;
    }
    return number;
}

int rp_client_ping(struct rp_client *client, uint64_t deadline_ns) {
    return rp_client_ticket_new(client, RP_OP_PING, 0, deadline_ns, 0);
}

/* Nothing else goes on. Before a session there is no server to send CLOSE to. */
int rp_client_close(struct rp_client *client, uint64_t deadline_ns) {
    for (uint32_t i = 0; i < client->tickets_max && !client->closing; i++) {
        if (client->tickets[i].used) {
            rp_client_ticket_finish(client, &client->tickets[i], -RP_CLOSED);
        }
    }
    client->cancel_count = 0; /* every place goes with the session */
    for (uint32_t i = 0; i < client->options.tables_max; i++) {
        rp_client_writer_end(client, &client->writers[i], -RP_CLOSED);
    }
    rp_client_update_reset(client);
    if (client->ticket_free == CLIENT_NONE && !client->closing) {
        client->ticket_free = (uint16_t)client->options.requests_max;
    }
    int number = rp_client_ticket_new(client, RP_OP_CLOSE, 0, deadline_ns, 0);
    if (number > 0 && client->session.state != SESSION_OPEN) {
        rp_client_ticket_finish(client, rp_client_ticket_at(client, number), RP_OK);
    }
    client->closing = 1;
    return number;
}

/* ---- sending ---- */

static uint32_t stats_size(const struct client_ticket *ticket) {
    return ticket->of.stats.fact_count ? sizeof(struct rp_fact) : sizeof(uint64_t);
}

static struct rp_stats_request stats_request(const struct rp_client *client,
                                             const struct client_ticket *ticket) {
    uint32_t room = client->session.mtu - RP_ANSWER_BYTES - (uint32_t)sizeof(struct rp_stats);
    uint32_t mark = ticket->of.stats.fact_count ? RP_STATS_FACTS : 0;
    return (struct rp_stats_request){ticket->of.stats.first | mark, room / stats_size(ticket)};
}

static uint32_t fill_body(const struct rp_client *client, const struct client_ticket *ticket,
                          uint8_t *body) {
    switch (ticket->op) {
    case RP_OP_TABLE:
        memcpy(body, ticket->of.table_info.name, RP_NAME_BYTES);
        return RP_NAME_BYTES;
    case RP_OP_WRITER: {
        struct rp_writer_request request = {.streams = ticket->of.writer.streams};
        memcpy(body, &request, sizeof request);
        return sizeof request;
    }
    case RP_OP_STATS: {
        struct rp_stats_request request = stats_request(client, ticket);
        memcpy(body, &request, sizeof request);
        return sizeof request;
    }
    case RP_OP_RESET: {
        struct rp_reset request = {ticket->of.reset.epoch};
        memcpy(body, &request, sizeof request);
        return sizeof request;
    }
    default: return 0;
    }
}

static enum client_sending send_simple(struct rp_client *client, struct client_ticket *ticket) {
    uint16_t index = rp_client_ticket_index(client, ticket);
    if (ticket->flights != CLIENT_NONE) {
        return SEND_NOTHING;
    }
    if (ticket->id == 0) {
        ticket->id = rp_client_id(client, index);
    }
    uint32_t size = fill_body(client, ticket, rp_client_out_body(client));
    rp_client_out_seal(client, ticket->op, ticket->table, ticket->id, size);
    (void)rp_client_flight_start(client, OWNER_TICKET, index, &ticket->flights, ticket->tries);
    ticket->tries += ticket->tries < 32;
    return SEND_NOTHING;
}

enum client_sending rp_client_ticket_send(struct rp_client *client,
                                          struct client_ticket *ticket) {
    switch (ticket->op) {
    case RP_OP_SAMPLE: return rp_client_sample_send(client, ticket);
    case RP_OP_BLOB: return rp_client_blob_send(client, ticket);
    case RP_OP_PUBLISH: return rp_client_publish_send(client, ticket);
    default: return send_simple(client, ticket);
    }
}

void rp_client_ticket_lost(struct rp_client *client, struct client_ticket *ticket,
                           uint16_t flight) {
    if (ticket->op == RP_OP_SAMPLE || ticket->op == RP_OP_BLOB) {
        rp_client_fetch_lost(client, ticket, flight);
    } else if (ticket->op == RP_OP_PUBLISH) {
        rp_client_publish_lost(client, ticket, flight);
    } else {
        rp_client_flight_end(client, flight, &ticket->flights);
    }
    rp_client_sender_add(client, &ticket->sender);
}

/* ---- answers ---- */

enum { STATS_MORE = CLIENT_TAKEN + 1 }; /* taken, and not the last */

static int info_valid(const struct client_ticket *ticket, const struct rp_table_info *info) {
    const uint8_t *name = ticket->of.table_info.name;
    int asked = name[0] != 0 ? memcmp(name, info->name, RP_NAME_BYTES) == 0
                             : info->number == ticket->table;
    int valid = asked && info->name[RP_NAME_BYTES - 1] == 0 && info->number < RP_TABLES_MAX
                && info->plan_count <= RP_PLANS_MAX && info->capacity > 0 && info->step_bytes > 0
                && info->step_bytes % 8 == 0 && info->step_bytes <= RP_STEP_BYTES_MAX
                && info->spec_bytes <= RP_SPEC_BYTES_MAX;
    for (uint32_t i = 0; valid && i < info->plan_count; i++) {
        valid = info->item_bytes[i] > 0 && info->item_bytes[i] % 8 == 0;
    }
    return valid;
}

static int table_answered(struct client_ticket *ticket, const uint8_t *body) {
    struct rp_table_info info;
    memcpy(&info, body, sizeof info);
    if (!info_valid(ticket, &info)) {
        return -RP_COUNT_drop_reserved;
    }
    *ticket->of.table_info.info = info;
    return CLIENT_TAKEN;
}

static int writer_answered(struct rp_client *client, struct client_ticket *ticket,
                           const uint8_t *body, int *ended) {
    struct rp_writer_granted granted;
    memcpy(&granted, body, sizeof granted);
    if (granted.epoch == 0 || granted.window == 0 || granted.window > RP_WINDOW_MAX
        || granted.next_sequence > CLIENT_SEQUENCE_MAX || granted.streams == 0
        || granted.streams > RP_STREAMS_MAX
        || granted.pieces_max > RP_PIECES_MAX) {
        return -RP_COUNT_drop_reserved;
    }
    *ended = rp_client_writer_begin(client, ticket, &granted);
    if (*ended == 0) { /* as many as this end has room for, too */
        granted.streams = rp_client_writer_of(client, ticket->table)->stream_count;
    }
    *ticket->of.writer.granted = granted;
    return CLIENT_TAKEN;
}

/* As many as fit; the rest is asked for next. */
static int stats_answered(struct rp_client *client, struct client_ticket *ticket,
                          const uint8_t *body, uint32_t size) {
    struct rp_stats_request asked = stats_request(client, ticket);
    struct rp_stats stats;
    if (size < sizeof stats) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&stats, body, sizeof stats);
    uint32_t first = ticket->of.stats.first, each = stats_size(ticket);
    uint32_t most = ticket->of.stats.fact_count ? RP_FACTS_MAX : RP_COUNTER_COUNT;
    if (stats.first != asked.first || stats.count > asked.count
        || size != sizeof stats + (uint64_t)each * stats.count) {
        return -RP_COUNT_drop_size;
    }
    uint32_t known = rp_min(stats.count, most - first);
    memcpy(ticket->of.stats.target + (size_t)each * first, body + sizeof stats,
           (size_t)each * known);
    if (ticket->of.stats.sessions != NULL) {
        *ticket->of.stats.sessions = stats.sessions;
    }
    first += known;
    if (ticket->of.stats.fact_count) {
        *ticket->of.stats.fact_count = first;
    }
    if (stats.count == 0 || first >= stats.total || first >= most) {
        return CLIENT_TAKEN;
    }
    ticket->of.stats.first = first;
    return STATS_MORE;
}

static int reset_answered(struct client_ticket *ticket, const uint8_t *body) {
    struct rp_reset_done done;
    memcpy(&done, body, sizeof done);
    if (done.epoch == 0) {
        return -RP_COUNT_drop_reserved;
    }
    if (ticket->of.reset.new_epoch != NULL) {
        *ticket->of.reset.new_epoch = done.epoch;
    }
    return CLIENT_TAKEN;
}

static int answered_well(struct rp_client *client, struct client_ticket *ticket,
                         const struct rp_view *view, int *ended) {
    static const uint16_t sizes[RP_OP_COUNT] = {
        [RP_OP_TABLE] = sizeof(struct rp_table_info),
        [RP_OP_WRITER] = sizeof(struct rp_writer_granted),
        [RP_OP_RESET] = sizeof(struct rp_reset_done),
    };
    const uint8_t *body = view->body + sizeof(struct rp_answer);
    uint32_t size = view->message->size - (uint32_t)sizeof(struct rp_answer);
    if (ticket->op != RP_OP_STATS && size != sizes[ticket->op]) {
        return -RP_COUNT_drop_size;
    }
    switch (ticket->op) {
    case RP_OP_TABLE: return table_answered(ticket, body);
    case RP_OP_WRITER: return writer_answered(client, ticket, body, ended);
    case RP_OP_STATS: return stats_answered(client, ticket, body, size);
    case RP_OP_RESET: return reset_answered(ticket, body);
    default: return CLIENT_TAKEN;
    }
}

int rp_client_request_answer(struct rp_client *client, const struct rp_view *view) {
    uint8_t op = view->message->op & (uint8_t)~RP_ANSWER;
    uint16_t status = rp_client_answer_status(view);
    if (op == RP_OP_PING && client->session.ping_tries > 0
        && view->message->id == client->session.ping_id) {
        client->session.ping_tries = 0; /* its timer is set already */
        return CLIENT_TAKEN;
    }
    struct client_ticket *ticket = rp_client_ticket_find(client, op, view->message->id);
    if (ticket == NULL) {
        return -RP_COUNT_drop_unsolicited;
    }
    int result = CLIENT_TAKEN, ended = -(int)status;
    if (status == RP_OK) {
        result = answered_well(client, ticket, view, &ended);
        if (result < 0) {
            return result;
        }
    }
    rp_client_flights_end(client, &ticket->flights);
    if (result == STATS_MORE) {
        ticket->id = 0;
        ticket->tries = 0;
        rp_client_sender_add(client, &ticket->sender);
    } else {
        rp_client_ticket_finish(client, ticket, ended);
    }
    return CLIENT_TAKEN;
}
