/* A cookie is good to the end of the period behind its own and not a moment longer, a nonce
 * that opened a session is remembered as long, and a period ends by time or when it is full.
 */
#include <string.h>

#include "check.h"
#include "server/server_state.h"

static struct rp_server server;
static const struct rp_peer here = {.size = 6, .bytes = {1, 2, 3, 4, 5, 6}};
static const struct rp_peer there = {.size = 6, .bytes = {1, 2, 3, 4, 5, 7}};
static const uint64_t period_ns = RP_COOKIE_PERIOD_S * 1000000000ull;
static uint64_t began_ns;

static void *open_at(uint64_t now_ns, uint32_t sessions_max) {
    void *memory = calloc(1, rp_cookies_bytes(sessions_max));
    memset(&server, 0, sizeof server);
    memset(server.cookie_key, 7, sizeof server.cookie_key);
    server.limits.sessions_max = sessions_max;
    server.now_ns = began_ns = now_ns;
    rp_cookies_open(&server, memory);
    return memory;
}

static int good_at(uint64_t after_ns, uint64_t cookie) {
    server.now_ns = began_ns + after_ns;
    return rp_cookie_good(&server, &here, 1, cookie);
}

/* Given one at each end of a period. Expect it good until the next period ends, whoever asked in
 * between, for its address and nonce alone. */
static void ends_of_periods(void) {
    for (uint32_t late = 0; late < 2; late++) {
        void *memory = open_at(1000000, 4);
        server.now_ns += late ? period_ns - 1 : 0;
        uint64_t cookie = rp_cookie_of(&server, &here, 1);
        CHECK(rp_cookie_good(&server, &here, 1, cookie));
        CHECK(!rp_cookie_good(&server, &there, 1, cookie));
        CHECK(!rp_cookie_good(&server, &here, 2, cookie));
        CHECK(!rp_cookie_good(&server, &here, 1, cookie + 1));
        CHECK(rp_cookie_of(&server, &here, 1) == cookie, "one for a period");
        CHECK(good_at(period_ns, cookie) && good_at(2 * period_ns - 1, cookie));
        uint64_t next = rp_cookie_of(&server, &here, 1);
        CHECK(next != cookie && !good_at(2 * period_ns, cookie));
        CHECK(good_at(3 * period_ns - 1, next) && !good_at(7 * period_ns, next));
        free(memory);
    }
    void *memory = open_at(1000000, 4);
    uint64_t cookie = rp_cookie_of(&server, &here, 1);
    CHECK(!good_at(1000 * period_ns + 5, cookie), "nobody asked for long");
    cookie = rp_cookie_of(&server, &here, 1);
    CHECK(good_at(1002 * period_ns - 1, cookie) && !good_at(1002 * period_ns, cookie),
          "periods end at multiples of their length");
    free(memory);
    check_group("a cookie's last moment");
}

/* Given nonces used. Expect each remembered for its period and the next. */
static void remembered(void) {
    void *memory = open_at(1000000, 4);
    for (uint64_t nonce = 1; nonce <= 600; nonce++) {
        CHECK(rp_cookie_opened(&server, &here, nonce) == 0);
        rp_cookie_use(&server, &here, nonce, 10 * nonce);
        CHECK(rp_cookie_opened(&server, &here, nonce) == 10 * nonce);
        CHECK(rp_cookie_opened(&server, &there, nonce) == 0);
    }
    for (uint64_t n = 0; n < 3; n++) {
        good_at(n * period_ns, 0);
        for (uint64_t nonce = 1; nonce <= 600; nonce++) {
            CHECK(rp_cookie_opened(&server, &here, nonce) == (n < 2 ? 10 * nonce : 0));
        }
    }
    free(memory);
    check_group("a nonce's");
}

/* Uses so many; returns how many until the period ended, or 0. */
static uint64_t use(uint64_t count) {
    static uint64_t nonce = 1000000;
    uint64_t period = server.cookies.period;
    for (uint64_t i = 1; i <= count; i++) {
        nonce++;
        rp_cookie_use(&server, &here, nonce, nonce);
        CHECK(rp_cookie_opened(&server, &here, nonce) == nonce);
        if (server.cookies.period != period) {
            CHECK(server.cookies.period == period + 1);
            return i;
        }
    }
    return 0;
}

/* Given more than a period has room for. Expect the next one then, each as long as the others. */
static void full(void) {
    uint32_t sessions[] = {1, RP_COOKIE_NONCES_MIN / 2, RP_COOKIE_NONCES_MIN / 2 + 1, 4096};
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t room = i < 2 ? RP_COOKIE_NONCES_MIN : 2 * (uint64_t)sessions[i];
        void *memory = open_at(1000000, sessions[i]);
        CHECK(use(3 * room) == room, "%u sessions", sessions[i]);
        CHECK(use(3 * room) == room && use(room - 1) == 0);
        server.now_ns += 10;
        CHECK(use(1) == 1 && server.cookies.began_ns == server.now_ns, "the period begins here");
        CHECK(use(room - 1) == 0);
        good_at(period_ns + 9, 0);
        CHECK(server.cookies.count == room - 1, "by time not before");
        good_at(period_ns + 10, 0);
        CHECK(server.cookies.count == 0 && use(3 * room) == room);
        free(memory);
    }
    check_group("a full period's");
}

int main(void) {
    ends_of_periods();
    remembered();
    full();
    return check_done("test_cookie");
}
