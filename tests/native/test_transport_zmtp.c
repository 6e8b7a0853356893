/* The ZMTP server under peers that say anything in any pieces, by one seed; under the sanitizers
 * where make native-san runs it. What libzmq makes of it is in tests/server/test_zmq.py.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process.h"
#include "base/random.h"
#include "protocol/status.h"
#include "transport/transport.h"
#include "transport/transport_zmtp_parts.h"
#include "transport/url.h"
#include "zmtp_second.h"

enum { PEERS = 24, MTU = 1024, SAID_MAX = 40000, STEPS = 12000 };

struct stranger {
    int socket;
    uint32_t size, sent;
    uint32_t frames; /* good ones, of its number in every byte; 0 where it says nonsense */
    uint8_t said[SAID_MAX];
};

static struct stranger strangers[PEERS];
static struct rp_random chance;
static uint64_t got, wrong;

static void add(struct stranger *stranger, const void *bytes, size_t size) {
    memcpy(stranger->said + stranger->size, bytes, size);
    stranger->size += (uint32_t)size;
}

static void add_frame(struct stranger *stranger, uint8_t flags, uint8_t fill, uint32_t size) {
    uint8_t head[9] = {flags, (uint8_t)size}, body[2 * MTU];
    memset(body, fill, size);
    if (size > 255 || flags & 2) {
        memset(head, 0, sizeof head);
        head[0] = flags | 2;
        head[7] = (uint8_t)(size >> 8);
        head[8] = (uint8_t)size;
    }
    add(stranger, head, head[0] & 2 ? 9 : 2);
    add(stranger, body, size);
}

/* Every third one is good; the others are that with bytes changed, or junk all over. */
static void prepare(struct stranger *stranger, int number, const struct sockaddr_in *where) {
    static const uint8_t greeting[64] = {[0] = 0xff, [9] = 0x7f, [10] = 3, [12] = 'N',
                                         [13] = 'U', [14] = 'L', [15] = 'L'};
    static const uint8_t ready[] = {4, 6, 5, 'R', 'E', 'A', 'D', 'Y'};
    memset(stranger, 0, sizeof *stranger);
    add(stranger, greeting, sizeof greeting);
    add(stranger, ready, sizeof ready);
    uint32_t frames = 1 + (uint32_t)rp_random_below(&chance, 20);
    for (uint32_t i = 0; i < frames; i++) {
        uint32_t size = 1 + (uint32_t)rp_random_below(&chance, MTU);
        add_frame(stranger, (uint8_t)rp_random_below(&chance, 2), (uint8_t)(1 + number), size);
    }
    if (number % 3 == 0) {
        stranger->frames = frames;
    }
    for (uint32_t i = 0; number % 3 && i < 1 + rp_random_below(&chance, 40); i++) {
        uint64_t at = rp_random_below(&chance, number % 3 == 1 ? stranger->size : 100);
        stranger->said[at] = (uint8_t)rp_random_next(&chance);
    }
    stranger->socket = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(stranger->socket >= 0);
    CHECK(connect(stranger->socket, (const struct sockaddr *)(const void *)where, sizeof *where)
          == 0, "%s", strerror(errno));
}

/* Takes what there is; echoes some of it, so that sending meets peers that have gone. */
static void turn(struct rp_port *port) {
    const struct rp_transport *transport = rp_port_transport(port);
    struct rp_packet packets[RP_BURST], answers[RP_BURST];
    uint32_t count = transport->rx_burst(port, packets, RP_BURST);
    uint32_t leased = transport->tx_lease(port, answers, count);
    for (uint32_t i = 0; i < count; i++) {
        int good = packets[i].size > 0 && packets[i].size <= MTU;
        for (uint32_t j = 1; good && j < packets[i].size; j++) {
            good = packets[i].data[j] == packets[i].data[0];
        }
        got++;
        wrong += !good;
        answers[i].peer = packets[i].peer;
        answers[i].size = packets[i].size;
        memcpy(answers[i].data, packets[i].data, packets[i].size);
    }
    transport->tx_send(port, answers, leased);
    transport->rx_release(port, packets, count);
}

static void speak(struct stranger *stranger) {
    uint32_t left = stranger->size - stranger->sent;
    uint32_t size = 1 + (uint32_t)rp_random_below(&chance, 700);
    ssize_t sent = send(stranger->socket, stranger->said + stranger->sent,
                        size < left ? size : left, MSG_NOSIGNAL | MSG_DONTWAIT);
    stranger->sent += sent > 0 ? (uint32_t)sent : 0;
    if (sent < 0 && errno != EAGAIN) {
        stranger->sent = stranger->size; /* hung up on */
    }
}

static void check_strangers(void) {
    struct rp_port_options options = {.serve = 1, .mtu = MTU};
    struct sockaddr_in where = {.sin_family = AF_INET};
    struct rp_port *port;
    struct rp_peer server;
    char bound[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES];
    uint64_t wanted = 0, before = 0;
    rp_random_seed(&chance, 7);
    CHECK(rp_port_open(&port, "zmq+tcp://127.0.0.1:0", &options, &server, bound, error) == 0, "%s",
          error);
    where.sin_port = htons((uint16_t)atoi(strrchr(bound, ':') + 1));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < PEERS; i++) {
        prepare(&strangers[i], i, &where);
    }
    for (int step = 0; step < STEPS; step++) {
        int number = (int)rp_random_below(&chance, PEERS);
        struct stranger *stranger = &strangers[number];
        if (stranger->sent < stranger->size) {
            speak(stranger);
        } else if (rp_random_below(&chance, 8) == 0) { /* another one takes its place */
            wanted += stranger->frames;
            close(stranger->socket);
            prepare(stranger, number, &where);
        }
        turn(port);
    }
    for (int i = 0; i < PEERS; i++) {
        wanted += strangers[i].sent == strangers[i].size ? strangers[i].frames : 0;
        close(strangers[i].socket);
    }
    do {
        before = got;
        for (int i = 0; i < 1000; i++) {
            turn(port);
        }
    } while (got != before);
    CHECK(got >= wanted / 2 && wanted > 100, "%" PRIu64 " of %" PRIu64, got, wanted);
    CHECK(wrong < got / 2, "%" PRIu64 " of %" PRIu64 " are not as they were sent", wrong, got);
    rp_port_close(port);
    check_group("zmtp: strangers that say anything in any pieces");
}

/* ---- the port ---- */

static char error[RP_URL_ERROR_BYTES];

static int open_port(struct rp_port **port, const char *url) {
    struct rp_port_options options = {.serve = 1, .mtu = MTU};
    char bound[RP_URL_TEXT_BYTES];
    struct rp_peer server;
    *port = NULL;
    int status = rp_port_open(port, url, &options, &server, bound, error);
    CHECK(!status == !!*port && (!status || error[0]));
    return status;
}

/* The status of opening a port with a limit of this process lowered. */
static int open_with(int limit, rlim_t most) {
    struct rlimit before, low;
    struct rp_port *port;
    CHECK(getrlimit(limit, &before) == 0);
    low = (struct rlimit){most, before.rlim_max};
    CHECK(setrlimit(limit, &low) == 0);
    int status = open_port(&port, "zmq+tcp://127.0.0.1:0");
    CHECK(setrlimit(limit, &before) == 0);
    return status;
}

/* Given ports that open and close, and some that cannot: no descriptor, no memory, an address that
 * is taken. Expect a status, and no memory and no descriptor more than before. */
static void check_given_back(void) {
    size_t heap = 0, mapped = 0;
    int open = 0;
    for (int round = 0; round < 30; round++) {
        struct rp_port *port, *other;
        char url[RP_URL_TEXT_BYTES];
        struct sockaddr_in where;
        socklen_t size = sizeof where;
        CHECK(open_port(&port, "zmq+tcp://127.0.0.1:0") == 0);
        int listener = ((struct zmtp_port *)(void *)port)->listener;
        CHECK(getsockname(listener, (struct sockaddr *)(void *)&where, &size) == 0);
        snprintf(url, sizeof url, "zmq+tcp://127.0.0.1:%u", ntohs(where.sin_port));
        CHECK(open_port(&other, url) == -RP_SYSTEM);
        CHECK(strstr(error, "the port is taken by another program"), "%s", error);
        CHECK(strncmp(error, url, strlen(url)) == 0, "%s", error);
        rp_port_close(port);
        CHECK(open_with(RLIMIT_NOFILE, 0) == -RP_SYSTEM);
        CHECK(strstr(error, "zmq+tcp://127.0.0.1:0: no port: Too many open files"), "%s", error);
#if !defined(__SANITIZE_ADDRESS__)
        CHECK(open_with(RLIMIT_AS, mapped_bytes() + (4 << 20)) == -RP_NO_MEMORY);
#endif
        heap = round == 9 ? heap_bytes() : heap;
        mapped = round == 9 ? mapped_bytes() : mapped;
        open = round == 9 ? open_descriptors() : open;
    }
    CHECK(heap_bytes() <= heap, "%zu bytes were kept", heap_bytes() - heap);
    CHECK(mapped_bytes() <= mapped, "%zu bytes stay mapped", mapped_bytes() - mapped);
    CHECK(open_descriptors() == open, "%d descriptors stay", open_descriptors() - open);
    check_group("zmtp: what is closed, or could not be opened, is given back");
}

/* Given a process without an input, so that the port's first descriptor is 0. Expect it closed with
 * the port, and none of a port's to be a started program's. Expect each second counted. */
static void check_descriptors(void) {
    struct rp_port *port;
    struct zmtp_port *inside;
    int input = fcntl(0, F_DUPFD_CLOEXEC, 3), inherited = inherited_descriptors();
    close(0);
    CHECK(open_port(&port, "zmq+tcp://127.0.0.1:0") == 0);
    inside = (struct zmtp_port *)(void *)port;
    CHECK(fcntl(0, F_GETFD) == FD_CLOEXEC && inherited_descriptors() == inherited);
#ifndef RP_POSIX
    struct itimerspec timer;
    CHECK(timerfd_gettime(inside->ready.timer, &timer) == 0);
    CHECK(timer.it_interval.tv_sec == 1 && timer.it_interval.tv_nsec == 0);
    CHECK(fcntl(inside->ready.timer, F_GETFL) & O_NONBLOCK, "a turn never waits for it");
#endif
    uint32_t before = inside->seconds;
    for (uint32_t i = 1; i <= 3; i++) {
        pass_second(inside);
        rp_zmtp_second(inside);
        CHECK(inside->seconds == before + i, "%u and not %u", inside->seconds, before + i);
    }
    rp_port_close(port);
    CHECK(fcntl(0, F_GETFD) < 0, "0 is a descriptor as any other");
    CHECK(input < 0 || (dup2(input, 0) == 0 && close(input) == 0));
    check_group("zmtp: descriptors, and the seconds they tell");
}

/* ---- one who speaks, piece by piece ---- */

static struct rp_port *served;

static struct zmtp_port *inside(void) {
    return (struct zmtp_port *)(void *)served;
}

static int dial(void) {
    struct sockaddr_in6 where;
    socklen_t size = sizeof where;
    struct sockaddr *at = (struct sockaddr *)(void *)&where;
    CHECK(getsockname(inside()->listener, at, &size) == 0);
    int made = socket(at->sa_family, SOCK_STREAM, 0);
    CHECK(made >= 0 && connect(made, at, size) == 0);
    return made;
}

/* Says the bytes, and turns until the port has read them, or has hung up on who said them. */
static void say(int socket, const void *bytes, size_t size) {
    struct connection *connection = &inside()->connections[0];
    struct rp_packet packets[RP_BURST];
    struct pollfd there = {.events = POLLIN};
    while (connection->stage == FREE) {
        CHECK(rp_port_transport(served)->rx_burst(served, packets, RP_BURST) == 0);
    }
    there.fd = connection->socket;
    CHECK(send(socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    CHECK(poll(&there, 1, -1) == 1);
    for (int i = 0; i < 4; i++) {
        CHECK(rp_port_transport(served)->rx_burst(served, packets, RP_BURST) == 0);
    }
}

/* The datagrams of one burst, each to be of these bytes, its token its own. */
static void take(const char *fills, uint32_t size) {
    struct rp_packet packets[RP_BURST];
    struct pollfd there = {.fd = inside()->connections[0].socket, .events = POLLIN};
    uint32_t count = (uint32_t)strlen(fills);
    memset(packets, 0xff, sizeof packets);
    CHECK(poll(&there, 1, -1) == 1);
    CHECK(rp_port_transport(served)->rx_burst(served, packets, RP_BURST) == count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(packets[i].size == size && packets[i].data[0] == fills[i]);
        CHECK(packets[i].misdirected == 0 && packets[i].use_port == 0, "nothing is left of before");
        for (uint32_t k = 0; k < i; k++) {
            CHECK(packets[i].token != packets[k].token, "one slot for two");
        }
    }
    rp_port_transport(served)->rx_release(served, packets, count);
}

static void answer(const struct rp_peer *peer, uint8_t fill, uint32_t size) {
    struct rp_packet packet;
    CHECK(rp_port_transport(served)->tx_lease(served, &packet, 1) == 1);
    packet.peer = *peer;
    packet.size = size;
    memset(packet.data, fill, size);
    rp_port_transport(served)->tx_send(served, &packet, 1);
}

static const uint8_t greeting[64] = {[0] = 0xff, [9] = 0x7f, [10] = 3, [12] = 'N',
                                     [13] = 'U', [14] = 'L', [15] = 'L'};
static const uint8_t ready[] = {4, 6, 5, 'R', 'E', 'A', 'D', 'Y'};

/* Given a greeting, READY and frames, each cut at every byte, and all of them in one. Expect each
 * datagram as soon as its last byte is there. */
static void check_cut(const char *url) {
    uint8_t all[sizeof greeting + sizeof ready + 3];
    memcpy(all, greeting, sizeof greeting);
    memcpy(all + sizeof greeting, ready, sizeof ready);
    memcpy(all + sizeof greeting + sizeof ready, "\0\1a", 3);
    for (size_t cut = 1; cut <= sizeof all; cut++) {
        CHECK(open_port(&served, url) == 0, "%s", error);
        int socket = dial();
        struct connection *connection = &inside()->connections[0];
        if (cut < sizeof all) {
            say(socket, all, cut);
            CHECK(connection->stage != FREE, "hung up on at byte %zu", cut);
        }
        CHECK(cut == sizeof all || fcntl(connection->socket, F_GETFD) == FD_CLOEXEC);
        while (connection->stage == FREE) {
            (void)rp_port_transport(served)->rx_burst(served, NULL, 0);
        }
        const uint8_t *rest = cut < sizeof all ? all + cut : all;
        size_t size = cut < sizeof all ? sizeof all - cut : sizeof all;
        CHECK(send(socket, rest, size, MSG_NOSIGNAL) == (ssize_t)size);
        take("a", 1);
        CHECK(send(socket, "\0\1b\0\1c\0\1d", 9, MSG_NOSIGNAL) == 9);
        take("bcd", 1);
        close(socket);
        rp_port_close(served);
    }
}

/* Given greetings and commands that are nearly right. Expect to be hung up on. */
static void check_nearly(void) {
    static const struct {
        size_t at;
        uint8_t byte;
    } nearly[] = {{0, 0xfe}, {9, 0x7e}, {10, 2}, {12, 'P'}, {31, 1}};
    static const uint8_t short_ready[] = {4, 5, 5, 'R', 'E', 'A', 'D', 'Y'};
    for (size_t i = 0; i < 6; i++) {
        uint8_t said[sizeof greeting];
        struct connection *connection;
        CHECK(open_port(&served, "zmq+tcp://127.0.0.1:0") == 0);
        int socket = dial();
        connection = &inside()->connections[0];
        memcpy(said, greeting, sizeof said);
        if (i < 5) {
            said[nearly[i].at] = nearly[i].byte;
        }
        say(socket, said, sizeof said);
        CHECK((connection->stage == FREE) == (i < 5), "case %zu", i);
        if (i == 5) {
            say(socket, short_ready, sizeof short_ready);
            CHECK(connection->stage == FREE, "READY has five letters");
        }
        CHECK(inside()->ended == 1);
        close(socket);
        rp_port_close(served);
    }
    check_group("zmtp: what is nearly right is wrong");
}

/* Given answers at the edge of a short frame, and a port that closes. Expect 255 bytes to be short,
 * 256 long; a wake that is seen; and the connection closed with its port. */
static void check_edges(void) {
    struct rp_peer server;
    struct rp_port_options options = {.serve = 1, .mtu = MTU};
    char bound[RP_URL_TEXT_BYTES];
    uint8_t heard[1024];
    CHECK(rp_port_open(&served, "zmq+tcp://127.0.0.1:0", &options, &server, bound, error) == 0);
    CHECK(strncmp(bound, "zmq+tcp://127.0.0.1:", 20) == 0 && atoi(bound + 20) > 0, "%s", bound);
    CHECK(rp_port_base(served)->receive_budget > 0);
    int socket = dial();
    say(socket, greeting, sizeof greeting);
    say(socket, ready, sizeof ready);
    CHECK(recv(socket, heard, 64 + 30, MSG_WAITALL) == 64 + 30);
    struct rp_peer peer = {.size = 16};
    memcpy(peer.bytes + 4, &inside()->connections[0].generation, 4);
    for (uint32_t size = 254; size <= 257; size++) {
        size_t head = size < 256 ? 2 : 9;
        answer(&peer, 'x', size);
        CHECK(recv(socket, heard, head + size, MSG_WAITALL) == (ssize_t)(head + size));
        CHECK(heard[0] == (size < 256 ? 0 : 2) && heard[head] == 'x', "%u bytes", size);
        CHECK(size < 256 ? heard[1] == size : heard[7] == size >> 8 && heard[8] == (size & 255));
    }
    static const uint8_t ping[] = {4, 7, 4, 'P', 'I', 'N', 'G', 0, 9};
    static const uint8_t pong[] = {4, 5, 4, 'P', 'O', 'N', 'G'};
    say(socket, ping, sizeof ping);
    CHECK(recv(socket, heard, sizeof pong, MSG_WAITALL) == sizeof pong);
    CHECK(memcmp(heard, pong, sizeof pong) == 0, "without a context, too");
    static const uint8_t pings[] = {4, 8, 4, 'P', 'I', 'N', 'G', 0, 9, 'a',
                                    4, 8, 4, 'P', 'I', 'N', 'G', 0, 9, 'b'};
    for (int i = 0; i < 2; i++) { /* those that come together have one answer, the newest's */
        say(socket, pings, sizeof pings);
        CHECK(recv(socket, heard, 8, MSG_WAITALL) == 8 && heard[1] == 6 && heard[7] == 'b');
    }
    static const uint8_t frames[] = {0, 1, 'a', 0, 1, 'b'};
    struct rp_packet packet;
    send(socket, frames, sizeof frames, MSG_NOSIGNAL);
    for (uint32_t i = 0; i < 2; i++) { /* the first of them leaves the second behind */
        CHECK(rp_port_transport(served)->wait(served, 1000000000) == 1);
        CHECK(rp_port_transport(served)->rx_burst(served, &packet, 1) == 1);
        CHECK(i > 0 || rp_port_base(served)->left_behind == 1);
        rp_port_transport(served)->rx_release(served, &packet, 1);
    }
    CHECK(rp_port_transport(served)->rx_burst(served, &packet, 1) == 0);
    CHECK(rp_port_base(served)->left_behind == 0);
    struct pollfd wake = {.fd = inside()->wake.read, .events = POLLIN};
    CHECK(poll(&wake, 1, 0) == 0);
    rp_port_transport(served)->wake(served);
    CHECK(poll(&wake, 1, 0) == 1);
    rp_port_close(served);
    CHECK(recv(socket, heard, 1, 0) == 0, "its connections end with the port");
    close(socket);
    CHECK(open_port(&served, "zmq+tcp://no.such.host.invalid:1") < 0);
    check_group("zmtp: short and long frames, a wake, an end");
}

int main(void) {
    check_cut("zmq+tcp://127.0.0.1:0");
    check_cut("zmq+tcp://[::1]:0");
    check_group("zmtp: what is said in pieces is heard when it is whole");
    check_nearly();
    check_edges();
    check_given_back();
    check_descriptors();
    check_strangers();
    return check_done("test_transport_zmtp");
}
