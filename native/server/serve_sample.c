/* SAMPLE and PULL: a batch is drawn once, kept as a record until its client has all of it, and sent
 * as often as it is asked for.
 *
 * The record is written to a slot of the session's that no id names; one intent then names it, and
 * holds the generator's and the limiter's words. So a kill leaves either the draw with its record
 * or neither. The client says with each SAMPLE which ones are done: their slots are free. Where
 * none is, nothing is drawn. So an id without a record was never drawn, or is done.
 *
 * Whether it goes on at once or waits is decided in serve_wait.c.
 */
#include <string.h>

#include "base/minmax.h"
#include "server/serve.h"

/* The slot of this id's record, or for 0 a free one; `records` where there is none. */
static uint32_t slot_of(const struct rp_server *server, uint32_t session, uint64_t id) {
    const uint64_t *ids = server->sessions[session].record_id;
    uint32_t slot = 0;
    while (slot < server->limits.records && ids[slot] != id) {
        slot++;
    }
    return slot;
}

static struct rp_record *find_record(const struct rp_call *call, uint64_t id) {
    uint32_t slot = slot_of(call->server, call->session, id);
    return slot < call->server->limits.records
               ? rp_region_record(call->server, call->session, slot)
               : NULL;
}

int rp_serve_can_record(const struct rp_server *server, uint32_t session) {
    return slot_of(server, session, 0) < server->limits.records;
}

void rp_serve_sample_done(struct rp_server *server, uint32_t session, uint64_t id) {
    uint32_t slot = slot_of(server, session, id);
    if (slot < server->limits.records) {
        rp_intent_set(&server->intent, &server->sessions[session].record_id[slot], 0);
        rp_intent_commit(&server->intent);
    }
}

/* What a SAMPLE says of those before it: what is done is kept no more, nor waits or is drawn. */
static void others_done(struct rp_call *call, uint64_t under_way) {
    struct rp_server *server = call->server;
    struct rp_session *session = rp_serve_session(call);
    uint64_t *ids = session->record_id;
    for (uint32_t i = 0; i < server->limits.records; i++) {
        uint64_t behind = call->view.message->id - 1 - ids[i];
        if (ids[i] != 0 && behind < RP_TOLD_OF && !(under_way >> behind & 1)) {
            rp_intent_set(&server->intent, &ids[i], 0);
        }
    }
    rp_once_tell(&session->sample, &server->intent, call->view.message->id, under_way);
    if (server->intent.count > 0) {
        rp_intent_commit(&server->intent);
        rp_wait_forget_done(server, call->session);
    }
}

/* Held back, until one of the session's other batches is done; one that does not wait is over. */
static int no_record(struct rp_call *call, const struct rp_sample *request) {
    const uint64_t *ids = rp_serve_session(call)->record_id;
    struct rp_blocked blocked = {.noted = RP_NO_RECORD, .need = ids[0]};
    for (uint32_t i = 1; i < call->server->limits.records; i++) {
        blocked.need = rp_min(blocked.need, ids[i]);
    }
    if (request->now && request->mode != RP_SAMPLE_KEYS) {
        rp_serve_use_up(call, call->message.id);
        blocked = (struct rp_blocked){.noted = RP_GIVEN_UP};
    }
    return rp_serve_hold(call, RP_WAIT_SAMPLE, &blocked);
}

/* Was this id drawn or withdrawn before, or is it too old to know? */
static int seen(const struct rp_session *session, uint64_t id) {
    enum rp_once_state state = rp_once_look(&session->sample, id);
    return state == RP_ONCE_DONE || state == RP_ONCE_OLD;
}

/* ---- drawing ---- */

static void first_train(struct rp_call *call, const struct rp_record *record, uint32_t budget) {
    uint32_t train = rp_serve_train(call);
    uint32_t left = rp_serve_datagrams_left(call);
    budget = rp_min(budget, train);
    budget = rp_min(budget, left);
    rp_serve_batch(call, record, 0, budget > 0 ? budget : 1);
}

static int draw(struct rp_call *call, struct rp_table *table, const struct rp_sample *request,
                const uint64_t *keys) {
    struct rp_server *server = call->server;
    struct rp_session *session = rp_serve_session(call);
    uint32_t slot = slot_of(server, call->session, 0);
    if (slot == server->limits.records) {
        return no_record(call, request);
    }
    struct rp_record *record = rp_region_record(server, call->session, slot);
    int status = keys != NULL
                     ? rp_table_lookup(table, request, keys, &record->head, record->items)
                     : rp_table_draw(table, request, &record->head, record->items);
    if (status < 0) {
        return status;
    }
    record->table_plan = table->number | (uint64_t)request->plan << 16;
    record->reserved = 0;
    RP_SITE();
    rp_intent_set(&server->intent, &session->record_id[slot], call->message.id);
    rp_once_take(&session->sample, &server->intent, call->message.id, 1);
    rp_intent_commit(&server->intent);
    rp_wait_forget(server, RP_WAIT_SAMPLE, call->session, call->message.id); /* at other tables */
    rp_table_settle(table);
    rp_server_count(server, RP_COUNT_samples);
    server->counters[RP_COUNT_items_sampled] += request->count;
    rp_meter_session(&server->meters, call->session)->items += request->count;
    rp_share_drawn(server, call->session, request->count);
    if (keys == NULL) {
        rp_meter_ages(&server->meters, table->number, &record->head, record->items);
    }
    first_train(call, record, request->budget);
    return RP_SERVED;
}

int rp_serve_draw(struct rp_call *call, struct rp_table *table, const struct rp_sample *request) {
    return draw(call, table, request, NULL);
}

/* ---- checks ---- */

static int check(const struct rp_call *call, const struct rp_table *table,
                 const struct rp_sample *request) {
    uint64_t keys = request->mode == RP_SAMPLE_KEYS ? 8ull * request->count : 0;
    if (request->mode >= RP_SAMPLE_MODES) { /* what follows is unknown, its size too */
        return -RP_BAD_ARGUMENT;
    }
    int status = rp_serve_exact(&call->view, sizeof *request + keys);
    if (status < 0) {
        return status;
    }
    if (request->fields != 0) { /* no feature of this build */
        return -RP_BAD_ARGUMENT;
    }
    if (request->now > 1) {
        return -RP_BAD_ARGUMENT;
    }
    if (request->count == 0 || call->view.message->id == 0) {
        return -RP_BAD_ARGUMENT;
    }
    int stratified = request->mode == RP_SAMPLE_STRATIFIED;
    int draws = request->mode != RP_SAMPLE_KEYS;
    if (stratified && request->uniform != 0) {
        return -RP_BAD_ARGUMENT;
    }
    if (draws && rp_table_fifo(table) && (stratified || request->uniform != 0)) {
        return -RP_BAD_ARGUMENT;
    }
    if (request->plan >= rp_table_plan_count(table)) {
        return -RP_UNKNOWN_PLAN;
    }
    uint64_t bytes = rp_batch_bytes(request->count, rp_table_item_bytes(table, request->plan));
    return request->count > call->server->limits.batch_max || bytes >> 40 != 0
               ? -RP_BATCH_TOO_LARGE
               : 0;
}

/* A request for an id that was never drawn: draws, or waits its turn. */
static int serve_new(struct rp_call *call, struct rp_table *table,
                     const struct rp_sample *request) {
    struct rp_asked asked = {.items = request->count, .request = *request};
    if (request->epoch != 0 && request->epoch != rp_table_epoch(table)) {
        return -RP_STALE_EPOCH;
    }
    struct rp_note *own = rp_wait_find(call->server, RP_WAIT_SAMPLE, call->session, table->number,
                                       call->view.message->id);
    if (own != NULL) { /* also where it is dropped below: its client is there */
        rp_wait_keep(call->server, own);
    }
    if (!rp_share_allows(call->server, call->session, request->count)) {
        return rp_serve_drop(call, RP_COUNT_drop_share);
    }
    if (request->mode == RP_SAMPLE_KEYS) {
        return draw(call, table, request, (const uint64_t *)(const void *)(request + 1));
    }
    if (!rp_serve_can_record(call->server, call->session)) {
        if (own != NULL) { /* else it would be waited for, and not be drawn */
            rp_wait_remove(call->server, RP_WAIT_SAMPLE, call->session, table->number);
        }
        return no_record(call, request);
    }
    int held_back = rp_serve_admit(call, RP_WAIT_SAMPLE, table, &asked);
    return held_back != 0 ? held_back : draw(call, table, request, NULL);
}

static int forgotten(struct rp_call *call) {
    rp_server_count(call->server, RP_COUNT_samples_forgotten);
    return -RP_FORGOTTEN;
}

int rp_serve_sample(struct rp_call *call) {
    const struct rp_sample *request = (const void *)call->view.body;
    uint64_t id = call->view.message->id;
    struct rp_table *table = rp_serve_table(call);
    if (table == NULL) {
        return -RP_UNKNOWN_TABLE;
    }
    int status = check(call, table, request);
    if (status < 0) {
        return status;
    }
    others_done(call, request->under_way);
    const struct rp_record *record = find_record(call, id);
    if (record != NULL && !rp_share_allows(call->server, call->session, 0)) {
        return rp_serve_drop(call, RP_COUNT_drop_share);
    }
    if (record != NULL) {
        rp_server_count(call->server, RP_COUNT_samples_repeated);
        call->message.table = (uint16_t)record->table_plan;
        first_train(call, record, request->budget);
        return RP_SERVED;
    }
    if (seen(rp_serve_session(call), id)
        && !rp_wait_find(call->server, RP_WAIT_SAMPLE, call->session, table->number, id)) {
        return forgotten(call);
    }
    return serve_new(call, table, request);
}

/* Answered as far as its client can take it, or not at all: datagrams that are left out for want of
 * room here would only be asked for again. */
int rp_serve_pull(struct rp_call *call) {
    const struct rp_pull *pull = (const void *)call->view.body;
    const struct rp_record *record = pull->batch != 0 ? find_record(call, pull->batch) : NULL;
    if (pull->count == 0 || pull->count > RP_TRAIN_MAX) {
        return -RP_BAD_ARGUMENT;
    }
    if (record == NULL) {
        return forgotten(call);
    }
    uint32_t datagrams = rp_serve_batch_datagrams(call, record);
    if (pull->first >= datagrams) {
        return -RP_BAD_ARGUMENT;
    }
    uint32_t left = datagrams - pull->first;
    uint32_t train = rp_serve_train(call);
    uint32_t count = rp_min(pull->count, left);
    count = rp_min(count, train);
    int dropped = rp_serve_lease_train(call, count);
    if (dropped) {
        return dropped;
    }
    call->message.op = RP_OP_SAMPLE | RP_ANSWER;
    call->message.id = pull->batch;
    call->message.table = (uint16_t)record->table_plan;
    rp_serve_batch(call, record, pull->first, count);
    rp_server_count(call->server, RP_COUNT_pulls);
    return RP_SERVED;
}
