/* What measures a link measures what it says: every step put is stored once, every item got
 * is looked at, and the figures are those of the calls. Over kernel UDP, with a server's thread. */
#include "drive/clock.h"
#include "drive.h"

enum { ROW = 64, WORDS = ROW / 8, CAPACITY = 4096, BATCH = 5, DEPTH = 8, GUARD = 0xA5 };

#define AN_HOUR_NS 3600000000000u

struct world {
    struct rp_service *service;
    struct rp_link *link;
    struct rp_probe probe;
    uint8_t memory[(DEPTH + 1) * BATCH * ROW]; /* the last part is nobody's */
};

static struct world world;

static void open_world(void) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.retry_us_min = 2000, .retry_us_max = 8000,
                                      .requests_max = DEPTH};
    struct drive_table made;
    char error[RP_ERROR_BYTES];
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&world.service, &made.config, "udp://127.0.0.1:0", &serve, error) == 0,
          "%s", error);
    CHECK(rp_service_start(world.service) == 0);
    world.link = drive_link(rp_service_address(world.service), &options);
    struct rp_table_info info = drive_info(world.link);
    drive_writer(world.link, &info);
    memset(world.memory, GUARD, sizeof world.memory);
    world.probe = (struct rp_probe){.work = RP_PROBE_PUT, .bytes = ROW, .batch = BATCH, .depth = 1,
                                    .patience_ns = DRIVE_TIMEOUT_NS, .memory = world.memory};
}

static void close_world(void) {
    for (size_t i = DEPTH * BATCH * ROW; i < sizeof world.memory; i++) {
        CHECK(world.memory[i] == GUARD, "byte %zu behind the last draw's part", i);
    }
    rp_link_close(world.link, DRIVE_TIMEOUT_NS);
    rp_service_close(world.service);
}

static uint64_t count_of(int counter) {
    uint64_t counters[RP_COUNTER_COUNT];
    CHECK(rp_service_counters(world.service, counters) == 0);
    return counters[counter];
}

/* A step as the page says: its number, words that count up, the number mixed. */
static void make_step(uint64_t words[WORDS], uint64_t number) {
    for (uint64_t i = 0; i < WORDS; i++) {
        words[i] = i == 0 ? number : i < WORDS - 1 ? i : number * 0x9e3779b97f4a7c15u;
    }
}

/* Fills the table with items whose word `wrong` is not as it should be; none if that is WORDS. */
static void fill(uint32_t wrong) {
    uint64_t words[WORDS];
    for (uint64_t number = 0; number < 40; number++) {
        make_step(words, number + 100);
        if (wrong < WORDS) {
            words[wrong] ^= 1;
        }
        CHECK(rp_link_push(world.link, 0, 0, (uint8_t *)words, 1, RP_RUN_ITEM, NULL, RP_SLICE_NS)
              == 1);
    }
    drive_settle(world.link);
}

static int latency(uint32_t *took, uint32_t count, uint64_t limit_ns) {
    uint64_t begun = rp_clock_ns();
    int calls = rp_link_probe_latency(world.link, &world.probe, took, count, limit_ns);
    uint64_t passed = rp_clock_ns() - begun, sum = 0;
    for (int i = 0; i < calls; i++) {
        sum += took[i];
    }
    CHECK(calls < 0 || (sum == world.probe.spent_ns && sum <= passed),
          "%" PRIu64 " of %" PRIu64 " ns in calls, %" PRIu64 " passed", sum, world.probe.spent_ns,
          passed);
    return calls;
}

/* The time of a rate's calls is all of it: at least as long as was asked for. */
static int rate(uint64_t limit_ns) {
    uint64_t begun = rp_clock_ns();
    int status = rp_link_probe_rate(world.link, &world.probe, limit_ns);
    uint64_t passed = rp_clock_ns() - begun;
    CHECK(status == -RP_BAD_ARGUMENT
              || (world.probe.spent_ns <= passed && (status || world.probe.spent_ns >= limit_ns)),
          "%" PRIu64 " ns spent, %" PRIu64 " passed", world.probe.spent_ns, passed);
    return status;
}

/* Given 7 puts of 5 steps. Expect 35 items, each as it should be, and every call's time told. */
static void check_puts(void) {
    uint32_t took[8] = {[7] = 77};
    uint8_t seen[70] = {0};
    static uint64_t words[DRIVE_BATCH_MAX][WORDS];
    uint64_t expected[WORDS];
    struct rp_landing_column column = {.target = (uint8_t *)words, .stride = ROW, .size = ROW};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = ROW};
    struct rp_sample request = {.count = DRIVE_BATCH_MAX, .mode = RP_SAMPLE_STRATIFIED};
    open_world();
    CHECK(latency(took, 7, 0) == 0 && world.probe.done == 0 && world.probe.next == 0);
    for (uint64_t time = 1; time <= 2; time++) { /* numbers count on, what is told begins anew */
        CHECK(latency(took, 7, AN_HOUR_NS) == 7 && took[7] == 77);
        CHECK(world.probe.done == 35 && world.probe.wrong == 0);
        CHECK(world.probe.next == 35 * time && count_of(RP_COUNT_items_created) == 35 * time);
    }
    int ticket = rp_link_sample(world.link, 0, &request, NULL, &landing, DRIVE_TIMEOUT_NS);
    CHECK(drive_wait(world.link, ticket, NULL) == 0);
    for (uint32_t i = 0; i < DRIVE_BATCH_MAX; i++) {
        CHECK(words[i][0] < 70, "item %u is step %" PRIu64, i, words[i][0]);
        make_step(expected, words[i][0]);
        CHECK(memcmp(words[i], expected, ROW) == 0, "step %" PRIu64, words[i][0]);
        seen[words[i][0]] = 1;
    }
    CHECK(memchr(seen, 0, sizeof seen) == NULL, "a step that was put is not there");
    world.probe.batch = 2; /* nothing of the batch before is put again */
    CHECK(rate(0) == 0 && world.probe.done == 2 && count_of(RP_COUNT_items_created) == 72);
    CHECK(rate(3000000) == 0 && world.probe.done >= 2 && world.probe.done % 2 == 0);
    CHECK(count_of(RP_COUNT_items_created) == 72 + world.probe.done, "all answered at the end");
    CHECK(world.probe.next == 72 + world.probe.done);
    close_world();
    check_group("puts: every step is stored once and as it should be");
}

/* Given items of which one word is wrong. Expect a latency's gets to find each, those of a rate
 * the first and the last word's; none among right ones. */
static void check_gets(void) {
    for (uint32_t wrong = 0; wrong <= WORDS; wrong++) {
        uint32_t took[6];
        open_world();
        fill(wrong);
        world.probe.work = RP_PROBE_GET;
        CHECK(latency(took, 6, AN_HOUR_NS) == 6 && world.probe.done == 6 * BATCH);
        CHECK(world.probe.wrong == (wrong < WORDS ? world.probe.done : 0),
              "word %u: %" PRIu64 " wrong", wrong, world.probe.wrong);
        world.probe.depth = 3;
        CHECK(rate(0) == 0 && world.probe.done == 3 * BATCH, "%" PRIu64, world.probe.done);
        CHECK(world.probe.wrong == (wrong == 0 || wrong == WORDS - 1 ? world.probe.done : 0),
              "word %u: %" PRIu64 " wrong", wrong, world.probe.wrong);
        close_world();
    }
    check_group("gets: every wrong item is found");
}

/* Given gets under way at once. Expect each to have its own part of the memory, no more than there
 * is room for, and all of them to be answered at the end. */
static void check_depth(void) {
    static const uint32_t depths[] = {1, 3, DEPTH, DEPTH + 1, 1000};
    open_world();
    fill(WORDS);
    world.probe.work = RP_PROBE_GET;
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        uint64_t draws = depths[d] < DEPTH ? depths[d] : DEPTH;
        uint64_t drawn = count_of(RP_COUNT_items_sampled);
        memset(world.memory, GUARD, DEPTH * BATCH * ROW);
        world.probe.depth = depths[d];
        CHECK(rate(0) == 0 && world.probe.done == draws * BATCH);
        CHECK(world.probe.wrong == 0);
        for (uint64_t i = 0; i < DEPTH * BATCH; i++) {
            uint64_t words[WORDS], expected[WORDS];
            memcpy(words, world.memory + i * ROW, ROW);
            make_step(expected, words[0]);
            CHECK((memcmp(words, expected, ROW) == 0) == (i < draws * BATCH),
                  "depth %u, item %" PRIu64, depths[d], i);
        }
        CHECK(count_of(RP_COUNT_items_sampled) == drawn + world.probe.done);
        CHECK(rate(3000000) == 0 && world.probe.wrong == 0);
        CHECK(world.probe.done >= draws * BATCH && world.probe.done % BATCH == 0);
        CHECK(count_of(RP_COUNT_items_sampled)
              == drawn + draws * BATCH + world.probe.done, "as many as were drawn");
    }
    close_world();
    check_group("gets under way at once: each has its own memory, all are answered");
}

/* Given a table that holds nothing, and a server that does not answer. Expect the reason, nothing
 * counted as done, and every request's place free again. */
static void check_ends(void) {
    uint32_t took[3];
    int tickets[DEPTH];
    open_world();
    world.probe.patience_ns = 200000000;
    world.probe.work = RP_PROBE_GET;
    world.probe.depth = DEPTH;
    CHECK(latency(took, 3, AN_HOUR_NS) == -RP_BLOCKED && world.probe.done == 0);
    CHECK(rate(AN_HOUR_NS) == -RP_BLOCKED && world.probe.done == 0);
    fill(WORDS);
    world.probe.patience_ns = 20000000;
    CHECK(rp_service_stop(world.service) == 0);
    CHECK(latency(took, 3, AN_HOUR_NS) == -RP_TIMEOUT && world.probe.done == 0);
    CHECK(world.probe.spent_ns >= world.probe.patience_ns);
    CHECK(rate(AN_HOUR_NS) == -RP_TIMEOUT && world.probe.done == 0 && world.probe.wrong == 0);
    for (uint32_t i = 0; i < DEPTH; i++) {
        tickets[i] = rp_link_ping(world.link, DRIVE_TIMEOUT_NS);
        CHECK(tickets[i] > 0, "place %u: %s", i, rp_status_name(tickets[i]));
    }
    for (uint32_t i = 0; i < DEPTH; i++) {
        rp_link_take(world.link, tickets[i]);
    }
    world.probe.work = RP_PROBE_PUT;
    CHECK(latency(took, 3, AN_HOUR_NS) == -RP_TIMEOUT && world.probe.done == 0);
    CHECK(world.probe.spent_ns >= world.probe.patience_ns);
    CHECK(rate(AN_HOUR_NS) == -RP_TIMEOUT, "the queue stays full");
    CHECK(world.probe.done % BATCH == 0 && world.probe.next > world.probe.done);
    CHECK(rp_service_start(world.service) == 0);
    drive_settle(world.link); /* what was taken is stored all the same */
    rp_link_end(world.link, 0);
    CHECK(latency(took, 3, AN_HOUR_NS) == -RP_CLOSED && rate(0) == -RP_CLOSED);
    world.probe.work = RP_PROBE_GET;
    CHECK(latency(took, 3, AN_HOUR_NS) == -RP_CLOSED && rate(0) == -RP_CLOSED);
    close_world();
    check_group("a measurement that cannot go on says why, and leaves nothing under way");
}

static void no_memory(struct rp_probe *probe) { probe->memory = NULL; }
static void no_batch(struct rp_probe *probe) { probe->batch = 0; }
static void eight_bytes(struct rp_probe *probe) { probe->bytes = 8; }
static void twenty_bytes(struct rp_probe *probe) { probe->bytes = 20; }
static void no_work(struct rp_probe *probe) { probe->work = 0; }
static void third_work(struct rp_probe *probe) { probe->work = 3; }

/* Given a probe that cannot be. Expect it refused before anything is told. 16 bytes can be, though
 * not with this table. */
static void check_refusals(void) {
    static void (*const spoil[])(struct rp_probe *) = {no_memory, no_batch, eight_bytes,
                                                       twenty_bytes, no_work, third_work};
    uint32_t took[1];
    open_world();
    fill(WORDS);
    struct rp_probe good = world.probe;
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        world.probe = good;
        world.probe.done = 7;
        spoil[i](&world.probe);
        CHECK(latency(took, 1, AN_HOUR_NS) == -RP_BAD_ARGUMENT && world.probe.done == 7, "%zu", i);
        CHECK(rate(0) == -RP_BAD_ARGUMENT && world.probe.done == 7, "%zu", i);
    }
    world.probe = good;
    world.probe.depth = 0;
    CHECK(rate(0) == -RP_BAD_ARGUMENT);
    CHECK(latency(took, 1, AN_HOUR_NS) == 1, "a latency needs no depth");
    world.probe.bytes = 16;
    world.probe.work = RP_PROBE_GET;
    world.probe.patience_ns = 20000000;
    CHECK(latency(took, 1, AN_HOUR_NS) == -RP_TIMEOUT, "items of another size do not land");
    close_world();
    check_group("probes that cannot be are refused");
}

int main(void) {
    check_puts();
    check_gets();
    check_depth();
    check_ends();
    check_refusals();
    return check_done("test_link_probe");
}
