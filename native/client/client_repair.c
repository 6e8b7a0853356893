/* Lost places. A step's slot may be overwritten before the step is committed. Then the step, and
 * every later step of its stream, get new sequences, in order.
 *
 * The server must have seen every old sequence first: one that it never saw would hold its window
 * for ever. So a writer that repairs sends nothing new. It waits until each message with steps
 * concerned has been answered once, then rebuilds those messages in place. Stored steps fall out.
 * The others lose their sequences and are sent as if new, in the order of the list, which is the
 * order of the steps. The first of them makes the server give up what it still holds of that stream
 * under old sequences. The repair needs no further messages.
 */
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

/* Does the run hold steps from where its stream lost its place? */
static int concerned(const struct client_writer *writer, const struct rp_run *run) {
    return run->step + run->count > writer->streams[run->stream].repair_from;
}

/* Copies what is not stored of one run to `to`; returns its bytes there. */
static uint32_t keep_run(const struct client_writer *writer, const struct rp_run *run,
                         const struct client_run_state *state, uint8_t *to) {
    struct rp_run kept = *run;
    const uint8_t *data = (const uint8_t *)(run + 1);
    uint8_t *target = to + sizeof kept;
    uint32_t cut = run->piece_count > 1 ? 0 : state->reported;
    kept.step += cut;
    kept.count = (uint16_t)(run->count - cut);
    kept.sequence = concerned(writer, run) ? CLIENT_UNASSIGNED : run->sequence + cut;
    if (run->flags & RP_RUN_PRIORITY) {
        memcpy(target, data + 8u * cut, 8u * kept.count);
        target += 8u * kept.count;
        data += 8u * run->count;
    }
    uint32_t step_bytes = run->piece_count > 1 ? run->size : writer->step_bytes;
    memcpy(target, data + (size_t)cut * step_bytes, (size_t)kept.count * step_bytes);
    target += (size_t)kept.count * step_bytes;
    kept.size = (uint32_t)(target - to - sizeof kept);
    memcpy(to, &kept, sizeof kept);
    return (uint32_t)(target - to);
}

static uint32_t keep_creates(struct client_message *message, uint8_t *to) {
    const uint8_t *creates =
        message->body + message->body_size - message->create_count * sizeof(struct rp_create);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < message->create_count; i++) {
        if (message->created[i] == RP_NOT_YET) {
            memcpy(to + kept * sizeof(struct rp_create), creates + i * sizeof(struct rp_create),
                   sizeof(struct rp_create));
            kept++;
        }
    }
    memset(message->created, RP_NOT_YET, kept);
    return kept;
}

static uint64_t lowest_sequence(const struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    uint64_t lowest = UINT64_MAX; /* what has no sequence yet is this number, too */
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        uint64_t sequence = rp_client_run_at(at)->sequence;
        lowest = rp_min(sequence, lowest);
    }
    return lowest;
}

void rp_client_message_rebuild(struct rp_client *client, uint16_t index) {
    struct client_message *message = &client->messages[index];
    struct client_writer *writer = &client->writers[message->writer];
    uint8_t *at = message->body + sizeof(struct rp_push);
    uint8_t *to = client->scratch + sizeof(struct rp_push);
    uint32_t runs = 0;
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        if (message->runs[i].reported < rp_client_run_at(at)->count) {
            to += keep_run(writer, rp_client_run_at(at), &message->runs[i], to);
            message->runs[runs++] = (struct client_run_state){0};
        }
    }
    uint32_t creates = keep_creates(message, to);
    to += creates * sizeof(struct rp_create);
    message->run_count = (uint16_t)runs;
    message->create_count = (uint16_t)creates;
    message->body_size = (uint32_t)(to - client->scratch);
    struct rp_push head = {.epoch = writer->epoch,
                           .run_count = message->run_count,
                           .create_count = message->create_count};
    memcpy(client->scratch, &head, sizeof head);
    memcpy(message->body, client->scratch, message->body_size);
    message->id = rp_client_id(client, index);
    message->first_sequence = lowest_sequence(message);
    message->answered = 0;
    message->tries = 0; /* of another body */
}

/* Steps of the message that are concerned and not stored; 0 = none. */
static uint32_t steps_concerned(const struct client_writer *writer,
                                const struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    uint32_t steps = 0;
    if (message->state == MESSAGE_FILLING || message->state == MESSAGE_UNSENT) {
        return 0;
    }
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        const struct rp_run *run = rp_client_run_at(at);
        if (concerned(writer, run)) {
            steps += (uint32_t)run->count - message->runs[i].reported;
        }
    }
    return steps;
}

/* It was answered, and every step reported as stored is acknowledged: nothing is forgotten when
 * those steps fall out. */
static int is_ready(const struct client_message *message) {
    for (uint32_t i = 0; i < message->run_count; i++) {
        if (message->runs[i].reported > message->runs[i].committed) {
            return 0;
        }
    }
    return message->answered;
}

void rp_client_repair(struct rp_client *client, struct client_writer *writer) {
    for (uint16_t i = writer->first; i != CLIENT_NONE; i = client->messages[i].next) {
        if (steps_concerned(writer, &client->messages[i]) > 0
            && !is_ready(&client->messages[i])) {
            return;
        }
    }
    for (uint16_t i = writer->first; i != CLIENT_NONE; i = client->messages[i].next) {
        uint32_t steps = steps_concerned(writer, &client->messages[i]);
        if (steps > 0) {
            rp_client_message_rebuild(client, i);
            rp_client_message_state(client, i, MESSAGE_UNSENT);
            writer->state.steps_resent += steps;
        }
    }
    for (uint32_t i = 0; i < writer->stream_count; i++) {
        writer->streams[i].repair_from = UINT64_MAX;
        writer->streams[i].pieces_step = 0;
    }
    writer->first_unsent = writer->first;
    writer->resent_from = writer->next_sequence;
    writer->repairing = 0;
    if (writer->blocked && writer->probe != CLIENT_NONE
        && client->messages[writer->probe].state == MESSAGE_UNSENT) { /* another one has to ask */
        writer->probe = CLIENT_NONE;
        rp_client_writer_probe(client, writer);
    }
}
