/* What a link's callers post is done once and told as it is, and a link that has ended says
 * so to every call. Over loopback, where the callers' own turns are the server's; over kernel UDP
 * where the server has to be away. */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "drive_both.h"
#include "process.h"
#include "drive/link_drive.h"
#include "base/random.h"
#include "transport/transport_loopback.h"
#include "transport/url.h"

enum { STREAMS = 3 };

static char error[RP_ERROR_BYTES];

static void serve_at(const char *url) {
    struct rp_service_options serve = {0};
    service = open_service(url, &serve);
}

static void open_writer(void) {
    struct rp_table_info info = drive_info(ours);
    struct rp_writer_granted granted;
    int ticket = rp_link_writer(ours, &info, STREAMS, &granted, DRIVE_TIMEOUT_NS);
    CHECK(drive_wait(ours, ticket, NULL) == 0 && granted.streams == STREAMS);
}

/* Draws so many that every item is among them, and marks the rows that came. */
static void see_items(uint8_t *seen, uint32_t rows) {
    static struct drive_batch batch;
    memset(seen, 0, rows);
    drive_sample(ours, &batch, ROW, DRIVE_BATCH_MAX);
    for (uint32_t i = 0; i < DRIVE_BATCH_MAX; i++) {
        CHECK(batch.numbers[i] < rows, "row %" PRIu64, batch.numbers[i]);
        seen[batch.numbers[i]] = 1;
    }
}

/* ---- a block of steps ---- */

enum { STEPS = 40, ROWS_MAX = STEPS * STREAMS };

struct blocks { /* a block, and what it has to become */
    uint8_t rows[ROWS_MAX * ROW], closings[ROWS_MAX * ROW];
    uint8_t marks[ROWS_MAX], items[STEPS];
    uint64_t next_steps[STREAMS];
    uint32_t lengths[STREAMS];
    uint8_t is_item[ROWS_MAX]; /* by the row's number: its place in rows */
    uint32_t row_count, item_count;
};

/* Episodes of random lengths; in some steps a stream stands still, and of some no items are told.
 * The rule for items in other words: at each step, the open episode's rows that `reach` rows of it
 * follow and that no step before had; at its end all that are left, of the last reach + 1. */
static void draw_block(struct blocks *made, uint32_t reach, uint64_t seed) {
    struct rp_random random;
    uint32_t episode[STREAMS][STEPS], length[STREAMS] = {0}, closing = 0;
    rp_random_seed(&random, seed);
    memset(made, 0, sizeof *made);
    for (uint32_t step = 0; step < STEPS; step++) {
        made->items[step] = rp_random_below(&random, 8) > 0;
        for (uint32_t stream = 0; stream < STREAMS; stream++) {
            uint32_t place = step * STREAMS + stream;
            drive_row(made->rows + (size_t)place * ROW, ROW, place);
            if (rp_random_below(&random, 6) == 0) {
                continue;
            }
            int ends = rp_random_below(&random, 5) == 0;
            made->marks[place] = (uint8_t)(RP_BLOCK_ROW | (ends ? RP_BLOCK_END : 0));
            made->row_count += 1u + (uint32_t)ends;
            episode[stream][length[stream]++] = place;
            for (uint32_t i = 0; i < length[stream]; i++) {
                uint32_t follow = length[stream] - 1 - i;
                if (made->items[step] && (follow == reach || (ends && follow < reach))) {
                    made->is_item[episode[stream][i]] = 1;
                    made->item_count++;
                }
            }
            if (ends) {
                drive_row(made->closings + (size_t)closing++ * ROW, ROW, 1u << 20);
                length[stream] = 0;
            }
        }
    }
}

/* Given blocks, taken at once, or in two halves whose second comes later. Expect each row once and
 * the items of complete windows, no more. */
static void check_blocks(void) {
    static struct blocks made;
    uint8_t seen[ROWS_MAX];
    for (uint32_t reach = 0; reach < 4; reach++) {
        for (int halves = 0; halves < 2; halves++) {
            struct rp_push_state state;
            draw_block(&made, reach, 7 + reach);
            open_both("loopback://blocks");
            open_writer();
            struct rp_block block = {
                .rows = made.rows, .closings = made.closings, .marks = made.marks,
                .items = made.items, .next_steps = made.next_steps, .lengths = made.lengths,
                .streams = STREAMS, .step_bytes = ROW, .reach = reach, .steps = STEPS,
                .finished = halves ? STEPS / 2 - 1 : STEPS};
            if (halves) { /* the last step's items may be asked for only with what follows */
                block.steps = STEPS / 2;
                CHECK(rp_link_push_block(ours, 0, &block, RP_SLICE_NS) == 0);
                CHECK(block.step == STEPS / 2 - 1 && block.phase == 2, "%u", block.step);
                block.steps = block.finished = STEPS;
            }
            CHECK(rp_link_push_block(ours, 0, &block, RP_SLICE_NS) == 0 && block.step == STEPS);
            drive_settle(ours);
            CHECK(rp_link_push_state(ours, 0, &state) == 0);
            CHECK(state.steps_stored == made.row_count, "%" PRIu64 " rows of %u",
                  state.steps_stored, made.row_count);
            CHECK(state.items_created == made.item_count, "reach %u: %" PRIu64 " items of %u",
                  reach, state.items_created, made.item_count);
            CHECK(state.items_failed == 0, "reach %u: items of closing rows", reach);
            see_items(seen, ROWS_MAX);
            CHECK(memcmp(seen, made.is_item, sizeof seen) == 0, "reach %u", reach);
            close_both();
        }
    }
    open_both("loopback://blocks");
    struct rp_block block = {.rows = made.rows, .marks = made.marks, .items = made.items,
                             .closings = made.closings, .next_steps = made.next_steps,
                             .lengths = made.lengths, .streams = STREAMS, .step_bytes = ROW,
                             .steps = STEPS, .finished = STEPS};
    int status = rp_link_push_block(ours, 0, &block, RP_SLICE_NS);
    CHECK(status < 0 && block.step == 0, "no writer is open: %s", rp_status_name(status));
    close_both();
    check_group("blocks: every row once, the items of complete windows");
}

/* Given episodes of four rows whose closing rows say which they are. Expect each row to be followed
 * by its next one, the last by its own closing row. */
static void check_closings(void) {
    enum { EPISODES = 20, LENGTH = 4, ALL = EPISODES * LENGTH };
    static uint8_t rows[ALL * ROW], closings[EPISODES * ROW], marks[ALL], items[ALL];
    static uint64_t pairs[DRIVE_BATCH_MAX][2];
    uint64_t next_step = 0;
    uint32_t length = 0;
    struct rp_block block = {.rows = rows, .closings = closings, .marks = marks, .items = items,
                             .next_steps = &next_step, .lengths = &length, .streams = 1,
                             .step_bytes = ROW, .reach = 1, .steps = ALL, .finished = ALL};
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct drive_table made;
    for (uint32_t i = 0; i < ALL; i++) {
        drive_row(rows + (size_t)i * ROW, ROW, i);
        marks[i] = i % LENGTH == LENGTH - 1 ? RP_BLOCK_ROW | RP_BLOCK_END : RP_BLOCK_ROW;
        items[i] = 1;
    }
    for (uint32_t i = 0; i < EPISODES; i++) {
        drive_row(closings + (size_t)i * ROW, ROW, 1000 + i);
    }
    drive_config(&made, CAPACITY, ROW);
    made.picks[1] = (struct rp_pick){0, 1}; /* a row's number and the next one's */
    CHECK(rp_service_open(&service, &made.config, "loopback://closings", &serve, error) == 0, "%s",
          error);
    ours = drive_link("loopback://closings", &options);
    open_writer();
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_push_block(ours, 0, &block, RP_SLICE_NS);
    }
    CHECK(status == 0 && block.closing == EPISODES);
    drive_settle(ours);
    struct rp_landing_column column = {.target = (uint8_t *)pairs, .stride = 16, .size = 16};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = 16};
    struct rp_sample request = {.count = DRIVE_BATCH_MAX, .mode = RP_SAMPLE_STRATIFIED};
    int ticket = rp_link_sample(ours, 0, &request, NULL, &landing, DRIVE_TIMEOUT_NS);
    CHECK(drive_wait(ours, ticket, NULL) == 0);
    for (uint32_t i = 0; i < DRIVE_BATCH_MAX; i++) {
        uint64_t row = pairs[i][0];
        uint64_t next = row % LENGTH == LENGTH - 1 ? 1000 + row / LENGTH : row + 1;
        CHECK(row < ALL && pairs[i][1] == next, "row %" PRIu64 " before %" PRIu64, row,
              pairs[i][1]);
    }
    close_both();
    check_group("blocks: an episode is closed by its own row");
}

/* Given a server that is away and more steps than a writer takes beyond those stored. Expect the
 * rest not to be taken, and to be taken where it stopped once the server is back. */
static void check_full(void) {
    enum { ALL = 1000, LENGTH = 4 };
    static uint8_t rows[ALL * ROW], marks[ALL], items[ALL];
    static const uint16_t streams[ALL];
    static uint64_t numbers[ALL];
    uint64_t next_step = 0;
    uint32_t length = 0, created = 0;
    struct rp_push_state state;
    struct rp_block block = {.rows = rows, .closings = rows, .marks = marks, .items = items,
                             .next_steps = &next_step, .lengths = &length, .streams = 1,
                             .step_bytes = ROW, .reach = 6, .steps = ALL, .finished = ALL};
    for (uint32_t i = 0; i < ALL; i++) {
        drive_row(rows + (size_t)i * ROW, ROW, i);
        marks[i] = i % LENGTH == LENGTH - 1 ? RP_BLOCK_ROW | RP_BLOCK_END : RP_BLOCK_ROW;
        items[i] = 1;
        numbers[i] = i / LENGTH * (LENGTH + 1) + i % LENGTH; /* behind the closing rows before */
    }
    open_both("udp://127.0.0.1:0");
    open_writer();
    CHECK(rp_service_stop(service) == 0);
    for (int i = 0; i < 5; i++) { /* asked in vain again and again */
        CHECK(rp_link_push_block(ours, 0, &block, 1000) == RP_PENDING);
    }
    CHECK(block.step > 0 && block.step < ALL, "%u steps were taken", block.step);
    CHECK(rp_link_push(ours, 0, 0, rows, 1, 0, NULL, 1000) == 0, "nor is a push");
    CHECK(rp_service_start(service) == 0);
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_push_block(ours, 0, &block, RP_SLICE_NS);
    }
    drive_settle(ours);
    CHECK(status == 0 && rp_link_push_state(ours, 0, &state) == 0);
    CHECK(state.steps_stored == ALL + ALL / LENGTH && state.items_created == ALL);
    CHECK(state.items_failed == 0);
    CHECK(rp_service_stop(service) == 0);
    for (int got = 1; got > 0;) { /* creates of what is there already, until there is no room */
        uint32_t from = created % ALL;
        got = rp_link_create(ours, 0, streams, numbers + from, NULL, ALL - from, 1000);
        CHECK(got >= 0 && created < 2000 * ALL, "%s", rp_status_name(got));
        created += (uint32_t)got;
    }
    CHECK(rp_service_start(service) == 0);
    drive_settle(ours);
    CHECK(rp_link_push_state(ours, 0, &state) == 0 && state.items_posted == ALL + created);
    close_both();
    check_group("a block and creates go on where there was no room");
}

/* Given a push of more than a datagram, and nobody who flushes or waits. Expect what is full to
 * leave at once. */
static void check_leaves(void) {
    static uint8_t rows[400 * ROW];
    uint64_t counters[RP_COUNTER_COUNT] = {0};
    struct timespec pause = {.tv_nsec = 1000000};
    open_both("udp://127.0.0.1:0");
    open_writer();
    CHECK(rp_link_push(ours, 0, 0, rows, 400, 0, NULL, 0) > 0);
    for (int looks = 0; counters[RP_COUNT_steps_committed] == 0; looks++) {
        CHECK(looks < 10000, "nothing has left");
        nanosleep(&pause, NULL);
        CHECK(rp_service_counters(service, counters) == 0);
    }
    close_both();
    check_group("what is full leaves by itself");
}

/* ---- creates and keys ---- */

/* Given rows and creates: with priorities, without, one of a stream that is not the writer's.
 * Expect as many taken as were right, then the reason; the keys of the rows that were asked for. */
static void check_creates(void) {
    enum { ROWS = 300 };
    static uint8_t rows[ROWS * ROW];
    const uint16_t streams[] = {0, 0, STREAMS};
    const uint64_t steps[] = {2, 5, 0};
    const double priorities[] = {1.0, 2.0, 3.0};
    uint64_t keys[ROWS + 1];
    uint8_t seen[ROWS];
    struct rp_push_state state;
    struct rp_push_key key;
    open_both("loopback://creates");
    open_writer();
    for (uint32_t i = 0; i < ROWS; i++) {
        drive_row(rows + (size_t)i * ROW, ROW, i);
    }
    CHECK(rp_link_push(ours, 0, 0, rows, 0, 0, NULL, 0) == 0, "nothing to push");
    for (uint32_t taken = 0; taken < ROWS;) {
        int got = rp_link_push(ours, 0, 0, rows + (size_t)taken * ROW, ROWS - taken, 0, NULL,
                               RP_SLICE_NS);
        CHECK(got > 0, "%s", rp_status_name(got));
        taken += (uint32_t)got;
    }
    CHECK(rp_link_create(ours, 0, streams, steps, priorities, 0, 0) == 0, "nothing to create");
    CHECK(rp_link_create(ours, 0, streams, steps, priorities, 3, RP_SLICE_NS) == 2);
    int status = rp_link_create(ours, 0, streams + 2, steps + 2, NULL, 1, RP_SLICE_NS);
    CHECK(status < 0, "%d", status);
    const uint64_t more[] = {7, 9};
    CHECK(rp_link_create(ours, 0, streams, more, NULL, 2, RP_SLICE_NS) == 2);
    CHECK(rp_link_flush(ours, 0) == 0);
    drive_settle(ours);
    CHECK(rp_link_push_state(ours, 0, &state) == 0 && state.items_created == 4);
    CHECK(state.steps_stored == ROWS && state.items_failed == 0);
    see_items(seen, ROWS);
    for (uint32_t i = 0; i < ROWS; i++) {
        CHECK(seen[i] == (i == 2 || i == 5 || i == 7 || i == 9), "row %u", i);
    }
    CHECK(rp_link_ledger(ours, &key, 1) == 1 && key.step == 0 && key.stream == 0);
    keys[0] = keys[ROWS - 10] = 1;
    CHECK(rp_link_keys(ours, 0, 10, keys + 1, ROWS - 11) == ROWS - 11);
    CHECK(keys[0] == 1 && keys[ROWS - 10] == 1, "keys of other rows");
    for (uint64_t i = 0; i < ROWS - 11; i++) {
        CHECK(keys[1 + i] == key.key + 10 + i, "row %" PRIu64, 10 + i);
    }
    CHECK(rp_link_keys(ours, 0, 0, keys, ROWS) == 1, "a later row stays, earlier ones were let go");
    CHECK(keys[ROWS - 1] == key.key + ROWS - 1 && rp_link_ledger(ours, &key, 1) == 0);
    close_both();
    check_group("creates: as many as are right; keys of the rows asked for");
}

/* Given a writer whose server is another one now. Expect what was stored, what is in doubt. */
static void check_loss(void) {
    struct rp_push_state state;
    uint64_t stored = 9, doubt = 9, lost = 9;
    open_both("udp://127.0.0.1:0");
    open_writer();
    drive_push(ours, ROW, 0, 30);
    drive_settle(ours);
    char address[RP_URL_TEXT_BYTES];
    snprintf(address, sizeof address, "%s", rp_service_address(service));
    CHECK(rp_service_stop(service) == 0); /* it says no farewell that a turn could read first */
    drive_push(ours, ROW, 30, 5);
    CHECK(rp_link_flush(ours, 0) == 0);
    rp_service_close(service);
    serve_at(address);
    CHECK(rp_service_start(service) == 0);
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_settle(ours, 0, RP_SLICE_NS);
    }
    CHECK(status < 0 && rp_link_push_state(ours, 0, &state) == 0 && state.status == status, "%s",
          rp_status_name(status));
    CHECK(rp_link_loss(ours, 0, &stored, &doubt, &lost) == 0);
    CHECK(doubt + lost == 5, "%" PRIu64 " in doubt, %" PRIu64 " lost", doubt, lost);
    close_both();
    check_group("what a writer has lost");
}

/* ---- turns ---- */

static int never(struct rp_link *link, void *argument) {
    (void)link;
    (void)argument;
    return RP_PENDING;
}

/* Given posts over loopback and nobody who waits. Expect each to be answered by the time it
 * returns, for its turn is the server's too; and rp_link_drive to say whether something moved. */
static void check_turns(void) {
    struct rp_fact facts[RP_FACTS_MAX];
    open_both("loopback://turns");
    for (int i = 0; i < 10; i++) {
        int ticket = rp_link_ping(ours, DRIVE_TIMEOUT_NS);
        CHECK(ticket > 0 && rp_link_poll(ours, ticket) == 0, "post %d", i);
        rp_link_take(ours, 0);
        rp_link_take(ours, -1);
        CHECK(rp_link_poll(ours, ticket) == 0, "it is still there");
        rp_link_take(ours, ticket);
    }
    CHECK(rp_link_drive(ours, 1000) == 0, "nothing moves");
    CHECK(rp_link_poll(ours, 0) == -RP_BAD_ARGUMENT && rp_link_poll(ours, -5) < 0);
    CHECK(rp_link_wait(ours, 0, 0, NULL) == -RP_BAD_ARGUMENT);
    CHECK(rp_link_own_facts(ours, facts) == 1 && rp_link_dropped(ours) == 0);
    CHECK(strcmp((const char *)facts[0].name, "not_taken") == 0 && facts[0].value == 0);
    CHECK(facts[0].kind == RP_FACT_OUT);
    rp_service_close(service);
    int moved = 1;
    for (int looks = 0; moved > 0 && looks < 10; looks++) {
        moved = rp_link_drive(ours, RP_SLICE_NS);
    }
    CHECK(moved == -RP_CLOSED, "the server of this process has closed: %d", moved);
    CHECK(rp_link_until(ours, never, NULL, RP_SLICE_NS) == -RP_CLOSED, "nothing is waited for");
    rp_link_close(ours, DRIVE_TIMEOUT_NS);
    serve_at("loopback://turns");
    struct rp_link_options options = {0};
    CHECK(rp_link_open(&ours, "loopback://turns", &options, error) == 0, "%s", error);
    rp_service_close(service);
    CHECK(rp_client_turn(ours->client, ours->port, rp_link_now(ours)) == 1, "its HELLO");
    CHECK(rp_link_dropped(ours) == 1 && rp_link_own_facts(ours, facts) == 1 && facts[0].value == 1);
    rp_link_close(ours, DRIVE_TIMEOUT_NS);
    check_group("loopback: a post is a turn of both, a drive says what moved");
}

/* Given a datagram that has come, and no keeper, which would take it where this thread pauses.
 * Expect the pump's turn to say that something moved, so that it looks again before it sleeps; and
 * a second turn to say that nothing did. */
static void check_pump_turns(void) {
    struct rp_link_options options = {.retry_us_min = 2000, .retry_us_max = 8000, .unkept = 1};
    uint32_t moved = 0;
    serve_at("udp://127.0.0.1:0");
    CHECK(rp_service_start(service) == 0);
    ours = drive_link(rp_service_address(service), &options);
    CHECK(rp_link_start_pump(ours) == 0 && rp_link_stop_pump(ours) == 0);
    CHECK(rp_link_ping(ours, DRIVE_TIMEOUT_NS) > 0);
    while (rp_port_transport(ours->port)->wait(ours->port, RP_SLICE_NS) == 0) {
    }
    moved = ours->pump.job.turn(ours->pump.job.owner);
    CHECK(moved > 0);
    CHECK(ours->pump.job.turn(ours->pump.job.owner) == 0);
    close_both();
    check_group("a pump's turn says what moved");
}

static struct rp_transport counted; /* a port's transport, some of its calls counted */
static _Atomic uint32_t wakes;
static void (*wake_before)(struct rp_port *port);

static void count_wake(struct rp_port *port) {
    wakes++;
    wake_before(port);
}

/* Given a pump asleep over loopback and a post. Expect it to be woken: what the server of this
 * process has still to do it does while the pump waits. */
static void check_loopback_pump(void) {
    open_both("loopback://pumped");
    counted = *rp_port_transport(ours->port);
    wake_before = counted.wake;
    counted.wake = count_wake;
    CHECK(rp_link_start_pump(ours) == 0);
    for (int asleep = 0; !asleep;) {
        CHECK(rp_gate_enter(&ours->gate) == 0);
        asleep = ours->asleep_until > rp_link_now(ours) + RP_SLICE_NS;
        rp_gate_leave(&ours->gate);
        sched_yield();
    }
    rp_port_base(ours->port)->transport = &counted;
    wakes = 0;
    CHECK(rp_link_ping(ours, DRIVE_TIMEOUT_NS) > 0);
    CHECK(wakes == 1, "%u wakes", wakes);
    CHECK(rp_link_stop_pump(ours) == 0);
    close_both();
    check_group("loopback: a post wakes the pump");
}

/* ---- spinning ---- */

static uint32_t looks, sleeps;
static uint32_t (*look_before)(struct rp_port *port, struct rp_packet *packets, uint32_t count);
static int (*sleep_before)(struct rp_port *port, uint64_t timeout_ns);

static uint32_t count_look(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    looks++;
    return look_before(port, packets, count);
}

static int count_sleep(struct rp_port *port, uint64_t timeout_ns) {
    sleeps++;
    return sleep_before(port, timeout_ns);
}

static int ping(uint64_t timeout_ns) {
    int ticket = rp_link_ping(ours, timeout_ns), status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_wait(ours, ticket, RP_SLICE_NS, NULL);
    }
    return status;
}

/* Given a server that stands still, so that all that moves comes later than a wait spins. Expect
 * waits that sleep at once, a look for each sleep; and given answers in time, that they spin. */
static void check_late_answers(void) {
    open_both("udp://127.0.0.1:0");
    CHECK(ours->spin.for_ns == 20000, "as replay.h says: %" PRIu64, ours->spin.for_ns);
    CHECK(rp_service_stop(service) == 0);
    CHECK(ping(100000000) == -RP_TIMEOUT);
    CHECK(ours->spin.late >= RP_SPIN_LATE, "%u late", ours->spin.late);
    ours->spin.late = RP_SPIN_LATE; /* none of the next ones tries again */
    counted = *rp_port_transport(ours->port);
    look_before = counted.rx_burst;
    sleep_before = counted.wait;
    counted.rx_burst = count_look;
    counted.wait = count_sleep;
    rp_port_base(ours->port)->transport = &counted;
    CHECK(ping(30000000) == -RP_TIMEOUT);
    CHECK(sleeps > 0 && looks <= sleeps + 2, "%u looks, %u sleeps", looks, sleeps);
    ours->spin.for_ns = DRIVE_TIMEOUT_NS;
    CHECK(rp_service_start(service) == 0);
    CHECK(ping(DRIVE_TIMEOUT_NS) == 0);
    CHECK(ours->spin.late == 0, "%u late", ours->spin.late);
    sleeps = 0;
    CHECK(ping(DRIVE_TIMEOUT_NS) == 0 && sleeps == 0, "%u sleeps", sleeps);
    close_both();
    check_group("answers that come late are slept for at once");
}

/* ---- opening ---- */

static uint64_t address_space(void) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%llu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

/* Given links that cannot be opened: no such server, requests beyond what there may be. Expect a
 * sentence, no link, and nothing kept. */
static void check_opening(void) {
    struct rp_link_options plain = {0}, many = {.requests_max = UINT32_MAX};
    struct rp_link *none = (struct rp_link *)1;
    serve_at("udp://127.0.0.1:0");
    int files = open_descriptors();
    for (int i = 0; i < 3; i++) {
        error[0] = 0;
        CHECK(rp_link_open(&none, rp_service_address(service), &many, error) == -RP_BAD_ARGUMENT);
        CHECK(none == NULL && error[0], "%s", error);
        CHECK(rp_link_open(&none, "loopback://nobody", &plain, error) == -RP_SYSTEM);
        CHECK(none == NULL && strstr(error, "nobody serves"), "%s", error);
    }
    CHECK(open_descriptors() == files, "%d files, then %d", files, open_descriptors());
    for (int i = 0; i < 3; i++) {
        CHECK(rp_link_open(&none, rp_service_address(service), &plain, error) == 0, "%s", error);
        CHECK(rp_link_state(none) == 0, "it is opening");
        rp_link_close(none, 0);
    }
    CHECK(open_descriptors() == files, "%d files, then %d", files, open_descriptors());
    uint64_t before = 0, bytes = 0;
    for (int i = 0; i < 12; i++) {
        CHECK(rp_link_open(&none, rp_service_address(service), &plain, error) == 0, "%s", error);
        bytes = none->memory_bytes;
        rp_link_close(none, 0);
        before = i == 2 ? address_space() : before;
    }
    CHECK(address_space() < before + bytes, "%" PRIu64 " bytes, then %" PRIu64, before,
          address_space());
    rp_service_close(service);
    check_group("links that cannot be opened keep nothing");
}

int main(void) {
    check_blocks();
    check_closings();
    check_full();
    check_leaves();
    check_creates();
    check_loss();
    check_turns();
    check_pump_turns();
    check_loopback_pump();
    check_late_answers();
    check_opening();
    return check_done("test_link");
}
