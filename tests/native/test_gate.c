/* The gate, and what rests on it: fair turns, closing while others are inside, waking.
 *
 * Orders are made certain by looking at the gate's own numbers, never by time. The storms close
 * links and services at random moments under threads that sample, push and ask for counters; they
 * run under the thread sanitizer too (make native-tsan), with GATE_SEED and GATE_ROUNDS.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "drive_service.h"
#include "drive/link_drive.h"
#include "base/random.h"

enum { QUEUE = 5, LONG_NS_BITS = 34 };

static uint64_t seed_given = 1;
static uint32_t rounds_given = 25;

/* ---- the gate itself ---- */

static void nothing(void *owner) {
    (void)owner;
}

struct visitor {
    struct rp_gate *gate;
    int number;
    int *order;  /* written inside: who came in, one after the other */
    int *count;
    int status;
};

static void *visit(void *argument) {
    struct visitor *visitor = argument;
    visitor->status = rp_gate_enter(visitor->gate);
    if (!visitor->status) {
        visitor->order[(*visitor->count)++] = visitor->number;
        rp_gate_leave(visitor->gate);
    }
    return NULL;
}

/* Returns once `count` threads have a ticket beyond the one that is served, `asleep` of them at
 * least asleep. */
static void await_queue(struct rp_gate *gate, uint32_t count, uint32_t asleep) {
    while (atomic_load(&gate->next) - atomic_load(&gate->serving) != count + 1
           || atomic_load(&gate->sleepers) < asleep) {
        sched_yield();
    }
}

/* Given threads that come to a taken gate one after the other. Expect them to get in in that order,
 * before the one that was inside and yields. */
static void check_order(void) {
    for (int round = 0; round < 20; round++) {
        struct rp_gate gate;
        struct visitor visitors[QUEUE];
        pthread_t threads[QUEUE];
        int order[QUEUE] = {0}, count = 0;
        rp_gate_open(&gate, nothing, NULL);
        CHECK(rp_gate_enter(&gate) == 0);
        rp_gate_yield(&gate); /* nobody waits: it stays inside */
        for (int i = 0; i < QUEUE; i++) {
            visitors[i] = (struct visitor){&gate, i, order, &count, 1};
            CHECK(pthread_create(&threads[i], NULL, visit, &visitors[i]) == 0);
            await_queue(&gate, (uint32_t)i + 1, round % 2 ? (uint32_t)i + 1 : 0);
        }
        rp_gate_yield(&gate);
        CHECK(count == QUEUE, "%d of those who waited went first", count);
        rp_gate_leave(&gate);
        for (int i = 0; i < QUEUE; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0 && visitors[i].status == 0);
            CHECK(order[i] == i, "place %d went to thread %d", i, order[i]);
        }
        CHECK(atomic_load(&gate.sleepers) == 0, "who has woken is not counted any more");
        rp_gate_free(&gate);
    }
    check_group("who came first goes first, and a driver that yields goes last");
}

/* Given threads at the gate while it closes, and one call that stepped out. Expect the first to be
 * refused, the second to be waited for, and everything later to be refused. */
struct stepper {
    struct rp_gate gate;
    _Atomic int out, go;
    int done; /* written inside, before the call ends */
};

static void *step(void *argument) {
    struct stepper *stepper = argument;
    CHECK(rp_gate_enter(&stepper->gate) == 0);
    rp_gate_step_out(&stepper->gate);
    stepper->out = 1;
    while (!stepper->go) {
        sched_yield();
    }
    rp_gate_step_in(&stepper->gate);
    CHECK(rp_gate_closed(&stepper->gate));
    stepper->done = 1;
    rp_gate_leave(&stepper->gate);
    return NULL;
}

static void *let_step(void *argument) {
    struct stepper *stepper = argument;
    while (atomic_load(&stepper->gate.next) != atomic_load(&stepper->gate.serving)) {
        sched_yield(); /* until the closer waits for those outside */
    }
    stepper->go = 1;
    return NULL;
}

static void check_closing(void) {
    struct stepper stepper = {0};
    struct visitor late;
    pthread_t threads[3];
    int order[1], count = 0;
    rp_gate_open(&stepper.gate, nothing, NULL);
    CHECK(pthread_create(&threads[0], NULL, step, &stepper) == 0);
    while (!stepper.out) {
        sched_yield();
    }
    CHECK(rp_gate_close(&stepper.gate) == 0);
    late = (struct visitor){&stepper.gate, 0, order, &count, 1};
    CHECK(pthread_create(&threads[1], NULL, visit, &late) == 0);
    await_queue(&stepper.gate, 1, 0);
    CHECK(pthread_create(&threads[2], NULL, let_step, &stepper) == 0);
    rp_gate_drain(&stepper.gate);
    CHECK(stepper.done, "the call that had stepped out is over");
    rp_gate_leave(&stepper.gate);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(late.status == -RP_CLOSED && count == 0);
    CHECK(rp_gate_enter(&stepper.gate) == -RP_CLOSED && rp_gate_close(&stepper.gate) == -RP_CLOSED);
    rp_gate_free(&stepper.gate);
    check_group("closing: who waits is refused, who stepped out is waited for");
}

/* ---- waking ---- */

static struct rp_transport counted; /* a port's transport, its wakes counted */
static _Atomic int wakes;
static void (*wake_before)(struct rp_port *port);

static void count_wake(struct rp_port *port) {
    wakes++;
    wake_before(port);
}

static void count_wakes(struct rp_link *link) {
    counted = *rp_port_transport(link->port);
    wake_before = counted.wake;
    counted.wake = count_wake;
    rp_port_base(link->port)->transport = &counted;
    wakes = 0;
}

static int never(struct rp_link *link, void *argument) {
    (void)link;
    (void)argument;
    return RP_PENDING;
}

static void await_sleep(struct rp_link *link) {
    int asleep = 0;
    while (!asleep) { /* for as long as nothing is due: the keep-alive is seconds away */
        CHECK(rp_gate_enter(&link->gate) == 0);
        asleep = link->asleep_until > rp_link_now(link) + RP_SLICE_NS;
        rp_gate_leave(&link->gate);
    }
}

/* What is posted, and not waited for to its end. */
static void post(struct rp_link *link, int kind) {
    static const uint64_t key = 1;
    static const double one = 1.0;
    static _Alignas(64) uint8_t memory[4096];
    struct rp_place *place = (void *)memory;
    static const struct rp_landing_column column = {.stride = ROW, .size = ROW};
    static const struct rp_shape shape = {
        .columns = &column, .column_count = 1, .item_bytes = ROW, .count = 1, .keys = 128,
        .masses = 256, .behind = 384, .ahead = 512, .totals = 640, .drawables = 768, .ages = 896,
        .valid = 1024, .probabilities = 1152, .weights = 1280};
    struct rp_draw draw = {.shape = &shape, .request = {.count = 1},
                           .incarnation = rp_link_incarnation(link)};
    struct rp_setting setting = {0};
    if (kind == 0) {
        CHECK(rp_link_ping(link, DRIVE_TIMEOUT_NS) > 0);
    } else if (kind == 1) {
        CHECK(rp_link_update_queue(link, 0, 1, &key, &one, 1, DRIVE_TIMEOUT_NS, 0) == 1);
    } else if (kind == 2) {
        CHECK(rp_link_set(link, rp_link_incarnation(link), 0, 1, &key, &one, 1, &setting,
                          DRIVE_TIMEOUT_NS, 1) == RP_PENDING);
        CHECK(setting.ticket > 0, "it goes on with the next call");
    } else {
        CHECK(rp_place_bytes(&shape, 1408) <= sizeof memory);
        rp_place_lay(place, &shape);
        CHECK(rp_link_draw(link, &draw, NULL, 0.5, place, DRIVE_TIMEOUT_NS, 1) == RP_PENDING);
    }
}

/* Given a driver that ends, or a post that leaves. Expect those who follow to be told. Given a post
 * long after the last look at the port. Expect what came to be heard. Given a pump asleep for long
 * and a post whose answer has to be looked for sooner. Expect the post to wake it. */
static void check_wakes(int kind) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.retry_us_min = 2000};
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve);
    CHECK(rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    count_wakes(link);
    uint32_t before = atomic_load(&link->progress);
    CHECK(rp_link_until(link, never, NULL, 1) == RP_PENDING);
    CHECK(atomic_load(&link->progress) != before, "a driver that ends tells those who follow");
    for (int i = 0; i < 5; i++) {
        link->looked_ns = rp_link_now(link); /* a post too soon for another look only sends */
        before = atomic_load(&link->progress);
        int ticket = rp_link_ping(link, DRIVE_TIMEOUT_NS);
        CHECK(atomic_load(&link->progress) != before, "so does who has sent: there is room again");
        CHECK(drive_wait(link, ticket, NULL) == 0);
    }
    const uint64_t *in = &rp_client_counters(link->client)[RP_COUNT_datagrams_in], heard = *in;
    CHECK(rp_link_ping(link, DRIVE_TIMEOUT_NS) > 0);
    CHECK(rp_port_transport(link->port)->wait(link->port, DRIVE_TIMEOUT_NS));
    link->looked_ns = 0;
    link->unsent = 1;
    CHECK(rp_link_ping(link, DRIVE_TIMEOUT_NS) > 0 && *in > heard);
    CHECK(!link->unsent, "all of it has left");
    CHECK(drive_wait(link, rp_link_ping(link, DRIVE_TIMEOUT_NS), NULL) == 0);
    CHECK(rp_service_stop(service) == 0); /* from here on nobody answers */
    CHECK(rp_link_start_pump(link) == 0);
    await_sleep(link);
    wakes = 0;
    post(link, kind);
    CHECK(wakes == 1, "the post woke the pump %d times", wakes);
    CHECK(rp_link_stop_pump(link) == 0 && !link->pumped && !link->driven);
    wakes = 0;
    before = atomic_load(&link->progress);
    rp_link_end(link, 0);
    CHECK(wakes == 1, "who may sleep in the port is woken when the link ends");
    CHECK(atomic_load(&link->progress) != before, "so are those who follow");
    rp_link_close(link, 0);
    rp_service_close(service);
}

/* Given a driver asleep in the port, no longer than it may, and a post that sends. Expect it woken
 * where it is a caller, whose answer the post's turn may have brought; and not where it is the
 * pump, which waits for no answer of its own. */
static void check_wakes_caller(int pumped) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.unkept = 1};
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve);
    CHECK(rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    count_wakes(link);
    link->driven = 1;
    link->pumped = pumped;
    link->asleep_until = 1; /* nothing is due before it */
    CHECK(rp_link_ping(link, DRIVE_TIMEOUT_NS) > 0);
    CHECK(wakes == !pumped, "the post woke the driver %d times", wakes);
    link->driven = link->pumped = 0;
    link->asleep_until = 0;
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
}

/* ---- taking over ---- */

struct taker {
    struct rp_link *link;
    _Atomic int ended;
    int status;
};

static void *take_over(void *argument) {
    struct taker *taker = argument;
    taker->status = rp_link_start_pump(taker->link);
    taker->ended = 1;
    return NULL;
}

/* Given a caller that drives while another one starts the pump: he ends, or the link does. Expect
 * the pump to drive from then on, or the call to say closed. */
static void check_taken_over(int ends) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve);
    CHECK(rp_service_start(service) == 0);
    struct taker taker = {.link = drive_link(rp_service_address(service), &options)};
    struct rp_link *link = taker.link;
    pthread_t thread;
    CHECK(rp_gate_enter(&link->gate) == 0 && !link->driven);
    link->driven = 1;
    rp_gate_leave(&link->gate);
    CHECK(pthread_create(&thread, NULL, take_over, &taker) == 0);
    while (!link->followers && !taker.ended) {
        sched_yield();
    }
    CHECK(!taker.ended, "it waits for its turn to drive");
    if (ends) {
        rp_link_end(link, 0);
    } else {
        CHECK(rp_gate_enter(&link->gate) == 0);
        link->driven = 0;
        rp_gate_leave(&link->gate);
        CHECK(rp_link_until(link, never, NULL, 1) == RP_PENDING); /* tells those who follow */
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(taker.status == (ends ? -RP_CLOSED : 0), "%s", rp_status_name(taker.status));
    CHECK(ends || (link->driven && link->pumped));
    rp_link_close(link, 0);
    rp_service_close(service);
}

/* As another thread that posts while the driver is between two turns. */
static int posts_and_ends(struct rp_link *link, void *argument) {
    int *ticket = argument;
    if (!link->driven) {
        return RP_PENDING; /* the first look: nobody drives yet */
    }
    *ticket = rp_client_ping(link->client, rp_link_deadline(link, DRIVE_TIMEOUT_NS));
    uint64_t before = rp_client_counters(link->client)[RP_COUNT_datagrams_out];
    rp_link_posted(link);
    CHECK(rp_client_counters(link->client)[RP_COUNT_datagrams_out] == before, "left to the driver");
    return 0;
}

/* Given a post that is left to a driver who is awake and finds his own call done. Expect it sent
 * before nobody drives. */
static void check_left_to_driver(const char *url) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service(url, &serve);
    CHECK(strncmp(url, "loopback", 8) == 0 || rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    int ticket = 0;
    uint64_t before = rp_client_counters(link->client)[RP_COUNT_datagrams_out];
    CHECK(rp_link_until(link, posts_and_ends, &ticket, RP_SLICE_NS) == 0 && !link->driven);
    uint64_t after = rp_client_counters(link->client)[RP_COUNT_datagrams_out];
    CHECK(after == before + 1, "%" PRIu64 " datagrams left", after - before);
    rp_link_take(link, ticket);
    rp_link_close(link, 0);
    rp_service_close(service);
    check_group("what is posted leaves, though its driver does");
}

/* ---- closing under way ---- */

struct storm {
    struct rp_link *links[2];
    struct rp_service *service;
    _Atomic int begun;
};

struct gust { /* one thread of it */
    struct storm *storm;
    uint64_t seed;
    int work;
};

/* A call that ended before the close, by it, or by a time-out on its way. */
static int is_over(int status) {
    CHECK(status >= 0 || status == -RP_CLOSED || status == -RP_BLOCKED || status == -RP_TIMEOUT
              || status == -RP_FULL,
          "%s", rp_status_name(status));
    return status == -RP_CLOSED;
}

static int blow(struct gust *gust, struct rp_random *random, struct drive_batch *batch) {
    struct rp_link *link = gust->storm->links[gust->work % 2];
    uint64_t counters[RP_COUNTER_COUNT];
    struct rp_measures measures;
    uint32_t sessions;
    uint8_t row[ROW];
    int ticket;
    switch (gust->work) {
    case 0:
    case 1: /* learners: 400 items are more than there are, and wait */
        ticket = drive_draw(link, batch, ROW, rp_random_below(random, 2) ? 8 : 400,
                            1ull << LONG_NS_BITS);
        break;
    case 2:
        ticket = rp_link_stats(link, counters, &sessions, DRIVE_TIMEOUT_NS);
        break;
    case 3:
        drive_row(row, ROW, 1);
        return is_over(rp_link_push(link, 0, 0, row, 1, RP_RUN_ITEM, NULL, RP_SLICE_NS))
            || is_over(rp_link_settle(link, 0, RP_SLICE_NS));
    case 4:
        return is_over(rp_link_start_pump(link)) || is_over(rp_link_stop_pump(link));
    case 5:
        (void)rp_service_lost(gust->storm->service);
        return is_over(rp_service_counters(gust->storm->service, counters))
            || is_over(rp_service_measure(gust->storm->service, &measures));
    default:
        return is_over(rp_service_stop(gust->storm->service))
            || is_over(rp_service_start(gust->storm->service));
    }
    if (ticket < 0) {
        return is_over(ticket);
    }
    int status = RP_PENDING;
    for (int slices = 0; status == RP_PENDING && slices < 1000000; slices++) {
        status = rp_link_wait(link, ticket, 1000000, NULL);
    }
    return is_over(status);
}

static void *rage(void *argument) {
    struct gust *gust = argument;
    struct drive_batch *batch = malloc(sizeof *batch); /* gone with the thread: nobody writes it */
    struct rp_random random;
    CHECK(batch != NULL);
    rp_random_seed(&random, gust->seed);
    gust->storm->begun++;
    for (int over = 0; !over;) {
        over = blow(gust, &random, batch);
        for (uint64_t i = rp_random_below(&random, 3); i; i--) {
            sched_yield();
        }
    }
    free(batch);
    return NULL;
}

enum { GUSTS = 7 };

static void storm(const char *url, uint64_t seed, int service_first) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.retry_us_min = 2000};
    struct storm storm = {.service = open_service(url, &serve)};
    struct gust gusts[GUSTS];
    pthread_t threads[GUSTS];
    struct rp_random random;
    rp_random_seed(&random, seed);
    CHECK(rp_service_start(storm.service) == 0);
    for (int i = 0; i < 2; i++) {
        storm.links[i] = drive_link(rp_service_address(storm.service), &options);
        struct rp_table_info info = drive_info(storm.links[i]);
        drive_writer(storm.links[i], &info);
    }
    drive_push(storm.links[0], ROW, 0, 100);
    drive_settle(storm.links[0]);
    for (int i = 0; i < GUSTS; i++) {
        gusts[i] = (struct gust){&storm, seed * GUSTS + (uint64_t)i, i};
        CHECK(pthread_create(&threads[i], NULL, rage, &gusts[i]) == 0);
    }
    while (storm.begun < GUSTS) {
        sched_yield();
    }
    for (uint64_t i = rp_random_below(&random, 2000); i; i--) {
        sched_yield();
    }
    if (service_first) {
        rp_service_end(storm.service);
    }
    rp_link_end(storm.links[0], 1000000);
    rp_link_end(storm.links[1], rp_random_below(&random, 2) ? 1000000 : 0);
    rp_service_end(storm.service);
    for (int i = 0; i < GUSTS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    rp_link_close(storm.links[0], 0);
    rp_link_close(storm.links[1], 0);
    rp_service_close(storm.service);
}

static void check_storms(const char *url) {
    char text[120];
    for (uint32_t round = 0; round < rounds_given; round++) {
        storm(url, seed_given + round, round % 3 == 0);
    }
    snprintf(text, sizeof text, "%s: closed in the middle of seven threads' calls, %u times", url,
             rounds_given);
    check_group(text);
}

struct sampler {
    struct rp_link *link;
    int status;
};

static void *sample_for_ever(void *argument) {
    static struct drive_batch batch;
    struct sampler *sampler = argument;
    int ticket = drive_draw(sampler->link, &batch, ROW, 16, 1ull << LONG_NS_BITS);
    sampler->status = drive_wait(sampler->link, ticket, NULL);
    return NULL;
}

/* Given a sample that would wait for long, and the server of this process closes. Expect it to
 * end as closed; with a pump, too. */
static void check_server_closes(int pumped) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service("loopback://leaves", &serve);
    struct sampler sampler = {drive_link("loopback://leaves", &options), 0};
    uint64_t counters[RP_COUNTER_COUNT] = {0};
    pthread_t thread;
    if (pumped) {
        CHECK(rp_link_start_pump(sampler.link) == 0);
    }
    CHECK(pthread_create(&thread, NULL, sample_for_ever, &sampler) == 0);
    while (counters[RP_COUNT_samples_blocked] == 0) {
        CHECK(rp_service_counters(service, counters) == 0);
        sched_yield();
    }
    rp_service_end(service);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sampler.status == -RP_CLOSED, "%s", rp_status_name(sampler.status));
    int ticket = rp_link_ping(sampler.link, DRIVE_TIMEOUT_NS);
    int status = ticket > 0 ? drive_wait(sampler.link, ticket, NULL) : ticket;
    CHECK(status == -RP_CLOSED, "what is asked later: %s", rp_status_name(status));
    CHECK(rp_service_counters(service, counters) == -RP_CLOSED);
    CHECK(rp_service_sessions(service) == 0 && rp_service_address(service)[0]);
    rp_link_close(sampler.link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group(pumped ? "a server of this process closes under a pumped wait: closed"
                       : "a server of this process closes under a wait: closed");
}

/* Given a writer that posts as fast as it can and never waits, over loopback, and no thread that
 * turns the server. Expect nothing to be sent twice. */
static void check_posts(void) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.retry_us_min = 1};
    struct rp_service *service = open_service("loopback://posts", &serve);
    struct rp_link *link = drive_link("loopback://posts", &options);
    struct rp_table_info info = drive_info(link);
    uint64_t counters[RP_COUNTER_COUNT];
    struct rp_push_state state;
    uint8_t row[ROW];
    drive_writer(link, &info);
    CHECK(rp_link_counters(link, counters) == 0);
    uint64_t before = counters[RP_COUNT_retransmissions];
    for (uint64_t i = 0; i < 3000; i++) {
        drive_row(row, ROW, i);
        CHECK(rp_link_push(link, 0, 0, row, 1, RP_RUN_ITEM, NULL, 0) == 1);
        CHECK(rp_link_flush(link, 0) == 0);
    }
    CHECK(rp_link_push_state(link, 0, &state) == 0 && state.steps_stored == 3000,
          "%" PRIu64 " stored", state.steps_stored);
    CHECK(rp_link_counters(link, counters) == 0);
    CHECK(counters[RP_COUNT_retransmissions] == before, "%" PRIu64 " sent again",
          counters[RP_COUNT_retransmissions] - before);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group("loopback: posts turn the server, nothing is sent again");
}

int main(void) {
    const char *seed = getenv("GATE_SEED"), *rounds = getenv("GATE_ROUNDS");
    seed_given = seed ? strtoull(seed, NULL, 10) : seed_given;
    rounds_given = rounds ? (uint32_t)strtoul(rounds, NULL, 10)
                          : (uint32_t)check_rounds((int)rounds_given);
    check_order();
    check_closing();
    for (int kind = 0; kind < 4; kind++) {
        check_wakes(kind);
    }
    check_wakes_caller(0);
    check_wakes_caller(1);
    check_group("a post wakes a pump that sleeps too long; a driver never leaves silently");
    check_left_to_driver("udp://127.0.0.1:0");
    check_left_to_driver("loopback://left");
    check_server_closes(0);
    check_server_closes(1);
    check_posts();
    check_taken_over(0);
    check_taken_over(1);
    check_group("a pump that is started drives once nobody else does");
    check_storms("udp://127.0.0.1:0");
    check_storms("loopback://storm");
    return check_done("test_gate");
}
