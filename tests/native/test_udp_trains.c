/* A train leaves where the kernel takes it, and what one peer's meets is no matter of others.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "protocol/status.h"
#include "transport/transport_udp.h"

/* ---- the C library's, for the port's calls: they refuse and tell what a test has them ---- */

static int refuse_with;  /* an errno: so is the next sendmmsg answered */
static uint32_t trains, singles; /* what the kernel was given: trains, and messages of their own */
static int from_port_zero; /* the next recvmmsg tells that of what it brings */

int sendmmsg(int socket, struct mmsghdr *messages, unsigned int count, int flags) {
    if (refuse_with) {
        errno = refuse_with;
        refuse_with = 0;
        return -1;
    }
    int taken = (int)syscall(SYS_sendmmsg, socket, messages, count, flags);
    for (int i = 0; i < taken; i++) {
        trains += messages[i].msg_hdr.msg_iovlen > 1;
    }
    return taken;
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
    singles++;
    return syscall(SYS_sendmsg, socket, message, flags);
}

static int read_from(struct sockaddr_in *address) {
    if (from_port_zero && address) {
        address->sin_port = 0;
        from_port_zero = 0;
    }
    return 0;
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags) {
    ssize_t got = syscall(SYS_recvmsg, socket, message, flags);
    return got < 0 ? got : got + read_from(message->msg_name);
}

int recvmmsg(int socket, struct mmsghdr *messages, unsigned int count, int flags,
             struct timespec *timeout) {
    int got = (int)syscall(SYS_recvmmsg, socket, messages, count, flags, timeout);
    return got > 0 ? got + read_from(messages[0].msg_hdr.msg_name) : got;
}

/* Sends `count` datagrams of 64 bytes that a kernel that can would cut out of one train. */
static void send_train(struct rp_port *port, const struct rp_peer *to, uint32_t count) {
    struct rp_packet packets[RP_BURST];
    CHECK(rp_port_transport(port)->tx_lease(port, packets, count) == count);
    for (uint32_t i = 0; i < count; i++) {
        memset(packets[i].data, (int)i, 64);
        packets[i].size = 64;
        packets[i].peer = *to;
    }
    rp_port_transport(port)->tx_send(port, packets, count);
}

static int one_arrival(struct rp_port *port) {
    struct rp_packet packet;
    rp_port_transport(port)->wait(port, 1000000000);
    uint32_t lent = rp_port_transport(port)->rx_burst(port, &packet, 1);
    rp_port_transport(port)->rx_release(port, &packet, lent);
    return lent == 1;
}

/* Given peers to whom nothing may leave, or only one by one, and a queue that is full for a moment.
 * Expect each to cost what it is worth itself, and the trains of others to go on; and of port 0, to
 * which nobody can answer, no datagram. */
static void check_trains_of_others(void) {
    static const int reasons[] = {EINVAL, EIO, ENETUNREACH, ENOBUFS, EAGAIN};
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    struct rp_port *server, *client;
    struct rp_peer own;
    CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
    CHECK(rp_port_open(&client, bound, &visit, &own, NULL, error) == 0, "%s", error);
    const struct rp_peer *peer = &rp_port_base(client)->address;
    uint32_t cuts = rp_udp_offloads(server) & 1;
    for (size_t i = 0; cuts && i < sizeof reasons / sizeof *reasons; i++) {
        int full = reasons[i] == ENOBUFS || reasons[i] == EAGAIN;
        uint64_t dropped = rp_port_base(server)->dropped_out;
        trains = singles = 0;
        refuse_with = reasons[i];
        send_train(server, peer, 3);
        CHECK(trains == 0 && singles == (full ? 0 : 3), "%s: %u", strerror(reasons[i]), singles);
        CHECK(rp_port_base(server)->dropped_out - dropped == (full ? 3 : 0));
        send_train(server, peer, 3);
        CHECK(trains == 1, "%s: trains go on", strerror(reasons[i]));
    }
    send_train(client, peer, 1);
    from_port_zero = 1;
    while (from_port_zero) {
        CHECK(!one_arrival(server));
    }
    CHECK(rp_port_base(server)->dropped_in == 1, "it is counted");
    CHECK(((struct rp_udp_port *)(void *)server)->unusable == 1);
    send_train(client, peer, 1);
    CHECK(one_arrival(server));
    if (rp_udp_offloads(server) == 3) { /* they come as one message */
        send_train(client, peer, 9);
        from_port_zero = 1;
        while (from_port_zero) {
            CHECK(!one_arrival(server));
        }
        CHECK(rp_port_base(server)->dropped_in == 10, "a train is what it holds: %" PRIu64,
              rp_port_base(server)->dropped_in);
    }
    rp_port_close(client);
    rp_port_close(server);
    check_group("udp: what one peer's trains meet is its own matter");
}

/* Given a path on which the kernel refuses trains (it does for a socket without checksums). Expect
 * every datagram all the same, one by one, now and later; where no datagram may leave, each to be
 * counted. */
static void check_refused_trains(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port *server, *client;
    struct rp_peer own, to;
    struct rp_packet packets[RP_BURST];
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    int on = 1;
    CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
    CHECK(rp_port_open(&client, bound, &visit, &to, NULL, error) == 0, "%s", error);
    int socket = ((struct rp_udp_port *)(void *)client)->socket;
    CHECK(setsockopt(socket, SOL_SOCKET, SO_NO_CHECK, &on, sizeof on) == 0);
    for (int time = 0; time < 2; time++) {
        send_train(client, &to, 9);
        for (uint32_t got = 0; got < 9;) {
            uint32_t lent = rp_port_transport(server)->rx_burst(server, packets, 9 - got);
            for (uint32_t i = 0; i < lent; i++) {
                CHECK(packets[i].size == 64 && packets[i].data[63] == got + i, "in order, once");
            }
            rp_port_transport(server)->rx_release(server, packets, lent);
            got += lent;
        }
        CHECK(rp_port_base(client)->dropped_out == 0);
    }
    CHECK(rp_port_transport(server)->rx_burst(server, packets, 1) == 0);
    struct sockaddr_in6 nowhere = {0};
    struct sockaddr_in *ipv4 = (void *)&nowhere;
    *ipv4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(9),
                                 .sin_addr.s_addr = htonl(INADDR_BROADCAST)};
    rp_udp_peer_pack(&to, &nowhere);
    send_train(server, &to, 5);
    CHECK(rp_port_base(server)->dropped_out == 5, "%" PRIu64, rp_port_base(server)->dropped_out);
    send_train(server, &to, 3);
    CHECK(rp_port_base(server)->dropped_out == 8, "%" PRIu64, rp_port_base(server)->dropped_out);
    rp_port_close(client);
    rp_port_close(server);
    check_group("udp: trains that are refused leave one by one");
}

/* Given a server whose datagrams for two clients come one after another. Expect each at its own
 * client, whatever leaves as a train. */
static void check_two_peers(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port *server, *client[2];
    struct rp_peer own;
    struct rp_packet packets[4];
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(rp_port_open(&client[i], bound, &visit, &own, NULL, error) == 0, "%s", error);
    }
    ((struct rp_udp_port *)(void *)server)->gso = 1; /* where the kernel has none: one by one */
    CHECK(rp_port_transport(server)->tx_lease(server, packets, 4) == 4);
    for (int i = 0; i < 4; i++) {
        memset(packets[i].data, i, 64);
        packets[i].size = 64;
        packets[i].peer = rp_port_base(client[i % 2])->address;
    }
    rp_port_transport(server)->tx_send(server, packets, 4);
    for (int i = 0; i < 2; i++) {
        for (int got = 0, tries = 0; got < 2; tries++) {
            CHECK(tries < 10, "client %d got %d", i, got);
            rp_port_transport(client[i])->wait(client[i], 1000000000);
            uint32_t lent = rp_port_transport(client[i])->rx_burst(client[i], packets, 4);
            for (uint32_t k = 0; k < lent; k++, got++) {
                CHECK(packets[k].size == 64 && packets[k].data[63] == 2 * got + i, "another's");
            }
            rp_port_transport(client[i])->rx_release(client[i], packets, lent);
        }
        rp_port_close(client[i]);
    }
    rp_port_close(server);
    check_group("udp: no train has datagrams of two peers");
}

/* Every datagram that waits at this port, taken; a burst that finds but what it drops is empty. */
static uint32_t arrivals(struct rp_port *port) {
    struct rp_packet packets[RP_BURST];
    uint32_t got = 0;
    for (int empty = 0; empty < 8;) {
        uint32_t lent = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
        rp_port_transport(port)->rx_release(port, packets, lent);
        got += lent;
        empty = lent ? 0 : empty + 1;
    }
    return got;
}

/* Given trains for a port that does not look meanwhile. Expect their loss to be counted as its
 * sentence says: each lost train as one at least, and never more than were lost. */
static void check_lost_trains(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1, .receive_bytes = 65536}, visit = {0};
    struct rp_port *server, *client;
    struct rp_peer own, to;
    struct rp_fact facts[RP_FACTS_MAX];
    uint32_t sent = 0, got;
    CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
    CHECK(rp_port_open(&client, bound, &visit, &to, NULL, error) == 0, "%s", error);
    if (rp_udp_offloads(server) == 3) { /* else nobody makes trains, or nobody joins them */
        for (; sent < 400 * RP_BURST; sent += RP_BURST) {
            send_train(client, &to, RP_BURST);
        }
        got = arrivals(server);
        send_train(client, &to, 1); /* it brings the count */
        got += arrivals(server);
        uint64_t lost = sent + 1 - got, counted = rp_port_base(server)->dropped_in;
        CHECK(lost > 0 && counted >= (lost + RP_UDP_TRAIN_MAX - 1) / RP_UDP_TRAIN_MAX
              && counted <= lost, "%" PRIu64 " lost, %" PRIu64 " counted", lost, counted);
        rp_port_facts(server, facts);
        CHECK(facts[0].value == counted && strstr((char *)facts[0].sentence, "trains of up to 64"),
              "%s: %" PRIu64, (char *)facts[0].sentence, facts[0].value);
    }
    rp_port_close(client);
    rp_port_close(server);
    check_group("udp: of trains that are lost, a lower bound");
}

/* Given datagrams larger than the server's mtu, alone and in a train, with and without trains at
 * the server. Expect none to come, and each to be counted. */
static void check_too_large(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1, .mtu = 1400}, visit = {.mtu = 4096};
    for (int plain = 0; plain < 2; plain++) {
        struct rp_port *server, *client;
        struct rp_packet packets[RP_BURST];
        struct rp_peer own, to;
        CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
        CHECK(rp_port_open(&client, bound, &visit, &to, NULL, error) == 0, "%s", error);
        if (plain) {
            rp_udp_plain(server);
        }
        uint32_t lent = rp_port_transport(client)->tx_lease(client, packets, 7);
        CHECK(lent == 7);
        for (uint32_t i = 0; i < lent; i++) {
            packets[i].size = i == 3 ? 1400 : i == 4 ? 1408 : 3000;
            packets[i].peer = to;
            memset(packets[i].data, (int)i, packets[i].size);
        }
        packets[2].size = 0; /* 3000 twice, 1400, 1408, 3000 twice: trains, where they are made */
        rp_port_transport(client)->tx_send(client, packets, lent);
        CHECK(arrivals(server) == 1, "the one that is not too large");
        CHECK(((struct rp_udp_port *)(void *)server)->unusable == 5, "%" PRIu64,
              ((struct rp_udp_port *)(void *)server)->unusable);
        rp_port_close(client);
        rp_port_close(server);
    }
    check_group("udp: what is larger than the mtu is dropped and counted, with trains too");
}

/* Receives what came, at most `most` at once, until nothing does; returns after how many bursts the
 * port said that it left datagrams behind. `*total` are all that came. */
static uint32_t bursts_behind(struct rp_port *port, uint32_t most, uint32_t *total) {
    uint32_t behind = 0, lent;
    struct rp_packet packets[RP_BURST];
    rp_port_transport(port)->wait(port, 1000000000);
    *total = 0;
    do {
        lent = rp_port_transport(port)->rx_burst(port, packets, most);
        rp_port_transport(port)->rx_release(port, packets, lent);
        behind += rp_port_base(port)->left_behind != 0;
        *total += lent;
    } while (lent);
    return behind;
}

/* Given a port with more messages than one call of the kernel brings, with fewer, and with a train
 * that is taken piece by piece. Expect it to say where it leaves some behind, and only there. */
static void check_left_behind(void) {
    enum { MANY = 2 * RP_UDP_RECEIVE_MAX };
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    struct rp_port *server, *client;
    struct rp_peer own;
    uint32_t total;
    CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
    CHECK(rp_port_open(&client, bound, &visit, &own, NULL, error) == 0, "%s", error);
    const struct rp_peer *peer = &rp_port_base(client)->address;
    for (uint32_t i = 0; i < MANY; i++) { /* each a message of its own */
        send_train(client, peer, 1);
    }
    CHECK(bursts_behind(server, RP_BURST, &total) == 1 && total == MANY); /* 1, 2, 4, 8, 16, 1 */
    for (uint32_t i = 0; i < RP_UDP_RECEIVE_MAX - 2; i++) {
        send_train(client, peer, 1);
    }
    CHECK(bursts_behind(server, RP_BURST, &total) == 0 && total == RP_UDP_RECEIVE_MAX - 2);
    if (rp_udp_offloads(client) & 1 && rp_udp_offloads(server) & 2) {
        send_train(client, peer, 40);
        CHECK(bursts_behind(server, 16, &total) == 2 && total == 40);
    }
    rp_port_close(client);
    rp_port_close(server);
    check_group("udp: what a burst leaves behind is said");
}

int main(void) {
    check_left_behind();
    check_refused_trains();
    check_trains_of_others();
    check_two_peers();
    check_lost_trains();
    check_too_large();
    return check_done("test_udp_trains");
}
