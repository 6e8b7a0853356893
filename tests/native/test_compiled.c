/* Compiled configs: one that is whole is read as it was written; with any byte changed, cut short
 * or longer it is refused or harmless, right checksum or not. Memory is exactly as large as the
 * file, so that the sanitizers see a byte too far. */
#include "appliance/compiled.c"

#include "check.h"
#include "server/server.h"

enum { COLUMNS = 2, PICKS = 3, SPEC = 5, FILE_MAX = 1024 };

static size_t append(uint8_t *file, size_t at, const void *bytes, size_t size) {
    memcpy(file + at, bytes, size);
    return at + size;
}

static void seal(uint8_t *file, size_t size) {
    struct rp_compiled_head head;
    memcpy(&head, file, sizeof head);
    head.bytes = (uint32_t)size;
    memcpy(file, &head, sizeof head);
    head.crc = rp_crc32c(0, file + offsetof(struct rp_compiled_head, flags),
                         size - offsetof(struct rp_compiled_head, flags));
    memcpy(file, &head, sizeof head);
}

static size_t write_file(uint8_t *file) {
    struct rp_compiled_head head = {
        .magic = RP_COMPILED_MAGIC, .version = RP_COMPILED_VERSION, .flags = RP_COMPILED_SEEDED,
        .table_count = 2, .sessions_max = 4, .batch_max = 64, .records = 2, .mtu = 1400,
        .receive_budget = 64, .idle_ms = 1000, .lapse_ms = 100, .weights_max = 4096, .seed = 77};
    struct rp_column columns[COLUMNS] = {{0, 8, 1}, {8, 4, 0}};
    struct rp_pick picks[PICKS] = {{0, -1}, {1, 0}, {0, 2}};
    size_t at = append(file, 0, &head, sizeof head);
    for (uint32_t i = 0; i < head.table_count; i++) {
        struct rp_compiled_table table = {
            .capacity = 1024, .step_bytes = 16, .column_count = COLUMNS, .plan_count = 2,
            .writers_max = 2, .streams_max = 3, .window = 8, .pieces_max = 1, .spec_bytes = SPEC,
            .alpha = 0.5, .min_size = 3};
        snprintf((char *)table.name, sizeof table.name, "table %u", i);
        at = append(file, at, &table, sizeof table);
        at = append(file, at, columns, sizeof columns);
        for (uint32_t k = 0; k < table.plan_count; k++) {
            struct rp_compiled_plan plan = {.pick_count = PICKS};
            snprintf((char *)plan.name, sizeof plan.name, "plan %u", k);
            at = append(file, at, &plan, sizeof plan);
            at = append(file, at, picks, sizeof picks);
        }
        at = append(file, at, "spec\n\0\0", 8);
    }
    seal(file, at);
    return at;
}

/* Reads a copy in memory of its own; where it is taken, lets the core look at it too. */
static int read_copy(const uint8_t *file, size_t size, struct rp_compiled *compiled) {
    char error[RP_COMPILED_ERROR_BYTES] = "", told[256] = "";
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    memcpy(copy, file, size);
    int status = rp_compiled_read(compiled, copy, size, error);
    CHECK((status == 0) == (error[0] == 0), "%s", error);
    if (!status) {
        CHECK(rp_server_bytes(&compiled->config, told) || told[0]);
    }
    free(copy);
    return status;
}

static void test_whole(const uint8_t *file, size_t size) {
    static struct rp_compiled compiled;
    char error[RP_COMPILED_ERROR_BYTES] = "";
    CHECK(rp_compiled_read(&compiled, file, size, error) == 0, "%s", error);
    const struct rp_table_config *table = &compiled.tables[1];
    CHECK(compiled.config.table_count == 2 && compiled.seeded && compiled.config.seed == 77);
    CHECK(strcmp(table->name, "table 1") == 0 && table->capacity == 1024 && table->alpha == 0.5);
    CHECK(table->columns[0].pad_first == 1 && table->columns[1].offset == 8);
    CHECK(strcmp(table->plans[1].name, "plan 1") == 0 && table->plans[1].picks[0].offset == -1);
    CHECK(table->spec_bytes == SPEC && memcmp(table->spec, "spec\n", SPEC) == 0);
    CHECK(rp_server_bytes(&compiled.config, error) > 0, "%s", error);
    check_group("a whole file is read as it was written");
}

static void test_changed(uint8_t *file, size_t size) {
    static struct rp_compiled compiled;
    uint32_t taken = 0;
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            file[i] ^= (uint8_t)(1 << bit);
            CHECK(read_copy(file, size, &compiled) != 0, "byte %zu", i);
            file[i] ^= (uint8_t)(1 << bit);
        }
    }
    check_group("with any bit changed it is refused");
    for (size_t i = offsetof(struct rp_compiled_head, flags); i < size; i++) {
        uint8_t was = file[i];
        for (int value = 0; value < 256; value++) {
            file[i] = (uint8_t)value;
            seal(file, size);
            taken += read_copy(file, size, &compiled) == 0;
        }
        file[i] = was;
    }
    seal(file, size);
    CHECK(taken > 256 && taken < 255 * size, "%u", taken);
    check_group("with any byte changed under a right checksum it is refused, or the core decides");
}

static void test_cut(uint8_t *file, size_t size) {
    static struct rp_compiled compiled;
    for (size_t cut = 0; cut <= size + 8; cut++) {
        CHECK((read_copy(file, cut, &compiled) == 0) == (cut == size), "%zu", cut);
    }
    for (size_t cut = sizeof(struct rp_compiled_head); cut <= size + 8; cut++) {
        seal(file, cut);
        CHECK((read_copy(file, cut, &compiled) == 0) == (cut == size), "%zu", cut);
    }
    check_group("cut short or longer it is refused, under a right checksum too");
}

int main(void) {
    _Alignas(8) static uint8_t file[FILE_MAX];
    size_t size = write_file(file);
    test_whole(file, size);
    test_changed(file, size);
    test_cut(file, size);
    return check_done("test_compiled");
}
