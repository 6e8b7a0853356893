/* check.h: what the native test programs share.
 *
 * A test program is one file with its own main(). It calls CHECK for every fact it depends on,
 * calls check_group() once for each group of checks that held, and ends with
 * `return check_done("test_x")`, which prints "test_x: ok". The first failed CHECK prints file,
 * line, condition and message to stderr and ends the program with status 1. A program that walks
 * at random takes its seed from check_seed(), which prints it, so that any run can be repeated with
 * RP_TEST_SEED=<seed>. Checks stay on in every build, whatever NDEBUG says.
 */
#ifndef RP_CHECK_H
#define RP_CHECK_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* CHECK(condition) or CHECK(condition, "format", ...): the message says what was seen. */
#define CHECK(condition, ...)                                                                    \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            check_failed(__FILE__, __LINE__, #condition, "" __VA_ARGS__);                        \
        }                                                                                        \
    } while (0)

__attribute__((noreturn, unused)) static void check_failed(const char *file, int line,
                                                           const char *condition,
                                                           const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "%s:%d: CHECK failed: %s%s", file, line, condition, format[0] ? ": " : "");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(1);
}

/* One line for a group of checks that all held. */
__attribute__((unused)) static void check_group(const char *what) {
    printf("  %s\n", what);
}

/* The seed of this run: RP_TEST_SEED where it is set, else the program's own fixed one. Printed. */
__attribute__((unused)) static uint64_t check_seed(uint64_t otherwise) {
    const char *text = getenv("RP_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : otherwise;
    printf("  seed %" PRIu64 "\n", seed);
    return seed;
}

/* How many rounds a long walk takes: a tenth where RP_TEST_SHORT is set, as `make mutants` does,
 * which runs the programs thousands of times. */
__attribute__((unused)) static int check_rounds(int rounds) {
    return getenv("RP_TEST_SHORT") ? (rounds + 9) / 10 : rounds;
}

__attribute__((unused)) static int check_done(const char *name) {
    printf("%s: ok\n", name);
    return 0;
}

#endif
