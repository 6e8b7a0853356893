/* The ZMTP server under peers that say anything in any pieces, by one seed; under the sanitizers
 * where make native-san runs it. What libzmq makes of it is in tests/test_zmq.py.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "process.h"
#include "random.h"
#include "status.h"
#include "transport.h"
#include "transport_zmtp_parts.h"
#include "url.h"

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

static void add(struct stranger *stranger, const void *bytes, size_t size)
{
    memcpy(stranger->said + stranger->size, bytes, size);
    stranger->size += (uint32_t)size;
}

static void add_frame(struct stranger *stranger, uint8_t flags, uint8_t fill, uint32_t size)
{
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
static void prepare(struct stranger *stranger, int number, const struct sockaddr_in *where)
{
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
static void turn(struct rp_port *port)
{
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

static void speak(struct stranger *stranger)
{
    uint32_t left = stranger->size - stranger->sent;
    uint32_t size = 1 + (uint32_t)rp_random_below(&chance, 700);
    ssize_t sent = send(stranger->socket, stranger->said + stranger->sent,
                        size < left ? size : left, MSG_NOSIGNAL | MSG_DONTWAIT);
    stranger->sent += sent > 0 ? (uint32_t)sent : 0;
    if (sent < 0 && errno != EAGAIN) {
        stranger->sent = stranger->size; /* hung up on */
    }
}

static void check_strangers(void)
{
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

static int open_port(struct rp_port **port, const char *url)
{
    struct rp_port_options options = {.serve = 1, .mtu = MTU};
    char bound[RP_URL_TEXT_BYTES];
    struct rp_peer server;
    *port = NULL;
    int status = rp_port_open(port, url, &options, &server, bound, error);
    CHECK(!status == !!*port && (!status || error[0]));
    return status;
}

/* The status of opening a port with a limit of this process lowered. */
static int open_with(int limit, rlim_t most)
{
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
static void check_given_back(void)
{
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
        CHECK(open_with(RLIMIT_NOFILE, 0) == -RP_NO_MEMORY);
        CHECK(strstr(error, "zmq+tcp://127.0.0.1:0: no memory for a port"), "%s", error);
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
static void check_descriptors(void)
{
    struct rp_port *port;
    struct zmtp_port *inside;
    struct itimerspec timer, soon = {.it_value.tv_nsec = 1};
    int input = fcntl(0, F_DUPFD_CLOEXEC, 3), inherited = inherited_descriptors();
    close(0);
    CHECK(open_port(&port, "zmq+tcp://127.0.0.1:0") == 0);
    inside = (struct zmtp_port *)(void *)port;
    CHECK(fcntl(0, F_GETFD) == FD_CLOEXEC && inherited_descriptors() == inherited);
    CHECK(timerfd_gettime(inside->timer, &timer) == 0);
    CHECK(timer.it_interval.tv_sec == 1 && timer.it_interval.tv_nsec == 0);
    CHECK(fcntl(inside->timer, F_GETFL) & O_NONBLOCK, "a turn never waits for it");
    uint32_t before = inside->seconds;
    for (uint32_t i = 1; i <= 3; i++) {
        CHECK(timerfd_settime(inside->timer, 0, &soon, NULL) == 0);
        while (inside->seconds < before + i) {
            rp_zmtp_second(inside);
        }
        CHECK(inside->seconds == before + i, "%u and not %u", inside->seconds, before + i);
    }
    rp_port_close(port);
    CHECK(fcntl(0, F_GETFD) < 0, "0 is a descriptor as any other");
    CHECK(input < 0 || (dup2(input, 0) == 0 && close(input) == 0));
    check_group("zmtp: descriptors, and the seconds they tell");
}

int main(void)
{
    check_given_back();
    check_descriptors();
    check_strangers();
    return check_done("test_transport_zmtp");
}
