/* Replays inputs through a fuzz target without a fuzzer: a regression test of the kept corpus, for
 * any compiler, and the program whose line coverage is counted.
 *
 *     fuzz_replay_TARGET FILE-OR-DIRECTORY ...
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "check.h"
#include "fuzz_port.h"

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

int main(int argc, char **argv) {
    CHECK(argc > 1, "usage: %s FILE-OR-DIRECTORY ...", argv[0]);
    for (int i = 1; i < argc; i++) {
        replay(argv[i]);
    }
    printf("%s: %lu inputs: ok\n", argv[0], replayed);
    return 0;
}
