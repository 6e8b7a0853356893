/* verify_world.h: a server that has done some of everything, one word of which is made wrong; what
 * the verifiers then say. A case sets words, then asks by WHOLE, TABLE or SERVER, which put the
 * words back.
 */
#ifndef RP_VERIFY_WORLD_H
#define RP_VERIFY_WORLD_H

#include "script.h"
#include "server/server_state.h"
#include "table/store.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client client;
static uint64_t epochs[2];
static struct rp_table_private *p; /* of table 0 */
static uint32_t cases;

/* ---- a server with items, open episodes, steps that wait and weights under way ---- */

static void push_rows(uint16_t table, uint16_t stream, uint64_t sequence, uint64_t step,
                      uint16_t count, uint16_t flags) {
    static struct script_push push;
    static uint64_t id = 100;
    script_push_begin(&push, epochs[table]);
    script_push_run(&push, stream, sequence, step, count, flags);
    for (uint64_t i = step < 8 ? step : step - 6; table == 0 && i < step; i += 1 + i % 3) {
        script_push_create(&push, stream, i, 1.0 + (double)(i % 4));
    }
    script_push(&script, &client, table, ++id, &push);
}

static void publish_piece(uint64_t id, uint32_t index) {
    static uint8_t blob[3500];
    static struct {
        struct rp_publish publish;
        uint8_t bytes[1000];
    } body;
    uint32_t size = index == 3 ? 500 : 1000;
    memset(blob, 7, sizeof blob);
    memset(body.bytes, 7, sizeof body.bytes);
    body.publish = (struct rp_publish){.size = sizeof blob, .offset = 1000 * index, .piece = 1000,
                                       .crc = rp_crc32c(0, blob, sizeof blob)};
    script_ask(&script, &client, RP_OP_PUBLISH, 0, id, &body,
               (uint32_t)sizeof body.publish + size);
}

static void make_server(void) {
    struct rp_sample request = script_sample(4);
    script_tables(tables);
    tables[0].capacity = 520; /* leaves are padded to whole groups: 8 lie beyond */
    tables[0].pieces_max = 100;       /* their bits are two words */
    config = script_config(tables);
    config.weights_max = 40000; /* as are those of its pieces */
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    for (uint16_t i = 0; i < 2; i++) {
        epochs[i] = script_writer(&script, &client, i, 3).epoch;
    }
    for (uint64_t i = 0; i < 70; i++) {
        uint16_t end = i % 14 == 12 || i % 14 == 13 ? RP_RUN_END : 0; /* one in each stream */
        push_rows(0, i % 2, 10 * i, 10 * (i / 2), 10, end);
        push_rows(1, 0, 10 * i, 10 * i, 10, RP_RUN_ITEM | RP_RUN_PRIORITY);
    }
    push_rows(0, 0, 704, 354, 4, 0); /* 700 to 703 are reserved, these wait */
    request.under_way = 3; /* all of them are kept */
    for (uint64_t id = 1; id <= 3; id++) {
        script_ask(&script, &client, RP_OP_SAMPLE, 1, id, &request, sizeof request);
    }
    for (uint32_t i = 0; i < 4; i++) {
        publish_piece(1, i);
    }
    for (uint32_t i = 0; i < 3; i++) {
        publish_piece(2, i);
    }
    rp_server_check(script.server);
    CHECK(script_counter(&script, RP_COUNT_holes_overwritten) == 0, "a free place is no hole");
    p = rp_server_table(script.server, 0)->private;
}

/* ---- making words wrong ---- */

static struct {
    uint64_t *word;
    uint64_t was;
} wrong[8];
static uint32_t wrong_count;

static void set(void *word, uint64_t value) {
    wrong[wrong_count].word = word;
    wrong[wrong_count++].was = *(uint64_t *)word;
    *(uint64_t *)word = value;
}

static void put_back(void) {
    while (wrong_count > 0) {
        wrong_count--;
        *wrong[wrong_count].word = wrong[wrong_count].was;
    }
    cases++;
}

static void whole(int line) {
    char error[256] = "";
    CHECK(rp_table_verify(rp_server_table(script.server, 0), error) == 0
              && rp_server_verify(script.server, error) == 0,
          "line %d: \"%s\"", line, error);
    put_back();
}

static void refused(int line, int of_table, const char *part, uint64_t number, const char *rule) {
    char error[256] = "", said[256];
    int status = of_table ? rp_table_verify(rp_server_table(script.server, 0), error)
                          : rp_server_verify(script.server, error);
    snprintf(said, sizeof said,
             "the region is damaged: %s%s %d: %.100s does not hold; start with a new region",
             of_table ? "table main, " : "",
             part, (int)number, rule);
    CHECK(status == -RP_BAD_REGION && strcmp(error, said) == 0, "line %d: %d\n  \"%s\" and not\n"
          "  \"%s\"", line, status, error, said);
    put_back();
}

#define WHOLE whole(__LINE__)
#define TABLE(part, number, rule) refused(__LINE__, 1, part, number, rule)
#define SERVER(part, number, rule) refused(__LINE__, 0, part, number, rule)

#endif
