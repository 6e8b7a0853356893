/* Who takes the server's time while others wait is charged for it, by all who share it, and no
 * longer than is said. Turns of a server without a network, their length as a test has it. */
#include "script.h"

enum { SESSIONS = 130, MS = 1000000 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;

/* A server with `count` sessions, the first of place 0. */
static void fresh(uint32_t count) {
    script_tables(tables);
    config = script_config(tables);
    config.sessions_max = config.receive_budget = SESSIONS;
    script_open(&script, &config);
    script.now_ns = 1000 * (uint64_t)MS * 1000; /* the beginning of a window */
    for (uint32_t i = 0; i < count; i++) {
        struct script_client client = script_client((uint8_t)(1 + i % 90));
        client.peer.bytes[1] = (uint8_t)i;
        script_connect(&script, &client);
    }
}

static void begin(int behind) {
    script.server->now_ns = script.now_ns;
    script.server->turn++;
    rp_share_begin(script.server, behind);
}

static void end(uint64_t ns) {
    rp_share_end(script.server, 0, ns);
    script.now_ns += ns;
}

/* A turn that is all this session's. */
static void turn_of(uint32_t session, uint64_t ns) {
    begin(1);
    rp_share_take(script.server, session, 100);
    end(ns);
}

static uint64_t debt(uint32_t session) {
    uint64_t ends_ns = script.server->lines[session].debt_end_ns;
    return ends_ns > script.now_ns ? ends_ns - script.now_ns : 0;
}

/* 1. Given a turn of two sessions, one of which does three quarters of its work. Expect each in
 *    debt for its part, three times as long as that, and half of it more for what is the others'
 *    third; and a turn that leaves nothing behind charged to nobody. */
static void situation_parts(void) {
    fresh(2);
    begin(1);
    rp_share_take(script.server, 0, 30);
    rp_share_take(script.server, 0, 45);
    rp_share_take(script.server, 1, 25);
    end(4 * MS);
    CHECK(debt(0) == 3 * MS * 2 * 3 / 2 - 4 * MS, "%" PRIu64, debt(0));
    CHECK(script.server->lines[1].debt_end_ns == script.now_ns - 4 * MS + 1 * MS * 2 * 3 / 2);
    uint64_t before = script.server->lines[0].debt_end_ns;
    begin(0);
    rp_share_take(script.server, 0, 100);
    end(50 * MS);
    CHECK(script.server->lines[0].debt_end_ns == before);
    script_close(&script);
    check_group("1 a turn's time is charged by the work in it");
}

/* 2. Given a session in debt. Expect it refused while the debt is longer than 5 ms and others wait,
 *    and only then. */
static void situation_slack(void) {
    fresh(1);
    turn_of(0, 10 * MS); /* 15 ms of debt, 10 of them over */
    begin(1);
    CHECK(rp_share_allows(script.server, 0, 0), "5 ms are let pass");
    turn_of(0, 1 * MS);
    begin(1);
    CHECK(!rp_share_allows(script.server, 0, 0), "%" PRIu64, debt(0));
    begin(0);
    CHECK(rp_share_allows(script.server, 0, 0), "nobody waits");
    script.now_ns += debt(0) - 5 * MS;
    begin(1);
    CHECK(rp_share_allows(script.server, 0, 0));
    script.now_ns -= 1;
    begin(1);
    CHECK(!rp_share_allows(script.server, 0, 0));
    script_close(&script);
    check_group("2 a debt of 5 ms is let pass");
}

/* 3. Given a turn in which the thread slept for a minute. Expect a debt of 100 ms, and of no more
 *    however many such turns there are. */
static void situation_bound(void) {
    fresh(2);
    for (uint32_t i = 0; i < 3; i++) {
        turn_of(1, 1 * MS);
        turn_of(0, 60000 * (uint64_t)MS);
        CHECK(debt(0) == 0, "it is over with the turn that it began with");
        script.now_ns -= 60000 * (uint64_t)MS;
        CHECK(debt(0) == 100 * MS, "%" PRIu64, debt(0));
    }
    script_close(&script);
    check_group("3 no debt is longer than 100 ms");
}

/* 4. Given a session that takes beside another one in a window of 100 ms, alone in the next, and in
 *    those behind it; and one that takes where both had stood still for windows. Expect the time
 *    shared by two in the window of both and in the next one. */
static void situation_windows(void) {
    fresh(2);
    turn_of(1, 1 * MS);
    turn_of(0, 1 * MS);
    CHECK(debt(0) == 2 * MS, "%" PRIu64, debt(0));
    for (uint32_t window = 1; window < 4; window++) {
        script.now_ns += 100 * MS;
        turn_of(0, 1 * MS);
        CHECK(debt(0) == (window == 1 ? 2 * MS : MS / 2), "%u: %" PRIu64, window, debt(0));
    }
    turn_of(1, 1 * MS);
    script.now_ns += 300 * MS;
    turn_of(0, 1 * MS);
    CHECK(debt(0) == MS / 2, "%" PRIu64, debt(0));
    script_close(&script);
    check_group("4 who took in this window or the one before shares the time");
}

/* 5. Given as many sessions as a turn may serve: those of a burst, and those it releases. Expect
 *    each charged, and none twice. */
static void situation_many(void) {
    enum { TAKERS = 2 * RP_BURST };
    fresh(SESSIONS);
    begin(1);
    for (uint32_t i = 0; i < 2 * TAKERS; i++) {
        rp_share_take(script.server, i % TAKERS, 8);
    }
    CHECK(script.server->shares.taker_count == TAKERS);
    end(TAKERS * (uint64_t)MS / 8);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        uint64_t ends_ns = script.server->lines[i].debt_end_ns;
        CHECK((ends_ns > 0) == (i < TAKERS) && ends_ns == (i < TAKERS ? script.now_ns + 8 * MS : 0),
              "session %u: %" PRIu64, i, ends_ns);
    }
    script_close(&script);
    check_group("5 all who take in a turn are charged");
}

int main(void) {
    situation_parts();
    situation_slack();
    situation_bound();
    situation_windows();
    situation_many();
    return check_done("test_time_shares");
}
