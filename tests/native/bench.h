/* bench.h: what the bench programs share: clock, memory as a service has it, and one row printer.
 *
 * A figure is a row of seven fields between tabs: name, transport, workload, batch, metric, value,
 * unit. `replay-server bench` reads exactly these lines and nothing else a program
 * prints. Work is timed in many short rounds and told twice: the median round is what this machine
 * gave today, the best round is what it gives when nothing else runs on it. Latencies are told as
 * p50 and p99 over all calls, and the p50 of the best round. A hash is a row too: equal hashes
 * say that two kernels answered alike.
 */
#ifndef RP_BENCH_H
#define RP_BENCH_H

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "check.h"

#define BENCH_UNUSED __attribute__((unused))

enum { BENCH_ROUNDS_MAX = 4096, BENCH_LATENCY_ROUNDS = 16, BENCH_HUGE_PAGE = 2 << 20 };

struct bench_row {
    const char *name;
    const char *transport; /* "engine": no network, no session */
    const char *workload;
    uint32_t batch;
};

struct bench_rounds {
    double value[BENCH_ROUNDS_MAX];
    size_t count;
};

BENCH_UNUSED static double bench_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Zeroed, with the advice a service gives for its region; kept until the program ends. */
BENCH_UNUSED static void *bench_memory(size_t bytes) {
    size_t whole = (bytes + BENCH_HUGE_PAGE - 1) / BENCH_HUGE_PAGE * BENCH_HUGE_PAGE;
    void *memory = aligned_alloc(BENCH_HUGE_PAGE, whole);
    CHECK(memory, "no memory");
    (void)madvise(memory, whole, MADV_HUGEPAGE);
    return memset(memory, 0, whole);
}

BENCH_UNUSED static void bench_number(const struct bench_row *row, const char *metric,
                                      double value, const char *unit) {
    printf("%s\t%s\t%s\t%u\t%s\t%.3f\t%s\n", row->name, row->transport, row->workload, row->batch,
           metric, value, unit);
    fflush(stdout);
}

BENCH_UNUSED static void bench_hash(const struct bench_row *row, uint64_t hash) {
    printf("%s\t%s\t%s\t%u\thash of answers\t%016" PRIx64 "\tsiphash\n", row->name,
           row->transport, row->workload, row->batch, hash);
}

static int bench_compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

BENCH_UNUSED static void bench_keep(struct bench_rounds *rounds, double value) {
    if (rounds->count < BENCH_ROUNDS_MAX) {
        rounds->value[rounds->count++] = value;
    }
}

/* Rounds are rates: more is better. */
BENCH_UNUSED static void bench_rate(const struct bench_row *row, struct bench_rounds *rounds,
                                    const char *unit) {
    CHECK(rounds->count > 0, "%s: nothing was measured", row->name);
    qsort(rounds->value, rounds->count, sizeof rounds->value[0], bench_compare);
    bench_number(row, "rate, median", rounds->value[rounds->count / 2], unit);
    bench_number(row, "rate, best round", rounds->value[rounds->count - 1], unit);
}

/* `count` calls of so many microseconds, in the order in which they were made; sorts them. */
BENCH_UNUSED static void bench_latency(const struct bench_row *row, double *us, size_t count) {
    size_t round = count / BENCH_LATENCY_ROUNDS + 1;
    double best = 1e30;
    CHECK(count > 0, "%s: nothing was measured", row->name);
    for (size_t first = 0; first < count; first += round) {
        size_t some = count - first < round ? count - first : round;
        qsort(us + first, some, sizeof us[0], bench_compare);
        if (some == round || first == 0) {
            best = us[first + some / 2] < best ? us[first + some / 2] : best;
        }
    }
    qsort(us, count, sizeof us[0], bench_compare);
    bench_number(row, "p50", us[count / 2], "us");
    bench_number(row, "p50, best round", best, "us");
    bench_number(row, "p99", us[count * 99 / 100], "us");
}

#endif
