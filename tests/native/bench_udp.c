/* First figures of the whole way over kernel UDP on this host: a server's thread and a client that
 * poll without sleeping, one core each where the machine has two.
 *
 *     bench_udp [seconds per row, default 1] [URL of a server that runs elsewhere]
 *
 * Prints one row per figure, separated by tabs: name, transport, workload, batch, metric, value,
 * unit. Rows are 64 bytes, each an item with a priority of its own. All that comes back is checked
 * and hashed, so that what is timed is what arrived.
 */
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"

enum { ROW = 64, CAPACITY = 1 << 20, LATENCIES_MAX = 1 << 20, PREFETCH = 8 };

static uint64_t latencies[LATENCIES_MAX];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void print_row(const char *name, const char *workload, uint32_t batch, const char *metric,
                      double value, const char *unit)
{
    printf("%s\tudp\t%s\t%u\t%s\t%.2f\t%s\n", name, workload, batch, metric, value, unit);
    fflush(stdout);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_latencies(const char *name, const char *workload, uint32_t batch, size_t count)
{
    CHECK(count > 0, "%s: nothing was measured", name);
    qsort(latencies, count, sizeof latencies[0], compare);
    print_row(name, workload, batch, "p50", (double)latencies[count / 2] / 1e3, "us");
    print_row(name, workload, batch, "p99", (double)latencies[count * 99 / 100] / 1e3, "us");
}

/* One acknowledged row at a time: posted, flushed, settled. */
static uint64_t bench_push_one(struct rp_link *link, uint64_t next, uint64_t length_ns)
{
    size_t count = 0;
    uint64_t start = now_ns(), before = start;
    while (before - start < length_ns && count < LATENCIES_MAX) {
        drive_push(link, ROW, next++, 1);
        drive_settle(link);
        uint64_t after = now_ns();
        latencies[count++] = after - before;
        before = after;
    }
    print_latencies("push_acknowledged", "rows of 64 bytes", 1, count);
    return next;
}

/* Rows as fast as the window lets them go. */
static uint64_t bench_push_many(struct rp_link *link, uint64_t next, uint64_t length_ns)
{
    uint64_t start = now_ns(), first = next, passed = 0;
    while (passed < length_ns) {
        drive_push(link, ROW, next, 4096);
        next += 4096;
        passed = now_ns() - start;
    }
    drive_settle(link);
    passed = now_ns() - start;
    print_row("push_stream", "rows of 64 bytes", 0, "steps",
              (double)(next - first) / (double)passed * 1e9, "1/s");
    return next;
}

static uint32_t hash_batch(uint32_t hash, const struct drive_batch *batch, uint32_t count)
{
    hash = rp_crc32c(hash, batch->keys, count * sizeof batch->keys[0]);
    return rp_crc32c(hash, batch->bodies, (size_t)count * (ROW - 8));
}

static void bench_sample_one(struct rp_link *link, uint32_t items, uint64_t length_ns)
{
    static struct drive_batch batch;
    size_t count = 0;
    uint32_t hash = 0;
    uint64_t start = now_ns(), before = start;
    while (before - start < length_ns && count < LATENCIES_MAX) {
        int ticket = drive_draw(link, &batch, ROW, items, DRIVE_TIMEOUT_NS);
        CHECK(drive_wait(link, ticket, NULL) == 0);
        latencies[count++] = now_ns() - before;
        drive_check_rows(&batch, ROW, items);
        hash = hash_batch(hash, &batch, items);
        before = now_ns();
    }
    print_latencies("sample", "items of 64 bytes", items, count);
    print_row("sample", "items of 64 bytes", items, "crc32c of answers", hash, "");
}

/* Several draws under way at once. */
static void bench_sample_many(struct rp_link *link, uint32_t items, uint64_t length_ns)
{
    static struct drive_batch batches[PREFETCH];
    int tickets[PREFETCH];
    uint64_t drawn = 0, start = now_ns(), passed = 0;
    uint32_t hash = 0;
    for (int i = 0; i < PREFETCH; i++) {
        tickets[i] = drive_draw(link, &batches[i], ROW, items, DRIVE_TIMEOUT_NS);
    }
    for (uint64_t i = 0; passed < length_ns; i++) {
        struct drive_batch *batch = &batches[i % PREFETCH];
        CHECK(drive_wait(link, tickets[i % PREFETCH], NULL) == 0);
        hash = hash_batch(hash, batch, items);
        drawn += items;
        tickets[i % PREFETCH] = drive_draw(link, batch, ROW, items, DRIVE_TIMEOUT_NS);
        passed = now_ns() - start;
    }
    for (int i = 0; i < PREFETCH; i++) {
        rp_link_take(link, tickets[i]);
    }
    print_row("sample_stream", "items of 64 bytes", items, "items",
              (double)drawn / (double)passed * 1e9, "1/s");
    print_row("sample_stream", "items of 64 bytes", items, "payload",
              (double)drawn * ROW * 8 / (double)passed, "Gbit/s");
    print_row("sample_stream", "items of 64 bytes", items, "crc32c of answers", hash, "");
}

static struct rp_service *open_server(int cores)
{
    struct drive_table made;
    struct rp_service *service;
    struct rp_service_options options = {.busy_poll = cores > 1, .core = cores > 1 ? 2 : 0};
    char error[RP_ERROR_BYTES];
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, "udp://127.0.0.1:0", &options, error) == 0,
          "%s", error);
    CHECK(rp_service_start(service) == 0);
    return service;
}

/* The client's thread on the first core; the server's is on the second. */
static void pin_client(void)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
}

static void print_counters(struct rp_link *link)
{
    uint64_t counters[RP_COUNTER_COUNT];
    CHECK(rp_link_counters(link, counters) == 0);
    print_row("client", "all of the above", 0, "retransmissions",
              (double)counters[RP_COUNT_retransmissions], "");
    print_row("client", "all of the above", 0, "redraws", (double)counters[RP_COUNT_redraws], "");
}

int main(int argc, char **argv)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t length_ns = (uint64_t)((argc > 1 ? atof(argv[1]) : 1.0) * 1e9);
    struct rp_link_options options = {.busy_poll = cores > 1};
    struct rp_service *service = argc > 2 ? NULL : open_server(cores);
    if (service && cores > 1) {
        pin_client();
    }
    struct rp_link *link = drive_link(service ? rp_service_address(service) : argv[2], &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    uint64_t next = bench_push_many(link, 0, length_ns);
    next = bench_push_one(link, next, length_ns);
    bench_sample_one(link, 32, length_ns);
    bench_sample_one(link, 512, length_ns);
    bench_sample_many(link, 512, length_ns);
    print_counters(link);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    return 0;
}
