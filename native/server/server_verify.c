/* Is what a dead server left whole? Sessions, their records and the weights' words, against the
 * invariants of session.h and server_state.h, at attach and before any of them is used; the tables
 * are verified by themselves (table_verify.c). The first one that does not hold is a sentence.
 *
 * A publication that is half finished is dropped instead, before the rest is verified.
 *
 * A word that no invariant ties to another cannot be verified: the bytes of an address, the answer
 * to an update, keys and masses in a recorded batch. Weights carry a checksum, which each client
 * that pulls them compares.
 */
#include <stdio.h>

#include "base/crc32c.h"
#include "base/minmax.h"
#include "server/server_state.h"
#include "table/verdict.h"

/* ---- sessions ---- */

static int verify_record(const struct verdict *v, const struct rp_record *record) {
    const struct rp_server *server = v->server;
    uint64_t number = record->table_plan & 0xFFFF;
    uint64_t plan = record->table_plan >> 16;
    HOLDS(number < server->limits.table_count && record->reserved == 0);
    const struct rp_table *table = &server->tables[number];
    HOLDS(plan < rp_table_plan_count(table));
    HOLDS(record->head.count >= 1 && record->head.count <= server->limits.batch_max);
    HOLDS(record->head.item_bytes == rp_table_item_bytes(table, (uint32_t)plan));
    HOLDS(record->head.capacity == rp_table_capacity(table));
    HOLDS(record->head.drawable <= record->head.capacity);
    return 0;
}

static int verify_records(const struct verdict *v, const struct rp_session *session) {
    const struct rp_server *server = v->server;
    for (uint32_t i = 0; i < RP_RECORDS_MAX; i++) {
        uint64_t id = session->record_id[i];
        HOLDS(i < server->limits.records || id == 0);
        HOLDS(id <= session->sample.newest);
        for (uint32_t j = 0; j < i; j++) {
            HOLDS(id == 0 || session->record_id[j] != id);
        }
        int status = id ? verify_record(v, rp_region_record(server, (uint32_t)v->number, i)) : 0;
        if (status) {
            return status;
        }
    }
    return 0;
}

/* Where ids are taken only when they are done, the newest one is done. */
static int verify_once(const struct verdict *v, const struct rp_once *once, int at_once) {
    HOLDS(once->newest > 0 || once->done == 0);
    HOLDS(once->newest >= RP_ONCE_WINDOW || once->done >> once->newest == 0);
    HOLDS(!at_once || once->newest == 0 || once->done & 1);
    return 0;
}

static int verify_session(const struct verdict *v, const struct rp_session *session) {
    uint32_t mtu = rp_session_mtu(session);
    struct rp_peer peer;
    rp_session_peer(session, &peer);
    HOLDS((session->connection & (RP_SESSIONS_MAX - 1)) == v->number);
    HOLDS(session->connection >> RP_SESSION_INDEX_BITS != 0);
    HOLDS(mtu >= RP_MTU_MIN && mtu <= v->server->limits.mtu && mtu % 8 == 0);
    HOLDS(session->idle_ms >= 1 && session->idle_ms <= UINT32_MAX);
    HOLDS(peer.size >= 1 && peer.size <= RP_PEER_BYTES);
    int status = verify_once(v, &session->sample, 1);
    status = status ? status : verify_once(v, &session->update, 1);
    status = status ? status : verify_once(v, &session->publish, 0);
    return status ? status : verify_records(v, session);
}

/* Every writer is a session's that is open, or was being ended, and none has two in one table. */
static int verify_writers(struct verdict *v, uint32_t number) {
    const struct rp_server *server = v->server;
    const struct rp_table *table = &server->tables[number];
    uint32_t count = rp_writer_places(table);
    v->part = "the session of writer";
    for (v->number = 0; v->number < count; v->number++) {
        uint64_t session = rp_writer_session(table, (uint32_t)v->number);
        HOLDS(session == 0 || session == server->region->ending
              || rp_session_find(server, session) != RP_NOBODY);
        HOLDS(session == 0 || rp_writer_find(table, session) == (int)v->number);
    }
    return 0;
}

/* ---- weights ---- */

static int verify_assembly(const struct verdict *v, const struct rp_weights *weights) {
    const struct rp_server *server = v->server;
    uint64_t missing = 0, sum = 0;
    HOLDS(weights->into < RP_WEIGHTS_SLOTS && weights->slot[weights->into].version == 0);
    HOLDS(weights->size > 0 && weights->size <= server->limits.weights_max);
    HOLDS(weights->piece > 0 && weights->piece % 8 == 0);
    const uint8_t *bytes = server->weights_bytes + weights->into * server->weights_stride;
    uint64_t pieces = (weights->size + weights->piece - 1) / weights->piece;
    HOLDS(pieces <= rp_weights_pieces_max(&server->limits));
    for (uint64_t i = 0; i < pieces; i++) {
        uint64_t left = weights->size - i * weights->piece;
        uint64_t size = rp_min(left, weights->piece);
        if (server->weights_bitmap[i / 64] >> (i % 64) & 1) {
            sum ^= rp_crc32c_share(rp_crc32c(0, bytes + i * weights->piece, size), left - size);
        } else {
            missing++;
        }
    }
    HOLDS(missing == weights->missing && missing > 0 && sum == weights->sum);
    HOLDS(rp_session_find(server, weights->session) != RP_NOBODY);
    return 0;
}

static int verify_weights(struct verdict *v) {
    const struct rp_weights *weights = v->server->weights;
    uint64_t newest = 0;
    v->part = "weights";
    for (v->number = 0; v->number < RP_WEIGHTS_SLOTS; v->number++) {
        const struct rp_weights_slot *slot = &weights->slot[v->number];
        HOLDS(slot->version == 0 || slot->size <= v->server->limits.weights_max);
        HOLDS(slot->version == 0 || slot->crc <= UINT32_MAX);
        newest = rp_max(slot->version, newest);
        for (uint32_t j = 0; j < v->number; j++) {
            HOLDS(slot->version == 0 || slot->version != weights->slot[j].version);
        }
    }
    HOLDS(newest == weights->newest);
    return weights->session != 0 ? verify_assembly(v, weights) : 0;
}

/* It cannot be read yet, and its publisher sends it again: no reason to lose the rest. */
void rp_server_drop_assembly(struct rp_server *server) {
    char error[256];
    struct verdict verdict = {.server = server, .part = "weights", .error = error};
    if (server->weights->session != 0 && verify_assembly(&verdict, server->weights) < 0) {
        rp_server_give_up_assembly(server);
    }
}

int rp_server_verify(const struct rp_server *server, char error[256]) {
    struct verdict verdict = {.server = server, .part = "session", .error = error};
    struct verdict *v = &verdict;
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < server->limits.sessions_max; i++) {
        v->number = i;
        status = server->sessions[i].connection ? verify_session(v, &server->sessions[i]) : 0;
    }
    for (uint32_t i = 0; status == 0 && i < server->limits.table_count; i++) {
        status = verify_writers(v, i);
    }
    return status ? status : verify_weights(v);
}

/* ---- steps ---- */

int rp_server_verify_steps(const struct rp_server *server, char error[256]) {
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        struct rp_damage damage = {0};
        rp_table_verify_steps(&server->tables[i], 0, UINT32_MAX, &damage);
        if (damage.damaged > 0) {
            snprintf(error, 256,
                     "the region is damaged: table %.31s: %llu of %llu steps are not the bytes "
                     "that were stored, the first has key %llu; start with a new region, or serve "
                     "it as it is without verify",
                     server->names[i], (unsigned long long)damage.damaged,
                     (unsigned long long)damage.steps, (unsigned long long)damage.key);
            return -RP_BAD_REGION;
        }
    }
    return 0;
}
