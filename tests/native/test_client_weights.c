/* Weights that are published or fetched anew: what still comes of the round before counts for
 * nothing. Situations read "Given ... Expect ...". */
#include "client_world.h"

enum { BYTES = 6000 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static uint8_t bytes[BYTES], back[BYTES];

static int publish(struct world *world, uint8_t salt, uint64_t *version) {
    for (uint32_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256 + salt);
    }
    return rp_client_publish(world->client, bytes, BYTES, version, world_later(world, 3000));
}

static struct world *fresh(uint64_t seed) {
    struct rp_client_options options = world_options();
    options.retry_us_min = 50000;
    options.retry_us_max = 1000000;
    struct world *world = world_open(&config, seed);
    world_client(world, &options);
    world_connect(world);
    for (uint64_t version = 0; version < 2;) { /* until all pieces may be under way at once */
        CHECK(world_wait(world, publish(world, 1, &version)) == 0);
    }
    return world;
}

static uint32_t pieces(void) {
    return (BYTES + rp_publish_piece(WORLD_MTU) - 1) / rp_publish_piece(WORLD_MTU);
}

/* Runs until so many answers of this kind are on their way to the client. */
static void await(struct world *world, uint8_t op, uint32_t count) {
    uint64_t end = world_later(world, 1000);
    for (uint32_t there = 0; there < count;) {
        CHECK(world->now_ns < end, "%u of %u answers", there, count);
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        there = 0;
        for (uint32_t i = 0; i < world->ports[1].count; i++) {
            there += world_message(&world->ports[1].queue[i])->op == (op | RP_ANSWER);
        }
        world->now_ns += 1000;
    }
}

/* All that is on its way to the client comes at that time. */
static void hold(struct world *world, uint64_t due_ns) {
    for (uint32_t i = 0; i < world->ports[1].count; i++) {
        world->ports[1].queue[i].due_ns = due_ns;
    }
}

static struct rp_answer *head_of(struct world_datagram *datagram) {
    return (void *)(datagram->data + RP_HEADER_BYTES);
}

/* 1. Given a publisher that is told BUSY once, begins again, and hears nothing more. Expect its
 *    time to be out: nobody else's publication stood in its way. */
static void situation_busy_no_more(void) {
    struct world *world = fresh(1);
    uint64_t version = 0;
    int ticket = publish(world, 1, &version);
    world_client_turn(world);
    await(world, RP_OP_PUBLISH, pieces());
    struct world_datagram *answer = world_find(&world->ports[1], RP_OP_PUBLISH | RP_ANSWER, 0);
    head_of(answer)->status = RP_BUSY;
    world_reseal(answer);
    world->deaf = 1;
    CHECK(world_wait(world, ticket) == -RP_TIMEOUT);
    CHECK(world_asked(world, RP_OP_PUBLISH) >= pieces(), "it did not begin again");
    CHECK(rp_client_counters(world->client)[RP_COUNT_timeouts] == 1);
    world_close(world);
    check_group("1 who was told BUSY and begins again waits for an answer");
}

/* 2. Given a publication of which the server got one piece wrong: its BAD_HASH comes first, the
 *    answers to the other pieces when they are on their way again, two of them in vain. Expect a
 *    new id, the late answers to count for nothing, and only what was lost to be sent again. */
static void situation_bad_hash(void) {
    struct world *world = fresh(2);
    struct world_port *out = &world->ports[1];
    const uint64_t *counters = rp_client_counters(world->client);
    uint64_t version = 0;
    int ticket = publish(world, 2, &version);
    world_client_turn(world);
    struct world_datagram *piece = world_find(&world->ports[0], RP_OP_PUBLISH, 0);
    uint64_t id = world_message(piece)->id, sent = out->sent;
    piece->data[piece->size - 1] ^= 1;
    world_reseal(piece);
    await(world, RP_OP_PUBLISH, pieces());
    hold(world, world->now_ns + 10000); /* shorter than any way */
    struct world_datagram *bad = &out->queue[out->count - 1];
    CHECK(head_of(bad)->status == RP_BAD_HASH, "status %u", head_of(bad)->status);
    bad->due_ns = world->now_ns;
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_PUBLISH) == pieces());
    uint64_t again = world_message(world_find(&world->ports[0], RP_OP_PUBLISH, 0))->id;
    world_lose(world, RP_OP_PUBLISH);
    world_lose(world, RP_OP_PUBLISH);
    CHECK(world_wait(world, ticket) == 0 && version == 3, "version %" PRIu64, version);
    CHECK(out->sent - sent == pieces() + 2, "%" PRIu64 " sent", out->sent - sent);
    CHECK(counters[RP_COUNT_drop_unsolicited] == pieces() - 1, "%" PRIu64 " dropped",
          counters[RP_COUNT_drop_unsolicited]);
    CHECK(again == id + 1, "id %" PRIu64 " behind %" PRIu64, again, id);
    world_close(world);
    check_group("2 what a damaged publication was answered says nothing of the next");
}

/* 3. Given weights on their way, a newer version, and an answer that they are gone, which overtakes
 *    what is left of them. Expect the newer version: what comes late counts for nothing. */
static void situation_gone(void) {
    struct world *world = fresh(3);
    const uint64_t *counters = rp_client_counters(world->client);
    uint64_t version = 0, told = 0, size = 0;
    int blob = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, BYTES, &size, &told,
                              world_later(world, 3000));
    world_client_turn(world);
    await(world, RP_OP_BLOB, 5);
    hold(world, world_later(world, 40));
    uint64_t late = world->ports[1].queue[0].due_ns;
    CHECK(world_wait(world, publish(world, 4, &version)) == 0 && version == 3);
    struct world_datagram *answer = world_find(&world->ports[1], RP_OP_BLOB | RP_ANSWER, 0);
    CHECK(answer != NULL && world->now_ns < late);
    head_of(answer)->status = RP_GONE;
    answer->size = RP_ANSWER_BYTES;
    world_message(answer)->size = sizeof(struct rp_answer);
    world_reseal(answer);
    world->now_ns = late - 10000; /* what is new comes later than the others */
    answer->due_ns = world->now_ns;
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_BLOB) == 1, "it is not begun anew");
    CHECK(world_wait(world, blob) == 0 && told == 3, "version %" PRIu64, told);
    CHECK(size == BYTES && memcmp(back, bytes, BYTES) == 0);
    CHECK(counters[RP_COUNT_drop_unsolicited] == 4, "%" PRIu64 " dropped",
          counters[RP_COUNT_drop_unsolicited]);
    world_close(world);
    check_group("3 what is left of weights that are gone is not taken for the newer ones");
}

/* 4. Given a publication that the server has, whose answers are lost in a partition that outlasts
 *    the session. Expect it to end as expired and not to be made again; and one that was asked for
 *    in the partition, of which nothing had left, to be made in the next session. */
static void situation_expired(void) {
    struct world *world = fresh(4);
    const uint64_t *counters = rp_server_counters(world->server);
    uint64_t version = 0, next = 0, idle_ns = config.idle_ms * UINT64_C(1000000);
    uint64_t end = world->now_ns + 2 * idle_ns;
    memset(bytes, 1, BYTES);
    int ticket = rp_client_publish(world->client, bytes, BYTES, &version, 2 * end);
    world_client_turn(world);
    await(world, RP_OP_PUBLISH, pieces());
    uint64_t made = counters[RP_COUNT_weights_published];
    int waits = rp_client_publish(world->client, bytes, BYTES, &next, 2 * end);
    world_expire(world, idle_ns);
    CHECK(made == 3 && version == 0);
    CHECK(world_wait(world, ticket) == -RP_SESSION_EXPIRED);
    CHECK(counters[RP_COUNT_weights_published] == made, "made again");
    CHECK(world_wait(world, waits) == 0 && next == 4, "version %" PRIu64, next);
    world_close(world);
    check_group("4 a publication that may have been made is not made again");
}

/* 5. Given a publication under way, told BUSY or not, and another server in the place of its own.
 *    Expect it to be made there; and where that one falls silent too, its time to be out: nobody
 *    else's publication stands in its way there. */
static void situation_another_server(int busy, int silent) {
    struct world *world = fresh(5);
    uint64_t version = 0;
    int ticket = publish(world, 5, &version);
    world_client_turn(world);
    await(world, RP_OP_PUBLISH, 1);
    if (busy) {
        struct world_datagram *answer = world_find(&world->ports[1], RP_OP_PUBLISH | RP_ANSWER, 0);
        head_of(answer)->status = RP_BUSY;
        world_reseal(answer);
        world->now_ns += 100000;
        world_client_turn(world);
    }
    world_lose_all(world);
    world_server(world, &config, 77);
    int ping = rp_client_ping(world->client, world_later(world, 3000));
    uint64_t end = world_later(world, 1000);
    while (rp_client_counters(world->client)[RP_COUNT_reconnects] == 0) {
        CHECK(world->now_ns < end, "it never connects anew");
        world_turn(world);
        world->now_ns += 10000;
    }
    rp_client_take(world->client, ping);
    world->deaf = silent;
    int status = world_wait(world, ticket);
    CHECK(status == (silent ? -RP_TIMEOUT : 0), "%d", status);
    CHECK(silent || version == 1, "version %" PRIu64, version);
    world_close(world);
}

int main(void) {
    script_tables(tables);
    config = script_config(tables);
    situation_busy_no_more();
    situation_bad_hash();
    situation_gone();
    situation_expired();
    for (int i = 0; i < 4; i++) {
        situation_another_server(i & 1, i >> 1);
    }
    check_group("5 a publication goes on where the server is another one");
    return check_done("test_client_weights");
}
