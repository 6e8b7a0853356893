/* drive.h: a service and links to it, for test_pump and bench_udp.
 *
 * A world has one table of plain rows: number (8 bytes) and a body derived from it, so that any row
 * that comes back can be checked by itself. drive_push() pushes rows `from` on as items with
 * priorities; drive_sample() draws a batch into arrays and checks every row of it.
 */
#ifndef RP_DRIVE_TEST_H
#define RP_DRIVE_TEST_H

#include <string.h>

#include "check.h"
#include "replay.h"

#define DRIVE_UNUSED __attribute__((unused))

enum { DRIVE_ROW_MAX = 256, DRIVE_BATCH_MAX = 512, DRIVE_TIMEOUT_NS = 2000000000 };

struct drive_table { /* the config, and what it points to */
    struct rp_column columns[2];
    struct rp_pick picks[2];
    struct rp_plan plan;
    struct rp_table_config table;
    struct rp_server_config config;
};

struct drive_batch {
    uint64_t keys[DRIVE_BATCH_MAX];
    uint64_t numbers[DRIVE_BATCH_MAX];
    uint8_t bodies[DRIVE_BATCH_MAX * DRIVE_ROW_MAX];
    uint8_t valid[DRIVE_BATCH_MAX];
    struct rp_landing_column columns[2];
    struct rp_landing landing;
};

DRIVE_UNUSED static void drive_config(struct drive_table *made, uint32_t capacity, uint32_t row) {
    memset(made, 0, sizeof *made);
    made->columns[0] = (struct rp_column){.offset = 0, .size = 8};
    made->columns[1] = (struct rp_column){.offset = 8, .size = row - 8};
    made->picks[0] = (struct rp_pick){0, 0};
    made->picks[1] = (struct rp_pick){1, 0};
    made->plan = (struct rp_plan){.name = "row", .picks = made->picks, .pick_count = 2};
    made->table = (struct rp_table_config){
        .name = "main", .capacity = capacity, .step_bytes = row, .columns = made->columns,
        .column_count = 2, .plans = &made->plan, .plan_count = 1, .alpha = 0.6, .min_size = 1,
        .writers_max = 4, .streams_max = 4, .window = capacity / 64, .pieces_max = 4,
        .spec = "rows", .spec_bytes = 4};
    made->config = (struct rp_server_config){
        .tables = &made->table, .table_count = 1, .sessions_max = 16, .batch_max = DRIVE_BATCH_MAX,
        .records = 16, .idle_ms = 30000, .lapse_ms = 100, .weights_max = 1 << 16, .seed = 1};
}

DRIVE_UNUSED static void drive_row(uint8_t *row, uint32_t size, uint64_t number) {
    for (uint32_t i = 0; i < size / 8; i++) {
        uint64_t word = number * 0x9e3779b97f4a7c15u + i;
        memcpy(row + 8 * (size_t)i, i ? &word : &number, 8);
    }
}

/* Waits as a caller with signals would: slice after slice. */
DRIVE_UNUSED static int drive_wait(struct rp_link *link, int ticket, struct rp_blocked *blocked) {
    CHECK(ticket > 0, "a post answered %s", rp_status_name(ticket));
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_wait(link, ticket, RP_SLICE_NS, blocked);
    }
    return status;
}

DRIVE_UNUSED static struct rp_link *drive_link(const char *url,
                                               const struct rp_link_options *options) {
    char error[RP_ERROR_BYTES];
    struct rp_link *link;
    CHECK(rp_link_open(&link, url, options, error) == 0, "%s", error);
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_connect(link, RP_SLICE_NS);
    }
    CHECK(status == 0, "connect: %s", rp_status_name(status));
    return link;
}

DRIVE_UNUSED static struct rp_table_info drive_info(struct rp_link *link) {
    struct rp_table_info info;
    int status = drive_wait(link, rp_link_table(link, "main", &info, DRIVE_TIMEOUT_NS), NULL);
    CHECK(status == 0, "table: %s", rp_status_name(status));
    return info;
}

DRIVE_UNUSED static void drive_writer(struct rp_link *link, const struct rp_table_info *info) {
    struct rp_writer_granted granted;
    int status = drive_wait(link, rp_link_writer(link, info, 1, &granted, DRIVE_TIMEOUT_NS), NULL);
    CHECK(status == 0 && granted.window > 0, "writer: %s", rp_status_name(status));
}

DRIVE_UNUSED static void drive_settle(struct rp_link *link) {
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_settle(link, 0, RP_SLICE_NS);
    }
    CHECK(status == 0, "settle: %s", rp_status_name(status));
}

/* Rows from .. from + count of one stream, items with priorities; taken, not yet stored. */
DRIVE_UNUSED static void drive_push(struct rp_link *link, uint32_t row, uint64_t from,
                                    uint32_t count) {
    static _Thread_local uint8_t rows[64 * DRIVE_ROW_MAX];
    double priorities[64];
    while (count) {
        uint32_t some = count < 64 ? count : 64;
        for (uint32_t i = 0; i < some; i++) {
            drive_row(rows + (size_t)i * row, row, from + i);
            priorities[i] = 0.5 + (double)((from + i) % 7);
        }
        for (uint32_t taken = 0; taken < some;) {
            int got = rp_link_push(link, 0, 0, rows + (size_t)taken * row, some - taken,
                                   RP_RUN_ITEM | RP_RUN_PRIORITY, priorities + taken, RP_SLICE_NS);
            CHECK(got >= 0, "push: %s", rp_status_name(got));
            taken += (uint32_t)got;
        }
        from += some;
        count -= some;
    }
}

DRIVE_UNUSED static void drive_landing(struct drive_batch *batch, uint32_t row) {
    batch->columns[0] = (struct rp_landing_column){
        .target = (uint8_t *)batch->numbers, .stride = 8, .item_offset = 0, .size = 8};
    batch->columns[1] = (struct rp_landing_column){
        .target = batch->bodies, .stride = row - 8, .item_offset = 8, .size = row - 8};
    batch->landing = (struct rp_landing){
        .columns = batch->columns, .column_count = 2, .item_bytes = row, .keys = batch->keys,
        .valid = batch->valid};
}

/* Posts a draw of `count` items. */
DRIVE_UNUSED static int drive_draw(struct rp_link *link, struct drive_batch *batch, uint32_t row,
                                   uint32_t count, uint64_t timeout_ns) {
    struct rp_sample request = {.count = count, .mode = RP_SAMPLE_STRATIFIED, .budget = 64};
    drive_landing(batch, row);
    return rp_link_sample(link, 0, &request, NULL, &batch->landing, timeout_ns);
}

DRIVE_UNUSED static void drive_check_rows(const struct drive_batch *batch, uint32_t row,
                                          uint32_t count) {
    uint8_t expected[DRIVE_ROW_MAX];
    for (uint32_t i = 0; i < count; i++) {
        drive_row(expected, row, batch->numbers[i]);
        CHECK(batch->valid[i], "item %u", i);
        CHECK(memcmp(batch->bodies + (size_t)i * (row - 8), expected + 8, row - 8) == 0,
              "item %u, row %" PRIu64, i, batch->numbers[i]);
    }
}

DRIVE_UNUSED static void drive_sample(struct rp_link *link, struct drive_batch *batch,
                                      uint32_t row, uint32_t count) {
    int status = drive_wait(link, drive_draw(link, batch, row, count, DRIVE_TIMEOUT_NS), NULL);
    CHECK(status == 0, "sample: %s", rp_status_name(status));
    drive_check_rows(batch, row, count);
}

#endif
