/* Rows read by key whose answer takes several datagrams, the later ones pulled when the rows have
 * become something else. What is stored is told so. Situations read "Given ... Expect ...". */
#include "script.h"
#include "table/store.h"

enum { KEYS = 30 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_push push;
static struct script_client client;
static uint64_t id, epoch;

static void fresh(void) {
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    client = script_client(1);
    client.mtu = 512;
    script_connect(&script, &client);
    epoch = script_writer(&script, &client, 0, 2).epoch;
    id = 100;
}

static void push_rows(uint64_t first, uint16_t count) {
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, first, first, count, 0);
    CHECK_STATUS(script_push(&script, &client, 0, ++id, &push), RP_OK);
}

static void create(uint64_t first, uint64_t end) {
    script_push_begin(&push, epoch);
    for (uint64_t step = first; step < end; step++) {
        script_push_create(&push, 0, step, 1.0);
    }
    CHECK_STATUS(script_push(&script, &client, 0, ++id, &push), RP_OK);
}

/* How many items these datagrams tell as overwritten. */
static uint32_t overwritten(void) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < script.port.out_count; i++) {
        struct script_answer answer = script_answer(&script, i);
        struct rp_batch_datagram head;
        memcpy(&head, answer.rest, sizeof head);
        const uint64_t *words = (const void *)(answer.rest + sizeof head);
        for (uint32_t word = 0; word < head.words; word++) {
            found += (uint32_t)__builtin_popcountll(words[word]);
        }
    }
    return found;
}

/* The first datagram of these rows by plan "plain", their own row alone. */
static void look_up(const uint64_t *keys) {
    struct {
        struct rp_sample request;
        uint64_t keys[KEYS];
    } body = {.request = {.count = KEYS, .mode = RP_SAMPLE_KEYS, .budget = 1}};
    memcpy(body.keys, keys, sizeof body.keys);
    script_put(&script, &client, RP_OP_SAMPLE, 0, 7, &body, sizeof body);
    script_turn(&script);
    CHECK(script.port.out_count == 1 && overwritten() == 0);
}

static uint32_t pull_the_rest(void) {
    struct rp_pull pull = {.batch = 7, .first = 1, .count = 8};
    script_put(&script, &client, RP_OP_PULL, 0, ++id, &pull, sizeof pull);
    script_turn(&script);
    CHECK(script.port.out_count > 1);
    return overwritten();
}

/* 1. Given rows that are no items as they are looked up, and are made items before the rest of them
 *    is pulled. Expect none to be told as overwritten. */
static void situation_become_items(void) {
    uint64_t keys[KEYS];
    fresh();
    for (uint16_t i = 0; i < 40; i += 8) {
        push_rows(i, 8);
    }
    uint64_t head = rp_server_table(script.server, 0)->private->head;
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = head - 40 + i;
    }
    look_up(keys);
    for (uint64_t i = 10; i < 30; i += 5) {
        create(i, i + 5);
    }
    CHECK(pull_the_rest() == 0);
    script_close(&script);
    check_group("1 rows that become items are there all the same");
}

/* 2. Given items of a window that are looked up by their own row alone, and the last of them
 *    evicted before the rest is pulled, since a row of its window was overwritten. Expect its own
 *    row where it is stored, and to be told where it is not. */
static void situation_evicted(int own_row_too) {
    struct rp_table_private *p;
    uint64_t keys[KEYS], n = 0;
    fresh();
    for (; n < SCRIPT_CAPACITY; n += 8) {
        push_rows(n, 8);
        create(n > 2 ? n - 2 : 1, n + 6);
    }
    p = rp_server_table(script.server, 0)->private;
    uint64_t oldest = p->head - SCRIPT_CAPACITY;
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = oldest + 200 + i;
    }
    keys[KEYS - 1] = oldest + 8 - (own_row_too ? 1 : 0); /* eight are overwritten */
    look_up(keys);
    push_rows(n, 8);
    CHECK((rp_alive(p, keys[KEYS - 1]) == NULL) == own_row_too);
    CHECK((pull_the_rest() > 0) == own_row_too);
    script_close(&script);
}

int main(void) {
    situation_become_items();
    situation_evicted(0);
    situation_evicted(1);
    check_group("2 an own row is there as long as it is stored");
    return check_done("test_server_keys");
}
