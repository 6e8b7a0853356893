/* Goal: after a standstill silence does not count for a while, and nothing else changes: who may go
 * on does, and a turn without work says so. Situations read "Given ... Expect ...". */
#include "script.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;

/* 1. Given a server that stood still and to which nobody speaks. Expect no turn to say that there
 *    is work, so that its driver sleeps. */
static void situation_idle(void)
{
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
static void situation_short_idle(void)
{
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

int main(void)
{
    situation_idle();
    situation_short_idle();
    return check_done("test_server_standstill");
}
