/* Blobs: a table's spec, or weights. The first request names no version (or the one wanted) and
 * its first datagram fixes which it is; the rest is asked for by that version, and the whole is
 * checked against its CRC, which is summed as the bytes come: no turn sums much.
 *
 * Where the version is replaced during the fetch, the fetch begins again with the newest one, a
 * bounded number of times. A version that was asked for by number is not replaced: the fetch ends.
 */
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"
#include "base/crc32c.h"

int rp_client_blob(struct rp_client *client, uint16_t kind, uint16_t table, uint64_t wanted,
                   uint8_t *target, uint64_t capacity, uint64_t *size, uint64_t *version,
                   uint64_t deadline_ns) {
    if ((kind != RP_BLOB_SPEC && kind != RP_BLOB_WEIGHTS)
        || (kind == RP_BLOB_SPEC && wanted != 0)) {
        return -RP_BAD_ARGUMENT;
    }
    table = kind == RP_BLOB_SPEC ? table : 0;
    int number = rp_client_ticket_new(client, RP_OP_BLOB, table, deadline_ns, 1);
    if (number > 0) {
        struct client_ticket *ticket = rp_client_ticket_at(client, number);
        ticket->of.blob = (struct client_blob){.target = target,
                                               .capacity = capacity,
                                               .size_out = size,
                                               .version_out = version,
                                               .wanted = wanted,
                                               .kind = kind};
    }
    return number;
}

/* ---- sending ---- */

static void send_range(struct rp_client *client, struct client_ticket *ticket, uint64_t version,
                       uint32_t first, uint32_t count) {
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    uint16_t index = rp_client_ticket_index(client, ticket);
    struct rp_blob_request request = {
        .version = version, .first = first, .count = count, .kind = ticket->of.blob.kind};
    memcpy(rp_client_out_body(client), &request, sizeof request);
    rp_client_out_seal(client, RP_OP_BLOB, ticket->table, ticket->id, sizeof request);
    uint16_t flight =
        rp_client_flight_start(client, OWNER_TICKET, index, &ticket->flights, ticket->tries);
    rp_client_flight_expect(client, flight, first, count);
    rp_client_fetch_asked(fetch, first, count);
    ticket->flight_count++;
}

static enum client_sending send_first(struct rp_client *client, struct client_ticket *ticket) {
    uint32_t budget = rp_client_credit_expect(client);
    uint32_t train = client->session.opened.train_max;
    if (ticket->flights != CLIENT_NONE) {
        return SEND_NOTHING;
    }
    if (budget == 0) {
        return SEND_WAIT;
    }
    budget = rp_min(budget, train);
    rp_client_fetch_begin(&client->slots[ticket->slot].fetch, budget);
    if (ticket->id == 0) {
        ticket->id = rp_client_id(client, rp_client_ticket_index(client, ticket));
    }
    send_range(client, ticket, ticket->of.blob.wanted, 0, budget);
    return SEND_NOTHING;
}

enum client_sending rp_client_blob_send(struct rp_client *client, struct client_ticket *ticket) {
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    uint32_t chunk = client->credit.pull_window / 4;
    uint32_t train = client->session.opened.train_max;
    uint32_t first;
    if (!ticket->of.blob.known) {
        return send_first(client, ticket);
    }
    chunk = rp_min(chunk, train);
    chunk = rp_client_fetch_next(fetch, chunk > 0 ? chunk : 1, &first);
    if (chunk == 0) {
        return SEND_NOTHING;
    }
    if (rp_client_credit_expect(client) < chunk) {
        return SEND_WAIT;
    }
    send_range(client, ticket, ticket->of.blob.version, first, chunk);
    return SEND_DONE;
}

/* ---- answers ---- */

static void restart(struct rp_client *client, struct client_ticket *ticket, int status) {
    struct client_blob *blob = &ticket->of.blob;
    if (blob->wanted != 0 || blob->restarts++ == CLIENT_RESTARTS_MAX) {
        rp_client_ticket_finish(client, ticket, status);
        return;
    }
    rp_client_flights_end(client, &ticket->flights);
    ticket->flight_count = 0;
    ticket->tries = 0;
    ticket->id = 0;
    blob->known = 0;
    rp_client_sender_add(client, &ticket->sender);
}

static uint64_t datagrams_of(uint64_t size, uint32_t payload) {
    return size > 0 ? (size + payload - 1) / payload : 1;
}

static int head_valid(const struct rp_client *client, const struct client_blob *blob,
                      const struct rp_blob_datagram *head) {
    if (head->payload != rp_blob_payload(client->session.mtu) || head->size > RP_BLOB_BYTES_MAX
        || head->datagram_count != datagrams_of(head->size, head->payload)
        || head->datagram >= head->datagram_count) {
        return 0;
    }
    if (blob->known) {
        return head->version == blob->version && head->size == blob->size
               && head->crc == blob->crc;
    }
    return blob->wanted == 0 || head->version == blob->wanted;
}

/* The first datagram says what it is part of. The flight under way may have asked for more
 * datagrams than there are. */
static int begin(struct rp_client *client, struct client_ticket *ticket,
                 const struct rp_blob_datagram *head) {
    struct client_blob *blob = &ticket->of.blob;
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    *blob->size_out = head->size;
    if (head->size > blob->capacity) {
        rp_client_ticket_finish(client, ticket, -RP_TOO_LARGE);
        return 0;
    }
    blob->known = 1;
    blob->version = head->version;
    blob->size = head->size;
    blob->crc = head->crc;
    blob->summed = 0;
    blob->sum = 0;
    rp_client_fetch_begin(fetch, head->datagram_count);
    if (ticket->flights != CLIENT_NONE) {
        struct client_flight *flight = &client->flights[ticket->flights];
        uint32_t count = rp_min(flight->count, head->datagram_count);
        client->credit.expected -= flight->left - count;
        flight->count = count;
        flight->left = count;
        rp_client_fetch_asked(fetch, 0, count);
    }
    rp_client_sender_add(client, &ticket->sender);
    return 1;
}

/* All bytes before `through` have come. */
static void sum_to(struct client_blob *blob, uint64_t through) {
    through = rp_min(through, blob->size);
    blob->sum = rp_crc32c(blob->sum, blob->target + blob->summed, through - blob->summed);
    blob->summed = through;
}

static void whole(struct rp_client *client, struct client_ticket *ticket) {
    struct client_blob *blob = &ticket->of.blob;
    sum_to(blob, blob->size);
    if (blob->sum != blob->crc) {
        restart(client, ticket, -RP_BAD_HASH);
        return;
    }
    if (blob->version_out != NULL) {
        *blob->version_out = blob->version;
    }
    rp_client_ticket_finish(client, ticket, RP_OK);
}

static int landed(struct rp_client *client, struct client_ticket *ticket,
                  const struct rp_view *view) {
    struct client_blob *blob = &ticket->of.blob;
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    uint32_t before = sizeof(struct rp_answer) + sizeof(struct rp_blob_datagram);
    struct rp_blob_datagram head;
    if (view->message->size < before) {
        return -RP_COUNT_drop_size;
    }
    memcpy(&head, view->body + sizeof(struct rp_answer), sizeof head);
    if (!head_valid(client, blob, &head)) {
        return -RP_COUNT_drop_reserved;
    }
    uint64_t offset = (uint64_t)head.datagram * head.payload;
    uint64_t size = rp_min(head.size - offset, head.payload);
    if (view->message->size - before != ((size + 7) & ~7ull)) {
        return -RP_COUNT_drop_size;
    }
    if (!blob->known && !begin(client, ticket, &head)) {
        return CLIENT_TAKEN;
    }
    if (rp_client_fetch_has(fetch, head.datagram)) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (size > 0) {
        memcpy(blob->target + offset, view->body + before, size);
    }
    rp_client_fetch_arrived(client, ticket, head.datagram);
    sum_to(blob, (uint64_t)fetch->base * head.payload);
    if (fetch->received_count == fetch->count) {
        whole(client, ticket);
    }
    return CLIENT_TAKEN;
}

int rp_client_blob_answer(struct rp_client *client, const struct rp_view *view) {
    uint16_t status = rp_client_answer_status(view);
    struct client_ticket *ticket = rp_client_ticket_find(client, RP_OP_BLOB, view->message->id);
    if (ticket == NULL) {
        return -RP_COUNT_drop_unsolicited;
    }
    if (status == RP_OK) {
        return landed(client, ticket, view);
    }
    if (status == RP_GONE) {
        restart(client, ticket, -RP_GONE);
    } else {
        rp_client_ticket_finish(client, ticket, -(int)status);
    }
    return CLIENT_TAKEN;
}
