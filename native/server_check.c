/* Every invariant of the server, asserted in the words of the headers: for tests, the simulator
 * and fuzzers. */
#include <assert.h>

#include "crc32c.h"
#include "server_state.h"

static void check_records(const struct rp_server *server, uint32_t index) {
    const struct rp_session *session = &server->sessions[index];
    uint32_t places = server->limits.records + 1;
    assert(session->record_id[session->sample_drawn % places] == 0);
    for (uint32_t i = 0; i <= RP_RECORDS_MAX; i++) {
        uint64_t id = session->record_id[i];
        assert(i < places || id == 0);
        if (id == 0) {
            continue;
        }
        const struct rp_record *record = rp_region_record(server, index, i);
        assert(id <= session->sample.newest);
        assert((record->place & 0xFFFF) < server->limits.table_count && record->reserved == 0);
        assert(record->head.count >= 1 && record->head.count <= server->limits.batch_max);
        assert(record->head.item_bytes > 0 && record->head.item_bytes % 8 == 0);
        for (uint32_t j = 0; j < i; j++) {
            assert(session->record_id[j] != id);
        }
    }
}

/* Where ids are taken only when they are done, the newest one is done. */
static void check_once(const struct rp_once *once, int at_once) {
    assert(once->newest > 0 || once->done == 0);
    assert(!at_once || once->newest == 0 || once->done & 1);
}

static void check_session(const struct rp_server *server, uint32_t index) {
    const struct rp_session *session = &server->sessions[index];
    uint32_t mtu = rp_session_mtu(session);
    assert((session->connection & (RP_SESSIONS_MAX - 1)) == index);
    assert(mtu >= RP_MTU_MIN && mtu <= server->limits.mtu && mtu % 8 == 0);
    check_once(&session->sample, 1);
    check_once(&session->update, 1);
    check_once(&session->publish, 0);
    check_records(server, index);
}

static void check_assembly(const struct rp_server *server) {
    const struct rp_weights *weights = server->weights;
    uint64_t pieces = (weights->size + weights->piece - 1) / weights->piece;
    const uint8_t *bytes = server->weights_bytes + weights->into * server->weights_stride;
    uint64_t missing = 0, sum = 0;
    assert(weights->into < RP_WEIGHTS_SLOTS && weights->slot[weights->into].version == 0);
    for (uint64_t i = 0; i < pieces; i++) {
        uint64_t left = weights->size - i * weights->piece;
        uint64_t size = left < weights->piece ? left : weights->piece;
        if (server->weights_bitmap[i / 64] >> (i % 64) & 1) {
            sum ^= rp_crc32c_share(rp_crc32c(0, bytes + i * weights->piece, size), left - size);
        } else {
            missing++;
        }
    }
    assert(missing == weights->missing && missing > 0 && sum == weights->sum);
}

static void check_weights(const struct rp_server *server) {
    const struct rp_weights *weights = server->weights;
    uint64_t newest = 0;
    for (uint32_t i = 0; i < RP_WEIGHTS_SLOTS; i++) {
        const struct rp_weights_slot *slot = &weights->slot[i];
        assert(slot->version == 0 || slot->size <= server->limits.weights_max);
        newest = slot->version > newest ? slot->version : newest;
        for (uint32_t j = 0; j < i; j++) {
            assert(slot->version == 0 || slot->version != weights->slot[j].version);
        }
    }
    assert(newest == weights->newest);
    if (weights->session != 0) {
        check_assembly(server);
    }
}

void rp_server_check(const struct rp_server *server) {
    uint32_t open = 0;
    assert(server->intent.count == 0 && server->intent.log->committed == 0);
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        if (server->sessions[i].connection != 0) {
            check_session(server, i);
            open++;
        } else {
            assert(server->lines[i].credit == 0 && !server->lines[i].granted);
        }
    }
    assert(open == server->open && server->meters.served_count <= RP_BURST);
    rp_credit_check(server);
    rp_wait_check(server);
    check_weights(server);
    for (uint32_t i = 0; i < server->limits.table_count; i++) {
        rp_table_check(&server->tables[i]);
    }
}
