/* Requests that are held back: one note per session, table and kind, in one queue per table and
 * kind, first come first served. Notes are volatile: a client whose server was killed repeats
 * its request and is noted again.
 *
 * Notes lie in one array, place = (kind * sessions_max + session) * table_count + table; queues
 * link places.
 */
#include <assert.h>

#include "server_state.h"

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

void rp_wait_add(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                 uint32_t table) {
    struct rp_queue *queue = &server->waiting[kind][table];
    uint32_t place = place_of(server, kind, session, table);
    struct rp_note *note = &server->notes[place];
    assert(!note->waiting);
    note->waiting = 1;
    note->since_ns = server->now_ns;
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
            if (rp_wait_note(server, kind, session, table)->waiting) {
                rp_wait_remove(server, kind, session, table);
            }
        }
    }
}

uint32_t rp_wait_first(const struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    return session_of(server, server->waiting[kind][table].first);
}

uint32_t rp_wait_next(const struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                      uint32_t table) {
    return session_of(server, server->notes[place_of(server, kind, session, table)].next);
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
