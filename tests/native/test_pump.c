/* Driving: services turned by threads, by hand and by waiting clients; links driven by callers, by
 * several at once, and by pumps that come and go. The same conversation is held each time, and
 * every row that comes back is checked by itself. Nothing here measures time.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "drive_service.h"
#include "drive/link_drive.h"

/* Pushes, settles, samples, updates, asks for stats: all that a learner and an actor do. */
static void converse(struct rp_link *link, uint64_t *next, int rounds) {
    struct rp_table_info info = drive_info(link);
    static struct drive_batch batch;
    double priorities[DRIVE_BATCH_MAX];
    for (int round = 0; round < rounds; round++) {
        struct rp_push_state state;
        struct rp_updated updated;
        struct rp_push_key key;
        drive_push(link, ROW, *next, 100);
        drive_settle(link);
        *next += 100;
        CHECK(rp_link_push_state(link, 0, &state) == 0);
        CHECK(state.steps_stored == *next && state.items_created == *next && state.status == 0);
        CHECK(rp_link_ledger(link, &key, 1) == 1);
        drive_sample(link, &batch, ROW, 64);
        for (int i = 0; i < 64; i++) {
            CHECK(batch.numbers[i] < *next);
            priorities[i] = 1.0 + i;
        }
        int status = drive_wait(link, rp_link_update(link, 0, info.epoch, batch.keys, priorities,
                                                     64, &updated, DRIVE_TIMEOUT_NS), NULL);
        CHECK(status == 0 && updated.unknown == 0 && updated.applied + updated.stale > 0);
        CHECK(updated.applied + updated.stale <= 64);
    }
}

static void check_counts(struct rp_service *service, struct rp_link *link, uint64_t stored) {
    uint64_t ours[RP_COUNTER_COUNT], told[RP_COUNTER_COUNT];
    uint32_t sessions = 0;
    int status = drive_wait(link, rp_link_stats(link, told, &sessions, DRIVE_TIMEOUT_NS), NULL);
    CHECK(status == 0 && sessions == 1 && rp_service_sessions(service) == 1);
    CHECK(rp_service_counters(service, ours) == 0);
    CHECK(ours[RP_COUNT_steps_committed] == stored, "%" PRIu64 " of %" PRIu64,
          ours[RP_COUNT_steps_committed], stored);
    CHECK(told[RP_COUNT_steps_committed] == stored && told[RP_COUNT_items_created] == stored);
    CHECK(rp_link_incarnation(link) == rp_service_incarnation(service));
}

/* Given pushes of every length up to 100, RP_PENDING's number among them. Expect each to say what
 * it took, and no step to be stored twice. */
static void check_push_lengths(void) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service("loopback://lengths", &serve);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    struct rp_push_state state;
    static uint8_t rows[100 * ROW];
    static uint8_t marks[100], items[100];
    uint64_t pushed = 0, next_step = 0;
    uint32_t length = 0;
    struct rp_block block = {.rows = rows, .marks = marks, .items = items, .streams = 1,
                             .step_bytes = ROW, .next_steps = &next_step, .lengths = &length};
    memset(marks, RP_BLOCK_ROW, sizeof marks);
    drive_writer(link, &info);
    for (uint32_t count = 1; count <= 100; count++) {
        for (uint32_t i = 0; i < count; i++) {
            drive_row(rows + i * (size_t)ROW, ROW, pushed + i);
        }
        int run = rp_link_push(link, 0, 0, rows, count, RP_RUN_ITEM, NULL, RP_SLICE_NS);
        CHECK(run == (int)count, "a push of %u steps took %d", count, run);
        block.steps = block.finished = count;
        block.step = 0;
        CHECK(rp_link_push_block(link, 0, &block, RP_SLICE_NS) == 0, "a block of %u rows", count);
        CHECK(block.step == count && next_step == pushed / 2 + count, "it took %u", block.step);
        drive_settle(link);
        pushed += 2 * count;
        CHECK(rp_link_push_state(link, 0, &state) == 0 && state.steps_stored == pushed,
              "after a push of %u: %" PRIu64 " of %" PRIu64 " stored", count, state.steps_stored,
              pushed);
    }
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group("pushes of every length are taken once");
}

/* Stopping and starting a server's thread, in the middle of a conversation: its client repeats. */
static void *restart_service(void *argument) {
    struct rp_service *service = argument;
    for (int i = 0; i < 20; i++) {
        CHECK(rp_service_stop(service) == 0 && rp_service_start(service) == 0);
        CHECK(rp_service_start(service) == 0); /* a second start does nothing */
    }
    return NULL;
}

static void check_conversation(const char *url, int threaded) {
    struct rp_service_options serve = {.spin_us = 5};
    struct rp_link_options options = {.retry_us_min = 2000};
    struct rp_service *service = open_service(url, &serve);
    uint64_t next = 0;
    char text[96];
    pthread_t thread;
    if (threaded) {
        CHECK(rp_service_start(service) == 0);
    }
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    CHECK(info.capacity == CAPACITY && info.step_bytes == ROW && info.item_bytes[0] == ROW);
    drive_writer(link, &info);
    converse(link, &next, 5);
    for (int i = 0; i < 10; i++) {
        CHECK(rp_link_start_pump(link) == 0 && rp_link_start_pump(link) == 0);
        converse(link, &next, 1);
        CHECK(rp_link_stop_pump(link) == 0 && rp_link_stop_pump(link) == 0);
    }
    if (threaded) {
        CHECK(pthread_create(&thread, NULL, restart_service, service) == 0);
        converse(link, &next, 5);
        CHECK(rp_link_start_pump(link) == 0);
        converse(link, &next, 5);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    check_counts(service, link, next);
    rp_link_close(link, DRIVE_TIMEOUT_NS); /* with or without its pump */
    CHECK(rp_service_sessions(service) == 0, "the client said that it left");
    rp_service_close(service);
    snprintf(text, sizeof text, "%s, %s: sync, pump, pump again and again", url,
             threaded ? "a server's thread" : "the waiting client turns the server");
    check_group(text);
}

struct visitor {
    struct rp_link *link;
    struct drive_batch batch;
};

static void *visit(void *argument) {
    struct visitor *visitor = argument;
    for (int i = 0; i < 40; i++) {
        drive_sample(visitor->link, &visitor->batch, ROW, 32);
    }
    return NULL;
}

static void *start_and_stop(void *argument) {
    struct rp_link *link = argument;
    for (int i = 0; i < 100; i++) {
        CHECK(rp_link_start_pump(link) == 0);
        CHECK(rp_link_stop_pump(link) == 0);
    }
    return NULL;
}

/* Three threads draw through one link, while its pump comes and goes. */
static void check_threads(const char *url) {
    static struct visitor visitors[3];
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service(url, &serve);
    char text[96];
    pthread_t threads[4];
    CHECK(rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    drive_push(link, ROW, 0, 500);
    drive_settle(link);
    for (int i = 0; i < 3; i++) {
        visitors[i].link = link;
        CHECK(pthread_create(&threads[i], NULL, visit, &visitors[i]) == 0);
    }
    CHECK(pthread_create(&threads[3], NULL, start_and_stop, link) == 0);
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    snprintf(text, sizeof text, "%s: three threads and a pump that comes and goes", url);
    check_group(text);
}

/* Several draws under way at once land by themselves while the pump runs. */
static void check_prefetch(void) {
    static struct drive_batch batches[4];
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve);
    int tickets[4];
    CHECK(rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    drive_push(link, ROW, 0, 800);
    drive_settle(link);
    CHECK(rp_link_start_pump(link) == 0);
    for (int i = 0; i < 4; i++) {
        tickets[i] = drive_draw(link, &batches[i], ROW, 512, DRIVE_TIMEOUT_NS);
    }
    for (int i = 0; i < 40; i++) {
        int status = drive_wait(link, tickets[i % 4], NULL);
        CHECK(status == 0, "%s", rp_status_name(status));
        drive_check_rows(&batches[i % 4], ROW, 512);
        tickets[i % 4] = drive_draw(link, &batches[i % 4], ROW, 512, DRIVE_TIMEOUT_NS);
    }
    rp_link_take(link, tickets[0]);
    CHECK(rp_link_wait(link, 0, 0, NULL) == -RP_BAD_ARGUMENT);
    rp_link_close(link, DRIVE_TIMEOUT_NS); /* three draws are under way */
    rp_service_close(service);
    check_group("udp: four batches of 512 under way at once, closed in the middle");
}

/* One run by virtual time: what was drawn, and the server's counters. */
static void run_virtual(uint64_t *keys, uint64_t *counters) {
    static struct drive_batch batch;
    struct rp_service_options serve = {.virtual_clock = 1};
    struct rp_link_options options = {.seed = 5};
    struct rp_service *service = open_service("loopback://virtual", &serve);
    struct rp_blocked blocked;
    CHECK(rp_service_start(service) == -RP_BAD_ARGUMENT);
    struct rp_link *link = drive_link("loopback://virtual", &options);
    CHECK(rp_link_start_pump(link) == -RP_BAD_ARGUMENT);
    struct rp_table_info info = drive_info(link);
    /* Nothing is stored: an hour passes at once, and the limiter says what it waited for. */
    int status = drive_wait(link, drive_draw(link, &batch, ROW, 8, 3600000000000u), &blocked);
    CHECK(status == -RP_BLOCKED && blocked.by_size == 1 && blocked.need == 1, "%s",
          rp_status_name(status));
    drive_writer(link, &info);
    drive_push(link, ROW, 0, 300);
    drive_settle(link);
    for (int i = 0; i < 8; i++) {
        drive_sample(link, &batch, ROW, 64);
        memcpy(keys + (size_t)i * 64, batch.keys, 64 * sizeof *keys);
    }
    CHECK(rp_service_counters(service, counters) == 0);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
}

static void check_virtual(void) {
    static uint64_t keys[2][512], counters[2][RP_COUNTER_COUNT];
    run_virtual(keys[0], counters[0]);
    run_virtual(keys[1], counters[1]);
    CHECK(memcmp(keys[0], keys[1], sizeof keys[0]) == 0);
    CHECK(memcmp(counters[0], counters[1], sizeof counters[0]) == 0);
    check_group("a virtual clock: two runs alike, an hour's wait in no time");
}

/* A blocked draw keeps its caller for a slice only, and can be left. */
static void check_slices(void) {
    static struct drive_batch batch;
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service("loopback://slices", &serve);
    struct rp_link *link = drive_link("loopback://slices", &options);
    struct rp_link *other = drive_link("loopback://slices", &options);
    struct rp_table_info info = drive_info(other);
    int ticket = drive_draw(link, &batch, ROW, 16, DRIVE_TIMEOUT_NS);
    CHECK(rp_link_wait(link, ticket, UINT64_MAX, NULL) == RP_PENDING);
    CHECK(rp_link_poll(link, ticket) == RP_PENDING);
    rp_link_take(link, ticket);
    ticket = drive_draw(link, &batch, ROW, 16, DRIVE_TIMEOUT_NS);
    CHECK(rp_link_start_pump(link) == 0); /* asleep, it is woken by what another client causes */
    drive_writer(other, &info);
    drive_push(other, ROW, 0, 64);
    drive_settle(other);
    CHECK(drive_wait(link, ticket, NULL) == 0);
    drive_check_rows(&batch, ROW, 16);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_link_close(other, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group("a blocked draw: slices, leaving it, release by another client");
}

/* A service of its own thread, whose sessions may be silent for so long. */
static struct rp_service *serve_for(uint32_t idle_ms) {
    struct rp_service_options serve = {0};
    struct rp_service *service;
    struct drive_table made;
    char error[RP_ERROR_BYTES];
    drive_config(&made, CAPACITY, ROW);
    made.config.idle_ms = idle_ms;
    CHECK(rp_service_open(&service, &made.config, "udp://127.0.0.1:0", &serve, error) == 0, "%s",
          error);
    CHECK(rp_service_start(service) == 0);
    return service;
}

/* Given a client whose caller does something else, for several times as long as a session may be
 * silent. Expect its keeper to speak for it; and a call behind that to find the session there. */
static void check_kept(void) {
    struct rp_link_options options = {0};
    struct rp_service *service = serve_for(1000);
    uint64_t before[RP_COUNTER_COUNT], after[RP_COUNTER_COUNT];
    struct timespec pause = {.tv_nsec = 10000000};
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    CHECK(rp_service_counters(service, before) == 0);
    do { /* it speaks three times in so long */
        nanosleep(&pause, NULL);
        CHECK(rp_service_counters(service, after) == 0);
        CHECK(after[RP_COUNT_sessions_expired] == 0);
    } while (after[RP_COUNT_datagrams_in] < before[RP_COUNT_datagrams_in] + 6);
    drive_writer(link, &info);
    CHECK(rp_service_sessions(service) == 1);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group("who is busy elsewhere keeps the session");
}

/* Given a link that another thread drives, and at which nobody looked for long. Expect its keeper
 * to come, and to leave the turns to that thread. */
static void check_not_kept(void) {
    struct rp_link_options options = {0};
    struct rp_service *service = serve_for(30000);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    CHECK(rp_gate_enter(&link->gate) == 0);
    link->driven = 1;
    link->looked_ns = 0;
    uint32_t comes = atomic_load(&link->gate.next) + 8; /* twice for each of its looks */
    rp_gate_leave(&link->gate);
    while ((int32_t)(comes - atomic_load(&link->gate.next)) > 0) {
        sched_yield();
    }
    CHECK(rp_gate_enter(&link->gate) == 0);
    CHECK(link->looked_ns == 0, "the keeper took a turn of the driver's");
    link->driven = 0;
    rp_gate_leave(&link->gate);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group("a keeper leaves a link alone that is driven");
}

/* Given a client that connects, takes a writer's place and is never heard again, and a service that
 * receives nothing more. Expect its thread to give the session up by itself. */
static void check_silence(void) {
    struct rp_link_options options = {.unkept = 1};
    struct rp_service *service = serve_for(200);
    uint64_t before[RP_COUNTER_COUNT], after[RP_COUNTER_COUNT];
    struct timespec pause = {.tv_nsec = 10000000};
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    CHECK(rp_service_counters(service, before) == 0 && rp_service_sessions(service) == 1);
    for (int i = 0; rp_service_sessions(service) > 0; i++) {
        CHECK(i < 3000, "the silent session is still there");
        nanosleep(&pause, NULL);
    }
    CHECK(rp_service_counters(service, after) == 0);
    CHECK(after[RP_COUNT_datagrams_in] == before[RP_COUNT_datagrams_in]);
    CHECK(after[RP_COUNT_sessions_expired] == 1);
    rp_link_close(link, 0);
    rp_service_close(service);
    check_group("a sleeping service gives up the silent");
}

static void check_refusals(void) {
    char error[RP_ERROR_BYTES];
    struct drive_table made;
    struct rp_service *service = NULL;
    struct rp_service_options plain = {0}, timed = {.virtual_clock = 1}, pinned = {.core = 1000};
    struct rp_link_options hurried = {.connect_timeout_ns = 30000000, .retry_us_min = 2000};
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, "udp://0.0.0.0:0", &plain, error)
          == -RP_INSECURE);
    CHECK(!service && strstr(error, "--insecure"), "%s", error);
    CHECK(rp_service_open(&service, &made.config, "udp://127.0.0.1:0", &timed, error)
          == -RP_BAD_ARGUMENT);
    CHECK(strstr(error, "virtual clock"), "%s", error);
    made.table.capacity = 0;
    CHECK(rp_service_bytes(&made.config, "udp://127.0.0.1:0", error) == 0 && error[0]);
    CHECK(rp_service_open(&service, &made.config, "udp://127.0.0.1:0", &plain, error)
          == -RP_BAD_ARGUMENT);
    service = open_service("udp://127.0.0.1:0", &pinned);
    CHECK(rp_service_start(service) == -RP_BAD_ARGUMENT, "no such core");
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_memory(service)
          == rp_service_bytes(&made.config, rp_service_address(service), error));
    /* Nobody turns the server: the link gives up after its time-out, and closes without waiting. */
    struct rp_link *link;
    CHECK(rp_link_open(&link, rp_service_address(service), &hurried, error) == 0, "%s", error);
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_connect(link, RP_SLICE_NS);
    }
    CHECK(status == -RP_TIMEOUT, "%s", rp_status_name(status));
    rp_link_close(link, UINT64_MAX);
    rp_service_close(service);
    rp_service_close(NULL);
    rp_link_close(NULL, 0);
    check_group("refusals at open, each in a sentence; a server that never answers");
}

int main(void) {
    check_conversation("loopback://talk", 0);
    check_conversation("loopback://talk", 1);
    check_conversation("udp://127.0.0.1:0", 1);
    check_conversation("udp://[::1]:0?mtu=512", 1);
    check_push_lengths();
    check_threads("loopback://crowd");
    check_threads("udp://127.0.0.1:0");
    check_prefetch();
    check_virtual();
    check_slices();
    check_kept();
    check_not_kept();
    check_silence();
    check_refusals();
    return check_done("test_pump");
}
