/* Who reads one version after the other holds each of them as if it was the first. Situations
 * read "Given ... Expect ...". */
#include "script.h"

enum { SIZE = 1320 }; /* one piece, two datagrams */

static struct script script;

static struct script_answer publish(struct script_client *from, uint64_t id) {
    static struct {
        struct rp_publish head;
        uint8_t bytes[SIZE];
    } body;
    memset(body.bytes, (int)id, sizeof body.bytes);
    body.head = (struct rp_publish){
        .size = SIZE, .piece = SIZE, .crc = rp_crc32c(0, body.bytes, sizeof body.bytes)};
    return script_ask(&script, from, RP_OP_PUBLISH, 0, id, &body, sizeof body);
}

static void pull(struct script_client *from, uint64_t version, uint32_t count) {
    struct rp_blob_request request = {
        .version = version, .count = count, .kind = RP_BLOB_WEIGHTS};
    CHECK_STATUS(script_ask(&script, from, RP_OP_BLOB, 0, version, &request, sizeof request),
                 RP_OK);
    CHECK(script.port.out_count == count, "%u datagrams", script.port.out_count);
}

/* 1. Given a session that read a version to its end and, long after, is at the beginning of the
 *    next but one. Expect who would replace that one held up for two seconds, no longer. */
static void situation_next(void) {
    struct rp_table_config tables[2];
    struct script_client publisher = script_client(1), reader = script_client(2);
    script_tables(tables);
    struct rp_server_config config = script_config(tables);
    script_open(&script, &config);
    script_connect(&script, &publisher);
    script_connect(&script, &reader);
    CHECK_STATUS(publish(&publisher, 1), RP_OK);
    pull(&reader, 1, 2);
    script_later(&script, 3000);
    for (uint64_t id = 2; id <= 4; id++) {
        CHECK_STATUS(publish(&publisher, id), RP_OK);
    }
    pull(&reader, 2, 1);
    CHECK_STATUS(publish(&publisher, 5), RP_BUSY);
    script_later(&script, 2000);
    CHECK_STATUS(publish(&publisher, 5), RP_OK);
    script_close(&script);
    check_group("1 each version is held, however far the one before was read");
}

int main(void) {
    situation_next();
    return check_done("test_server_pull");
}
