/* Many datagrams of one thing: which have come, and which to ask for next. Batches and blobs are
 * fetched so.
 *
 * Two bitmaps over the datagrams: received, and asked (received, or part of a flight). They are
 * rings that move on with the first datagram that has not come, so that a thing may be of any
 * number of datagrams; nothing further ahead than a ring is long is asked for, or taken. A flight
 * covers a range and counts down; when it is whole, it ends. It is lost when its timer fires, or
 * when a flight sent after it has become whole first: a server answers in order, and drops a pull
 * that finds no room there. The missing datagrams of a lost range lose their asked bits and are
 * asked for again.
 *
 *     received <= asked (bitwise)
 *     every datagram that was asked for, but not received, lies in exactly one flight
 *     no datagram below cursor is unasked, and all below base were received; base <= cursor
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

static uint32_t word_of(uint32_t i) {
    return i % CLIENT_AHEAD_MAX / 64;
}

static int bit(const uint64_t *words, uint32_t i) {
    return (int)(words[word_of(i)] >> (i % 64) & 1);
}

static void set_bit(uint64_t *words, uint32_t i) {
    words[word_of(i)] |= 1ull << (i % 64);
}

/* Behind the last datagram that may be asked for now. */
static uint32_t end_of(const struct client_fetch *fetch) {
    return fetch->count - fetch->base > CLIENT_AHEAD_MAX ? fetch->base + CLIENT_AHEAD_MAX
                                                         : fetch->count;
}

void rp_client_fetch_begin(struct client_fetch *fetch, uint32_t count) {
    uint32_t words = (rp_min(count, CLIENT_AHEAD_MAX) + 63) / 64;
    memset(fetch->received, 0, 8ull * words);
    memset(fetch->asked, 0, 8ull * words);
    fetch->base = 0;
    fetch->count = count;
    fetch->received_count = 0;
    fetch->cursor = 0;
}

uint32_t rp_client_fetch_next(struct client_fetch *fetch, uint32_t most, uint32_t *first) {
    uint32_t at = fetch->cursor, end = end_of(fetch);
    while (at < end && bit(fetch->asked, at)) {
        at += fetch->asked[word_of(at)] == UINT64_MAX ? 64 - at % 64 : 1;
    }
    at = rp_min(at, end);
    fetch->cursor = at;
    *first = at;
    uint32_t count = 0;
    while (count < most && count < end - at && !bit(fetch->asked, at + count)) {
        count++;
    }
    return count;
}

void rp_client_fetch_asked(struct client_fetch *fetch, uint32_t first, uint32_t count) {
    assert(first >= fetch->base && count <= end_of(fetch) - first);
    for (uint32_t i = first; i < first + count; i++) {
        set_bit(fetch->asked, i);
    }
}

int rp_client_fetch_has(const struct client_fetch *fetch, uint32_t datagram) {
    return datagram < fetch->base || datagram >= end_of(fetch) || bit(fetch->received, datagram);
}

void rp_client_fetch_lost(struct rp_client *client, struct client_ticket *ticket,
                          uint16_t index) {
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    const struct client_flight *flight = &client->flights[index];
    for (uint32_t i = flight->first; i < flight->first + flight->count && i < fetch->count; i++) {
        if (!rp_client_fetch_has(fetch, i)) {
            fetch->asked[word_of(i)] &= ~(1ull << (i % 64));
        }
    }
    fetch->cursor = rp_min(fetch->cursor, flight->first);
    fetch->cursor = rp_max(fetch->cursor, fetch->base);
    ticket->tries += ticket->tries < 32;
    rp_client_flight_end(client, index, &ticket->flights);
    ticket->flight_count--;
}

/* The flight is whole: those sent before it that still miss something were lost. The list is
 * newest first. */
static void overtake(struct rp_client *client, struct client_ticket *ticket, uint16_t index) {
    uint16_t older = client->flights[index].next;
    while (older != CLIENT_NONE) {
        uint16_t next = client->flights[older].next;
        rp_client_credit_lost(client, &client->flights[older]);
        rp_client_fetch_lost(client, ticket, older);
        rp_client_sender_add(client, &ticket->sender);
        older = next;
    }
}

/* Moves the rings on over what has come; then there may be more to ask for. */
static void pass(struct rp_client *client, struct client_ticket *ticket) {
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    while (fetch->count - fetch->base >= 64
           && fetch->received[word_of(fetch->base)] == UINT64_MAX) {
        fetch->received[word_of(fetch->base)] = 0;
        fetch->asked[word_of(fetch->base)] = 0;
        fetch->base += 64;
        fetch->cursor = rp_max(fetch->cursor, fetch->base);
        if (fetch->count > CLIENT_AHEAD_MAX) {
            rp_client_sender_add(client, &ticket->sender);
        }
    }
}

void rp_client_fetch_arrived(struct rp_client *client, struct client_ticket *ticket,
                             uint32_t datagram) {
    struct client_fetch *fetch = &client->slots[ticket->slot].fetch;
    int was_asked = bit(fetch->asked, datagram);
    set_bit(fetch->received, datagram);
    set_bit(fetch->asked, datagram);
    fetch->received_count++;
    ticket->tries = 0;
    pass(client, ticket);
    for (uint16_t i = ticket->flights; was_asked && i != CLIENT_NONE;
         i = client->flights[i].next) {
        struct client_flight *flight = &client->flights[i];
        if (datagram - flight->first >= flight->count) {
            continue;
        }
        flight->left--;
        client->credit.expected--;
        if (flight->left > 0) {
            rp_client_timer_set(client, &flight->timer,
                                client->now_ns + rp_client_credit_timeout(client, 0));
            return;
        }
        if (ticket->op != RP_OP_PUBLISH) { /* its pieces go the other way */
            rp_client_credit_pulled(client, flight->count);
        }
        overtake(client, ticket, i);
        rp_client_flight_end(client, i, &ticket->flights);
        ticket->flight_count--;
        return;
    }
}
