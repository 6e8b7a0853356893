/* A batch that is under way keeps its record at the server, whatever else its client asks
 * for, gives up or waits for, over a network that loses. What has no record any more was drawn for
 * nobody. Situations read "Given ... Expect ...". */
#include "client_world.h"

enum { ITEM = 16, BATCH = 64, ROWS = 64, FREE = 0, LIMITED = 1 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static uint8_t bytes[BATCH * ITEM], rows[ROWS * ITEM];
static struct rp_landing_column column = {bytes, ITEM, 0, ITEM};

static void open_writer(struct world *world, const char *table) {
    struct rp_table_info info;
    struct rp_writer_granted granted;
    uint64_t deadline = world_later(world, 5000);
    CHECK(world_wait(world, rp_client_table(world->client, table, &info, deadline)) == 0);
    CHECK(world_wait(world, rp_client_writer(world->client, &info, 1, &granted, deadline)) == 0);
}

static void write_rows(struct world *world, uint16_t table, uint32_t count) {
    for (uint32_t done = 0, tries = 0; done < count; tries++) {
        int taken = rp_client_push(world->client, table, 0, rows, count - done, RP_RUN_ITEM, NULL);
        CHECK(tries < 1000);
        done += taken > 0 ? (uint32_t)taken : 0;
        rp_client_flush(world->client, table);
        world_run(world, WORLD_MS);
    }
}

/* A table "main" of 64 items that anybody may draw, and an empty one with a limiter. */
static struct world *two_tables(uint64_t seed, uint32_t records) {
    struct rp_client_options options = world_options();
    options.connect_timeout_ns = 5000 * WORLD_MS; /* longer than any wait here should be */
    script_tables(tables);
    tables[FREE].plan_count = 1; /* steps are items */
    config = script_config(tables);
    config.records = records;
    struct world *world = world_open(&config, seed);
    world_client(world, &options);
    world_connect(world);
    open_writer(world, "main");
    open_writer(world, "rows");
    write_rows(world, FREE, ROWS);
    world_run(world, 100 * WORLD_MS);
    return world;
}

static int post(struct world *world, uint16_t table, uint32_t count, uint64_t ms) {
    struct rp_sample request = {.count = count};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = ITEM};
    return rp_client_sample(world->client, table, &request, NULL, &landing,
                            ms ? world_later(world, ms) : 0);
}

/* Posts a sample of the table with a limiter, into memory of its own. */
static int post_waiting_for(struct world *world, uint32_t count, uint64_t ms) {
    static uint8_t mine[BATCH * ITEM];
    static const struct rp_landing_column own = {mine, ITEM, 0, ITEM};
    struct rp_sample request = {.count = count};
    struct rp_landing landing = {.columns = &own, .column_count = 1, .item_bytes = ITEM};
    return rp_client_sample(world->client, LIMITED, &request, NULL, &landing,
                            world_later(world, ms));
}

static int post_waiting(struct world *world, uint32_t count) {
    return post_waiting_for(world, count, 600000);
}

static uint64_t counted(const struct world *world, enum rp_counter counter) {
    return rp_server_counters(world->server)[counter];
}

/* 1. Given as many batches under way as `batches()` fetches ahead at most, and a loss of 5 % and
 *    15 %. Expect each drawn once, and hardly one held back for want of a place. */
static void situation_ahead(void) {
    enum { RECORDS = 8, AHEAD = RECORDS - 1, BATCHES = 5000, FEW = 50 };
    for (uint32_t lose = 50; lose <= 150; lose += 100) {
        struct world *world = two_tables(3, RECORDS);
        int tickets[AHEAD] = {0};
        uint32_t landed = 0;
        world->lose = lose;
        while (landed < BATCHES) {
            for (uint32_t i = 0; i < AHEAD; i++) {
                int status = tickets[i] ? rp_client_poll(world->client, tickets[i]) : RP_PENDING;
                if (status != RP_PENDING) {
                    CHECK(status == 0, "status %d", status);
                    rp_client_take(world->client, tickets[i]);
                    tickets[i] = 0;
                    landed++;
                }
                tickets[i] = tickets[i] ? tickets[i] : post(world, FREE, BATCH, 60000);
            }
            world_step(world, 1000 * WORLD_MS);
        }
        CHECK(counted(world, RP_COUNT_samples) <= landed + AHEAD);
        uint64_t late = counted(world, RP_COUNT_samples_forgotten); /* repeats of what has come */
        uint64_t blocked = counted(world, RP_COUNT_samples_blocked);
        CHECK(late <= FEW && blocked <= FEW, "%" PRIu64 ", %" PRIu64 " of %u", late, blocked,
              landed);
        world_close(world);
    }
    check_group("1 batches ahead, and losses");
}

/* 2. Given a batch under way, and other requests of its client that are given up before they could
 *    be answered. Expect it whole, and hardly more drawn than was asked for. */
static void situation_given_up(void) {
    enum { BATCHES = 300 };
    struct world *world = two_tables(3, 4);
    uint64_t others = 0;
    world->delay_ns = 2 * WORLD_MS;
    world->lose = 150;
    for (uint32_t i = 0; i < BATCHES; i++) {
        int batch = post(world, FREE, BATCH, 60000), status;
        while ((status = rp_client_poll(world->client, batch)) == RP_PENDING) {
            int other = post(world, FREE, 1, 1); /* the way there and back takes 4 ms */
            world_run(world, 2 * WORLD_MS);
            if (other > 0) {
                rp_client_take(world->client, other);
                others++;
            }
        }
        CHECK(status == 0, "batch %u: %d", i, status);
        rp_client_take(world->client, batch);
    }
    uint64_t drawn = counted(world, RP_COUNT_items_sampled);
    CHECK(drawn <= (uint64_t)BATCHES * BATCH + others + 2 * BATCH, "%" PRIu64, drawn);
    world_close(world);
    check_group("2 what others give up takes no batch's record");
}

/* 3. Given a sample that waited and was drawn, the loss of all that the server said of it, and a
 *    caller who goes on drawing. Expect the sample to arrive, not to be drawn for nobody. */
static void situation_unheard(void) {
    struct world *world = two_tables(3, 4);
    int waiting = post_waiting(world, 8);
    world_run(world, 5 * WORLD_MS);
    CHECK(rp_client_push(world->client, LIMITED, 0, rows, 8, RP_RUN_ITEM, NULL) == 8);
    rp_client_flush(world->client, LIMITED);
    world_client_turn(world);
    world->now_ns += 50000;
    rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
    for (uint32_t i = 0; i < world->ports[1].count; i++) {
        free(world->ports[1].queue[i].data);
    }
    world->ports[1].count = 0;
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(world_wait(world, post(world, FREE, 16, 60000)) == 0);
    }
    CHECK(world_wait(world, waiting) == 0);
    CHECK(counted(world, RP_COUNT_items_sampled) == 4 * 16 + 8);
    CHECK(counted(world, RP_COUNT_samples_forgotten) == 0);
    world_close(world);
    check_group("3 a sample that was drawn unheard");
}

/* 4. Given samples that wait and are let on one by one, and two batches of another table under way
 *    all the time, where three records are kept. Expect each drawn once. */
static void situation_let_on(void) {
    enum { RECORDS = 3, AHEAD = 2, LET_ON = 400, LIMITED_BATCH = 4 };
    struct world *world = two_tables(3, RECORDS);
    int tickets[AHEAD] = {0};
    world->delay_ns = WORLD_MS;
    world->lose = 50;
    for (uint32_t i = 0; i < LET_ON; i++) {
        int waiting = post_waiting(world, LIMITED_BATCH);
        uint32_t turns = 0;
        while (rp_client_poll(world->client, waiting) == RP_PENDING) {
            turns++;
            if (turns % 200 == 10) { /* one that was drawn for nobody took its rows along */
                (void)rp_client_push(world->client, LIMITED, 0, rows, LIMITED_BATCH, RP_RUN_ITEM,
                                     NULL);
                rp_client_flush(world->client, LIMITED);
            }
            for (uint32_t k = 0; k < AHEAD; k++) {
                if (tickets[k] && rp_client_poll(world->client, tickets[k]) != RP_PENDING) {
                    CHECK(rp_client_poll(world->client, tickets[k]) == 0);
                    rp_client_take(world->client, tickets[k]);
                    tickets[k] = 0;
                }
                tickets[k] = tickets[k] ? tickets[k] : post(world, FREE, BATCH, 60000);
            }
            world_run(world, WORLD_MS / 2);
        }
        CHECK(rp_client_poll(world->client, waiting) == 0);
        rp_client_take(world->client, waiting);
    }
    CHECK(counted(world, RP_COUNT_samples_forgotten) == 0);
    world_close(world);
    check_group("4 samples that are let on beside batches");
}

/* Takes what was drawn of a table, from datagram `from` on, off its way to the client. */
static uint32_t lose_drawn(struct world *world, uint16_t table, uint32_t from) {
    struct world_port *port = &world->ports[1];
    uint32_t kept = 0, lost = 0;
    for (uint32_t i = 0; i < port->count; i++) {
        const struct rp_message *message = world_message(&port->queue[i]);
        const struct rp_answer *answer = (void *)rp_packet_body(port->queue[i].data);
        const struct rp_batch_datagram *head = (const void *)(answer + 1);
        if (message->op == (RP_OP_SAMPLE | RP_ANSWER) && message->table == table
            && answer->status == RP_OK && head->datagram >= from) {
            free(port->queue[i].data);
            lost++;
        } else {
            port->queue[kept++] = port->queue[i];
        }
    }
    port->count = kept;
    return lost;
}

/* The server serves what is on its way to it; nothing it says is heard yet. */
static void serve(struct world *world) {
    world_client_turn(world);
    world->now_ns += 20000;
    rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
}

/* What it said is heard. How many samples the client asks for then. */
static uint32_t hear(struct world *world) {
    CHECK(world->ports[0].count == 0, "what was asked before counts, too");
    world->now_ns += 20000;
    world_client_turn(world);
    return world_asked(world, RP_OP_SAMPLE);
}

/* 5. Given a server of one record, a batch whose datagrams are lost for a while, and samples that
 *    wait and could be drawn meanwhile. Expect none of them drawn until the batch has come, then
 *    each, and each once. */
static void situation_one_record(void) {
    enum { WAITING = 6, EACH = 8 };
    struct world *world = two_tables(3, 1);
    int waiting[WAITING];
    for (uint32_t i = 0; i < WAITING; i++) {
        waiting[i] = post_waiting(world, EACH);
    }
    world_run(world, 20 * WORLD_MS);
    int batch = post(world, FREE, BATCH, 60000);
    for (uint64_t end = world_later(world, 1000); world->now_ns < end;) {
        (void)rp_client_push(world->client, LIMITED, 0, rows, 1, RP_RUN_ITEM, NULL);
        rp_client_flush(world->client, LIMITED);
        world_step(world, WORLD_MS / 10);
        lose_drawn(world, FREE, 0);
    }
    CHECK(counted(world, RP_COUNT_samples) == 1 && rp_client_poll(world->client, batch) > 0);
    CHECK(world_wait(world, batch) == 0);
    for (uint32_t i = 0; i < WAITING; i++) {
        (void)rp_client_push(world->client, LIMITED, 0, rows, EACH, RP_RUN_ITEM, NULL);
        rp_client_flush(world->client, LIMITED);
        CHECK(world_wait(world, waiting[i]) == 0);
    }
    CHECK(counted(world, RP_COUNT_samples) == 1 + WAITING);
    CHECK(counted(world, RP_COUNT_samples_forgotten) == 0);
    world_close(world);
    check_group("5 one record, of one batch at a time");
}

/* 6. Given a batch of which a part has come, and its caller who drops it. Expect nothing withdrawn:
 *    the server has drawn it. */
static void situation_dropped(void) {
    struct world *world = two_tables(3, 4);
    int batch = post(world, FREE, BATCH, 60000);
    serve(world);
    CHECK(lose_drawn(world, FREE, 1) > 0, "it is one datagram");
    (void)hear(world);
    CHECK(rp_client_poll(world->client, batch) == RP_PENDING);
    rp_client_take(world->client, batch);
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_CANCEL) == 0);
    world_close(world);
    check_group("6 what was drawn is not withdrawn");
}

/* 7. Given six samples that wait, of which one has its session's place at the server, and two
 *    batches. Expect both asked for at once: what waits takes no record. */
static void situation_without_a_place(void) {
    enum { WAITING = 6 };
    struct world *world = two_tables(3, 4);
    for (uint32_t i = 0; i < WAITING; i++) {
        CHECK(post_waiting(world, 8) > 0);
    }
    world_run(world, 5 * WORLD_MS); /* the credit that was asked for lapses after ten */
    CHECK(counted(world, RP_COUNT_samples_blocked) == WAITING);
    CHECK(post(world, FREE, 1, 60000) > 0 && post(world, FREE, 1, 60000) > 0);
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_SAMPLE) == 2, "%u", world_asked(world, RP_OP_SAMPLE));
    world_close(world);
    check_group("7 who waits without a place takes no record");
}

/* 8. Given as many batches under way as there are records, and one more. Expect it asked for as one
 *    of them comes, not before. */
static void situation_as_many(void) {
    enum { RECORDS = 4 };
    struct world *world = two_tables(3, RECORDS);
    int batches[RECORDS + 1];
    for (uint32_t i = 0; i < RECORDS; i++) { /* now it has credit for so many */
        batches[i] = post(world, FREE, 1, 60000);
    }
    for (uint32_t i = 0; i < RECORDS; i++) {
        CHECK(world_wait(world, batches[i]) == 0);
    }
    for (uint32_t i = 0; i <= RECORDS; i++) {
        batches[i] = post(world, FREE, 1, 60000);
    }
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_SAMPLE) == RECORDS, "%u", world_asked(world, RP_OP_SAMPLE));
    for (uint32_t i = 0; i <= RECORDS; i++) {
        CHECK(world_wait(world, batches[i]) == 0);
    }
    CHECK(counted(world, RP_COUNT_samples_blocked) == 0);
    world_close(world);
    check_group("8 as many batches under way as there are records");
}

/* 8b. Given a sample that waits, and more batches than records. Expect one record left for it,
 *     where there are two: its turn would come in vain else, again and again. */
static void situation_left_for_it(void) {
    for (uint32_t records = 1; records <= 4; records++) {
        struct world *world = two_tables(3, records);
        CHECK(post_waiting(world, 8) > 0);
        for (uint32_t i = 0; i < 8; i++) { /* now it has credit for so many */
            CHECK(world_wait(world, post(world, FREE, 1, 60000)) == 0);
        }
        for (uint32_t i = 0; i < 8; i++) {
            CHECK(post(world, FREE, 1, 60000) > 0);
        }
        world_client_turn(world);
        uint32_t asked = world_asked(world, RP_OP_SAMPLE);
        CHECK(asked == (records > 1 ? records - 1 : 1), "records %u: %u", records, asked);
        world_close(world);
    }
    check_group("8b a record is left for who waits");
}

/* 9. Given a sample that waited and is drawn behind a newer batch of which a part has come, and
 *    three records. Expect another batch asked for: one place is taken. */
static void situation_counted_once(void) {
    struct world *world = two_tables(3, 3);
    int waiting = post_waiting(world, 8);
    world_run(world, 20 * WORLD_MS);
    int batch = post(world, FREE, BATCH, 60000);
    serve(world);
    CHECK(lose_drawn(world, FREE, 1) > 0);
    (void)hear(world);
    CHECK(rp_client_push(world->client, LIMITED, 0, rows, 8, RP_RUN_ITEM, NULL) == 8);
    rp_client_flush(world->client, LIMITED);
    for (uint32_t i = 0; rp_client_poll(world->client, waiting) == RP_PENDING; i++) {
        CHECK(i < 1000, "it is never drawn");
        world_step(world, WORLD_MS / 100);
        lose_drawn(world, FREE, 1);
    }
    uint32_t before = world_asked(world, RP_OP_SAMPLE);
    CHECK(rp_client_poll(world->client, batch) == RP_PENDING);
    CHECK(post(world, FREE, 1, 60000) > 0);
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_SAMPLE) == before + 1);
    world_close(world);
    check_group("9 a batch takes one place, whatever was drawn behind it");
}

/* 10. Given a sample whose id has fallen more than 64 behind as it is drawn, and the CANCEL by
 *     which its client says that it has come, lost. Expect the server to name it where it is in the
 *     way of two at once, and both to be drawn, then and from then on. */
static void situation_leftover(void) {
    enum { RECORDS = 2, EACH = 8 };
    struct world *world = two_tables(3, RECORDS);
    int waiting = post_waiting(world, EACH);
    world_run(world, 20 * WORLD_MS);
    for (uint32_t i = 0; i < 80; i++) {
        CHECK(world_wait(world, post(world, FREE, 1, 60000)) == 0);
    }
    (void)rp_client_push(world->client, LIMITED, 0, rows, EACH, RP_RUN_ITEM, NULL);
    rp_client_flush(world->client, LIMITED);
    while (counted(world, RP_COUNT_samples) == 80) {
        world_step(world, WORLD_MS / 100);
    }
    world->lose = 1000; /* what is sent from now on */
    while (rp_client_poll(world->client, waiting) == RP_PENDING) {
        world_step(world, WORLD_MS / 100);
    }
    world_run(world, WORLD_MS);
    world->lose = 0;
    uint64_t kept = world->server->sessions[0].record_id[0];
    CHECK(kept == 1 || world->server->sessions[0].record_id[1] == 1, "%" PRIu64, kept);
    uint64_t begin_ns = world->now_ns;
    for (uint32_t i = 0; i < 3; i++) {
        int one = post(world, FREE, 1, 60000), two = post(world, FREE, 1, 60000);
        CHECK(world_wait(world, one) == 0 && world_wait(world, two) == 0);
    }
    CHECK(world->now_ns - begin_ns < 20 * WORLD_MS);
    CHECK(counted(world, RP_COUNT_samples_blocked) == 2, "once as it waited, once by the leftover");
    world_close(world);
    check_group("10 a record that is left over is named, and given up");
}

/* 11. Given a server of one record, which a batch takes whose datagrams are lost for a second, and
 *     a sample that waited and has its items. Expect it to ask again every 50 ms, to miss no items,
 *     and to end with its time as held back by batches; where it has more time, to come as soon as
 *     the batch has. And one more, which is never sent, to end so too. */
static void situation_lacking(uint64_t ms) {
    enum { EACH = 8 };
    struct rp_blocked blocked;
    struct world *world = two_tables(3, 1);
    int waiting = post_waiting_for(world, EACH, ms);
    world_run(world, 20 * WORLD_MS);
    int batch = post(world, FREE, BATCH, 60000);
    while (counted(world, RP_COUNT_samples) == 0) {
        world_step(world, WORLD_MS / 10);
        lose_drawn(world, FREE, 0);
    }
    CHECK(rp_client_push(world->client, LIMITED, 0, rows, EACH, RP_RUN_ITEM, NULL) == EACH);
    rp_client_flush(world->client, LIMITED);
    for (uint64_t end = world_later(world, 1000); world->now_ns < end;) {
        world_step(world, WORLD_MS / 10);
        lose_drawn(world, FREE, 0);
    }
    uint64_t posted_ns = world->now_ns;
    int unsent = post(world, FREE, 1, 100), status;
    while ((status = rp_client_poll(world->client, unsent)) == RP_PENDING) {
        world_step(world, WORLD_MS / 10);
        lose_drawn(world, FREE, 0);
    }
    CHECK(status == -RP_FULL && world->now_ns - posted_ns < 110 * WORLD_MS, "%d", status);
    uint64_t asked = counted(world, RP_COUNT_samples_blocked);
    rp_client_blocked(world->client, waiting, &blocked);
    CHECK(blocked.noted == RP_NO_RECORD && blocked.need == 0 && blocked.by_size == 0);
    CHECK(asked > 5 && asked < 25, "%" PRIu64, asked);
    CHECK(world_wait(world, batch) == 0);
    uint64_t begin_ns = world->now_ns;
    CHECK(world_wait(world, waiting) == (ms < 1000 ? -RP_FULL : RP_OK));
    CHECK(world->now_ns - begin_ns < 5 * WORLD_MS, "it asks as the batch is done");
    world_close(world);
    check_group(ms < 1000 ? "11 who lacks a record asks now and then" : "11 and gets it at once");
}

/* Takes a draw of the free table that has ended, and posts the next. */
static void go_on(struct world *world, int *ticket) {
    if (*ticket != 0 && rp_client_poll(world->client, *ticket) == RP_PENDING) {
        return;
    }
    if (*ticket != 0) {
        CHECK(rp_client_poll(world->client, *ticket) == RP_OK);
        rp_client_take(world->client, *ticket);
    }
    *ticket = post(world, FREE, 1, 60000);
    CHECK(*ticket > 0);
}

/* 12. Given more draws than records that are posted anew as they end, a row pushed in between, so
 *     that another sender has something each time; and one draw more. Expect that one within a few
 *     round trips: who was posted before goes first. */
static void situation_posted_before(uint32_t records, uint32_t ahead) {
    struct world *world = two_tables(3, records);
    int tickets[24] = {0}, one = 0;
    world->delay_ns = WORLD_MS;
    for (uint64_t end = world_later(world, 1000); world->now_ns < end;) {
        for (uint32_t i = 0; i < ahead; i++) {
            if (tickets[i] != 0 && rp_client_poll(world->client, tickets[i]) == RP_PENDING) {
                continue;
            }
            (void)rp_client_push(world->client, FREE, 0, rows, 1, RP_RUN_ITEM, NULL);
            rp_client_flush(world->client, FREE);
            go_on(world, &tickets[i]);
        }
        one = one ? one : post(world, FREE, 1, 60000);
        if (rp_client_poll(world->client, one) != RP_PENDING) {
            break;
        }
        world_step(world, WORLD_MS);
    }
    CHECK(rp_client_poll(world->client, one) == RP_OK, "records %u, %u ahead", records, ahead);
    world_close(world);
}

/* 13. Given a sample that waits for a push that waits for it, and as many batches of another table
 *     as there are records, which have come. Expect both to go on at once: their client has said
 *     that one of the batches is done, as it posts nothing that would. */
static void situation_pair(uint32_t records) {
    struct world *world = two_tables(3, records);
    int batches[8];
    write_rows(world, LIMITED, 11);
    int waiting = post_waiting(world, 20); /* more than lie between the limiter's bounds */
    world_run(world, 20 * WORLD_MS);
    for (uint32_t i = 0; i < records; i++) {
        batches[i] = post(world, FREE, 1, 60000);
    }
    for (uint32_t i = 0; i < records; i++) {
        CHECK(world_wait(world, batches[i]) == RP_OK);
    }
    world_run(world, 5 * WORLD_MS);
    uint64_t begin_ns = world->now_ns;
    CHECK(rp_client_push(world->client, LIMITED, 0, rows, 10, RP_RUN_ITEM, NULL) == 10);
    rp_client_flush(world->client, LIMITED);
    CHECK(world_wait(world, waiting) == RP_OK);
    CHECK(world->now_ns - begin_ns < 20 * WORLD_MS, "records %u: %u ms", records,
          (unsigned)((world->now_ns - begin_ns) / WORLD_MS));
    world_close(world);
}

/* 14. Given samples that wait, few records, and more draws of another table than these, posted anew
 *     as they end; then items for all that wait. Expect each within some round trips: who lacks a
 *     record gets the next one, and who waits behind it is woken. */
static void situation_gets_the_next(uint32_t records, uint32_t ahead, uint32_t waits) {
    enum { EACH = 4, MOST_MS = 200 };
    struct world *world = two_tables(3, records);
    int waiting[8], tickets[8] = {0};
    world->delay_ns = 4 * WORLD_MS;
    for (uint32_t i = 0; i < waits; i++) {
        waiting[i] = post_waiting(world, EACH);
    }
    uint64_t push_ns = world_later(world, 70), end = world_later(world, 70 + MOST_MS);
    for (uint32_t left = waits, unpushed = EACH * waits; left > 0; world_step(world, WORLD_MS)) {
        CHECK(world->now_ns < end, "records %u: %u still wait", records, left);
        if (unpushed > 0 && world->now_ns > push_ns) {
            int taken = rp_client_push(world->client, LIMITED, 0, rows, unpushed, RP_RUN_ITEM,
                                       NULL);
            unpushed -= taken > 0 ? (uint32_t)taken : 0;
            rp_client_flush(world->client, LIMITED);
        }
        left = 0;
        for (uint32_t i = 0; i < waits; i++) {
            left += rp_client_poll(world->client, waiting[i]) == RP_PENDING;
        }
        for (uint32_t i = 0; i < ahead; i++) {
            go_on(world, &tickets[i]);
        }
    }
    world_close(world);
}

/* 15. Given a batch that takes the only record, its datagrams lost. Expect a draw that does not
 *     wait to end at once as held back by batches, and nothing to be drawn for it later. */
static void situation_poll(void) {
    struct world *world = two_tables(3, 1);
    int batch = post(world, FREE, BATCH, 60000);
    while (counted(world, RP_COUNT_samples) == 0) {
        world_step(world, WORLD_MS / 10);
        lose_drawn(world, FREE, 0);
    }
    uint64_t begin_ns = world->now_ns;
    CHECK(world_wait(world, post(world, FREE, 1, 0)) == -RP_FULL);
    CHECK(world->now_ns - begin_ns < 5 * WORLD_MS);
    CHECK(world_wait(world, batch) == RP_OK && counted(world, RP_COUNT_samples) == 1);
    world_close(world);
    check_group("15 who does not wait lacks a record at once");
}

int main(void) {
    situation_ahead();
    situation_given_up();
    situation_unheard();
    situation_let_on();
    situation_one_record();
    situation_dropped();
    situation_without_a_place();
    situation_as_many();
    situation_left_for_it();
    situation_counted_once();
    situation_leftover();
    situation_lacking(500);
    situation_lacking(60000);
    situation_posted_before(1, 2);
    situation_posted_before(4, 8);
    situation_posted_before(8, 12);
    check_group("12 who was posted before is sent before");
    for (uint32_t records = 1; records <= 8; records *= 2) {
        situation_pair(records);
    }
    check_group("13 who waits has a record as its turn comes");
    situation_gets_the_next(1, 2, 1);
    situation_gets_the_next(2, 4, 4);
    check_group("14 who lacks a record gets the next one");
    situation_poll();
    return check_done("test_client_records");
}
