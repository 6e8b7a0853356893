/* Batches: a ticket draws its items in rounds, each round one request id.
 *
 * The first round asks for everything (keys: for as many as fit a datagram, then the next). A
 * round's first train comes with its answer; the rest is pulled in ranges, several at a time, as
 * many datagrams as may be on their way here. At the end of a round the items the server found
 * overwritten are holes; a redraw asks for as many new ones and lands them there, twice at most. Of
 * a queue, whose items are drawn once, nothing is drawn in their place.
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

static struct client_fetch *fetch_of(struct rp_client *client,
                                     const struct client_ticket *ticket) {
    return &client->slots[ticket->slot].fetch;
}

/* ---- posting ---- */

static int request_valid(const struct rp_sample *request, const uint64_t *keys,
                         const struct rp_landing *landing) {
    int by_keys = request->mode == RP_SAMPLE_KEYS;
    return request->count > 0 && request->mode < RP_SAMPLE_MODES && request->now == 0
           && request->fields == 0 && request->plan < RP_PLANS_MAX && (keys != NULL || !by_keys)
           && !(request->mode == RP_SAMPLE_STRATIFIED && request->uniform != 0)
           && landing->item_bytes > 0 && landing->item_bytes % 8 == 0;
}

static void append_sample(struct rp_client *client, struct client_ticket *ticket) {
    uint16_t *at = &client->sample_first;
    while (*at != CLIENT_NONE) {
        at = &client->tickets[*at].next;
    }
    *at = rp_client_ticket_index(client, ticket);
}

static uint32_t keys_per_request(const struct rp_client *client) {
    uint32_t room =
        (client->session.mtu - RP_HEADER_BYTES - (uint32_t)sizeof(struct rp_sample)) / 8;
    room = rp_min(room, client->options.batch_max);
    return rp_min(room, client->session.opened.batch_max);
}

int rp_client_sample(struct rp_client *client, uint16_t table, const struct rp_sample *request,
                     const uint64_t *keys, const struct rp_landing *landing,
                     uint64_t deadline_ns) {
    if (!request_valid(request, keys, landing)) {
        return -RP_BAD_ARGUMENT;
    }
    if (request->mode != RP_SAMPLE_KEYS && request->count > client->options.batch_max) {
        return -RP_BATCH_TOO_LARGE;
    }
    int number = rp_client_ticket_new(client, RP_OP_SAMPLE, table, deadline_ns, 1);
    if (number < 0) {
        return number;
    }
    struct client_ticket *ticket = rp_client_ticket_at(client, number);
    struct client_sample *sample = sample_of(client, ticket);
    *sample = (struct client_sample){.landing = *landing,
                                     .keys = keys,
                                     .request = *request,
                                     .holes = sample->holes,
                                     .map = sample->map,
                                     .columns = sample->columns,
                                     .round_count = request->count};
    append_sample(client, ticket);
    if (!rp_client_land_columns(sample)) {
        rp_client_take(client, number);
        return -RP_BAD_ARGUMENT;
    }
    ticket->no_wait = deadline_ns <= client->now_ns;
    return number;
}

/* ---- rounds ---- */

/* The round begins, or begins again: under a new id, at its next sending. */
void rp_client_sample_round(struct rp_client *client, struct client_ticket *ticket) {
    struct client_sample *sample = sample_of(client, ticket);
    rp_client_flights_end(client, &ticket->flights);
    rp_client_timer_stop(client, &ticket->again);
    rp_client_records_done(client, ticket);
    ticket->flight_count = 0;
    ticket->id = 0;
    ticket->tries = 0;
    ticket->was_blocked = 0;
    sample->drawn = 0;
    sample->first_budget = 0;
    rp_client_sender_add(client, &ticket->sender);
}

/* It asks at its next turn, not when its timer is due. */
void rp_client_ask_now(struct rp_client *client, struct client_ticket *ticket) {
    rp_client_timer_stop(client, &ticket->again);
    rp_client_sender_add(client, &ticket->sender);
}

/* A place in the server's queue is free. The session's next request that waits there without a
 * place asks for it now, not when its timer is due. Each sample under way is looked at once at
 * most. */
static void ask_next(struct rp_client *client, const struct client_ticket *drawn) {
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        struct client_ticket *ticket = &client->tickets[i];
        if (ticket->was_blocked && ticket->table == drawn->table && ticket != drawn) {
            rp_client_ask_now(client, ticket);
            return;
        }
    }
}

/* Sent once: if it is lost, a wait at the server ends by time, as nothing asks for it again, and a
 * record is named where it is in the way. */
void rp_client_cancel(struct rp_client *client, uint64_t id, uint16_t table) {
    if (client->session.state == SESSION_OPEN && client->cancel_count < CLIENT_CANCELS_MAX) {
        client->cancels[client->cancel_count++] = (struct client_cancel){id, table};
        client->send_pending = 1;
    }
}

/* The server knows of its own refusals, and of what it told that it is given up. */
void rp_client_sample_withdraw(struct rp_client *client, const struct client_ticket *ticket) {
    int by_us = ticket->status == -RP_BLOCKED || ticket->status == -RP_TIMEOUT
                || ticket->status == -RP_CLOSED || ticket->status == -RP_SHORT_BATCH
                || ticket->status == -RP_FULL;
    int known = ticket->no_wait && (ticket->status == -RP_BLOCKED || ticket->status == -RP_FULL);
    if (ticket->id == 0 || sample_of(client, ticket)->drawn) {
        return;
    }
    if (!by_us || client->session.state != SESSION_OPEN) {
        return;
    }
    if (!known) {
        rp_client_cancel(client, ticket->id, ticket->table);
    }
    ask_next(client, ticket);
}

void rp_client_cancel_send(struct rp_client *client) {
    const struct client_cancel *last = &client->cancels[--client->cancel_count];
    struct rp_cancel cancel = {.request = last->id, .op = RP_OP_SAMPLE};
    memcpy(rp_client_out_body(client), &cancel, sizeof cancel);
    rp_client_out_seal(client, RP_OP_CANCEL, last->table, last->id, sizeof cancel);
}

/* A redraw that cannot be had leaves the batch as it is, with its holes. */
int rp_client_sample_ended(struct rp_client *client, struct client_ticket *ticket, int status) {
    const struct client_sample *sample = sample_of(client, ticket);
    return sample->redraws > 0 ? -RP_SHORT_BATCH : status;
}

int rp_client_sample_at_stake(struct rp_client *client, const struct client_ticket *ticket) {
    const struct client_sample *sample = sample_of(client, ticket);
    return sample->landing.consumes && sample->request.mode != RP_SAMPLE_KEYS
           && rp_client_was_sent(sample);
}

int rp_client_sample_last_look(struct rp_client *client, struct client_ticket *ticket) {
    struct client_fetch *fetch = fetch_of(client, ticket);
    if (!rp_client_sample_at_stake(client, ticket)) {
        return 0;
    }
    ticket->no_wait = 1;
    if (ticket->was_blocked) {
        rp_client_flights_end(client, &ticket->flights);
        ticket->flight_count = 0;
        rp_client_fetch_begin(fetch, fetch->count);
        rp_client_ask_now(client, ticket);
    }
    return 1;
}

/* Does another one of its table wait, while it was not sent yet? */
static int waits_behind(struct rp_client *client, const struct client_ticket *ticket) {
    uint16_t i = rp_client_was_sent(sample_of(client, ticket)) ? CLIENT_NONE : client->sample_first;
    while (i != CLIENT_NONE
           && !(client->tickets[i].was_blocked && client->tickets[i].table == ticket->table)) {
        i = client->tickets[i].next;
    }
    return i != CLIENT_NONE;
}

/* Does it wait, and was not drawn, if that matters? One of a queue hears by itself that it was not,
 * unless its last question was answered so. */
static int waits_undrawn(struct rp_client *client, const struct client_ticket *ticket) {
    int told = ticket->blocked.noted != RP_PLACE && ticket->flights == CLIENT_NONE;
    return ticket->was_blocked && (told || !rp_client_sample_at_stake(client, ticket));
}

/* The server closes, and tells each SAMPLE so that has a place. Those that wait undrawn and those
 * behind them end too; the latter first, as long as the others wait. */
static void samples_closed(struct rp_client *client) {
    for (int waiting = 0; waiting < 2; waiting++) {
        for (uint32_t i = 0; i < client->tickets_max; i++) {
            struct client_ticket *ticket = &client->tickets[i];
            if (ticket->used && ticket->status == RP_PENDING && ticket->op == RP_OP_SAMPLE
                && (waiting ? waits_undrawn(client, ticket) : waits_behind(client, ticket))) {
                rp_client_ticket_finish(client, ticket,
                                        rp_client_sample_ended(client, ticket, -RP_CLOSED));
            }
        }
    }
}

/* FORGOTTEN: its id fell far behind newer ones while it waited without a place or its question was
 * lost, or it was given up. The server keeps every batch until we say that it is done
 * (client_records.c). So nothing was drawn for it, or will be, and it asks under a new id; one that
 * does not wait has its answer. Only a server that lost what it drew says so of a batch under way.
 */
static void forgotten(struct rp_client *client, struct client_ticket *ticket) {
    struct client_sample *sample = sample_of(client, ticket);
    int outrun = client->sample_id - ticket->id >= RP_TOLD_OF;
    if (!sample->drawn && ticket->no_wait) {
        ticket->blocked.need += ticket->blocked.need == 0;
        rp_client_ticket_finish(client, ticket,
                                rp_client_sample_ended(client, ticket, -RP_BLOCKED));
    } else if (sample->drawn && rp_client_sample_at_stake(client, ticket)) {
        rp_client_ticket_finish(client, ticket, -RP_FORGOTTEN);
    } else if (outrun || sample->restarts++ < CLIENT_RESTARTS_MAX) {
        rp_client_sample_round(client, ticket);
    } else {
        rp_client_ticket_finish(client, ticket,
                                rp_client_sample_ended(client, ticket, -RP_FORGOTTEN));
    }
}

/* Marks what is valid; the map becomes the places of the holes. Returns how many there are. */
static uint32_t find_holes(struct client_sample *sample) {
    uint8_t *valid = sample->landing.valid;
    uint32_t holes = 0;
    uint64_t any = sample->mapped;
    for (uint32_t i = 0; i < (sample->round_count + 63) / 64; i++) {
        any |= sample->holes[i];
    }
    if (any == 0) { /* nearly always */
        if (valid != NULL) {
            memset(valid + sample->first_item, 1, sample->round_count);
        }
        return 0;
    }
    for (uint32_t i = 0; i < sample->round_count; i++) {
        int hole = (int)(sample->holes[i / 64] >> (i % 64) & 1);
        uint32_t at = client_sample_position(sample, i);
        if (valid != NULL) {
            valid[at] = !hole;
        }
        if (hole) {
            sample->map[holes++] = at;
        }
    }
    return holes;
}

static void next_keys(struct rp_client *client, struct client_ticket *ticket, uint32_t holes) {
    struct client_sample *sample = sample_of(client, ticket);
    sample->short_batch |= holes > 0;
    sample->first_item += sample->round_count;
    if (sample->first_item == sample->request.count) {
        rp_client_ticket_finish(client, ticket, sample->short_batch ? -RP_SHORT_BATCH : RP_OK);
        return;
    }
    rp_client_sample_round(client, ticket);
}

static void end_round(struct rp_client *client, struct client_ticket *ticket) {
    struct client_sample *sample = sample_of(client, ticket);
    rp_client_land_totals(sample);
    uint32_t holes = find_holes(sample);
    if (sample->request.mode == RP_SAMPLE_KEYS) {
        next_keys(client, ticket, holes);
    } else if (holes == 0) {
        rp_client_ticket_finish(client, ticket, RP_OK);
    } else if (sample->landing.consumes || sample->redraws == CLIENT_REDRAWS_MAX) {
        rp_client_ticket_finish(client, ticket, -RP_SHORT_BATCH);
    } else {
        sample->redraws++;
        sample->mapped = 1;
        sample->round_count = holes;
        client->counters[RP_COUNT_redraws] += holes;
        rp_client_sample_round(client, ticket);
    }
}

/* ---- sending ---- */

static int begin_round(struct rp_client *client, struct client_ticket *ticket) {
    struct client_sample *sample = sample_of(client, ticket);
    uint32_t mtu = client->session.mtu;
    uint32_t item_bytes = sample->landing.item_bytes;
    if (sample->request.mode == RP_SAMPLE_KEYS) {
        uint32_t left = sample->request.count - sample->first_item;
        uint32_t most = keys_per_request(client);
        sample->round_count = rp_min(left, most);
    }
    sample->words = rp_overwritten_words(mtu, item_bytes);
    sample->payload = rp_batch_payload(mtu, item_bytes);
    sample->bytes = rp_batch_bytes(sample->round_count, item_bytes);
    uint64_t datagrams = (sample->bytes + sample->payload - 1) / sample->payload;
    if (datagrams > UINT32_MAX) { /* they are numbered by 32 bits: 1.6 TB in the smallest ones */
        return 0;
    }
    rp_client_fetch_begin(fetch_of(client, ticket), (uint32_t)datagrams);
    memset(sample->holes, 0, 8ull * ((sample->round_count + 63) / 64));
    ticket->id = ++client->sample_id;
    return 1;
}

/* What has more bits than a key is none, and no answer may have it: 0, which is none either, is
 * asked for. */
static void copy_keys(uint8_t *body, const uint64_t *keys, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = keys[i] >> RP_KEY_BITS ? 0 : keys[i];
        memcpy(body + 8ull * i, &key, sizeof key);
    }
}

static void send_request(struct rp_client *client, struct client_ticket *ticket,
                         uint32_t budget) {
    struct client_sample *sample = sample_of(client, ticket);
    struct rp_sample request = sample->request;
    uint8_t *body = rp_client_out_body(client);
    uint32_t size = sizeof request;
    request.count = sample->round_count;
    request.budget = (uint16_t)budget;
    request.now = ticket->no_wait;
    request.under_way = rp_client_records_under_way(client, ticket->id);
    client->untold = ticket->id == client->sample_id ? 0 : client->untold; /* a repeat tells less */
    memcpy(body, &request, sizeof request);
    if (request.mode == RP_SAMPLE_KEYS) {
        copy_keys(body + size, sample->keys + sample->first_item, request.count);
        size += 8 * request.count;
    }
    sample->asked_packet = (uint16_t)client->session.packet;
    rp_client_out_seal(client, RP_OP_SAMPLE, ticket->table, ticket->id, size);
    sample->first_budget = budget;
}

static void start_flight(struct rp_client *client, struct client_ticket *ticket, uint32_t first,
                         uint32_t count, uint8_t tries) {
    uint16_t index = rp_client_ticket_index(client, ticket);
    uint16_t flight =
        rp_client_flight_start(client, OWNER_TICKET, index, &ticket->flights, tries);
    rp_client_flight_expect(client, flight, first, count);
    rp_client_fetch_asked(fetch_of(client, ticket), first, count);
    ticket->flight_count++;
}

static enum client_sending send_first(struct rp_client *client, struct client_ticket *ticket) {
    const struct client_fetch *fetch = fetch_of(client, ticket);
    uint32_t budget = rp_client_credit_expect(client);
    if (ticket->flights != CLIENT_NONE) {
        return SEND_NOTHING;
    }
    if (budget == 0) {
        return SEND_WAIT;
    }
    uint32_t train = client->session.opened.train_max;
    budget = rp_min(budget, train);
    budget = rp_min(budget, fetch->count);
    send_request(client, ticket, budget);
    start_flight(client, ticket, 0, budget, ticket->tries);
    return SEND_NOTHING;
}

static enum client_sending send_pull(struct rp_client *client, struct client_ticket *ticket) {
    struct client_fetch *fetch = fetch_of(client, ticket);
    uint32_t chunk = client->credit.pull_window / 4;
    uint32_t train = client->session.opened.train_max;
    uint32_t first;
    chunk = rp_min(chunk, train);
    chunk = rp_client_fetch_next(fetch, chunk > 0 ? chunk : 1, &first);
    if (chunk == 0) {
        return SEND_NOTHING;
    }
    if (rp_client_credit_expect(client) < chunk) {
        return SEND_WAIT;
    }
    struct rp_pull pull = {.batch = ticket->id, .first = first, .count = chunk};
    memcpy(rp_client_out_body(client), &pull, sizeof pull);
    uint16_t flight = rp_client_flight_next(client);
    uint64_t id = rp_client_id(client, flight);
    rp_client_out_seal(client, RP_OP_PULL, ticket->table, id, sizeof pull);
    start_flight(client, ticket, first, chunk, ticket->tries);
    client->flights[flight].id = id;
    return SEND_DONE;
}

enum client_sending rp_client_sample_send(struct rp_client *client,
                                          struct client_ticket *ticket) {
    if (ticket->id == 0 && ticket->no_wait && rp_client_records_full(client)) {
        int status = rp_client_sample_ended(client, ticket, -RP_FULL);
        rp_client_ticket_finish(client, ticket, status);
        return SEND_NOTHING;
    }
    if (ticket->id == 0
        && (!rp_client_records_next(client, ticket) || rp_client_records_full(client)
            || rp_client_credit_expect(client) == 0)) {
        return SEND_WAIT;
    }
    if (ticket->id == 0 && !begin_round(client, ticket)) {
        rp_client_ticket_finish(client, ticket, -RP_BATCH_TOO_LARGE);
        return SEND_NOTHING;
    }
    return sample_of(client, ticket)->drawn ? send_pull(client, ticket)
                                            : send_first(client, ticket);
}

/* ---- answers ---- */

struct client_ticket *rp_client_sample_find(struct rp_client *client, uint64_t id) {
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        if (client->tickets[i].id == id && id != 0) {
            return &client->tickets[i];
        }
    }
    return NULL;
}

static int blocked(struct rp_client *client, struct client_ticket *ticket,
                   const struct rp_view *view) {
    struct rp_blocked hold;
    struct client_sample *sample = sample_of(client, ticket);
    if (view->message->size != sizeof(struct rp_answer) + sizeof hold) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&hold, view->body + sizeof(struct rp_answer), sizeof hold);
    if (hold.by_size > 1 || hold.noted > RP_NO_RECORD
        || (hold.noted == RP_GIVEN_UP && !ticket->no_wait)) {
        return -RP_COUNT_drop_reserved;
    }
    int last = view->message->want == sample->asked_packet || hold.noted == RP_GIVEN_UP;
    last |= hold.noted == RP_NO_RECORD && view->message->want == 0; /* as its turn came */
    if (sample->drawn || !last) { /* an old answer: the batch overtook it, or a later question */
        return CLIENT_TAKEN;
    }
    rp_client_flights_end(client, &ticket->flights);
    ticket->flight_count = 0;
    ticket->tries = 0;
    ticket->blocked = hold;
    ticket->was_blocked = 1;
    rp_client_fetch_begin(fetch_of(client, ticket), fetch_of(client, ticket)->count);
    rp_client_count(client, RP_COUNT_samples_blocked);
    if (hold.noted == RP_NO_RECORD) {
        rp_client_records_lack(client, ticket);
    } else if (ticket->no_wait && hold.noted != RP_GIVEN_UP) { /* its time was not over yet */
        rp_client_sender_add(client, &ticket->sender);
    } else if (ticket->no_wait) {
        int status = hold.need > 0 ? -RP_BLOCKED : -RP_FULL; /* 0: it lacked a record alone */
        rp_client_ticket_finish(client, ticket, rp_client_sample_ended(client, ticket, status));
    } else {
        rp_client_timer_set(client, &ticket->again, client->now_ns + CLIENT_REASK_NS);
    }
    return CLIENT_TAKEN;
}

/* The first datagram of a draw. After a release no flight covers its train: one is begun for it.
 */
static void begin_landing(struct rp_client *client, struct client_ticket *ticket) {
    struct client_sample *sample = sample_of(client, ticket);
    sample->drawn = 1;
    if (ticket->was_blocked) {
        ask_next(client, ticket);
    }
    ticket->was_blocked = 0;
    rp_client_timer_stop(client, &ticket->again);
    if (ticket->flights == CLIENT_NONE && rp_client_flight_next(client) != CLIENT_NONE
        && sample->first_budget > 0) {
        start_flight(client, ticket, 0, sample->first_budget, 0);
    }
    rp_client_sender_add(client, &ticket->sender);
}

/* Marks the holes of one datagram's payload [start, end). Bits beyond the items it touches must
 * be zero. */
static int note_holes(struct client_sample *sample, const uint64_t *words, uint64_t start,
                      uint64_t end) {
    uint32_t item_bytes = sample->landing.item_bytes;
    uint64_t prefix = sample->bytes - (uint64_t)sample->round_count * item_bytes;
    uint64_t any = 0;
    for (uint32_t i = 0; i < sample->words; i++) {
        any |= words[i];
    }
    if (any == 0) {
        return 1;
    }
    if (end <= prefix) {
        return 0;
    }
    uint64_t first = start > prefix ? (start - prefix) / item_bytes : 0;
    uint64_t touched = (end - 1 - prefix) / item_bytes - first + 1;
    for (uint64_t i = touched; i < 64ull * sample->words; i++) {
        if (words[i / 64] >> (i % 64) & 1) {
            return 0;
        }
    }
    for (uint64_t i = 0; i < touched; i++) {
        if (words[i / 64] >> (i % 64) & 1) {
            sample->holes[(first + i) / 64] |= 1ull << ((first + i) % 64);
        }
    }
    return 1;
}

/* The payload's range in the round's stream; 0 where the datagram's own numbers do not fit the
 * request. */
static int payload_range(const struct client_sample *sample, const struct client_fetch *fetch,
                         const struct rp_batch_datagram *head, uint32_t size, uint64_t *start,
                         uint64_t *end) {
    uint32_t before = (uint32_t)(sizeof(struct rp_answer) + sizeof *head) + 8 * sample->words;
    if (head->datagram_count != fetch->count || head->datagram >= fetch->count
        || head->payload != sample->payload || head->words != sample->words || size < before) {
        return 0;
    }
    *start = (uint64_t)head->datagram * sample->payload;
    *end = rp_min(*start + sample->payload, sample->bytes);
    return size - before == *end - *start;
}

static int landed(struct rp_client *client, struct client_ticket *ticket,
                  const struct rp_view *view) {
    struct client_sample *sample = sample_of(client, ticket);
    struct client_fetch *fetch = fetch_of(client, ticket);
    const uint8_t *body = view->body + sizeof(struct rp_answer);
    struct rp_batch_datagram head;
    uint64_t start, end;
    if (view->message->size < sizeof(struct rp_answer) + sizeof head) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&head, body, sizeof head);
    if (!payload_range(sample, fetch, &head, view->message->size, &start, &end)) {
        return -RP_COUNT_drop_size;
    }
    if (rp_client_fetch_has(fetch, head.datagram)) {
        return -RP_COUNT_drop_unsolicited;
    }
    const uint64_t *words = (const void *)(body + sizeof head);
    const uint8_t *payload = (const uint8_t *)(words + sample->words);
    if (!rp_client_land(sample, start, payload, (uint32_t)(end - start))
        || !note_holes(sample, words, start, end)) {
        return -RP_COUNT_drop_reserved;
    }
    if (!sample->drawn) {
        begin_landing(client, ticket);
    }
    rp_client_fetch_arrived(client, ticket, head.datagram);
    if (fetch->received_count == fetch->count) {
        end_round(client, ticket);
    }
    return CLIENT_TAKEN;
}

int rp_client_sample_answer(struct rp_client *client, const struct rp_view *view) {
    uint16_t status = rp_client_answer_status(view);
    struct client_ticket *ticket = rp_client_sample_find(client, view->message->id);
    if (ticket == NULL) {
        return -RP_COUNT_drop_unsolicited;
    }
    switch (status) {
    case RP_OK: return landed(client, ticket, view);
    case RP_BLOCKED: return blocked(client, ticket, view);
    case RP_FORGOTTEN: forgotten(client, ticket); return CLIENT_TAKEN;
    default: {
        int ended = rp_client_sample_ended(client, ticket, -(int)status);
        if (status == RP_CLOSED) { /* it had a place, whether it heard so or not */
            ticket->was_blocked = 1;
            samples_closed(client);
        }
        rp_client_ticket_finish(client, ticket, ended);
        return CLIENT_TAKEN;
    }
    }
}

/* Is a pull of this id under way? Flights of other requests have no id of their own. */
static int pull_find(const struct rp_client *client, uint64_t id) {
    uint32_t index = id & 0xFFFF;
    return id != 0 && index < client->flights_used && client->flights[index].used
           && client->flights[index].id == id;
}

/* A pull is answered by the batch's datagrams; only its refusals come under its own name. */
int rp_client_pull_answer(struct rp_client *client, const struct rp_view *view) {
    uint32_t index = view->message->id & 0xFFFF;
    uint16_t status = rp_client_answer_status(view);
    if (!pull_find(client, view->message->id) || status == RP_OK) {
        return -RP_COUNT_drop_unsolicited;
    }
    struct client_ticket *ticket = &client->tickets[client->flights[index].owner];
    if (status == RP_FORGOTTEN) {
        forgotten(client, ticket);
    } else {
        rp_client_ticket_finish(client, ticket,
                                rp_client_sample_ended(client, ticket, -(int)status));
    }
    return CLIENT_TAKEN;
}
