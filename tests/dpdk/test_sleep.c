/* Ports that sleep: woken by what comes, in both directions, over memif and, as root, over a veth
 * pair in a network namespace of this process's own; a call that is withheld costs a bounded time;
 * nobody is woken all the time. Both ends are in this process. An alarm ends what would last.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drive/clock.h"
#include "open_port.h"

enum { ROUNDS = 100, SECONDS = 60, STILL = 20, FILES = 1024, GROWN = 12, SIZE = 64 };

static const uint64_t HOUR_NS = 3600000000000ull;
static char url[RP_URL_TEXT_BYTES];

struct sleeper {
    struct rp_port *port;
    _Atomic uint32_t sleeps;   /* that began */
    _Atomic uint32_t received; /* datagrams */
    uint32_t woken;            /* sleeps that ended because something had come */
    uint32_t wanted;
};

static uint32_t take(struct rp_port *port, struct rp_peer *from) {
    struct rp_packet packets[RP_BURST];
    uint32_t got = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
    if (got && from) {
        *from = packets[0].peer;
    }
    rp_port_transport(port)->rx_release(port, packets, got);
    return got;
}

static void send_one(struct rp_port *port, const struct rp_peer *to) {
    struct rp_packet packet;
    CHECK(rp_port_transport(port)->tx_lease(port, &packet, 1) == 1);
    packet.peer = *to;
    packet.size = SIZE;
    memset(packet.data, 1, SIZE);
    rp_port_transport(port)->tx_send(port, &packet, 1);
}

static void *sleep_and_take(void *argument) {
    struct sleeper *sleeper = argument;
    while (sleeper->received < sleeper->wanted) {
        sleeper->sleeps++;
        sleeper->woken += rp_port_transport(sleeper->port)->wait(sleeper->port, HOUR_NS) != 0;
        sleeper->received += take(sleeper->port, NULL);
    }
    return NULL;
}

/* Each datagram is sent once its receiver has slept in vain for so often that its sleeps are long:
 * so it is asleep, but for once in a while. Returns how many of the sleeps were ended by one. */
static uint32_t send_to_sleeper(struct rp_port *from, const struct rp_peer *to,
                                struct rp_port *port) {
    struct sleeper sleeper = {.port = port, .wanted = ROUNDS};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sleep_and_take, &sleeper) == 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t first = sleeper.sleeps;
        while (sleeper.sleeps - first < GROWN / (round ? 4 : 1)) {
            usleep(100);
        }
        send_one(from, to);
        while (sleeper.received <= round) {
            usleep(100);
        }
    }
    pthread_join(thread, NULL);
    return sleeper.woken;
}

static void meet(struct rp_port *server, struct rp_port *client, const struct rp_peer *at,
                 struct rp_peer *from) {
    do { /* the first ones ask where the server is, perhaps */
        send_one(client, at);
        (void)take(client, NULL);
        usleep(1000);
    } while (!take(server, from));
    usleep(10000);
    while (take(server, NULL) + take(client, NULL)) {
    }
}

static void wake_both(const char *server_url, const char *client_url) {
    struct rp_peer own, at, client_at;
    struct rp_port *server = open_port(server_url, 1, &own);
    struct rp_port *client = open_port(client_url, 0, &at);
    meet(server, client, &at, &client_at);
    uint32_t up = send_to_sleeper(client, &at, server);
    CHECK(up > ROUNDS / 2, "a server was woken %u times of %d", up, ROUNDS);
    uint32_t down = send_to_sleeper(server, &client_at, client);
    CHECK(down > ROUNDS / 2, "a client was woken %u times of %d", down, ROUNDS);
    CHECK(up < 2 * ROUNDS && down < 2 * ROUNDS, "woken %u and %u times by %d", up, down, ROUNDS);
    rp_port_close(client);
    rp_port_close(server);
}

static uint64_t time_of(struct rp_port *port, uint32_t sleeps) {
    uint64_t start = rp_clock_ns();
    for (uint32_t i = 0; i < sleeps; i++) {
        (void)rp_port_transport(port)->wait(port, HOUR_NS);
    }
    return rp_clock_ns() - start;
}

/* Something has come, and is not taken: whoever asks again and again is not answered at once. */
static void neglect(const char *server_url, const char *client_url) {
    struct rp_peer own, at, client_at;
    struct rp_port *server = open_port(server_url, 1, &own);
    struct rp_port *client = open_port(client_url, 0, &at);
    meet(server, client, &at, &client_at);
    send_one(client, &at);
    uint64_t took = time_of(server, ROUNDS);
    CHECK(took > ROUNDS * 50000ull, "%d sleeps took %" PRIu64 " ns", ROUNDS, took);
    CHECK(take(server, NULL) > 0, "and it is still there");
    rp_port_close(client);
    rp_port_close(server);
}

static void woken(void) {
    neglect(url, url);
    wake_both(url, url);
    check_group("memif: both ends are woken by what comes, and not by what stays");
}

static int has_pair;

/* Before DPDK starts: its devices are where it started. */
static void make_pair(void) {
    has_pair = geteuid() == 0 && unshare(CLONE_NEWNET) == 0
        && system("ip link add sleep0 type veth peer name sleep1 && ip link set sleep0 up"
                  " && ip link set sleep1 up") == 0;
}

/* A socket whose interface goes down has an error to tell, and is not ready for ever. */
static void fall(const char *server_url) {
    struct rp_peer own;
    struct rp_port *server = open_port(server_url, 1, &own);
    CHECK(system("ip link set sleep0 down") == 0);
    (void)time_of(server, GROWN);
    uint64_t took = time_of(server, GROWN);
    CHECK(took > GROWN * 5000000ull, "%d sleeps took %" PRIu64 " ns", GROWN, took);
    CHECK(system("ip link set sleep0 up") == 0);
    rp_port_close(server);
}

static void woken_over(const char *kind) {
    char server_url[RP_URL_TEXT_BYTES], client_url[RP_URL_TEXT_BYTES], told[80];
    if (!has_pair) {
        snprintf(told, sizeof told, "left out, sleeping over %s: root, and ip", kind);
    } else {
        snprintf(server_url, sizeof server_url, "dpdk://198.18.0.1:7400?vdev=net_%s,iface=sleep0",
                 kind);
        snprintf(client_url, sizeof client_url,
                 "dpdk://198.18.0.1:7400?vdev=net_%s,iface=sleep1,ip=198.18.0.2", kind);
        neglect(server_url, client_url);
        wake_both(server_url, client_url);
        fall(server_url);
        snprintf(told, sizeof told, "%s: both are woken by what comes, and not by what stays",
                 kind);
    }
    check_group(told);
}

/* Every file by which anybody here could be called becomes one that says nothing. */
static void withhold(const uint8_t *before) {
    int nothing = open("/dev/null", O_RDWR), count = 0;
    for (int file = 3; file < FILES; file++) {
        char path[32], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        ssize_t size = readlink(path, name, sizeof name - 1);
        int type = 0;
        socklen_t length = sizeof type;
        int is_call = strcmp(name, "anon_inode:[eventfd]") == 0
            || (getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM);
        if (size > 0 && !before[file] && is_call) {
            CHECK(dup2(nothing, file) == file);
            count++;
        }
    }
    close(nothing);
    CHECK(count >= 6, "%d files were found", count);
}

/* Those of ports that were closed before are closed late, and their numbers used again: it waits
 * until none has gone for a while. */
static void list_files(uint8_t *open_ones) {
    for (int same = 0; same < STILL; same++) {
        for (int file = 0; file < FILES; file++) {
            uint8_t is_open = fcntl(file, F_GETFD) >= 0;
            same = open_ones[file] == is_open ? same : 0;
            open_ones[file] = is_open;
        }
        usleep(10000);
    }
}

static void withheld(void) {
    static uint8_t before[FILES];
    struct rp_peer own, at, client_at;
    list_files(before);
    struct rp_port *server = open_port(url, 1, &own), *client = open_port(url, 0, &at);
    meet(server, client, &at, &client_at);
    withhold(before);
    uint32_t up = send_to_sleeper(client, &at, server);
    uint32_t down = send_to_sleeper(server, &client_at, client);
    CHECK(up <= ROUNDS / 2 && down <= ROUNDS / 2, "who called? %u, %u", up, down);
    check_group("calls are withheld in both directions: all that is sent is received all the same");
    /* the ports are left: what their threads are ended by is withheld, too */
}

/* Nothing comes: sleeps grow until they are long. */
static void idle(void) {
    struct rp_peer own, at, client_at;
    struct rp_port *server = open_port(url, 1, &own), *client = open_port(url, 0, &at);
    meet(server, client, &at, &client_at);
    for (int i = 0; i < GROWN; i++) {
        (void)rp_port_transport(server)->wait(server, HOUR_NS);
        (void)rp_port_transport(client)->wait(client, HOUR_NS);
        (void)take(server, NULL);
        (void)take(client, NULL);
    }
    uint64_t start = rp_clock_ns();
    CHECK(rp_port_transport(server)->wait(server, HOUR_NS) == 0
          && rp_port_transport(client)->wait(client, HOUR_NS) == 0);
    CHECK(rp_clock_ns() - start > 15000000, "two sleeps of 10 ms ended before their time");
    rp_port_close(client);
    rp_port_close(server);
    check_group("idle ports sleep 10 ms at a time");
}

int main(void) {
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    alarm(SECONDS);
    make_pair();
    woken_over("af_packet");
    woken_over("af_xdp");
    void (*const tests[])(void) = {woken, idle, withheld};
    for (int i = 0; i < 3; i++) {
        snprintf(url, sizeof url, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=/tmp/%s_%d_%d",
                 "test_sleep", (int)getpid(), i);
        tests[i]();
    }
    snprintf(url, sizeof url, "/tmp/test_sleep_%d_2", (int)getpid());
    (void)unlink(url);
    return check_done("test_sleep");
}
