/* Publishing weights: the blob's pieces, up to CLIENT_PIECES_MAX in flight, each answered by
 * itself.
 *
 * The fetch's bitmaps serve here for pieces: asked = sent, received = answered. The answer to the
 * piece that makes the blob whole carries its version. One publication at a time: the server would
 * take a second one of the same session as the replacement of the first. Where the server assembles
 * another publisher's blob, this one waits.
 */
#include <string.h>

#include "client/client_parts.h"
#include "base/crc32c.h"

int rp_client_publish(struct rp_client *client, const uint8_t *bytes, uint64_t size,
                      uint64_t *version, uint64_t deadline_ns) {
    uint32_t crc = size <= RP_BLOB_BYTES_MAX ? rp_crc32c(0, bytes, size) : 0;
    return rp_client_publish_summed(client, bytes, size, crc, version, deadline_ns);
}

int rp_client_publish_summed(struct rp_client *client, const uint8_t *bytes, uint64_t size,
                             uint32_t crc, uint64_t *version, uint64_t deadline_ns) {
    if (size == 0) {
        return -RP_BAD_ARGUMENT;
    }
    if (size > RP_BLOB_BYTES_MAX) {
        return -RP_TOO_LARGE;
    }
    int number = rp_client_ticket_new(client, RP_OP_PUBLISH, 0, deadline_ns, 1);
    if (number > 0) {
        struct client_ticket *ticket = rp_client_ticket_at(client, number);
        ticket->of.publish = (struct client_publish){.bytes = bytes,
                                                     .size = size,
                                                     .version_out = version,
                                                     .crc = crc};
    }
    return number;
}

/* Begins again at the next sending, after `wait_ns`. If it still has its id it keeps it: by the id
 * the server knows it as the same publication, so a late answer cannot make two versions of it. */
static void begin_anew(struct rp_client *client, struct client_ticket *ticket, uint64_t wait_ns) {
    rp_client_flights_end(client, &ticket->flights);
    ticket->flight_count = 0;
    ticket->tries = 0;
    ticket->of.publish.begun = 0;
    ticket->of.publish.waits = wait_ns > 0;
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    rp_client_fetch_begin(fetch, fetch->count);
    if (wait_ns > 0) {
        rp_client_sender_remove(client, &ticket->sender);
        rp_client_timer_set(client, &ticket->again, client->now_ns + wait_ns);
    } else {
        rp_client_sender_add(client, &ticket->sender);
    }
}

/* ---- sending ---- */

static int begin(struct rp_client *client, struct client_ticket *ticket) {
    struct client_publish *publish = &ticket->of.publish;
    publish->piece = rp_publish_piece(client->session.mtu);
    uint64_t pieces = (publish->size + publish->piece - 1) / publish->piece;
    if (publish->size > client->session.opened.weights_max) {
        rp_client_ticket_finish(client, ticket, -RP_TOO_LARGE);
        return 0;
    }
    rp_client_fetch_begin(&client->slots[ticket->slot].fetch, (uint32_t)pieces);
    ticket->id = ticket->id != 0 ? ticket->id : ++client->publish_id;
    publish->begun = 1;
    publish->waits = 0;
    return 1;
}

static void send_piece(struct rp_client *client, struct client_ticket *ticket, uint32_t piece) {
    const struct client_publish *publish = &ticket->of.publish;
    uint64_t offset = (uint64_t)piece * publish->piece;
    uint64_t left = publish->size - offset;
    uint32_t size = left < publish->piece ? (uint32_t)left : publish->piece;
    struct rp_publish head = {
        .size = publish->size, .offset = offset, .piece = publish->piece, .crc = publish->crc};
    uint8_t *body = rp_client_out_body(client);
    memcpy(body, &head, sizeof head);
    memcpy(body + sizeof head, publish->bytes + offset, size);
    rp_client_out_seal(client, RP_OP_PUBLISH, 0, ticket->id, (uint32_t)sizeof head + size);
    uint16_t flight =
        rp_client_flight_start(client, OWNER_TICKET, rp_client_ticket_index(client, ticket),
                               &ticket->flights, ticket->tries);
    rp_client_flight_expect(client, flight, piece, 1);
    rp_client_fetch_asked(&client->slots[ticket->slot].fetch, piece, 1);
    ticket->flight_count++;
}

enum client_sending rp_client_publish_send(struct rp_client *client,
                                           struct client_ticket *ticket) {
    uint16_t index = rp_client_ticket_index(client, ticket);
    uint32_t piece;
    if (client->publisher != CLIENT_NONE && client->publisher != index) {
        return SEND_WAIT;
    }
    client->publisher = index;
    if (!ticket->of.publish.begun && !begin(client, ticket)) {
        return SEND_NOTHING;
    }
    if (ticket->flight_count >= CLIENT_PIECES_MAX) {
        return SEND_NOTHING;
    }
    if (rp_client_fetch_next(&client->slots[ticket->slot].fetch, 1, &piece) == 0) {
        return SEND_NOTHING;
    }
    send_piece(client, ticket, piece);
    return SEND_DONE;
}

void rp_client_publish_lost(struct rp_client *client, struct client_ticket *ticket,
                            uint16_t flight) {
    rp_client_fetch_lost(client, ticket, flight);
}

/* ---- answers ---- */

static void restart(struct rp_client *client, struct client_ticket *ticket, int status) {
    if (ticket->of.publish.restarts++ == CLIENT_RESTARTS_MAX) {
        rp_client_ticket_finish(client, ticket, status);
    } else {
        begin_anew(client, ticket, 0);
    }
}

static int piece_answered(struct rp_client *client, struct client_ticket *ticket,
                          const struct rp_view *view) {
    const struct client_publish *publish = &ticket->of.publish;
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    struct rp_published published;
    if (view->message->size != sizeof(struct rp_answer) + sizeof published) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&published, view->body + sizeof(struct rp_answer), sizeof published);
    if (published.offset >= publish->size || published.offset % publish->piece != 0) {
        return -RP_COUNT_drop_reserved;
    }
    if (published.version != 0) {
        if (publish->version_out != NULL) {
            *publish->version_out = published.version;
        }
        rp_client_ticket_finish(client, ticket, RP_OK);
        return CLIENT_TAKEN;
    }
    uint32_t piece = (uint32_t)(published.offset / publish->piece);
    if (rp_client_fetch_has(fetch, piece)) {
        return -RP_COUNT_drop_unsolicited;
    }
    rp_client_fetch_arrived(client, ticket, piece);
    rp_client_sender_add(client, &ticket->sender);
    if (fetch->received_count
        == fetch->count) { /* all answered, none with a version: it was replaced */
        restart(client, ticket, -RP_BUSY);
    }
    return CLIENT_TAKEN;
}

int rp_client_publish_answer(struct rp_client *client, const struct rp_view *view) {
    uint16_t status = rp_client_answer_status(view);
    if (client->publisher == CLIENT_NONE || !client->tickets[client->publisher].of.publish.begun
        || client->tickets[client->publisher].id != view->message->id) {
        return -RP_COUNT_drop_unsolicited;
    }
    struct client_ticket *ticket = &client->tickets[client->publisher];
    switch (status) {
    case RP_OK: return piece_answered(client, ticket, view);
    case RP_BUSY: begin_anew(client, ticket, CLIENT_BUSY_NS); return CLIENT_TAKEN;
    case RP_BAD_HASH: /* the server dropped it: its other answers for these pieces are void */
        ticket->id = 0;
        restart(client, ticket, -RP_BAD_HASH);
        return CLIENT_TAKEN;
    default: rp_client_ticket_finish(client, ticket, -(int)status); return CLIENT_TAKEN;
    }
}
