/* bench_track.h: the main program of `make bench-track`: rows by name, each one operation, a fixed
 * number of times, in a steady state, so that two versions of the tree can be compared.
 *
 *     PROGRAM ROW [rounds, default 20]
 *
 * Without a ROW it prints their names. All that counts happens inside measured(), which callgrind
 * is told to collect by its name; the first rounds warm and run outside of it. Prints how many
 * operations the rounds have, and the nanoseconds of one, round by round.
 */
#ifndef RP_BENCH_TRACK_H
#define RP_BENCH_TRACK_H

#include <stdbool.h>

#include "bench.h"

enum { WARM = 8 };

struct row {
    const char *name;
    void (*open)(void);
    void (*work)(void); /* calls counted() for what counts */
    uint32_t times; /* that the work is done in a round */
    uint32_t items; /* operations of one work */
};

static double spent_ns; /* in measured() since it was set to 0 */
static bool warm; /* from here on it counts */

/* The one function that callgrind collects. */
__attribute__((noinline)) static void measured(void (*work)(void)) {
    work();
    __asm__ volatile("" ::: "memory");
}

static void counted(void (*work)(void)) {
    double start = bench_ns();
    if (warm) {
        measured(work);
    } else {
        work();
    }
    spent_ns += bench_ns() - start;
}

static void track_row(const struct row *row, uint32_t rounds) {
    row->open();
    printf("operations\t%u\n", rounds * row->times * row->items);
    for (uint32_t round = 0; round < WARM + rounds; round++) {
        warm = round >= WARM;
        spent_ns = 0;
        for (uint32_t i = 0; i < row->times; i++) {
            row->work();
        }
        if (warm) {
            printf("round\t%.3f\n", spent_ns / (row->times * row->items));
        }
    }
}

static int track_main(const struct row *rows, size_t row_count, int count, char **arguments) {
    uint32_t rounds = count > 2 ? (uint32_t)atoi(arguments[2]) : 20;
    for (size_t i = 0; i < row_count; i++) {
        if (count < 2) {
            printf("%s\n", rows[i].name);
        } else if (strcmp(arguments[1], rows[i].name) == 0) {
            track_row(&rows[i], rounds);
            return 0;
        }
    }
    CHECK(count < 2, "there is no row %s", arguments[1]);
    return 0;
}

#endif
