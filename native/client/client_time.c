/* Time: a binary heap of timers, and the flights whose timers most of them are.
 *
 * Timers lie inside what they belong to; the heap holds pointers and each timer knows its place,
 * so that setting, moving and stopping are a few steps. heap[1] is the first due; heap[i]'s
 * children are 2i and 2i + 1.
 *
 *     heap[i / 2]->due_ns <= heap[i]->due_ns      heap[i]->position == i
 */
#include <assert.h>

#include "client/client_parts.h"

static void place(struct rp_client *client, uint32_t i, struct client_timer *timer) {
    client->heap[i] = timer;
    timer->position = i;
}

static void sift_up(struct rp_client *client, uint32_t i, struct client_timer *timer) {
    while (i > 1 && client->heap[i / 2]->due_ns > timer->due_ns) {
        place(client, i, client->heap[i / 2]);
        i /= 2;
    }
    place(client, i, timer);
}

static void sift_down(struct rp_client *client, uint32_t i, struct client_timer *timer) {
    for (;;) {
        uint32_t child = 2 * i;
        if (child > client->heap_count) {
            break;
        }
        if (child < client->heap_count
            && client->heap[child + 1]->due_ns < client->heap[child]->due_ns) {
            child++;
        }
        if (client->heap[child]->due_ns >= timer->due_ns) {
            break;
        }
        place(client, i, client->heap[child]);
        i = child;
    }
    place(client, i, timer);
}

void rp_client_timer_set(struct rp_client *client, struct client_timer *timer, uint64_t due_ns) {
    if (timer->position == 0) {
        assert(client->heap_count < client->heap_max);
        timer->due_ns = due_ns;
        sift_up(client, ++client->heap_count, timer);
        return;
    }
    uint64_t before = timer->due_ns;
    timer->due_ns = due_ns;
    if (due_ns < before) {
        sift_up(client, timer->position, timer);
    } else {
        sift_down(client, timer->position, timer);
    }
}

void rp_client_timer_stop(struct rp_client *client, struct client_timer *timer) {
    uint32_t hole = timer->position;
    if (hole == 0) {
        return;
    }
    timer->position = 0;
    struct client_timer *last = client->heap[client->heap_count--];
    if (last == timer) {
        return;
    }
    if (hole > 1 && client->heap[hole / 2]->due_ns > last->due_ns) {
        sift_up(client, hole, last);
    } else {
        sift_down(client, hole, last);
    }
}

struct client_timer *rp_client_timer_next(struct rp_client *client) {
    if (client->heap_count == 0 || client->heap[1]->due_ns > client->now_ns) {
        return NULL;
    }
    struct client_timer *timer = client->heap[1];
    rp_client_timer_stop(client, timer);
    return timer;
}

uint16_t rp_client_flight_start(struct rp_client *client, uint8_t kind, uint16_t owner,
                                uint16_t *list, uint8_t tries) {
    uint16_t index = rp_client_flight_next(client);
    assert(index != CLIENT_NONE);
    struct client_flight *flight = &client->flights[index];
    if (index == client->flights_used) {
        client->flights_used++;
    } else {
        client->flight_free = flight->next;
    }
    *flight = (struct client_flight){
        .timer = {.kind = TIMER_FLIGHT, .index = index},
        .sent_ns = client->now_ns,
        .next = CLIENT_NONE,
        .owner = owner,
        .kind = kind,
        .used = 1,
    };
    if (list != NULL) {
        flight->next = *list;
        *list = index;
    }
    client->credit.in_flight++;
    if (tries > 0) {
        rp_client_count(client, RP_COUNT_retransmissions);
    }
    rp_client_timer_set(client, &flight->timer,
                        client->now_ns + rp_client_credit_timeout(client, tries));
    return index;
}

void rp_client_flight_expect(struct rp_client *client, uint16_t index, uint32_t first,
                             uint32_t count) {
    struct client_flight *flight = &client->flights[index];
    flight->first = first;
    flight->count = count;
    flight->left = count;
    client->credit.expected += count;
}

void rp_client_flight_end(struct rp_client *client, uint16_t index, uint16_t *list) {
    struct client_flight *flight = &client->flights[index];
    assert(flight->used);
    if (list != NULL) {
        while (*list != index) {
            assert(*list != CLIENT_NONE);
            list = &client->flights[*list].next;
        }
        *list = flight->next;
    }
    rp_client_timer_stop(client, &flight->timer);
    client->credit.in_flight--;
    client->credit.expected -= flight->left;
    flight->used = 0;
    flight->left = 0;
    flight->next = client->flight_free;
    client->flight_free = index;
}

void rp_client_flights_end(struct rp_client *client, uint16_t *list) {
    while (*list != CLIENT_NONE) {
        rp_client_flight_end(client, *list, list);
    }
}
