/* What a writer sends, and when: messages that fill, wait for company, are held back, lose
 * their places; and what its caller is told. Situations read "Given ... Expect ...". */
#include <math.h>
#include <stddef.h>

#include "client_rows.h"

enum { STEPS_MAX = 64, ITEMS = RP_RUN_ITEM | RP_RUN_PRIORITY };

static struct rp_table_config tables[2];
static struct rp_server_config config;

static void defaults(void) {
    config = world_config(tables);
}

static struct world *fresh(uint64_t seed, const struct rp_client_options *options) {
    static struct rp_writer_granted granted;
    struct rp_table_info info;
    struct world *world = world_open(&config, seed);
    world_client(world, options);
    world_connect(world);
    int ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 2, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    return world;
}

/* Steps from..from + count of a stream: each says which it is, its priority is that and one. */
static int push(struct world *world, uint16_t stream, uint32_t from, uint32_t count,
                uint32_t flags) {
    uint64_t steps[2 * STEPS_MAX];
    double priorities[STEPS_MAX];
    CHECK(count <= STEPS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        steps[2 * i] = 1000 * stream + from + i;
        steps[2 * i + 1] = 0;
        priorities[i] = from + i + 1;
    }
    return rp_client_push(world->client, ROWS, stream, (const uint8_t *)steps, count, flags,
                          flags & RP_RUN_PRIORITY ? priorities : NULL);
}

/* ---- PUSH datagrams on their way to the server ---- */

static const struct rp_push *push_at(const struct world_datagram *datagram) {
    return (const void *)(datagram->data + RP_HEADER_BYTES);
}

static const struct rp_run *run_at(const struct world_datagram *datagram, uint32_t index) {
    const uint8_t *at = (const uint8_t *)(push_at(datagram) + 1);
    CHECK(index < push_at(datagram)->run_count, "run %u of %u", index,
          push_at(datagram)->run_count);
    while (index-- > 0) {
        at += sizeof(struct rp_run) + ((const struct rp_run *)(const void *)at)->size;
    }
    return (const void *)at;
}

/* Steps [from, from + count) of a stream, with their priorities, and nothing else. */
static void run_check(const struct rp_run *run, uint16_t stream, uint32_t from, uint32_t count) {
    const uint8_t *at = (const uint8_t *)(run + 1);
    CHECK(run->stream == stream && run->step == from && run->count == count,
          "stream %u, step %" PRIu64 ", %u steps", run->stream, run->step, run->count);
    CHECK(run->size == 24 * count && run->flags == ITEMS);
    for (uint32_t i = 0; i < count; i++) {
        double priority;
        uint64_t value;
        memcpy(&priority, at + 8 * i, 8);
        memcpy(&value, at + 8 * count + 16 * i, 8);
        CHECK(priority == from + i + 1 && value == 1000u * stream + from + i, "step %u", from + i);
    }
}

/* 1. Given steps posted one at a time, and no flush. Expect the first to leave at once; those
 *    posted while it is under way to wait for its answer, and to leave with it, together. */
static void situation_company(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(1, &options);
    CHECK(push(world, 0, 0, 1, 0) == 1);
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_PUSH) == 1);
    for (uint32_t i = 1; i < 4; i++) {
        CHECK(push(world, 0, i, 1, 0) == 1);
        world_client_turn(world);
        CHECK(world_asked(world, RP_OP_PUSH) == 1, "step %u did not wait", i);
    }
    uint64_t sent = world->ports[1].sent;
    settle(world);
    CHECK(world->ports[1].sent == sent + 1, "%" PRIu64 " datagrams", world->ports[1].sent - sent);
    CHECK(state_of(world).steps_stored == 4);
    world_close(world);
    check_group("1 steps wait for what is under way, not for a flush");
}

/* 2. Given more steps than half the window, in small posts and a large one. Expect no message of
 *    more than half, and the window to be kept. */
static void situation_half(void) {
    enum { WINDOW = 32 }; /* a datagram of the smallest mtu holds more than half of it */
    struct rp_client_options options = world_options();
    options.unacknowledged_max = 1000;
    options.mtu = RP_MTU_MIN;
    tables[1].window = WINDOW;
    tables[1].capacity = 2 * SCRIPT_CAPACITY;
    struct world *world = fresh(2, &options);
    uint32_t posted = 0, seen = 0;
    world->deaf = 1;
    for (uint32_t i = 0; i < 5; i++) {
        posted += (uint32_t)push(world, 0, posted, i == 4 ? 30 : 10, 0);
    }
    CHECK(posted == 70);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    for (uint32_t i = 0; i < world->ports[0].count; i++) {
        const struct world_datagram *datagram = &world->ports[0].queue[i];
        uint32_t steps = 0;
        for (uint32_t k = 0; k < push_at(datagram)->run_count; k++) {
            steps += run_at(datagram, k)->count;
        }
        CHECK(steps <= WINDOW / 2, "%u steps in a message", steps);
        seen += steps;
    }
    CHECK(seen == WINDOW, "%u of a window", seen);
    world->deaf = 0;
    settle(world);
    CHECK(state_of(world).steps_stored == 70);
    world_close(world);
    defaults();
    check_group("2 no message of more than half the window");
}

/* 3. Given a step that is stored, and a create of it alone, not flushed. Expect the item. Given no
 *    message left. Expect FULL, and nothing posted. */
static void situation_create(void) {
    struct rp_client_options options = world_options();
    options.messages_max = 2;
    struct world *world = fresh(3, &options);
    CHECK(push(world, 0, 0, 1, 0) == 1);
    settle(world);
    CHECK(rp_client_deadline(world->client) > world->now_ns);
    CHECK(rp_client_create(world->client, ROWS, 0, 0, 1.0, 0) == 0);
    CHECK(rp_client_deadline(world->client) <= world->now_ns, "it does not leave");
    settle(world);
    CHECK(state_of(world).items_created == 1 && state_of(world).items_posted == 1);
    world->deaf = 1;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(push(world, 0, 1 + i, 1, 0) == 1);
        rp_client_flush(world->client, ROWS);
        world_client_turn(world);
    }
    CHECK(rp_client_create(world->client, ROWS, 0, 1, 1.0, 0) == -RP_FULL);
    CHECK(push(world, 0, 3, 1, 0) == 0);
    CHECK(state_of(world).items_posted == 1 && state_of(world).steps_posted == 3);
    world->deaf = 0;
    settle(world);
    CHECK(rp_client_create(world->client, ROWS, 0, 1, 1.0, 0) == 0);
    settle(world);
    CHECK(state_of(world).items_created == 2 && state_of(world).items_failed == 0);
    world_close(world);
    check_group("3 creates alone; no message left");
}

/* 4. Given a create that overtakes its step, and one whose step the server says it does not know
 *    though it is stored. Expect the first to be tried again and made; the second to fail. */
static void situation_early(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(4, &options);
    CHECK(push(world, 0, 0, 3, 0) == 3);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    world_lose(world, RP_OP_PUSH);
    CHECK(rp_client_create(world->client, ROWS, 0, 2, 1.0, 0) == 0);
    rp_client_flush(world->client, ROWS);
    struct world_datagram *answer;
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_PUSH | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    uint8_t *status = answer->data + RP_ANSWER_BYTES + sizeof(struct rp_pushed);
    CHECK(*status == RP_NOT_YET);
    *status = RP_UNKNOWN_STEP; /* what a server says of a step that is far ahead */
    world_reseal(answer);
    settle(world);
    CHECK(state_of(world).items_created == 1 && state_of(world).items_failed == 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(rp_client_create(world->client, ROWS, 0, i, 1.0, 0) == 0);
    }
    rp_client_flush(world->client, ROWS);
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_PUSH | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    answer->data[RP_ANSWER_BYTES + sizeof(struct rp_pushed) + 1] = RP_UNKNOWN_STEP;
    world_reseal(answer);
    settle(world);
    CHECK(state_of(world).items_created == 2 && state_of(world).items_failed == 1,
          "%" PRIu64 " and %" PRIu64, state_of(world).items_created, state_of(world).items_failed);
    world_close(world);
    check_group("4 creates before their step, and of none");
}

/* ---- the limiter ---- */

/* Runs until an answer to PUSH is on its way that says BLOCKED; null: none comes. */
static struct world_datagram *blocked_answer(struct world *world) {
    for (uint32_t i = 0; i < 1000; i++) {
        struct world_datagram *datagram;
        world_turn(world);
        for (uint32_t from = 0;
             (datagram = world_find(&world->ports[1], RP_OP_PUSH | RP_ANSWER, from)) != NULL;
             from = (uint32_t)(datagram - world->ports[1].queue) + 1) {
            const struct rp_answer *head = (const void *)(datagram->data + RP_HEADER_BYTES);
            if (head->status == RP_BLOCKED) {
                return datagram;
            }
        }
        world_advance(world, WORLD_MS);
    }
    return NULL;
}

/* 5. Given a push that is held back, its answer wrong in one place. Expect that to be dropped
 *    and counted, and the caller to be told by the next one what is needed; once it is there,
 *    all to be stored without a wait for the time of asking again. */
static void situation_blocked(void) {
    static const struct {
        uint32_t field, cut;
        enum rp_counter counter;
    } cases[] = {
        {offsetof(struct rp_blocked, by_size), 0, RP_COUNT_drop_reserved},
        {offsetof(struct rp_blocked, noted), 0, RP_COUNT_drop_reserved},
        {0, 8, RP_COUNT_drop_size},
    };
    struct rp_client_options options = world_options();
    script_tables(tables);
    config = script_config(tables);
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world *world = fresh(5, &options);
        uint32_t posted = 0;
        struct world_datagram *answer;
        while (posted += (uint32_t)push(world, 0, posted, 5, RP_RUN_ITEM),
               rp_client_flush(world->client, ROWS), (answer = blocked_answer(world)) == NULL) {
            CHECK(posted < 1000, "it is never held back");
        }
        const struct rp_blocked *told = (const void *)(answer->data + RP_ANSWER_BYTES);
        uint64_t need = told->need;
        CHECK(need > 0 && need < 100);
        if (cases[i].cut) {
            answer->size -= cases[i].cut;
            world_message(answer)->size = (uint16_t)(world_message(answer)->size - cases[i].cut);
        } else {
            answer->data[RP_ANSWER_BYTES + cases[i].field] = 2;
        }
        world_reseal(answer);
        world_run(world, WORLD_MS / 10);
        CHECK(rp_client_counters(world->client)[cases[i].counter] == 1, "case %u", i);
        CHECK(state_of(world).need == 0);
        world_run(world, 100 * WORLD_MS);
        CHECK(state_of(world).need == need, "%" PRIu64 " for %" PRIu64, state_of(world).need, need);
        uint64_t values[64];
        struct rp_landing_column column = {(uint8_t *)values, 8, 0, 8};
        struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = 16};
        struct rp_sample request = {.count = (uint32_t)need};
        uint64_t begin = world->now_ns;
        CHECK(world_wait(world, rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                                 world_later(world, 5000))) == 0);
        settle(world);
        CHECK(world->now_ns - begin < 50 * WORLD_MS, "%" PRIu64, world->now_ns - begin);
        CHECK(state_of(world).need == 0 && state_of(world).steps_stored == posted);
        CHECK(rp_client_deadline(world->client) > world_later(world, 1000), "it rests");
        world_close(world);
    }
    defaults();
    check_group("5 what a held-back writer is told");
}

/* 6. Given a limiter that lets both sides be 20 apart, and a post of 15 items. Expect no
 *    message of more than half of that: batches of the other half never wait for it. And an answer
 *    that is cut. Expect it dropped and counted, and the message to be asked for again. */
static void situation_items(void) {
    struct rp_client_options options = world_options();
    script_tables(tables);
    config = script_config(tables);
    tables[1].window = 2 * SCRIPT_WINDOW;
    tables[1].capacity = 2 * SCRIPT_CAPACITY;
    struct world *world = fresh(10, &options);
    CHECK(push(world, 0, 0, 15, RP_RUN_ITEM) == 15);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    struct world_datagram *datagram = world_find(&world->ports[0], RP_OP_PUSH, 0);
    CHECK(datagram != NULL && run_at(datagram, 0)->count == 10, "%u", run_at(datagram, 0)->count);
    while (world_turn(world),
           (datagram = world_find(&world->ports[1], RP_OP_PUSH | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    datagram->size -= 8;
    world_message(datagram)->size = (uint16_t)(world_message(datagram)->size - 8);
    world_reseal(datagram);
    settle(world);
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_size] == 1);
    CHECK(state_of(world).steps_stored == 15 && state_of(world).items_created == 15);
    world_close(world);
    defaults();
    check_group("6 items of one message; an answer that is cut");
}

/* ---- places that were lost ---- */

/* Changes what the answer on its way tells of one run: nothing is done in order. */
static void tell(struct world *world, uint32_t run, uint16_t committed, uint16_t lost) {
    struct world_datagram *answer;
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_PUSH | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    struct rp_pushed *head = (void *)(answer->data + RP_ANSWER_BYTES);
    struct rp_run_done *done = (void *)(head + 1);
    head->done_through = 0;
    done[run].committed = committed;
    done[run].lost = lost;
    world_reseal(answer);
}

/* 7. Given a message of two streams, its answer telling the first step of the one stored, the
 *    others without a place, and two of three steps of the other stored. Expect what is not stored
 *    to be sent, and nothing else: the former under new sequences, the latter under its own. */
static void situation_lost(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(6, &options);
    CHECK(push(world, 0, 0, 4, ITEMS) == 4 && push(world, 1, 0, 3, ITEMS) == 3);
    rp_client_flush(world->client, ROWS);
    tell(world, 0, 1, 3);
    tell(world, 1, 2, 0);
    CHECK(state_of(world).steps_stored == 0);
    world->deaf = 1;
    world_advance(world, WORLD_MS);
    world_client_turn(world);
    struct world_datagram *again = world_find(&world->ports[0], RP_OP_PUSH, 0);
    CHECK(again != NULL && push_at(again)->run_count == 2 && push_at(again)->create_count == 0);
    run_check(run_at(again, 0), 0, 1, 3);
    run_check(run_at(again, 1), 1, 2, 1);
    CHECK(run_at(again, 0)->sequence == 7, "%" PRIu64, run_at(again, 0)->sequence);
    CHECK(run_at(again, 1)->sequence == 6, "%" PRIu64, run_at(again, 1)->sequence);
    struct rp_push_state state = state_of(world);
    CHECK(state.steps_stored == 3 && state.items_created == 3 && state.steps_resent == 3);
    world_close(world);
    check_group("7 what has no place any more is sent again, the rest as it was");
}

/* 8. Given a message before one whose steps were stored in part, lost on its way. Expect the steps
 *    that were stored to be acknowledged, behind those before them, and only the others sent
 *    again. */
static void situation_lost_behind(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(7, &options);
    CHECK(push(world, 0, 0, 3, ITEMS) == 3);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    world_lose(world, RP_OP_PUSH);
    CHECK(push(world, 0, 3, 4, ITEMS) == 4);
    rp_client_flush(world->client, ROWS);
    tell(world, 0, 1, 3);
    struct world_datagram *again = NULL;
    while (again == NULL) { /* the first message, when its time is out; then what is left */
        world_advance(world, WORLD_MS);
        world_client_turn(world);
        again = world_find(&world->ports[0], RP_OP_PUSH, 0);
    }
    run_check(run_at(again, 0), 0, 0, 3);
    CHECK(state_of(world).steps_stored == 0 && world_asked(world, RP_OP_PUSH) == 1);
    while (state_of(world).steps_stored == 0) {
        world_step(world, WORLD_MS / 100);
    }
    CHECK(state_of(world).steps_stored == 4, "%" PRIu64, state_of(world).steps_stored);
    world_client_turn(world);
    again = world_find(&world->ports[0], RP_OP_PUSH, 0);
    CHECK(again != NULL && push_at(again)->run_count == 1);
    run_check(run_at(again, 0), 0, 4, 3);
    CHECK(run_at(again, 0)->sequence == 7, "%" PRIu64, run_at(again, 0)->sequence);
    world_close(world);
    check_group("8 what was stored is acknowledged before the rest is sent again");
}

/* 9. Given a message that was answered but waits for one before it, and an answer to that one
 *    which tells that all is done and that a place was lost: whose, it does not say. Expect the
 *    message to be sent again at once, not when its time is out; and where only a part of the
 *    message is done, not yet. */
static void situation_lost_somewhere(uint64_t done_through) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(8, &options);
    CHECK(push(world, 0, 0, 3, ITEMS) == 3);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    world_lose(world, RP_OP_PUSH);
    CHECK(push(world, 0, 3, 2, ITEMS) == 2 && push(world, 1, 0, 2, ITEMS) == 2);
    rp_client_flush(world->client, ROWS);
    tell(world, 0, 0, 0);
    tell(world, 1, 0, 0);
    while (world_asked(world, RP_OP_PUSH) == 0) {
        world_advance(world, WORLD_MS);
        world_client_turn(world);
    }
    struct world_datagram *answer;
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_PUSH | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    struct rp_pushed *head = (void *)(answer->data + RP_ANSWER_BYTES);
    CHECK(head->done_through == 7 && head->lost_total == 0 && head->run_count == 1);
    head->lost_total = 1;
    head->done_through = done_through;
    world_reseal(answer);
    while (state_of(world).steps_stored == 0) {
        CHECK(world_asked(world, RP_OP_PUSH) == 0);
        world_advance(world, WORLD_MS / 100);
        world_client_turn(world);
    }
    CHECK(state_of(world).steps_stored == 3);
    CHECK(world_asked(world, RP_OP_PUSH) == (done_through == 7));
    if (done_through == 7) {
        run_check(run_at(world_find(&world->ports[0], RP_OP_PUSH, 0), 0), 0, 3, 2);
        run_check(run_at(world_find(&world->ports[0], RP_OP_PUSH, 0), 1), 1, 0, 2);
    }
    settle(world);
    CHECK(state_of(world).steps_stored == 7 && state_of(world).steps_resent == 0);
    world_close(world);
}

/* 10. Given a place that was lost behind a message that is not answered yet, and a table that is
 *     emptied. Expect the writer to end, and the next one to push under new sequences. */
static void situation_lost_and_ended(void) {
    static struct rp_writer_granted granted;
    struct rp_client_options options = world_options();
    struct rp_table_info info;
    uint64_t epoch;
    struct world *world = fresh(11, &options);
    CHECK(push(world, 0, 0, 3, ITEMS) == 3);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    uint64_t before = push_at(world_find(&world->ports[0], RP_OP_PUSH, 0))->epoch;
    world_lose(world, RP_OP_PUSH);
    CHECK(push(world, 0, 3, 4, ITEMS) == 4);
    rp_client_flush(world->client, ROWS);
    tell(world, 0, 1, 3);
    int ticket = rp_client_reset(world->client, ROWS, before, &epoch, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    while (state_of(world).status == 0) {
        world_step(world, WORLD_MS);
    }
    CHECK(state_of(world).status == -RP_STALE_EPOCH && state_of(world).steps_resent == 0);
    ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && info.epoch == epoch);
    ticket = rp_client_writer(world->client, &info, 2, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && push(world, 0, 0, 3, ITEMS) == 3);
    settle(world);
    CHECK(state_of(world).steps_stored == 3 && state_of(world).items_created == 3);
    world_close(world);
    check_group("10 a place that was lost, and a table that is emptied");
}

/* 11. Given arguments that cannot be. Expect each refused, and nothing taken of them. */
static void situation_arguments(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(9, &options);
    struct rp_client *client = world->client;
    static const uint64_t rows[4];
    static const double bad[][2] = {{1, -1}, {1, INFINITY}, {NAN, 1}};
    const uint8_t *steps = (const uint8_t *)rows;
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double one = bad[i][i < 2];
        CHECK(rp_client_push(client, ROWS, 0, steps, 2, ITEMS, bad[i]) == -RP_BAD_PRIORITY);
        CHECK(rp_client_push(client, ROWS, 0, steps, 1, ITEMS, &one) == -RP_BAD_PRIORITY);
    }
    static const struct {
        uint32_t count, flags;
    } wrong[] = {{0, 0}, {1, RP_RUN_FLAGS + 1}, {1, RP_RUN_ITEM | RP_RUN_END}, {1, RP_RUN_PRIORITY},
                 {1u << 31, 0}};
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(rp_client_push(client, ROWS, 0, steps, wrong[i].count, wrong[i].flags, bad[0])
              == -RP_BAD_ARGUMENT, "case %u", i);
    }
    CHECK(rp_client_push(client, ROWS, 0, steps, 1, ITEMS, NULL) == -RP_BAD_ARGUMENT);
    CHECK(rp_client_push(client, ROWS, 2, steps, 1, 0, NULL) == -RP_BAD_STREAM);
    CHECK(rp_client_push(client, 0, 0, steps, 1, 0, NULL) == -RP_NOT_A_WRITER);
    CHECK(rp_client_create(client, ROWS, 0, 0, 1.0, 0) == -RP_BAD_ARGUMENT, "no step yet");
    CHECK(push(world, 0, 0, 1, 0) == 1);
    CHECK(rp_client_create(client, ROWS, 0, 0, -1.0, 0) == -RP_BAD_PRIORITY);
    CHECK(rp_client_create(client, ROWS, 0, 0, 1.0, RP_CREATE_FLAGS + 1) == -RP_BAD_ARGUMENT);
    CHECK(rp_client_create(client, ROWS, 2, 0, 1.0, 0) == -RP_BAD_STREAM);
    CHECK(rp_client_create(client, 0, 0, 0, 1.0, 0) == -RP_NOT_A_WRITER);
    CHECK(rp_client_create(client, ROWS, 0, 0, -1.0, RP_CREATE_MAXIMUM) == 0);
    settle(world);
    CHECK(state_of(world).steps_posted == 1 && state_of(world).items_posted == 1);
    CHECK(state_of(world).steps_stored == 1 && state_of(world).items_created == 1);
    world_close(world);
    check_group("11 arguments that cannot be");
}

/* 12. Given a message whose answer tells two steps of three stored. Expect the third in doubt. */
static void situation_in_doubt(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(12, &options);
    uint64_t stored, in_doubt, lost;
    CHECK(push(world, 0, 0, 3, ITEMS) == 3);
    rp_client_flush(world->client, ROWS);
    tell(world, 0, 2, 0);
    world_advance(world, WORLD_MS);
    world_client_turn(world);
    rp_client_loss(world->client, ROWS, &stored, &in_doubt, &lost);
    CHECK(stored == 2 && in_doubt == 1 && lost == 0, "%" PRIu64 " in doubt", in_doubt);
    settle(world);
    CHECK(state_of(world).steps_stored == 3 && state_of(world).steps_resent == 0);
    world_close(world);
    check_group("12 what is in doubt: what was sent, less what is stored");
}

int main(void) {
    defaults();
    situation_company();
    situation_half();
    situation_create();
    situation_early();
    situation_blocked();
    situation_items();
    situation_lost();
    situation_lost_behind();
    situation_lost_somewhere(7);
    situation_lost_somewhere(5);
    check_group("9 where a place was lost somewhere, what is done is asked for again");
    situation_lost_and_ended();
    situation_arguments();
    situation_in_doubt();
    return check_done("test_client_push");
}
