/* Which SAMPLE or PUSH may go on now, which one waits, and which ones are released at the end of a
 * turn.
 *
 * Samples and pushes are admitted by one function, first come first served. The queue of a table
 * and kind has one place per session. A request goes on only where the limiter admits it and no
 * request stands before it. So smaller requests cannot overtake a large one for ever.
 *
 * A waiting request is served as if it had just come: a SAMPLE from its note, a PUSH from the copy
 * of its body that was made when it took its place. No repeat has to come for that. So no room is
 * kept for a client that may come back, and no room stays free while a waiting request fits into
 * it. What a repeat does is keep the place, which lapses RP_NOTE_MS after the last one.
 *
 * The first push and the first sample of a table may hold each other up: the push is too large
 * until something is drawn, the sample is too large until something is created. Then the push is
 * admitted, and the sample is drawn right behind it, before any other datagram is served: so it
 * cannot be withdrawn in between. A push is also admitted where nothing can be drawn, whatever the
 * limiter says.
 *
 * A SAMPLE with `now` does not wait: it meets the first PUSH that does, or its id is given up as by
 * CANCEL, which is served here too. Nor does one wait that lacks a record alone (serve_sample.c).
 */
#include <assert.h>
#include <string.h>

#include "server/serve.h"

/* ---- admission ---- */

/* The limiter's answer for both kinds: 1, 0 with what is missing, or -status. */
static int limiter_may(const struct rp_table *table, enum rp_wait_kind kind, uint64_t items,
                       struct rp_blocked *blocked) {
    *blocked = (struct rp_blocked){0};
    return kind == RP_WAIT_PUSH
               ? rp_limiter_may_insert(table, items, &blocked->need)
               : rp_limiter_may_sample(table, (uint32_t)items, &blocked->need, &blocked->by_size);
}

/* May what waits there go on? 1, 0, or the refusal it has become. */
static int note_ready(const struct rp_table *table, enum rp_wait_kind kind,
                      const struct rp_note *note) {
    struct rp_blocked blocked;
    if (note->request.epoch != 0 && note->request.epoch != rp_table_epoch(table)) {
        return -RP_STALE_EPOCH;
    }
    return limiter_may(table, kind, note->items, &blocked);
}

/* The session whose SAMPLE stands first, or RP_NOBODY. Sessions that ended ask for nothing. */
static uint32_t first_sample(struct rp_server *server, const struct rp_table *table, int *ready) {
    rp_wait_lapse(server, RP_WAIT_SAMPLE, table->number);
    uint32_t first = rp_wait_first(server, RP_WAIT_SAMPLE, table->number);
    if (first != RP_NOBODY) {
        *ready = note_ready(table, RP_WAIT_SAMPLE,
                            rp_wait_note(server, RP_WAIT_SAMPLE, first, table->number));
    }
    return first;
}

/* Who stands first and has no room for a record is not waited for: its place is given up. */
static void drop_unrecordable(struct rp_server *server, const struct rp_table *table) {
    uint32_t first;
    while ((first = rp_wait_first(server, RP_WAIT_SAMPLE, table->number)) != RP_NOBODY
           && !rp_serve_can_record(server, first)) {
        rp_wait_remove(server, RP_WAIT_SAMPLE, first, table->number);
        rp_server_count(server, RP_COUNT_waits_lapsed);
    }
}

/* Would the first push wait for draws that cannot be made, and could be once it is let on? */
static int is_stuck(struct rp_server *server, const struct rp_table *table) {
    int ready;
    if (rp_tree_count(&table->tree) == 0) {
        return 1;
    }
    drop_unrecordable(server, table);
    return first_sample(server, table, &ready) != RP_NOBODY && ready == 0;
}

/* The request's own place, or null. A session's place at a table belongs to its least id there; who
 * takes it over puts the other at the end. Samples are drawn in order: an older one may go on where
 * a later one of its session waits. */
static struct rp_note *own_place(struct rp_call *call, enum rp_wait_kind kind, uint32_t table) {
    struct rp_note *note = rp_wait_note(call->server, kind, call->session, table);
    uint64_t id = call->view.message->id;
    int own = note->id == id || (kind == RP_WAIT_SAMPLE && note->id > id);
    return note->waiting && own ? note : NULL;
}

/* May it go on? 1, 0 with what it waits for, or -status. */
static int admitted(struct rp_call *call, enum rp_wait_kind kind, const struct rp_table *table,
                    const struct rp_note *own, uint64_t items, struct rp_blocked *blocked) {
    uint32_t first = rp_wait_first(call->server, kind, table->number);
    int in_turn = first == RP_NOBODY || (own != NULL && first == call->session);
    int may = limiter_may(table, kind, items, blocked);
    if (may == 0 && kind == RP_WAIT_PUSH && in_turn && is_stuck(call->server, table)) {
        call->paired = 1;
        return 1;
    }
    if (may == 1 && !in_turn) {
        blocked->need = 1; /* others come first */
        return 0;
    }
    return may;
}

int rp_serve_hold(struct rp_call *call, enum rp_wait_kind kind, const struct rp_blocked *blocked) {
    memcpy(rp_serve_room(call), blocked, sizeof *blocked);
    call->status = RP_BLOCKED;
    rp_server_count(call->server, kind == RP_WAIT_SAMPLE ? RP_COUNT_samples_blocked
                                  : blocked->need > 0    ? RP_COUNT_pushes_blocked
                                                         : RP_COUNT_pushes_early);
    return sizeof *blocked;
}

/* The request is held back. If its session's place is free, or has a later sample, this request
 * takes it. If this request has the place already, a push stands there with the body that it brings
 * now. If another push has the place, this one waits without a place. 1 where it has the place. */
static int stand(struct rp_call *call, enum rp_wait_kind kind, uint32_t table,
                 const struct rp_asked *asked) {
    struct rp_note *note = rp_wait_note(call->server, kind, call->session, table);
    const struct rp_message *message = call->view.message;
    int takes = !note->waiting || (kind == RP_WAIT_SAMPLE && note->id > message->id);
    if (takes && asked->far) {
        return 0; /* if admitted, it would be dropped */
    }
    if (!note->waiting) {
        rp_wait_add(call->server, kind, call->session, table);
    }
    if (takes || (kind == RP_WAIT_PUSH && note->id == message->id)) {
        note->id = message->id;
        note->items = asked->items;
        note->request = asked->request;
        if (kind == RP_WAIT_PUSH) {
            note->size = message->size;
            memcpy(asked->held, call->view.body, message->size);
        }
    }
    return note->id == message->id;
}

/* The request is admitted, or refused for ever: its place is used up. If a later sample has the
 * place, that sample moves to the end of the queue. */
static void leave(struct rp_call *call, enum rp_wait_kind kind, uint32_t table,
                  const struct rp_note *own) {
    rp_wait_remove(call->server, kind, call->session, table);
    if (own->id != call->view.message->id) {
        rp_wait_add(call->server, kind, call->session, table);
    }
}

static int draw_or_end(struct rp_call *call, const struct rp_table *table,
                       const struct rp_asked *asked, struct rp_blocked *blocked);

int rp_serve_admit(struct rp_call *call, enum rp_wait_kind kind, const struct rp_table *table,
                   const struct rp_asked *asked) {
    struct rp_server *server = call->server;
    struct rp_blocked blocked;
    uint32_t number = table->number;
    if (server->waiting[kind][number].count == 0
        && limiter_may(table, kind, asked->items, &blocked) == 1) {
        return 0; /* nothing waits: nearly always */
    }
    struct rp_note *own = own_place(call, kind, number);
    if (own != NULL && kind == RP_WAIT_SAMPLE) {
        rp_wait_keep(server, own);
    }
    rp_wait_lapse(server, kind, number);
    if (kind == RP_WAIT_SAMPLE) {
        drop_unrecordable(server, table);
    }
    int result = admitted(call, kind, table, own, asked->items, &blocked);
    if (result == 0 && call->released) { /* it makes more by now */
        own->items = asked->items;
        return RP_SERVED;
    }
    if (result == 0) {
        if (asked->request.now) {
            return draw_or_end(call, table, asked, &blocked);
        }
        blocked.noted = stand(call, kind, number, asked) ? RP_PLACE : RP_NO_PLACE;
        return rp_serve_hold(call, kind, &blocked);
    }
    if (own != NULL) {
        leave(call, kind, number, own);
    }
    return result < 0 ? result : 0;
}

/* ---- withdrawal ---- */

/* A sample that was not drawn never will be: its place is free and its id counts as done, so that a
 * copy of the request that comes late is FORGOTTEN and takes no place. */
void rp_serve_use_up(struct rp_call *call, uint64_t id) {
    rp_wait_forget(call->server, RP_WAIT_SAMPLE, call->session, id);
    struct rp_once *once = &rp_serve_session(call)->sample;
    enum rp_once_state state = rp_once_look(once, id);
    if (state == RP_ONCE_NEW || state == RP_ONCE_OPEN) {
        rp_once_take(once, &call->server->intent, id, 1);
        rp_intent_commit(&call->server->intent);
    }
}

int rp_serve_cancel(struct rp_call *call) {
    const struct rp_cancel *cancel = (const void *)call->view.body;
    const struct rp_table *table = rp_serve_table(call);
    if (table == NULL) {
        return -RP_UNKNOWN_TABLE;
    }
    if (cancel->reserved[0] != 0 || cancel->reserved[1] != 0 || cancel->reserved[2] != 0) {
        return -RP_BAD_RESERVED;
    }
    if ((cancel->op != RP_OP_SAMPLE && cancel->op != RP_OP_PUSH) || cancel->request == 0) {
        return -RP_BAD_ARGUMENT;
    }
    enum rp_wait_kind kind = cancel->op == RP_OP_PUSH ? RP_WAIT_PUSH : RP_WAIT_SAMPLE;
    if (rp_wait_find(call->server, kind, call->session, table->number, cancel->request)) {
        rp_wait_remove(call->server, kind, call->session, table->number);
        rp_server_count(call->server, RP_COUNT_waits_withdrawn);
    }
    if (kind == RP_WAIT_SAMPLE) {
        rp_serve_use_up(call, cancel->request);
        rp_serve_sample_done(call->server, call->session, cancel->request);
    }
    return 0;
}

/* ---- release ---- */

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

static void answer(struct rp_call *call, int result) {
    rp_server_count(call->server, RP_COUNT_releases);
    rp_serve_finish(call, result);
}

/* Draws for a session that waits, or answers why it waits in vain. */
static void release_sample(struct rp_turn *turn, struct rp_table *table, uint32_t session,
                           int ready) {
    struct rp_server *server = turn->server;
    struct rp_note note = *rp_wait_note(server, RP_WAIT_SAMPLE, session, table->number);
    struct rp_peer peer;
    struct rp_call call = call_for(turn, session, &peer, RP_OP_SAMPLE, table->number, note.id);
    rp_wait_remove(server, RP_WAIT_SAMPLE, session, table->number);
    answer(&call, ready < 0 ? ready : rp_serve_draw(&call, table, &note.request));
}

/* Without room to send, no more requests are released in this turn; the next turn goes on. */
static int has_room(struct rp_turn *turn, uint32_t *left) {
    int room = rp_serve_lease(turn, 1);
    *left = room ? *left : 0;
    return room;
}

static void release_samples(struct rp_turn *turn, struct rp_table *table, uint32_t *left) {
    for (; *left > 0; --*left) {
        int ready;
        uint32_t session = first_sample(turn->server, table, &ready);
        if (session == RP_NOBODY || ready == 0 || !has_room(turn, left)) {
            return;
        }
        release_sample(turn, table, session, ready);
    }
}

/* Drawn even without room to send any of it: until it is, the error is beyond its bound. */
void rp_serve_pair(struct rp_call *call) {
    struct rp_table *table = rp_serve_table(call);
    int ready;
    uint32_t session = first_sample(call->server, table, &ready);
    if (session != RP_NOBODY && ready == 1) {
        release_sample(call->turn, table, session, ready);
    }
}

/* Serves the copy of a PUSH that waits. 0 where it still does. */
static int serve_copy(struct rp_turn *turn, struct rp_table *table, uint32_t session) {
    struct rp_note *note = rp_wait_note(turn->server, RP_WAIT_PUSH, session, table->number);
    struct rp_peer peer;
    struct rp_call call = call_for(turn, session, &peer, RP_OP_PUSH, table->number, note->id);
    int writer = rp_writer_find(table, rp_serve_session(&call)->connection);
    struct rp_message message = {.op = RP_OP_PUSH, .table = (uint16_t)table->number,
                                 .size = note->size, .id = note->id};
    assert(writer >= 0); /* a session in the push queue has a writer, until it ends */
    call.view = (struct rp_view){.message = &message, .body = rp_writer_held(table, writer)};
    call.released = 1;
    int result = rp_serve_push(&call);
    if (note->waiting) {
        return 0;
    }
    answer(&call, result);
    return 1;
}

/* Lets the first PUSH on. 0 where it may not. */
static int release_push(struct rp_turn *turn, struct rp_table *table, uint32_t *left) {
    struct rp_server *server = turn->server;
    rp_wait_lapse(server, RP_WAIT_PUSH, table->number);
    uint32_t session = rp_wait_first(server, RP_WAIT_PUSH, table->number);
    if (session == RP_NOBODY || *left == 0) {
        return 0;
    }
    const struct rp_note *note = rp_wait_note(server, RP_WAIT_PUSH, session, table->number);
    if ((note_ready(table, RP_WAIT_PUSH, note) == 0 && !is_stuck(server, table))
        || !has_room(turn, left)) {
        return 0;
    }
    --*left;
    return serve_copy(turn, table, session);
}

/* A release on one side may be what the other side waited for. */
static void release(struct rp_turn *turn, struct rp_table *table, uint32_t *left) {
    do {
        release_samples(turn, table, left);
    } while (release_push(turn, table, left));
}

/* Takes a place, where its session has none, for as long as the PUSH that waits is looked at: the
 * two are let on now as they would be at the turn's end, or it would never meet one, since who
 * polls has no place at any other time. 1 where it is drawn and answered. Answers of released
 * requests are sent in here, so the packet that was leased for this one's may be used. */
static int met(struct rp_call *call, const struct rp_table *table, const struct rp_asked *asked) {
    struct rp_server *server = call->server;
    uint32_t number = table->number, left = 1; /* that PUSH, for this SAMPLE */
    uint64_t id = call->view.message->id;
    const struct rp_note *note = rp_wait_note(server, RP_WAIT_SAMPLE, call->session, number);
    if (server->waiting[RP_WAIT_PUSH][number].count == 0 || (note->waiting && note->id != id)) {
        return 0;
    }
    stand(call, RP_WAIT_SAMPLE, number, asked);
    release(call->turn, &server->tables[number], &left);
    int drawn = !rp_wait_find(server, RP_WAIT_SAMPLE, call->session, number, id);
    if (!drawn) {
        rp_wait_remove(server, RP_WAIT_SAMPLE, call->session, number);
    }
    return drawn;
}

/* A SAMPLE that is not to wait, and is held back. Where no PUSH lets it on, its id is used up, so
 * that no copy of the request is drawn either. */
static int draw_or_end(struct rp_call *call, const struct rp_table *table,
                       const struct rp_asked *asked, struct rp_blocked *blocked) {
    if (met(call, table, asked)) {
        return RP_SERVED;
    }
    if (!rp_serve_lease(call->turn, 1)) {
        return rp_serve_drop(call, RP_COUNT_drop_no_room);
    }
    int result = admitted(call, RP_WAIT_SAMPLE, table, NULL, asked->items, blocked);
    if (result != 0) { /* a PUSH was let on, and now it is its turn */
        return result < 0 ? result : 0;
    }
    rp_serve_use_up(call, call->view.message->id);
    blocked->noted = RP_GIVEN_UP;
    return rp_serve_hold(call, RP_WAIT_SAMPLE, blocked);
}

/* Where the last turn released as many requests as it may, each turn begins with another table.
 * Else a crowd at one table would hold up the tables behind it for as long as it lasts. */
void rp_serve_waiting(struct rp_turn *turn) {
    struct rp_server *server = turn->server;
    uint32_t left = RP_RELEASES_MAX, tables = server->limits.table_count;
    uint32_t first = server->left_over ? (uint32_t)(server->turn % tables) : 0;
    for (uint32_t i = 0; i < tables && left > 0; i++) {
        uint32_t table = (first + i) % tables;
        if (server->waiting[RP_WAIT_SAMPLE][table].count
            + server->waiting[RP_WAIT_PUSH][table].count > 0) {
            release(turn, &server->tables[table], &left);
        }
    }
    server->left_over = left == 0;
}

static void answer_closed(struct rp_turn *turn, enum rp_wait_kind kind, uint8_t op,
                          uint32_t table) {
    struct rp_server *server = turn->server;
    uint32_t session;
    while ((session = rp_wait_first(server, kind, table)) != RP_NOBODY
           && rp_serve_lease(turn, 1)) {
        uint64_t id = rp_wait_note(server, kind, session, table)->id;
        struct rp_peer peer;
        struct rp_call call = call_for(turn, session, &peer, op, table, id);
        rp_wait_remove(server, kind, session, table);
        answer(&call, -RP_CLOSED);
    }
}

/* Where the region stays, a waiting PUSH gets no answer. An answer would make its client drop the
 * steps; without one the client repeats them to the server that takes the region over. */
void rp_serve_close_waiting(struct rp_turn *turn, int region_stays) {
    for (uint32_t i = 0; i < turn->server->limits.table_count; i++) {
        answer_closed(turn, RP_WAIT_SAMPLE, RP_OP_SAMPLE, i);
        if (!region_stays) {
            answer_closed(turn, RP_WAIT_PUSH, RP_OP_PUSH, i);
        }
    }
}
