/* Records: a server keeps a batch until its client says that it is done.
 *
 * It keeps `records` of a session, and draws nothing where it has no place for another. Each SAMPLE
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

int rp_client_records_allow(struct rp_client *client) {
    uint32_t under_way = 0;
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        under_way += client->tickets[i].id != 0 && !client->tickets[i].was_blocked;
    }
    return under_way < client->session.opened.records;
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
    int told = ticket->was_blocked && ticket->blocked.noted == RP_NO_RECORD
               && ticket->flights == CLIENT_NONE;
    int unsent = ticket->id == 0 && client->session.state == SESSION_OPEN
                 && !rp_client_records_allow(client);
    return told || unsent;
}

void rp_client_records_done(struct rp_client *client, const struct client_ticket *ticket) {
    if (ticket->id != 0 && client->sample_id - ticket->id >= RP_TOLD_OF) {
        rp_client_cancel(client, ticket->id, ticket->table);
    }
    for (uint16_t i = client->sample_first; i != CLIENT_NONE; i = client->tickets[i].next) {
        struct client_ticket *other = &client->tickets[i];
        if (other->was_blocked && other->blocked.noted == RP_NO_RECORD) {
            rp_client_ask_now(client, other);
            return;
        }
    }
}
