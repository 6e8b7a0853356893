/* A hub in one process gives back what it takes, keeps to its bounds, and tells who is lost.
 * Situations read "Given ... Expect ...". */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "process.h"
#include "protocol/status.h"
#include "transport/transport.h"
#include "transport/transport_loopback.h"
#include "transport/url.h"

static char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];

static struct rp_port *open_port(const char *url, int serve, struct rp_peer *server) {
    struct rp_port_options options = {.serve = serve};
    struct rp_port *port;
    int status = rp_port_open(&port, url, &options, server, bound, error);
    CHECK(status == 0, "%s: %s", url, error);
    return port;
}

static void open_pair(struct rp_port **first, struct rp_port **second, uint32_t mtu) {
    struct rp_port_options serve = {.serve = 1, .mtu = mtu}, visit = {.mtu = mtu};
    struct rp_peer peer;
    CHECK(rp_port_open(first, "loopback://pair", &serve, &peer, NULL, error) == 0, "%s", error);
    CHECK(rp_port_open(second, "loopback://pair", &visit, &peer, NULL, error) == 0, "%s", error);
}

/* One datagram of 64 bytes that begin with `number`. */
static void send_number(struct rp_port *port, const struct rp_peer *to, uint64_t number) {
    struct rp_packet packet;
    CHECK(rp_port_transport(port)->tx_lease(port, &packet, 1) == 1);
    memset(packet.data, 0, 64);
    memcpy(packet.data, &number, sizeof number);
    packet.peer = *to;
    packet.size = 64;
    rp_port_transport(port)->tx_send(port, &packet, 1);
}

/* The number that came, or 0. */
static uint64_t take_number(struct rp_port *port, struct rp_peer *from) {
    struct rp_packet packet;
    uint64_t number;
    if (rp_port_transport(port)->rx_burst(port, &packet, 1) == 0) {
        return 0;
    }
    CHECK(packet.size == 64);
    memcpy(&number, packet.data, sizeof number);
    *from = packet.peer;
    rp_port_transport(port)->rx_release(port, &packet, 1);
    return number;
}

/* 1. Given hubs and pairs that open, refuse and close a hundred times. Expect no memory and no open
 *    file more than before. */
static void situation_given_back(void) {
    struct rp_peer peer;
    struct rp_port *first, *second;
    size_t memory = 0;
    int files = 0;
    for (uint32_t round = 0; round < 110; round++) {
        if (round == 10) { /* behind what the first rounds keep for good */
            memory = mallinfo2().uordblks + mallinfo2().hblkhd;
            files = open_descriptors();
        }
        first = open_port("loopback://again", 1, &peer);
        second = open_port("loopback://again", 0, &peer);
        struct rp_port_options options = {.serve = 1};
        struct rp_port *none = NULL;
        CHECK(rp_port_open(&none, "loopback://again", &options, &peer, bound, error)
              == -RP_SYSTEM && none == NULL);
        options.serve = 0;
        CHECK(rp_port_open(&none, "loopback://nobody", &options, &peer, bound, error)
              == -RP_SYSTEM && none == NULL);
        rp_port_close(round % 2 ? first : second);
        rp_port_close(round % 2 ? second : first);
        open_pair(&first, &second, 1400);
        rp_port_close(first);
        rp_port_close(second);
    }
    size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(now <= memory, "%zu bytes were kept", now - memory);
    CHECK(open_descriptors() == files, "%d files, then %d", files, open_descriptors());
    check_group("1 what is closed is given back");
}

/* 2. Given as many clients as a hub has places for, and one more. Expect FULL in a sentence, every
 *    client heard at an address of its own, and a place that is free again when one has gone; its
 *    old address is nobody's. */
static void situation_full(void) {
    enum { CLIENTS = RP_LOOPBACK_PORTS_MAX - 1 };
    static struct rp_port *clients[CLIENTS];
    struct rp_peer server_address, peer, from, gone = {0};
    struct rp_port *server = open_port("loopback://full", 1, &server_address);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = open_port("loopback://full", 0, &peer);
        CHECK(memcmp(&peer, &server_address, sizeof peer) == 0, "the server's address");
    }
    struct rp_port_options options = {.serve = 0};
    struct rp_port *none = NULL;
    int status = rp_port_open(&none, "loopback://full", &options, &peer, bound, error);
    CHECK(status == -RP_FULL && none == NULL, "%d", status);
    CHECK(strstr(error, "no place left"), "%s", error);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        send_number(clients[i], &server_address, 100 + i);
        CHECK(take_number(server, &from) == 100 + i);
        send_number(server, &from, 1000 + i);
        CHECK(take_number(clients[i], &peer) == 1000 + i, "client %u", i);
        gone = i == 7 ? from : gone;
    }
    rp_port_close(clients[7]);
    clients[7] = open_port("loopback://full", 0, &peer);
    send_number(server, &gone, 5);
    CHECK(take_number(clients[7], &peer) == 0, "an old address reaches the new client");
    CHECK(rp_port_base(server)->dropped_out == 1);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rp_port_close(clients[i]);
    }
    rp_port_close(server);
    check_group("2 a hub that is full");
}

/* 3. Given a receiver that takes nothing. Expect its queue to hold its budget, in order, and what
 *    is beyond to be counted at the sender; also when the queue has gone round. */
static void situation_queue(void) {
    struct rp_port *first, *second;
    struct rp_peer from;
    open_pair(&first, &second, 1400);
    const struct rp_peer *to = &rp_port_base(second)->address;
    uint32_t budget = rp_port_base(second)->receive_budget;
    CHECK(budget == RP_LOOPBACK_QUEUE_MAX);
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 1; i <= budget + 5; i++) {
            send_number(first, to, 10000 * round + i);
        }
        CHECK(rp_port_base(first)->dropped_out == 5 * (round + 1));
        for (uint64_t i = 1; i <= budget; i++) {
            CHECK(take_number(second, &from) == 10000 * round + i);
        }
        CHECK(take_number(second, &from) == 0);
        send_number(first, to, 7); /* the next round begins at another place */
        CHECK(take_number(second, &from) == 7);
    }
    rp_port_close(first);
    rp_port_close(second);
    open_pair(&first, &second, 65504);
    CHECK(rp_port_base(first)->receive_budget == RP_LOOPBACK_QUEUE_MIN);
    rp_port_close(first);
    rp_port_close(second);
    check_group("3 a queue holds its budget");
}

static uint32_t some_turns(void *owner) {
    uint32_t *turns = owner;
    return *turns > 0 ? (*turns)-- : 0;
}

/* 4. Given a server that lets its clients run its turns, on a clock of its own. Expect a client's
 *    wait to run them until nothing is received, each worth its time, then to pass the time-out;
 *    the server's own wait to run none; and no turn once it has ended. */
static void situation_turns(void) {
    struct rp_peer peer;
    struct rp_port_options options = {.serve = 1, .virtual_clock = 1};
    struct rp_port *server, *client;
    uint32_t turns = 3;
    CHECK(rp_port_open(&server, "loopback://turns", &options, &peer, bound, error) == 0);
    client = open_port("loopback://turns", 0, &peer);
    CHECK(rp_loopback_is(client) && rp_port_transport(client)->lost(client) == NULL);
    rp_loopback_attend(server, some_turns, &turns);
    uint64_t begin = rp_port_transport(client)->now(client);
    CHECK(begin > 0 && rp_port_transport(client)->wait(client, 5000) == 0 && turns == 0);
    CHECK(rp_port_transport(client)->now(client) == begin + 4 * RP_LOOPBACK_TURN_NS + 5000);
    turns = 2;
    CHECK(rp_loopback_turn(client) == 2 && turns == 1);
    begin = rp_port_transport(client)->now(client);
    CHECK(rp_port_transport(server)->wait(server, 100) == 0 && turns == 1);
    CHECK(rp_port_transport(client)->now(client) == begin + 100);
    send_number(server, &rp_port_base(client)->address, 9);
    CHECK(rp_port_transport(client)->wait(client, 5000) == 1 && turns == 1);
    CHECK(rp_port_transport(client)->now(client) == begin + 100, "nothing was waited for");
    rp_loopback_attend(server, NULL, NULL);
    CHECK(rp_loopback_turn(client) == 0 && turns == 1);
    rp_port_close(server);
    const char *lost = rp_port_transport(client)->lost(client);
    CHECK(lost != NULL && strstr(lost, "has closed"));
    rp_port_close(client);
    check_group("4 turns that clients run, a clock of its own");
}

/* 5. Given a client that would sleep for long, and a server that closes. Expect its wait to end:
 *    nobody else would wake it. What a port tells of itself: what its receivers did not take. */
static void situation_gone(void) {
    struct rp_fact facts[RP_FACTS_MAX];
    struct rp_peer peer;
    struct rp_port *server = open_port("loopback://gone", 1, &peer);
    struct rp_port *client = open_port("loopback://gone", 0, &peer);
    CHECK(rp_port_transport(client)->wait(client, 0) == 0);
    rp_port_close(server);
    CHECK(rp_port_transport(client)->wait(client, 600000000000u) == 0);
    CHECK(rp_port_transport(client)->lost(client) != NULL);
    CHECK(rp_port_facts(client, facts) == 1 && facts[0].value == 0);
    send_number(client, &peer, 1);
    CHECK(rp_port_facts(client, facts) == 1 && facts[0].value == 1);
    CHECK(facts[0].kind == RP_FACT_OUT && strcmp((char *)facts[0].name, "not_taken") == 0);
    rp_port_close(client);
    check_group("5 a server that goes wakes its clients");
}

/* 6. Given a process that has no file descriptor left. Expect a sentence, and nothing kept. */
static void situation_no_files(void) {
    struct rp_port_options options = {.serve = 1};
    struct rp_port *none = NULL;
    struct rp_peer peer;
    struct rlimit before, tight;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    tight = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    for (int time = 0; time < 2; time++) {
        CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
        int status = rp_port_open(&none, "loopback://files", &options, &peer, bound, error);
        int udp = rp_port_open(&none, "udp://127.0.0.1:0", &options, &peer, bound, bound);
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        CHECK(status == -RP_NO_MEMORY && none == NULL && strstr(error, "no memory"), "%s", error);
        CHECK(udp == -RP_SYSTEM && none == NULL && strstr(bound, "files"), "%s", bound);
    }
    rp_port_close(open_port("loopback://files", 1, &peer));
    check_group("6 no file descriptor is left");
}

struct busy { /* a server that others keep busy, for so many turns */
    uint32_t turns, most;
};

static uint32_t busy_turn(void *owner) {
    struct busy *busy = owner;
    return busy->turns++ < busy->most;
}

/* 7. Given a server whose turns do something for others, without end or for a while. Expect a wait
 *    to run them as long as there is more to do, and to end after so many, whatever its time-out.
 */
static void situation_busy(void) {
    static const struct {
        uint32_t most, turns;
    } runs[] = {{0, 1}, {5, 6}, {63, 64}, {64, 64}, {UINT32_MAX, 64}};
    for (uint32_t i = 0; i < 5; i++) {
        struct rp_port *server, *client;
        struct busy busy = {.most = runs[i].most};
        open_pair(&server, &client, 2048);
        rp_loopback_attend(server, busy_turn, &busy);
        uint64_t sleep_ns = busy.most < 64 ? 1000 : 3600000000000u;
        CHECK(rp_port_transport(client)->wait(client, sleep_ns) == 0);
        CHECK(busy.turns == runs[i].turns, "%u turns of %u", busy.turns, busy.most);
        rp_loopback_attend(server, NULL, NULL);
        rp_port_close(client);
        rp_port_close(server);
    }
    check_group("7 a wait beside a busy server");
}

int main(void) {
    situation_given_back();
    situation_full();
    situation_queue();
    situation_turns();
    situation_gone();
    situation_no_files();
    situation_busy();
    return check_done("test_loopback");
}
