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

#include "base/crc32c.h"
#include "base/minmax.h"
#include "server/serve.h"

static uint64_t pieces_of(uint64_t size, uint64_t piece) {
    return (size + piece - 1) / piece;
}

static uint8_t *slot_bytes(const struct rp_server *server, uint64_t slot) {
    return server->weights_bytes + slot * server->weights_stride;
}

/* Does something whose last progress was then, and which ends then in any case, still go on? */
static int goes_on(const struct rp_server *server, uint64_t since_ns, uint64_t end_ns) {
    return server->now_ns - since_ns < RP_WEIGHTS_REST_MS * 1000000ull && server->now_ns < end_ns;
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
    uint64_t bytes = rp_min(left, publish->piece);
    return rp_serve_exact(&call->view, sizeof *publish + bytes);
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
        if (server->sessions[i].connection != 0 && line->pull_version == version
            && goes_on(server, line->pull_ns, line->pull_end_ns)) {
            return 1;
        }
    }
    return 0;
}

/* Must the version be kept still? Its time begins when it first stands in a publisher's way. All
 * sessions that pull it share that time: new sessions do not prolong it. */
static int pinned(struct rp_server *server, const struct rp_weights_slot *slot) {
    if (slot->version == 0 || !being_pulled(server, slot->version)) {
        return 0;
    }
    if (server->weights_pin != slot->version) {
        server->weights_pin = slot->version;
        server->weights_pin_end_ns = server->now_ns + rp_weights_hold_ns(slot->size);
    }
    return server->now_ns < server->weights_pin_end_ns;
}

/* A publisher's time begins again where no other publisher waits for its end, or where it takes
 * over from another one whose time is over. So a publisher that begins one publication after the
 * other and finishes none holds the others up once only. */
static void begin_time(struct rp_server *server, uint64_t session, uint64_t size) {
    int over = server->weights_owner != session
               && !goes_on(server, server->weights_piece_ns, server->weights_end_ns);
    if (over || !server->weights_wanted) {
        server->weights_owner = session;
        server->weights_wanted = 0;
        server->weights_end_ns = server->now_ns + rp_weights_hold_ns(size);
    }
}

/* Room on the disk for this much of a slot. Room that this process took stays taken, and is not
 * asked for again: the system would walk all of its pages at every first piece of a publication.
 * Where room is refused nothing of it is kept, and as much is not asked for again for a moment: a
 * refusal may take the disk's last room for as long as it lasts. */
static int take_room(struct rp_server *server, uint64_t slot, uint64_t size) {
    uint64_t had = server->weights_room[slot];
    uint64_t offset = (uint64_t)(slot_bytes(server, slot) - (uint8_t *)server->region);
    if (server->allocate == NULL || size <= had) {
        return 1;
    }
    if (server->now_ns < server->weights_refused_ns && size - had >= server->weights_refused) {
        return 0;
    }
    if (server->allocate(server->allocator, offset + had, size - had)) {
        server->weights_room[slot] = size;
        return 1;
    }
    server->weights_refused = size - had;
    server->weights_refused_ns = server->now_ns + RP_WEIGHTS_REFUSED_MS * 1000000ull;
    return 0;
}

void rp_server_give_up_assembly(struct rp_server *server) {
    rp_intent_set(&server->intent, &server->weights->session, 0);
    rp_intent_commit(&server->intent);
    rp_server_count(server, RP_COUNT_weights_dropped);
}

/* What another process was assembling goes on in room of this one's: the file may have been moved
 * to another disk since. Its room is there already, nearly always; else it is given up. */
void rp_server_back_assembly(struct rp_server *server) {
    const struct rp_weights *weights = server->weights;
    if (weights->session != 0 && !take_room(server, weights->into, weights->size)) {
        rp_server_give_up_assembly(server);
    }
}

/* In three steps, so that a kill between them leaves no half-made owner:
 *   1. there is no publication any more, so nothing reads the bits;
 *   2. the slot has no version (in one intent with 1), and the bits are cleared;
 *   3. there is the new publication. */
static int begin(struct rp_server *server, uint64_t session, uint64_t id,
                 const struct rp_publish *publish) {
    struct rp_weights *weights = server->weights;
    struct rp_intent *intent = &server->intent;
    uint64_t slot = oldest_slot(weights);
    if (pinned(server, &weights->slot[slot])) {
        return -RP_BUSY;
    }
    uint64_t pieces = pieces_of(publish->size, publish->piece);
    if (!take_room(server, slot, publish->size)) {
        return -RP_DISK_FULL; /* said now, and no fault in the middle of it */
    }
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
    begin_time(server, session, publish->size);
    return 0; /* take_assembly adds the id and commits */
}

/* ---- pieces ---- */

static int same_blob(const struct rp_weights *weights, const struct rp_publish *publish) {
    return weights->size == publish->size && weights->piece == publish->piece
           && weights->crc == publish->crc;
}

static int forgotten(const struct rp_call *call) {
    rp_server_count(call->server, RP_COUNT_publishes_forgotten);
    return -RP_FORGOTTEN;
}

static int busy(const struct rp_server *server, uint64_t session) {
    uint64_t owner = server->weights->session;
    return owner != 0 && owner != session
           && goes_on(server, server->weights_piece_ns, server->weights_end_ns);
}

/* Does this piece ask for another publication than the one that is being assembled? */
static int begins(const struct rp_call *call) {
    const struct rp_weights *weights = call->server->weights;
    return weights->session != rp_serve_session(call)->connection
           || weights->id != call->view.message->id;
}

/* To begin one all sessions are looked at, and the bits of its pieces cleared: in items drawn. */
static uint64_t begin_work(const struct rp_server *server, const struct rp_publish *publish) {
    enum { SESSIONS = 32, PIECES = 1 << 14 };
    return 1 + server->limits.sessions_max / SESSIONS
           + pieces_of(publish->size, publish->piece) / PIECES;
}

/* Makes the publication the one being assembled, where it may be. 0 or -status. */
static int take_assembly(struct rp_call *call, const struct rp_publish *publish) {
    struct rp_server *server = call->server;
    struct rp_session *session = rp_serve_session(call);
    const struct rp_weights *weights = server->weights;
    uint64_t id = call->view.message->id;
    if (!begins(call)) {
        return same_blob(weights, publish) ? 0 : -RP_BAD_ARGUMENT;
    }
    if (id < session->publish.newest) { /* and not done: a newer one took its place */
        return forgotten(call);
    }
    if (busy(server, session->connection)) {
        server->weights_wanted = 1;
        return -RP_BUSY;
    }
    rp_share_take(server, call->session, begin_work(server, publish));
    int status = begin(server, session->connection, id, publish);
    if (status == 0) {
        rp_once_take(&session->publish, &server->intent, id, 0);
        rp_intent_commit(&server->intent);
    }
    return status;
}

/* Adds to the intent: the assembly is the newest version, and its publication done. */
static void finish(struct rp_server *server, struct rp_session *session) {
    struct rp_weights *weights = server->weights;
    struct rp_intent *intent = &server->intent;
    struct rp_weights_slot *slot = &weights->slot[weights->into];
    uint64_t version = weights->newest + 1;
    rp_intent_set(intent, &slot->version, version);
    rp_intent_set(intent, &slot->size, weights->size);
    rp_intent_set(intent, &slot->crc, weights->crc);
    rp_intent_set(intent, &session->published[weights->id % RP_PUBLISHED_KEPT], version);
    rp_once_take(&session->publish, intent, weights->id, 1);
    rp_intent_set(intent, &weights->newest, version);
    server->weights_wanted = 0;
    rp_server_count(server, RP_COUNT_weights_published);
}

/* Stores a piece that is not there yet. Returns the version, 0 while pieces are missing, or
 * -RP_BAD_HASH. */
static int64_t store(struct rp_call *call, const struct rp_publish *publish) {
    struct rp_server *server = call->server;
    struct rp_weights *weights = server->weights;
    struct rp_intent *intent = &server->intent;
    uint64_t piece = publish->offset / publish->piece;
    uint64_t *word = &server->weights_bitmap[piece / 64];
    uint64_t bit = 1ull << (piece % 64);
    if (*word & bit) {
        return 0;
    }
    server->weights_piece_ns = server->now_ns;
    uint64_t left = publish->size - publish->offset;
    uint64_t size = rp_min(left, publish->piece);
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
        finish(server, rp_serve_session(call));
    }
    rp_intent_set(intent, &weights->session, 0);
    rp_intent_commit(intent);
    return good ? (int64_t)weights->newest : -RP_BAD_HASH;
}

/* A publication that is done is answered from the session's record, however late a piece comes: its
 * bytes never become the newest version a second time. */
static int64_t take_piece(struct rp_call *call, const struct rp_publish *publish) {
    const struct rp_session *session = rp_serve_session(call);
    uint64_t id = call->view.message->id;
    enum rp_once_state state = rp_once_look(&session->publish, id);
    if (state == RP_ONCE_DONE && session->publish.newest - id < RP_PUBLISHED_KEPT) {
        return (int64_t)session->published[id % RP_PUBLISHED_KEPT];
    }
    if (state == RP_ONCE_DONE || state == RP_ONCE_OLD) {
        return forgotten(call);
    }
    int status = take_assembly(call, publish);
    return status < 0 ? status : store(call, publish);
}

int rp_serve_publish(struct rp_call *call) {
    const struct rp_publish *publish = (const void *)call->view.body;
    int status = check(call, publish);
    if (status < 0) {
        return status;
    }
    if (begins(call) && !rp_share_allows(call->server, call->session, 0)) {
        return rp_serve_drop(call, RP_COUNT_drop_share);
    }
    int64_t version = take_piece(call, publish);
    if (version < 0) {
        return (int)version;
    }
    struct rp_published published = {.offset = publish->offset, .version = (uint64_t)version};
    memcpy(rp_serve_room(call), &published, sizeof published);
    return sizeof published;
}
