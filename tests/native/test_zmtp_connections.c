/* Connections of the ZMTP server: who has a place and who gives it up, what an address means once
 * its connection has gone, slow readers, and a system that has no descriptor left. The dialling
 * side is plain sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
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
    CHECK(server.size > 0 && memcmp(&server, &rp_port_base(port)->address, sizeof server) == 0);
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
        CHECK(memcmp(welcome, greeting, sizeof greeting) == 0);
        CHECK(memcmp(welcome + sizeof greeting,
                     "\4\34\5READY\13Socket-Type\0\0\0\6ROUTER", WELCOME - 64) == 0);
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
    uint32_t count;
    say(socket, frame, sizeof frame);
    while (!(count = turn(&packet))) {
    }
    CHECK(count == 1 && packet.size == 4);
    return packet;
}

/* The next datagram's bytes; it has to be there soon. */
static void take(uint8_t *bytes, uint32_t size)
{
    struct rp_packet packet = {0};
    uint32_t count = 0;
    for (int i = 0; i < 100 && !count; i++) {
        rp_port_transport(port)->wait(port, 100000000u);
        count = turn(&packet);
    }
    CHECK(count == 1 && packet.size == size, "%u datagrams, %u bytes", count, packet.size);
    memcpy(bytes, packet.data, size); /* its slot is not lent again before the next turn */
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
    errno = EPIPE; /* of another's send; the event was for who had the place before */
    rp_zmtp_drain(inside(), &inside()->connections[0]);
    CHECK(fact("connections") == 1, "nothing had to leave, and nothing failed");
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

static uint8_t due[8 << 20], heard[1 << 16]; /* what a reader is owed, in order */
static size_t due_end, due_first;

/* An answer that is taken whole, or not at all: 1 or 0. */
static int owe(const struct rp_peer *peer, uint8_t fill, uint32_t size)
{
    uint64_t before = rp_port_base(port)->dropped_out;
    answer(peer, fill, size);
    if (rp_port_base(port)->dropped_out != before) {
        return 0;
    }
    const uint8_t head[] = {2, 0, 0, 0, 0, 0, 0, (uint8_t)(size >> 8), (uint8_t)size};
    const uint8_t small[] = {0, (uint8_t)size};
    CHECK(due_end + sizeof head + size <= sizeof due);
    memcpy(due + due_end, size > 255 ? head : small, size > 255 ? 9 : 2);
    due_end += size > 255 ? 9 : 2;
    memset(due + due_end, fill, size);
    due_end += size;
    return 1;
}

static void read_due(int socket, size_t bytes)
{
    for (size_t end = due_first + bytes; due_first < end;) {
        size_t most = end - due_first < sizeof heard ? end - due_first : sizeof heard;
        ssize_t got = recv(socket, heard, most, MSG_DONTWAIT);
        turn(NULL);
        if (got > 0) {
            CHECK(memcmp(heard, due + due_first, (size_t)got) == 0, "byte %zu", due_first);
            due_first += (size_t)got;
        }
    }
}

/* Given a reader so slow that what it is owed fills its place, again and again, of which the
 * network takes a little at a time, and who asks PING meanwhile. Expect every answer that was
 * taken, whole and in order, the PONG among them, and nothing else. */
static void check_backlog(void)
{
    static const uint8_t ping[] = {4, 9, 4, 'P', 'I', 'N', 'G', 0, 9, 'x', 'y'};
    static const uint8_t pong[] = {4, 7, 4, 'P', 'O', 'N', 'G', 'x', 'y'};
    int small = 128 << 10;
    open_port();
    int slow = join(1);
    struct rp_peer peer = ask(slow).peer;
    const struct connection *connection = &inside()->connections[0];
    CHECK(setsockopt(connection->socket, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    uint32_t answers = 0;
    while (connection->out_end < RP_ZMTP_OUT_BYTES / 2) { /* until the network is full */
        CHECK(owe(&peer, (uint8_t)answers++, MTU));
        turn(NULL);
    }
    say(slow, ping, sizeof ping);
    for (int i = 0; i < 10; i++) {
        CHECK(rp_port_transport(port)->wait(port, 100000000u) >= 0);
        turn(NULL);
    }
    memcpy(due + due_end, pong, sizeof pong);
    due_end += sizeof pong;
    for (int round = 0; round < 12; round++) {
        uint32_t before = answers;
        while (owe(&peer, (uint8_t)answers, answers % 3 ? MTU : 200)) {
            answers++;
        }
        CHECK(answers > before && connection->stalled, "round %d: no room was made", round);
        read_due(slow, (due_end - due_first) / 2 + 7919);
    }
    read_due(slow, due_end - due_first);
    for (int i = 0; i < 100; i++) {
        turn(NULL);
    }
    CHECK(recv(slow, heard, sizeof heard, MSG_DONTWAIT) < 0 && errno == EAGAIN, "more than that");
    CHECK(!connection->stalled && connection->out_end == 0);
    close_all(&slow, 1);
    check_group("who reads slowly gets what was taken, whole and in order");
}

/* Given a peer that is gone, which nobody was told yet. Expect its connection to end when it is
 * answered, what it took of memory to be given back, and no signal. */
static void check_hung_up(int reset)
{
    struct linger at_once = {.l_onoff = reset};
    open_port();
    int gone = join(1);
    struct rp_peer peer = ask(gone).peer;
    const struct connection *connection = &inside()->connections[0];
    int option = 0;
    socklen_t size = sizeof option;
    CHECK(getsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &option, &size) == 0);
    CHECK(option, "small answers leave at once");
    CHECK(connection->in[1] != 0 && connection->out[0] != 0);
    CHECK(setsockopt(gone, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close(gone);
    for (int i = 0; i < 10 && fact("connections"); i++) {
        answer(&peer, 'x', MTU);
    }
    CHECK(fact("connections") == 0 && connection->stage == FREE);
    CHECK(connection->in[1] == 0 && connection->out[0] == 0, "its memory is kept");
    uint64_t before = fact("not_taken");
    answer(&peer, 'x', MTU);
    CHECK(fact("not_taken") == before + 1);
    rp_port_close(port);
}

/* Given six who have said a piece of a frame, and a burst for one datagram. Expect four visits, and
 * no news of who is gone, though another process holds its socket still. */
static void check_visits(void)
{
    int sockets[6];
    struct rp_packet packet;
    struct epoll_event events[8];
    open_port();
    for (int i = 0; i < 6; i++) {
        sockets[i] = join(1);
        say(sockets[i], "\0", 1);
    }
    struct zmtp_port *zmtp = inside();
    while (turn(NULL) || zmtp->ring_count) { /* what READY left */
    }
    for (int i = 0; i < 6; i++) {
        rp_zmtp_queue(zmtp, &zmtp->connections[i]);
    }
    uint32_t first = zmtp->ring_first;
    CHECK(rp_port_transport(port)->rx_burst(port, &packet, 1) == 0);
    CHECK((zmtp->ring_first - first) % ALL == 4);
    int held = dup(zmtp->connections[0].socket);
    rp_zmtp_end(zmtp, &zmtp->connections[0]);
    say(sockets[0], "\1", 1);
    struct pollfd there = {.fd = held, .events = POLLIN};
    CHECK(poll(&there, 1, -1) == 1);
    int told = epoll_wait(zmtp->poll, events, 8, 0);
    for (int i = 0; i < told; i++) {
        CHECK(events[i].data.u32 != 0, "it has ended");
    }
    close(held);
    close_all(sockets, 6);
    check_group("a burst visits four for each datagram it may bring");
}

/* Given more commands in one go than a visit takes, a long frame, a frame in two parts, and two in
 * one. Expect each datagram once, whole. */
static void check_frames(void)
{
    enum { COMMANDS = 5 * FRAMES_A_VISIT, SIZE = 300 };
    static const uint8_t command[] = {4, 6, 5, 'O', 'T', 'H', 'E', 'R'};
    uint8_t said[COMMANDS * sizeof command + 3], bytes[SIZE], long_one[9 + SIZE] = {2};
    open_port();
    int client = join(1);
    for (int i = 0; i < COMMANDS; i++) {
        memcpy(said + i * sizeof command, command, sizeof command);
    }
    memcpy(said + sizeof said - 3, "\0\1a", 3);
    say(client, said, sizeof said);
    take(bytes, 1);
    CHECK(bytes[0] == 'a');
    long_one[7] = SIZE >> 8;
    long_one[8] = SIZE & 255;
    for (int i = 0; i < SIZE; i++) {
        long_one[9 + i] = (uint8_t)(i * 7);
    }
    say(client, long_one, sizeof long_one);
    take(bytes, SIZE);
    CHECK(memcmp(bytes, long_one + 9, SIZE) == 0);
    say(client, "\0\3bcd\0\4ef", 9);
    take(bytes, 3);
    CHECK(memcmp(bytes, "bcd", 3) == 0);
    say(client, "gh", 2);
    take(bytes, 4);
    CHECK(memcmp(bytes, "efgh", 4) == 0);
    for (int i = 0; i < 20; i++) {
        CHECK(turn(NULL) == 0, "one that nobody sent");
    }
    close_all(&client, 1);
    check_group("frames behind commands, long ones, parts: each once");
}

/* Given an empty frame, junk, and a second that goes by. Expect each told by its name, who speaks
 * junk hung up on, and who waits woken by what comes. */
static void check_told(void)
{
    static const char *const names[] = {"unusable", "not_taken", "connections_ended",
                                        "connections_refused", "connections_displaced",
                                        "accepts_failed", "connections"};
    struct rp_fact facts[RP_FACTS_MAX];
    uint8_t junk[GREETING];
    open_port();
    int client = join(1), stranger = join(0);
    say(client, "\0\0", 2);
    CHECK(rp_port_transport(port)->wait(port, 600000000000u) == 1, "something is there");
    while (fact("unusable") == 0) {
        turn(NULL);
    }
    memset(junk, 'x', sizeof junk);
    say(stranger, junk, sizeof junk);
    while (fact("connections_ended") == 0) {
        turn(NULL);
    }
    CHECK(has_ended(stranger) && !has_ended(client) && fact("connections") == 1);
    uint32_t count = rp_port_tell(port, facts);
    CHECK(count == sizeof names / sizeof *names, "%u facts", count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = strcmp(names[i], "unusable") == 0 || i == 2 || i == 6;
        CHECK(strcmp((const char *)facts[i].name, names[i]) == 0 && facts[i].value == value,
              "%s: %" PRIu64, (const char *)facts[i].name, (uint64_t)facts[i].value);
    }
    struct itimerspec soon = {.it_value.tv_nsec = 1};
    struct pollfd timer = {.fd = inside()->timer, .events = POLLIN};
    uint32_t before = inside()->seconds;
    CHECK(timerfd_settime(timer.fd, 0, &soon, NULL) == 0 && poll(&timer, 1, 10000) == 1);
    turn(NULL);
    CHECK(inside()->seconds > before, "a second is over");
    close(stranger);
    close_all(&client, 1);
    check_group("what a port tells of itself");
}

/* Given more frames in one piece than a burst takes. Expect all, though nothing follows them. */
static void check_many_at_once(void)
{
    enum { COUNT = 10 * RP_BURST };
    static uint8_t frames[COUNT][3];
    open_port();
    int socket = join(1);
    for (uint32_t i = 0; i < COUNT; i++) {
        frames[i][1] = 1;
        frames[i][2] = (uint8_t)i;
    }
    say(socket, frames, sizeof frames);
    uint32_t got = 0;
    for (uint32_t idle = 0; idle < 1000; idle = got ? idle + 1 : 0) {
        got += turn(NULL);
    }
    CHECK(got == COUNT, "%u of %u", got, COUNT);
    close_all(&socket, 1);
    check_group("what came in one piece is taken in many");
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

int main(void)
{
    check_successor();
    check_who_goes();
    check_share();
    check_slow_reader();
    check_backlog();
    check_hung_up(1);
    check_hung_up(0);
    check_group("an answer to who has hung up ends the connection");
    check_visits();
    check_frames();
    check_told();
    check_many_at_once();
    check_no_descriptor();
    return check_done("test_zmtp_connections");
}
