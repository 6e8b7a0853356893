/* Given clients killed under full traffic. Expect the server to go on, and nothing it acknowledged
 * to be lost.
 *
 * In each round two processes, a pushing and a sampling one, are killed by SIGKILL while the server
 * is at work. A timer of this test stops the server's thread at odd moments for some hundred
 * microseconds, so that it is often found inside a burst when the driver hears of the death, as a
 * busy machine would find it now and then. RP_KILL_ROUNDS sets the number of rounds.
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"
#include "transport/transport_dpdk.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
    CLIENTS = 2, ROW = 256, CAPACITY = 1 << 14, STEPS = 1024, BATCH = 128, SECONDS = 60,
    ROUNDS_DEFAULT = 12, LINKS = 4, KNOCKS = 200, PLACES = 4,
    STOP_EVERY_NS = 311000, STOPPED_NS = 200000,
};

struct told { /* by clients, to who kills them */
    _Atomic uint64_t acknowledged;
    _Atomic uint32_t at_work;
};

static struct told *told; /* CLIENTS of them, in memory all processes share */
static char socket_path[64];
static volatile sig_atomic_t end;

static const char *url(char *text, int serve) {
    snprintf(text, RP_URL_BYTES, "dpdk://10.0.0.1:7400?vdev=net_memif,links=%d,socket=%s", LINKS,
             socket_path);
    if (!serve) {
        snprintf(text, RP_URL_BYTES, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=%s", socket_path);
    }
    return text;
}

/* ---- the server ---- */

static void stop_here(int number) {
    const struct timespec nap = {0, STOPPED_NS};
    (void)number;
    nanosleep(&nap, NULL);
}

static void stop_now_and_then(void) {
    struct sigaction action = {.sa_handler = stop_here, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    struct itimerspec every = {{0, STOP_EVERY_NS}, {0, STOP_EVERY_NS}};
    timer_t timer;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &every, NULL) == 0);
}

static void end_soon(int number) {
    (void)number;
    end = 1;
}

static void serve(void) {
    struct rp_service_options options = {0};
    struct rp_service *service;
    struct drive_table made;
    char error[RP_ERROR_BYTES], text[RP_URL_BYTES];
    drive_config(&made, CAPACITY, ROW);
    made.table.writers_max = PLACES;
    made.table.window = CAPACITY / 64;
    made.config.idle_ms = 200; /* so that the killed ones' places are free again */
    signal(SIGTERM, end_soon);
    CHECK(rp_service_open(&service, &made.config, url(text, 1), &options, error) == 0, "%s", error);
    stop_now_and_then();
    while (!end) {
        if (rp_service_turn(service) == 0) {
            usleep(50);
        }
    }
    const struct rp_dpdk_object *object = rp_dpdk_load(error);
    rp_service_close(service);
    CHECK(object->leaked() == 0, "%" PRIu64 " mbufs are not free", object->leaked());
}

/* ---- clients ---- */

static struct rp_link *connect_link(struct rp_table_info *info) {
    struct rp_link_options options = {0};
    struct rp_link *link = NULL;
    char error[RP_ERROR_BYTES], text[RP_URL_BYTES];
    int status = -1;
    for (int tries = 0; status; tries++) { /* links of the killed are free after a moment */
        status = rp_link_open(&link, url(text, 0), &options, error);
        CHECK(status == 0 || tries < 500, "%s", error);
        usleep(status ? 20000 : 0);
    }
    while ((status = rp_link_connect(link, RP_SLICE_NS)) == RP_PENDING) {
    }
    CHECK(status == 0, "connect: %s", rp_status_name(status));
    *info = drive_info(link);
    return link;
}

static void push_for_ever(struct told *mine) {
    struct rp_table_info info;
    struct rp_link *link = connect_link(&info);
    struct rp_push_state state;
    struct rp_writer_granted granted;
    int status = -RP_NO_WRITER_FREE;
    for (int tries = 0; status; tries++) {
        status = drive_wait(link, rp_link_writer(link, &info, 1, &granted, DRIVE_TIMEOUT_NS), NULL);
        CHECK(status == 0 || tries < 200, "writer: %s", rp_status_name(status));
        usleep(status ? 20000 : 0);
    }
    for (uint64_t next = 0;; next += 64) {
        drive_push(link, ROW, next, 64);
        CHECK(rp_link_push_state(link, 0, &state) == 0 && state.status == 0);
        mine->acknowledged = state.steps_stored;
        mine->at_work = state.steps_stored > STEPS;
    }
}

static void sample_for_ever(struct told *mine) {
    static struct drive_batch batch;
    struct rp_table_info info;
    struct rp_link *link = connect_link(&info);
    for (;;) {
        drive_sample(link, &batch, ROW, BATCH);
        mine->at_work = 1;
    }
}

static void look_back(uint64_t acknowledged) {
    static struct drive_batch batch;
    uint64_t counters[RP_COUNTER_COUNT];
    char error[RP_ERROR_BYTES];
    struct rp_table_info info;
    struct rp_link *link = connect_link(&info);
    int status = drive_wait(link, rp_link_stats(link, counters, NULL, DRIVE_TIMEOUT_NS), NULL);
    CHECK(status == 0 && counters[RP_COUNT_steps_committed] >= acknowledged,
          "%" PRIu64 " steps stored, %" PRIu64 " acknowledged", counters[RP_COUNT_steps_committed],
          acknowledged);
    drive_sample(link, &batch, ROW, BATCH);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    const struct rp_dpdk_object *object = rp_dpdk_load(error);
    CHECK(object->waits() > 0, "the driver in use is not the one that waits for bursts");
}

/* Knocks and is gone before anybody opens. */
static void knock(uint32_t times) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    for (uint32_t i = 0; i < times; i++) {
        int file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        CHECK(file >= 0 && connect(file, (struct sockaddr *)&address, sizeof address) == 0,
              "the server died of clients that were gone again");
        close(file);
    }
}

/* ---- rounds ---- */

static pid_t start(int which, uint64_t acknowledged) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(SECONDS * (1 + (which < 0) * 9));
    if (which < 0) {
        serve();
    } else if (which == CLIENTS) {
        look_back(acknowledged);
    } else if (which == 0) {
        push_for_ever(&told[which]);
    } else {
        sample_for_ever(&told[which]);
    }
    _exit(0);
}

static void wait_until_at_work(const pid_t *clients, pid_t server, uint32_t round) {
    for (int tries = 0; !told[0].at_work || !told[1].at_work; tries++) {
        CHECK(waitpid(server, NULL, WNOHANG) == 0, "the server died in round %u", round);
        CHECK(waitpid(clients[0], NULL, WNOHANG) == 0 && waitpid(clients[1], NULL, WNOHANG) == 0,
              "a client died by itself in round %u", round);
        CHECK(tries < SECONDS * 1000, "no traffic in round %u", round);
        usleep(1000);
    }
}

static void kill_some(uint32_t rounds, pid_t server, uint64_t *acknowledged) {
    for (uint32_t round = 0; round < rounds; round++) {
        pid_t clients[CLIENTS];
        memset(told, 0, CLIENTS * sizeof *told);
        for (int i = 0; i < CLIENTS; i++) {
            clients[i] = start(i, 0);
        }
        wait_until_at_work(clients, server, round);
        for (int i = 0; i < CLIENTS; i++) {
            usleep(1000 + round * 379 % 2000);
            CHECK(kill(clients[i], SIGKILL) == 0 && waitpid(clients[i], NULL, 0) == clients[i]);
            *acknowledged += told[i].acknowledged;
        }
        CHECK(waitpid(server, NULL, WNOHANG) == 0, "the server died in round %u", round);
    }
}

int main(void) {
    const char *asked = getenv("RP_KILL_ROUNDS");
    uint32_t rounds = asked ? (uint32_t)atoi(asked) : ROUNDS_DEFAULT;
    uint64_t acknowledged = 0;
    int status;
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    snprintf(socket_path, sizeof socket_path, "/tmp/test_memif_%d", (int)getpid());
    told = mmap(NULL, CLIENTS * sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    CHECK(told != MAP_FAILED);
    pid_t server = start(-1, 0);
    kill_some(rounds, server, &acknowledged);
    knock(KNOCKS);
    pid_t last = start(CLIENTS, acknowledged);
    CHECK(waitpid(last, &status, 0) == last && status == 0, "the last client");
    CHECK(waitpid(server, NULL, WNOHANG) == 0, "the server died of clients that were gone again");
    CHECK(kill(server, SIGTERM) == 0 && waitpid(server, &status, 0) == server);
    CHECK(status == 0, "the server ended with %d", status);
    printf("  %u rounds, two clients killed at work in each; %" PRIu64 " steps acknowledged, all "
           "of them stored\n", rounds, acknowledged);
    return check_done("test_memif");
}
