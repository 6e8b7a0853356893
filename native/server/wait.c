/* Requests that are held back: one note per session, table and kind, in one queue per table and
 * kind, first come first served. Notes are volatile: a client whose server was killed repeats
 * its request and is noted again, unless 64 newer ids have come: then it is FORGOTTEN. A note that
 * is not asked for again lapses.
 *
 * Notes lie in one array, place = (kind * sessions_max + session) * table_count + table; queues
 * link places. Limits: sessions_max notes in a queue. Every operation below takes one or two steps
 * along links; a lapse takes one for each note that is removed.
 */
#include <assert.h>

#include "server/server_state.h"

static uint32_t place_of(const struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                         uint32_t table) {
    const struct rp_limits *limits = &server->limits;
    return ((uint32_t)kind * limits->sessions_max + session) * limits->table_count + table;
}

static uint32_t session_of(const struct rp_server *server, uint32_t place) {
    return place == RP_NOBODY ? RP_NOBODY
                              : place / server->limits.table_count % server->limits.sessions_max;
}

struct rp_note *rp_wait_note(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                             uint32_t table) {
    return &server->notes[place_of(server, kind, session, table)];
}

struct rp_note *rp_wait_find(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                             uint32_t table, uint64_t id) {
    struct rp_note *note = rp_wait_note(server, kind, session, table);
    return note->waiting && note->id == id ? note : NULL;
}

void rp_wait_add(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                 uint32_t table) {
    struct rp_queue *queue = &server->waiting[kind][table];
    uint32_t place = place_of(server, kind, session, table);
    struct rp_note *note = &server->notes[place];
    assert(!note->waiting);
    note->waiting = 1;
    note->since_ns = server->now_ns;
    rp_wait_keep(server, note);
    note->previous = queue->last;
    note->next = RP_NOBODY;
    if (queue->last == RP_NOBODY) {
        queue->first = place;
    } else {
        server->notes[queue->last].next = place;
    }
    queue->last = place;
    queue->count++;
}

void rp_wait_remove(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                    uint32_t table) {
    struct rp_queue *queue = &server->waiting[kind][table];
    struct rp_note *note = rp_wait_note(server, kind, session, table);
    assert(note->waiting);
    note->waiting = 0;
    queue->count--;
    rp_histogram_add(&server->meters.waited[kind], server->now_ns - note->since_ns);
    if (note->previous == RP_NOBODY) {
        queue->first = note->next;
    } else {
        server->notes[note->previous].next = note->next;
    }
    if (note->next == RP_NOBODY) {
        queue->last = note->previous;
    } else {
        server->notes[note->next].previous = note->previous;
    }
}

void rp_wait_drop(struct rp_server *server, uint32_t session) {
    for (uint32_t kind = 0; kind < RP_WAIT_KINDS; kind++) {
        for (uint32_t table = 0; table < server->limits.table_count; table++) {
            struct rp_note *note = rp_wait_note(server, kind, session, table);
            if (note->waiting) {
                rp_wait_remove(server, kind, session, table);
            }
        }
    }
}

void rp_wait_forget(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                    uint64_t id) {
    for (uint32_t table = 0; table < server->limits.table_count; table++) {
        if (server->waiting[kind][table].count > 0
            && rp_wait_find(server, kind, session, table, id)) {
            rp_wait_remove(server, kind, session, table);
        }
    }
}

void rp_wait_forget_done(struct rp_server *server, uint32_t session) {
    const struct rp_once *once = &server->sessions[session].sample;
    for (uint32_t table = 0; table < server->limits.table_count; table++) {
        struct rp_note *note = rp_wait_note(server, RP_WAIT_SAMPLE, session, table);
        if (note->waiting && rp_once_look(once, note->id) == RP_ONCE_DONE) {
            rp_wait_remove(server, RP_WAIT_SAMPLE, session, table);
            rp_server_count(server, RP_COUNT_waits_withdrawn);
        }
    }
}

uint32_t rp_wait_first(const struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    return session_of(server, server->waiting[kind][table].first);
}

void rp_wait_lapse(struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    uint32_t first;
    if (!rp_server_may_give_up(server)) {
        return;
    }
    while ((first = rp_wait_first(server, kind, table)) != RP_NOBODY
           && rp_wait_note(server, kind, first, table)->lapse_ns <= server->now_ns) {
        rp_wait_remove(server, kind, first, table);
        rp_server_count(server, RP_COUNT_waits_lapsed);
    }
}

static void check_queue(const struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    const struct rp_queue *queue = &server->waiting[kind][table];
    uint32_t before = RP_NOBODY;
    uint32_t count = 0;
    for (uint32_t place = queue->first; place != RP_NOBODY; place = server->notes[place].next) {
        uint32_t session = session_of(server, place);
        assert(place == place_of(server, kind, session, table));
        assert(server->notes[place].waiting && server->notes[place].previous == before);
        assert(server->sessions[session].connection != 0);
        before = place;
        count++;
        assert(count <= server->limits.sessions_max);
    }
    assert(queue->last == before && queue->count == count);
}

void rp_wait_check(const struct rp_server *server) {
    for (uint32_t kind = 0; kind < RP_WAIT_KINDS; kind++) {
        for (uint32_t table = 0; table < server->limits.table_count; table++) {
            check_queue(server, kind, table);
        }
    }
}
