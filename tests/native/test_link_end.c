/* A link ends once nobody is in its port, its server hears of it, and a server that ended is
 * noticed; a draw that is shut leaves its memory alone. Situations read "Given ... Expect ...".
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "drive_both.h"
#include "drive/link_drive.h"

static _Atomic int waits, is_closed;
static struct rp_transport counted;
static int (*sleep_before)(struct rp_port *port, uint64_t timeout_ns);
static void (*close_before)(struct rp_port *port);

static int long_wait(struct rp_port *port, uint64_t timeout_ns) {
    waits = 1;
    int result = sleep_before(port, timeout_ns);
    for (int i = 0; i < 10000 && !is_closed; i++) { /* it takes its time to come back */
        sched_yield();
    }
    waits = 0;
    return result;
}

static void watch_close(struct rp_port *port) {
    is_closed = 1;
    CHECK(!waits, "who waits in the port is still there");
    close_before(port);
}

static void *ping_until_closed(void *argument) {
    int ticket = rp_link_ping(ours, DRIVE_TIMEOUT_NS), status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_wait(ours, ticket, RP_SLICE_NS, NULL);
    }
    CHECK(status == -RP_CLOSED, "%s", rp_status_name(status));
    return argument;
}

/* Given a caller that waits in the port while its link ends. Expect the port to be closed when he
 * has come back, not before. */
static void check_drain(void) {
    pthread_t caller;
    open_both("udp://127.0.0.1:0");
    CHECK(rp_service_stop(service) == 0);
    counted = *rp_port_transport(ours->port);
    sleep_before = counted.wait;
    close_before = counted.close;
    counted.wait = long_wait;
    counted.close = watch_close;
    rp_port_base(ours->port)->transport = &counted;
    CHECK(pthread_create(&caller, NULL, ping_until_closed, NULL) == 0);
    while (!waits) {
        sched_yield();
    }
    rp_link_end(ours, 0);
    CHECK(is_closed && pthread_join(caller, NULL) == 0);
    close_both();
    check_group("a link ends when nobody is in its port");
}

/* Given a server of this process that has closed, and a post that moves nothing. Expect it to be
 * noticed, and who follows to be told. */
static void check_server_gone(void) {
    open_both("loopback://gone");
    rp_service_end(service);
    CHECK(rp_gate_enter(&ours->gate) == 0);
    uint32_t before = atomic_load(&ours->progress);
    rp_link_posted(ours);
    CHECK(ours->server_closed && atomic_load(&ours->progress) != before);
    rp_gate_leave(&ours->gate);
    close_both();
    check_group("a server that closed is noticed by who posts, and told");
}

/* Given a link whose last request had the largest number there is. Expect the next, of number 1, to
 * be waited for as any other: it tells the server of the end. */
static void check_first_number(void) {
    enum { LAST = 0x7FFF << 16 | 1, MOST = 1 << 17 };
    int last = 0, rounds = 0;
    open_both("loopback://numbers");
    for (; rounds < MOST && last != LAST; rounds++) {
        last = rp_link_ping(ours, DRIVE_TIMEOUT_NS);
        CHECK(last > 0 && drive_wait(ours, last, NULL) == 0);
    }
    CHECK(last == LAST, "%x after %d", (unsigned)last, rounds);
    rp_link_end(ours, DRIVE_TIMEOUT_NS);
    CHECK(rp_service_sessions(service) == 0, "the server has heard of it");
    close_both();
    check_group("a request whose number is 1");
}

/* Given a link that ends with no time to wait for an answer, or is freed and was not ended, as
 * where an interpreter ends. Expect its server to hear of it and to give the session's place back
 * at once, not when it was idle for long; and none of its threads to be left (sanitizers). */
static void check_goodbye(const char *url, int freed) {
    enum { LOOKS = 10000 };
    struct rp_link_options options = {0};
    open_both(url);
    struct rp_link *other = drive_link(rp_service_address(service), &options);
    CHECK(rp_service_sessions(service) == 2);
    if (freed) {
        rp_link_free(other);
    } else {
        rp_link_close(other, 0);
    }
    for (int i = 0; i < LOOKS && rp_service_sessions(service) > 1; i++) {
        CHECK(drive_wait(ours, rp_link_ping(ours, DRIVE_TIMEOUT_NS), NULL) == 0);
    }
    CHECK(rp_service_sessions(service) == 1, "%s: the server has not heard of it", url);
    close_both();
}

enum { ITEMS = 256, PART = 2048, SLAB = 24 * PART, SHUTS = 200 };

static const struct rp_landing_column columns[] = {
    {.target = (void *)(uintptr_t)(16 * PART), .stride = ROW, .size = ROW}};
static const struct rp_shape shape = {
    .columns = columns, .column_count = 1, .item_bytes = ROW, .count = ITEMS, .keys = 0,
    .masses = PART, .probabilities = 2 * PART, .behind = 3 * PART, .ahead = 4 * PART,
    .totals = 5 * PART, .drawables = 6 * PART, .ages = 7 * PART, .valid = 8 * PART,
    .weights = 9 * PART};
static _Alignas(64) uint8_t memory[SLAB + 4096];
static struct rp_place *const place = (struct rp_place *)(void *)memory;
static _Atomic int begun, landed;

static void *draw_until_shut(void *argument) {
    struct rp_draw draw = {.shape = &shape, .request = {.count = ITEMS},
                           .incarnation = rp_link_incarnation(ours)};
    int status = 0;
    while (status == 0 || status == RP_PENDING) {
        status = rp_link_draw(ours, &draw, NULL, 0.5, place, 60000000000u, 1000000);
        landed += status == 0;
        begun = 1;
    }
    CHECK(status == -RP_CLOSED, "%s", rp_status_name(status));
    return argument;
}

/* Shuts a place that another thread draws into, after `yields`. */
static void shut(int yields) {
    pthread_t caller;
    CHECK(rp_place_bytes(&shape, SLAB) <= sizeof memory);
    uint8_t *slab = memory + rp_place_lay(place, &shape);
    begun = 0;
    CHECK(pthread_create(&caller, NULL, draw_until_shut, NULL) == 0);
    while (!begun || yields-- > 0) {
        sched_yield();
    }
    rp_link_draw_shut(ours, place);
    memset(slab, 7, SLAB);
    CHECK(pthread_join(caller, NULL) == 0);
    for (int i = 0; i < SLAB; i++) {
        CHECK(slab[i] == 7, "byte %d was written after the place was shut", i);
    }
}

/* Given a thread that waits for a batch at an empty table, then one that draws one after another,
 * and another that shuts the place. Expect the memory to be that one's at once. */
static void check_shut(void) {
    open_both("udp://127.0.0.1:0");
    shut(0);
    CHECK(landed == 0);
    struct rp_table_info info = drive_info(ours);
    drive_writer(ours, &info);
    drive_push(ours, ROW, 0, 100);
    drive_settle(ours);
    for (int i = 0; i < SHUTS; i++) {
        shut(i % 50);
    }
    CHECK(landed > 0);
    close_both();
    check_group("a draw that is shut leaves its memory alone");
}

int main(void) {
    check_drain();
    check_server_gone();
    check_first_number();
    check_shut();
    for (int freed = 0; freed < 2; freed++) {
        check_goodbye("udp://127.0.0.1:0", freed);
        check_goodbye("loopback://goodbye", freed);
    }
    check_group("a link that ends in no time says goodbye");
    return check_done("test_link_end");
}
