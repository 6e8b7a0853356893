/* What answers to pushes tell, in whatever order they come: nothing counts as stored that may
 * have lost its place, and the window is that of the lowest sequence that is open. Situations read
 * "Given ... Expect ...". */
#include "client/client_parts.h"
#include "client_rows.h"

enum { WINDOW = 32 };

static struct rp_table_config tables[2];
static struct rp_server_config config;

static struct world *fresh(uint64_t seed) {
    static struct rp_writer_granted granted;
    struct rp_client_options options = world_options();
    struct rp_table_info info;
    options.unacknowledged_max = 1000;
    struct world *world = world_open(&config, seed);
    world_client(world, &options);
    world_connect(world);
    int ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 2, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    return world;
}

/* Steps from..from + count of a stream, in a message of their own, which leaves if it may. */
static void push(struct world *world, uint16_t stream, uint32_t from, uint32_t count) {
    uint64_t steps[2 * WINDOW] = {0};
    for (uint32_t i = 0; i < count; i++) {
        steps[2 * i] = 1000 * stream + from + i;
    }
    int taken = rp_client_push(world->client, ROWS, stream, (const uint8_t *)steps, count,
                               RP_RUN_ITEM, NULL);
    CHECK(taken == (int)count, "push: %d", taken);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
}

/* The first run of the index-th PUSH on its way to the server; null: there are not so many. */
static const struct rp_run *run_under_way(struct world *world, uint32_t index) {
    const struct world_datagram *datagram = NULL;
    for (uint32_t i = 0, from = 0; i <= index; i++) {
        datagram = world_find(&world->ports[0], RP_OP_PUSH, from);
        if (datagram == NULL) {
            return NULL;
        }
        from = (uint32_t)(datagram - world->ports[0].queue) + 1;
    }
    return (const void *)(datagram->data + RP_HEADER_BYTES + sizeof(struct rp_push));
}

/* The server's turns alone, until so many answers to PUSH are on their way. */
static void await_answers(struct world *world, uint32_t count) {
    uint64_t end = world_later(world, 1);
    for (uint32_t there = 0; there < count; world->now_ns += 1000) {
        CHECK(world->now_ns < end, "%u of %u answers", there, count);
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        there = 0;
        for (uint32_t i = 0; i < world->ports[1].count; i++) {
            there += world_message(&world->ports[1].queue[i])->op == (RP_OP_PUSH | RP_ANSWER);
        }
    }
}

static struct rp_pushed *told_by(struct world_datagram *answer) {
    return (void *)(answer->data + RP_ANSWER_BYTES);
}

/* Two messages, of stream 0 each or of both, of which the second came to the server first. Their
 * answers are on their way: the second's, then the first's. */
static void overtaken(struct world *world, uint16_t second_stream) {
    push(world, 0, 0, 3);
    push(world, second_stream, second_stream == 0 ? 3 : 0, 4);
    CHECK(world->ports[0].count == 2);
    world->ports[0].queue[0].due_ns += 100000;
    await_answers(world, 2);
    CHECK(world->ports[1].count == 2);
}

/* 1. Given two messages of one stream, the first overtaken by the second, and their answers
 *    overtaken the same way: the first's tells that all is done and that a place was lost since the
 *    second was answered. Expect the second's steps to be asked for again, not to be taken for
 *    stored. */
static void situation_answered_before(void) {
    struct world *world = fresh(1);
    overtaken(world, 0);
    struct world_datagram *late = &world->ports[1].queue[0], *early = &world->ports[1].queue[1];
    CHECK(told_by(late)->done_through == 0 && told_by(early)->done_through == 7);
    told_by(early)->lost_total = 1;
    world_reseal(early);
    early->due_ns = world->now_ns;
    late->due_ns = world->now_ns + 10000;
    world_client_turn(world);
    CHECK(state_of(world).steps_stored == 3 && world_asked(world, RP_OP_PUSH) == 0);
    world->now_ns += 10000;
    world_client_turn(world);
    CHECK(state_of(world).steps_stored == 3, "%" PRIu64 " stored", state_of(world).steps_stored);
    CHECK(world_asked(world, RP_OP_PUSH) == 1);
    CHECK(run_under_way(world, 0)->step == 3 && run_under_way(world, 0)->count == 4);
    settle(world);
    CHECK(state_of(world).steps_stored == 7 && state_of(world).items_created == 7);
    world_close(world);
    check_group("1 an old answer says nothing of places that were lost since");
}

/* 2. Given steps that lost their places, sent again under new sequences, and a message behind them
 *    in the order of posting whose answer was lost. Expect no sequence a window or more above that
 *    message's: the server forgets what it has come to. */
static void situation_window(void) {
    struct world *world = fresh(2);
    overtaken(world, 1);
    struct world_datagram *answer = &world->ports[1].queue[1];
    struct rp_run_done *done = (void *)(told_by(answer) + 1);
    CHECK(told_by(answer)->done_through == 7 && told_by(answer)->run_count == 1);
    done->committed = 0;
    done->lost = 3;
    told_by(answer)->lost_total = 3;
    world_reseal(answer);
    free(world->ports[1].queue[0].data); /* the second's is lost */
    world->ports[1].queue[0] = *answer;
    world->ports[1].count = 1;
    world->deaf = 1;
    world->now_ns = world->ports[1].queue[0].due_ns;
    world_client_turn(world);
    CHECK(state_of(world).steps_resent == 3 && run_under_way(world, 0)->sequence == 7);
    for (uint32_t i = 0; i < 5; i++) {
        push(world, 0, 3 + 5 * i, 5);
    }
    push(world, 0, 28, 1);
    uint32_t sent = world_asked(world, RP_OP_PUSH);
    const struct rp_run *last = run_under_way(world, sent - 1);
    CHECK(last->sequence + last->count == 3 + WINDOW, "up to %" PRIu64,
          last->sequence + last->count);
    world_close(world);
    check_group("2 the window is that of the lowest sequence that is open");
}

/* 3. Given steps that lost their places behind a message that was lost, and are sent again. Expect
 *    all stored, and from then on sequences in the order of posting again: where many messages
 *    wait, who sends one does not look at all of them for ever. */
static void situation_in_order_again(void) {
    struct world *world = fresh(3);
    const struct client_writer *writer = rp_client_writer_of(world->client, ROWS);
    push(world, 0, 0, 3);
    world_lose(world, RP_OP_PUSH);
    push(world, 0, 3, 4);
    await_answers(world, 1);
    struct world_datagram *answer = &world->ports[1].queue[0];
    struct rp_run_done *done = (void *)(told_by(answer) + 1);
    CHECK(done->committed == 0 && done->lost == 0);
    done->lost = 4;
    world_reseal(answer);
    world->now_ns = answer->due_ns;
    world_client_turn(world);
    CHECK(state_of(world).steps_resent == 4 && writer->resent_from == 7);
    settle(world);
    push(world, 0, 7, 1);
    push(world, 0, 8, 1); /* not alone: it asks for the window */
    CHECK(world_asked(world, RP_OP_PUSH) == 2);
    CHECK(writer->resent_from == 0, "from %" PRIu64, writer->resent_from);
    settle(world);
    CHECK(state_of(world).steps_stored == 9 && state_of(world).items_created == 9);
    world_close(world);
    check_group("3 what was sent again is behind a writer once it is stored");
}

/* 4. Given two messages of one stream, both answered; the limiter holds the second back, and it
 *    asks for its writer; then the first one's answer tells that its steps lost their places.
 *    Expect the writer not to wait for an answer to what it has to send anew: both leave. */
static void situation_asking(void) {
    struct world *world = fresh(4);
    struct client_writer *writer = rp_client_writer_of(world->client, ROWS);
    overtaken(world, 0);
    struct world_datagram *second = &world->ports[1].queue[0], *first = &world->ports[1].queue[1];
    struct rp_run_done *done = (void *)(told_by(first) + 1);
    done->committed = 0;
    done->lost = 3;
    told_by(first)->done_through = 0;
    told_by(first)->lost_total = 3;
    world_reseal(first);
    second->due_ns = world->now_ns;
    first->due_ns = world->now_ns + 10000;
    world_client_turn(world);
    CHECK(world->client->messages[writer->last].answered);
    writer->blocked = 1; /* as an answer BLOCKED and a time-out behind it leave it */
    writer->probe = writer->last;
    rp_client_message_state(world->client, writer->probe, MESSAGE_AGAIN);
    world->deaf = 1;
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_PUSH) == 1, "it asks");
    world->now_ns += 10000;
    world_client_turn(world);
    CHECK(state_of(world).steps_resent == 7 && !writer->blocked && writer->probe == CLIENT_NONE);
    const struct rp_run *anew = run_under_way(world, 1);
    CHECK(anew && anew->sequence == 7 && anew->step == 0 && anew->count >= 3);
    world_close(world);
    check_group("4 whose question is sent anew asks no more");
}

/* 5. Given a step in two pieces that loses its place. Expect both sent again under one new
 *    sequence. */
static void situation_pieces(void) {
    enum { STEP = 2048 };
    static const struct rp_column columns[2] = {{0, 8, 1}, {8, STEP - 8, 0}};
    static uint8_t step[STEP];
    struct rp_table_config narrow = tables[1];
    tables[1].step_bytes = STEP;
    tables[1].columns = columns;
    struct world *world = fresh(5);
    int taken = rp_client_push(world->client, ROWS, 0, step, 1, RP_RUN_ITEM, NULL);
    CHECK(taken == 1, "push: %d", taken);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    await_answers(world, 2);
    struct rp_pushed *told = told_by(&world->ports[1].queue[1]);
    struct rp_run_done *done = (void *)(told + 1);
    CHECK(told->done_through == 1 && done->committed == 1);
    *told = (struct rp_pushed){.lost_total = 1, .run_count = told->run_count};
    done->committed = 0;
    done->lost = 1;
    world_reseal(&world->ports[1].queue[1]);
    world->deaf = 1;
    world->now_ns += WORLD_MS / 10;
    world_client_turn(world);
    for (uint32_t piece = 0; piece < 2; piece++) {
        const struct rp_run *run = run_under_way(world, piece);
        CHECK(run && run->piece == piece && run->piece_count == 2 && run->sequence == 1,
              "piece %u", piece);
    }
    CHECK(state_of(world).steps_resent == 2, "%" PRIu64, state_of(world).steps_resent);
    world_close(world);
    tables[1] = narrow;
    check_group("5 the pieces of a step get one new sequence");
}

int main(void) {
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    tables[1].window = WINDOW;
    tables[1].capacity = 2 * SCRIPT_CAPACITY;
    config = script_config(tables);
    situation_answered_before();
    situation_window();
    situation_in_order_again();
    situation_asking();
    situation_pieces();
    return check_done("test_client_pushed");
}
