/* Records: a server keeps a batch until its client says that it is done.
 *
 * It keeps `records` of a session, and draws nothing where it has no room for another. Each SAMPLE
 * says which of the 64 ids before its own are not done. An older one is said to be done by CANCEL.
 * That may be lost, or there are others that waited and were drawn all at once: then the answer is
 * BLOCKED, and names the least id on record.
 */
#include "client/client_parts.h"

uint64_t rp_client_records_under_way(struct rp_client *client, uint64_t id) {
    uint64_t under_way = 0;
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        uint64_t before = id - 1 - client->tickets[i].id;
        if (client->tickets[i].id != 0 && before < RP_TOLD_OF) {
            under_way |= 1ull << before;
        }
    }
    return under_way;
}

/* So long as one waits, a record is left for it as its turn comes, where there are two; and so long
 * as one lacks a record, no other is sent that could take it. */
int rp_client_records_full(struct rp_client *client) {
    uint32_t under_way = 0, waiting = 0, lacking = 0, records = client->session.opened.records;
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        const struct client_ticket *ticket = &client->tickets[i];
        under_way += ticket->id != 0 && !ticket->was_blocked;
        waiting += ticket->was_blocked;
        lacking += ticket->was_blocked && ticket->blocked.noted == RP_NO_RECORD;
    }
    return lacking > 0 || under_way + (waiting > 0 && records > 1) >= records;
}

int rp_client_records_next(struct rp_client *client, const struct client_ticket *ticket) {
    uint16_t i = client->sample_first;
    while (i != CLIENT_NONE && client->tickets[i].id != 0) {
        i = client->tickets[i].next;
    }
    return i == rp_client_ticket_index(client, ticket);
}

void rp_client_records_lack(struct rp_client *client, struct client_ticket *ticket) {
    uint64_t kept = ticket->blocked.need;
    ticket->blocked.need = 0; /* no items are missing */
    if (rp_client_sample_find(client, kept) == NULL) {
        rp_client_cancel(client, kept, ticket->table);
        rp_client_ask_now(client, ticket);
    } else {
        rp_client_timer_set(client, &ticket->again, client->now_ns + CLIENT_BUSY_NS);
    }
}

int rp_client_records_lacks(struct rp_client *client, const struct client_ticket *ticket) {
    int told = ticket->was_blocked && ticket->blocked.noted == RP_NO_RECORD;
    int unsent = ticket->id == 0 && client->session.state == SESSION_OPEN
                 && rp_client_records_full(client);
    return (told && ticket->answer_ns == 0) || unsent;
}

/* Those that wait need a record as their turn comes, and the next sample, which would tell what is
 * done, may never be posted. */
static int must_tell(struct rp_client *client) {
    uint32_t taken = client->untold, waiting = 0;
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        taken += client->tickets[i].id != 0 && !client->tickets[i].was_blocked;
        waiting += client->tickets[i].was_blocked;
    }
    return waiting > 0 && taken >= client->session.opened.records;
}

void rp_client_records_done(struct rp_client *client, const struct client_ticket *ticket) {
    if (ticket->id == 0) {
        return;
    }
    client->untold++;
    if (client->sample_id - ticket->id >= RP_TOLD_OF || must_tell(client)) {
        client->untold--;
        rp_client_cancel(client, ticket->id, ticket->table);
    }
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        struct client_ticket *other = &client->tickets[i];
        if (other->was_blocked && other->blocked.noted == RP_NO_RECORD) {
            rp_client_ask_now(client, other);
            return; /* one record is free */
        }
    }
}
