/* Sending: each sender in turn, into packets leased from the port.
 *
 * Senders (tickets, writers, the queue of updates) stand in one list. Each is asked for one
 * datagram at a time and goes to the end of the list, so that none starves; it leaves the list
 * when it has nothing, and stays while it only lacks room. The handshake and keep-alives go first
 * and need no credit: they are one small datagram.
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

void rp_client_sender_list(struct rp_client *client, struct client_sender *sender) {
    sender->listed = 1;
    sender->next = NULL;
    sender->previous = client->sender_last;
    if (client->sender_last != NULL) {
        client->sender_last->next = sender;
    } else {
        client->sender_first = sender;
    }
    client->sender_last = sender;
    client->sender_count++;
}

void rp_client_sender_remove(struct rp_client *client, struct client_sender *sender) {
    if (!sender->listed) {
        return;
    }
    struct client_sender **from =
        sender->previous != NULL ? &sender->previous->next : &client->sender_first;
    struct client_sender **to =
        sender->next != NULL ? &sender->next->previous : &client->sender_last;
    *from = sender->next;
    *to = sender->previous;
    sender->listed = 0;
    client->sender_count--;
}

/* ---- packets ---- */

static void flush(struct rp_client *client) {
    struct client_out *out = &client->out;
    if (out->leased == 0) {
        return;
    }
    for (uint32_t i = out->used; i < out->leased; i++) {
        out->packets[i].size = 0;
    }
    rp_port_transport(out->port)->tx_send(out->port, out->packets, out->leased);
    out->sent += out->used;
    out->leased = 0;
    out->used = 0;
}

/* Is there a packet to fill? Leases `hint` more where there is none, up to a burst in one turn.
 */
static int lease(struct rp_client *client, uint32_t hint) {
    struct client_out *out = &client->out;
    if (out->used < out->leased) {
        return 1;
    }
    flush(client);
    uint32_t left = RP_BURST - out->sent;
    hint = rp_min(hint, left);
    if (hint == 0) {
        return 0;
    }
    out->leased = rp_port_transport(out->port)->tx_lease(out->port, out->packets, hint);
    assert(out->leased <= hint);
    return out->leased > 0;
}

uint8_t *rp_client_out_body(struct rp_client *client) {
    struct client_out *out = &client->out;
    assert(out->used < out->leased);
    return rp_packet_body(out->packets[out->used].data);
}

static uint16_t want(const struct rp_client *client) {
    uint32_t count = CLIENT_WANT_MIN + client->credit.in_flight;
    for (uint32_t i = 0;
         i < client->options.tables_max && client->writers[i].stream_room > 0; i++) {
        count += client->writers[i].unsent;
    }
    return (uint16_t)rp_min(count, 0xFFFF);
}

void rp_client_out_seal(struct rp_client *client, uint8_t op, uint16_t table, uint64_t id,
                        uint32_t size) {
    struct client_out *out = &client->out;
    struct client_session *session = &client->session;
    struct rp_packet *packet = &out->packets[out->used];
    uint32_t padded = (size + 7) & ~7u;
    padded = rp_max(padded, RP_REQUEST_BODY_MIN);
    assert(RP_HEADER_BYTES + padded <= client->options.mtu);
    memset(rp_packet_body(packet->data) + size, 0, padded - size);
    struct rp_message message = {.op = op, .table = table, .want = want(client), .id = id};
    rp_client_credit_sent(client, session->packet);
    uint64_t connection = op == RP_OP_HELLO || op == RP_OP_OPEN ? 0 : session->opened.session;
    packet->size = rp_packet_seal(packet->data, &message, padded, connection, session->packet++);
    packet->peer = session->server;
    out->used++;
    session->last_sent_ns = client->now_ns;
    rp_client_count(client, RP_COUNT_datagrams_out);
    client->counters[RP_COUNT_bytes_out] += packet->size;
}

/* ---- whose turn it is ---- */

static enum client_sending send_one(struct rp_client *client,
                                    const struct client_sender *sender) {
    switch (sender->kind) {
    case SENDER_TICKET: return rp_client_ticket_send(client, &client->tickets[sender->index]);
    case SENDER_WRITER: return rp_client_writer_send(client, &client->writers[sender->index]);
    default: return rp_client_update_send(client);
    }
}

/* About how many datagrams the senders have: what to lease at once. */
static uint32_t backlog(const struct rp_client *client) {
    uint32_t count = 0;
    for (const struct client_sender *s = client->sender_first; s != NULL; s = s->next) {
        if (s->kind == SENDER_TICKET) {
            uint8_t op = client->tickets[s->index].op;
            count += op == RP_OP_PUBLISH ? CLIENT_PIECES_MAX : 1;
        } else if (s->kind == SENDER_WRITER) {
            count += client->writers[s->index].unsent + 1;
        } else {
            count += 4;
        }
    }
    return count;
}

static void send_session(struct rp_client *client) {
    static const uint8_t each[] = {DUE_HANDSHAKE, DUE_ECHO, DUE_PING};
    for (uint32_t i = 0; i < sizeof each && client->session.due != 0; i++) {
        if (client->session.due & each[i] && lease(client, 1)) {
            client->session.due &= (uint8_t)~each[i];
            rp_client_session_send(client, each[i]);
        }
    }
}

/* Small and answered by a status alone: they need no credit. */
static int send_cancels(struct rp_client *client) {
    while (client->cancel_count > 0 && lease(client, 1)) {
        rp_client_cancel_send(client);
    }
    return client->cancel_count > 0;
}

/* Asks each sender in turn until all of them in a row sent nothing, or there is no room. Returns 1
 * where only packets were lacking. */
static int send_requests(struct rp_client *client) {
    uint32_t refused = 0;
    while (client->sender_first != NULL && refused < client->sender_count) {
        uint32_t room = (uint32_t)rp_client_credit_room(client);
        if (room == 0) {
            return 0;
        }
        uint32_t count = backlog(client);
        if (!lease(client, rp_min(count, room))) {
            return 1;
        }
        struct client_sender *sender = client->sender_first;
        rp_client_sender_remove(client, sender);
        enum client_sending result = send_one(client, sender);
        if (result != SEND_NOTHING) {
            rp_client_sender_add(client, sender);
        }
        refused = result == SEND_WAIT ? refused + 1 : 0;
    }
    return 0;
}

uint32_t rp_client_out_turn(struct rp_client *client, struct rp_port *port) {
    client->out = (struct client_out){.port = port, .packets = client->packets};
    send_session(client);
    int send_pending = client->session.due != 0;
    if (client->session.state == SESSION_OPEN && !client->session.echoing) {
        send_pending |= send_cancels(client) | send_requests(client);
    }
    client->send_pending = (uint8_t)send_pending;
    flush(client);
    return client->out.sent;
}
