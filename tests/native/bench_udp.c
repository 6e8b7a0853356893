/* bench_udp.c: the whole way, from a client in C to a server and back, over kernel UDP on this
 * host or over loopback.
 *
 *     bench_udp [seconds per row, default 1] [udp | loopback | URL of a server that runs elsewhere]
 *     bench_udp 0 serve URL      that server, until its input ends
 *
 * A small step is an observation of four float32, an action, a reward and two flags, 32 bytes; an
 * item is one transition, 48 bytes: the observation before and after, action, reward, flags. Over
 * UDP the server's thread and the client have a core each, where there are two, and the rows come
 * in three modes: busy polling; spinning for 20 us before sleeping, as is the default; sleeping at
 * once. Over loopback the client turns the server itself. An acknowledged push is one step, or one
 * step and the item it completes, waited for. All that comes back is checked and hashed. The first
 * row is the bare round trip of two sockets, in the same run, since machines are noisy.
 */
#include <sched.h>
#include <unistd.h>

#include "bench.h"
#include "bench_bare.h"
#include "drive.h"

enum { CAPACITY = 1 << 17, FILL = 1 << 16, LATENCIES_MAX = 1 << 20, PREFETCH = 8, UPDATES = 80 };

struct step {
    float observation[4];
    int64_t action;
    float reward;
    uint8_t flags[4];
};

static const struct rp_column columns[] = {{0, 16, 0}, {16, 8, 0}, {24, 8, 0}};
static const struct rp_pick picks[] = {{0, 0}, {0, 1}, {1, 0}, {2, 0}};
static const struct rp_plan plan = {"transition", picks, 4};
static const struct rp_table_config table = {
    .name = "main", .capacity = CAPACITY, .step_bytes = sizeof(struct step), .columns = columns,
    .column_count = 3, .plans = &plan, .plan_count = 1, .alpha = 0.6, .min_size = 1,
    .writers_max = 1, .streams_max = 1, .window = CAPACITY / 64, .pieces_max = 1,
    .spec = "small", .spec_bytes = 5};

struct item {
    float before[4];
    float after[4];
    int64_t action;
    float reward;
    uint8_t flags[4];
};

struct batch {
    uint64_t keys[DRIVE_BATCH_MAX];
    struct item items[DRIVE_BATCH_MAX];
    uint8_t valid[DRIVE_BATCH_MAX];
    struct rp_landing_column column;
    struct rp_landing landing;
};

static double latencies[LATENCIES_MAX];
static double row_ns;
static struct bench_row row;
static uint64_t next_step;

static struct step step_of(uint64_t number) {
    struct step step = {.action = (int64_t)number, .reward = (float)(number % 7)};
    for (int i = 0; i < 4; i++) {
        step.observation[i] = (float)((number * 31 + (uint64_t)i) % 65521);
    }
    return step;
}

/* ---- requests ---- */

static void push(struct rp_link *link, uint32_t count) {
    struct step steps[64];
    uint16_t streams[64] = {0};
    uint64_t anchors[64];
    double priorities[64];
    uint32_t items = 0;
    for (uint32_t i = 0; i < count; i++) {
        steps[i] = step_of(next_step + i);
        if (next_step + i > 0) {
            priorities[items] = 0.5 + (double)((next_step + i) % 7);
            anchors[items++] = next_step + i - 1;
        }
    }
    for (uint32_t taken = 0; taken < count;) {
        int got = rp_link_push(link, 0, 0, (const uint8_t *)(steps + taken), count - taken, 0,
                               NULL, RP_SLICE_NS);
        CHECK(got >= 0, "push: %s", rp_status_name(got));
        taken += (uint32_t)got;
    }
    for (uint32_t taken = 0; taken < items;) {
        int got = rp_link_create(link, 0, streams, anchors + taken, priorities + taken,
                                 items - taken, RP_SLICE_NS);
        CHECK(got >= 0, "create: %s", rp_status_name(got));
        taken += (uint32_t)got;
    }
    next_step += count;
}

static int draw(struct rp_link *link, struct batch *batch, uint32_t count) {
    struct rp_sample request = {.count = count, .budget = 64};
    batch->column = (struct rp_landing_column){
        .target = (uint8_t *)batch->items, .stride = sizeof(struct item),
        .size = sizeof(struct item)};
    batch->landing = (struct rp_landing){
        .columns = &batch->column, .column_count = 1, .item_bytes = sizeof(struct item),
        .keys = batch->keys, .valid = batch->valid};
    return rp_link_sample(link, 0, &request, NULL, &batch->landing, DRIVE_TIMEOUT_NS);
}

static uint32_t check_batch(const struct batch *batch, uint32_t count, uint32_t hash) {
    for (uint32_t i = 0; i < count; i++) {
        const struct item *item = &batch->items[i];
        struct step before = step_of((uint64_t)item->action);
        struct step after = step_of((uint64_t)item->action + 1);
        CHECK(batch->valid[i], "item %u", i);
        CHECK(memcmp(item->before, before.observation, sizeof item->before) == 0
              && memcmp(item->after, after.observation, sizeof item->after) == 0
              && item->reward == before.reward, "item %u, step %" PRId64, i, item->action);
    }
    hash = rp_crc32c(hash, batch->keys, count * sizeof batch->keys[0]);
    return rp_crc32c(hash, batch->items, count * sizeof batch->items[0]);
}

/* ---- rows ---- */

static void push_many(struct rp_link *link) {
    double start = bench_ns();
    uint64_t first = next_step;
    while (next_step < FILL || bench_ns() - start < row_ns) {
        push(link, 64);
    }
    drive_settle(link);
    row.name = "push_stream";
    row.batch = 0;
    bench_number(&row, "steps", (double)(next_step - first) * 1e9 / (bench_ns() - start), "1/s");
}

static void push_one(struct rp_link *link, int with_item) {
    size_t count = 0;
    double start = bench_ns(), before = start;
    while (before - start < row_ns && count < LATENCIES_MAX) {
        if (with_item) {
            push(link, 1);
        } else {
            struct step step = step_of(next_step++);
            int got = rp_link_push(link, 0, 0, (const uint8_t *)&step, 1, 0, NULL, RP_SLICE_NS);
            CHECK(got == 1, "push: %s", rp_status_name(got));
        }
        drive_settle(link);
        double after = bench_ns();
        latencies[count++] = (after - before) / 1e3;
        before = after;
    }
    row.name = with_item ? "push_with_item_acknowledged" : "push_acknowledged";
    row.batch = 1;
    bench_latency(&row, latencies, count);
}

static void sample_one(struct rp_link *link, uint32_t items) {
    static struct batch batch;
    size_t count = 0;
    uint32_t hash = 0;
    double start = bench_ns(), before = start;
    while (before - start < row_ns && count < LATENCIES_MAX) {
        CHECK(drive_wait(link, draw(link, &batch, items), NULL) == 0);
        latencies[count++] = (bench_ns() - before) / 1e3;
        hash = check_batch(&batch, items, hash);
        before = bench_ns();
    }
    row.name = "sample";
    row.batch = items;
    bench_latency(&row, latencies, count);
    bench_hash(&row, hash);
}

/* Several draws under way at once. */
static void sample_many(struct rp_link *link, uint32_t items) {
    static struct batch batches[PREFETCH];
    int tickets[PREFETCH];
    uint64_t drawn = 0;
    double start = bench_ns(), passed = 0;
    for (int i = 0; i < PREFETCH; i++) {
        tickets[i] = draw(link, &batches[i], items);
    }
    for (uint64_t i = 0; passed < row_ns; i++) {
        CHECK(drive_wait(link, tickets[i % PREFETCH], NULL) == 0);
        drawn += items;
        tickets[i % PREFETCH] = draw(link, &batches[i % PREFETCH], items);
        passed = bench_ns() - start;
    }
    for (int i = 0; i < PREFETCH; i++) {
        CHECK(drive_wait(link, tickets[i], NULL) == 0);
        check_batch(&batches[i], items, 0);
    }
    row.name = "sample_stream";
    row.batch = items;
    bench_number(&row, "items", (double)drawn * 1e9 / passed, "1/s");
    bench_number(&row, "payload", (double)drawn * sizeof(struct item) * 8 / passed, "Gbit/s");
}

/* The items of one draw again and again, as many updates under way as the link takes. */
static void update_many(struct rp_link *link, const struct rp_table_info *info) {
    static struct batch batch;
    static struct rp_updated results[PREFETCH];
    double priorities[UPDATES], start;
    int tickets[PREFETCH] = {0};
    uint64_t applied = 0, turn = 0;
    CHECK(drive_wait(link, draw(link, &batch, UPDATES), NULL) == 0);
    for (int i = 0; i < UPDATES; i++) {
        priorities[i] = 1 + i % 5;
    }
    start = bench_ns();
    for (int last = 0; !last || turn % PREFETCH; turn++) {
        int *ticket = &tickets[turn % PREFETCH];
        last = last || bench_ns() - start >= row_ns;
        if (*ticket > 0) {
            CHECK(drive_wait(link, *ticket, NULL) == 0);
            applied += results[turn % PREFETCH].applied;
        }
        *ticket = rp_link_update(link, 0, info->epoch, batch.keys, priorities, UPDATES,
                                 &results[turn % PREFETCH], DRIVE_TIMEOUT_NS);
        CHECK(*ticket > 0, "update: %s", rp_status_name(*ticket));
    }
    double spent = bench_ns() - start;
    for (int i = 0; i < PREFETCH; i++) {
        CHECK(tickets[i] == 0 || drive_wait(link, tickets[i], NULL) == 0);
    }
    row.name = "update_stream";
    row.batch = UPDATES;
    bench_number(&row, "priorities", (double)applied * 1e9 / spent, "1/s");
}

static void print_counters(struct rp_link *link) {
    uint64_t counters[RP_COUNTER_COUNT];
    CHECK(rp_link_counters(link, counters) == 0);
    row.name = "client_counters";
    row.batch = 0;
    bench_number(&row, "retransmissions", (double)counters[RP_COUNT_retransmissions], "");
    bench_number(&row, "redraws", (double)counters[RP_COUNT_redraws], "");
}

/* ---- the world ---- */

struct mode {
    const char *workload;
    uint32_t busy_poll;
    uint32_t spin_us;
};

static struct rp_service *open_server(const char *url, const struct mode *mode, int threads) {
    struct rp_service *service;
    struct rp_server_config config = {
        .tables = &table, .table_count = 1, .sessions_max = 4, .batch_max = DRIVE_BATCH_MAX,
        .records = 16, .idle_ms = 30000, .lapse_ms = 100, .weights_max = 1 << 16, .seed = 1};
    struct rp_service_options options = {.busy_poll = mode->busy_poll, .spin_us = mode->spin_us,
                                         .core = threads > 1 ? 2 : 0};
    char error[RP_ERROR_BYTES];
    CHECK(rp_service_open(&service, &config, url, &options, error) == 0, "%s", error);
    CHECK(threads == 0 || rp_service_start(service) == 0);
    return service;
}

/* The client's thread on the first core; the server's is on the second. */
static void pin_client(void) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
}

static void serve(const char *url, int threads) {
    static const struct mode polling = {"serving", 1, 0};
    struct rp_service *service = open_server(url, &polling, threads);
    printf("%s\n", rp_service_address(service));
    fflush(stdout);
    while (getchar() != EOF) {
    }
    rp_service_close(service);
}

static void run_mode(const char *url, const struct mode *mode, int own, int threads) {
    struct rp_service *service = own ? open_server(url, mode, threads) : NULL;
    struct rp_link_options options = {.busy_poll = mode->busy_poll, .spin_us = mode->spin_us};
    struct rp_link *link = drive_link(service ? rp_service_address(service) : url, &options);
    struct rp_table_info info = drive_info(link);
    next_step = 0;
    char scheme[16];
    snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(url, ":"), url);
    row = (struct bench_row){NULL, scheme, mode->workload, 0};
    drive_writer(link, &info);
    push_many(link);
    push_one(link, 0);
    push_one(link, 1);
    sample_one(link, 32);
    sample_one(link, 512);
    sample_many(link, 512);
    update_many(link, &info);
    print_counters(link);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
}

int main(int argc, char **argv) {
    static const struct mode modes[] = {{"small, busy polling", 1, 0},
                                        {"small, spinning then sleeping", 0, 0},
                                        {"small, sleeping", 0, 1}};
    static const struct mode alone = {"small, one thread", 0, 0};
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *where = argc > 2 ? argv[2] : "udp";
    row_ns = (argc > 1 ? atof(argv[1]) : 1.0) * 1e9;
    if (strcmp(where, "loopback") == 0) {
        run_mode("loopback://bench", &alone, 1, 0);
        return check_done("bench_udp");
    }
    if (strcmp(where, "serve") == 0) {
        serve(argc > 3 ? argv[3] : "udp://127.0.0.1:0", cores > 1 ? 2 : 1);
        return 0;
    }
    int own = strcmp(where, "udp") == 0;
    if (cores > 1) {
        pin_client();
    }
    if (own && cores > 1) {
        row = (struct bench_row){"bare_round_trip", "udp", "96 bytes out, 1400 back, polling", 1};
        bench_bare(&row, 96, 1400, row_ns, 2, latencies, LATENCIES_MAX);
    }
    for (int i = cores > 1 ? 0 : 1; i < 3; i++) { /* one core cannot poll at both ends */
        run_mode(own ? "udp://127.0.0.1:0" : where, &modes[i], own, cores > 1 ? 2 : 1);
    }
    return check_done("bench_udp");
}
