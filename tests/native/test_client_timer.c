/* A client repeats what was lost, soon, and nothing else, however long the path; and what it
 * may have under way follows losses and credit. Situations read "Given ... Expect ...". */
#include "client/client_state.h"
#include "client_world.h"

enum { ROWS = 1, BATCH = 100 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info info;

static struct world *fresh(uint64_t seed, uint64_t delay_ns) {
    struct rp_client_options options = world_options();
    options.retry_us_min = 20000;
    options.retry_us_max = 1000000;
    options.messages_max = 128;
    options.unacknowledged_max = 1 << 20;
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    tables[1].capacity = 1 << 15;
    tables[1].window = 512;
    config = script_config(tables);
    config.batch_max = 256;
    config.lapse_ms = 400;
    config.weights_max = 200000;
    struct world *world = world_open(&config, seed);
    world_client(world, &options);
    world->delay_ns = delay_ns;
    world_connect(world);
    return world;
}

static void writer_open(struct world *world) {
    static struct rp_writer_granted granted;
    int ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
}

/* Pushes `count` steps, one datagram for each 64 at most; returns how many were taken. */
static uint32_t push(struct world *world, uint32_t count) {
    static uint64_t steps[2 * 64];
    uint32_t taken = 0;
    while (taken < count) {
        uint32_t part = count - taken < 64 ? count - taken : 64;
        int result = rp_client_push(world->client, ROWS, 0, (const uint8_t *)steps, part,
                                    RP_RUN_ITEM, NULL);
        CHECK(result >= 0, "push: %d", result);
        rp_client_flush(world->client, ROWS);
        taken += (uint32_t)result;
        if ((uint32_t)result < part) {
            break;
        }
    }
    return taken;
}

static void settle(struct world *world) {
    struct rp_push_state state;
    uint64_t end = world_later(world, 60000);
    while (rp_client_flush(world->client, ROWS), world_turn(world),
           rp_client_push_state(world->client, ROWS, &state), state.messages_open > 0) {
        CHECK(world->now_ns < end, "pushes never settle");
        world_advance(world, 1000 * WORLD_MS);
    }
}

static void sample(struct world *world) {
    static uint64_t keys[BATCH], values[2 * BATCH];
    struct rp_landing_column column = {(uint8_t *)values, 16, 0, 16};
    struct rp_landing landing = {
        .columns = &column, .column_count = 1, .item_bytes = 16, .keys = keys};
    struct rp_sample request = {.count = BATCH};
    int status = world_wait(world, rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                                    world_later(world, 20000)));
    CHECK(status == 0, "sample: %d", status);
    static double priorities[BATCH];
    status = world_wait(world, rp_client_update(world->client, ROWS, info.epoch, keys, priorities,
                                                BATCH, NULL, world_later(world, 20000)));
    CHECK(status == 0, "update: %d", status);
}

static uint64_t count(const struct world *world, enum rp_counter counter) {
    return rp_client_counters(world->client)[counter];
}

/* 1. Given paths of 1, 30 and 100 ms, and no loss. Expect less than one request of a hundred to be
 *    sent twice, behind the first greetings; also behind the change where a path of 1 ms becomes
 *    one of 100. */
static void situation_path(uint64_t trip_ms, uint64_t later_ms) {
    struct world *world = fresh(1, trip_ms * WORLD_MS / 2);
    writer_open(world);
    push(world, 2000);
    settle(world);
    uint64_t repeated = 0, sent = 0;
    for (uint32_t i = 0; i < 120; i++) {
        world->delay_ns = (i < 10 ? trip_ms : later_ms) * WORLD_MS / 2;
        if (i == 0 || i == 11) { /* behind the greetings, and behind the change */
            uint64_t before = repeated;
            repeated = count(world, RP_COUNT_retransmissions);
            sent = world->ports[1].sent;
            CHECK(repeated - before <= 16, "%" PRIu64, repeated - before);
        }
        push(world, 200);
        settle(world);
        sample(world);
        CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    }
    sent = world->ports[1].sent - sent;
    repeated = count(world, RP_COUNT_retransmissions) - repeated;
    CHECK(sent > 600 && 100 * repeated < sent, "%" PRIu64 " of %" PRIu64 " at %" PRIu64 " ms",
          repeated, sent, later_ms);
    world_close(world);
}

/* When the client sends its next datagram, from now on. */
static uint64_t next_sent(struct world *world) {
    uint64_t before = world->ports[1].sent;
    uint64_t end = world_later(world, 20000);
    while (world->ports[1].sent == before) {
        CHECK(world->now_ns < end, "nothing is sent");
        world_step(world, 1000 * WORLD_MS);
    }
    return world->now_ns;
}

/* 2. Given a path on which everything is lost. Expect repeats at distances that double; another
 *    request to begin with the time-out reached, not anew; and the short one back after an answer.
 */
static void situation_back_off(void) {
    struct world *world = fresh(2, 0);
    for (uint32_t i = 0; i < 20; i++) {
        CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    }
    world->lose = 1000;
    int first = rp_client_ping(world->client, world_later(world, 50000));
    uint64_t at = next_sent(world), distance = 0, losses = count(world, RP_COUNT_losses_seen);
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t again = next_sent(world);
        CHECK(again - at > distance * 3 / 2, "repeat %u after %" PRIu64, i, again - at);
        distance = again - at;
        at = again;
    }
    CHECK(count(world, RP_COUNT_losses_seen) == losses + 4, "each repeat was lost, too");
    rp_client_take(world->client, first);
    int second = rp_client_ping(world->client, world_later(world, 50000));
    at = next_sent(world);
    CHECK(next_sent(world) - at > distance, "the back-off ended with its request");
    world->lose = 0;
    CHECK(world_wait(world, second) == 0);
    world->lose = 1000;
    second = rp_client_ping(world->client, world_later(world, 50000));
    at = next_sent(world);
    CHECK(next_sent(world) - at < distance / 2, "an answer was heard");
    world_close(world);
    check_group("2 the back-off is kept until an answer");
}

/* Fills the client's queue and lets it send what it may. Returns how many datagrams left. */
static uint64_t flood(struct world *world) {
    uint64_t before = world->ports[1].sent;
    push(world, 64 * 60);
    for (uint32_t i = 0; i < 4; i++) {
        rp_client_turn(world->client, (struct rp_port *)&world->ports[1], world->now_ns);
    }
    return world->ports[1].sent - before;
}

/* 3. Given datagrams lost together, twice. Expect the window to be halved once each time, never to
 *    nothing, and to grow with answers. */
static void situation_window(void) {
    struct world *world = fresh(3, WORLD_MS);
    writer_open(world);
    push(world, 64 * 100);
    settle(world);
    uint32_t window = world->client->credit.window;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t losses = count(world, RP_COUNT_losses_seen);
        world->lose = 1000;
        uint64_t left = flood(world);
        CHECK(left > 4, "%" PRIu64 " left, credit %u", left, world->client->credit.credit);
        world->lose = 0;
        while (count(world, RP_COUNT_losses_seen) == losses) {
            world_step(world, WORLD_MS);
        }
        uint32_t halved = world->client->credit.window;
        CHECK(halved >= window / 2 && halved < window * 5 / 8, "%u of %u", halved, window);
        CHECK(count(world, RP_COUNT_losses_seen) == losses + 1, "one event");
        settle(world);
        CHECK(world->client->credit.window > halved, "it grows again");
        window = world->client->credit.window;
    }
    world_close(world);
    check_group("3 the window is halved by a loss");
}

/* 4. Given credit for many, and a server that then hears nothing. Expect the client to use it
 *    while what it sends still arrives in time, and not later. */
static void situation_lapse(uint64_t before_ms, int lives) {
    struct world *world = fresh(4, 50 * WORLD_MS);
    writer_open(world);
    push(world, 64 * 50);
    settle(world);
    for (uint32_t i = 0; i < 30; i++) {
        CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    }
    push(world, 64 * 50);
    settle(world);
    uint64_t trip = world->client->credit.srtt_ns;
    CHECK(trip > 90 * WORLD_MS && trip < 130 * WORLD_MS, "%" PRIu64, trip);
    /* The last answer came now: it was sent 50 ms ago, and its credit ends lapse_ms after that. */
    uint64_t ends = world->now_ns - 50 * WORLD_MS + config.lapse_ms * WORLD_MS;
    CHECK(world->client->credit.credit > 8);
    world->deaf = 1;
    world->now_ns = ends - before_ms * WORLD_MS;
    uint64_t left = flood(world);
    CHECK(lives ? left > 4 : left == 1, "%" PRIu64 " datagrams left", left);
    world_close(world);
}

/* Given an answer that took 300 ms on a path of 2 ms, such as one that lay in the socket of a
 * client that stood still. Expect its credit to end as if all that time were the way back. */
static void situation_late_answer(uint64_t after_ms, int lives) {
    struct world *world = fresh(7, WORLD_MS);
    writer_open(world);
    push(world, 64 * 100);
    settle(world);
    world->delay_ns = 150 * WORLD_MS;
    uint64_t asked = world->now_ns;
    CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    CHECK(world->now_ns - asked >= 300 * WORLD_MS && world->client->credit.credit > 8);
    world->deaf = 1;
    world->now_ns = asked + after_ms * WORLD_MS;
    uint64_t left = flood(world);
    CHECK(lives ? left > 1 : left == 1, "%" PRIu64 " datagrams left", left);
    world_close(world);
}

/* 5. Given a session in silence. Expect a ping after a third of the idle time, and one each third
 *    from then on: the server gives a session up after a whole one. */
static void situation_keep_alive(void) {
    struct world *world = fresh(5, 0);
    uint64_t third = (uint64_t)config.idle_ms * WORLD_MS / 3;
    CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    uint64_t last = world->now_ns;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t at = next_sent(world);
        CHECK(at - last > third - 100 * WORLD_MS && at - last < third + 100 * WORLD_MS,
              "after %" PRIu64 " ms", (at - last) / WORLD_MS);
        last = at;
    }
    world_close(world);
    check_group("5 kept alive in time");
}

/* 6. Given a path of 100 ms, many datagrams on it at any time, each sent at another moment. Expect
 *    every round trip to be measured from the sending of its own datagram: none is shorter. */
static void situation_measured(void) {
    struct world *world = fresh(6, 50 * WORLD_MS);
    writer_open(world);
    push(world, 64 * 100);
    settle(world);
    for (uint32_t i = 0; i < 1000; i++) {
        push(world, 1);
        world_run(world, WORLD_MS);
        uint64_t trip = world->now_ns - world->client->credit.asked_ns;
        CHECK(trip >= 100 * WORLD_MS, "%" PRIu64, trip);
    }
    CHECK(world->client->credit.srtt_ns < 102 * WORLD_MS, "%" PRIu64,
          world->client->credit.srtt_ns);
    CHECK(world->client->credit.in_flight > 32, "%u", world->client->credit.in_flight);
    world_close(world);
    check_group("6 each round trip is measured from its own sending");
}

/* Runs until the client has sent one more; the very time. */
static uint64_t sent_at(struct world *world) {
    uint64_t before = world->ports[1].sent;
    while (world_turn(world), world->ports[1].sent == before) {
        world_advance(world, 1000 * WORLD_MS);
    }
    return world->now_ns;
}

/* 7. Given a client whose first datagrams are all lost. Expect each repeat after the time that
 *    the options say, doubled each time, up to the bound they say, and an eighth of it more at
 *    most. */
static void situation_first(void) {
    struct rp_client_options options = world_options();
    options.retry_us_min = 20000;
    options.retry_us_max = 100000;
    struct world *world = world_open(&config, 7);
    world_client(world, &options);
    world->lose = 1000;
    uint64_t at = sent_at(world), wait = 20 * WORLD_MS;
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t again = sent_at(world);
        CHECK(again - at >= wait && again - at <= wait + wait / 8 + WORLD_MS,
              "repeat %u after %" PRIu64, i, again - at);
        wait = 2 * wait < 100 * WORLD_MS ? 2 * wait : 100 * WORLD_MS;
        at = again;
    }
    world_close(world);
    check_group("7 the time-out before a round trip was measured, and its bound");
}

/* 7b. Given the options as they are unless said, and everything lost. Expect a repeat every second
 *     or sooner, however long it lasts: who comes back is heard within a second. */
static void situation_a_second(void) {
    struct rp_client_options options = world_options();
    options.retry_us_min = options.retry_us_max = 0;
    struct world *world = world_open(&config, 7);
    world_client(world, &options);
    world->lose = 1000;
    uint64_t at = sent_at(world), longest = 0;
    for (uint32_t i = 0; i < 9; i++) {
        uint64_t again = sent_at(world);
        longest = again - at > longest ? again - at : longest;
        at = again;
    }
    CHECK(longest > 700 * WORLD_MS && longest < 950 * WORLD_MS, "%" PRIu64 " ns", longest);
    world_close(world);
    check_group("7b the bound of a time-out that nobody chose");
}

/* 8. Given several requests lost together. Expect the next time-out to be doubled once, not
 *    once for each of them. */
static void situation_together(void) {
    struct world *world = fresh(8, 0);
    int tickets[5];
    uint64_t at[3];
    for (uint32_t i = 0; i < 20; i++) {
        CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    }
    world->lose = 1000;
    for (uint32_t i = 0; i < 5; i++) {
        tickets[i] = rp_client_ping(world->client, world_later(world, 50000));
    }
    uint64_t sent = world->ports[1].sent;
    for (uint32_t i = 0; i < 3; i++) { /* each of them once, twice, three times */
        sent += 5;
        while (world->ports[1].sent < sent) {
            world_step(world, WORLD_MS / 10);
        }
        at[i] = world->now_ns;
    }
    CHECK(at[2] - at[1] < 3 * (at[1] - at[0]), "%" PRIu64 " after %" PRIu64, at[2] - at[1],
          at[1] - at[0]);
    for (uint32_t i = 0; i < 5; i++) {
        rp_client_take(world->client, tickets[i]);
    }
    world_close(world);
    check_group("8 requests lost together are one time-out");
}

/* 9. Given pulls without a loss. Expect as many more on their way as came, up to what a turn of
 *    the server has room for. Given then all datagrams of a pull lost. Expect half as many from
 *    then on, but four at least, and one more with each train that comes whole. */
static void situation_pull_lost(void) {
    static uint8_t bytes[100000], back[100000];
    struct world *world = fresh(9, WORLD_MS);
    struct rp_client_options options = world_options();
    uint64_t version, size;
    options.receive_budget = 1000;
    world_client(world, &options);
    world->ports[1].received = 0;
    world_connect(world);
    int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                   world_later(world, 20000));
    const struct client_credit *credit = &world->client->credit;
    uint32_t begun = credit->pull_window;
    CHECK(world_wait(world, ticket) == 0);
    CHECK(credit->pull_window == begun, "what is published says nothing of the way back");
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                            &version, world_later(world, 20000));
    CHECK(world_wait(world, ticket) == 0);
    uint32_t window = credit->pull_window, came = (uint32_t)(sizeof back / 1400);
    CHECK(window >= begun + came && window <= begun + came + 8, "%u, then %u", begun, window);
    for (uint32_t i = 0; i < 8; i++) {
        ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                                &version, world_later(world, 20000));
        CHECK(world_wait(world, ticket) == 0);
    }
    window = credit->pull_window;
    CHECK(window == RP_PULL_TRAINS * world->client->session.opened.train_max, "%u", window);
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                            &version, world_later(world, 20000));
    world_client_turn(world);
    world->lose = 1000;
    while (count(world, RP_COUNT_losses_seen) == 0) {
        world_step(world, WORLD_MS);
    }
    CHECK(world->client->credit.pull_window == window / 2, "%u of %u",
          world->client->credit.pull_window, window);
    while (count(world, RP_COUNT_losses_seen) < 8) {
        world_step(world, WORLD_MS);
    }
    CHECK(world->client->credit.pull_window == 4, "%u", world->client->credit.pull_window);
    world->lose = 0;
    CHECK(world_wait(world, ticket) == 0 && size == sizeof back);
    uint32_t low = credit->pull_window;
    CHECK(low > 4 && low < 4 + came, "%u", low);
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                            &version, world_later(world, 20000));
    CHECK(world_wait(world, ticket) == 0 && world->client->credit.pull_window <= window);
    CHECK(world->client->credit.pull_window > low, "it grows again");
    world_close(world);
    check_group("9 a pull that is lost halves what may be asked for");
}

/* 10. Given room for many datagrams under way, and a publication of more. Expect as many pieces at
 *     once as may be, and no more. */
static void situation_pieces(void) {
    static uint8_t bytes[100000];
    struct world *world = fresh(10, 10 * WORLD_MS);
    uint64_t version, open, most = 0;
    writer_open(world);
    for (uint32_t i = 0; i < 40; i++) { /* the window grows */
        push(world, 64 * 20);
        settle(world);
    }
    CHECK(world->client->credit.window > 40 * 256, "%u", world->client->credit.window);
    uint64_t closed = world->ports[1].sent - world->ports[1].received;
    int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                   world_later(world, 20000));
    while (world_turn(world), rp_client_poll(world->client, ticket) == RP_PENDING) {
        open = world->ports[1].sent - world->ports[1].received - closed;
        most = open > most ? open : most;
        world_advance(world, WORLD_MS);
    }
    CHECK(rp_client_poll(world->client, ticket) == 0);
    CHECK(most == CLIENT_PIECES_MAX, "%" PRIu64 " pieces", most);
    world_close(world);
    check_group("10 a publication's pieces under way are bounded");
}

/* 11. Given a client that rested, and a call that only sends. Expect the time-out of what it sends
 *     to begin there. */
static void situation_sends(void) {
    struct world *world = fresh(11, 0);
    int ticket = rp_client_ping(world->client, world_later(world, 9000));
    world->now_ns += 1000 * WORLD_MS;
    CHECK(rp_client_send(world->client, (struct rp_port *)&world->ports[1], world->now_ns) > 0);
    CHECK(rp_client_deadline(world->client) > world->now_ns, "it is late already");
    CHECK(world_wait(world, ticket) == 0);
    CHECK(count(world, RP_COUNT_losses_seen) == 0 && world->client->credit.srtt_ns < WORLD_MS);
    world_close(world);
    check_group("11 what is sent between turns has the time of its sending");
}

/* Given a window of five, and credit for more. Expect five datagrams to leave, and no more. */
static void situation_own_window(void) {
    struct world *world = fresh(14, WORLD_MS);
    writer_open(world);
    push(world, 64 * 100);
    settle(world);
    CHECK(world->client->credit.credit > 8 && world->client->credit.in_flight == 0);
    world->client->credit.window = 5 * 256 + 255;
    uint64_t left = flood(world);
    CHECK(left == 5, "%" PRIu64 " datagrams left", left);
    world_close(world);
    check_group("14 the window holds where the credit is larger");
}

/* Given round trips that are all the same. Expect the first to be taken to vary by half of itself
 * (RFC 6298, 2.2), and each one more to take a sixteenth of that away. */
static void situation_spread(void) {
    struct world *world = fresh(15, 50 * WORLD_MS);
    struct client_credit *credit = &world->client->credit;
    credit->srtt_ns = 0;
    CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    CHECK(credit->srtt_ns >= 100 * WORLD_MS && credit->srtt_ns < 102 * WORLD_MS);
    CHECK(credit->rttvar_ns == credit->srtt_ns / 2, "%" PRIu64, credit->rttvar_ns);
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t before = credit->rttvar_ns;
        CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
        uint64_t less = before - credit->rttvar_ns;
        CHECK(less > before / 20 && less <= before / 15, "%" PRIu64 " of %" PRIu64, less, before);
    }
    world_close(world);
    check_group("15 how much round trips vary");
}

int main(void) {
    situation_own_window();
    situation_spread();
    situation_path(1, 1);
    situation_path(30, 30);
    situation_path(100, 100);
    situation_path(1, 100);
    situation_path(100, 1);
    check_group("1 nothing is repeated in vain");
    situation_back_off();
    situation_window();
    situation_lapse(65, 1);
    situation_lapse(45, 0);
    situation_lapse(5, 0);
    situation_late_answer(config.lapse_ms - 20, 1);
    situation_late_answer(config.lapse_ms + 20, 0);
    check_group("4 credit lapses here first");
    situation_keep_alive();
    situation_measured();
    situation_first();
    situation_a_second();
    situation_together();
    situation_pull_lost();
    situation_pieces();
    situation_sends();
    return check_done("test_client_timer");
}
