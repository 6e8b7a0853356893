/* Records: which batches a server still has to send again, as far as its client can tell.
 *
 * A server keeps the newest `records` draws of a session, in their order: a batch whose record has
 * been pushed out cannot be repeated. Of a table the batch is drawn again. Of a queue its items are
 * gone, so that nothing may be sent by which so many draws could lie behind it. The draw clock
 * counts requests as they are sent first, and once more where they waited, as they are drawn:
 *
 *     drawn_after   on that clock: what lies behind the batch was counted since then
 *     coming        may be drawn at any moment, and is counted only then: it waits at the server
 *
 *     clock - drawn_after + others that are coming < records
 *
 * A request that is answered BLOCKED had not been drawn as that question was served, so that its
 * drawn_after moves up to where the clock stood at that question. A request that waits long
 * therefore asks again before too many others are sent. For a queue's, those that were on their way
 * at that time count as well: the network may turn their order round.
 */
#include "client/client_parts.h"

/* Draws of this session, as far as they are known to be possible. */
uint64_t rp_client_draw_clock(const struct rp_client *client) {
    return client->sample_id + client->released;
}

int rp_client_may_be_drawn(struct rp_client *client, const struct client_ticket *ticket) {
    const struct client_sample *sample = sample_of(client, ticket);
    int placeless = ticket->was_blocked && ticket->blocked.noted == RP_NO_PLACE;
    return rp_client_was_sent(sample) && !(placeless && sample->unanswered == 0);
}

/* How many the server may draw at any moment, of those that wait there. */
static uint32_t coming(struct rp_client *client) {
    uint32_t count = 0;
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        const struct client_ticket *ticket = &client->tickets[i];
        count += ticket->was_blocked && rp_client_may_be_drawn(client, ticket);
    }
    return count;
}

/* How many others were sent, and may be served after what is sent now. */
static uint32_t on_their_way(struct rp_client *client, const struct client_ticket *but) {
    uint32_t count = 0;
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        const struct client_ticket *ticket = &client->tickets[i];
        count += ticket != but && ticket->id != 0 && !ticket->was_blocked
                 && !sample_of(client, ticket)->drawn;
    }
    return count;
}

void rp_client_record_asked(struct rp_client *client, struct client_ticket *ticket) {
    struct client_sample *sample = sample_of(client, ticket);
    uint64_t before = sample->landing.consumes ? on_their_way(client, ticket) : 0;
    sample->asked_at = rp_client_draw_clock(client) - before;
    if (!rp_client_was_sent(sample)) {
        sample->drawn_after = sample->asked_at;
    }
    if (!sample->answered && rp_client_was_sent(sample)) {
        sample->open_ns = sample->asked_ns;
    }
    sample->unanswered++;
    sample->answered = 0;
    sample->place_told = 0;
    sample->asked_ns = client->now_ns;
}

void rp_client_record_denied(struct rp_client *client, struct client_ticket *ticket) {
    struct client_sample *sample = sample_of(client, ticket);
    sample->drawn_after = sample->asked_at;
    sample->answered = 1;
    if (client->now_ns - sample->open_ns > CLIENT_QUESTION_NS) {
        sample->unanswered = 0; /* those before the last were lost */
    }
    if (sample->place_told && ticket->blocked.noted == RP_NO_PLACE) {
        ticket->blocked.noted = RP_PLACE; /* either answer may be the older one */
    }
}

/* Has it a record at the server that it cannot do without, or may have one by now? Of those that
 * wait, only a queue's. */
static int needs_record(struct rp_client *client, const struct client_ticket *ticket) {
    return rp_client_may_be_drawn(client, ticket)
           && (!ticket->was_blocked || rp_client_sample_at_stake(client, ticket));
}

/* One fewer than there are records, so that other draws go on beside those that wait. */
int rp_client_queues_allow(struct rp_client *client) {
    uint32_t count = 0, records = client->session.opened.records;
    if (records == 0) { /* no session was opened yet */
        return 1;
    }
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        const struct client_ticket *ticket = &client->tickets[i];
        const struct client_sample *sample = sample_of(client, ticket);
        count += sample->landing.consumes && sample->keys == NULL && !ticket->no_wait
                 && !sample->drawn;
    }
    return count == 0 || count + 1 < records;
}

int rp_client_records_allow(struct rp_client *client, const struct client_ticket *asked) {
    uint64_t now = rp_client_draw_clock(client);
    uint32_t may_come = coming(client);
    if (sample_of(client, asked)->landing.consumes
        && on_their_way(client, asked) + may_come >= client->session.opened.records) {
        return 0; /* those could push out its own */
    }
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        struct client_ticket *ticket = &client->tickets[i];
        uint64_t since = now - sample_of(client, ticket)->drawn_after;
        if (!needs_record(client, ticket)) {
            continue;
        }
        uint32_t others = may_come - ticket->was_blocked; /* what waits is coming itself */
        if (since + others + 1 >= client->session.opened.records) {
            if (ticket->was_blocked && since > 0 && ticket->flights == CLIENT_NONE) {
                rp_client_ask_now(client, ticket); /* perhaps nothing lies behind it */
            }
            return 0;
        }
    }
    return 1;
}

/* Were there so many other draws of ours since then that they may have pushed out its record? */
int rp_client_pushed_out(struct rp_client *client, const struct client_sample *sample) {
    return rp_client_draw_clock(client) - sample->drawn_after + coming(client)
           >= client->session.opened.records;
}

/* Asks again for requests in the server's queues. One of them may have been drawn without its batch
 * arriving: it is asked for while the server still has its record. */
static void ask_early(struct rp_client *client, const struct client_ticket *but) {
    uint64_t now = rp_client_draw_clock(client);
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        struct client_ticket *ticket = &client->tickets[i];
        if (ticket != but && ticket->was_blocked && ticket->blocked.noted == RP_PLACE
            && ticket->flights == CLIENT_NONE
            && now - sample_of(client, ticket)->drawn_after
                   >= client->session.opened.records / 2) {
            rp_client_ask_now(client, ticket);
        }
    }
}

/* A batch began to come, or is given up. If it waited at the server, its record may lie behind that
 * of any other batch: so the draw clock counts it, for all. If it did not wait, it was counted when
 * it was asked for, by the batches that were under way then. Where its request was lost on its way
 * it may lie behind the record of a newer batch, too. That is possible only for newer batches whose
 * data came, or that were asked for again. */
void rp_client_outrun(struct rp_client *client, const struct client_ticket *late) {
    client->released += late->was_blocked;
    for (uint16_t i = client->sample_first; i != CLIENT_NONE && !late->was_blocked;
         i = client->tickets[i].next) {
        const struct client_ticket *ticket = &client->tickets[i];
        struct client_sample *sample = sample_of(client, ticket);
        int may_be_drawn = sample->drawn || ticket->tries > 0;
        sample->drawn_after -= ticket->id > late->id && !ticket->was_blocked && may_be_drawn;
    }
    ask_early(client, late);
}
