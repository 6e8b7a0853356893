/* A service's thread starts and stops whoever asks, and a service tells what is so: of its
 * port, its server and its region, until it has ended. Situations read "Given ... Expect ...".
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "drive/clock.h"
#include "drive.h"
#include "drive/link_drive.h"
#include "drive/pump.h"
#include "drive/service_memory.h"
#include "transport/transport_loopback.h"
#include "transport/url.h"

enum { ROW = 64, CAPACITY = 4096 };

static char error[RP_ERROR_BYTES];

static struct rp_service *open_service(const char *url, const struct rp_service_options *options) {
    struct drive_table made;
    struct rp_service *service;
    drive_config(&made, CAPACITY, ROW);
    made.config.seed = 77;
    CHECK(rp_service_open(&service, &made.config, url, options, error) == 0, "%s", error);
    return service;
}

/* ---- the pump by itself ---- */

enum { TURNS_MAX = 64 };

struct worked { /* a job that writes down what the pump did */
    struct rp_pump pump;
    char said[TURNS_MAX + 1]; /* t: a turn that moved, n: one that did not, s: a sleep */
    const char *turns;        /* what the turns are to say: t, n, or N: n after a while */
    _Atomic uint32_t count;   /* of said */
    _Atomic int held;         /* wake waits while this is 1 */
    _Atomic int waking;       /* it does */
    sigset_t blocked;
    cpu_set_t cores;
};

static void say(struct worked *worked, char what) {
    if (worked->count < TURNS_MAX) {
        worked->said[worked->count++] = what;
    }
}

static uint32_t a_turn(void *owner) {
    struct worked *worked = owner;
    struct timespec pause = {.tv_nsec = 60000000};
    pthread_sigmask(SIG_SETMASK, NULL, &worked->blocked);
    CHECK(sched_getaffinity(0, sizeof worked->cores, &worked->cores) == 0);
    char next = *worked->turns ? *worked->turns++ : 'n';
    if (next == 'T') { /* it takes longer than the spin */
        nanosleep(&pause, NULL);
    }
    say(worked, next == 'n' ? 'n' : 't');
    return next != 'n';
}

static void a_sleep(void *owner) {
    say(owner, 's');
}

static void a_wake(void *owner) {
    struct worked *worked = owner;
    worked->waking = 1;
    while (worked->held) {
        sched_yield();
    }
}

/* Starts a pump with these turns and stops it when it has done `count` things. */
static void work(struct worked *worked, const char *turns, uint64_t spin_ns, int busy, int32_t core,
                 uint32_t count) {
    *worked = (struct worked){.turns = turns};
    struct rp_pump_job job = {.turn = a_turn, .sleep = a_sleep, .wake = a_wake, .owner = worked,
                              .spin_ns = spin_ns, .busy_poll = (uint32_t)busy, .core = core};
    CHECK(rp_pump_start(&worked->pump, &job) == 0 && worked->pump.state == RP_PUMP_RUNS);
    CHECK(rp_pump_start(&worked->pump, &job) == 0, "it runs already");
    while (worked->count < count) {
        sched_yield();
    }
    rp_pump_stop(&worked->pump);
    CHECK(worked->pump.state == RP_PUMP_NONE && worked->waking, "it is woken to hear of it");
    rp_pump_stop(&worked->pump);
}

/* Given turns that move something and turns that do not. Expect it to turn again at once behind the
 * first, to look again for its spin behind the second, then to sleep and to turn anew; never to
 * sleep where it is to poll; to sleep at once where what moves has come later than a spin. */
static void check_pump(void) {
    static struct worked worked;
    work(&worked, "tnttn", 0, 0, 0, 9);
    CHECK(strncmp(worked.said, "tnsttnsns", 9) == 0, "%s", worked.said);
    work(&worked, "tn", UINT64_MAX, 0, 0, TURNS_MAX);
    CHECK(worked.said[0] == 't' && strspn(worked.said + 1, "n") == TURNS_MAX - 1);
    work(&worked, "tn", 0, 1, 0, TURNS_MAX);
    CHECK(worked.said[0] == 't' && strspn(worked.said + 1, "n") == TURNS_MAX - 1);
    work(&worked, "nT", 50000000, 0, 0, 5); /* n: idle since; T: not any more, though time passed */
    const char *moved = strchr(worked.said, 't');
    CHECK(moved && moved[1] == 'n' && moved[2] == 'n', "%s", worked.said);
    work(&worked, "nTnTnTnTn", 50000000, 0, 0, 10); /* four that came late: it spins no more */
    CHECK(strncmp(worked.said, "ntntntntns", 10) == 0, "%s", worked.said);
    CHECK(rp_pump_start(&worked.pump, &(struct rp_pump_job){.core = -1}) == -RP_BAD_ARGUMENT);
    CHECK(rp_pump_start(&worked.pump, &(struct rp_pump_job){.core = CPU_SETSIZE + 1})
          == -RP_BAD_ARGUMENT);
    CHECK(rp_pump_start(&worked.pump, &(struct rp_pump_job){.core = INT32_MIN})
          == -RP_BAD_ARGUMENT);
    CHECK(worked.pump.state == RP_PUMP_NONE);
    check_group("a pump turns, looks again, sleeps");
}

/* Given a thread that is pinned. Expect it where it was asked to be, all signals kept from it but
 * those of a fault, and these too where its starter keeps them; the starter's own as they were. */
static void check_thread(void) {
    static struct worked worked;
    cpu_set_t ours;
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    sigaddset(&before, SIGABRT);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(sched_getaffinity(0, sizeof ours, &ours) == 0);
#ifdef RP_POSIX
    CHECK(rp_pump_start(&worked.pump, &(struct rp_pump_job){.core = 1}) == -RP_BAD_ARGUMENT);
#else
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &ours)) {
            work(&worked, "", 0, 0, 1 + core, 1);
            CHECK(CPU_COUNT(&worked.cores) == 1 && CPU_ISSET(core, &worked.cores), "%d", core);
        }
    }
#endif
    work(&worked, "", 0, 0, 0, 1);
    CHECK(CPU_EQUAL(&worked.cores, &ours), "one that is not pinned runs where its starter does");
    CHECK(sigismember(&worked.blocked, SIGUSR1) == 1 && sigismember(&worked.blocked, SIGINT) == 1);
    CHECK(sigismember(&worked.blocked, SIGSEGV) == 0 && sigismember(&worked.blocked, SIGBUS) == 0);
    CHECK(sigismember(&worked.blocked, SIGFPE) == 0 && sigismember(&worked.blocked, SIGILL) == 0);
    CHECK(sigismember(&worked.blocked, SIGABRT) == 1, "as its starter has it");
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    CHECK(sigismember(&after, SIGUSR2) == 1 && sigismember(&after, SIGUSR1) == 0);
    sigemptyset(&before);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    check_group("a pump's thread: its core, no signals but of faults");
}

static void *stop(void *argument) {
    struct worked *worked = argument;
    rp_pump_stop(&worked->pump);
    CHECK(worked->pump.state == RP_PUMP_NONE, "who stops it comes back when it has gone");
    return NULL;
}

static void *await(void *argument) {
    struct worked *worked = argument;
    rp_pump_await(&worked->pump);
    CHECK(worked->pump.state == RP_PUMP_NONE, "so does who waits for that");
    return NULL;
}

/* Given a pump that is being stopped, and others who stop it, start it or wait. Expect the start to
 * be told so, and the others to come back when it has gone. */
static void check_ends(void) {
    for (int round = 0; round < 20; round++) {
        static struct worked worked;
        pthread_t threads[3];
        worked = (struct worked){.turns = "", .held = 1};
        struct rp_pump_job job = {.turn = a_turn, .sleep = a_sleep, .wake = a_wake,
                                  .owner = &worked};
        CHECK(rp_pump_start(&worked.pump, &job) == 0);
        CHECK(pthread_create(&threads[0], NULL, stop, &worked) == 0);
        while (!worked.waking) {
            sched_yield();
        }
        CHECK(rp_pump_start(&worked.pump, &job) == RP_PENDING);
        CHECK(pthread_create(&threads[1], NULL, stop, &worked) == 0);
        CHECK(pthread_create(&threads[2], NULL, await, &worked) == 0);
        for (int i = 0; i < 100; i++) {
            sched_yield(); /* they wait by now, or soon: either way they have to */
        }
        worked.held = 0;
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
    }
    check_group("a pump that is being stopped: others wait for it");
}

/* ---- a service's thread ---- */

struct starter {
    struct rp_service *service;
    _Atomic int *go;
    int closed; /* it goes on until the service has ended */
};

static void *start_and_stop(void *argument) {
    struct starter *starter = argument;
    for (int i = 0; i < 300 || starter->closed; i++) {
        int started = rp_service_start(starter->service);
        int stopped = rp_service_stop(starter->service);
        if (started == -RP_CLOSED || stopped == -RP_CLOSED) {
            CHECK(starter->closed && rp_service_start(starter->service) == -RP_CLOSED);
            return NULL;
        }
        CHECK(started == 0 && stopped == 0, "%s, %s", rp_status_name(started),
              rp_status_name(stopped));
        *starter->go = 1;
    }
    return NULL;
}

/* Given threads that start and stop one service. Expect every call to be done; where the service
 * ends meanwhile, to be answered so; a service that still answers when they have gone. */
static void check_starts(const char *url, int closed) {
    struct rp_service_options serve = {0};
    struct rp_service *service = open_service(url, &serve);
    _Atomic int go = 0;
    struct starter starter = {service, &go, closed};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, start_and_stop, &starter) == 0);
    }
    while (!go) {
        sched_yield();
    }
    if (closed) {
        rp_service_end(service);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    if (!closed) {
        struct rp_link_options options = {.retry_us_min = 2000};
        CHECK(rp_service_start(service) == 0);
        struct rp_link *link = drive_link(rp_service_address(service), &options);
        rp_link_close(link, DRIVE_TIMEOUT_NS);
    }
    rp_service_close(service);
}

static void check_started(void) {
    for (int round = 0; round < 10; round++) {
        check_starts("udp://127.0.0.1:0", 1);
        check_starts("loopback://started", 1);
    }
    check_starts("udp://127.0.0.1:0", 0);
    check_group("three threads start and stop one service, that ends meanwhile");
}

/* ---- what it tells ---- */

static void send_empty(const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    int stranger = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(stranger >= 0);
    CHECK(sendto(stranger, "", 0, 0, (struct sockaddr *)(void *)&to, sizeof to) == 0);
    close(stranger);
}

#ifdef RP_POSIX
enum { UDP_FACTS = 2 }; /* nobody counts what is lost at the socket */
#else
enum { UDP_FACTS = 3 };
#endif

static uint64_t fact_of(const struct rp_measures *told, const char *name) {
    for (uint64_t i = 0; i < told->fact_count; i++) {
        if (strcmp((const char *)told->facts[i].name, name) == 0) {
            return told->facts[i].value;
        }
    }
    CHECK(0, "nothing is told of %s", name);
    return 0;
}

/* Given a service by hand, a client that publishes, and an empty datagram. Expect all that is told
 * to be so, by every way of asking; nothing of it once the service has ended. */
static void check_told(void) {
    static struct rp_measures told;
    static uint8_t weights[100];
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.retry_us_min = 2000};
    uint64_t counters[RP_COUNTER_COUNT], version = 0;
    struct drive_table made;
    struct rp_service *service = open_service("udp://127.0.0.1:0?mtu=1400", &serve);
    CHECK(rp_service_turn(service) == 0, "nothing is there");
    CHECK(rp_service_dropped_in(service) == 0 && rp_service_dropped(service) == 0);
    send_empty(rp_service_address(service));
    CHECK(rp_service_turn(service) == 0);
    CHECK(rp_service_dropped_in(service) == 1 && rp_service_dropped(service) == 0);
    CHECK(rp_service_measure(service, &told) == 0);
    CHECK(told.dropped_in == 1 && told.dropped_out == 0);
    CHECK(fact_of(&told, "unusable") == 1 && fact_of(&told, "not_taken") == 0);
    CHECK(told.fact_count == UDP_FACTS);
    CHECK(rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    CHECK(drive_wait(link, rp_link_publish(link, weights, sizeof weights, &version,
                                           DRIVE_TIMEOUT_NS), NULL) == 0);
    CHECK(rp_service_stop(service) == 0);
    CHECK(rp_service_measure(service, &told) == 0 && rp_service_counters(service, counters) == 0);
    CHECK(memcmp(told.counters, counters, sizeof counters) == 0);
    CHECK(version == 1 && rp_service_weights_version(service) == 1 && told.weights_version == 1);
    CHECK(rp_service_sessions(service) == 1 && told.sessions == 1);
    CHECK(rp_service_incarnation(service) == told.incarnation && told.incarnation != 0);
    CHECK(rp_link_incarnation(link) == told.incarnation);
    CHECK(rp_service_seed(service) == 77 && rp_service_attached(service) == 0);
    CHECK(rp_service_changes(service)[0] == 0 && rp_service_lost(service) == NULL);
    CHECK(rp_link_ping(link, DRIVE_TIMEOUT_NS) > 0);
    while (rp_service_turn(service) == 0) { /* by hand: it says how much it received */
        sched_yield();
    }
    rp_link_close(link, 0);
    uint64_t bytes = rp_service_memory(service);
    drive_config(&made, CAPACITY, ROW);
    made.config.mtu = 1400;
    CHECK(rp_service_bytes(&made.config, "udp://127.0.0.1:0?mtu=1400", error) == bytes);
    rp_service_end(service);
    rp_service_end(service);
    CHECK(rp_service_start(service) == -RP_CLOSED && rp_service_stop(service) == -RP_CLOSED);
    CHECK(rp_service_turn(service) == -RP_CLOSED);
    CHECK(rp_service_counters(service, counters) == -RP_CLOSED);
    CHECK(rp_service_measure(service, &told) == -RP_CLOSED);
    CHECK(rp_service_sessions(service) == 0 && rp_service_incarnation(service) == 0);
    CHECK(rp_service_weights_version(service) == 0 && rp_service_lost(service) == NULL);
    CHECK(rp_service_dropped(service) == 0 && rp_service_dropped_in(service) == 0);
    CHECK(rp_service_memory(service) == bytes && rp_service_seed(service) == 77);
    rp_service_close(service);
    CHECK(rp_version()[0] && rp_status_count() == RP_STATUS_COUNT);
    CHECK(rp_counter_count() == RP_COUNTER_COUNT);
    check_group("what a service tells");
}

/* Given a client that asked and was gone before it was answered. Expect the answer to be counted
 * as not taken. */
static void check_dropped(void) {
    static struct rp_measures told;
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct rp_service *service = open_service("loopback://dropped", &serve);
    struct rp_link *link;
    CHECK(rp_link_open(&link, "loopback://dropped", &options, error) == 0, "%s", error);
    CHECK(rp_client_turn(link->client, link->port, rp_link_now(link)) == 1, "its HELLO");
    CHECK(rp_loopback_turn(link->port) == 1 && rp_loopback_turn(link->port) == 0,
          "a client's turn of the server says what that received");
    CHECK(rp_client_turn(link->client, link->port, rp_link_now(link)) > 0, "its OPEN");
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    CHECK(rp_service_turn(service) == 1);
    CHECK(rp_service_dropped(service) == 1 && rp_service_dropped_in(service) == 0);
    CHECK(rp_service_measure(service, &told) == 0 && told.dropped_out == 1);
    CHECK(told.fact_count == 1 && fact_of(&told, "not_taken") == 1);
    rp_service_close(service);
    check_group("an answer that nobody takes is counted");
}

/* Given a client that waits for ever for its server. Expect it to connect and to be answered, and
 * not to be out of time at once. */
static void check_for_ever(void) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.connect_timeout_ns = UINT64_MAX};
    uint64_t counters[RP_COUNTER_COUNT];
    uint32_t sessions = 0;
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve);
    CHECK(rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    CHECK(drive_wait(link, rp_link_stats(link, counters, &sessions, DRIVE_TIMEOUT_NS),
                     NULL) == 0);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group("a time without end is not over at once");
}

/* Given sizes in the url, in the configuration, or in neither. Expect the first that is said to
 * count: for the memory that is needed, and for what the clients are told. */
static void check_sizes(void) {
    static const struct { const char *url; uint32_t mtu, agreed; } sizes[] = {
        {"udp://127.0.0.1:0?mtu=512", 1400, 512}, {"udp://127.0.0.1:0", 1400, 1400},
        {"udp://127.0.0.1:0", 0, RP_MTU_HOST},
    };
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    uint64_t bytes[3];
    for (int i = 0; i < 3; i++) {
        struct drive_table made;
        struct rp_service *service;
        struct rp_opened limits;
        drive_config(&made, CAPACITY, ROW);
        made.config.mtu = sizes[i].mtu;
        bytes[i] = rp_service_bytes(&made.config, sizes[i].url, error);
        CHECK(rp_service_open(&service, &made.config, sizes[i].url, &serve, error) == 0, "%s",
              error);
        CHECK(rp_service_memory(service) == bytes[i], "%" PRIu64 ", not %" PRIu64, bytes[i],
              rp_service_memory(service));
        CHECK(rp_service_start(service) == 0);
        struct rp_link *link = drive_link(rp_service_address(service), &options);
        CHECK(rp_link_limits(link, &limits) == 0 && limits.mtu <= sizes[i].agreed);
        CHECK(i != 0 || limits.mtu == 512);
        rp_link_close(link, DRIVE_TIMEOUT_NS);
        rp_service_close(service);
    }
    struct drive_table made;
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_bytes(&made.config, "udp:/127.0.0.1", error) == 0);
    CHECK(strstr(error, "not a url"), "%s", error);
    check_group("the size of datagrams: the url's, the configuration's, the transport's");
}

/* Expect a sentence of its own for every status and counter, and none for what is neither. */
static void check_sentences(void) {
    for (int i = 0; i < RP_STATUS_COUNT; i++) {
        CHECK(strcmp(rp_status_sentence(i), "unknown status") != 0, "status %d", i);
        CHECK(rp_status_sentence(-i) == rp_status_sentence(i) && rp_status_name(i)[0]);
    }
    CHECK(strcmp(rp_status_sentence(RP_STATUS_COUNT), "unknown status") == 0);
    CHECK(strcmp(rp_status_name(-RP_STATUS_COUNT), "UNKNOWN") == 0);
    for (int i = 0; i < RP_COUNTER_COUNT; i++) {
        CHECK(rp_counter_sentence(i) && rp_counter_sentence(i)[0] && rp_counter_name(i)[0]);
    }
    CHECK(!rp_counter_sentence(RP_COUNTER_COUNT) && !rp_counter_sentence(-1));
    CHECK(!rp_counter_name(RP_COUNTER_COUNT) && !rp_counter_name(-1));
    check_group("every status and counter has its words");
}

/* Given regions whose state is mostly sample records, and mostly items, and one that is larger than
 * any machine, two of its parts alike. Expect it said which, and the first of those alike. */
static void check_segment_words(void) {
    static struct drive_table made;
    struct rp_segments segments;
    drive_config(&made, 4096, 64);
    made.config.mtu = 1400;
    made.config.receive_budget = 64;
    CHECK(rp_server_segments(&made.config, &segments, error) == 0, "%s", error);
    CHECK(strcmp(segments.segment[0].name, "state") == 0);
    CHECK(strstr(segments.segment[0].what, "sample records: sessions x records") != NULL);
    made.config.sessions_max = made.config.records = 1;
    made.table.capacity = 1 << 20;
    CHECK(rp_server_segments(&made.config, &segments, error) == 0, "%s", error);
    CHECK(strcmp(segments.segment[0].what, "items and their priorities") == 0);
    static struct rp_memory memory;
    segments = (struct rp_segments){.count = 3, .bytes = 1ull << 50, .segment = {
        {.bytes = 4096, .what = "state"}, {.bytes = 1ull << 49, .what = "steps of a"},
        {.bytes = 1ull << 49, .what = "steps of b"}}};
    rp_memory_none(&memory);
    CHECK(rp_memory_map(&memory, &segments, error) == -RP_NO_MEMORY);
    CHECK(strstr(error, "1073741824.0 MiB, 536870912.0 MiB of them for steps of a;"), "%s", error);
    segments.segment[0].bytes = segments.bytes;
    CHECK(rp_memory_map(&memory, &segments, error) == -RP_NO_MEMORY);
    CHECK(strstr(error, "of them for state;"), "%s", error);
    check_group("what most of the state is, in words");
}

/* Given two looks at a clock. Expect the time between them, up to a bound, and none where the first
 * was not taken or the second is of another thread. */
static void situation_between(void) {
    CHECK(rp_clock_between(5, 9, 100) == 4 && rp_clock_between(5, 5, 100) == 0);
    CHECK(rp_clock_between(5, 105, 100) == 100 && rp_clock_between(5, 106, 100) == 100);
    CHECK(rp_clock_between(0, 9, 100) == 0 && rp_clock_between(9, 5, 100) == 0);
    check_group("a thread's own time is known from the second look on");
}

int main(void) {
    situation_between();
    check_segment_words();
    check_pump();
    check_thread();
    check_ends();
    check_started();
    check_told();
    check_dropped();
    check_for_ever();
    check_sizes();
    check_sentences();
    return check_done("test_service");
}
