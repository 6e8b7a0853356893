/* The states of a push message, and which one a writer sends next.
 *
 *     FILLING -> UNSENT -> FLYING -> (answered whole) free
 *                            |  \-> ANSWERED -> AGAIN -> FLYING     not all of it is final
 *                            |---> AGAIN -> FLYING                  lost on its way
 *                            \---> BLOCKED -> (answered late) ...   the limiter holds it back
 *                                     \---> AGAIN -> FLYING         or is asked once more
 *
 * A writer's messages stand in one list in the order of posting; those to be sent again in a second
 * one. Sequences are given at the first sending, in the order of the list. They never reach
 * done_through + window, nor the lowest unfinished sequence + window: the server forgets the result
 * of older ones. A blocked writer sends nothing new. One of its messages has the writer's place in
 * the server's queue, and the server answers it once it is stored. Then the oldest message that is
 * still blocked asks, one at a time. The server may have lost that place, or its answer may be
 * lost: so after some time the message asks by itself.
 *
 * All writers share messages_max messages. A writer that its limiter holds back may take all of
 * them, for as long as nobody draws. So each has a share of its own beside them: one step's, and
 * one for a create. Below its share it takes one though all of messages_max are taken.
 *
 *     messages in use <= messages_max + sum over live writers of share <= message_places
 *     unsent, flying, blocked_count, answered_open == messages of the list in that state
 *     blocked: a question is under way (probe), or the timer runs
 *     noted: true as far as one knows, and only while the timer runs
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

static struct client_writer *writer_of(struct rp_client *client, uint16_t message) {
    return &client->writers[client->messages[message].writer];
}

/* ---- life ---- */

uint32_t rp_client_runs_max(uint32_t mtu) {
    return (mtu - RP_HEADER_BYTES - (uint32_t)sizeof(struct rp_push))
           / ((uint32_t)sizeof(struct rp_run) + 8);
}

static size_t body_bytes(uint32_t mtu) {
    return (mtu - RP_HEADER_BYTES + 7) & ~7u;
}

static size_t runs_bytes(uint32_t mtu) {
    return rp_client_runs_max(mtu) * sizeof(struct client_run_state);
}

size_t rp_client_message_bytes(uint32_t mtu) {
    size_t creates = body_bytes(mtu) / sizeof(struct rp_create);
    return (body_bytes(mtu) + runs_bytes(mtu) + creates + 63) & ~(size_t)63;
}

uint32_t rp_client_messages_default(uint32_t mtu) {
    return rp_piece_count(RP_STEP_BYTES_MAX, mtu) + 2;
}

uint32_t rp_client_message_places(uint32_t messages_max) {
    return rp_min(2 * messages_max + 1, CLIENT_NONE);
}

uint16_t rp_client_message_share(const struct rp_client *client, uint32_t piece_count) {
    uint32_t left = client->message_places - client->messages_max;
    for (uint32_t i = 0; i < client->options.tables_max; i++) {
        left -= client->writers[i].share;
    }
    return (uint16_t)rp_min(piece_count + 1, left);
}

uint32_t rp_client_messages_room(const struct rp_client *client,
                                 const struct client_writer *writer) {
    uint32_t used = client->message_places - client->message_free_count;
    uint32_t held = (uint32_t)writer->state.messages_open;
    uint32_t common = used < client->messages_max ? client->messages_max - used : 0;
    uint32_t own = held < writer->share ? writer->share - held : 0;
    return rp_max(common, own);
}

void rp_client_messages_begin(struct rp_client *client) {
    uint32_t most = client->options.messages_max;
    assert(client->message_free_count == client->message_places); /* its writers have ended */
    client->messages_max = most > 0 ? most : rp_client_messages_default(client->session.mtu);
    client->message_bytes = rp_client_message_bytes(client->session.mtu);
    client->messages_used = 0;
    client->message_free = CLIENT_NONE;
    client->message_places = rp_client_message_places(client->messages_max);
    client->message_free_count = client->message_places;
}

/* Points a message that is taken for the first time at its memory. */
static void open_message(struct rp_client *client, uint16_t index) {
    uint8_t *memory = client->message_memory + index * client->message_bytes;
    uint8_t *runs = memory + body_bytes(client->session.mtu);
    client->messages[index] =
        (struct client_message){.timer = {.kind = TIMER_MESSAGE, .index = index},
                                .body = memory,
                                .runs = (void *)runs,
                                .created = runs + runs_bytes(client->session.mtu)};
}

/* The one freed last, or one never filled. */
static uint16_t take(struct rp_client *client) {
    uint16_t index = client->message_free;
    assert(client->message_free_count > 0);
    client->message_free_count--;
    if (index == CLIENT_NONE) {
        index = (uint16_t)client->messages_used++;
        open_message(client, index);
    } else {
        client->message_free = client->messages[index].next;
    }
    return index;
}

uint16_t rp_client_message_new(struct rp_client *client, struct client_writer *writer) {
    uint16_t index = take(client);
    struct client_message *message = &client->messages[index];
    message->writer = (uint16_t)(writer - client->writers);
    message->state = MESSAGE_FILLING;
    message->body_size = sizeof(struct rp_push);
    message->last_run = 0;
    message->steps = 0;
    message->items = 0;
    message->run_count = 0;
    message->create_count = 0;
    message->tries = 0;
    message->answered = 0;
    message->lost_seen = 0;
    message->first_sequence = UINT64_MAX;
    message->posted_through = UINT64_MAX;
    message->was_due = 0;
    message->flight = CLIENT_NONE;
    message->next = CLIENT_NONE;
    message->previous = writer->last;
    if (writer->last != CLIENT_NONE) {
        client->messages[writer->last].next = index;
    } else {
        writer->first = index;
    }
    writer->last = index;
    if (writer->first_unsent == CLIENT_NONE) {
        writer->first_unsent = index;
    }
    writer->state.messages_open++;
    return index;
}

static void leave_again(struct rp_client *client, struct client_writer *writer, uint16_t index) {
    uint16_t before = CLIENT_NONE;
    uint16_t at = writer->again_first;
    while (at != index) {
        assert(at != CLIENT_NONE);
        before = at;
        at = client->messages[at].again_next;
    }
    uint16_t after = client->messages[index].again_next;
    *(before == CLIENT_NONE ? &writer->again_first : &client->messages[before].again_next) =
        after;
    if (writer->again_last == index) {
        writer->again_last = before;
    }
}

static void leave_state(struct rp_client *client, struct client_writer *writer, uint16_t index) {
    struct client_message *message = &client->messages[index];
    switch (message->state) {
    case MESSAGE_UNSENT: writer->unsent--; break;
    case MESSAGE_FLYING:
        rp_client_flight_end(client, message->flight, NULL);
        message->flight = CLIENT_NONE;
        writer->flying--;
        break;
    case MESSAGE_AGAIN: leave_again(client, writer, index); break;
    case MESSAGE_ANSWERED:
        rp_client_timer_stop(client, &message->timer);
        writer->answered_open--;
        break;
    case MESSAGE_BLOCKED:
        writer->blocked_count--;
        writer->noted = writer->noted == index ? CLIENT_NONE : writer->noted;
        break;
    default: break;
    }
}

/* Any state but FLYING, which only sending reaches. */
void rp_client_message_state(struct rp_client *client, uint16_t index,
                             enum client_message_state state) {
    struct client_message *message = &client->messages[index];
    struct client_writer *writer = writer_of(client, index);
    leave_state(client, writer, index);
    message->state = (uint8_t)state;
    if (state == MESSAGE_UNSENT) {
        writer->unsent++;
    } else if (state == MESSAGE_AGAIN) {
        message->again_next = CLIENT_NONE;
        if (writer->again_last != CLIENT_NONE) {
            client->messages[writer->again_last].again_next = index;
        } else {
            writer->again_first = index;
        }
        writer->again_last = index;
        rp_client_sender_add(client, &writer->sender);
    } else if (state == MESSAGE_ANSWERED) {
        writer->answered_open++;
        rp_client_timer_set(client, &message->timer,
                            client->now_ns + rp_client_credit_timeout(client, message->tries));
    } else if (state == MESSAGE_BLOCKED) {
        writer->blocked_count++;
    }
}

void rp_client_message_free(struct rp_client *client, uint16_t index) {
    struct client_message *message = &client->messages[index];
    struct client_writer *writer = writer_of(client, index);
    leave_state(client, writer, index);
    if (writer->first_unsent == index) {
        writer->first_unsent = message->next;
    }
    if (writer->filling == index) {
        writer->filling = CLIENT_NONE;
    }
    if (writer->probe == index) {
        writer->probe = CLIENT_NONE;
    }
    *(message->previous != CLIENT_NONE ? &client->messages[message->previous].next
                                       : &writer->first) = message->next;
    *(message->next != CLIENT_NONE ? &client->messages[message->next].previous : &writer->last) =
        message->previous;
    message->state = MESSAGE_FREE;
    message->next = client->message_free;
    client->message_free = index;
    client->message_free_count++;
    writer->state.messages_open--;
}

/* ---- timers ---- */

/* A blocked writer whose questions get no answer counts as blocked no more: no server is there. */
void rp_client_message_lost(struct rp_client *client, uint16_t index) {
    struct client_writer *writer = writer_of(client, index);
    if (writer->probe == index && client->messages[index].tries >= CLIENT_PROBES_SILENT) {
        writer->state.need = 0;
    }
    rp_client_message_state(client, index, MESSAGE_AGAIN);
}

/* ---- the limiter ---- */

/* One blocked message asks again; no other one does until it is answered. It is the noted one, as
 * only its own answer says whether it still has the place; else the oldest. */
void rp_client_writer_probe(struct rp_client *client, struct client_writer *writer) {
    if (writer->probe != CLIENT_NONE) {
        return;
    }
    uint16_t asks = writer->noted;
    for (uint16_t i = writer->first; asks == CLIENT_NONE && i != CLIENT_NONE;
         i = client->messages[i].next) {
        asks = client->messages[i].state == MESSAGE_BLOCKED ? i : CLIENT_NONE;
    }
    if (asks != CLIENT_NONE) {
        writer->probe = asks;
        client->messages[asks].tries = 0;
        rp_client_message_state(client, asks, MESSAGE_AGAIN);
        return;
    }
    writer->blocked = 0;
    writer->state.need = 0;
    rp_client_sender_add(client, &writer->sender);
}

/* Of a noted one nothing was heard for long, or none is noted and a round trip is over. */
void rp_client_writer_timer(struct rp_client *client, struct client_writer *writer) {
    if (writer->blocked) {
        rp_client_writer_probe(client, writer);
    }
}

/* ---- sending ---- */

static void send_message(struct rp_client *client, struct client_writer *writer, uint16_t index) {
    struct client_message *message = &client->messages[index];
    leave_state(client, writer, index);
    message->state = MESSAGE_FLYING;
    writer->flying++;
    memcpy(rp_client_out_body(client), message->body, message->body_size);
    rp_client_out_seal(client, RP_OP_PUSH, writer->table, message->id, message->body_size);
    message->flight = rp_client_flight_start(client, OWNER_MESSAGE, index, NULL, message->tries);
    message->tries += message->tries < 32;
}

static uint16_t next_unsent(struct rp_client *client, struct client_writer *writer) {
    while (writer->first_unsent != CLIENT_NONE
           && client->messages[writer->first_unsent].state != MESSAGE_UNSENT
           && client->messages[writer->first_unsent].state != MESSAGE_FILLING) {
        writer->first_unsent = client->messages[writer->first_unsent].next;
    }
    uint16_t index = writer->first_unsent;
    return index != CLIENT_NONE && client->messages[index].state == MESSAGE_UNSENT ? index
                                                                                   : CLIENT_NONE;
}

/* Sequences the message's runs need that have none; all pieces of one step share one. */
static uint32_t sequences_needed(const struct client_writer *writer,
                                 const struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    uint32_t needed = 0;
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        const struct rp_run *run = rp_client_run_at(at);
        const struct client_stream *stream = &writer->streams[run->stream];
        int shared = run->piece_count > 1 && stream->pieces_step == run->step + 1;
        needed += run->sequence == CLIENT_UNASSIGNED && !shared ? run->count : 0;
    }
    return needed;
}

static void assign_sequences(struct client_writer *writer, struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        struct rp_run *run = rp_client_run_at(at);
        struct client_stream *stream = &writer->streams[run->stream];
        if (run->sequence == CLIENT_UNASSIGNED) {
            if (run->piece_count > 1 && stream->pieces_step == run->step + 1) {
                run->sequence = stream->pieces_sequence;
            } else {
                run->sequence = writer->next_sequence;
                writer->next_sequence += run->count;
            }
        }
        if (run->piece_count > 1) {
            stream->pieces_step = run->step + 1;
            stream->pieces_sequence = run->sequence;
        }
        if (run->sequence < message->first_sequence) {
            message->first_sequence = run->sequence;
        }
    }
}

/* The lowest sequence that a message keeps in the window. Creates keep it low until they were asked
 * for when they were due: before that the ring must not come round to their rows. */
static uint64_t lowest_of(const struct client_message *message) {
    int waits = message->run_count == 0 && !message->was_due;
    return waits ? message->posted_through : message->first_sequence;
}

/* The lowest unfinished sequence. The oldest message has it, except where places were lost: until
 * all messages sent before that are finished, a message behind it may have it. */
static uint64_t lowest_open(const struct rp_client *client, struct client_writer *writer) {
    uint64_t lowest = UINT64_MAX;
    for (uint16_t i = writer->first; i != CLIENT_NONE; i = client->messages[i].next) {
        uint64_t first = lowest_of(&client->messages[i]);
        lowest = rp_min(first, lowest);
        if (writer->resent_from == 0 && first != UINT64_MAX) {
            break;
        }
    }
    if (lowest > writer->resent_from) { /* creates that were sent before may wait for that one */
        writer->resent_from = 0;
    }
    return rp_min(lowest, writer->done_through);
}

/* May the message's new sequences be used? Where nothing else is under way they are tried in any
 * case: the server then answers what is wrong, and the writer does not wait for ever. */
static int window_open(const struct rp_client *client, struct client_writer *writer,
                       uint16_t index) {
    uint32_t needed = sequences_needed(writer, &client->messages[index]);
    int alone = writer->flying == 0 && writer->answered_open == 0
                && writer->again_first == CLIENT_NONE && writer->blocked_count == 0;
    return alone
           || writer->next_sequence + needed
                  <= lowest_open(client, writer) + writer->state.window;
}

enum client_sending rp_client_writer_send(struct rp_client *client,
                                          struct client_writer *writer) {
    if (writer->repairing) {
        rp_client_repair(client, writer);
    }
    if (writer->again_first != CLIENT_NONE) {
        send_message(client, writer, writer->again_first);
        return SEND_DONE;
    }
    if (writer->blocked || writer->repairing) {
        return SEND_NOTHING;
    }
    uint16_t index = next_unsent(client, writer);
    if (index == CLIENT_NONE && (writer->flush || writer->flying == 0)) {
        rp_client_message_close(client, writer);
        index = next_unsent(client, writer);
    }
    if (index == CLIENT_NONE || !window_open(client, writer, index)) {
        return SEND_NOTHING;
    }
    assign_sequences(writer, &client->messages[index]);
    client->messages[index].posted_through = writer->next_sequence;
    send_message(client, writer, index);
    return SEND_DONE;
}
