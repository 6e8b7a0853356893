/* Every invariant of the client, asserted: for tests, the simulator and the fuzzer, after each
 * turn if they like. */
#include <assert.h>

#include "base/minmax.h"
#include "client/client_parts.h"

static void check_heap(const struct rp_client *client) {
    assert(client->heap_count <= client->heap_max);
    for (uint32_t i = 1; i <= client->heap_count; i++) {
        assert(client->heap[i]->position == i);
        assert(i == 1 || client->heap[i / 2]->due_ns <= client->heap[i]->due_ns);
    }
}

static void check_flights(const struct rp_client *client) {
    uint32_t used = 0;
    uint32_t expected = 0;
    uint32_t unused = 0;
    assert(client->flights_used <= client->flights_max);
    for (uint32_t i = 0; i < client->flights_used; i++) {
        const struct client_flight *flight = &client->flights[i];
        assert(!flight->used || flight->timer.position > 0);
        assert(flight->used || (flight->timer.position == 0 && flight->left == 0));
        used += flight->used;
        expected += flight->left;
    }
    for (uint16_t i = client->flight_free; i != CLIENT_NONE; i = client->flights[i].next) {
        unused++;
    }
    assert(used == client->credit.in_flight && expected == client->credit.expected);
    assert(client->credit.pull_window <= client->options.receive_budget);
    assert(used + unused == client->flights_used);
}

static void check_fetch(const struct rp_client *client, const struct client_ticket *ticket) {
    const struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    uint32_t received = fetch->base;
    uint32_t asked = fetch->base;
    uint32_t under_way = 0;
    assert(fetch->base % 64 == 0 && fetch->base <= fetch->count);
    for (uint32_t i = 0; i < (rp_min(fetch->count, CLIENT_AHEAD_MAX) + 63) / 64; i++) {
        assert((fetch->received[i] & ~fetch->asked[i]) == 0);
        received += (uint32_t)__builtin_popcountll(fetch->received[i]);
        asked += (uint32_t)__builtin_popcountll(fetch->asked[i]);
    }
    for (uint16_t i = ticket->flights; i != CLIENT_NONE; i = client->flights[i].next) {
        under_way += client->flights[i].left;
    }
    assert(received == fetch->received_count && received <= fetch->count);
    assert(asked == received + under_way);
}

/* Each slot's parts follow each other in its own part of the memory. */
static void check_slots(const struct rp_client *client) {
    size_t words = CLIENT_AHEAD_MAX / 64;
    for (uint32_t i = 0; i < client->slots_used; i++) {
        const struct client_slot *slot = &client->slots[i];
        const uint8_t *memory = client->slot_memory + i * client->slot_bytes;
        const uint64_t *holes_end = slot->sample.holes + (client->options.batch_max + 63) / 64;
        assert((const uint8_t *)slot->fetch.received >= memory);
        assert(slot->fetch.asked >= slot->fetch.received + words);
        assert((uint64_t *)(void *)slot->sample.map >= slot->fetch.asked + words);
        assert((uint32_t *)(void *)slot->sample.holes
               >= slot->sample.map + client->options.batch_max);
        assert((const uint8_t *)holes_end <= memory + client->slot_bytes);
    }
}

/* One that waits is not drawn yet; and something will move each that is under way. */
static void check_sample(const struct rp_client *client, const struct client_ticket *ticket) {
    const struct client_sample *sample = &client->slots[ticket->slot].sample;
    assert(!(sample->drawn && ticket->was_blocked));
    assert(ticket->again.position == 0 || ticket->was_blocked);
    assert(ticket->id == 0 || ticket->flights != CLIENT_NONE || ticket->again.position > 0
           || ticket->sender.listed);
}

static void check_tickets(const struct rp_client *client) {
    for (uint32_t i = 0; i < client->tickets_max; i++) {
        const struct client_ticket *ticket = &client->tickets[i];
        int under_way = ticket->used && ticket->status == RP_PENDING;
        if (!under_way) {
            assert(!ticket->used || ticket->flights == CLIENT_NONE);
            assert(ticket->deadline.position == 0 && ticket->again.position == 0);
            assert(!ticket->sender.listed);
            continue;
        }
        assert(ticket->deadline.position > 0);
        int fetches =
            ticket->op == RP_OP_SAMPLE || ticket->op == RP_OP_BLOB || ticket->op == RP_OP_PUBLISH;
        assert((ticket->slot != CLIENT_NONE) == fetches);
        if (fetches && ticket->id != 0) {
            check_fetch(client, ticket);
        }
        if (ticket->op == RP_OP_SAMPLE) {
            check_sample(client, ticket);
        }
    }
}

static void check_body(const struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    uint64_t lowest = CLIENT_UNASSIGNED;
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        const struct rp_run *run = rp_client_run_at(at);
        lowest = rp_min(run->sequence, lowest);
        assert(run->count > 0 && message->runs[i].committed <= run->count);
        assert(message->state == MESSAGE_UNSENT || message->state == MESSAGE_FILLING
               || run->sequence != CLIENT_UNASSIGNED);
    }
    assert(message->first_sequence == lowest);
    uint32_t creates = message->state == MESSAGE_FILLING ? 0 : message->create_count;
    assert((uint64_t)(at - message->body) + creates * sizeof(struct rp_create)
           == message->body_size);
}

static void check_writer(const struct rp_client *client, const struct client_writer *writer) {
    uint32_t counts[MESSAGE_BLOCKED + 1] = {0};
    uint32_t total = 0;
    uint16_t before = CLIENT_NONE;
    for (uint16_t i = writer->first; i != CLIENT_NONE; i = client->messages[i].next) {
        const struct client_message *message = &client->messages[i];
        assert(message->previous == before && message->state != MESSAGE_FREE);
        assert((message->state == MESSAGE_FLYING) == (message->flight != CLIENT_NONE));
        assert((message->state == MESSAGE_ANSWERED) == (message->timer.position > 0));
        check_body(message);
        counts[message->state]++;
        total++;
        before = i;
    }
    assert(writer->last == before && total == writer->state.messages_open);
    assert(counts[MESSAGE_UNSENT] == writer->unsent && counts[MESSAGE_FLYING] == writer->flying);
    assert(counts[MESSAGE_ANSWERED] == writer->answered_open);
    assert(counts[MESSAGE_BLOCKED] == writer->blocked_count);
    uint16_t noted = writer->noted;
    assert(noted == CLIENT_NONE || client->messages[noted].state == MESSAGE_BLOCKED);
    assert(counts[MESSAGE_FILLING] == (writer->filling != CLIENT_NONE));
    assert(writer->done_through <= writer->next_sequence);
    assert(writer->state.steps_stored <= writer->state.steps_posted);
    for (uint16_t i = writer->again_first; i != CLIENT_NONE; i = client->messages[i].again_next) {
        assert(client->messages[i].state == MESSAGE_AGAIN);
        counts[MESSAGE_AGAIN]--;
    }
    assert(counts[MESSAGE_AGAIN] == 0);
    assert(writer->live || (!writer->blocked && !writer->repairing && total == 0));
    assert(writer->live || writer->share == 0);
    /* Nothing is stuck: whatever is blocked has a probe under way or a timer. */
    assert(!writer->blocked || writer->probe != CLIENT_NONE || writer->timer.position > 0);
    uint16_t probe = writer->probe;
    assert(probe == CLIENT_NONE || client->messages[probe].state == MESSAGE_AGAIN
           || client->messages[probe].state == MESSAGE_FLYING);
}

/* Messages in use are those of messages_max, and of shares; each share has its place. */
static void check_messages(const struct rp_client *client) {
    uint32_t shares = 0, used = client->message_places - client->message_free_count, held = 0;
    for (uint32_t i = 0; i < client->options.tables_max; i++) {
        shares += client->writers[i].share;
        held += (uint32_t)client->writers[i].state.messages_open;
    }
    assert(client->messages_max + shares <= client->message_places);
    assert(held == used && used <= client->messages_max + shares);
}

static void check_updates(const struct rp_client *client) {
    const struct client_updates *updates = &client->updates;
    uint32_t used = 0;
    assert(updates->base_id <= updates->next_id);
    assert(updates->next_id - updates->base_id <= CLIENT_UPDATES_MAX);
    assert(updates->segment_cut <= updates->segment_count);
    for (uint32_t i = 0; i < updates->segment_count; i++) {
        const struct client_segment *segment =
            &updates->segments[(updates->segment_first + i) % updates->segments_max];
        assert(segment->cut <= segment->count);
        assert((i < updates->segment_cut) == (segment->cut == segment->count));
        used += segment->count;
    }
    assert(used == updates->used && used <= updates->capacity);
}

static void check_senders(const struct rp_client *client) {
    uint32_t count = 0;
    for (const struct client_sender *s = client->sender_first; s != NULL; s = s->next) {
        assert(s->listed
               && (s->next == NULL ? client->sender_last == s : s->next->previous == s));
        count++;
    }
    assert(count == client->sender_count);
}

void rp_client_check(const struct rp_client *client) {
    check_heap(client);
    check_flights(client);
    check_slots(client);
    check_tickets(client);
    check_updates(client);
    check_messages(client);
    check_senders(client);
    for (uint32_t i = 0; i < client->options.tables_max; i++) {
        if (client->writers[i].stream_room > 0) {
            check_writer(client, &client->writers[i]);
        }
    }
}
