/* Replays inputs through a fuzz target without a fuzzer: a regression test of the kept corpus, for
 * any compiler, and the program whose line coverage is counted.
 *
 *     fuzz_replay_TARGET FILE-OR-DIRECTORY ...
 *
 * RP_FUZZ_RANDOM=COUNT: as many inputs of random bytes behind them.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "check.h"
#include "fuzz_port.h"
#include "base/random.h"

enum { RANDOM_MOST = 768 };

static unsigned long replayed;

static void replay_file(const char *path) {
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "%s", path);
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    uint8_t *exact = malloc(size ? size : 1);
    CHECK(exact != NULL);
    for (size_t i = 0; i < size; i++) {
        exact[i] = data[i];
    }
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    replayed++;
}

static void replay(const char *path) {
    struct stat facts;
    CHECK(stat(path, &facts) == 0, "%s", path);
    if (!S_ISDIR(facts.st_mode)) {
        replay_file(path);
        return;
    }
    struct dirent **names;
    int count = scandir(path, &names, NULL, alphasort);
    CHECK(count >= 0, "%s", path);
    for (int i = 0; i < count; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.') {
            replay(inner);
        }
        free(names[i]);
    }
    free(names);
}

static void make_up(uint64_t count) {
    struct rp_random chance = {{check_seed(31), 1, 2, 3}};
    for (uint64_t i = 0; i < count; i++) {
        size_t size = 1 + rp_random_below(&chance, RANDOM_MOST);
        uint8_t *exact = malloc(size);
        CHECK(exact != NULL);
        for (size_t k = 0; k < size; k++) {
            exact[k] = (uint8_t)(rp_random_next(&chance) >> 32);
        }
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        replayed++;
    }
}

int main(int argc, char **argv) {
    CHECK(argc > 1, "usage: %s FILE-OR-DIRECTORY ...", argv[0]);
    for (int i = 1; i < argc; i++) {
        replay(argv[i]);
    }
    const char *more = getenv("RP_FUZZ_RANDOM");
    if (more) {
        make_up(strtoull(more, NULL, 10));
    }
    printf("%s: %lu inputs: ok\n", argv[0], replayed);
    return 0;
}
