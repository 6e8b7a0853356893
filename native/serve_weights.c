/* PUBLISH: pieces of a weights version, assembled in a slot nothing names, numbered when whole.
 *
 * Three slots: the two newest versions are always kept; the third is the oldest version until an
 * assembly takes it. A piece's bytes are copied first, its bit, the count of missing pieces and the
 * sum of their checksums change in one intent; the last one's intent also makes the version
 * visible. The checksum of a whole is a sum over its pieces in any order (rp_crc32c_share), so no
 * turn of the server hashes more than one piece.
 *
 *     session != 0  =>  slot[into].version == 0 and missing == clear bits among the assembly's
 *     pieces > 0 and sum == the exclusive-or of the shares of the pieces that are there
 */
#include <string.h>

#include "crc32c.h"
#include "serve.h"

static uint64_t pieces_of(uint64_t size, uint64_t piece) {
    return (size + piece - 1) / piece;
}

static uint8_t *slot_bytes(const struct rp_server *server, uint64_t slot) {
    return server->weights_bytes + slot * server->weights_stride;
}

static int rests(const struct rp_server *server, uint64_t since_ns, uint64_t rest_ms) {
    return since_ns != 0 && server->now_ns - since_ns < rest_ms * 1000000;
}

/* ---- checks ---- */

static int check(const struct rp_call *call, const struct rp_publish *publish) {
    const struct rp_server *server = call->server;
    uint32_t piece_max = rp_publish_piece(rp_session_mtu(rp_serve_session(call)));
    if (publish->size > server->limits.weights_max) {
        return -RP_TOO_LARGE;
    }
    if (publish->piece == 0 || publish->piece > piece_max || publish->piece % 8 != 0
        || publish->offset >= publish->size || publish->offset % publish->piece != 0
        || call->view.message->id == 0) {
        return -RP_BAD_ARGUMENT;
    }
    if (pieces_of(publish->size, publish->piece) > rp_weights_pieces_max(&server->limits)) {
        return -RP_BAD_ARGUMENT;
    }
    uint64_t left = publish->size - publish->offset;
    uint64_t bytes = left < publish->piece ? left : publish->piece;
    return rp_serve_exact(&call->view, sizeof *publish + bytes);
}

/* The version a completed publication got; 0 = not one of the last few. */
static uint64_t published_version(const struct rp_weights *weights, uint64_t session, uint64_t id) {
    for (uint32_t i = 0; i < RP_PUBLISHED_KEPT; i++) {
        const struct rp_published_words *words = &weights->published[i];
        if (words->session == session && words->id == id) {
            return words->version;
        }
    }
    return 0;
}

/* ---- an assembly's beginning ---- */

static uint64_t oldest_slot(const struct rp_weights *weights) {
    uint64_t oldest = 0;
    for (uint64_t i = 1; i < RP_WEIGHTS_SLOTS; i++) {
        if (weights->slot[i].version < weights->slot[oldest].version) {
            oldest = i;
        }
    }
    return oldest;
}

/* Is some session in the middle of pulling this version? */
static int being_pulled(const struct rp_server *server, uint64_t version) {
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        const struct rp_line *line = &server->lines[i];
        if (line->pull_version == version && rests(server, line->pull_ns, RP_PIN_MS)) {
            return 1;
        }
    }
    return 0;
}

/* Nobody's first, then the slot's version gone, then its bits cleared (nothing reads them), then
 * somebody's. */
static int begin(struct rp_server *server, uint64_t session, uint64_t id,
                 const struct rp_publish *publish) {
    struct rp_weights *weights = server->weights;
    struct rp_intent *intent = &server->intent;
    uint64_t slot = oldest_slot(weights);
    if (weights->slot[slot].version != 0 && being_pulled(server, weights->slot[slot].version)) {
        return -RP_BUSY;
    }
    uint64_t pieces = pieces_of(publish->size, publish->piece);
    rp_intent_set(intent, &weights->session, 0);
    rp_intent_set(intent, &weights->slot[slot].version, 0);
    rp_intent_commit(intent);
    rp_region_clear(server->weights_bitmap, (pieces + 63) / 64 * 8);
    rp_intent_set(intent, &weights->session, session);
    rp_intent_set(intent, &weights->id, id);
    rp_intent_set(intent, &weights->into, slot);
    rp_intent_set(intent, &weights->size, publish->size);
    rp_intent_set(intent, &weights->piece, publish->piece);
    rp_intent_set(intent, &weights->crc, publish->crc);
    rp_intent_set(intent, &weights->missing, pieces);
    rp_intent_set(intent, &weights->sum, 0);
    return 0; /* take_assembly adds the id and commits */
}

/* ---- pieces ---- */

static int same_blob(const struct rp_weights *weights, const struct rp_publish *publish) {
    return weights->size == publish->size && weights->piece == publish->piece
           && weights->crc == publish->crc;
}

static int busy(const struct rp_server *server, uint64_t session) {
    uint64_t owner = server->weights->session;
    return owner != 0 && owner != session
           && rests(server, server->weights_piece_ns, RP_ASSEMBLY_MS);
}

/* Makes the publication the one being assembled, where it may be. 0 or -status. */
static int take_assembly(struct rp_call *call, const struct rp_publish *publish) {
    struct rp_server *server = call->server;
    struct rp_session *session = rp_serve_session(call);
    const struct rp_weights *weights = server->weights;
    uint64_t id = call->view.message->id;
    if (weights->session == session->connection && weights->id == id) {
        return same_blob(weights, publish) ? 0 : -RP_BAD_ARGUMENT;
    }
    if (id < session->publish_last) {
        return -RP_FORGOTTEN;
    }
    if (busy(server, session->connection)) {
        return -RP_BUSY;
    }
    int status = begin(server, session->connection, id, publish);
    if (status == 0) {
        rp_intent_set(&server->intent, &session->publish_last, id);
        rp_intent_commit(&server->intent);
    }
    return status;
}

static void finish(struct rp_server *server) {
    struct rp_weights *weights = server->weights;
    struct rp_intent *intent = &server->intent;
    struct rp_weights_slot *slot = &weights->slot[weights->into];
    uint64_t version = weights->newest + 1;
    struct rp_published_words *words = &weights->published[version % RP_PUBLISHED_KEPT];
    rp_intent_set(intent, &slot->version, version);
    rp_intent_set(intent, &slot->size, weights->size);
    rp_intent_set(intent, &slot->crc, weights->crc);
    rp_intent_set(intent, &words->session, weights->session);
    rp_intent_set(intent, &words->id, weights->id);
    rp_intent_set(intent, &words->version, version);
    rp_intent_set(intent, &weights->newest, version);
    rp_server_count(server, RP_COUNT_weights_published);
}

/* Stores a piece that is not there yet. Returns the version, 0 while pieces are missing, or
 * -RP_BAD_HASH. */
static int64_t store(struct rp_server *server, const struct rp_publish *publish) {
    struct rp_weights *weights = server->weights;
    struct rp_intent *intent = &server->intent;
    uint64_t piece = publish->offset / publish->piece;
    uint64_t *word = &server->weights_bitmap[piece / 64];
    uint64_t bit = 1ull << (piece % 64);
    server->weights_piece_ns = server->now_ns;
    if (*word & bit) {
        return 0;
    }
    uint64_t left = publish->size - publish->offset;
    uint64_t size = left < publish->piece ? left : publish->piece;
    uint8_t *bytes = slot_bytes(server, weights->into) + publish->offset;
    rp_region_copy(bytes, publish + 1, size);
    uint64_t sum = weights->sum ^ rp_crc32c_share(rp_crc32c(0, bytes, size), left - size);
    rp_server_count(server, RP_COUNT_weights_pieces);
    if (weights->missing > 1) {
        rp_intent_set(intent, word, *word | bit);
        rp_intent_set(intent, &weights->missing, weights->missing - 1);
        rp_intent_set(intent, &weights->sum, sum);
        rp_intent_commit(intent);
        return 0;
    }
    int good = sum == weights->crc;
    if (good) {
        finish(server);
    }
    rp_intent_set(intent, &weights->session, 0);
    rp_intent_commit(intent);
    return good ? (int64_t)weights->newest : -RP_BAD_HASH;
}

int rp_serve_publish(struct rp_call *call) {
    const struct rp_publish *publish = (const void *)call->view.body;
    struct rp_server *server = call->server;
    int status = check(call, publish);
    if (status < 0) {
        return status;
    }
    uint64_t session = rp_serve_session(call)->connection;
    uint64_t version = published_version(server->weights, session, call->view.message->id);
    if (version == 0) {
        status = take_assembly(call, publish);
        int64_t stored = status < 0 ? status : store(server, publish);
        if (stored < 0) {
            return (int)stored;
        }
        version = (uint64_t)stored;
    }
    struct rp_published published = {.offset = publish->offset, .version = version};
    memcpy(rp_serve_room(call), &published, sizeof published);
    return sizeof published;
}
