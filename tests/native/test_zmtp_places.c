/* Places of the ZMTP server: who has one, who gives it up to whom, and another machine's share. */
#include "zmtp_dial.h"

/* Every place is taken by who shook hands; some are sessions' clients. The oldest goes first. */
static void check_who_goes(void) {
    int sockets[ALL], newcomers[7];
    open_port();
    stop_seconds(inside()); /* time is what is said here */
    inside()->seconds = RP_ZMTP_IDLE_S;
    for (int i = 0; i < ALL; i++) {
        sockets[i] = join(1);
    }
    CHECK(fact("connections") == ALL && fact("connections_displaced") == 0);
    use(sockets[0]);
    struct rp_peer stranger = ask(sockets[1]).peer;
    answer(&stranger, 'x', 8); /* to his HELLO: that is no use of the place */
    newcomers[0] = join(1);
    newcomers[1] = join(1);
    CHECK(has_ended(sockets[1]) && has_ended(sockets[2]), "who has no session, the oldest");
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

/* Given places that all are in use, and two sessions: one moves to another's connection, one ends.
 * Expect those two connections to go first, and the place where the session is to stay. */
static void check_session_moves(void) {
    int sockets[ALL], newcomers[3];
    open_port();
    for (int i = 0; i < ALL; i++) {
        sockets[i] = join(1);
        use(sockets[i]);
    }
    struct rp_peer to = ask(sockets[1]).peer, last = ask(sockets[9]).peer;
    answer_in((uint32_t)sockets[200], &to, 'x', 8);
    answer(&last, 'x', 8);
    newcomers[0] = join(1);
    CHECK(has_ended(sockets[9]) && !has_ended(sockets[200]), "its session has ended");
    use(newcomers[0]);
    newcomers[1] = join(1);
    CHECK(has_ended(sockets[200]) && !has_ended(sockets[1]), "its session has moved");
    use(newcomers[1]);
    newcomers[2] = join(1);
    CHECK(has_ended(newcomers[2]) && fact("connections_refused") == 1, "all others are in use");
    CHECK(fact("connections_displaced") == 2);
    for (int i = 0; i < 3; i++) {
        close(newcomers[i]);
    }
    close_all(sockets, ALL);
    check_group("a session holds one place, where it is");
}

/* Another machine's connections, made up: places are asked for as accepting does. */
static void check_share(void) {
    enum { FAR = 7 };
    int sockets[RP_ZMTP_OF_A_HOST];
    open_port();
    for (int i = 0; i < RP_ZMTP_OF_A_HOST; i++) {
        sockets[i] = join(1);
        CHECK(inside()->connections[i].stage == OPEN);
        inside()->connections[i].host = FAR;
        inside()->connections[i].session = 1 + (uint32_t)i;
    }
    struct rp_peer peer = ask(sockets[9]).peer;
    CHECK(rp_port_transport(port)->host(port, &peer) == FAR);
    CHECK(rp_zmtp_place(inside(), FAR) == NULL, "its share is in use");
    CHECK(rp_zmtp_place(inside(), 0)->stage == FREE && rp_zmtp_place(inside(), 8)->stage == FREE);
    CHECK(fact("connections") == RP_ZMTP_OF_A_HOST);
    inside()->connections[5].session = 0;
    CHECK(rp_zmtp_place(inside(), FAR) == &inside()->connections[5], "it gives up one of its own");
    CHECK(has_ended(sockets[5]) && fact("connections_displaced") == 1);
    CHECK(rp_zmtp_place(inside(), FAR) != NULL, "one less than its share");
    CHECK(fact("connections") == RP_ZMTP_OF_A_HOST - 1);
    close_all(sockets, RP_ZMTP_OF_A_HOST);
    check_group("another machine has its share of the places, and no more");
}

/* Datagrams of those in `bytes` that are there whole; the commands among them left out. */
static uint64_t whole_datagrams(const uint8_t *bytes, size_t size) {
    uint64_t count = 0;
    for (size_t at = 0; at + 9 <= size;) {
        size_t frame = bytes[at] & LONG ? 9 + ((size_t)bytes[at + 7] << 8 | bytes[at + 8])
                                        : (size_t)2 + bytes[at + 1];
        count += !(bytes[at] & COMMAND) && at + frame <= size;
        at += frame;
    }
    return count;
}

/* Given a reader who is owed more than its place holds, again and again, who asked PING, and then
 * breaks the protocol. Expect each answer to be read, or counted as not taken. */
static void check_owed(void) {
    static const uint8_t ping[] = {4, 7, 4, 'P', 'I', 'N', 'G', 0, 9};
    static uint8_t bytes[32 << 20];
    int small = 64 << 10;
    size_t heard = 0;
    uint64_t answers = 0;
    open_port();
    int slow = join(1);
    struct rp_peer peer = ask(slow).peer;
    CHECK(setsockopt(inside()->connections[0].socket, SOL_SOCKET, SO_SNDBUF, &small, sizeof small)
          == 0);
    CHECK(setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    for (uint64_t round = 1; round <= 8; round++) {
        for (uint64_t lost = fact("not_taken"); fact("not_taken") == lost; answers++) {
            answer(&peer, 'a', answers % 3 ? MTU : 200);
        }
        say(slow, ping, sizeof ping);
        for (size_t end = heard + (300 << 10) + 77; heard < end;) {
            ssize_t got = recv(slow, bytes + heard, end - heard, MSG_DONTWAIT);
            heard += got > 0 ? (size_t)got : 0;
            turn(NULL);
        }
    }
    say(slow, "no frame.", 9);
    while (fact("connections")) {
        turn(NULL);
    }
    for (ssize_t got = 1; got > 0; heard += got > 0 ? (size_t)got : 0) {
        got = recv(slow, bytes + heard, sizeof bytes - heard, 0);
    }
    uint64_t came = whole_datagrams(bytes, heard);
    CHECK(came + fact("not_taken") == answers,
          "%" PRIu64 " of %" PRIu64 " came, %" PRIu64 " are counted", came, answers,
          fact("not_taken"));
    CHECK(came > 0 && fact("connections_ended") == 1);
    close_all(&slow, 1);
    check_group("what waited for who is gone is not taken");
}

/* Given a connection to which a greeting, commands and frames of each head are to leave, made up.
 * Expect its end to count the datagrams alone, one that has left in part among them. */
static void check_counted(void) {
    static const struct { uint32_t left; uint64_t wait; } cases[] = {
        {0, 3}, {63, 3}, {64, 3}, {66, 3}, {67, 3}, {69, 3}, {70, 2}, {379, 2}, {380, 1}, {383, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_port();
        int client = join(1);
        struct connection *one = &inside()->connections[0];
        memset(one->out, 0, 400);
        one->out[0] = 0xff;
        memcpy(one->out + GREETING, "\4\1!\0\1a\2", 7); /* a command, a datagram, a long one */
        one->out[70 + 7] = 301 >> 8;
        one->out[70 + 8] = 301 & 255;
        memcpy(one->out + 70 + 9 + 301, "\1\1b", 3);
        one->out_first = cases[i].left;
        one->out_end = 383;
        rp_zmtp_end(inside(), one);
        CHECK(fact("not_taken") == cases[i].wait, "%u have left: %" PRIu64, cases[i].left,
              fact("not_taken"));
        close_all(&client, 1);
    }
    check_group("what waits, counted");
}

int main(void) {
    check_who_goes();
    check_session_moves();
    check_share();
    check_owed();
    check_counted();
    return check_done("test_zmtp_places");
}
