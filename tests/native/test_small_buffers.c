/* No number of sessions is refused for what a host gives its sockets, and traffic gets
 * through what they hold. 212992 bytes is what Linux gives a user by default (net.core.rmem_max);
 * asking for that much is the same for root, and on any host. */
#include <stdlib.h>

#include "drive.h"
#include "transport/transport_zmq.h"

enum { STOCK_BYTES = 212992, ROW = 128, CLIENTS = 60, ROUNDS = 4, ROWS = 126, SESSIONS = 64 };

static char error[RP_ERROR_BYTES];

static int open_with(struct rp_service **service, const char *url, uint32_t bytes,
                     uint32_t sessions, uint32_t budget) {
    struct drive_table made;
    struct rp_service_options options = {.receive_bytes = bytes, .send_bytes = bytes};
    drive_config(&made, 4096, ROW);
    made.config.sessions_max = sessions;
    made.config.receive_budget = budget;
    made.config.records = 1;
    made.config.batch_max = 16;
    return rp_service_open(service, &made.config, url, &options, error);
}

/* Given every documented number of sessions, on each transport, with buffers as large as they get
 * and as small as a stock kernel gives them; and with a budget of one datagram each. Expect a
 * server. */
static void check_sessions(void) {
    static const char *const urls[] = {"loopback://many", "udp://127.0.0.1:0",
                                       "udp://127.0.0.1:0?mtu=1400", "udp://127.0.0.1:0?mtu=65504",
                                       "zmq+tcp://127.0.0.1:0"};
    static const uint32_t sessions[] = {1, 16, 64, 468, 512, 1008, 2048, RP_SESSIONS_MAX};
    for (size_t u = 0; u < sizeof urls / sizeof *urls; u++) {
        for (size_t s = 0; s < sizeof sessions / sizeof *sessions; s++) {
            for (int way = 0; way < 4; way++) {
                struct rp_service *service;
                int status = open_with(&service, urls[u], way & 1 ? STOCK_BYTES : 0, sessions[s],
                                       way & 2 ? sessions[s] : 0);
                CHECK(status == 0, "%u sessions at %s: %s", sessions[s], urls[u], error);
                rp_service_close(service);
            }
        }
    }
    check_group("every number of sessions is served on every transport");
}

/* Given a port that holds fewer datagrams than there are sessions, one that holds enough, and one
 * whose configuration allows fewer. Expect a remark that says what to set, none, and a refusal. */
static void check_remark(void) {
    struct rp_service *service;
    CHECK(open_with(&service, "udp://127.0.0.1:0", STOCK_BYTES, SESSIONS, 0) == 0, "%s", error);
    const char *remark = rp_service_remark(service);
    CHECK(remark && strstr(remark, "25 datagrams of 8960 bytes fit in here, 64 sessions"), "%s",
          remark ? remark : "nothing");
#ifdef __linux__
    CHECK(strstr(remark, "sysctl -w net.core.rmem_max=8388608 makes room"), "%s", remark);
#endif
    rp_service_close(service);
    CHECK(open_with(&service, "udp://127.0.0.1:0", STOCK_BYTES, 25, 0) == 0, "%s", error);
    CHECK(rp_service_remark(service) == NULL, "%s", rp_service_remark(service));
    rp_service_close(service);
    CHECK(open_with(&service, "loopback://few", 0, 512, 0) == 0, "%s", error);
    remark = rp_service_remark(service);
    CHECK(remark && strstr(remark, "468 datagrams") && !strstr(remark, "sysctl"));
    rp_service_close(service);
    CHECK(open_with(&service, "udp://127.0.0.1:0", STOCK_BYTES, SESSIONS, 10)
          == -RP_BAD_ARGUMENT);
    CHECK(strstr(error, "receive_budget is 10, but must lie between 64 (one datagram a session)"),
          "%s", error);
    check_group("a port that holds little: a remark, and no refusal");
}

/* Given a stock kernel's buffers, and more clients than they hold datagrams, each with a full one
 * that leaves while the server does not look. Expect all steps to be stored once, and batches. */
static void check_incast(void) {
    static struct drive_table made;
    static struct drive_batch batch;
    struct rp_service_options serve = {.receive_bytes = STOCK_BYTES, .send_bytes = STOCK_BYTES};
    struct rp_link_options options = {.receive_bytes = STOCK_BYTES, .send_bytes = STOCK_BYTES,
                                      .retry_us_min = 2000};
    struct rp_service *service;
    struct rp_link *links[CLIENTS];
    uint64_t counters[RP_COUNTER_COUNT];
    drive_config(&made, 1 << 16, ROW);
    made.config.sessions_max = SESSIONS;
    made.table.writers_max = CLIENTS;
    made.table.window = 64;
    CHECK(rp_service_open(&service, &made.config, "udp://127.0.0.1:0", &serve, error) == 0, "%s",
          error);
    CHECK(rp_service_start(service) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        links[i] = drive_link(rp_service_address(service), &options);
        struct rp_table_info info = drive_info(links[i]);
        drive_writer(links[i], &info);
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(rp_service_stop(service) == 0);
        for (int i = 0; i < CLIENTS; i++) {
            drive_push(links[i], ROW, (uint64_t)round * ROWS, ROWS);
            CHECK(rp_link_settle(links[i], 0, 1000) == RP_PENDING); /* it leaves */
        }
        CHECK(rp_service_start(service) == 0);
        for (int i = 0; i < CLIENTS; i++) {
            drive_settle(links[i]);
        }
    }
    for (int i = 0; i < CLIENTS; i++) {
        drive_sample(links[i], &batch, ROW, DRIVE_BATCH_MAX);
        rp_link_close(links[i], DRIVE_TIMEOUT_NS);
    }
    CHECK(rp_service_counters(service, counters) == 0);
    CHECK(counters[RP_COUNT_steps_committed] == CLIENTS * ROUNDS * ROWS);
#ifndef RP_POSIX /* there nobody counts them */
    CHECK(rp_service_dropped_in(service) > 0, "all of them found room: the test shows nothing");
#endif
    rp_service_close(service);
    check_group("more clients at once than the socket holds datagrams");
}

int main(void) {
    check_sessions();
    check_remark();
    check_incast();
    return check_done("test_small_buffers");
}
