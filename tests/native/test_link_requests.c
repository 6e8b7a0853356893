/* Each call of a link reaches the client's function of its name with its own arguments, and
 * every one of them is refused once the link has ended. Situations read "Given ... Expect ...".
 */
#include <malloc.h>
#include <math.h>
#include <sched.h>

#include "drive/clock.h"
#include "drive_both.h"

enum { BLOB = 3000 };

/* Posts that need no more than a link; where they land is nobody's. */
static struct rp_table_info info;
static struct drive_batch batch;
static struct rp_writer_granted granted;
static struct rp_updated updated;
static struct rp_push_state pushed;
static struct rp_update_state queued;
static struct rp_opened limits;
static struct rp_fact facts[RP_FACTS_MAX];
static struct rp_push_key keys_of[4];
static struct rp_block block = {0};
static uint8_t bytes[BLOB], landed[BLOB];
static uint64_t counters[RP_COUNTER_COUNT], version, size, epoch, keys[4], stored, doubt, lost;
static uint32_t sessions, fact_count;
static const uint16_t streams[4];
static const struct rp_draw any_draw;
static struct rp_place no_place;
static const double ones[4] = {1.0, 1.0, 1.0, 1.0};

#define POST(name, call)                                                                          \
    static int name(struct rp_link *link)                                                         \
    {                                                                                             \
        return call;                                                                              \
    }

POST(post_table, rp_link_table(link, "main", &info, DRIVE_TIMEOUT_NS))
POST(post_number, rp_link_table_number(link, 0, &info, DRIVE_TIMEOUT_NS))
POST(post_writer, rp_link_writer(link, &info, 1, &granted, DRIVE_TIMEOUT_NS))
POST(post_sample, drive_draw(link, &batch, ROW, 4, DRIVE_TIMEOUT_NS))
POST(post_update, rp_link_update(link, 0, info.epoch, keys, ones, 4, &updated, DRIVE_TIMEOUT_NS))
POST(post_publish, rp_link_publish(link, bytes, BLOB, &version, DRIVE_TIMEOUT_NS))
POST(post_blob, rp_link_blob(link, RP_BLOB_WEIGHTS, 0, 0, landed, BLOB, &size, &version,
                             DRIVE_TIMEOUT_NS))
POST(post_stats, rp_link_stats(link, counters, &sessions, DRIVE_TIMEOUT_NS))
POST(post_facts, rp_link_facts(link, facts, &fact_count, DRIVE_TIMEOUT_NS))
POST(post_reset, rp_link_reset(link, 0, info.epoch, &epoch, DRIVE_TIMEOUT_NS))
POST(post_ping, rp_link_ping(link, DRIVE_TIMEOUT_NS))
POST(do_draw_post, rp_link_draw_post(link, &any_draw, &no_place, 1))
POST(do_state, rp_link_state(link))
POST(do_counters, rp_link_counters(link, counters))
POST(do_limits, rp_link_limits(link, &limits))
POST(do_connect, rp_link_connect(link, 0))
POST(do_drive, rp_link_drive(link, 0))
POST(do_start, rp_link_start_pump(link))
POST(do_stop, rp_link_stop_pump(link))
POST(do_wait, rp_link_wait(link, 1, 0, NULL))
POST(do_poll, rp_link_poll(link, 1))
POST(do_queue, rp_link_update_queue(link, 0, 1, keys, ones, 4, 1, 1))
POST(do_update_state, rp_link_update_state(link, &queued))
POST(do_update_settle, rp_link_update_settle(link, 0))
POST(do_push, rp_link_push(link, 0, 0, bytes, 1, 0, NULL, 0))
POST(do_block, rp_link_push_block(link, 0, &block, 0))
POST(do_create, rp_link_create(link, 0, streams, keys, ones, 1, 0))
POST(do_flush, rp_link_flush(link, 0))
POST(do_settle, rp_link_settle(link, 0, 0))
POST(do_push_state, rp_link_push_state(link, 0, &pushed))
POST(do_ledger, rp_link_ledger(link, keys_of, 4))
POST(do_keys, rp_link_keys(link, 0, 0, keys, 4))
POST(do_loss, rp_link_loss(link, 0, &stored, &doubt, &lost))

/* Given a link that was ended. Expect every call to say so, and the numbers to be 0. */
static void check_ended(void) {
    static int (*const calls[])(struct rp_link *) = {
        post_table, post_number, post_writer, post_sample, post_update, post_publish, post_blob,
        post_stats, post_facts, post_reset, post_ping, do_state, do_counters, do_limits, do_connect,
        do_drive, do_start, do_stop, do_wait, do_poll, do_queue, do_update_state, do_update_settle,
        do_push, do_block, do_create, do_flush, do_settle, do_push_state, do_ledger, do_keys,
        do_loss, do_draw_post};
    open_both("loopback://ended");
    rp_link_end(ours, 0);
    rp_link_end(ours, 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int status = calls[i](ours);
        CHECK(status == -RP_CLOSED, "call %zu: %s", i, rp_status_name(status));
    }
    CHECK(rp_link_incarnation(ours) == 0 && rp_link_session(ours) == 0);
    CHECK(rp_link_weights_version(ours) == 0 && rp_link_mtu(ours) == 0);
    CHECK(rp_link_dropped(ours) == 0 && rp_link_own_facts(ours, facts) == 0);
    CHECK(rp_link_update_room(ours) == 0);
    rp_link_take(ours, 1);
    close_both();
    check_group("a link that has ended refuses every call");
}

static void done(int ticket) {
    int status = drive_wait(ours, ticket, NULL);
    CHECK(status == 0, "%s", rp_status_name(status));
}

/* Given a session. Expect the link to tell what the server has of it. */
static void check_asked(void) {
    open_both("loopback://asked");
    CHECK(rp_link_state(ours) == 1 && rp_link_limits(ours, &limits) == 0);
    CHECK(limits.batch_max == DRIVE_BATCH_MAX && limits.table_count == 1);
    CHECK(rp_link_session(ours) == limits.session && limits.session != 0);
    CHECK(rp_link_mtu(ours) == limits.mtu && limits.mtu == RP_MTU_HOST);
    CHECK(rp_link_incarnation(ours) == rp_service_incarnation(service));
    done(post_table(ours));
    CHECK(strcmp((char *)info.name, "main") == 0 && info.number == 0 && info.capacity == CAPACITY);
    memset(&info, 0, sizeof info);
    done(post_number(ours));
    CHECK(strcmp((char *)info.name, "main") == 0 && info.step_bytes == ROW);
    int status = drive_wait(ours, rp_link_table(ours, "other", &info, DRIVE_TIMEOUT_NS), NULL);
    CHECK(status < 0, "there is no such table");
    done(post_number(ours));
    int ticket = rp_link_table_number(ours, 1, &info, DRIVE_TIMEOUT_NS);
    CHECK(ticket < 0 || drive_wait(ours, ticket, NULL) < 0, "nor one of that number");
    done(post_number(ours));
    done(post_writer(ours));
    CHECK(granted.window > 0 && granted.epoch == info.epoch && granted.streams == 1);
    done(post_ping(ours));
    done(post_stats(ours));
    uint64_t own[RP_COUNTER_COUNT];
    CHECK(sessions == 1 && rp_service_counters(service, own) == 0);
    CHECK(counters[RP_COUNT_datagrams_in] > 0);
    CHECK(counters[RP_COUNT_datagrams_in] == own[RP_COUNT_datagrams_in], "at its answer");
    CHECK(do_counters(ours) == 0 && counters[RP_COUNT_datagrams_out] > 0);
    done(post_facts(ours));
    CHECK(fact_count == 1 && strcmp((char *)facts[0].name, "not_taken") == 0);
    close_both();
    check_group("what is asked of server and session");
}

/* Given weights and a table's rows. Expect the bytes back, the right table's, at their version. */
static void check_blobs(void) {
    open_both("loopback://blobs");
    for (uint32_t i = 0; i < BLOB; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (uint64_t time = 1; time <= 2; time++) {
        bytes[5] = (uint8_t)time;
        done(post_publish(ours));
        CHECK(version == time && rp_link_weights_version(ours) == time);
        memset(landed, 0, sizeof landed);
        done(post_blob(ours));
        CHECK(version == time && size == BLOB && memcmp(landed, bytes, BLOB) == 0);
    }
    done(rp_link_blob(ours, RP_BLOB_SPEC, 0, 0, landed, BLOB, &size, &version, DRIVE_TIMEOUT_NS));
    CHECK(size == 4 && memcmp(landed, "rows", 4) == 0);
    close_both();
    check_group("weights and a spec: there and back");
}

/* Given items. Expect updates to count what became of each key; queued ones to add up, to be
 * refused while the server is away and no room is left, and to be settled when it is back. */
static void check_updates(void) {
    static uint64_t many[DRIVE_BATCH_MAX];
    static double values[DRIVE_BATCH_MAX];
    open_both("udp://127.0.0.1:0");
    done(post_table(ours));
    done(post_writer(ours));
    drive_push(ours, ROW, 0, 100);
    drive_settle(ours);
    CHECK(rp_link_ledger(ours, keys_of, 4) == 4);
    for (int i = 0; i < 4; i++) {
        keys[i] = keys_of[i].key;
    }
    keys[3] = UINT64_MAX / 2; /* nobody's yet */
    done(post_update(ours));
    CHECK(updated.applied == 3 && updated.applied + updated.stale + updated.unknown == 4);
    uint32_t room = rp_link_update_room(ours);
    CHECK(room > DRIVE_BATCH_MAX);
    CHECK(rp_link_update_queue(ours, 0, info.epoch, keys, ones, 0, DRIVE_TIMEOUT_NS, 0) == 0);
    CHECK(rp_link_update_queue(ours, 0, info.epoch, keys, ones, 3, DRIVE_TIMEOUT_NS,
                               RP_SLICE_NS) == 3);
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = do_update_settle(ours);
    }
    CHECK(status == 0 && do_update_state(ours) == 0);
    CHECK(queued.posted == 3 && queued.finished == 3 && queued.applied == 3 && queued.failed == 0);
    for (uint32_t i = 0; i < 3000; i++) { /* more than are under way at once: it waits for room */
        CHECK(rp_link_update_queue(ours, 0, info.epoch, keys, ones, 3, 60000000000u, RP_SLICE_NS)
              == 3);
    }
    for (status = RP_PENDING; status == RP_PENDING;) {
        status = do_update_settle(ours);
    }
    CHECK(status == 0 && do_update_state(ours) == 0 && queued.applied == 9003);
    for (uint32_t i = 0; i < DRIVE_BATCH_MAX; i++) {
        many[i] = keys[0] + i % 100;
        values[i] = 1.0 + i;
    }
    CHECK(rp_service_stop(service) == 0);
    uint64_t taken = 0;
    for (int got = 1; got > 0 && taken < 1000000;) {
        got = rp_link_update_queue(ours, 0, info.epoch, many, values, DRIVE_BATCH_MAX,
                                   60000000000u, 1000);
        CHECK(got >= 0, "%s", rp_status_name(got));
        taken += (uint64_t)got;
    }
    CHECK(taken < 1000000 && do_update_state(ours) == 0 && queued.posted == 9003 + taken);
    CHECK(queued.finished == 9003 && rp_link_update_settle(ours, 1000) == RP_PENDING);
    CHECK(rp_service_start(service) == 0);
    int more = 0;
    for (int i = 0; i < 100 && more == 0; i++) {
        more = rp_link_update_queue(ours, 0, info.epoch, many, values, 3, 60000000000u,
                                    RP_SLICE_NS);
    }
    CHECK(more == 3, "it waits until there is room");
    for (status = RP_PENDING; status == RP_PENDING;) {
        status = rp_link_update_settle(ours, RP_SLICE_NS);
    }
    CHECK(status == 0 && do_update_state(ours) == 0 && queued.finished == queued.posted);
    CHECK(queued.failed == 0 && queued.status == 0 && queued.unknown == 0);
    values[0] = -1.0;
    status = rp_link_update_queue(ours, 0, info.epoch, many, values, 1, DRIVE_TIMEOUT_NS, 0);
    CHECK(status == -RP_BAD_PRIORITY, "%s", rp_status_name(status));
    close_both();
    check_group("updates: what became of each key, a queue that is full");
}

/* Given an empty table. Expect a sample without time to end at once, one with time to wait for it,
 * and both to say what for; a table reset to be empty under a new epoch. */
static void check_held(void) {
    struct rp_blocked blocked = {0};
    struct rp_sample request = {.count = 4, .mode = RP_SAMPLE_STRATIFIED};
    open_both("udp://127.0.0.1:0");
    drive_landing(&batch, ROW);
    int ticket = rp_link_sample(ours, 0, &request, NULL, &batch.landing, 0);
    CHECK(drive_wait(ours, ticket, &blocked) == -RP_BLOCKED && blocked.by_size == 1);
    ticket = rp_link_sample(ours, 0, &request, NULL, &batch.landing, DRIVE_TIMEOUT_NS);
    while (rp_link_drive(ours, RP_SLICE_NS) > 0) {
    }
    CHECK(rp_link_poll(ours, ticket) == RP_PENDING);
    done(post_table(ours));
    done(post_writer(ours));
    drive_push(ours, ROW, 0, 10);
    drive_settle(ours);
    CHECK(drive_wait(ours, ticket, &blocked) == 0);
    drive_check_rows(&batch, ROW, 4);
    done(post_number(ours));
    CHECK(info.count == 10);
    uint64_t before = info.epoch;
    done(post_reset(ours));
    CHECK(epoch != before);
    done(post_number(ours));
    CHECK(info.count == 0 && info.epoch == epoch);
    close_both();
    check_group("a sample that waits, a table that is emptied");
}

/* ---- whole calls ---- */

enum { ITEMS = 8, SLAB_ROWS = 1024, WAITING_MAX = 256 };

static const struct rp_landing_column whole_columns[] = {
    {.target = (void *)SLAB_ROWS, .stride = ROW, .size = ROW}};
static const struct rp_shape whole_shape = {
    .columns = whole_columns, .column_count = 1, .item_bytes = ROW, .count = ITEMS,
    .keys = 0, .masses = 64, .behind = 128, .ahead = 192, .totals = 256, .drawables = 320,
    .ages = 384, .valid = 448, .probabilities = 512, .weights = 576};
static _Alignas(64) uint8_t whole_memory[4096];
static struct rp_place *const whole = (struct rp_place *)(void *)whole_memory;

/* Posts samples, which wait at an empty table, until no request more is taken; how many. */
static uint32_t fill_requests(int *tickets) {
    uint32_t count = 0;
    struct rp_sample request = {.count = 4};
    drive_landing(&batch, ROW);
    for (int ticket; (ticket = rp_link_sample(ours, 0, &request, NULL, &batch.landing,
                                              60000000000u)) > 0; count++) {
        CHECK(count < WAITING_MAX);
        tickets[count] = ticket;
    }
    CHECK(count > 0);
    return count;
}

static void push_hundred(void) {
    done(post_table(ours));
    done(post_writer(ours));
    drive_push(ours, ROW, 0, 100);
    drive_settle(ours);
}

static int draw_whole(const struct rp_draw *draw, uint64_t timeout_ns) {
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_draw(ours, draw, NULL, 0.5, whole, timeout_ns, RP_SLICE_NS);
    }
    CHECK(whole->ticket == 0);
    return status;
}

/* Rows of the hundred; `early`: the batch was drawn before all of them were there. */
static void check_whole_batch(const uint8_t *slab, int early) {
    uint8_t expected[ROW];
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint64_t number;
        memcpy(&number, slab + SLAB_ROWS + i * ROW, 8);
        drive_row(expected, ROW, number);
        CHECK(memcmp(slab + SLAB_ROWS + i * ROW, expected, ROW) == 0 && number < 100);
        CHECK(whole->landing.valid[i] && whole->probabilities[i] > 0.0);
        CHECK(whole->weights[i] > 0.0f && whole->weights[i] <= 1.0f);
        CHECK(whole->landing.ages[i] <= 99 - number, "the newest row's age is 0");
        CHECK(early || whole->landing.ages[i] == 99 - number);
    }
}

/* Given draws in one call: of another server's, too large, while no request is free, from an empty
 * table, and many in a row. Expect the first two refused; the next to go on where it was; the
 * fourth told what it waits for; and each of the last to land, weighed, its request free again.
 * Given a place that is shut, twice: its request let go, and nothing posted for it. */
static void check_draws(void) {
    int tickets[WAITING_MAX];
    open_both("udp://127.0.0.1:0");
    CHECK(rp_place_bytes(&whole_shape, SLAB_ROWS + ITEMS * ROW) <= sizeof whole_memory);
    const uint8_t *slab = whole_memory + rp_place_lay(whole, &whole_shape);
    struct rp_draw draw = {.shape = &whole_shape, .request = {.count = ITEMS},
                           .incarnation = rp_link_incarnation(ours) + 1};
    CHECK(draw_whole(&draw, DRIVE_TIMEOUT_NS) == -RP_STALE_EPOCH);
    CHECK(rp_link_draw_post(ours, &draw, whole, 1) == -RP_STALE_EPOCH && whole->ticket == 0);
    draw.incarnation--;
    draw.request.count = 1 << 16;
    CHECK(draw_whole(&draw, DRIVE_TIMEOUT_NS) == -RP_BATCH_TOO_LARGE);
    draw.request.count = ITEMS;
    CHECK(draw_whole(&draw, 0) == -RP_BLOCKED && whole->blocked.by_size == 1);
    uint32_t waiting = fill_requests(tickets);
    int status = rp_link_draw(ours, &draw, NULL, 0.5, whole, 60000000000u, 1000);
    CHECK(status == RP_PENDING && whole->ticket == 0, "no request is free");
    CHECK(rp_link_draw_post(ours, &draw, whole, 1) == RP_PENDING && whole->ticket == 0);
    for (uint32_t i = 0; i < waiting; i++) {
        rp_link_take(ours, tickets[i]);
    }
    status = rp_link_draw(ours, &draw, NULL, 0.5, whole, 60000000000u, 1000);
    CHECK(status == RP_PENDING && whole->ticket > 0, "it waits for rows");
    push_hundred();
    for (uint32_t i = 0; i < 2 * waiting; i++) {
        CHECK(draw_whole(&draw, DRIVE_TIMEOUT_NS) == 0);
        check_whole_batch(slab, i == 0);
        memset(whole_memory + (slab - whole_memory), 0, SLAB_ROWS + ITEMS * ROW);
    }
    CHECK(rp_link_draw_post(ours, &draw, whole, 60000000000u) == RP_PENDING && whole->ticket > 0);
    int posted = whole->ticket;
    CHECK(rp_link_draw_post(ours, &draw, whole, 60000000000u) == RP_PENDING);
    CHECK(whole->ticket == posted, "one under way is not posted again");
    rp_link_draw_shut(ours, whole);
    CHECK(rp_link_draw_post(ours, &draw, whole, 60000000000u) == RP_PENDING && whole->ticket < 0);
    CHECK(rp_link_draw(ours, &draw, NULL, 0.5, whole, 60000000000u, 1000) == -RP_CLOSED);
    CHECK(rp_link_poll(ours, posted) != RP_PENDING, "its request is free, too");
    rp_link_draw_shut(ours, whole);
    CHECK(fill_requests(tickets) == waiting, "none is under way");
    close_both();
    check_group("draws in one call");
}

static uint64_t withdrawn(void) {
    uint64_t own[RP_COUNTER_COUNT];
    CHECK(rp_service_counters(service, own) == 0);
    return own[RP_COUNT_waits_withdrawn];
}

/* Given draws in one call that an empty table holds back, without time to wait and with some, by a
 * link that no thread speaks for. Expect the latter withdrawn, though no call is made behind them:
 * drawn later they would be charged to nobody. The former take no place. */
static void check_withdrawn(void) {
    struct rp_link_options alone = {.unkept = 1};
    open_both("udp://127.0.0.1:0");
    rp_link_close(ours, DRIVE_TIMEOUT_NS);
    ours = drive_link(rp_service_address(service), &alone);
    rp_place_lay(whole, &whole_shape);
    struct rp_draw draw = {.shape = &whole_shape, .request = {.count = ITEMS},
                           .incarnation = rp_link_incarnation(ours)};
    for (uint64_t i = 0; i < 10; i++) {
        int status = draw_whole(&draw, i % 2 * 2000000);
        CHECK(status == -RP_BLOCKED || status == -RP_TIMEOUT, "%s", rp_status_name(status));
        uint64_t begin = rp_clock_ns();
        while (withdrawn() < (i + 1) / 2) {
            CHECK(rp_clock_ns() - begin < DRIVE_TIMEOUT_NS, "draw %" PRIu64 " waits on", i);
            sched_yield();
        }
        CHECK(withdrawn() == (i + 1) / 2);
    }
    close_both();
    check_group("a draw that is given up is withdrawn at once");
}

static int set_whole(const uint64_t *of, const double *to, uint32_t count, uint16_t table,
                     struct rp_setting *setting) {
    int status = RP_PENDING;
    *setting = (struct rp_setting){0};
    while (status == RP_PENDING) {
        status = rp_link_set(ours, rp_link_incarnation(ours), table, epoch, of, to, count, setting,
                             DRIVE_TIMEOUT_NS, RP_SLICE_NS);
    }
    CHECK(setting->ticket == 0);
    return status;
}

/* Given a server that stands still, and more new priorities than there is room for. Expect a second
 * call to wait for room, and the first to end once the server goes on. */
static void check_set_waits(const uint64_t *of, const double *to, uint32_t count) {
    CHECK(rp_service_stop(service) == 0);
    struct rp_setting first = {0}, second = {0};
    int status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, of, to, count, &first,
                             60000000000u, 1000);
    CHECK(status == RP_PENDING && first.ticket > 0 && rp_link_update_room(ours) == 0);
    status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, of, to, 7, &second,
                         60000000000u, 1000);
    CHECK(status == RP_PENDING && second.part == 0, "there is no room");
    CHECK(rp_service_start(service) == 0);
    while (status == RP_PENDING) {
        status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, of, to, count, &first,
                             60000000000u, RP_SLICE_NS);
    }
    CHECK(status == 0 && first.done == count);
}

/* Given priorities whose array is written to while their request is under way, as by another thread
 * or a signal's handler. Expect those that were sent to be set, and the call to end with that: one
 * that ended before would leave an answer to be written into memory of its caller's. */
static void check_set_sent(const uint64_t *of, double *to) {
    CHECK(rp_service_stop(service) == 0);
    struct rp_setting setting = {0};
    int status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, of, to, 7, &setting,
                             60000000000u, 1000);
    CHECK(status == RP_PENDING && setting.ticket > 0);
    double was = to[3];
    to[3] = NAN;
    status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, of, to, 7, &setting,
                         60000000000u, 1000);
    CHECK(status == RP_PENDING && setting.ticket > 0, "%s", rp_status_name(status));
    CHECK(rp_service_start(service) == 0);
    while (status == RP_PENDING) {
        status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, of, to, 7, &setting,
                             60000000000u, RP_SLICE_NS);
    }
    CHECK(status == 0 && setting.applied == 7 && setting.ticket == 0);
    to[3] = was;
}

/* Given new priorities in one call: more than there is room for at once, of an epoch or a table
 * that is gone, one that is none, of another server, while no request is free, and while the server
 * is away. Expect each key counted once, as what became of it; the rest refused, or pending. */
static void check_sets(void) {
    enum { MANY = 20000, ROWS = 100 };
    static uint64_t many[MANY];
    static double values[MANY];
    int tickets[WAITING_MAX];
    struct rp_setting setting;
    open_both("udp://127.0.0.1:0");
    push_hundred();
    CHECK(rp_link_ledger(ours, keys_of, 1) == 1);
    epoch = info.epoch;
    for (uint32_t i = 0; i < MANY; i++) {
        many[i] = keys_of[0].key + i;
        values[i] = 1.0 + i;
    }
    CHECK(rp_link_update_room(ours) < MANY, "it takes more than one request");
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(set_whole(many, values, MANY, 0, &setting) == 0 && setting.done == MANY);
        CHECK(setting.applied == ROWS && setting.stale == 0 && setting.unknown == MANY - ROWS,
              "%u, %u, %u", setting.applied, setting.stale, setting.unknown);
        CHECK(setting.largest == MANY, "of all parts, not of the last");
    }
    double small[] = {0.25, 0.5};
    CHECK(set_whole(many, small, 2, 0, &setting) == 0 && setting.largest == 0.5);
    values[3] = 1e9;
    CHECK(set_whole(many, values, 10, 0, &setting) == 0 && setting.largest == 1e9);
    values[3] = 4.0;
    for (uint32_t i = 0; i < 100; i++) { /* more calls than there are requests */
        CHECK(set_whole(many, values, 10, 3, &setting) == 0 && setting.stale == 10);
    }
    CHECK(set_whole(many, values, MANY, 3, &setting) == 0 && setting.stale == MANY);
    epoch++;
    CHECK(set_whole(many, values, MANY, 0, &setting) == 0 && setting.stale == MANY);
    CHECK(setting.applied == 0 && setting.unknown == 0 && setting.done == MANY);
    epoch--;
    CHECK(rp_priorities_usable(values, 10) == 10);
    check_set_waits(many, values, MANY);
    check_set_sent(many, values);
    values[7] = -1.0;
    CHECK(rp_priorities_usable(values, 10) == 7 && rp_priorities_usable(values, 7) == 7);
    CHECK(rp_priorities_usable(values + 7, 3) == 0 && rp_priorities_usable(values, 0) == 0);
    CHECK(rp_priorities_above(values, 7, 7.0) == 7 && rp_priorities_above(values, 7, 6.5) == 6);
    CHECK(rp_priorities_above(values, 7, 0.5) == 0 && rp_priorities_above(values, 0, 0.5) == 0);
    CHECK(set_whole(many, values, 10, 0, &setting) == -RP_BAD_PRIORITY && setting.done == 0);
    CHECK(rp_link_set(ours, rp_link_incarnation(ours) + 1, 0, epoch, many, values, 7, &setting,
                      DRIVE_TIMEOUT_NS, RP_SLICE_NS) == -RP_STALE_EPOCH);
    CHECK(setting.part == 0, "none of them was sent");
    CHECK(rp_service_stop(service) == 0);
    fill_requests(tickets);
    int status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, many, values, 7, &setting,
                             1000000, 1000);
    CHECK(status == RP_PENDING && setting.ticket == 0 && setting.done == 0, "no request is free");
    rp_link_take(ours, tickets[0]);
    for (setting = (struct rp_setting){0}, status = RP_PENDING; status == RP_PENDING;) {
        status = rp_link_set(ours, rp_link_incarnation(ours), 0, epoch, many, values, 7, &setting,
                             1000000, RP_SLICE_NS);
    }
    CHECK(status == -RP_TIMEOUT && setting.done == 7 && setting.stale == 0);
    CHECK(setting.applied == 0 && setting.unknown == 0 && setting.ticket == 0);
    close_both();
    check_group("new priorities in one call");
}

/* Given a core that no machine has. Expect the thread refused, and the link to go on without. */
static void check_no_core(void) {
    struct rp_link_options options = {.core = CPU_SETSIZE + 1};
    open_both("loopback://core");
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    CHECK(rp_link_start_pump(link) == -RP_BAD_ARGUMENT);
    int status = drive_wait(link, rp_link_ping(link, DRIVE_TIMEOUT_NS), NULL);
    CHECK(status == 0, "%s", rp_status_name(status));
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    close_both();
    check_group("a thread on a core that is not there");
}

/* Given a server that is away. Expect room for the requests that a link has where nothing is said:
 * 64. */
static void check_room(void) {
    open_both("udp://127.0.0.1:0");
    CHECK(rp_service_stop(service) == 0);
    int count = 0, status;
    while ((status = post_stats(ours)) > 0 && count < 1000) {
        count++;
    }
    CHECK(count == 64 && status == -RP_FULL, "%d, then %s", count, rp_status_name(status));
    CHECK(rp_service_start(service) == 0);
    close_both();
    check_group("room for 64 requests");
}

/* Given links that open and close, and one that finds nobody. Expect no memory more than before. */
static void check_links_given_back(void) {
    struct rp_link_options options = {0};
    size_t before = 0;
    open_both("loopback://given");
    for (int round = 0; round < 40; round++) {
        char error[RP_ERROR_BYTES];
        struct rp_link *link;
        rp_link_close(drive_link(rp_service_address(service), &options), DRIVE_TIMEOUT_NS);
        CHECK(rp_link_open(&link, "loopback://nobody", &options, error) < 0 && !link);
        before = round == 9 ? mallinfo2().uordblks + mallinfo2().hblkhd : before;
    }
    size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(now <= before, "%zu bytes were kept", now - before);
    close_both();
    check_group("a link that is closed is given back");
}

int main(void) {
    check_ended();
    check_asked();
    check_blobs();
    check_updates();
    check_held();
    check_draws();
    check_withdrawn();
    check_sets();
    check_no_core();
    check_room();
    check_links_given_back();
    return check_done("test_link_requests");
}
