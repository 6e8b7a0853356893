/* Plain sockets that dial a ZMTP server which has no engine behind it: a test turns its port, and
 * answers by hand. For one test program's one port at a time.
 */
#ifndef ZMTP_DIAL_H
#define ZMTP_DIAL_H

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "transport/transport.h"
#include "transport/transport_zmtp_parts.h"
#include "transport/url.h"
#include "zmtp_second.h"

enum { MTU = 4096, ALL = RP_ZMTP_CONNECTIONS_MAX, WELCOME = 64 + 30 };

static struct rp_port *port;
static struct sockaddr_in where;

static inline struct zmtp_port *inside(void) {
    return (struct zmtp_port *)(void *)port;
}

static inline void open_port(void) {
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

static inline uint64_t fact(const char *name) {
    struct rp_fact facts[RP_FACTS_MAX];
    uint32_t count = rp_port_facts(port, facts);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp((const char *)facts[i].name, name) == 0) {
            return facts[i].value;
        }
    }
    CHECK(0, "no fact is named %s", name);
    return 0;
}

/* Takes what there is, into `packet` where it is a datagram; nothing is answered. */
static inline uint32_t turn(struct rp_packet *packet) {
    struct rp_packet packets[RP_BURST];
    uint32_t count = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
    if (count && packet) {
        *packet = packets[0];
    }
    rp_port_transport(port)->rx_release(port, packets, count);
    return count;
}

static inline int dial(void) {
    int made = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(made >= 0 && connect(made, (void *)&where, sizeof where) == 0, "%s", strerror(errno));
    return made;
}

static inline void say(int socket, const void *bytes, size_t size) {
    CHECK(send(socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size, "%s", strerror(errno));
}

static inline void hear(int socket, void *bytes, size_t size) {
    CHECK(recv(socket, bytes, size, MSG_WAITALL) == (ssize_t)size, "%s", strerror(errno));
}

/* A connection that has a place; where `shakes`, one that has shaken hands. */
static inline int join(int shakes) {
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
static inline int has_ended(int socket) {
    uint8_t bytes[4096];
    ssize_t got;
    while ((got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || errno != EAGAIN;
}

/* A datagram from `socket`, as the server got it. */
static inline struct rp_packet ask(int socket) {
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
static inline void take(uint8_t *bytes, uint32_t size) {
    struct rp_packet packet = {0};
    uint32_t count = 0;
    for (int i = 0; i < 100 && !count; i++) {
        rp_port_transport(port)->wait(port, 100000000u);
        count = turn(&packet);
    }
    CHECK(count == 1 && packet.size == size, "%u datagrams, %u bytes", count, packet.size);
    memcpy(bytes, packet.data, size); /* its slot is not lent again before the next turn */
}

static inline void answer_in(uint32_t session, const struct rp_peer *peer, uint8_t fill,
                             uint32_t size) {
    struct rp_packet packet;
    CHECK(rp_port_transport(port)->tx_lease(port, &packet, 1) == 1);
    packet.peer = *peer;
    packet.size = size;
    packet.session = session;
    memset(packet.data, fill, size);
    rp_port_transport(port)->tx_send(port, &packet, 1);
}

static inline void answer(const struct rp_peer *peer, uint8_t fill, uint32_t size) {
    answer_in(0, peer, fill, size);
}

/* A datagram each way, the answer in a session of its own: the connection is in use. */
static inline void use(int socket) {
    struct rp_packet packet = ask(socket);
    answer_in((uint32_t)socket, &packet.peer, 'a', 8);
}

static inline void close_all(const int *sockets, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        close(sockets[i]);
    }
    rp_port_close(port);
}

#endif
