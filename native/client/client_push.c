/* Pushing: steps and creates are copied into the message being filled; the ledger of what was
 * acknowledged.
 *
 * A message is the body of one datagram: rp_push, then runs, then creates. While it is filled,
 * runs grow from the front and creates from the end of the room, so that neither moves the other;
 * closing brings them together. Steps of one stream posted in a row share a run. A step larger
 * than a datagram is cut into pieces, each in a message of its own. Sequences are given at the
 * first sending.
 *
 *     body_size + create_count * sizeof(struct rp_create) <= room
 *     a message that is closed has a run or a create
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"
#include "base/power.h"

struct client_writer *rp_client_writer_of(const struct rp_client *client, uint16_t table) {
    for (uint32_t i = 0; i < client->options.tables_max; i++) {
        if (client->writers[i].stream_room > 0 && client->writers[i].table == table) {
            return &client->writers[i];
        }
    }
    return NULL;
}

static uint32_t room_of(const struct rp_client *client) {
    return client->session.mtu - RP_HEADER_BYTES;
}

/* ---- a writer's life ---- */

static struct client_writer *place_of(const struct rp_client *client, uint16_t table) {
    struct client_writer *writer = rp_client_writer_of(client, table);
    for (uint32_t i = 0; writer == NULL && i < client->options.tables_max; i++) {
        writer = client->writers[i].stream_room > 0 ? NULL : &client->writers[i];
    }
    return writer;
}

int rp_client_writer_reserve(struct rp_client *client, uint16_t table, uint16_t streams) {
    struct client_writer *writer = place_of(client, table);
    if (writer == NULL) {
        return -RP_FULL;
    }
    if (writer->live || writer->stream_room >= streams) {
        return 0; /* one that goes on has the streams its session granted */
    }
    if (client->streams_used + streams > RP_STREAMS_MAX) {
        return -RP_FULL;
    }
    if (writer->stream_room == 0) {
        writer->table = table;
        writer->first = writer->last = writer->first_unsent = writer->filling = CLIENT_NONE;
        writer->again_first = writer->again_last = CLIENT_NONE;
        writer->probe = writer->noted = CLIENT_NONE;
    }
    /* A smaller place it had is not used again: a writer rarely grows. */
    writer->streams = &client->streams[client->streams_used];
    writer->stream_room = streams;
    client->streams_used += streams;
    return 0;
}

int rp_client_writer_begin(struct rp_client *client, const struct client_ticket *ticket,
                           const struct rp_writer_granted *granted) {
    struct client_writer *writer = rp_client_writer_of(client, ticket->table);
    uint16_t streams = rp_min(ticket->of.writer.streams, granted->streams);
    uint32_t pieces = rp_piece_count(ticket->of.writer.step_bytes, client->session.mtu);
    if (pieces > 1 && (pieces > granted->pieces_max || pieces >= client->messages_max)) {
        return -RP_BAD_PIECE; /* such steps cannot be pushed through this mtu */
    }
    if (writer->live && writer->epoch == granted->epoch) {
        return 0; /* asked again: it goes on */
    }
    if (granted->next_sequence > 0) {
        /* The place of a writer that a refusal ended. Of what that one sent, some may be stored and
         * some still come: nobody here knows where its streams go on. */
        return -RP_BAD_STEP;
    }
    if (writer->live) {
        rp_client_writer_end(client, writer, -RP_STALE_EPOCH);
    }
    if (rp_client_writer_reserve(client, ticket->table, streams) < 0) {
        streams = rp_min(streams, writer->stream_room); /* it ended since this was asked */
    }
    writer->live = 1;
    writer->epoch = granted->epoch;
    writer->next_sequence = 0;
    writer->done_through = 0;
    writer->lost_total = 0;
    writer->in_doubt = 0;
    writer->never_sent = 0;
    writer->resent_from = 0;
    writer->step_bytes = ticket->of.writer.step_bytes;
    writer->items_max = ticket->of.writer.items_max;
    writer->piece_count = pieces;
    writer->share = rp_client_message_share(client, pieces);
    writer->steps_max = granted->window > 1 ? granted->window / 2 : 1;
    writer->stream_count = streams;
    uint64_t most = client->options.unacknowledged_max;
    writer->state = (struct rp_push_state){
        .window = granted->window,
        .unacknowledged_max = most > 0 ? most : 2 * (uint64_t)granted->window};
    for (uint32_t i = 0; i < writer->stream_count; i++) {
        writer->streams[i] = (struct client_stream){.repair_from = UINT64_MAX};
    }
    return 0;
}

/* Adds steps not acknowledged: those that were sent, and those that were not. */
static void count_open(const struct rp_client *client, const struct client_writer *writer,
                       uint64_t *in_doubt, uint64_t *never_sent) {
    for (uint16_t i = writer->first; i != CLIENT_NONE; i = client->messages[i].next) {
        const struct client_message *message = &client->messages[i];
        uint8_t *at = message->body + sizeof(struct rp_push);
        int sent = message->state != MESSAGE_FILLING && message->state != MESSAGE_UNSENT;
        for (uint32_t k = 0; k < message->run_count; k++, at = rp_client_run_after(at)) {
            const struct rp_run *run = rp_client_run_at(at);
            int counted = run->step < writer->streams[run->stream].committed; /* by another piece */
            if (run->piece == 0 && !(counted && run->piece_count > 1)) {
                *(sent ? in_doubt : never_sent) +=
                    (uint64_t)run->count - message->runs[k].committed;
            }
        }
    }
}

void rp_client_writer_end(struct rp_client *client, struct client_writer *writer, int status) {
    if (!writer->live) {
        return;
    }
    count_open(client, writer, &writer->in_doubt, &writer->never_sent);
    while (writer->first != CLIENT_NONE) {
        rp_client_message_free(client, writer->first);
    }
    writer->live = 0;
    writer->share = 0;
    writer->blocked = 0;
    writer->repairing = 0;
    writer->probe = CLIENT_NONE;
    writer->state.status = status;
    writer->state.need = 0;
    rp_client_timer_stop(client, &writer->timer);
    rp_client_sender_remove(client, &writer->sender);
}

/* ---- filling ---- */

/* The message being filled, or a new one; null where none is free. */
static struct client_message *filling(struct rp_client *client, struct client_writer *writer) {
    if (writer->filling == CLIENT_NONE) {
        uint32_t shares = client->message_places - client->messages_max;
        if (client->message_free_count <= shares && rp_client_messages_room(client, writer) == 0) {
            return NULL;
        }
        writer->filling = rp_client_message_new(client, writer);
    }
    return &client->messages[writer->filling];
}

static uint32_t room_left(const struct rp_client *client, const struct client_message *message) {
    return room_of(client) - message->body_size
           - message->create_count * (uint32_t)sizeof(struct rp_create);
}

static void reverse_creates(struct rp_create *creates, uint32_t count) {
    for (uint32_t i = 0; i < count / 2; i++) {
        struct rp_create other = creates[i];
        creates[i] = creates[count - 1 - i];
        creates[count - 1 - i] = other;
    }
}

void rp_client_message_close(struct rp_client *client, struct client_writer *writer) {
    if (writer->filling == CLIENT_NONE) {
        return;
    }
    uint16_t index = writer->filling;
    struct client_message *message = &client->messages[index];
    assert(message->run_count + message->create_count > 0);
    uint32_t bytes = message->create_count * (uint32_t)sizeof(struct rp_create);
    uint8_t *creates = message->body + room_of(client) - bytes;
    reverse_creates((struct rp_create *)(void *)creates, message->create_count);
    memmove(message->body + message->body_size, creates, bytes);
    message->body_size += bytes;
    struct rp_push head = {.epoch = writer->epoch,
                           .run_count = message->run_count,
                           .create_count = message->create_count};
    memcpy(message->body, &head, sizeof head);
    message->id = rp_client_id(client, index);
    writer->filling = CLIENT_NONE;
    writer->flush = 0;
    rp_client_message_state(client, index, MESSAGE_UNSENT);
    rp_client_sender_add(client, &writer->sender);
}

/* The last run, if steps of this stream and kind can follow in it. */
static struct rp_run *open_run(struct client_message *message, uint16_t stream, uint16_t flags) {
    if (message->last_run == 0) {
        return NULL;
    }
    struct rp_run *run = rp_client_run_at(message->body + message->last_run);
    int same = run->stream == stream && run->flags == flags && run->piece_count == 1;
    return same && run->count < 0xFFFF ? run : NULL;
}

static struct rp_run *new_run(struct client_message *message, uint16_t stream, uint64_t step,
                              uint16_t flags) {
    struct rp_run *run = rp_client_run_at(message->body + message->body_size);
    *run = (struct rp_run){.sequence = CLIENT_UNASSIGNED,
                           .step = step,
                           .stream = stream,
                           .flags = flags,
                           .piece_count = 1};
    message->runs[message->run_count++] = (struct client_run_state){0};
    message->last_run = message->body_size;
    message->body_size += sizeof *run;
    return run;
}

/* Adds steps to a run that has room for them; priorities stand before the run's steps. */
static void add_steps(struct client_message *message, struct rp_run *run, const uint8_t *steps,
                      uint32_t count, uint32_t step_bytes, const double *priorities) {
    uint8_t *data = (uint8_t *)(run + 1);
    uint32_t before = run->count * step_bytes;
    if (run->flags & RP_RUN_PRIORITY) {
        uint32_t old = run->count * 8u;
        memmove(data + old + count * 8u, data + old, before);
        memcpy(data + old, priorities, count * 8u);
        data += old + count * 8u;
        run->size += count * 8u;
        message->body_size += count * 8u;
    }
    memcpy(data + before, steps, (size_t)count * step_bytes);
    run->count = (uint16_t)(run->count + count);
    run->size += count * step_bytes;
    message->steps += count;
    message->body_size += count * step_bytes;
}

/* As many steps as the message being filled takes, at most count; 0 = it is full, or there is
 * none. */
static uint32_t fill(struct rp_client *client, struct client_writer *writer, uint16_t stream,
                     const uint8_t *steps, uint32_t count, uint16_t flags,
                     const double *priorities) {
    struct client_message *message = filling(client, writer);
    if (message == NULL) {
        return 0;
    }
    uint64_t each = writer->step_bytes + (flags & RP_RUN_PRIORITY ? 8u : 0u);
    struct rp_run *run = open_run(message, stream, flags);
    uint32_t head = run == NULL ? sizeof *run : 0;
    uint32_t room = room_left(client, message);
    if (head + count * each > room) {
        count = room > head ? (room - head) / (uint32_t)each : 0;
    }
    uint32_t most = run == NULL ? 0xFFFF : 0xFFFFu - run->count;
    uint32_t allowed = writer->steps_max - message->steps;
    uint32_t items = flags & RP_RUN_ITEM ? writer->items_max - message->items : most;
    most = rp_min(most, allowed);
    most = rp_min(most, items);
    count = rp_min(count, most);
    if (count > 0) {
        run = run != NULL ? run
                          : new_run(message, stream, writer->streams[stream].next_step, flags);
        add_steps(message, run, steps, count, writer->step_bytes, priorities);
        writer->streams[stream].next_step += count;
        message->items += flags & RP_RUN_ITEM ? count : 0;
    }
    return count;
}

static uint32_t push_whole(struct rp_client *client, struct client_writer *writer,
                           uint16_t stream, const uint8_t *steps, uint32_t count, uint32_t flags,
                           const double *priorities) {
    uint32_t left = count;
    while (left > 0) {
        uint32_t added = fill(client, writer, stream, steps, left,
                              (uint16_t)(flags & ~(uint32_t)RP_RUN_END), priorities);
        left -= added;
        if (left == 0) {
            break;
        }
        if (writer->filling == CLIENT_NONE) {
            return count - left;
        }
        rp_client_message_close(client, writer);
        steps += (size_t)added * writer->step_bytes;
        priorities = priorities != NULL ? priorities + added : NULL;
    }
    if (flags & RP_RUN_END) {
        struct client_message *message = &client->messages[writer->filling];
        rp_client_run_at(message->body + message->last_run)->flags |= RP_RUN_END;
    }
    return count;
}

/* One step in messages of its own, all of it or nothing: in pieces, or alone in one. */
static int push_pieces(struct rp_client *client, struct client_writer *writer, uint16_t stream,
                       const uint8_t *step, uint32_t flags) {
    uint32_t each = rp_piece_bytes(writer->step_bytes, writer->piece_count);
    rp_client_message_close(client, writer);
    if (rp_client_messages_room(client, writer) <= writer->piece_count) { /* a create's, too */
        return 0;
    }
    for (uint32_t i = 0; i < writer->piece_count; i++) {
        struct client_message *message = filling(client, writer);
        struct rp_run *run = new_run(message, stream, writer->streams[stream].next_step,
                                     (uint16_t)(flags & RP_RUN_END));
        uint32_t left = writer->step_bytes - i * each;
        run->piece = (uint16_t)i;
        run->piece_count = (uint16_t)writer->piece_count;
        run->count = 1;
        run->size = rp_min(left, each);
        memcpy(run + 1, step + (size_t)i * each, run->size);
        message->steps = 1;
        message->body_size += run->size;
        rp_client_message_close(client, writer);
    }
    writer->streams[stream].next_step++;
    return 1;
}

/* ---- posting ---- */

static int priorities_valid(const double *priorities, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!rp_power_valid(priorities[i])) {
            return 0;
        }
    }
    return 1;
}

/* 0, or why this writer takes nothing. */
static int refusal(const struct client_writer *writer, uint16_t stream) {
    if (writer == NULL || !writer->live) {
        return writer != NULL && writer->state.status != 0 ? writer->state.status
                                                           : -RP_NOT_A_WRITER;
    }
    return stream < writer->stream_count ? 0 : -RP_BAD_STREAM;
}

/* Does a step fill its datagram so far that a priority beside it has no room? */
static int fills(const struct rp_client *client, const struct client_writer *writer) {
    uint32_t heads = sizeof(struct rp_push) + sizeof(struct rp_run);
    return heads + writer->step_bytes + 8 > room_of(client);
}

/* Such steps, and those in pieces, carry no priority beside them: their items are created behind.
 */
static uint32_t push_large(struct rp_client *client, struct client_writer *writer,
                           uint16_t stream, const uint8_t *steps, uint32_t count, uint32_t flags,
                           const double *priorities) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t step = writer->streams[stream].next_step;
        uint32_t end = i + 1 == count ? flags & RP_RUN_END : 0;
        if (!push_pieces(client, writer, stream, steps + (size_t)i * writer->step_bytes, end)) {
            return i;
        }
        if (flags & RP_RUN_ITEM) {
            int status = rp_client_create(client, writer->table, stream, step,
                                          priorities != NULL ? priorities[i] : 0,
                                          priorities != NULL ? 0 : RP_CREATE_MAXIMUM);
            assert(status == 0);
        }
    }
    return count;
}

/* Takes fewer than `count` steps, and no end, where all of them would exceed unacknowledged_max.
 * Then the message being filled does not wait for more steps. */
static inline void bound(struct client_writer *writer, uint32_t *count, uint32_t *flags) {
    const struct rp_push_state *state = &writer->state;
    uint64_t open = state->steps_posted - state->steps_stored;
    if (open + *count < state->unacknowledged_max) {
        return;
    }
    uint64_t room = open < state->unacknowledged_max ? state->unacknowledged_max - open : 0;
    writer->flush = 1;
    if (room < *count) {
        *count = (uint32_t)room;
        *flags &= ~(uint32_t)RP_RUN_END;
    }
}

int rp_client_push(struct rp_client *client, uint16_t table, uint16_t stream,
                   const uint8_t *steps, uint32_t count, uint32_t flags,
                   const double *priorities) {
    struct client_writer *writer = rp_client_writer_of(client, table);
    int status = refusal(writer, stream);
    if (status < 0) {
        return status;
    }
    uint32_t item_end = RP_RUN_ITEM | RP_RUN_END; /* a closing row is no item */
    if ((flags & ~(uint32_t)RP_RUN_FLAGS) != 0 || count == 0 || count > INT32_MAX
        || (flags & item_end) == item_end
        || (flags & RP_RUN_PRIORITY && (!(flags & RP_RUN_ITEM) || priorities == NULL))) {
        return -RP_BAD_ARGUMENT;
    }
    priorities = flags & RP_RUN_PRIORITY ? priorities : NULL;
    if (priorities != NULL && !priorities_valid(priorities, count)) {
        return -RP_BAD_PRIORITY;
    }
    bound(writer, &count, &flags);
    uint32_t taken;
    if (writer->piece_count > 1 || (priorities != NULL && fills(client, writer))) {
        taken = push_large(client, writer, stream, steps, count, flags, priorities);
    } else {
        taken = push_whole(client, writer, stream, steps, count, flags, priorities);
        if (flags & RP_RUN_ITEM) {
            writer->state.items_posted += taken;
        }
    }
    writer->state.steps_posted += taken;
    rp_client_sender_add(client, &writer->sender);
    return (int)taken;
}

int rp_client_create(struct rp_client *client, uint16_t table, uint16_t stream, uint64_t step,
                     double priority, uint32_t flags) {
    struct client_writer *writer = rp_client_writer_of(client, table);
    int status = refusal(writer, stream);
    if (status < 0) {
        return status;
    }
    if ((flags & ~(uint32_t)RP_CREATE_FLAGS) != 0 || step >= writer->streams[stream].next_step) {
        return -RP_BAD_ARGUMENT;
    }
    priority = flags & RP_CREATE_MAXIMUM ? 0 : priority;
    if (!priorities_valid(&priority, 1)) {
        return -RP_BAD_PRIORITY;
    }
    struct client_message *message = filling(client, writer);
    if (message != NULL && (room_left(client, message) < sizeof(struct rp_create)
                            || message->items == writer->items_max)) {
        rp_client_message_close(client, writer);
        message = filling(client, writer);
    }
    if (message == NULL) {
        return -RP_FULL;
    }
    struct rp_create create = {
        .step = step, .priority = priority, .stream = stream, .flags = (uint16_t)flags};
    message->created[message->create_count++] = RP_NOT_YET;
    message->items++;
    memcpy(message->body + room_of(client) - message->create_count * sizeof create, &create,
           sizeof create);
    writer->state.items_posted++;
    rp_client_sender_add(client, &writer->sender);
    return 0;
}

void rp_client_flush(struct rp_client *client, uint16_t table) {
    struct client_writer *writer = rp_client_writer_of(client, table);
    if (writer != NULL && writer->filling != CLIENT_NONE) {
        writer->flush = 1;
        rp_client_sender_add(client, &writer->sender);
    }
}

void rp_client_push_state(const struct rp_client *client, uint16_t table,
                          struct rp_push_state *state) {
    const struct client_writer *writer = rp_client_writer_of(client, table);
    *state = writer != NULL ? writer->state : (struct rp_push_state){.status = -RP_NOT_A_WRITER};
    state->unacknowledged = state->steps_posted - state->steps_stored;
    state->blocked = state->need > 0;
}

void rp_client_loss(const struct rp_client *client, uint16_t table, uint64_t *stored_through,
                    uint64_t *in_doubt, uint64_t *lost) {
    const struct client_writer *writer = rp_client_writer_of(client, table);
    *stored_through = writer != NULL ? writer->state.steps_stored : 0;
    *in_doubt = writer != NULL ? writer->in_doubt : 0;
    *lost = writer != NULL ? writer->never_sent : 0;
    if (writer != NULL && writer->live) {
        count_open(client, writer, in_doubt, lost);
    }
}

/* ---- the ledger ---- */

/* Steps [from, to) of the run were acknowledged. The oldest range gives way. */
void rp_client_ledger_add(struct rp_client *client, uint16_t table, const struct rp_run *run,
                          uint32_t from, uint32_t to, uint64_t key) {
    uint32_t last = (client->ledger_first + client->ledger_count + client->ledger_max - 1)
                    % client->ledger_max;
    struct client_range *range = &client->ledger[last];
    if (client->ledger_count > 0 && range->table == table && range->stream == run->stream
        && range->step + range->count == run->step + from
        && range->key + range->count == key + from && range->count + (to - from) <= 0xFFFF) {
        range->count = (uint16_t)(range->count + (to - from));
        return;
    }
    if (client->ledger_count == client->ledger_max) {
        client->ledger_first = (client->ledger_first + 1) % client->ledger_max;
        client->ledger_count--;
        client->ledger_taken = 0;
    }
    uint32_t place = (client->ledger_first + client->ledger_count++) % client->ledger_max;
    client->ledger[place] = (struct client_range){.step = run->step + from,
                                                  .key = key + from,
                                                  .stream = run->stream,
                                                  .table = table,
                                                  .count = (uint16_t)(to - from)};
}

uint32_t rp_client_ledger(struct rp_client *client, struct rp_push_key *keys, uint32_t count) {
    uint32_t taken = 0;
    while (taken < count && client->ledger_count > 0) {
        const struct client_range *range = &client->ledger[client->ledger_first];
        while (taken < count && client->ledger_taken < range->count) {
            keys[taken++] = (struct rp_push_key){.step = range->step + client->ledger_taken,
                                                 .key = range->key + client->ledger_taken,
                                                 .stream = range->stream,
                                                 .table = range->table};
            client->ledger_taken++;
        }
        if (client->ledger_taken == range->count) {
            client->ledger_first = (client->ledger_first + 1) % client->ledger_max;
            client->ledger_count--;
            client->ledger_taken = 0;
        }
    }
    if (client->ledger_count == 0) {
        client->ledger_first = 0; /* the same few pages again */
    }
    return taken;
}

static void pass(struct client_range *range, uint32_t count) {
    range->step += count;
    range->key += count;
    range->count = (uint16_t)(range->count - count);
}

/* Leaves in the range what is later than the steps asked for. */
static uint32_t take_keys(struct client_range *range, uint64_t first, uint64_t *keys,
                          uint32_t count) {
    uint32_t written = 0;
    while (range->count > 0 && (range->step < first || range->step - first < count)) {
        if (range->step >= first) {
            keys[range->step - first] = range->key;
            written++;
        }
        pass(range, 1);
    }
    return written;
}

uint32_t rp_client_keys(struct rp_client *client, uint16_t table, uint64_t first, uint64_t *keys,
                        uint32_t count) {
    uint32_t written = 0, kept = 0;
    for (uint32_t i = 0; i < client->ledger_count; i++) {
        struct client_range range = client->ledger[(client->ledger_first + i) % client->ledger_max];
        pass(&range, client->ledger_taken);
        client->ledger_taken = 0;
        written += range.table == table ? take_keys(&range, first, keys, count) : 0;
        if (range.count > 0) {
            client->ledger[(client->ledger_first + kept++) % client->ledger_max] = range;
        }
    }
    client->ledger_count = kept;
    client->ledger_first = kept > 0 ? client->ledger_first : 0; /* the same few pages again */
    return written;
}
