/* Holding back and releasing: BLOCKED answers, and what the end of a turn owes to those who
 * wait.
 *
 * A waiting SAMPLE is drawn and answered with its first train, as if it had just come. A waiting
 * PUSH is only told to send again, as its datagram was not kept. What is promised to pushes in
 * one pass adds up, so that one freed place is not offered to all of them; a promise is not kept
 * beyond the turn, so another writer may be faster (the push is then noted again, at the end of
 * the queue).
 */
#include <string.h>

#include "serve.h"

int rp_serve_blocked(struct rp_call *call, enum rp_wait_kind kind, uint64_t need, uint32_t by_size,
                     uint64_t items, const struct rp_sample *request) {
    struct rp_server *server = call->server;
    uint32_t table = call->view.message->table;
    struct rp_note *note = rp_wait_note(server, kind, call->session, table);
    if (!note->waiting) {
        note->id = call->view.message->id;
        note->items = items;
        note->request = request != NULL ? *request : (struct rp_sample){0};
        rp_wait_add(server, kind, call->session, table);
    }
    struct rp_blocked blocked = {
        .by_size = by_size, .noted = note->id == call->view.message->id, .need = need};
    memcpy(rp_serve_room(call), &blocked, sizeof blocked);
    call->status = RP_BLOCKED;
    rp_server_count(server, kind == RP_WAIT_PUSH ? RP_COUNT_pushes_blocked
                                                 : RP_COUNT_samples_blocked);
    return sizeof blocked;
}

/* A call that no datagram started: the answer goes where the session is. */
static struct rp_call call_for(struct rp_turn *turn, uint32_t session, struct rp_peer *peer,
                               uint8_t op, uint32_t table, uint64_t id) {
    rp_session_peer(&turn->server->sessions[session], peer);
    return (struct rp_call){
        .turn = turn,
        .server = turn->server,
        .peer = peer,
        .session = session,
        .message = {.op = op | RP_ANSWER, .table = (uint16_t)table, .id = id},
    };
}

/* Sends what a released request earned: a status alone where it is not a train. */
static void answer(struct rp_call *call, int result) {
    if (result != RP_SERVED) {
        rp_serve_count_refusal(call->server, result);
        call->status = (uint16_t)-result;
        rp_serve_send(call, 0);
    }
    rp_server_count(call->server, RP_COUNT_releases);
}

/* May the oldest waiting SAMPLE go on? 1, 0, or the refusal it has become. */
static int sample_ready(struct rp_table *table, const struct rp_sample *request) {
    uint64_t need;
    uint32_t by_size;
    if (request->epoch != 0 && request->epoch != rp_table_epoch(table)) {
        return -RP_STALE_EPOCH;
    }
    return rp_limiter_may_sample(table, request->count, &need, &by_size);
}

static void release_samples(struct rp_turn *turn, struct rp_table *table) {
    struct rp_server *server = turn->server;
    uint32_t session;
    while ((session = rp_wait_first(server, RP_WAIT_SAMPLE, table->number)) != RP_NOBODY) {
        struct rp_note note = *rp_wait_note(server, RP_WAIT_SAMPLE, session, table->number);
        int ready = sample_ready(table, &note.request);
        if (ready == 0 || !rp_serve_lease(turn, 1)) {
            return;
        }
        struct rp_peer peer;
        struct rp_call call = call_for(turn, session, &peer, RP_OP_SAMPLE, table->number, note.id);
        rp_wait_remove(server, RP_WAIT_SAMPLE, session, table->number);
        answer(&call, ready < 0 ? ready : rp_serve_draw(&call, table, &note.request));
    }
}

static void release_pushes(struct rp_turn *turn, struct rp_table *table) {
    struct rp_server *server = turn->server;
    uint64_t promised = 0;
    uint32_t session;
    while ((session = rp_wait_first(server, RP_WAIT_PUSH, table->number)) != RP_NOBODY) {
        struct rp_note note = *rp_wait_note(server, RP_WAIT_PUSH, session, table->number);
        uint64_t need;
        promised += note.items;
        if (rp_limiter_may_insert(table, promised, &need) != 1 || !rp_serve_lease(turn, 1)) {
            return;
        }
        struct rp_peer peer;
        struct rp_call call = call_for(turn, session, &peer, RP_OP_PUSH, table->number, note.id);
        rp_wait_remove(server, RP_WAIT_PUSH, session, table->number);
        answer(&call, -RP_RETRY);
    }
}

void rp_serve_waiting(struct rp_turn *turn) {
    for (uint32_t i = 0; i < turn->server->limits.table_count; i++) {
        release_samples(turn, &turn->server->tables[i]);
        release_pushes(turn, &turn->server->tables[i]);
    }
}
