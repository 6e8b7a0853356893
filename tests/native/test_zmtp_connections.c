/* Connections of the ZMTP server: what an address means once its connection has gone, slow readers,
 * and a system that has no descriptor left.
 */
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "protocol/status.h"
#include "zmtp_dial.h"

static int accept_fails;             /* the number with which the next accept fails, once */
static struct in_addr accepted_from; /* what the next are said to come from, where it is one */
static size_t taken_most;            /* what the network takes of a message, where it is not 0 */

/* The C library's. */
static int accept_from(int listener, struct sockaddr *address, socklen_t *size, int flags) {
    if (accept_fails) {
        errno = accept_fails;
        accept_fails = 0;
        return -1;
    }
    int made = (int)syscall(SYS_accept4, listener, address, size, flags);
    if (made >= 0 && accepted_from.s_addr) {
        ((struct sockaddr_in *)(void *)address)->sin_addr = accepted_from;
    }
    return made;
}

int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags) {
    return accept_from(listener, address, size, flags);
}

int accept(int listener, struct sockaddr *address, socklen_t *size) {
    return accept_from(listener, address, size, 0);
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
    return taken_most ? send(socket, message->msg_iov[0].iov_base, taken_most, flags)
                      : syscall(SYS_sendmsg, socket, message, flags);
}

static void check_successor(void) {
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

/* Long and short frames to a peer that reads late: every byte, in order. */
static void check_slow_reader(void) {
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
        struct rp_peer again = ask(slow).peer;
        CHECK(memcmp(&again, &peer, sizeof peer) == 0, "it has one address");
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
static int owe(const struct rp_peer *peer, uint8_t fill, uint32_t size) {
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

static void read_due(int socket, size_t bytes) {
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
static void check_backlog(void) {
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
static void check_hung_up(int reset) {
    struct linger at_once = {.l_onoff = reset};
    open_port();
    int gone = join(1);
    struct rp_peer peer = ask(gone).peer;
    const struct connection *connection = &inside()->connections[0];
    int option = 0;
    socklen_t size = sizeof option;
    CHECK(getsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &option, &size) == 0);
    CHECK(option, "small answers leave at once");
    CHECK(getsockopt(connection->socket, SOL_SOCKET, SO_KEEPALIVE, &option, &size) == 0);
    CHECK(option, "who is gone without a word is asked for");
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
static void check_visits(void) {
    int sockets[6];
    struct rp_packet packet;
    struct rp_ready_event events[8];
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
    uint32_t told = rp_ready_look(&zmtp->ready, events, 8);
    for (uint32_t i = 0; i < told; i++) {
        CHECK(events[i].key != 0, "it has ended");
    }
    close(held);
    close_all(sockets, 6);
    check_group("a burst visits four for each datagram it may bring");
}

/* Given more commands in one go than a visit takes, a long frame, a frame in two parts, and two in
 * one. Expect each datagram once, whole. */
static void check_frames(void) {
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
    uint8_t largest[9 + MTU] = {2, [7] = MTU >> 8, [8] = MTU & 255, [9] = 'f', [8 + MTU] = 'l'};
    uint8_t whole[MTU];
    say(client, largest, sizeof largest);
    take(whole, MTU);
    CHECK(memcmp(whole, largest + 9, MTU) == 0, "as large as the mtu");
    for (int i = 0; i < 20; i++) {
        CHECK(turn(NULL) == 0, "one that nobody sent");
    }
    close_all(&client, 1);
    check_group("frames behind commands, long ones, parts: each once");
}

/* Given an empty frame, junk, and a second that goes by. Expect each told by its name, who speaks
 * junk hung up on, and who waits woken by what comes. */
static void check_told(void) {
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
    uint32_t count = rp_port_facts(port, facts);
    CHECK(count == sizeof names / sizeof *names, "%u facts", count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = strcmp(names[i], "unusable") == 0 || i == 2 || i == 6;
        CHECK(strcmp((const char *)facts[i].name, names[i]) == 0 && facts[i].value == value,
              "%s: %" PRIu64, (const char *)facts[i].name, (uint64_t)facts[i].value);
    }
    uint32_t before = inside()->seconds;
    pass_second(inside());
    turn(NULL);
    CHECK(inside()->seconds > before, "a second is over");
    close(stranger);
    close_all(&client, 1);
    check_group("what a port tells of itself");
}

/* Given more frames in one piece than a burst takes. Expect all, though nothing follows them. */
static void check_many_at_once(void) {
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
static void check_no_descriptor(void) {
    struct rlimit before, none;
    open_port();
    int first = join(1), second = dial(), next = dup(first);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = (rlim_t)next; /* poll(2) takes no more than that */
    CHECK(next >= 0 && close(next) == 0 && setrlimit(RLIMIT_NOFILE, &none) == 0);
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

/* Given a datagram and junk in one piece, junk alone, and a datagram before READY. Expect each to
 * be hung up on, and counted once. */
static void check_expelled(void) {
    static const uint8_t greeting[GREETING] = {[0] = 0xff, [9] = 0x7f, [10] = 3, [12] = 'N',
                                               [13] = 'U', [14] = 'L', [15] = 'L'};
    int sockets[3];
    open_port();
    sockets[0] = join(1);
    say(sockets[0], "\0\1a\10\0", 5);
    sockets[1] = join(1);
    say(sockets[1], "\10\0", 2);
    sockets[2] = join(0);
    say(sockets[2], greeting, sizeof greeting);
    say(sockets[2], "\0\1a", 3);
    uint32_t got = 0;
    for (int i = 0; i < 100 && fact("connections"); i++) {
        rp_port_transport(port)->wait(port, 100000000u);
        got += turn(NULL);
    }
    CHECK(fact("connections") == 0 && fact("connections_ended") == 3 && got < 2);
    for (int i = 0; i < 3; i++) {
        CHECK(has_ended(sockets[i]));
    }
    close_all(sockets, 3);
    check_group("who speaks junk is hung up on, once");
}

/* Given a piece of a frame, and more behind it than there is room for. Expect no more than that to
 * be read. */
static void check_room(void) {
    int most = 4 * RP_ZMTP_IN_BYTES, there = 0;
    open_port();
    int client = join(1);
    struct connection *connection = &inside()->connections[0];
    CHECK(setsockopt(connection->socket, SOL_SOCKET, SO_RCVBUF, &most, sizeof most) == 0);
    say(client, due, 1000);
    while (!rp_zmtp_read(inside(), connection)) {
    }
    uint32_t have = connection->in_end;
    for (int i = 0; i < 1000 && there <= RP_ZMTP_IN_BYTES; i++) {
        (void)send(client, due, RP_ZMTP_IN_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
        CHECK(ioctl(connection->socket, FIONREAD, &there) == 0);
    }
    CHECK(have > 0 && there > RP_ZMTP_IN_BYTES - (int)have, "%d are there", there);
    CHECK(rp_zmtp_read(inside(), connection) == 1);
    CHECK(connection->in_end == RP_ZMTP_IN_BYTES, "%u bytes", connection->in_end);
    close_all(&client, 1);
    check_group("no more is read than there is room for");
}

/* Given more newcomers than are taken in one go, one who has gone before he is taken, and one whose
 * descriptor is 0. Expect a bound, no failure counted, and all to have a place. */
static void check_newcomers(void) {
    int sockets[ACCEPTS + 2], input = dup(0);
    CHECK(input >= 0);
    open_port();
    struct pollfd there = {.fd = inside()->listener, .events = POLLIN};
    for (int i = 0; i < ACCEPTS + 2; i++) {
        sockets[i] = dial();
    }
    CHECK(poll(&there, 1, -1) == 1);
    rp_zmtp_accept(inside());
    CHECK(fact("connections") <= ACCEPTS, "%" PRIu64 " in one go", fact("connections"));
    accept_fails = ECONNABORTED;
    for (int i = 0; i < 100 && fact("connections") < ACCEPTS + 2; i++) {
        rp_port_transport(port)->wait(port, 100000000u);
        turn(NULL);
    }
    CHECK(fact("connections") == ACCEPTS + 2 && fact("accepts_failed") == 0 && !accept_fails);
    int last = dial();
    close(0);
    for (int i = 0; i < 100 && fact("connections") < ACCEPTS + 3; i++) {
        rp_port_transport(port)->wait(port, 100000000u);
        turn(NULL);
    }
    CHECK(fact("connections") == ACCEPTS + 3, "0 is a descriptor as any other");
    close(last);
    close_all(sockets, ACCEPTS + 2);
    CHECK(dup2(input, 0) == 0 && close(input) == 0);
    check_group("newcomers: some in one go, all in the end");
}

/* The host of a newcomer who comes from there. */
static uint64_t host_from(struct in_addr from) {
    accepted_from = from;
    int client = join(1);
    accepted_from.s_addr = 0;
    struct rp_peer peer = ask(client).peer;
    close(client);
    while (fact("connections")) {
        turn(NULL);
    }
    return rp_port_transport(port)->host(port, &peer);
}

/* Given newcomers from another machine and from each address of this one, all in one place. Expect
 * the first to be another host, the others none. */
static void check_hosts(void) {
    struct in_addr far = {htonl(0xc0000207)}; /* 192.0.2.7: nobody's */
    struct ifaddrs *ours;
    open_port();
    CHECK(getifaddrs(&ours) == 0);
    CHECK(host_from(far) != 0, "another machine");
    for (struct ifaddrs *each = ours; each; each = each->ifa_next) {
        if (each->ifa_addr && each->ifa_addr->sa_family == AF_INET) {
            CHECK(host_from(((struct sockaddr_in *)(void *)each->ifa_addr)->sin_addr) == 0);
        }
    }
    freeifaddrs(ours);
    rp_port_close(port);
    check_group("this machine's addresses are no other host");
}

/* Given a network that takes one byte of a message, or two. Expect the rest behind it, once. */
static void check_piece(void) {
    enum { SIZE = 300 };
    uint8_t frame[9 + SIZE];
    open_port();
    int client = join(1);
    struct rp_peer peer = ask(client).peer;
    for (taken_most = 1; taken_most < 3; taken_most++) {
        answer(&peer, 'p', SIZE);
        hear(client, frame, sizeof frame);
        CHECK(memcmp(frame, "\2\0\0\0\0\0\0\1\54", 9) == 0, "%zu taken", taken_most);
        for (int i = 0; i < SIZE; i++) {
            CHECK(frame[9 + i] == 'p', "byte %d, %zu taken", i, taken_most);
        }
    }
    taken_most = 0;
    answer(&peer, 'q', 9);
    hear(client, frame, 11);
    CHECK(memcmp(frame, "\0\11qqqqqqqqq", 11) == 0, "what came before is whole");
    close_all(&client, 1);
    check_group("a message of which the network takes a piece");
}

/* Given an answer without a byte, and an address that names no place of ours. Expect the first to
 * be no use of the place, the second counted. */
static void check_nothing(void) {
    struct rp_peer odd = {.size = 16};
    uint32_t beyond = ALL;
    open_port();
    int client = join(1);
    struct rp_peer peer = ask(client).peer;
    answer_in(9, &peer, 'x', 0);
    CHECK(inside()->connections[0].session == 0, "nothing is in no session");
    memcpy(odd.bytes, &beyond, sizeof beyond);
    inside()->ended = OPEN; /* what lies behind the places looks like one */
    answer(&odd, 'x', 9);
    CHECK(rp_port_base(port)->dropped_out == 1);
    close_all(&client, 1);
    check_group("an answer of nothing, an answer to nowhere");
}

/* Given a peer that said something and broke off at once. Expect what it said. */
static void check_last_words(void) {
    struct linger at_once = {.l_onoff = 1};
    open_port();
    int client = join(1);
    CHECK(setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    say(client, "\0\1a", 3);
    close(client);
    uint32_t got = 0;
    for (int i = 0; i < 100 && fact("connections"); i++) {
        rp_port_transport(port)->wait(port, 100000000u);
        got += turn(NULL);
    }
    CHECK(got == 1, "%u", got);
    rp_port_close(port);
    check_group("the last words of who broke off count");
}

int main(void) {
    check_expelled();
    check_room();
    check_newcomers();
    check_hosts();
    check_piece();
    check_nothing();
    check_last_words();
    check_successor();
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
