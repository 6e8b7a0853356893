/* UPDATE: new priorities, each datagram once and in the order of its session's ids 1, 2, 3 ...
 *
 * A datagram that can be read always uses its id up, even where its epoch or a priority is
 * refused: otherwise one bad update would hold up all later ones. One intent holds the leaf
 * words, the id and the recorded answer, so a repeat after a crash is answered as before it, or
 * applied for the first time; never twice.
 */
#include <string.h>

#include "base/power.h"
#include "server/serve.h"

static int answer_with(struct rp_call *call, int status, const struct rp_updated *result) {
    call->status = (uint16_t)status;
    memcpy(rp_serve_room(call), result, sizeof *result);
    return sizeof *result;
}

static int answer_repeat(struct rp_call *call, uint64_t id) {
    const struct rp_session *session = rp_serve_session(call);
    const struct rp_update_words *words = &session->updated[id % RP_UPDATE_RECORDS];
    struct rp_updated result = {
        .applied = (uint32_t)words->applied_stale,
        .stale = (uint32_t)(words->applied_stale >> 32),
        .unknown = (uint32_t)words->unknown_status,
    };
    rp_server_count(call->server, RP_COUNT_updates_repeated);
    return answer_with(call, (int)(words->unknown_status >> 32), &result);
}

/* 0, or the status that is recorded in place of an application. */
static int check(const struct rp_table *table, const struct rp_update *update,
                 const struct rp_update_entry *entries) {
    if (table == NULL) {
        return RP_UNKNOWN_TABLE;
    }
    if (update->epoch != rp_table_epoch(table)) {
        return RP_STALE_EPOCH;
    }
    for (uint32_t i = 0; i < update->count; i++) {
        if (!rp_power_valid(entries[i].priority)) {
            return RP_BAD_PRIORITY;
        }
    }
    return RP_OK;
}

/* Adds the id and its result to the intent and commits everything together. */
static void record(struct rp_call *call, uint64_t id, int status, const struct rp_updated *result) {
    struct rp_session *session = rp_serve_session(call);
    struct rp_intent *intent = &call->server->intent;
    struct rp_update_words *words = &session->updated[id % RP_UPDATE_RECORDS];
    rp_intent_set(intent, &words->applied_stale, result->applied | (uint64_t)result->stale << 32);
    rp_intent_set(intent, &words->unknown_status, result->unknown | (uint64_t)status << 32);
    rp_once_take(&session->update, intent, id, 1);
    rp_intent_commit(intent);
}

static int apply(struct rp_call *call, const struct rp_update *update,
                 const struct rp_update_entry *entries) {
    struct rp_table *table = rp_serve_table(call);
    struct rp_updated result = {0};
    int status = check(table, update, entries);
    if (status == RP_OK) {
        rp_table_update(table, entries, update->count, &result);
    } else {
        result.stale = status == RP_STALE_EPOCH ? update->count : 0;
        rp_serve_count_refusal(call->server, -status);
        rp_meter_session(&call->server->meters, call->session)->refused++;
    }
    record(call, call->view.message->id, status, &result);
    rp_share_take(call->server, call->session, update->count); /* each looked up, as a draw */
    if (status == RP_OK) {
        rp_table_settle(table);
        rp_server_count(call->server, RP_COUNT_updates);
    }
    return answer_with(call, status, &result);
}

int rp_serve_update(struct rp_call *call) {
    const struct rp_once *once = &rp_serve_session(call)->update;
    const struct rp_update *update = (const void *)call->view.body;
    const struct rp_update_entry *entries = (const void *)(update + 1);
    uint64_t id = call->view.message->id;
    int status = rp_serve_exact(&call->view,
                                sizeof *update + (uint64_t)update->count * sizeof *entries);
    if (status < 0) {
        return status;
    }
    if (update->reserved != 0) {
        return -RP_BAD_RESERVED;
    }
    if (id == 0 || update->count == 0) {
        return -RP_BAD_ARGUMENT;
    }
    switch (rp_once_look(once, id)) {
    case RP_ONCE_DONE: return answer_repeat(call, id);
    case RP_ONCE_OLD:
        rp_server_count(call->server, RP_COUNT_updates_forgotten);
        return -RP_FORGOTTEN;
    default: break;
    }
    if (id != once->newest + 1) {
        rp_server_count(call->server, RP_COUNT_updates_early);
        return -RP_EARLY;
    }
    if (!rp_share_allows(call->server, call->session, 0)) {
        return rp_serve_drop(call, RP_COUNT_drop_share);
    }
    return apply(call, update, entries);
}
