/* Who may go on now, who waits, and what the end of a turn owes to those who wait.
 *
 * Samples and pushes are admitted by one function, first come first served: the queue of a table
 * and kind holds one place per session, and a request goes on only where the limiter admits it and
 * no other session stands before it. So nothing is overtaken for ever by what is smaller.
 *
 * A waiting SAMPLE is drawn and answered with its first train, as if it had just come. A waiting
 * PUSH is only told to send again, as its datagram was not kept; the items it was told about stay
 * free for its session until one of its pushes comes for them, for a short time.
 *
 * Two firsts may hold each other up: a push that is too large until something is drawn, a sample
 * that is too large until something is created. Then the push is let in and the sample drawn right
 * behind it, before any other datagram is served: nobody can withdraw it in between. A push is let
 * in too where nothing can be drawn, whatever the limiter says.
 */
#include <string.h>

#include "serve.h"

/* ---- admission ---- */

/* The limiter's answer for both kinds: 1, 0 with what is missing, or -status. */
static int limiter_may(const struct rp_table *table, enum rp_wait_kind kind, uint64_t items,
                       struct rp_blocked *blocked) {
    *blocked = (struct rp_blocked){0};
    return kind == RP_WAIT_PUSH
               ? rp_limiter_may_insert(table, items, &blocked->need)
               : rp_limiter_may_sample(table, (uint32_t)items, &blocked->need, &blocked->by_size);
}

/* May the oldest waiting SAMPLE go on? 1, 0, or the refusal it has become. */
static int sample_ready(const struct rp_table *table, const struct rp_note *note) {
    struct rp_blocked blocked;
    if (note->request.epoch != 0 && note->request.epoch != rp_table_epoch(table)) {
        return -RP_STALE_EPOCH;
    }
    return limiter_may(table, RP_WAIT_SAMPLE, note->items, &blocked);
}

/* The session whose SAMPLE stands first, or RP_NOBODY. The dead are hungry for nothing. */
static uint32_t first_sample(struct rp_server *server, const struct rp_table *table, int *ready) {
    rp_wait_lapse(server, RP_WAIT_SAMPLE, table->number);
    uint32_t first = rp_wait_first(server, RP_WAIT_SAMPLE, table->number);
    if (first != RP_NOBODY) {
        *ready = sample_ready(table, rp_wait_note(server, RP_WAIT_SAMPLE, first, table->number));
    }
    return first;
}

/* Would the first push wait for draws that nobody makes? */
static int is_stuck(struct rp_server *server, const struct rp_table *table) {
    int ready;
    return rp_tree_count(&table->tree) == 0
           || (first_sample(server, table, &ready) != RP_NOBODY && ready == 0);
}

/* Is what was promised there no more? A promise is of the items that were told; and where it was
 * made for a sample that was held up, that one may have been withdrawn since. */
static int is_void(struct rp_server *server, const struct rp_table *table,
                   const struct rp_note *note, uint64_t items) {
    struct rp_blocked blocked;
    return note->promised
           && (items > note->items
               || (limiter_may(table, RP_WAIT_PUSH, items, &blocked) == 0
                   && !is_stuck(server, table)));
}

/* The session's own place, refreshed by being asked for, or null. Place and promise of a push are
 * the session's: any of its pushes may go on there, as which one is first is the client's to say,
 * and the one that took it may never come again; but none that would be dropped. Samples are drawn
 * in order: not before an older one. Where a promise is void the place is given up, and the request
 * stands last. */
static struct rp_note *own_place(struct rp_call *call, enum rp_wait_kind kind,
                                 const struct rp_table *table, const struct rp_asked *asked) {
    struct rp_server *server = call->server;
    struct rp_note *note = rp_wait_note(server, kind, call->session, table->number);
    uint64_t id = call->view.message->id;
    if (!note->waiting || (kind == RP_WAIT_SAMPLE && note->id < id)
        || (asked->far && note->id != id)) {
        return NULL;
    }
    if (is_void(server, table, note, asked->items)) {
        rp_wait_remove(server, kind, call->session, table->number);
        return NULL;
    }
    if (note->promised) {
        rp_wait_used(server, note);
    }
    note->lapse_ns = server->now_ns + RP_NOTE_MS * 1000000ull;
    return note;
}

/* May it go on? 1, 0 with what it waits for, or -status. A promised one may; another only in its
 * turn: where the limiter admits it beside all that is promised, or, with nothing promised, where
 * it would be stuck. */
static int admitted(struct rp_call *call, enum rp_wait_kind kind, const struct rp_table *table,
                    const struct rp_note *own, uint64_t items, struct rp_blocked *blocked) {
    struct rp_server *server = call->server;
    uint64_t promised = server->waiting[kind][table->number].promised;
    uint32_t first = rp_wait_first(server, kind, table->number);
    int may = limiter_may(table, kind, items, blocked);
    int mine = own != NULL && own->promised;
    int in_turn = first == RP_NOBODY || (own != NULL && first == call->session);
    if (may == 0 && kind == RP_WAIT_PUSH && (mine || (in_turn && promised == 0))
        && is_stuck(server, table)) {
        call->paired = 1;
        return 1;
    }
    if (may <= 0 || mine) {
        return may;
    }
    if (promised > 0) {
        may = limiter_may(table, kind, promised + items, blocked) == 1;
    }
    if (may == 1 && in_turn) {
        return 1;
    }
    blocked->need = blocked->need > 0 ? blocked->need : 1; /* others come first */
    return 0;
}

int rp_serve_hold(struct rp_call *call, enum rp_wait_kind kind, const struct rp_blocked *blocked) {
    memcpy(rp_serve_room(call), blocked, sizeof *blocked);
    call->status = RP_BLOCKED;
    rp_server_count(call->server, kind == RP_WAIT_PUSH ? RP_COUNT_pushes_blocked
                                                       : RP_COUNT_samples_blocked);
    return sizeof *blocked;
}

/* Held back. The place is that of the push which took it, whichever comes behind: who was told that
 * it has one may rely on it. An older sample takes it over. 1 where the request has the place. */
static int stand(struct rp_call *call, enum rp_wait_kind kind, uint32_t table,
                 const struct rp_asked *asked) {
    struct rp_note *note = rp_wait_note(call->server, kind, call->session, table);
    uint64_t id = call->view.message->id;
    if (!note->waiting || (kind == RP_WAIT_PUSH ? note->id == id : note->id > id)) {
        note->id = id;
        note->items = asked->items; /* a push may make less by now */
        note->request = asked->request;
    }
    if (!note->waiting) {
        rp_wait_add(call->server, kind, call->session, table);
    }
    return note->id == id;
}

/* Let on, or refused for ever: the place, or what was promised, is used up. Where it is another
 * request's that waits, that one stands last. */
static void leave(struct rp_call *call, enum rp_wait_kind kind, uint32_t table,
                  const struct rp_note *own) {
    int anothers = own->id != call->view.message->id && !own->promised;
    rp_wait_remove(call->server, kind, call->session, table);
    if (anothers) {
        rp_wait_add(call->server, kind, call->session, table);
    }
}

int rp_serve_admit(struct rp_call *call, enum rp_wait_kind kind, const struct rp_table *table,
                   const struct rp_asked *asked) {
    struct rp_server *server = call->server;
    struct rp_blocked blocked;
    uint32_t number = table->number;
    if (server->waiting[kind][number].count == 0
        && limiter_may(table, kind, asked->items, &blocked) == 1) {
        return 0; /* nobody waits: nearly always */
    }
    struct rp_note *own = own_place(call, kind, table, asked);
    rp_wait_lapse(server, kind, number);
    int result = admitted(call, kind, table, own, asked->items, &blocked);
    if (result == 0) {
        blocked.noted = (uint32_t)stand(call, kind, number, asked);
        return rp_serve_hold(call, kind, &blocked);
    }
    if (own != NULL) {
        leave(call, kind, number, own);
    }
    return result < 0 ? result : 0;
}

/* ---- withdrawal ---- */

/* A sample that was not drawn never will be: its id counts as done, so that a copy of the request
 * that comes late is FORGOTTEN and takes no place. */
static void use_up(struct rp_call *call, uint64_t id) {
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
    struct rp_note *note =
        rp_wait_find(call->server, kind, call->session, table->number, cancel->request);
    if (note != NULL) {
        rp_wait_miss(note);
        rp_wait_remove(call->server, kind, call->session, table->number);
        rp_server_count(call->server, RP_COUNT_waits_withdrawn);
    }
    if (kind == RP_WAIT_SAMPLE) {
        use_up(call, cancel->request);
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

/* Sends what a released request earned: a status alone where it is not a train. Without room it is
 * not sent: the client asks again. */
static void answer(struct rp_call *call, int result) {
    if (result != RP_SERVED) {
        rp_serve_count_refusal(call->server, result);
        call->status = (uint16_t)-result;
        if (rp_serve_lease(call->turn, 1)) {
            rp_serve_send(call, 0);
        }
    }
    rp_server_count(call->server, RP_COUNT_releases);
}

/* Draws for a session that waits, or tells it why it waits in vain. */
static void release_sample(struct rp_turn *turn, struct rp_table *table, uint32_t session,
                           int ready) {
    struct rp_server *server = turn->server;
    struct rp_note note = *rp_wait_note(server, RP_WAIT_SAMPLE, session, table->number);
    struct rp_peer peer;
    struct rp_call call = call_for(turn, session, &peer, RP_OP_SAMPLE, table->number, note.id);
    rp_wait_remove(server, RP_WAIT_SAMPLE, session, table->number);
    answer(&call, ready < 0 ? ready : rp_serve_draw(&call, table, &note.request));
}

/* Without room to send, none are let on any more in this turn, and the next one goes on. */
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

/* What is promised adds up, so that one freed place is not offered twice. While it is, nobody else
 * may have that room, and a sample may wait for what would fill it: so it is kept for a short time.
 * Who is far or slow comes late: the next time it is kept for longer. Who did not come in time so
 * often is told, gives up its place, and has to find room when it comes, each other time.
 */
static void release_pushes(struct rp_turn *turn, struct rp_table *table, uint32_t *left) {
    struct rp_server *server = turn->server;
    const struct rp_queue *queue = &server->waiting[RP_WAIT_PUSH][table->number];
    uint32_t session;
    rp_wait_lapse(server, RP_WAIT_PUSH, table->number);
    for (; *left > 0; --*left) {
        session = rp_wait_first(server, RP_WAIT_PUSH, table->number);
        if (session == RP_NOBODY) {
            return;
        }
        struct rp_note *note = rp_wait_note(server, RP_WAIT_PUSH, session, table->number);
        struct rp_blocked blocked;
        uint64_t items = queue->promised + note->items;
        int may = limiter_may(table, RP_WAIT_PUSH, items, &blocked) == 1;
        may = may || (queue->promised == 0 && is_stuck(server, table));
        if (!may || !has_room(turn, left)) {
            return;
        }
        struct rp_peer peer;
        struct rp_call call = call_for(turn, session, &peer, RP_OP_PUSH, table->number, note->id);
        if (note->missed == RP_MISSES_MAX) {
            note->missed--;
            rp_wait_remove(server, RP_WAIT_PUSH, session, table->number);
        } else {
            rp_wait_promise(server, RP_WAIT_PUSH, table->number);
        }
        answer(&call, -RP_RETRY);
        rp_wait_lapse(server, RP_WAIT_PUSH, table->number);
    }
}

void rp_serve_waiting(struct rp_turn *turn) {
    struct rp_server *server = turn->server;
    uint32_t left = RP_RELEASES_MAX;
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        if (server->waiting[RP_WAIT_SAMPLE][i].count > 0) {
            release_samples(turn, &server->tables[i], &left);
        }
        if (server->waiting[RP_WAIT_PUSH][i].count > 0) {
            release_pushes(turn, &server->tables[i], &left);
        }
    }
    server->left_over = left == 0;
}

static void tell_closed(struct rp_turn *turn, enum rp_wait_kind kind, uint8_t op,
                        uint32_t table) {
    struct rp_server *server = turn->server;
    uint32_t session;
    while ((session = rp_wait_oldest(server, kind, table)) != RP_NOBODY
           && rp_serve_lease(turn, 1)) {
        uint64_t id = rp_wait_note(server, kind, session, table)->id;
        struct rp_peer peer;
        struct rp_call call = call_for(turn, session, &peer, op, table, id);
        rp_wait_remove(server, kind, session, table);
        answer(&call, -RP_CLOSED);
    }
}

/* Where the region stays, a waiting PUSH is not told: its client would drop its steps, and repeats
 * them now to who takes the region over. */
void rp_serve_farewell(struct rp_turn *turn, int region_stays) {
    for (uint32_t i = 0; i < turn->server->limits.table_count; i++) {
        tell_closed(turn, RP_WAIT_SAMPLE, RP_OP_SAMPLE, i);
        if (!region_stays) {
            tell_closed(turn, RP_WAIT_PUSH, RP_OP_PUSH, i);
        }
    }
}
