/* Requests that are held back: one note per session, table and kind, in one queue per table and
 * kind, first come first served. Notes are volatile: a client whose server was killed repeats
 * its request and is noted again. A note that is not asked for again lapses.
 *
 * Notes lie in one array, place = (kind * sessions_max + session) * table_count + table; queues
 * link places. Limits: sessions_max notes in a queue; every step below is one or two links, and a
 * lapse one for each note that goes.
 *
 *     in a queue the promised notes come before all others; unpromised is the first of the others
 *     promised == sum of items of the promised notes
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
    note->promised = 0;
    note->since_ns = server->now_ns;
    note->lapse_ns = server->now_ns + RP_NOTE_MS * 1000000ull;
    note->previous = queue->last;
    note->next = RP_NOBODY;
    if (queue->last == RP_NOBODY) {
        queue->first = place;
    } else {
        server->notes[queue->last].next = place;
    }
    queue->last = place;
    queue->unpromised = queue->unpromised == RP_NOBODY ? place : queue->unpromised;
    queue->count++;
}

void rp_wait_remove(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                    uint32_t table) {
    struct rp_queue *queue = &server->waiting[kind][table];
    struct rp_note *note = rp_wait_note(server, kind, session, table);
    assert(note->waiting);
    note->waiting = 0;
    queue->count--;
    if (note->promised) {
        queue->promised -= note->items;
    } else if (queue->unpromised == place_of(server, kind, session, table)) {
        queue->unpromised = note->next;
    }
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
            note->missed = 0;
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

void rp_wait_promise(struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    struct rp_queue *queue = &server->waiting[kind][table];
    struct rp_note *note = &server->notes[queue->unpromised];
    note->promised = 1;
    note->lapse_ns = server->now_ns + ((RP_PROMISE_MS * 1000000ull) << note->missed);
    queue->promised += note->items;
    queue->unpromised = note->next;
}

uint32_t rp_wait_first(const struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    return session_of(server, server->waiting[kind][table].unpromised);
}

uint32_t rp_wait_oldest(const struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    return session_of(server, server->waiting[kind][table].first);
}

static int lapse(struct rp_server *server, enum rp_wait_kind kind, uint32_t table,
                 uint32_t place) {
    if (place == RP_NOBODY || server->notes[place].lapse_ns > server->now_ns) {
        return 0;
    }
    rp_wait_miss(&server->notes[place]);
    rp_wait_remove(server, kind, session_of(server, place), table);
    rp_server_count(server, RP_COUNT_waits_lapsed);
    return 1;
}

void rp_wait_lapse(struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    const struct rp_queue *queue = &server->waiting[kind][table];
    if (!rp_server_may_give_up(server)) {
        return;
    }
    while (lapse(server, kind, table, queue->first)
           || lapse(server, kind, table, queue->unpromised)) {
    }
}

static void check_queue(const struct rp_server *server, enum rp_wait_kind kind, uint32_t table) {
    const struct rp_queue *queue = &server->waiting[kind][table];
    uint32_t before = RP_NOBODY;
    uint32_t unpromised = RP_NOBODY;
    uint64_t promised = 0;
    uint32_t count = 0;
    for (uint32_t place = queue->first; place != RP_NOBODY; place = server->notes[place].next) {
        uint32_t session = session_of(server, place);
        assert(place == place_of(server, kind, session, table));
        assert(server->notes[place].waiting && server->notes[place].previous == before);
        assert(server->sessions[session].connection != 0);
        assert(!server->notes[place].promised || unpromised == RP_NOBODY);
        promised += server->notes[place].promised ? server->notes[place].items : 0;
        if (!server->notes[place].promised && unpromised == RP_NOBODY) {
            unpromised = place;
        }
        before = place;
        count++;
        assert(count <= server->limits.sessions_max);
    }
    assert(queue->last == before && queue->count == count);
    assert(queue->unpromised == unpromised && queue->promised == promised);
}

void rp_wait_check(const struct rp_server *server) {
    for (uint32_t kind = 0; kind < RP_WAIT_KINDS; kind++) {
        for (uint32_t table = 0; table < server->limits.table_count; table++) {
            check_queue(server, kind, table);
        }
    }
}
