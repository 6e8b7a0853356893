/* After a standstill silence does not count for a while, and nothing else changes: who may go
 * on does, and a turn without work says so. Situations read "Given ... Expect ...". */
#include "script.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;

/* 1. Given a server that stood still and to which nobody speaks. Expect no turn to say that there
 *    is work, so that its driver sleeps. */
static void situation_idle(void) {
    struct script script;
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    struct rp_port *port = (struct rp_port *)(void *)&script.port;
    for (uint32_t gap_ms = 100; gap_ms <= 20000; gap_ms *= 14) {
        script_stand_still(&script, gap_ms);
        for (uint32_t turn = 0; turn < 30; turn++) {
            CHECK(rp_server_turn(script.server, port, script.now_ns) == 0, "turn %u", turn);
            script_stand_still(&script, 50);
        }
    }
    script_close(&script);
    check_group("1 an idle server is idle after a standstill too");
}

/* 2. Given sessions that may be silent for less than a standstill is heard. Expect one that is
 *    given up after so long, and not before. */
static void situation_short_idle(void) {
    struct script script;
    struct script_client client = script_client(1);
    script_tables(tables);
    config = script_config(tables);
    config.idle_ms = 400;
    script_open(&script, &config);
    script_connect(&script, &client);
    script_stand_still(&script, 5000);
    for (uint32_t turn = 0; turn < 4; turn++) {
        script_turn(&script);
        CHECK(rp_server_sessions(script.server) == 1, "turn %u", turn);
        script_stand_still(&script, 130); /* three of them are 390 ms */
    }
    script_turn(&script);
    CHECK(rp_server_sessions(script.server) == 0);
    script_close(&script);
    check_group("2 no longer than a session may be silent");
}

/* 3. Given two samples that may go on, and room to send one answer. Expect the next turn, which
 *    receives nothing, to go on. */
static void situation_room(void) {
    struct script script;
    struct script_client clients[3];
    struct rp_sample one = script_sample(1);
    static struct script_push push;
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    for (uint32_t i = 0; i < 3; i++) {
        clients[i] = script_client((uint8_t)(1 + i));
        script_connect(&script, &clients[i]);
    }
    uint64_t epoch = script_writer(&script, &clients[2], 1, 1).epoch;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_STATUS(script_ask(&script, &clients[i], RP_OP_SAMPLE, 1, 1, &one, sizeof one),
                     RP_BLOCKED);
    }
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, 0, 0, 8, RP_RUN_ITEM);
    script.port.room_left = 2;
    CHECK_STATUS(script_push(&script, &clients[2], 1, 2, &push), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_releases) == 1);
    script.port.room_left = UINT32_MAX;
    CHECK(script_turn(&script) == 1 && script_counter(&script, RP_COUNT_releases) == 2);
    script_close(&script);
    check_group("3 who waits for room does not wait for a timer");
}

int main(void) {
    situation_idle();
    situation_short_idle();
    situation_room();
    return check_done("test_server_standstill");
}
