/* Weights appear whole, numbered by the server, and stay readable while they are read; specs
 * are served like them. Situations read "Given ... Expect ...". */
#include "script.h"

enum { PIECE = 1000, SIZE = 3500, PIECES = 4 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client client, other;
static uint8_t blob[SIZE];

static void fresh(void) {
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    client = script_client(1);
    other = script_client(2);
    script_connect(&script, &client);
    script_connect(&script, &other);
}

static void make_blob(uint8_t salt) {
    for (uint32_t i = 0; i < SIZE; i++) {
        blob[i] = (uint8_t)(i * 7 + i / 256 + salt);
    }
}

static struct script_answer piece(struct script_client *from, uint64_t id, uint32_t index) {
    static struct {
        struct rp_publish publish;
        uint8_t bytes[PIECE];
    } body;
    uint32_t offset = index * PIECE;
    uint32_t size = SIZE - offset < PIECE ? SIZE - offset : PIECE;
    body.publish = (struct rp_publish){
        .size = SIZE, .offset = offset, .piece = PIECE, .crc = rp_crc32c(0, blob, SIZE)};
    memcpy(body.bytes, blob + offset, size);
    return script_ask(&script, from, RP_OP_PUBLISH, 0, id, &body,
                      (uint32_t)sizeof body.publish + size);
}

static uint64_t version_of(struct script_answer answer) {
    CHECK_STATUS(answer, RP_OK);
    return SCRIPT_READ(answer, struct rp_published).version;
}

static void publish(struct script_client *from, uint64_t id, uint8_t salt, uint64_t version) {
    make_blob(salt);
    for (uint32_t i = 0; i < PIECES; i++) {
        CHECK(version_of(piece(from, id, i)) == (i + 1 < PIECES ? 0 : version));
    }
}

static struct script_answer pull(struct script_client *from, uint64_t version, uint32_t first,
                                 uint32_t count) {
    struct rp_blob_request request = {
        .version = version, .first = first, .count = count, .kind = RP_BLOB_WEIGHTS};
    return script_ask(&script, from, RP_OP_BLOB, 0, 1, &request, sizeof request);
}

static struct script_answer ask_blob(uint64_t version, uint32_t first, uint32_t count) {
    return pull(&client, version, first, count);
}

/* Reads a whole version, newest by 0, and compares it with that salt's bytes. */
static void read_back(uint64_t asked, uint64_t version, uint8_t salt) {
    uint8_t read[SIZE + 8] = {0};
    uint32_t payload = rp_blob_payload(1400);
    uint32_t datagrams = (SIZE + payload - 1) / payload;
    make_blob(salt);
    struct script_answer answer = ask_blob(asked, 0, 32);
    CHECK_STATUS(answer, RP_OK);
    CHECK(script.port.out_count == datagrams);
    for (uint32_t i = 0; i < datagrams; i++) {
        answer = script_answer(&script, i);
        struct rp_blob_datagram head;
        memcpy(&head, answer.rest, sizeof head);
        CHECK(head.version == version && head.size == SIZE && head.datagram == i);
        CHECK(head.datagram_count == datagrams && head.payload == payload);
        CHECK(head.crc == rp_crc32c(0, blob, SIZE));
        uint32_t left = SIZE - i * payload;
        memcpy(read + i * payload, answer.rest + sizeof head, left < payload ? left : payload);
    }
    CHECK(memcmp(read, blob, SIZE) == 0);
}

/* 1. Given pieces in any order, one twice, and one again after the last. Expect version 0 until
 *    whole, then 1, in the answer's header too, and the bytes back. */
static void situation_publish(void) {
    fresh();
    CHECK_STATUS(ask_blob(0, 0, 1), RP_NO_WEIGHTS);
    make_blob(1);
    static const uint32_t order[] = {3, 0, 0, 2};
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(version_of(piece(&client, 1, order[i])) == 0);
    }
    struct script_answer answer = piece(&client, 1, 1);
    CHECK(version_of(answer) == 1 && answer.head.weights_version == 1);
    CHECK(version_of(piece(&client, 1, 2)) == 1);
    read_back(0, 1, 1);
    read_back(1, 1, 1);
    CHECK(script_counter(&script, RP_COUNT_blob_datagrams) == 2 * script.port.out_count);
    CHECK(script_counter(&script, RP_COUNT_weights_pieces) == 4);
    CHECK(script_counter(&script, RP_COUNT_weights_published) == 1);
    script_close(&script);
    check_group("1 pieces in any order");
}

/* 2. Given four versions, each read to its end, and one begun anew. Expect the last two always
 *    there, an older one gone, its number told; the one begun held for two seconds, no longer. */
static void situation_gone(void) {
    fresh();
    for (uint8_t version = 1; version <= 4; version++) {
        publish(&client, version, version, version);
    }
    CHECK_STATUS(ask_blob(1, 0, 1), RP_GONE);
    CHECK(script_answer(&script, 0).head.weights_version == 4);
    for (uint8_t version = 2; version <= 4; version++) {
        read_back(version, version, version);
    }
    CHECK_STATUS(pull(&other, 2, 0, 1), RP_OK); /* in the middle of version 2: it stays a while */
    make_blob(5);
    CHECK_STATUS(piece(&client, 5, 0), RP_BUSY);
    script_later(&script, 2000);
    CHECK(version_of(piece(&client, 5, 0)) == 0);
    CHECK_STATUS(ask_blob(2, 0, 1), RP_GONE);
    read_back(3, 3, 3);
    read_back(0, 4, 4);
    CHECK_STATUS(ask_blob(5, 0, 1), RP_GONE);
    CHECK_STATUS(ask_blob(4, 3, 1), RP_BAD_ARGUMENT);
    CHECK_STATUS(ask_blob(0, 1, 1), RP_BAD_ARGUMENT);
    CHECK_STATUS(ask_blob(4, 0, 33), RP_BAD_ARGUMENT);
    script_close(&script);
    check_group("2 versions stay, are read, and go");
}

/* 3. Given two publishers. Expect the second BUSY until the first was silent for two seconds or has
 *    closed; the first's id is then started anew or forgotten. */
static void situation_busy(void) {
    fresh();
    make_blob(1);
    CHECK(version_of(piece(&client, 1, 0)) == 0);
    CHECK_STATUS(piece(&other, 1, 0), RP_BUSY);
    script_later(&script, 2000);
    publish(&other, 1, 2, 1);
    publish(&client, 3, 3, 2);
    CHECK_STATUS(piece(&client, 2, 0), RP_FORGOTTEN);
    CHECK(script_counter(&script, RP_COUNT_publishes_forgotten) == 1);
    CHECK(version_of(piece(&client, 4, 0)) == 0);
    CHECK_STATUS(script_ask(&script, &client, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    script_connect(&script, &client);
    CHECK(version_of(piece(&other, 2, 0)) == 0);
    CHECK(script_counter(&script, RP_COUNT_refused_blob) == 1);
    script_close(&script);
    check_group("3 one publisher at a time");
}

/* 4. Given a blob that does not match its hash. Expect BAD_HASH, no version, and a fresh start. */
static void situation_hash(void) {
    fresh();
    make_blob(1);
    for (uint32_t i = 0; i < PIECES; i++) {
        struct {
            struct rp_publish publish;
            uint8_t bytes[PIECE];
        } body = {.publish = {.size = 4 * PIECE, .offset = i * PIECE, .piece = PIECE, .crc = 5}};
        struct script_answer answer =
            script_ask(&script, &client, RP_OP_PUBLISH, 0, 1, &body, sizeof body);
        CHECK_STATUS(answer, i + 1 < PIECES ? RP_OK : RP_BAD_HASH);
    }
    CHECK(rp_server_weights_version(script.server) == 0);
    CHECK(script_counter(&script, RP_COUNT_refused_hash) == 1);
    publish(&client, 2, 9, 1);
    read_back(0, 1, 9);
    script_close(&script);
    check_group("4 a wrong hash");
}

/* 5. Given publications and requests that make no sense. Expect each its status. */
static void situation_refused(void) {
    static const struct {
        struct rp_publish publish;
        uint32_t bytes;
        int status;
    } bad[] = {
        {{20001, 0, 1000, 0}, 1000, RP_TOO_LARGE},
        {{1ull << 63, 0, 1000, 0}, 1000, RP_TOO_LARGE},
        {{0, 0, 1000, 0}, 0, RP_BAD_ARGUMENT},
        {{3000, 3000, 1000, 0}, 0, RP_BAD_ARGUMENT},
        {{3000, 1ull << 63, 1000, 0}, 1000, RP_BAD_ARGUMENT},
        {{3000, 500, 1000, 0}, 1000, RP_BAD_ARGUMENT},
        {{3000, 0, 1001, 0}, 1001, RP_BAD_ARGUMENT},
        {{3000, 0, 0, 0}, 1000, RP_BAD_ARGUMENT},
        {{3000, 0, 0xFFFFFFF8, 0}, 1000, RP_BAD_ARGUMENT},
        {{20000, 0, 8, 0}, 8, RP_BAD_ARGUMENT},
        {{3000, 0, 1000, 0}, 992, RP_BAD_SIZE},
        {{3000, 0, 1000, 0}, 1008, RP_BAD_SIZE},
    };
    fresh();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct {
            struct rp_publish publish;
            uint8_t bytes[1100];
        } body = {.publish = bad[i].publish};
        struct script_answer answer =
            script_ask(&script, &client, RP_OP_PUBLISH, 0, 1, &body, 24 + bad[i].bytes);
        CHECK(answer.status == bad[i].status, "case %zu: %s", i, rp_status_name(answer.status));
    }
    make_blob(1);
    CHECK(version_of(piece(&client, 1, 0)) == 0);
    make_blob(2);
    CHECK_STATUS(piece(&client, 1, 1), RP_BAD_ARGUMENT);
    script_close(&script);
    check_group("5 refusals");
}

/* 6. Given a kill in the middle of an assembly. Expect the rest of the pieces to complete it, and
 *    the versions before it to be there. */
static void situation_kill(void) {
    fresh();
    publish(&client, 1, 1, 1);
    make_blob(2);
    CHECK(version_of(piece(&client, 2, 0)) == 0);
    CHECK(version_of(piece(&client, 2, 2)) == 0);
    script_kill(&script);
    read_back(0, 1, 1);
    make_blob(2);
    CHECK(version_of(piece(&client, 2, 3)) == 0);
    script_kill(&script);
    CHECK(version_of(piece(&client, 2, 1)) == 2);
    script_kill(&script);
    CHECK(version_of(piece(&client, 2, 1)) == 2);
    read_back(0, 2, 2);
    CHECK(rp_server_weights_version(script.server) == 2);
    script_close(&script);
    check_group("6 kill and attach");
}

/* 7. Given a table's spec. Expect its bytes, and refusals of what is no spec. */
static void situation_spec(void) {
    fresh();
    struct rp_blob_request request = {.first = 0, .count = 1, .kind = RP_BLOB_SPEC};
    struct script_answer answer =
        script_ask(&script, &client, RP_OP_BLOB, 1, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    struct rp_blob_datagram head;
    memcpy(&head, answer.rest, sizeof head);
    CHECK(head.size == sizeof script_spec - 1 && head.version == 0 && head.datagram_count == 1);
    CHECK(memcmp(answer.rest + sizeof head, script_spec, head.size) == 0);
    answer = script_ask(&script, &client, RP_OP_BLOB, 2, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_UNKNOWN_TABLE);
    request.version = 1;
    answer = script_ask(&script, &client, RP_OP_BLOB, 1, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_BAD_ARGUMENT);
    request = (struct rp_blob_request){.count = 1, .kind = 3};
    answer = script_ask(&script, &client, RP_OP_BLOB, 1, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_BAD_ARGUMENT);
    script_close(&script);
    check_group("7 specs");
}

/* 8. Given a session that asks for the first datagram of the oldest version once a second, for an
 *    hour. Expect a publisher held up by each version for two seconds, no longer, and by an older
 *    version than one that was asked for not at all. */
static void situation_held(void) {
    fresh();
    for (uint8_t version = 1; version <= 3; version++) {
        publish(&client, version, version, version);
    }
    uint32_t in_a_row = 0;
    for (uint32_t second = 0; second < 3600; second++) {
        uint64_t newest = rp_server_weights_version(script.server);
        CHECK_STATUS(pull(&other, newest - 2, 0, 1), RP_OK);
        make_blob((uint8_t)newest);
        uint16_t status = piece(&client, newest + 1, 0).status;
        in_a_row = status == RP_BUSY ? in_a_row + 1 : 0;
        CHECK(in_a_row <= 3, "second %u: a publisher was held up %u times in a row", second,
              in_a_row);
        for (uint32_t i = 1; i < PIECES && status == RP_OK; i++) {
            CHECK_STATUS(piece(&client, newest + 1, i), RP_OK);
        }
        script_later(&script, 1000);
    }
    CHECK(rp_server_weights_version(script.server) >= 3600 / 4);
    CHECK_STATUS(pull(&other, 0, 0, 1), RP_OK);
    CHECK_STATUS(pull(&other, rp_server_weights_version(script.server) - 2, 0, 1), RP_OK);
    uint64_t next = rp_server_weights_version(script.server) + 1;
    make_blob((uint8_t)(next - 1));
    CHECK_STATUS(piece(&client, next, 0), RP_OK);
    script_close(&script);
    check_group("8 a pull holds its version while it gets on, and once");
}

/* 9. Given a session that sends one piece of a publication again and again, and one that trickles.
 *    Expect the next publisher held up for two seconds by the one, by the other for as long as its
 *    bytes may take. */
static void situation_trickle(void) {
    fresh();
    make_blob(1);
    CHECK(version_of(piece(&other, 1, 0)) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_STATUS(piece(&client, 1, 0), RP_BUSY);
        script_later(&script, 1000);
        CHECK(version_of(piece(&other, 1, 0)) == 0);
    }
    CHECK(version_of(piece(&client, 1, 0)) == 0, "a repeated piece is no progress");
    script_close(&script);
    fresh();
    CHECK(version_of(piece(&other, 1, 0)) == 0);
    script_later(&script, 1000);
    CHECK(version_of(piece(&other, 1, 1)) == 0);
    script_later(&script, 1000);
    CHECK(version_of(piece(&other, 1, 2)) == 0);
    CHECK_STATUS(piece(&client, 1, 0), RP_BUSY); /* 2 s and 3500 bytes at 1049 bytes a ms */
    script_later(&script, 3);
    CHECK(version_of(piece(&client, 1, 0)) == 0, "a trickle has an end");
    script_close(&script);
    check_group("9 an assembly gets on, and ends");
}

/* 10. Given a publication that is done and, after many others by another session, its pieces once
 *     more. Expect its old version told, and nothing published again; after eight more of its own
 *     session FORGOTTEN. */
static void situation_late(void) {
    fresh();
    publish(&client, 1, 1, 1);
    for (uint8_t i = 0; i < 9; i++) {
        publish(&other, 1 + i, (uint8_t)(2 + i), 2 + i);
    }
    make_blob(1);
    for (uint32_t i = 0; i < PIECES; i++) {
        CHECK(version_of(piece(&client, 1, i)) == 1, "piece %u", i);
    }
    script_kill(&script);
    CHECK(version_of(piece(&client, 1, 0)) == 1);
    CHECK(rp_server_weights_version(script.server) == 10);
    read_back(0, 10, 10);
    for (uint8_t i = 0; i < 7; i++) {
        publish(&client, 2 + i, 20, 11 + i);
    }
    make_blob(1);
    CHECK(version_of(piece(&client, 1, 0)) == 1);
    publish(&client, 9, 20, 18);
    make_blob(1);
    CHECK_STATUS(piece(&client, 1, 0), RP_FORGOTTEN);
    script_close(&script);
    check_group("10 a late piece publishes nothing again");
}

static void put_blobs(struct script_client *from, uint32_t count, uint64_t first_id) {
    struct rp_blob_request request = {.first = 0, .count = 32, .kind = RP_BLOB_WEIGHTS};
    for (uint32_t i = 0; i < count; i++) {
        script_put(&script, from, RP_OP_BLOB, 0, first_id + i, &request, sizeof request);
    }
}

static uint32_t sent_to(const struct script_client *client_) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < script.port.out_count; i++) {
        count += script_answer(&script, i).view.outer->connection == client_->connection;
    }
    return count;
}

/* 11. Given a session that asks for 32 datagrams sixty-three times in one turn. Expect 1024 of
 *     them, the rest dropped and counted; half as many each where two sessions share the turns. */
static void situation_share(void) {
    static uint8_t body[sizeof(struct rp_publish) + 1320];
    struct rp_publish publish = {.size = 19800, .piece = 1320};
    struct script_client small[2] = {script_client(3), script_client(4)};
    fresh();
    memset(body, 0, sizeof body);
    for (; publish.offset < publish.size; publish.offset += publish.piece) {
        uint8_t *all = calloc(1, publish.size);
        publish.crc = rp_crc32c(0, all, publish.size);
        free(all);
        memcpy(body, &publish, sizeof publish);
        CHECK_STATUS(script_ask(&script, &client, RP_OP_PUBLISH, 0, 1, body, sizeof body), RP_OK);
    }
    CHECK(rp_server_weights_version(script.server) == 1);
    for (uint32_t i = 0; i < 2; i++) {
        small[i].mtu = 512;
        script_connect(&script, &small[i]);
    }
    put_blobs(&small[0], 63, 1);
    CHECK(script_turn(&script) == 1024, "%u", script.port.out_count);
    CHECK(script_counter(&script, RP_COUNT_drop_no_room) == 63 - 32);
    put_blobs(&small[0], 1, 100);
    put_blobs(&small[1], 1, 100);
    CHECK(script_turn(&script) == 64);
    put_blobs(&small[0], 31, 200);
    put_blobs(&small[1], 31, 200);
    CHECK(script_turn(&script) == 1024 && sent_to(&small[0]) == 512 && sent_to(&small[1]) == 512);
    script_close(&script);
    check_group("11 a session's share of a turn");
}

/* 12. Given a session that takes two datagrams in one go, and asks for all four. Expect the first
 *     two, and the others when it asks from there on. */
static void situation_train(void) {
    struct script_client small = script_client(3);
    fresh();
    publish(&client, 1, 1, 1);
    small.mtu = 1104;
    small.receive_budget = 2;
    script_connect(&script, &small);
    for (uint32_t first = 0; first < 4; first += 2) {
        CHECK_STATUS(pull(&small, 1, first, 32), RP_OK);
        CHECK(script.port.out_count == 2, "%u datagrams", script.port.out_count);
    }
    script_close(&script);
    check_group("12 no more at once than a session can take");
}

/* 13. Given a publisher that begins a publication each second, for an hour, and finishes none.
 *     Expect another publisher held up for its time, once, and its own publication whole. */
static void situation_restless(void) {
    uint32_t busy_ = 0, done = 0;
    fresh();
    for (uint64_t second = 1; second <= 3600; second++) {
        make_blob(1);
        uint16_t status = piece(&other, second, 0).status;
        CHECK(status == RP_OK || status == RP_BUSY, "%s", rp_status_name(status));
        script_later(&script, 500);
        for (uint32_t i = 0; i < PIECES; i++) {
            status = piece(&client, done + 1, i).status;
            CHECK(status == RP_OK || status == RP_BUSY, "%s", rp_status_name(status));
            busy_ += status == RP_BUSY && i == 0;
        }
        done += status == RP_OK;
        script_later(&script, 500);
    }
    CHECK(done == rp_server_weights_version(script.server));
    CHECK(done >= 3600 / 4, "published %u, BUSY %u", done, busy_);
    script_close(&script);
    check_group("13 who finishes nothing holds others up for its time");
}

/* 14. Given a client that opens new sessions for an hour, each to ask for one datagram of the
 *     oldest version. Expect a publisher held up by each for its time in all, two seconds. */
static void situation_relay(void) {
    uint32_t in_a_row = 0;
    uint64_t next = 4;
    fresh();
    for (uint8_t version = 1; version <= 3; version++) {
        publish(&client, version, version, version);
    }
    for (uint32_t second = 0; second < 3600; second++) {
        CHECK_STATUS(script_ask(&script, &other, RP_OP_CLOSE, 0, 9, NULL, 0), RP_OK);
        other.nonce += 7;
        script_connect(&script, &other);
        CHECK_STATUS(pull(&other, next - 3, 0, 1), RP_OK);
        make_blob((uint8_t)next);
        uint16_t status = piece(&client, next, 0).status;
        in_a_row = status == RP_BUSY ? in_a_row + 1 : 0;
        CHECK(in_a_row <= 3, "second %u: held up %u times in a row", second, in_a_row);
        for (uint32_t i = 1; i < PIECES && status == RP_OK; i++) {
            CHECK_STATUS(piece(&client, next, i), RP_OK);
        }
        next += status == RP_OK;
        script_later(&script, 1000);
    }
    CHECK(rp_server_weights_version(script.server) == next - 1 && next >= 3600 / 4);
    script_close(&script);
    check_group("14 a version is held up for its time, whoever asks");
}

/* 15. Given an assembly whose time is over, and is taken over; a publisher that begins another
 *     instead; and one that finished. Expect who takes over to have a time of its own, and a new
 *     one where nobody waits; the restless no second one; who finished a whole one for its next. */
static void situation_times(void) {
    make_blob(1);
    for (uint64_t id = 1; id <= 2; id++) {
        fresh();
        CHECK(version_of(piece(&other, 1, 0)) == 0);
        CHECK_STATUS(piece(&client, 1, 0), RP_BUSY);
        script_later(&script, 2000);
        CHECK(version_of(piece(&client, 1, 0)) == 0);
        script_later(&script, 1000);
        CHECK(version_of(piece(&client, id, 2 - (uint32_t)id)) == 0); /* on, or another begun */
        script_later(&script, 750 * id); /* only a time that began anew lasts until the second */
        CHECK_STATUS(piece(&other, 2, 0), RP_BUSY);
        script_close(&script);
    }
    fresh();
    CHECK(version_of(piece(&other, 1, 0)) == 0);
    CHECK_STATUS(piece(&client, 1, 0), RP_BUSY);
    script_later(&script, 2100);
    CHECK(version_of(piece(&other, 2, 0)) == 0);
    CHECK(version_of(piece(&client, 1, 0)) == 0, "it had its time");
    script_close(&script);
    fresh();
    CHECK(version_of(piece(&other, 1, 0)) == 0);
    CHECK_STATUS(piece(&client, 1, 0), RP_BUSY);
    for (uint32_t i = 1; i < PIECES; i++) {
        CHECK_STATUS(piece(&other, 1, i), RP_OK);
    }
    script_later(&script, 3000);
    CHECK(version_of(piece(&other, 2, 0)) == 0);
    CHECK_STATUS(piece(&client, 1, 0), RP_BUSY);
    script_close(&script);
    fresh();
    publish(&other, 1, 1, 1);
    CHECK(version_of(piece(&other, 2, 0)) == 0);
    CHECK_STATUS(piece(&client, 1, 0), RP_BUSY);
    for (uint32_t i = 1; i < PIECES; i++) {
        CHECK_STATUS(piece(&other, 2, i), RP_OK);
    }
    script_later(&script, 10000);
    CHECK(version_of(piece(&other, 3, 0)) == 0);
    script_later(&script, 100);
    CHECK_STATUS(piece(&client, 1, 0), RP_BUSY); /* whoever finishes one has a newcomer's time */
    CHECK_STATUS(piece(&other, 3, 1), RP_OK);
    script_close(&script);
    check_group("15 whose time it is");
}

struct disk { uint64_t asked, taken; int full; }; /* times, bytes */

static int take_disk(void *owner, uint64_t offset, uint64_t bytes) {
    struct disk *disk = owner;
    CHECK(offset > 0 && bytes > 0);
    disk->asked++;
    disk->taken += disk->full ? 0 : bytes;
    return !disk->full;
}

/* 16. Given a disk, full at first, and a session that begins publication after publication. Expect
 *     room asked for once a second until it is given, sooner for less of it, and for each slot
 *     once; for larger weights what lacks. Given the region taken over, where the disk has room
 *     for what was being assembled, and where it has none any more. Expect it asked for at once,
 *     and the publication to go on, or to be given up and counted. */
static void situation_room(void) {
    static uint8_t more[sizeof(struct rp_publish) + PIECE], less[sizeof more];
    *(struct rp_publish *)(void *)more = (struct rp_publish){.size = SIZE + 500, .piece = PIECE};
    *(struct rp_publish *)(void *)less = (struct rp_publish){.size = SIZE - 500, .piece = PIECE};
    struct disk disk = {.full = 1};
    fresh();
    make_blob(1);
    rp_server_backing(script.server, take_disk, &disk);
    for (uint64_t id = 1; id < 10; id++) {
        CHECK_STATUS(piece(&client, id, 0), RP_DISK_FULL);
    }
    CHECK(disk.asked == 1, "asked %" PRIu64, disk.asked);
    CHECK_STATUS(script_ask(&script, &client, RP_OP_PUBLISH, 0, 10, less, sizeof less),
                 RP_DISK_FULL);
    CHECK(disk.asked == 2, "as much was not refused before");
    disk.full = 0;
    CHECK_STATUS(piece(&client, 11, 0), RP_DISK_FULL);
    CHECK(script_counter(&script, RP_COUNT_refused_disk) == 11);
    script.server->weights_room[0] = SIZE - 50; /* less lacks than was refused */
    CHECK(version_of(piece(&client, 12, 0)) == 0 && disk.asked == 3 && disk.taken == 50);
    script.server->weights_room[0] = 0;
    disk = (struct disk){.asked = 2};
    script_later(&script, 1000);
    for (uint64_t id = 13; id < 100; id++) {
        CHECK(version_of(piece(&client, id, 0)) == 0);
    }
    CHECK(disk.asked == 3 && disk.taken == SIZE, "asked %" PRIu64, disk.asked);
    for (uint64_t id = 100; id < 110; id++) {
        publish(&client, id, 1, id - 99);
    }
    CHECK(disk.asked == 5 && disk.taken == 3 * SIZE, "asked %" PRIu64, disk.asked);
    CHECK_STATUS(script_ask(&script, &client, RP_OP_PUBLISH, 0, 110, more, sizeof more), RP_OK);
    CHECK(disk.asked == 6 && disk.taken == 3 * SIZE + 500, "taken %" PRIu64, disk.taken);
    for (disk.full = 0; disk.full <= 1; disk.full++) {
        script_kill(&script);
        rp_server_backing(script.server, take_disk, &disk);
        CHECK(disk.asked == 7 + (uint64_t)disk.full, "asked %" PRIu64, disk.asked);
        CHECK((script.server->weights->session == 0) == disk.full);
        CHECK(script_counter(&script, RP_COUNT_weights_dropped) == (uint64_t)disk.full);
        CHECK_STATUS(script_ask(&script, &client, RP_OP_PUBLISH, 0, 110, more, sizeof more),
                     disk.full ? RP_DISK_FULL : RP_OK);
    }
    CHECK(disk.asked == 8, "what goes on is not asked for again");
    script_close(&script);
    check_group("16 a slot's room is taken once");
}

int main(void) {
    situation_publish();
    situation_gone();
    situation_busy();
    situation_hash();
    situation_refused();
    situation_kill();
    situation_spec();
    situation_held();
    situation_trickle();
    situation_late();
    situation_share();
    situation_train();
    situation_restless();
    situation_relay();
    situation_times();
    situation_room();
    return check_done("test_server_weights");
}
