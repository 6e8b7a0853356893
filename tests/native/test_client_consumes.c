/* What is drawn from a queue is drawn for somebody: a draw that ends, by its time, by a server that
 * closes or by a record that is gone, ends as what became of it. Situations read "Given ...
 * Expect ...".
 */
#include "client_world.h"

enum { ITEM = 16, BATCH = 64, ROWS = 64, MAIN = 0, QUEUE = 1 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info infos[2];
static uint8_t bytes[2][BATCH * ITEM], rows[ROWS * ITEM];
static struct rp_landing_column columns[2] = {{bytes[0], ITEM, 0, ITEM}, {bytes[1], ITEM, 0, ITEM}};

static void open_writer(struct world *world, const char *name, uint16_t table) {
    struct rp_writer_granted granted;
    uint64_t deadline = world_later(world, 5000);
    struct rp_table_info *info = &infos[table];
    CHECK(world_wait(world, rp_client_table(world->client, name, info, deadline)) == 0);
    CHECK(world_wait(world, rp_client_writer(world->client, info, 1, &granted, deadline)) == 0);
}

/* A plain table and a queue of 60, and a client of both. budget: datagrams that may be on their way
 * to it. */
static struct world *opened(uint64_t seed, uint32_t budget) {
    struct rp_client_options options = world_options();
    script_tables(tables);
    tables[MAIN].plan_count = 1; /* steps are items */
    tables[QUEUE].alpha = 0;
    tables[QUEUE].fifo = 1;
    tables[QUEUE].error_max = 60;
    config = script_config(tables);
    options.receive_budget = budget;
    options.mtu = budget < 64 ? 512 : options.mtu; /* so that a batch takes several pulls */
    options.connect_timeout_ns = 5000 * WORLD_MS; /* longer than a last look */
    struct world *world = world_open(&config, seed);
    world_client(world, &options);
    world_connect(world);
    open_writer(world, "main", MAIN);
    open_writer(world, "rows", QUEUE);
    return world;
}

static void push(struct world *world, uint16_t table, uint32_t count) {
    for (uint32_t done = 0, tries = 0; done < count; tries++) {
        int taken = rp_client_push(world->client, table, 0, rows, count - done, RP_RUN_ITEM, NULL);
        CHECK(tries < 1000);
        done += taken > 0 ? (uint32_t)taken : 0;
        rp_client_flush(world->client, table);
        world_run(world, WORLD_MS);
    }
    world_run(world, 5 * WORLD_MS);
}

static int post(struct world *world, uint16_t table, uint32_t count, uint64_t ms) {
    struct rp_sample request = {.count = count};
    struct rp_landing landing = {.columns = &columns[table], .column_count = 1,
                                 .item_bytes = ITEM, .consumes = table == QUEUE};
    uint64_t deadline = ms ? world_later(world, ms) : 0;
    return rp_client_sample(world->client, table, &request, NULL, &landing, deadline);
}

static uint64_t sampled(struct world *world, uint16_t table) {
    struct rp_table_info info;
    rp_table_info(&world->server->tables[table], &info);
    return info.sampled;
}

static int pending(struct world *world, int ticket) {
    return rp_client_poll(world->client, ticket) == RP_PENDING;
}

/* 1. Given three items where four are asked for, by a draw that does not wait, and by one whose
 *    time runs out. Expect both to end as BLOCKED without a word more to the server, and nothing to
 *    be drawn for them as more items come; the next draw gets the oldest. */
static void situation_given_up(void) {
    for (uint64_t ms = 0; ms <= 1500; ms += 1500) {
        struct world *world = opened(1, 64);
        push(world, QUEUE, 3);
        CHECK(world_wait(world, post(world, QUEUE, 4, ms)) == -RP_BLOCKED);
        world_client_turn(world);
        CHECK(world_asked(world, RP_OP_CANCEL) == 0);
        push(world, QUEUE, 5);
        CHECK(sampled(world, QUEUE) == 0, "%llu", (unsigned long long)sampled(world, QUEUE));
        CHECK(world_wait(world, post(world, QUEUE, 8, 1000)) == RP_OK);
        world_close(world);
    }
    check_group("1 nothing is drawn for who gave up");
}

/* 2. Given a draw that waits, and is drawn while the network is cut, until its time is over. Expect
 *    it to ask once more, and to end with its batch; where nobody answers, as TIMEOUT, soon. */
static void situation_drawn_late(void) {
    for (int silent = 0; silent < 2; silent++) {
        struct world *world = opened(2, 64);
        push(world, QUEUE, 3);
        int ticket = post(world, QUEUE, 4, 200);
        world_run(world, 50 * WORLD_MS);
        uint64_t end = world_later(world, 250);
        CHECK(rp_client_push(world->client, QUEUE, 0, rows, 1, RP_RUN_ITEM, NULL) == 1);
        rp_client_flush(world->client, QUEUE);
        world_client_turn(world);
        world->now_ns += WORLD_MS;
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        CHECK(sampled(world, QUEUE) == 4);
        for (; world->now_ns < end; world->now_ns += 10 * WORLD_MS) { /* the cut */
            world_lose_all(world);
            world_client_turn(world);
        }
        CHECK(pending(world, ticket), "it may have been drawn: its answer is waited for");
        world->deaf = silent;
        uint64_t before = world->now_ns;
        CHECK(world_wait(world, ticket) == (silent ? -RP_TIMEOUT : RP_OK));
        CHECK(world->now_ns - before < 1100 * WORLD_MS);
        CHECK(sampled(world, QUEUE) == 4);
        world_close(world);
    }
    check_group("2 who was drawn for as its time ran out gets its batch");
}

/* 3. Given two draws of one client that wait, of which the server knows the first, and more than 64
 *    of another table, whose ids leave the second behind. Expect both to get their batches. */
static void situation_left_behind(void) {
    struct world *world = opened(3, 64);
    push(world, MAIN, 8);
    int first = post(world, QUEUE, 4, 60000), second = post(world, QUEUE, 5, 60000);
    world_run(world, 20 * WORLD_MS);
    for (uint32_t i = 0; i < 80; i++) {
        CHECK(world_wait(world, post(world, MAIN, 1, 1000)) == RP_OK);
    }
    world_run(world, 3000 * WORLD_MS); /* both ask again */
    CHECK(rp_server_counters(world->server)[RP_COUNT_samples_forgotten] > 0);
    CHECK(pending(world, first) && pending(world, second));
    push(world, QUEUE, 9);
    CHECK(world_wait(world, first) == RP_OK && world_wait(world, second) == RP_OK);
    CHECK(sampled(world, QUEUE) == 9);
    world_close(world);
    check_group("3 who waits without a place is drawn for later");
}

/* 4. Given a batch between two pulls, and a server that lost what it drew, as none of ours does.
 *    Expect the draw to end as FORGOTTEN: its items are gone. */
static void situation_record_gone(void) {
    struct world *world = opened(4, 2);
    push(world, QUEUE, 60);
    int ticket = post(world, QUEUE, 60, 60000);
    while (sampled(world, QUEUE) == 0) {
        world_turn(world);
        world_advance(world, WORLD_MS / 100);
    }
    world_turn(world); /* the first train lands */
    memset(world->server->sessions[0].record_id, 0, 8 * config.records);
    CHECK(world_wait(world, ticket) == -RP_FORGOTTEN);
    CHECK(sampled(world, QUEUE) == 60);
    world_close(world);
    check_group("4 a batch whose record is gone is told of");
}

/* 5. Given rows of a queue read by their keys, and a session that expires before the answer. Expect
 *    them to be read in the next one: nothing was drawn. */
static void situation_keys(void) {
    struct world *world = opened(5, 64);
    push(world, QUEUE, 4);
    uint64_t keys[2] = {SCRIPT_CAPACITY, SCRIPT_CAPACITY + 1};
    struct rp_sample request = {.count = 2, .mode = RP_SAMPLE_KEYS};
    struct rp_landing landing = {.columns = &columns[QUEUE], .column_count = 1,
                                 .item_bytes = ITEM, .consumes = 1};
    int ticket = rp_client_sample(world->client, QUEUE, &request, keys, &landing,
                                  world_later(world, 200000));
    world_client_turn(world);
    world_expire(world, 1000000ull * config.idle_ms);
    CHECK(world_wait(world, ticket) == RP_OK);
    world_close(world);
    check_group("5 reading is no drawing");
}

/* 6. Given a session that expires while a draw of each table was sent. Expect that of the queue to
 *    end as that, since it may have been drawn, and the other to be drawn in the next session. */
static void situation_expired(void) {
    struct world *world = opened(6, 64);
    push(world, QUEUE, 8);
    push(world, MAIN, 8);
    int queue = post(world, QUEUE, 4, 200000), plain = post(world, MAIN, 4, 200000);
    world_client_turn(world);
    world_expire(world, 1000000ull * config.idle_ms);
    CHECK(world_wait(world, queue) == -RP_SESSION_EXPIRED);
    CHECK(world_wait(world, plain) == RP_OK);
    CHECK(sampled(world, QUEUE) == 0 && sampled(world, MAIN) == 4);
    world_close(world);
    check_group("6 what a session that expired may have drawn is told of");
}

/* 7. Given a batch between two pulls, and one of another table that waits, as the server closes.
 *    Expect the latter to end as CLOSED, with those behind it at its table, and the former to go on
 *    at the next server that has the region. */
static void situation_closed(void) {
    char error[256];
    uint8_t entropy[32];
    struct world *world = opened(7, 2);
    push(world, MAIN, 2);
    push(world, QUEUE, 60);
    int waits = post(world, MAIN, 3, 60000); /* fewer are there than its least size */
    world_run(world, 20 * WORLD_MS);
    int batch = post(world, QUEUE, 60, 60000);
    world_client_turn(world);
    world->now_ns += WORLD_MS;
    rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
    CHECK(sampled(world, QUEUE) == 60);
    rp_server_last_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns, 1);
    world->now_ns += WORLD_MS;
    world_client_turn(world);
    CHECK(rp_client_poll(world->client, waits) == -RP_CLOSED);
    CHECK(pending(world, batch));
    script_entropy(entropy, 9);
    CHECK(rp_server_attach(&world->server, world->region, world->region_bytes, &config, entropy,
                           world->now_ns, error) == 0, "%s", error);
    CHECK(world_wait(world, batch) == RP_OK);
    CHECK(sampled(world, QUEUE) == 60);
    world_close(world);
    check_group("7 a batch under way outlasts its server");
}

/* 8. Given three draws of a queue and one of another table, of which the server was asked for one
 *    as it closes. Expect those three to end as CLOSED: two would have waited behind the first. */
static void situation_closed_behind(void) {
    struct world *world = opened(8, 64);
    struct rp_port *port = (void *)&world->ports[0];
    int draws[4];
    world_run(world, 100 * WORLD_MS);
    for (int i = 0; i < 4; i++) {
        draws[i] = post(world, i < 3 ? QUEUE : MAIN, 4, 60000);
    }
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_SAMPLE) < 3);
    world->now_ns += WORLD_MS;
    rp_server_turn(world->server, port, world->now_ns);
    rp_server_last_turn(world->server, port, world->now_ns, 1);
    world->now_ns += WORLD_MS;
    world_client_turn(world);
    for (int i = 0; i < 3; i++) {
        CHECK(rp_client_poll(world->client, draws[i]) == -RP_CLOSED, "draw %d", i);
    }
    CHECK(pending(world, draws[3]));
    world_close(world);
    check_group("8 who waits behind others hears it too");
}

/* 9. Given a draw whose time is over before the answer to its first question comes, which says that
 *    it has a place. Expect it to leave that place, and nothing to be drawn for it. */
static void situation_place_left(void) {
    struct world *world = opened(9, 64);
    push(world, QUEUE, 3);
    world_run(world, 100 * WORLD_MS);
    int ticket = post(world, QUEUE, 4, 1);
    world_client_turn(world);
    world->now_ns += WORLD_MS;
    rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
    CHECK(world_find(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER, 0) != NULL);
    world_client_turn(world); /* its time is over */
    CHECK(pending(world, ticket) && world_asked(world, RP_OP_SAMPLE) == 0);
    CHECK(world_wait(world, ticket) == -RP_BLOCKED);
    push(world, QUEUE, 5);
    CHECK(sampled(world, QUEUE) == 0);
    world_close(world);
    check_group("9 a place that came too late is left");
}

/* 10. Given a draw that waits without a place, whose repeat is lost, so that it asks twice, and is
 *     FORGOTTEN by then. Expect it to be asked for anew, since nothing was drawn for it. */
static void situation_asked_twice(void) {
    struct world *world = opened(10, 64);
    push(world, MAIN, 8);
    int first = post(world, QUEUE, 4, 60000), second = post(world, QUEUE, 5, 60000);
    world_run(world, 20 * WORLD_MS);
    for (uint32_t i = 0; i < 80; i++) {
        CHECK(world_wait(world, post(world, MAIN, 1, 1000)) == RP_OK);
    }
    world->lose = 1000;
    world_run(world, 1000 * WORLD_MS);
    world->lose = 0;
    world_run(world, 2000 * WORLD_MS);
    CHECK(rp_server_counters(world->server)[RP_COUNT_samples_forgotten] > 0);
    CHECK(pending(world, first) && pending(world, second));
    push(world, QUEUE, 9);
    CHECK(world_wait(world, first) == RP_OK && world_wait(world, second) == RP_OK);
    CHECK(sampled(world, QUEUE) == 9);
    world_close(world);
    check_group("10 what was not drawn is asked for anew, however often it was asked for");
}

/* 11. Given a draw that is never sent, since nobody is there. Expect it to end with its time. */
static void situation_never_sent(void) {
    struct world *world = opened(11, 64);
    world_expire(world, 1000000ull * config.idle_ms);
    world->deaf = 1;
    int lookup = rp_client_table_number(world->client, MAIN, &infos[MAIN], world_later(world, 10));
    CHECK(world_wait(world, lookup) == -RP_TIMEOUT);
    world->full = 1;
    uint64_t begin = world->now_ns;
    CHECK(world_wait(world, post(world, QUEUE, 4, 100)) == -RP_TIMEOUT);
    CHECK(world->now_ns - begin < 200 * WORLD_MS);
    world_close(world);
    check_group("11 nothing is waited for that was not asked");
}

/* 12. Given a draw that waited at a queue and was drawn, and its train lost, as the server closes
 *     and tells a draw of another table so. Expect it to get its batch from the server that takes
 *     the region over. */
static void situation_closed_elsewhere(void) {
    char error[256];
    uint8_t entropy[32];
    struct world *world = opened(12, 64);
    struct rp_port *port = (void *)&world->ports[0];
    push(world, QUEUE, 3);
    push(world, MAIN, 2);
    int queue = post(world, QUEUE, 4, 60000), plain = post(world, MAIN, 3, 60000);
    world_run(world, 20 * WORLD_MS);
    CHECK(rp_client_push(world->client, QUEUE, 0, rows, 1, RP_RUN_ITEM, NULL) == 1);
    rp_client_flush(world->client, QUEUE);
    world_client_turn(world);
    world->now_ns += WORLD_MS;
    rp_server_turn(world->server, port, world->now_ns);
    CHECK(sampled(world, QUEUE) == 4);
    world_lose_all(world);
    rp_server_last_turn(world->server, port, world->now_ns, 1);
    world->now_ns += WORLD_MS;
    world_client_turn(world);
    CHECK(rp_client_poll(world->client, plain) == -RP_CLOSED);
    CHECK(pending(world, queue));
    script_entropy(entropy, 9);
    CHECK(rp_server_attach(&world->server, world->region, world->region_bytes, &config, entropy,
                           world->now_ns, error) == 0, "%s", error);
    CHECK(world_wait(world, queue) == RP_OK && sampled(world, QUEUE) == 4);
    world_close(world);
    check_group("12 what may be drawn is not ended by another table");
}

/* 13. Given a draw that does not wait, and is told so, but that answer is lost. Expect it to end so
 *     by the answer to its repeat, which says that nothing is drawn for it any more. */
static void situation_told_in_vain(void) {
    struct world *world = opened(13, 64);
    push(world, QUEUE, 3);
    world_run(world, 100 * WORLD_MS);
    int ticket = post(world, QUEUE, 4, 0);
    world_client_turn(world);
    world->now_ns += WORLD_MS;
    rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
    world_lose_all(world);
    while (pending(world, ticket)) {
        world_step(world, WORLD_MS);
    }
    struct rp_blocked blocked;
    rp_client_blocked(world->client, ticket, &blocked);
    CHECK(blocked.need == 1, "what is missing is not known, but something is");
    CHECK(world_wait(world, ticket) == -RP_BLOCKED);
    CHECK(sampled(world, QUEUE) == 0);
    CHECK(rp_server_counters(world->server)[RP_COUNT_samples_forgotten] == 1);
    CHECK(rp_server_counters(world->server)[RP_COUNT_samples_blocked] == 1);
    world_close(world);
    check_group("13 whose answer was lost learns what became of it");
}

/* 14. Given a draw that waits, and an answer that it is given up, though it did not ask so. Expect
 *     that dropped. */
static void situation_given_up_unasked(void) {
    struct world *world = opened(14, 64);
    struct world_datagram *answer;
    push(world, QUEUE, 3);
    int ticket = post(world, QUEUE, 4, 60000);
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    struct rp_blocked *hold = (void *)(answer->data + RP_ANSWER_BYTES);
    CHECK(hold->noted == RP_PLACE);
    hold->noted = RP_GIVEN_UP;
    world_reseal(answer);
    world_run(world, 5 * WORLD_MS);
    CHECK(pending(world, ticket));
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_reserved] == 1);
    world_close(world);
    check_group("14 who waits is not given up");
}

/* 15. Given two draws that wait, the second without a place, and the first one's time over. Expect
 *     the second to take its place at once, and to be drawn as its items come. */
static void situation_next_is_woken(void) {
    struct world *world = opened(15, 64);
    push(world, QUEUE, 3);
    int first = post(world, QUEUE, 40, 100), second = post(world, QUEUE, 4, 60000);
    while (pending(world, first)) {
        world_step(world, WORLD_MS);
    }
    world_run(world, 5 * WORLD_MS);
    CHECK(world->server->waiting[RP_WAIT_SAMPLE][QUEUE].count == 1, "the second has a place");
    CHECK(rp_client_poll(world->client, first) == -RP_BLOCKED);
    push(world, QUEUE, 1);
    CHECK(rp_client_poll(world->client, second) == RP_OK);
    world_close(world);
    check_group("15 who waits behind one that gives up goes on");
}

/* 16. Given two draws that wait at a queue, of which the first is drawn and wakes the second, which
 *     is drawn too; that train is lost, and the server closes and tells a draw of another table so.
 *     Expect the second to get its batch from the server that takes the region over. */
static void situation_woken_and_closed(void) {
    char error[256];
    uint8_t entropy[32];
    struct world *world = opened(17, 64);
    struct rp_port *port = (void *)&world->ports[0];
    push(world, MAIN, 2);
    push(world, QUEUE, 3);
    int first = post(world, QUEUE, 4, 60000), second = post(world, QUEUE, 5, 60000);
    int plain = post(world, MAIN, 3, 60000);
    world_run(world, 50 * WORLD_MS);
    CHECK(rp_client_push(world->client, QUEUE, 0, rows, 6, RP_RUN_ITEM, NULL) == 6);
    rp_client_flush(world->client, QUEUE);
    while (sampled(world, QUEUE) < 9) {
        world_turn(world);
        world_advance(world, WORLD_MS / 100);
    }
    CHECK(rp_client_poll(world->client, first) == RP_OK && pending(world, second));
    world_lose_all(world);
    rp_server_last_turn(world->server, port, world->now_ns, 1);
    world->now_ns += WORLD_MS;
    world_client_turn(world);
    CHECK(rp_client_poll(world->client, plain) == -RP_CLOSED);
    script_entropy(entropy, 9);
    CHECK(rp_server_attach(&world->server, world->region, world->region_bytes, &config, entropy,
                           world->now_ns, error) == 0, "%s", error);
    CHECK(world_wait(world, second) == RP_OK && sampled(world, QUEUE) == 9);
    world_close(world);
    check_group("16 who may have a place is not ended by another table");
}

/* Drops whatever of the queue's draws is on its way, to one end. */
static void lose_queue(struct world_port *port, uint8_t op) {
    for (uint32_t i = 0; i < port->count; i++) {
        const struct rp_message *message = world_message(&port->queue[i]);
        if (message->op == op && message->table == QUEUE) {
            free(port->queue[i].data);
            memmove(&port->queue[i], &port->queue[i + 1],
                    (--port->count - i) * sizeof port->queue[0]);
            i--;
        }
    }
}

/* The next answer to a draw of the queue, on a detour: it does not come by itself. */
static struct world_datagram detour(struct world *world) {
    struct world_datagram *answer;
    while ((answer = world_find(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER, 0)) == NULL) {
        world_turn(world);
        world_advance(world, WORLD_MS / 100);
    }
    struct world_datagram late = *answer;
    late.data = malloc(answer->size);
    memcpy(late.data, answer->data, answer->size);
    lose_queue(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER);
    return late;
}

/* A turn of each end; of the queue's draws nothing comes through. */
static void turns_without_queue(struct world *world) {
    world_client_turn(world);
    lose_queue(&world->ports[0], RP_OP_SAMPLE);
    world->now_ns += WORLD_MS / 10;
    rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
    lose_queue(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER);
    world->now_ns += WORLD_MS / 10;
}

/* 17. Given a draw that waits, whose first BLOCKED comes late: meanwhile it was drawn and its train
 *     lost, it asked again in vain, and many more others came than there are records, or ids that
 *     a SAMPLE tells of. Expect it to get its batch, also where its time is over. */
static void situation_late_answer(uint64_t ms) {
    struct world *world = opened(16, 64);
    push(world, MAIN, 8);
    push(world, QUEUE, 3);
    world_run(world, 100 * WORLD_MS);
    int ticket = post(world, QUEUE, 4, ms);
    struct world_datagram late = detour(world);
    CHECK(rp_client_push(world->client, QUEUE, 0, rows, 1, RP_RUN_ITEM, NULL) == 1);
    rp_client_flush(world->client, QUEUE);
    while (sampled(world, QUEUE) == 0) {
        turns_without_queue(world);
    }
    for (uint32_t i = 0; i < RP_TOLD_OF; i++) {
        int other = post(world, MAIN, 1, 1000);
        while (pending(world, other)) {
            turns_without_queue(world);
        }
        rp_client_take(world->client, other);
        if (i == 2) {
            while (world_client_turn(world), world_asked(world, RP_OP_SAMPLE) == 0) {
                turns_without_queue(world); /* until it asks again */
            }
            turns_without_queue(world);
            late.due_ns = world->now_ns;
            world->ports[1].queue[world->ports[1].count++] = late;
            world_client_turn(world);
        }
    }
    int status = world_wait(world, ticket);
    CHECK(status == RP_OK, "%d", status);
    CHECK(sampled(world, QUEUE) == 4);
    world_run(world, 100 * WORLD_MS);
    for (uint32_t i = 0; i < config.records; i++) { /* its id, 1, is far behind by now */
        CHECK(world->server->sessions[0].record_id[i] != 1, "nothing is kept of it");
    }
    world_close(world);
    check_group(ms < 100 ? "17 nor where its time was over" : "17 a late answer hides no batch");
}

/* 18. Given a draw whose first BLOCKED, which says it has no place, comes late: meanwhile it asked
 *     again, got the place, and was drawn, its train lost; then the server closes, and tells a draw
 *     of another table so. Expect it to go on at the next server. */
static void situation_late_and_closed(void) {
    struct world *world = opened(16, 64);
    push(world, MAIN, 2);
    push(world, QUEUE, 3);
    world_run(world, 50 * WORLD_MS);
    int first = post(world, QUEUE, 16, 60000), plain = post(world, MAIN, 3, 60000);
    world_run(world, 50 * WORLD_MS);
    int second = post(world, QUEUE, 4, 60000);
    struct world_datagram late = detour(world);
    rp_client_take(world->client, first); /* its place is free */
    world_run(world, 40 * WORLD_MS);
    CHECK(rp_client_push(world->client, QUEUE, 0, rows, 1, RP_RUN_ITEM, NULL) == 1);
    rp_client_flush(world->client, QUEUE);
    while (sampled(world, QUEUE) == 0) {
        turns_without_queue(world);
    }
    late.due_ns = world->now_ns;
    world->ports[1].queue[world->ports[1].count++] = late;
    world_client_turn(world);
    world_lose_all(world);
    rp_server_last_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns, 1);
    world->now_ns += WORLD_MS;
    world_client_turn(world);
    CHECK(rp_client_poll(world->client, plain) == -RP_CLOSED);
    CHECK(pending(world, second), "%d", rp_client_poll(world->client, second));
    world_close(world);
    check_group("18 a late answer takes no place away");
}

/* 19. Given a draw each of whose questions is lost until so many others of its client came that its
 *     id is forgotten, five times. Expect it to be asked for anew each time, and to come. */
static void situation_outrun(void) {
    struct world *world = opened(19, 64);
    push(world, MAIN, 8);
    push(world, QUEUE, 4);
    world_run(world, 100 * WORLD_MS);
    int ticket = post(world, QUEUE, 4, 60000);
    for (uint64_t times = 1; times <= 5; times++) {
        for (uint32_t i = 0; i < 70; i++) {
            int other = post(world, MAIN, 1, 1000);
            while (pending(world, other)) {
                turns_without_queue(world);
            }
            rp_client_take(world->client, other);
        }
        while (rp_server_counters(world->server)[RP_COUNT_samples_forgotten] < times) {
            CHECK(pending(world, ticket));
            world_step(world, WORLD_MS / 10);
        }
        while (world->ports[1].count > 0) { /* it hears that, and asks under a new id */
            world_client_turn(world);
            world->now_ns += WORLD_MS / 100;
        }
    }
    CHECK(world_wait(world, ticket) == RP_OK && sampled(world, QUEUE) == 4);
    world_close(world);
    check_group("19 who is outrun by others asks anew");
}

int main(void) {
    situation_given_up();
    situation_drawn_late();
    situation_left_behind();
    situation_record_gone();
    situation_keys();
    situation_expired();
    situation_closed();
    situation_closed_behind();
    situation_place_left();
    situation_asked_twice();
    situation_never_sent();
    situation_closed_elsewhere();
    situation_told_in_vain();
    situation_given_up_unasked();
    situation_next_is_woken();
    situation_woken_and_closed();
    situation_late_answer(300);
    situation_late_answer(5);
    situation_late_and_closed();
    situation_outrun();
    return check_done("test_client_consumes");
}
