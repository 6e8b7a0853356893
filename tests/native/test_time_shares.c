/* Who takes the server's time while others wait: all together no more than is said, and who takes
 * little is not refused for those who take much. Turns without a network, as long as a test has it.
 */
#include "base/minmax.h"
#include "base/random.h"
#include "script.h"

enum { MOST = RP_SHARE_TAKERS, SESSIONS = MOST + 4, MS = 1000000, TURNS = 3000, DROPPED = -1 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct rp_shares *shares;

/* A server with `count` sessions, the first of place 0. */
static void fresh(uint32_t count) {
    script_tables(tables);
    config = script_config(tables);
    config.sessions_max = config.receive_budget = SESSIONS;
    script_open(&script, &config);
    shares = &script.server->shares;
    script.now_ns = 1000 * (uint64_t)MS * 1000; /* the beginning of a window */
    for (uint32_t i = 0; i < count; i++) {
        struct script_client client = script_client((uint8_t)(1 + i % 90));
        client.peer.bytes[1] = (uint8_t)(i / 90);
        script_connect(&script, &client);
    }
}

static void begin(int behind) {
    script.server->now_ns = script.now_ns;
    script.server->turn++;
    rp_share_begin(script.server, behind);
}

static void end(uint64_t ns) {
    rp_share_end(script.server, ns, ns);
    script.now_ns += ns;
}

/* A turn that is all this session's. */
static void turn_of(uint32_t session, uint64_t ns) {
    begin(1);
    rp_share_take(script.server, session, 100);
    end(ns);
}

/* The datagrams of two requests, which are nobody's work. */
static void two_came(void) {
    rp_share_came(script.server, 0);
    rp_share_came(script.server, 0);
}

static int allows(uint32_t session) {
    begin(1);
    return rp_share_allows(script.server, session, 0);
}

static uint64_t used(uint32_t session) {
    return script.server->lines[session].account.used_ns;
}

static uint64_t debt(void) {
    return shares->debt_end_ns > script.now_ns ? shares->debt_end_ns - script.now_ns : 0;
}

/* 1. Given a turn of two sessions, one of which does three quarters of its work. Expect each to
 *    have taken its part, a debt of half as long as both, and a turn that leaves nothing behind
 *    charged to nobody. */
static void situation_parts(void) {
    fresh(2);
    begin(1);
    rp_share_take(script.server, 0, 30);
    rp_share_take(script.server, 0, 45);
    rp_share_take(script.server, 1, 25);
    end(4 * MS);
    CHECK(used(0) == 3 * MS && used(1) == MS);
    CHECK(shares->used_ns == 4 * MS && debt() == 2 * MS, "%" PRIu64, debt());
    begin(0);
    rp_share_take(script.server, 0, 100);
    end(50 * MS);
    CHECK(shares->used_ns == 4 * MS && debt() == 0);
    begin(1);
    rp_share_take(script.server, 0, 100);
    for (uint32_t i = 0; i < 100; i++) {
        rp_share_came(script.server, i % 2 ? 255 : 56); /* as long as 8 items each */
    }
    end(9 * MS);
    CHECK(used(0) == 4 * MS, "others' requests are not its work");
    begin(1);
    rp_share_take(script.server, 0, 100);
    rp_share_came(script.server, 23 * 256); /* 8, and one more for each 256 bytes */
    rp_share_came(script.server, 23 * 256);
    rp_share_stored(script.server, 46); /* three each */
    end(3 * MS);
    CHECK(used(0) == 5 * MS, "nor is what they brought, and what it took to store it");
    script_close(&script);
    check_group("1 a turn's time is charged by the work in it");
}

/* 2. Given debts of 5 ms and more, and sessions that took nine tenths, one and nothing. Expect
 *    nobody refused up to 5 ms; beyond that who took more than a part that shrinks to none at
 *    25 ms; and nobody where nothing is left behind. */
static void situation_slack(void) {
    fresh(3);
    turn_of(1, 1 * MS);
    turn_of(0, 9 * MS);
    CHECK(debt() == 5 * MS, "%" PRIu64, debt());
    CHECK(allows(0) && allows(1) && allows(2));
    shares->debt_end_ns += 1;
    CHECK(!allows(0) && allows(1) && allows(2));
    begin(0);
    CHECK(rp_share_allows(script.server, 0, 0), "nobody waits");
    shares->debt_end_ns += 16 * MS - 1000;
    CHECK(!allows(0) && allows(1) && allows(2), "two tenths of a half are a tenth");
    shares->debt_end_ns += 1000;
    CHECK(debt() > 21 * MS && !allows(0) && !allows(1) && allows(2));
    shares->debt_end_ns += 4 * MS - 2;
    CHECK(debt() == 25 * MS - 1 && allows(2));
    shares->debt_end_ns += 1;
    CHECK(!allows(0) && !allows(1) && !allows(2));
    script.now_ns += 20 * MS + 1;
    CHECK(allows(0) && allows(1) && allows(2));
    script_close(&script);
    check_group("2 up to 5 ms of debt are nobody's matter, beyond 25 ms all wait");
}

/* 3. Given turns in which the thread slept for a minute. Expect a debt of 100 ms behind each, and
 *    no more however many there are; and behind one of 160 ms half of that. */
static void situation_bound(void) {
    fresh(1);
    for (uint32_t i = 0; i < 3; i++) {
        turn_of(0, 60000 * (uint64_t)MS);
        CHECK(debt() == 100 * MS, "%" PRIu64, debt());
    }
    script.now_ns += 1000 * (uint64_t)MS;
    turn_of(0, 160 * MS);
    CHECK(debt() == 80 * MS, "%" PRIu64, debt());
    script_close(&script);
    check_group("3 no debt is longer than 100 ms behind a turn");
}

/* 4. Given what sessions took in one window of 100 ms, and nothing behind that. Expect half of it
 *    in the next one, and so on, of each and of all; and those who took counted in the window and
 *    in the next. */
static void situation_windows(void) {
    fresh(2);
    turn_of(0, 8 * MS);
    turn_of(1, 8 * MS);
    CHECK(shares->sharers == 2 && shares->used_ns == 16 * MS);
    for (uint32_t window = 1; window < 5; window++) {
        script.now_ns += 100 * MS;
        allows(0);
        CHECK(shares->used_ns == 16u * MS >> window, "%" PRIu64, shares->used_ns);
        CHECK(used(0) == 8u * MS >> window);
        CHECK(shares->sharers == 0 && shares->sharers_last == (window == 1 ? 2 : 0));
    }
    turn_of(0, 1 * MS);
    turn_of(0, 1 * MS);
    CHECK(shares->sharers == 1, "who takes twice is one");
    script.now_ns += 90000 * (uint64_t)MS;
    allows(1);
    CHECK(shares->used_ns == 0 && used(1) == 0 && !shares->sharers_last);
    script_close(&script);
    check_group("4 what was taken counts half with each window");
}

/* 5. Given more takers in a turn than there is room for. Expect each charged once, as far as there
 *    is, and nothing beyond it written. */
static void situation_many(void) {
    fresh(SESSIONS);
    const struct rp_line *lines = script.server->lines;
    begin(1);
    for (uint32_t i = 0; i < 2 * SESSIONS; i++) {
        rp_share_take(script.server, i % SESSIONS, 8);
    }
    CHECK(shares->taker_count == MOST && script.server->lines == lines);
    end(MOST * (uint64_t)MS);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        CHECK(used(i) == (i < MOST ? MS : 0), "session %u: %" PRIu64, i, used(i));
    }
    CHECK(shares->sharers == MOST);
    script_close(&script);
    check_group("5 who takes in a turn is charged, as far as there is room for takers");
}

enum others { STAYS, GOES_BEFORE, GOES_BEHIND };

/* 6. Given a learner that takes a third of the time, beside sessions that come, take a little and
 *    go, all in one place, beside such that take all they get, before they go or after the next has
 *    come, and beside one that stays and does. Expect the learner served each time in the first
 *    case, in the others in half of the turns, and a place counted as one. */
static void situation_others(uint32_t takes, enum others others, uint32_t least) {
    uint32_t served = 0;
    fresh(2);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        uint32_t took = 0;
        begin(1);
        if (rp_share_allows(script.server, 0, 0)) {
            rp_share_take(script.server, 0, 10);
            took += 10;
            served++;
        }
        if (others == GOES_BEFORE) { /* the one that had the place has gone */
            rp_session_line(script.server, 1);
        }
        if (rp_share_allows(script.server, 1, 0)) {
            rp_share_take(script.server, 1, takes);
            took += takes;
        }
        if (others == GOES_BEHIND) { /* in the burst that it took in */
            rp_session_line(script.server, 1);
        }
        uint64_t took_ns = took * (uint64_t)MS / 10 + 2 * MS; /* others': 2 ms */
        two_came();
        rp_share_end(script.server, took_ns, took_ns);
        script.now_ns += took_ns;
    }
    CHECK(served >= least, "%u of %d", served, TURNS);
    CHECK(shares->sharers <= 2 && shares->sharers_last <= 2, "%u sharers", shares->sharers);
    script_close(&script);
}

/* 7. Given many sessions that flood alike, and a learner that asks again later and later where it
 *    is refused, as clients do. Expect it served nine times of ten, and within 100 ms. */
static void situation_crowd(uint32_t floods, uint32_t draw_us) {
    struct rp_random random;
    uint64_t next_ns, wait_ns = 5 * MS, since_ns = 0, longest_ns = 0;
    uint32_t asked = 0, served = 0;
    fresh(floods + 1);
    rp_random_seed(&random, 1);
    for (next_ns = script.now_ns; asked < 1000;) {
        uint64_t took_ns = 16000;
        begin(1);
        if (script.now_ns >= next_ns) {
            int goes = rp_share_allows(script.server, 0, 0);
            since_ns = since_ns ? since_ns : script.now_ns;
            longest_ns = rp_max(longest_ns, script.now_ns - since_ns);
            rp_share_take(script.server, 0, goes ? 100 : 0);
            took_ns += goes ? MS / 10 : 0;
            since_ns = goes ? 0 : since_ns;
            next_ns = script.now_ns + (goes ? 10 * MS : wait_ns);
            wait_ns = goes ? 5 * MS : rp_min(2 * wait_ns, 800ull * MS);
            asked++;
            served += (uint32_t)goes;
        }
        for (uint32_t i = 0; i < 15; i++) {
            uint32_t who = 1 + (uint32_t)rp_random_below(&random, floods);
            if (rp_share_allows(script.server, who, 0)) {
                rp_share_take(script.server, who, draw_us);
                took_ns += draw_us * 1000ull;
            }
        }
        two_came();
        rp_share_end(script.server, took_ns, took_ns);
        script.now_ns += took_ns;
    }
    CHECK(served > 900 && longest_ns < 100 * MS, "%u floods: %u of %u, at most %" PRIu64 " ns",
          floods, served, asked, longest_ns);
    script_close(&script);
}

/* 8. Given 64 sessions of one request each in every turn, of 5 us, and one among them that takes
 *    twenty times as long, for a thousand turns. Expect no part and no debt of the 64,
 *    of the other what is beyond 5 us, and of requests that were refused nothing taken off. */
static void situation_plain(void) {
    enum { CROWD = 64 };
    fresh(CROWD + 1);
    for (uint32_t turn = 0; turn < 1000; turn++) {
        begin(1);
        for (uint32_t i = 0; i <= CROWD; i++) {
            CHECK(rp_share_allows(script.server, i, 0));
            rp_share_take(script.server, i, i < CROWD ? 5 : 100);
        }
        end(MS * (5 * CROWD + 100) / 1000);
        CHECK(used(0) == 0 && used(CROWD - 1) == 0, "%" PRIu64, used(0));
        script.now_ns += turn == 0 ? 0 : MS / 4;
        CHECK(turn > 0 || (used(CROWD) == 95000 && shares->used_ns == 95000), "%" PRIu64,
              used(CROWD));
        CHECK(debt() <= 142500, "%" PRIu64, debt());
    }
    CHECK(shares->debt_end_ns < script.now_ns);
    shares->debt_end_ns = script.now_ns + 30 * MS;
    begin(1);
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK(!rp_share_allows(script.server, 0, 0));
    }
    rp_share_take(script.server, 0, 100);
    end(MS);
    CHECK(used(0) == MS, "%" PRIu64, used(0));
    script.now_ns += 40 * MS;
    uint64_t before = used(1);
    for (uint32_t turn = 0; turn < 3; turn++) { /* in the first two it asks, and nothing is done */
        begin(1);
        CHECK(rp_share_allows(script.server, 1, 0));
        rp_share_take(script.server, 1, turn == 2 ? 100 : 0);
        end(MS);
    }
    CHECK(used(1) - before == MS - RP_SHARE_PLAIN_NS, "%" PRIu64, used(1) - before);
    script_close(&script);
    check_group("8 many that ask for little each are no debt");
}

/* 9. Given turns of 10 ms, in one of which the thread ran, all for one session. Expect half a
 *    millisecond more of debt behind each, as if there had been no others; and nothing owed behind
 *    a turn of which nobody knows how long it ran. */
static void situation_stolen(void) {
    fresh(1);
    for (uint64_t turn = 1; turn <= 20; turn++) {
        begin(1);
        rp_share_take(script.server, 0, 100);
        rp_share_end(script.server, 10 * MS, MS);
        script.now_ns += 10 * MS;
        CHECK(debt() == turn * MS / 2, "%" PRIu64 " behind turn %" PRIu64, debt(), turn);
    }
    begin(1);
    rp_share_end(script.server, 7 * MS, 0);
    script.now_ns += 7 * MS;
    CHECK(debt() == 10 * MS, "it pays nothing either");
    script.now_ns += 20 * MS;
    begin(1);
    rp_share_take(script.server, 0, 100);
    rp_share_end(script.server, 7 * MS, 0);
    script.now_ns += 7 * MS;
    CHECK(debt() == 0, "%" PRIu64, debt());
    script_close(&script);
    check_group("9 time without a core is nobody's debt, and pays none");
}

/* What a burst of WRITERs is answered, which may leave others behind it. */
static int asks_for_writer(struct script_client *client) {
    struct rp_writer_request request = {.streams = 1};
    static uint64_t id = 5;
    script_forget(&script);
    for (uint32_t i = 0; i < RP_BURST; i++) {
        script_put(&script, client, RP_OP_WRITER, 0, ++id, &request, sizeof request);
    }
    script_turn(&script);
    return script.port.out_count ? (int)script_answer(&script, 0).status : DROPPED;
}

/* 10. Given a table whose writers' places are all held, and a burst of requests for one that leaves
 *     others behind. Expect the session charged with looking at all of them, and its next request
 *     dropped once there is a debt; and one that has its place, or takes a free one, charged
 *     nothing. */
static void situation_no_writer_free(void) {
    struct script_client clients[3];
    fresh(0);
    for (uint8_t i = 0; i < 3; i++) {
        clients[i] = script_client((uint8_t)(1 + i));
        script_connect(&script, &clients[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        script_writer(&script, &clients[i], 0, 1);
    }
    CHECK(asks_for_writer(&clients[2]) == RP_NO_WRITER_FREE);
    rp_server_end_turn(script.server, 40 * MS, 40 * MS); /* a fifth of it is the looking */
    CHECK(used(2) > 7 * MS && used(2) < 8 * MS, "%" PRIu64, used(2));
    CHECK(debt() > 10 * MS && debt() < 12 * MS, "%" PRIu64, debt());
    uint64_t dropped = script_counter(&script, RP_COUNT_drop_share);
    CHECK(asks_for_writer(&clients[2]) == DROPPED);
    CHECK(script_counter(&script, RP_COUNT_drop_share) == dropped + RP_BURST);
    CHECK(asks_for_writer(&clients[0]) == RP_OK && used(0) == 0);
    script_close(&script);
    check_group("10 who asks for a writer where none is free pays for the looking");
}

/* 11. Given a burst of first pieces, each of another publication, that leaves others behind. Expect
 *     their session charged with what beginning takes, and its next ones dropped once there is a
 *     debt; one that goes on with a publication charged nothing. */
static void situation_publications(void) {
    static struct {
        struct rp_publish publish;
        uint8_t bytes[8];
    } body = {.publish = {.size = 16, .piece = 8}};
    static uint64_t id = 0;
    fresh(0);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    for (uint32_t same = 0; same < 2; same++) {
        for (uint32_t burst = 0; burst < 2; burst++) {
            uint64_t dropped = script_counter(&script, RP_COUNT_drop_share), had = used(0);
            for (uint32_t i = 0; i < RP_BURST; i++) {
                id += !same;
                script_put(&script, &client, RP_OP_PUBLISH, 0, id, &body, sizeof body);
            }
            script_turn(&script);
            rp_server_end_turn(script.server, 20 * MS, 20 * MS);
            dropped = script_counter(&script, RP_COUNT_drop_share) - dropped;
            CHECK(dropped == (same == 0 && burst == 1 ? RP_BURST : 0), "%" PRIu64, dropped);
            CHECK((used(0) > had) == (same == 0 && burst == 0), "%" PRIu64, used(0) - had);
        }
        id -= RP_BURST * !same; /* the last that was begun */
    }
    script_close(&script);
    check_group("11 who begins publications pays for the beginning");
}

int main(void) {
    situation_parts();
    situation_slack();
    situation_bound();
    situation_windows();
    situation_many();
    situation_others(1, GOES_BEFORE, TURNS);
    situation_others(60, GOES_BEFORE, TURNS / 2);
    situation_others(60, GOES_BEHIND, TURNS / 2);
    situation_others(60, STAYS, TURNS / 2);
    check_group("6 who takes little is not held back by who comes and goes, nor by who takes much");
    situation_crowd(8, 1000);
    situation_crowd(16, 1000);
    situation_crowd(47, 300);
    situation_crowd(47, 1000);
    check_group("7 many that take alike do not keep out who takes little");
    situation_plain();
    situation_stolen();
    situation_no_writer_free();
    situation_publications();
    return check_done("test_time_shares");
}
