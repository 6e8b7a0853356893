/* What is done while forks are held, and what is not. No fork waits for a name server; none
 * begins while a socket is being made, or changes its place. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "drive/ports.h"
#include "os/forks.h"
#include "protocol/status.h"

static char error[RP_URL_ERROR_BYTES];

/* ---- a fork beside what this thread does ---- */

static _Atomic int begun, through; /* of the latest fork: see register_both */
static pid_t forking;              /* its thread */

static void fork_begins(void) {
    forking = (pid_t)syscall(SYS_gettid);
    atomic_store(&begun, 1);
}

static void fork_is_through(void) {
    atomic_store(&through, 1);
}

/* Fork calls what was registered last first: one before it waits for holds, one behind that. */
static void register_both(void) {
    CHECK(pthread_atfork(fork_is_through, NULL, NULL) == 0);
    rp_forks_hold();
    rp_forks_allow();
    CHECK(pthread_atfork(fork_begins, NULL, NULL) == 0);
}

static void *fork_once(void *unused) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return unused;
}

static pthread_t begin_fork(void) {
    pthread_t thread;
    atomic_store(&begun, 0);
    atomic_store(&through, 0);
    CHECK(pthread_create(&thread, NULL, fork_once, NULL) == 0);
    while (!atomic_load(&begun)) {
        usleep(100);
    }
    return thread;
}

/* Does that thread sleep? Between the two handlers it does where forks are held, and nowhere
 * else. */
static int fork_sleeps(void) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)forking);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof text, file), "%s", path);
    CHECK(fclose(file) == 0);
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") S", 3) == 0;
}

/* ---- the C library's, for the port's calls ---- */

static uint32_t looked_up; /* names that are no numbers */

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found) {
    static struct addrinfo numeric;
    static struct sockaddr_in address;
    (void)hints;
    address = (struct sockaddr_in){.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)(port ? atoi(port) : 0))};
    numeric = (struct addrinfo){.ai_family = AF_INET, .ai_addrlen = sizeof address,
                                .ai_addr = (struct sockaddr *)(void *)&address};
    *found = &numeric;
    if (inet_pton(AF_INET, host, &address.sin_addr) == 1) {
        return 0;
    }
    CHECK(++looked_up == 1, "it is looked up again");
    CHECK(pthread_join(begin_fork(), NULL) == 0); /* it waits for ever if forks are held */
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return strcmp(host, "somewhere.test") == 0 ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found) {
    (void)found;
}

static int watched; /* the next bind looks whether forks are held */
static pthread_t beside;

int bind(int file, const struct sockaddr *address, socklen_t size) {
    if (watched) {
        watched = 0;
        beside = begin_fork();
        while (!fork_sleeps() && !atomic_load(&through)) {
            usleep(100);
        }
        CHECK(!atomic_load(&through), "a fork begins while a socket is being made");
    }
    return (int)syscall(SYS_bind, file, address, size);
}

/* ---- checks ---- */

/* Given a server's address by name, and names that nobody knows. Expect each to be looked up once,
 * and forks to begin meanwhile. */
static void check_names(void) {
    static const struct { const char *url; int serve, status; uint32_t names; } opened[] = {
        {"udp://somewhere.test:0", 1, 0, 1}, {"udp://somewhere.test:9", 0, 0, 1},
        {"zmq+tcp://somewhere.test:0", 1, 0, 1}, {"udp://127.0.0.1:0", 1, 0, 0},
        {"udp://nowhere.test:9", 0, -RP_BAD_ARGUMENT, 1},
        {"zmq+tcp://nowhere.test:9", 1, -RP_BAD_ARGUMENT, 1},
        {"zmq+tcp://nowhere.test:9", 0, -RP_NO_TRANSPORT, 0},
        {"loopback://nowhere.test", 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof opened / sizeof opened[0]; i++) {
        struct rp_port_options options = {.serve = opened[i].serve};
        char bound[RP_URL_TEXT_BYTES];
        struct rp_port *port;
        struct rp_peer peer;
        looked_up = 0;
        error[0] = 0;
        int status = rp_ports_open(&port, opened[i].url, &options, &peer, bound, error);
        CHECK(status == opened[i].status, "%s: %d %s", opened[i].url, status, error);
        CHECK(looked_up == opened[i].names, "%s: %u names", opened[i].url, looked_up);
        CHECK(status == 0 || strstr(error, "nowhere.test"), "%s", error);
        CHECK(status || strncmp(opened[i].url, "loopback", 8) == 0 || strstr(bound, "//127.0.0.1:"),
              "%s", bound);
        rp_port_close(port);
    }
    check_group("a name is looked up once, and no fork waits for it");
}

/* Given a fork that begins while a port's socket is made. Expect it to wait until the port is
 * there, and a client that moves to another socket likewise. */
static void check_held(void) {
    static const char *const urls[] = {"udp://127.0.0.1:0", "zmq+tcp://127.0.0.1:0"};
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    char bound[RP_URL_TEXT_BYTES];
    struct rp_port *port, *client;
    struct rp_peer peer;
    for (int i = 0; i < 2; i++) {
        watched = 1;
        CHECK(rp_ports_open(&port, urls[i], &serve, &peer, bound, error) == 0, "%s", error);
        CHECK(!watched && pthread_join(beside, NULL) == 0);
        if (i == 0) {
            CHECK(rp_ports_open(&client, bound, &visit, &peer, NULL, error) == 0, "%s", error);
            watched = 1;
            CHECK(rp_port_transport(client)->rebind(client, 0) == 0);
            CHECK(!watched && pthread_join(beside, NULL) == 0);
            rp_port_close(client);
        }
        rp_port_close(port);
    }
    check_group("no fork begins while a socket is being made");
}

int main(void) {
    alarm(100); /* a fork that waits for ever */
    register_both();
    check_names();
    check_held();
    return check_done("test_ports");
}
