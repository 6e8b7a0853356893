/* Connections of the ZMTP server: who has a place and who gives it up, what an address means once
 * its connection has gone, slow readers, and a system that has no descriptor left. The dialling
 * side is plain sockets.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "check.h"
#include "status.h"
#include "transport.h"
#include "transport_zmtp_parts.h"
#include "url.h"

enum { MTU = 4096, ALL = RP_ZMTP_CONNECTIONS_MAX, WELCOME = 64 + 30 };

static struct rp_port *port;
static struct sockaddr_in where;

static struct zmtp_port *inside(void)
{
    return (struct zmtp_port *)(void *)port;
}

static void open_port(void)
{
    struct rp_port_options options = {.serve = 1, .mtu = MTU};
    char bound[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES];
    struct rp_peer server;
    CHECK(rp_port_open(&port, "zmq+tcp://127.0.0.1:0", &options, &server, bound, error) == 0, "%s",
          error);
    where = (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)atoi(strrchr(bound, ':') + 1)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static uint64_t fact(const char *name)
{
    struct rp_fact facts[RP_FACTS_MAX];
    uint32_t count = rp_port_tell(port, facts);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp((const char *)facts[i].name, name) == 0) {
            return facts[i].value;
        }
    }
    CHECK(0, "no fact is named %s", name);
    return 0;
}

/* Takes what there is, into `packet` where it is a datagram; nothing is answered. */
static uint32_t turn(struct rp_packet *packet)
{
    struct rp_packet packets[RP_BURST];
    uint32_t count = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
    if (count && packet) {
        *packet = packets[0];
    }
    rp_port_transport(port)->rx_release(port, packets, count);
    return count;
}

static int dial(void)
{
    int made = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(made >= 0 && connect(made, (void *)&where, sizeof where) == 0, "%s", strerror(errno));
    return made;
}

static void say(int socket, const void *bytes, size_t size)
{
    CHECK(send(socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size, "%s", strerror(errno));
}

static void hear(int socket, void *bytes, size_t size)
{
    CHECK(recv(socket, bytes, size, MSG_WAITALL) == (ssize_t)size, "%s", strerror(errno));
}

/* A connection that has a place; where `shakes`, one that has shaken hands. */
static int join(int shakes)
{
    static const uint8_t greeting[64] = {[0] = 0xff, [9] = 0x7f, [10] = 3, [12] = 'N',
                                         [13] = 'U', [14] = 'L', [15] = 'L'};
    static const uint8_t ready[] = {4, 6, 5, 'R', 'E', 'A', 'D', 'Y'};
    uint8_t welcome[WELCOME];
    uint64_t uses = inside()->uses, refused = fact("connections_refused");
    int made = dial();
    while (inside()->uses == uses && fact("connections_refused") == refused) {
        turn(NULL);
    }
    if (shakes && inside()->uses != uses) {
        say(made, greeting, sizeof greeting);
        say(made, ready, sizeof ready);
        for (uint32_t seen = 0; seen < WELCOME;) {
            turn(NULL);
            ssize_t got = recv(made, welcome + seen, WELCOME - seen, MSG_DONTWAIT);
            seen += got > 0 ? (uint32_t)got : 0;
        }
        turn(NULL); /* READY may have come behind the greeting's visit */
        turn(NULL);
    }
    return made;
}

/* Whether the other end has hung up; what it said is passed over. */
static int has_ended(int socket)
{
    uint8_t bytes[4096];
    ssize_t got;
    while ((got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || errno != EAGAIN;
}

/* A datagram from `socket`, as the server got it. */
static struct rp_packet ask(int socket)
{
    static const uint8_t frame[] = {0, 4, 'a', 's', 'k', '!'};
    struct rp_packet packet;
    say(socket, frame, sizeof frame);
    while (!turn(&packet)) {
    }
    CHECK(packet.size == 4);
    return packet;
}

static void answer(const struct rp_peer *peer, uint8_t fill, uint32_t size)
{
    struct rp_packet packet;
    CHECK(rp_port_transport(port)->tx_lease(port, &packet, 1) == 1);
    packet.peer = *peer;
    packet.size = size;
    memset(packet.data, fill, size);
    rp_port_transport(port)->tx_send(port, &packet, 1);
}

/* A datagram each way: the connection is in use. */
static void use(int socket)
{
    struct rp_packet packet = ask(socket);
    answer(&packet.peer, 'a', 8);
}

static void close_all(const int *sockets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        close(sockets[i]);
    }
    rp_port_close(port);
}

/* ---- what is checked ---- */

static void check_successor(void)
{
    open_port();
    int first = join(1);
    struct rp_peer gone = ask(first).peer;
    CHECK(rp_port_transport(port)->host(port, &gone) == 0, "this machine is no other host");
    close(first);
    while (fact("connections") != 0) {
        turn(NULL);
    }
    int second = join(1);
    struct rp_peer there = ask(second).peer;
    CHECK(memcmp(gone.bytes, there.bytes, 4) == 0, "the place is the same");
    answer(&gone, 'x', 9);
    CHECK(rp_port_base(port)->dropped_out == 1, "nobody is there");
    answer(&there, 'y', 9);
    uint8_t frame[11];
    hear(second, frame, sizeof frame);
    CHECK(frame[0] == 0 && frame[1] == 9 && frame[2] == 'y', "the successor got %c", frame[2]);
    close_all(&second, 1);
    check_group("an answer to a connection that has gone does not reach its successor");
}

/* Every place is taken by who shook hands; some were answered. The oldest goes first. */
static void check_who_goes(void)
{
    int sockets[ALL], newcomers[7];
    struct itimerspec never = {0};
    open_port();
    CHECK(timerfd_settime(inside()->timer, 0, &never, NULL) == 0); /* time is what is said here */
    for (int i = 0; i < ALL; i++) {
        sockets[i] = join(1);
    }
    CHECK(fact("connections") == ALL && fact("connections_displaced") == 0);
    use(sockets[0]);
    newcomers[0] = join(1);
    newcomers[1] = join(1);
    CHECK(has_ended(sockets[1]) && has_ended(sockets[2]), "who was never answered, the oldest");
    CHECK(!has_ended(sockets[0]) && !has_ended(sockets[3]) && !has_ended(newcomers[0]));
    newcomers[2] = join(0); /* takes sockets[3]'s place, and is the first to lose it */
    newcomers[3] = join(1);
    CHECK(has_ended(sockets[3]) && has_ended(newcomers[2]) && !has_ended(sockets[4]));
    CHECK(fact("connections_displaced") == 4 && fact("connections") == ALL);
    for (int i = 4; i < ALL; i++) {
        use(sockets[i]);
    }
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            use(newcomers[i]);
        }
    }
    inside()->seconds += RP_ZMTP_IDLE_S - 1;
    newcomers[4] = join(1);
    CHECK(has_ended(newcomers[4]) && fact("connections_refused") == 1, "all are in use");
    use(sockets[0]);
    inside()->seconds += 1;
    newcomers[5] = join(1);
    CHECK(has_ended(sockets[4]) && !has_ended(sockets[0]) && !has_ended(sockets[5]),
          "who was answered longest ago, once that is long");
    newcomers[6] = join(1);
    CHECK(has_ended(newcomers[5]) && !has_ended(sockets[5]), "a place's past is not its owner's");
    for (int i = 0; i < 7; i++) {
        close(newcomers[i]);
    }
    close_all(sockets, ALL);
    check_group("a newcomer takes the place of who made least of it, for longest");
}

/* Another machine's connections, made up: places are asked for as accepting does. */
static void check_share(void)
{
    enum { FAR = 7 };
    int sockets[RP_ZMTP_OF_A_HOST];
    open_port();
    for (int i = 0; i < RP_ZMTP_OF_A_HOST; i++) {
        sockets[i] = join(1);
        CHECK(inside()->connections[i].stage == OPEN);
        inside()->connections[i].host = FAR;
        inside()->connections[i].answered = 1;
    }
    struct rp_peer peer = ask(sockets[9]).peer;
    CHECK(rp_port_transport(port)->host(port, &peer) == FAR);
    CHECK(rp_zmtp_place(inside(), FAR) == NULL, "its share is in use");
    CHECK(rp_zmtp_place(inside(), 0)->stage == FREE && rp_zmtp_place(inside(), 8)->stage == FREE);
    CHECK(fact("connections") == RP_ZMTP_OF_A_HOST);
    inside()->connections[5].answered = 0;
    CHECK(rp_zmtp_place(inside(), FAR) == &inside()->connections[5], "it gives up one of its own");
    CHECK(has_ended(sockets[5]) && fact("connections_displaced") == 1);
    CHECK(rp_zmtp_place(inside(), FAR) != NULL, "one less than its share");
    CHECK(fact("connections") == RP_ZMTP_OF_A_HOST - 1);
    close_all(sockets, RP_ZMTP_OF_A_HOST);
    check_group("another machine has its share of the places, and no more");
}

/* Long and short frames to a peer that reads late: every byte, in order. */
static void check_slow_reader(void)
{
    enum { ANSWERS_MIN = 100 };
    static uint8_t frame[MTU + 9];
    open_port();
    int slow = join(1);
    struct rp_peer peer = ask(slow).peer;
    const struct connection *connection = &inside()->connections[0];
    for (int round = 0; round < 3; round++) {
        uint32_t answers = 0;
        while (answers < ANSWERS_MIN || !connection->stalled) {
            answer(&peer, (uint8_t)answers, answers % 3 ? MTU : 200);
            answers++;
        }
        CHECK(rp_port_base(port)->dropped_out == 0 && connection->out_end > 0);
        for (uint32_t i = 0; i < answers; i++) {
            uint32_t size = i % 3 ? MTU : 200, head = i % 3 ? 9 : 2;
            for (uint32_t at = 0; at < head + size;) {
                ssize_t got = recv(slow, frame + at, head + size - at, MSG_DONTWAIT);
                at += got > 0 ? (uint32_t)got : 0;
                turn(NULL);
            }
            const uint8_t shorter[] = {0, 200};
            const uint8_t longer[] = {2, 0, 0, 0, 0, 0, 0, MTU >> 8, MTU & 255};
            CHECK(memcmp(frame, i % 3 ? longer : shorter, head) == 0, "head of answer %u", i);
            for (uint32_t k = 0; k < size; k++) {
                CHECK(frame[head + k] == (uint8_t)i, "byte %u of answer %u", k, i);
            }
        }
        CHECK(!connection->stalled && connection->out_end == 0);
    }
    close_all(&slow, 1);
    check_group("who reads late gets every byte, in order");
}

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Nobody spins on a listener whose newcomer cannot be taken; he comes in when there is room. */
static void check_no_descriptor(void)
{
    struct rlimit before, none;
    open_port();
    int first = join(1), second = dial();
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int i = 0; i < 1000; i++) {
        turn(NULL);
    }
    uint64_t failed = fact("accepts_failed");
    CHECK(failed > 0 && failed < 100, "%" PRIu64 " tries in 1000 turns", failed);
    ask(first); /* others are served meanwhile */
    while (rp_port_transport(port)->wait(port, 1)) { /* a second may be over just now */
        turn(NULL);
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    while (fact("connections") != 2) {
        rp_port_transport(port)->wait(port, 100000000u);
        turn(NULL);
    }
    close(second);
    close_all(&first, 1);
    check_group("without a descriptor for a newcomer nobody spins, and he comes in later");
}

static void check_nothing_stays_open(void)
{
    struct rp_port_options options = {.serve = 1, .mtu = MTU};
    char url[RP_URL_TEXT_BYTES], bound[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES];
    struct rp_port *other;
    struct rp_peer server;
    open_port();
    int before = descriptors();
    snprintf(url, sizeof url, "zmq+tcp://127.0.0.1:%u", ntohs(where.sin_port));
    CHECK(rp_port_open(&other, url, &options, &server, bound, error) == -RP_SYSTEM);
    CHECK(strstr(error, "the port is taken by another program") != NULL, "%s", error);
    CHECK(descriptors() == before, "%d descriptors stay", descriptors() - before);
    rp_port_close(port);
    CHECK(descriptors() < before);
    check_group("a port that cannot be opened leaves nothing open");
}

int main(void)
{
    check_successor();
    check_who_goes();
    check_share();
    check_slow_reader();
    check_no_descriptor();
    check_nothing_stays_open();
    return check_done("test_zmtp_connections");
}
