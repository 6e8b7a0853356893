/* Answers to pushes: which steps were stored, which lost their place before they were committed,
 * and which are not final yet.
 *
 * An answer is checked whole before any of it counts. Committed steps go into the ledger once, with
 * the first answer that reports them; later answers only add. A message that is answered but not
 * finished waits for other messages to fill the gap before it. Once done_through has passed its
 * sequences, and no step was lost since, it is stored too. Else its timer asks again.
 */
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

/* ---- what an answer says ---- */

struct push_answer {
    struct rp_pushed head;
    const uint8_t *runs;
    const uint8_t *created;
};

static int created_known(uint8_t status) {
    return status == RP_OK || status == RP_EXISTS || status == RP_OVERWRITTEN
           || status == RP_CLOSING_ROW || status == RP_UNKNOWN_STEP || status == RP_NOT_YET;
}

static int read_answer(const struct client_writer *writer, const struct client_message *message,
                       const struct rp_view *view, struct push_answer *answer) {
    uint32_t size = view->message->size - (uint32_t)sizeof(struct rp_answer);
    const uint8_t *body = view->body + sizeof(struct rp_answer);
    if (size
        != sizeof answer->head + message->run_count * sizeof(struct rp_run_done)
               + ((message->create_count + 7u) & ~7u)) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&answer->head, body, sizeof answer->head);
    answer->runs = body + sizeof answer->head;
    answer->created = answer->runs + message->run_count * sizeof(struct rp_run_done);
    if (answer->head.run_count != message->run_count
        || answer->head.create_count != message->create_count || answer->head.reserved != 0
        || answer->head.done_through > writer->next_sequence) {
        return -RP_COUNT_drop_reserved;
    }
    uint8_t *at = message->body + sizeof(struct rp_push);
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        struct rp_run_done done;
        memcpy(&done, answer->runs + i * sizeof done, sizeof done);
        if (done.reserved != 0 || done.key >> RP_KEY_BITS != 0
            || (uint32_t)done.committed + done.lost > rp_client_run_at(at)->count) {
            return -RP_COUNT_drop_reserved;
        }
    }
    for (uint32_t i = 0; i < message->create_count; i++) {
        if (!created_known(answer->created[i])) {
            return -RP_COUNT_drop_reserved;
        }
    }
    return CLIENT_TAKEN;
}

/* ---- applying it ---- */

/* Acknowledges the steps of a run that were reported as stored, once the stream's earlier steps are
 * acknowledged. */
static void acknowledge(struct rp_client *client, struct client_writer *writer,
                        const struct rp_run *run, struct client_run_state *state) {
    struct client_stream *stream = &writer->streams[run->stream];
    uint32_t from = state->committed;
    uint32_t to = state->reported;
    int in_order = run->step + from == stream->committed;
    int other_piece = run->piece_count > 1 && run->step < stream->committed;
    if (to <= from || !(in_order || other_piece)) {
        return;
    }
    state->committed = (uint16_t)to;
    if (!in_order) { /* a step in pieces counts once */
        return;
    }
    stream->committed = run->step + to;
    writer->state.steps_stored += to - from;
    if (state->key != 0) {
        rp_client_ledger_add(client, writer->table, run, from, to, state->key);
    }
    if (run->flags & RP_RUN_ITEM) {
        writer->state.items_created += to - from;
    }
}

static void apply_runs(struct rp_client *client, struct client_writer *writer,
                       struct client_message *message, const struct push_answer *answer) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        const struct rp_run *run = rp_client_run_at(at);
        struct client_run_state *state = &message->runs[i];
        struct rp_run_done done;
        memcpy(&done, answer->runs + i * sizeof done, sizeof done);
        state->key = done.key != 0 ? done.key : state->key;
        state->reported = rp_max(done.committed, state->reported);
        acknowledge(client, writer, run, state);
        uint32_t open = run->count - state->reported;
        uint32_t lost = rp_min(done.lost, open);
        if (lost > state->lost) {
            struct client_stream *stream = &writer->streams[run->stream];
            uint64_t from = run->step + run->count - lost;
            stream->repair_from = rp_min(from, stream->repair_from);
            writer->repairing = 1;
        }
        state->lost = (uint16_t)rp_max(lost, state->lost);
    }
}

/* A create that came before its step did: its stream has not stored the step yet. */
static int is_early(const struct client_writer *writer, const struct rp_create *create,
                    uint8_t status) {
    return status == RP_NOT_YET
           || (status == RP_UNKNOWN_STEP
               && create->step >= writer->streams[create->stream].committed);
}

static void apply_creates(struct client_writer *writer, struct client_message *message,
                          const struct push_answer *answer) {
    const uint8_t *at =
        message->body + message->body_size - message->create_count * sizeof(struct rp_create);
    for (uint32_t i = 0; i < message->create_count; i++) {
        struct rp_create create;
        memcpy(&create, at + i * sizeof create, sizeof create);
        uint8_t status = answer->created[i];
        if (message->created[i] != RP_NOT_YET || is_early(writer, &create, status)) {
            continue;
        }
        message->created[i] = status;
        if (status == RP_OK || status == RP_EXISTS) {
            writer->state.items_created++;
        } else {
            writer->state.items_failed++;
        }
    }
}

/* ---- what is left to do for a message ---- */

static int runs_stored(const struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        if (message->runs[i].committed < rp_client_run_at(at)->count) {
            return 0;
        }
    }
    return 1;
}

static int runs_reported(const struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        if (message->runs[i].reported < rp_client_run_at(at)->count) {
            return 0;
        }
    }
    return 1;
}

static int creates_final(const struct client_message *message) {
    for (uint32_t i = 0; i < message->create_count; i++) {
        if (message->created[i] == RP_NOT_YET) {
            return 0;
        }
    }
    return 1;
}

/* Is something in it final that a repeat would ask for in vain? */
static int can_shrink(const struct client_message *message) {
    for (uint32_t i = 0; i < message->create_count; i++) {
        if (message->created[i] != RP_NOT_YET) {
            return 1;
        }
    }
    return message->run_count > 0;
}

/* Its creates were asked for before all was stored that was posted before them, and now it is. */
static int is_due(const struct client_writer *writer, const struct client_message *message) {
    return !message->was_due && writer->done_through >= message->posted_through;
}

/* Frees it when nothing is open; keeps only its open creates when all its steps are stored. */
static void settle(struct rp_client *client, uint16_t index) {
    struct client_message *message = &client->messages[index];
    int stored = runs_stored(message);
    if (stored && creates_final(message)) {
        rp_client_message_free(client, index);
        return;
    }
    if (stored && can_shrink(message)) {
        rp_client_message_rebuild(client, index);
    }
    if (stored && is_due(&client->writers[message->writer], message)) {
        rp_client_message_state(client, index, MESSAGE_AGAIN);
    } else if (message->state != MESSAGE_ANSWERED) {
        rp_client_message_state(client, index, MESSAGE_ANSWERED);
    }
}

static uint64_t end_sequence(const struct client_message *message) {
    uint8_t *at = message->body + sizeof(struct rp_push);
    uint64_t end = 0;
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        const struct rp_run *run = rp_client_run_at(at);
        end = rp_max(run->sequence + run->count, end);
    }
    return end;
}

/* Steps that done_through has passed are stored, unless one was lost since the message was
 * answered. */
static void acknowledge_all(struct rp_client *client, struct client_writer *writer,
                            uint16_t index) {
    struct client_message *message = &client->messages[index];
    int none_lost = message->lost_seen == writer->lost_total;
    uint8_t *at = message->body + sizeof(struct rp_push);
    for (uint32_t i = 0; i < message->run_count; i++, at = rp_client_run_after(at)) {
        const struct rp_run *run = rp_client_run_at(at);
        struct client_run_state *state = &message->runs[i];
        if (none_lost && state->lost == 0
            && run->sequence + run->count <= writer->done_through) {
            state->reported = run->count;
        }
        acknowledge(client, writer, run, state);
    }
    if (runs_stored(message)) {
        settle(client, index);
    }
}

/* Messages that were answered, but not finished, may be finished now. They are looked at in the
 * order of posting: one message may acknowledge the steps that the next one waited for. */
static void pass_answered(struct rp_client *client, struct client_writer *writer) {
    uint16_t next;
    uint32_t left = writer->answered_open; /* none is added here; most are at the front */
    for (uint16_t i = writer->first; left > 0; i = next) {
        struct client_message *message = &client->messages[i];
        next = message->next;
        left -= message->state == MESSAGE_ANSWERED;
        int creates = message->run_count == 0;
        if (message->state != MESSAGE_ANSWERED || (creates && !is_due(writer, message))) {
            continue;
        }
        if (creates) {
            rp_client_message_state(client, i, MESSAGE_AGAIN);
        } else if (message->lost_seen != writer->lost_total && !runs_reported(message)
            && end_sequence(message) <= writer->done_through) {
            rp_client_message_state(client, i, MESSAGE_AGAIN);
        } else {
            acknowledge_all(client, writer, i);
        }
    }
}

/* A piece that has arrived, of a step whose last piece will ask for all of them. */
static int is_earlier_piece(const struct client_message *message) {
    const struct rp_run *run = rp_client_run_at(message->body + sizeof(struct rp_push));
    return message->run_count > 0 && run->piece + 1 < run->piece_count;
}

/* Its timer: asked again, unless only earlier steps of its streams are waited for, or others ask.
 */
void rp_client_message_timer(struct rp_client *client, uint16_t index) {
    const struct client_message *message = &client->messages[index];
    int waits = message->run_count > 0 && runs_reported(message) && creates_final(message);
    waits = waits || is_earlier_piece(message);
    rp_client_message_state(client, index, waits ? MESSAGE_ANSWERED : MESSAGE_AGAIN);
}

/* ---- the limiter ---- */

static int blocked(struct rp_client *client, struct client_writer *writer, uint16_t index,
                   const struct rp_view *view) {
    struct rp_blocked hold;
    if (view->message->size != sizeof(struct rp_answer) + sizeof hold) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&hold, view->body + sizeof(struct rp_answer), sizeof hold);
    if (hold.by_size > 1 || hold.noted > 1) {
        return -RP_COUNT_drop_reserved;
    }
    struct client_message *message = &client->messages[index];
    if (message->state != MESSAGE_FLYING) {
        return CLIENT_TAKEN;
    }
    rp_client_message_state(client, index, MESSAGE_BLOCKED);
    rp_client_count(client, hold.need > 0 ? RP_COUNT_pushes_blocked : RP_COUNT_pushes_early);
    if (writer->probe == index) {
        writer->probe = CLIENT_NONE;
    }
    writer->blocked = 1;
    writer->state.need = hold.need > 0 ? hold.need : writer->state.need; /* 0: no limiter's */
    if (hold.noted) {
        writer->noted = index;
    }
    /* The one that has the place is answered unasked, and the others ask then. */
    int noted = writer->noted != CLIENT_NONE;
    uint64_t until = noted ? CLIENT_REASK_NS : rp_client_credit_timeout(client, 0);
    rp_client_timer_set(client, &writer->timer, client->now_ns + until);
    return CLIENT_TAKEN;
}

/* A message was taken, and with it perhaps the writer's place in the server's queue: the next
 * message asks. It does not where another message is known to have the place, and the timer runs.
 * Messages ask one at a time, in order: the limiter often admits one message's worth, and all
 * others would only be refused again. */
static void release(struct rp_client *client, struct client_writer *writer, uint16_t index) {
    if (writer->probe == index) {
        writer->probe = CLIENT_NONE;
    }
    int waits = writer->noted != CLIENT_NONE && writer->timer.position > 0;
    if (!writer->blocked || waits) {
        return;
    }
    rp_client_writer_probe(client, writer);
    if (!writer->blocked) {
        rp_client_timer_stop(client, &writer->timer);
    }
}

/* ---- answers ---- */

static int stored(struct rp_client *client, struct client_writer *writer, uint16_t index,
                  const struct rp_view *view) {
    struct client_message *message = &client->messages[index];
    struct push_answer answer;
    int result = read_answer(writer, message, view, &answer);
    if (result < 0) {
        return result;
    }
    uint64_t progress = writer->done_through + writer->lost_total + writer->state.steps_stored;
    writer->done_through = rp_max(answer.head.done_through, writer->done_through);
    writer->lost_total = rp_max(answer.head.lost_total, writer->lost_total);
    message->answered = 1;
    message->lost_seen = answer.head.lost_total;
    message->was_due |= answer.head.done_through >= message->posted_through;
    apply_runs(client, writer, message, &answer);
    apply_creates(writer, message, &answer);
    settle(client, index);
    release(client, writer, index);
    progress -= writer->done_through + writer->lost_total + writer->state.steps_stored;
    int late = answer.head.done_through < writer->done_through; /* newer answers came before */
    if (writer->answered_open > 0 && (progress != 0 || late)) { /* else none can have changed */
        pass_answered(client, writer);
    }
    rp_client_sender_add(client, &writer->sender);
    return CLIENT_TAKEN;
}

int rp_client_push_answer(struct rp_client *client, const struct rp_view *view) {
    uint32_t index = view->message->id & 0xFFFF;
    uint16_t status = rp_client_answer_status(view);
    if (index >= client->messages_used || client->messages[index].state < MESSAGE_FLYING
        || client->messages[index].id != view->message->id) {
        return -RP_COUNT_drop_unsolicited;
    }
    struct client_writer *writer = &client->writers[client->messages[index].writer];
    switch (status) {
    case RP_OK: return stored(client, writer, (uint16_t)index, view);
    case RP_BLOCKED: return blocked(client, writer, (uint16_t)index, view);
    case RP_CLOSED: /* with all that it stored, whatever comes in its place */
        rp_client_writer_end(client, writer, -RP_SERVER_RESTARTED);
        return CLIENT_TAKEN;
    default: rp_client_writer_end(client, writer, -(int)status); return CLIENT_TAKEN;
    }
}
