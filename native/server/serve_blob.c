/* BLOB: a table's spec or a weights version as datagrams, straight from where it lies.
 *
 * A weights blob is asked for first as version 0 at datagram 0; the answer says which version
 * that was, and the rest is asked for by that number. A session that has begun to pull a version,
 * and not yet asked for its end, protects the version's slot: nothing is assembled into it. That
 * lasts as long as the session asks for datagrams it has not asked for before, and never longer
 * than rp_weights_hold_ns. Each session protects each version once. All sessions together hold up
 * the publisher that would replace it no longer than that: see serve_weights.c.
 */
#include <string.h>

#include "base/minmax.h"
#include "server/serve.h"

struct blob {
    const uint8_t *bytes;
    uint64_t size;
    uint64_t version;
    uint32_t crc;
    uint32_t goes_away; /* 1: weights, which newer ones replace */
};

static int find_spec(const struct rp_call *call, const struct rp_blob_request *request,
                     struct blob *blob) {
    const struct rp_table *table = rp_serve_table(call);
    uint32_t bytes;
    if (table == NULL) {
        return -RP_UNKNOWN_TABLE;
    }
    if (request->version != 0) {
        return -RP_BAD_ARGUMENT;
    }
    *blob = (struct blob){0};
    blob->bytes = rp_table_spec(table, &bytes, &blob->crc);
    blob->size = bytes;
    return 0;
}

static int find_weights(const struct rp_call *call, const struct rp_blob_request *request,
                        struct blob *blob) {
    struct rp_server *server = call->server;
    const struct rp_weights *weights = server->weights;
    uint64_t version = request->version != 0 ? request->version : weights->newest;
    if (call->view.message->table != 0) {
        return -RP_BAD_RESERVED;
    }
    if (request->version == 0 && request->first != 0) {
        return -RP_BAD_ARGUMENT;
    }
    if (weights->newest == 0) {
        return -RP_NO_WEIGHTS;
    }
    for (uint32_t i = 0; i < RP_WEIGHTS_SLOTS; i++) {
        const struct rp_weights_slot *slot = &weights->slot[i];
        if (slot->version == version) {
            *blob = (struct blob){server->weights_bytes + i * server->weights_stride, slot->size,
                                  version, (uint32_t)slot->crc, 1};
            return 0;
        }
    }
    return -RP_GONE;
}

static void send_datagrams(struct rp_call *call, const struct blob *blob,
                           const struct rp_blob_datagram *shape, uint32_t count) {
    struct rp_blob_datagram head = *shape;
    for (uint32_t i = 0; i < count; i++, head.datagram++) {
        uint64_t start = (uint64_t)head.datagram * head.payload;
        uint64_t left = blob->size - start;
        uint32_t size = left < head.payload ? (uint32_t)left : head.payload;
        uint32_t padded = (size + 7) & ~7u;
        uint8_t *to = rp_serve_room(call);
        memcpy(to, &head, sizeof head);
        if (size > 0) {
            memcpy(to + sizeof head, blob->bytes + start, size);
        }
        memset(to + sizeof head + size, 0, padded - size);
        rp_serve_send(call, (uint32_t)sizeof head + padded);
    }
    call->server->counters[RP_COUNT_blob_datagrams] += count;
    rp_serve_train_sent(call, count);
}

static int check(const struct rp_blob_request *request) {
    if (request->reserved[0] != 0 || request->reserved[1] != 0 || request->reserved[2] != 0) {
        return -RP_BAD_RESERVED;
    }
    return request->count == 0 || request->count > RP_TRAIN_MAX ? -RP_BAD_ARGUMENT : 0;
}

static int find(const struct rp_call *call, const struct rp_blob_request *request,
                struct blob *blob) {
    switch (request->kind) {
    case RP_BLOB_SPEC: return find_spec(call, request, blob);
    case RP_BLOB_WEIGHTS: return find_weights(call, request, blob);
    default: return -RP_BAD_ARGUMENT;
    }
}

/* Keeps the version for the session, which has pulled it up to datagram `next` now. */
static void keep(struct rp_call *call, const struct blob *blob, uint32_t next, uint32_t datagrams) {
    struct rp_line *line = &call->server->lines[call->session];
    uint64_t now_ns = call->server->now_ns;
    if (blob->version > line->pull_version) {
        line->pull_version = blob->version;
        line->pull_next = 0;
        line->pull_end_ns = now_ns + rp_weights_hold_ns(blob->size);
    }
    if (blob->version < line->pull_version || next <= line->pull_next) {
        return;
    }
    line->pull_next = next;
    line->pull_ns = now_ns;
    if (next == datagrams) {
        line->pull_end_ns = now_ns;
    }
}

int rp_serve_blob(struct rp_call *call) {
    const struct rp_blob_request *request = (const void *)call->view.body;
    struct blob blob;
    int status = check(request);
    status = status < 0 ? status : find(call, request, &blob);
    if (status < 0) {
        return status;
    }
    uint32_t payload = rp_blob_payload(rp_session_mtu(rp_serve_session(call)));
    uint32_t datagrams = blob.size > 0 ? (uint32_t)((blob.size + payload - 1) / payload) : 1;
    if (request->first >= datagrams) {
        return -RP_BAD_ARGUMENT;
    }
    uint32_t left = datagrams - request->first;
    uint32_t train = rp_serve_train(call);
    uint32_t count = rp_min(request->count, left);
    count = rp_min(count, train);
    int dropped = rp_serve_lease_train(call, count);
    if (dropped) {
        return dropped;
    }
    if (blob.goes_away) {
        keep(call, &blob, request->first + count, datagrams);
    }
    struct rp_blob_datagram shape = {.version = blob.version, .size = blob.size, .crc = blob.crc,
                                     .datagram = request->first, .datagram_count = datagrams,
                                     .payload = payload};
    send_datagrams(call, &blob, &shape, count);
    return RP_SERVED;
}
