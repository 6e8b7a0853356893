/* The burst interface, held by one list of checks over every transport this build has.
 *
 * A bench is two ports that reach each other: loopback's pair, and UDP over 127.0.0.1, ::1 and a
 * mixed pair (an IPv6 socket that an IPv4 client speaks to), with and without the kernel's trains.
 * Datagrams carry a counter and a pattern derived from it, so that a byte that is mixed up, cut or
 * moved while lent is seen. Addresses, urls and refusals are checked beside it.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "base/random.h"
#include "protocol/status.h"
#include "transport/transport.h"
#include "transport/transport_loopback.h"
#include "transport/transport_udp.h"
#include "transport/url.h"

struct bench {
    const char *name;
    struct rp_port *server;
    struct rp_port *client;
    struct rp_peer server_address; /* as the client writes it */
    struct rp_peer client_address; /* as the server saw it */
    uint64_t next;                 /* number of the next datagram */
};

static void write_pattern(uint8_t *data, uint32_t size, uint64_t number) {
    for (uint32_t i = 0; i < size / 8; i++) {
        uint64_t word = number * 0x9e3779b97f4a7c15u + i;
        memcpy(data + 8 * (size_t)i, &word, 8);
    }
    memcpy(data, &number, 8);
}

static uint64_t check_pattern(const uint8_t *data, uint32_t size) {
    uint64_t number, word;
    memcpy(&number, data, 8);
    for (uint32_t i = 1; i < size / 8; i++) {
        memcpy(&word, data + 8 * (size_t)i, 8);
        CHECK(word == number * 0x9e3779b97f4a7c15u + i, "datagram %" PRIu64 " word %u", number, i);
    }
    return number;
}

/* Sends sizes[0 .. count) in one lease; size 0 leaves that packet out. */
static void send_sizes(struct bench *bench, struct rp_port *port, const struct rp_peer *to,
                       const uint32_t *sizes, uint32_t count) {
    struct rp_packet packets[RP_BURST];
    uint32_t lent = rp_port_transport(port)->tx_lease(port, packets, count);
    CHECK(lent == count, "%s: %u of %u", bench->name, lent, count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK((uintptr_t)packets[i].data % 8 == 0 && packets[i].size == 0);
        CHECK(packets[i].capacity >= rp_port_base(port)->mtu);
        packets[i].peer = *to;
        packets[i].size = sizes[i];
        if (sizes[i]) {
            write_pattern(packets[i].data, sizes[i], bench->next++);
        }
    }
    rp_port_transport(port)->tx_send(port, packets, count);
}

/* Receives exactly `count` datagrams, holding them all; waits on the port, never on the clock. */
static void receive(struct bench *bench, struct rp_port *port, struct rp_packet *packets,
                    uint32_t count) {
    uint32_t got = 0;
    for (int tries = 0; got < count; tries++) {
        CHECK(tries < 1000, "%s: %u of %u datagrams came", bench->name, got, count);
        uint32_t room = count - got < RP_BURST ? count - got : RP_BURST;
        uint32_t lent = rp_port_transport(port)->rx_burst(port, packets + got, room);
        CHECK(lent <= room);
        got += lent;
        if (!lent) {
            rp_port_transport(port)->wait(port, 20000000);
        }
    }
}

static void release(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    rp_port_transport(port)->rx_release(port, packets, count);
}

static uint32_t mtu_of(struct bench *bench) {
    return rp_port_base(bench->server)->mtu;
}

/* The client speaks first: that is how the server learns its address. */
static void check_greeting(struct bench *bench) {
    struct rp_packet packet;
    uint32_t size = RP_HEADER_BYTES;
    send_sizes(bench, bench->client, &bench->server_address, &size, 1);
    receive(bench, bench->server, &packet, 1);
    CHECK(packet.size == size && check_pattern(packet.data, size) == bench->next - 1);
    bench->client_address = packet.peer;
    CHECK(packet.peer.size > 0 && packet.peer.size <= RP_PEER_BYTES);
    for (uint32_t i = packet.peer.size; i < RP_PEER_BYTES; i++) {
        CHECK(packet.peer.bytes[i] == 0, "addresses are padded with zeros");
    }
    release(bench->server, &packet, 1);
}

static void check_sizes(struct bench *bench) {
    struct rp_packet packet;
    uint32_t mtu = mtu_of(bench);
    uint32_t step = ((mtu - RP_HEADER_BYTES) / 40 + 7) & ~7u;
    for (uint32_t size = RP_HEADER_BYTES; size <= mtu; size += size + step > mtu && size < mtu
                                                                   ? mtu - size : step) {
        send_sizes(bench, bench->server, &bench->client_address, &size, 1);
        receive(bench, bench->client, &packet, 1);
        CHECK(packet.size == size, "%s: %u came as %u", bench->name, size, packet.size);
        CHECK((uintptr_t)packet.data % 8 == 0);
        CHECK(check_pattern(packet.data, size) == bench->next - 1);
        CHECK(memcmp(&packet.peer, &bench->server_address, sizeof packet.peer) == 0);
        release(bench->client, &packet, 1);
    }
}

/* Bursts of random sizes both ways, some packets left out: all arrive once, in order, unmixed. */
static void check_order(struct bench *bench, struct rp_random *random) {
    struct rp_packet packets[RP_BURST];
    uint32_t sizes[RP_BURST];
    for (int round = 0; round < 60; round++) {
        int down = round % 2;
        struct rp_port *from = down ? bench->server : bench->client;
        struct rp_port *to = down ? bench->client : bench->server;
        uint32_t count = 1 + (uint32_t)rp_random_below(random, 40);
        uint32_t sent = 0;
        uint64_t first = bench->next;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t words = (mtu_of(bench) - RP_HEADER_BYTES) / 8;
            sizes[i] = RP_HEADER_BYTES + 8 * (uint32_t)rp_random_below(random, words + 1);
            sizes[i] = rp_random_below(random, 5) == 0 ? 0 : sizes[i];
            sent += sizes[i] > 0;
        }
        send_sizes(bench, from, down ? &bench->client_address : &bench->server_address, sizes,
                   count);
        receive(bench, to, packets, sent);
        for (uint32_t i = 0, j = 0; i < sent; i++, j++) {
            while (!sizes[j]) {
                j++;
            }
            CHECK(packets[i].size == sizes[j], "%s: order", bench->name);
            CHECK(check_pattern(packets[i].data, packets[i].size) == first + i);
        }
        release(to, packets, sent);
    }
}

/* Trains: equal-sized datagrams but the last. Lent together, they stay whole while others are
 * released around them, in any order, and while more arrive. */
static void check_trains(struct bench *bench, struct rp_random *random) {
    static struct rp_packet held[RP_BURST];
    uint32_t sizes[RP_BURST];
    for (uint32_t length = 2; length <= 46; length += 11) {
        uint64_t first = bench->next;
        uint32_t trains = RP_BURST / length; /* every port can lend a burst at least */
        for (uint32_t train = 0; train < trains; train++) {
            for (uint32_t i = 0; i < length; i++) {
                sizes[i] = i + 1 < length ? mtu_of(bench) : RP_HEADER_BYTES + 8;
            }
            send_sizes(bench, bench->server, &bench->client_address, sizes, length);
            receive(bench, bench->client, held + (size_t)train * length, length);
        }
        for (uint32_t i = trains * length; i-- > 0;) { /* any order: a random one of those held */
            uint32_t pick = (uint32_t)rp_random_below(random, i + 1);
            uint64_t number = check_pattern(held[pick].data, held[pick].size);
            CHECK(number >= first && number < bench->next);
            CHECK((uintptr_t)held[pick].data % 8 == 0);
            release(bench->client, &held[pick], 1);
            held[pick] = held[i];
        }
    }
}

/* Room has limits: a lease lends at most a burst, and a receiver that holds everything is not sent
 * into memory it lent. What found no place is lost, and nothing else. */
static void check_limits(struct bench *bench) {
    static struct rp_packet held[4096];
    struct rp_packet packets[RP_BURST];
    uint32_t sizes[RP_BURST];
    uint64_t first = bench->next, seen = 0, last = 0;
    uint32_t count = rp_port_transport(bench->server)->tx_lease(bench->server, packets, RP_BURST);
    CHECK(count == RP_BURST);
    rp_port_transport(bench->server)->tx_send(bench->server, packets, count);
    for (uint32_t i = 0; i < RP_BURST; i++) {
        sizes[i] = i % 2 ? RP_HEADER_BYTES : mtu_of(bench); /* no trains: a buffer each */
    }
    uint32_t holding = 0, got = 0;
    for (int round = 0; round < 20; round++) {
        send_sizes(bench, bench->server, &bench->client_address, sizes, RP_BURST);
        got = rp_port_transport(bench->client)->rx_burst(bench->client, held + holding, RP_BURST);
        holding += got;
    }
    while (holding || got) {
        for (uint32_t i = 0; i < holding; i++) {
            uint64_t number = check_pattern(held[i].data, held[i].size);
            CHECK(number >= first && number < bench->next && (seen == 0 || number > last));
            last = number;
            seen++;
        }
        release(bench->client, held, holding);
        holding = got =
            rp_port_transport(bench->client)->rx_burst(bench->client, held, RP_BURST);
    }
    CHECK(seen >= RP_BURST && seen <= 20 * RP_BURST, "%s: %" PRIu64, bench->name, seen);
}

struct waker {
    struct bench *bench;
    int deliver; /* 1: sends a datagram; 0: only wakes */
};

static void *wake_later(void *argument) {
    struct waker *waker = argument;
    struct bench *bench = waker->bench;
    uint32_t size = 64;
    if (waker->deliver) {
        send_sizes(bench, bench->server, &bench->client_address, &size, 1);
    } else {
        rp_port_transport(bench->client)->wake(bench->client);
    }
    return NULL;
}

/* A wait ends at once where something lies ready, where something comes, and where it is woken: the
 * time-outs here are far beyond the test's, so that a wait that missed its cause would hang it. */
static void check_waits(struct bench *bench) {
    const struct rp_transport *transport = rp_port_transport(bench->client);
    const uint64_t long_ns = 600000000000u;
    struct rp_packet packets[2];
    uint32_t sizes[2] = {mtu_of(bench), mtu_of(bench)};
    CHECK(transport->wait(bench->client, 0) == 0, "%s: nothing is there", bench->name);
    send_sizes(bench, bench->server, &bench->client_address, sizes, 2);
    CHECK(transport->wait(bench->client, long_ns) == 1);
    receive(bench, bench->client, packets, 1); /* of a train of two: the second lies ready */
    CHECK(transport->wait(bench->client, long_ns) == 1);
    receive(bench, bench->client, packets + 1, 1);
    release(bench->client, packets, 2);
    CHECK(transport->wait(bench->client, 0) == 0);
    for (int deliver = 0; deliver < 2; deliver++) {
        struct waker waker = {bench, deliver};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, wake_later, &waker) == 0);
        int ready = transport->wait(bench->client, long_ns);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(ready == deliver, "%s: wait said %d", bench->name, ready);
    }
    receive(bench, bench->client, packets, 1);
    release(bench->client, packets, 1);
}

static void check_bench(struct bench *bench, struct rp_random *random) {
    char text[64];
    bench->next = 1;
    check_greeting(bench);
    check_sizes(bench);
    check_order(bench, random);
    check_trains(bench, random);
    check_limits(bench);
    check_waits(bench);
    CHECK(rp_port_base(bench->server)->receive_budget > 0);
    rp_port_close(bench->client);
    rp_port_close(bench->server);
    snprintf(text, sizeof text, "%s: lending, order, sizes, trains, limits, waits", bench->name);
    check_group(text);
}

static void open_loopback(struct bench *bench, uint32_t mtu) {
    char error[RP_URL_ERROR_BYTES];
    struct rp_port_options serve = {.serve = 1, .mtu = mtu}, speak = {.mtu = mtu};
    struct rp_peer own;
    *bench = (struct bench){.name = mtu > 60000 ? "loopback, mtu 65504" : "loopback"};
    CHECK(rp_port_open(&bench->server, "loopback://bench", &serve, &own, NULL, error) == 0, "%s",
          error);
    CHECK(rp_port_open(&bench->client, "loopback://bench", &speak, &bench->server_address, NULL,
                       error) == 0, "%s", error);
}

static void open_udp(struct bench *bench, const char *name, const char *server, const char *host,
                     uint32_t mtu, int plain) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES], url[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {.serve = 1, .mtu = mtu, .insecure = 1};
    struct rp_peer own;
    *bench = (struct bench){.name = name};
    CHECK(rp_port_open(&bench->server, server, &options, &own, bound, error) == 0, "%s", error);
    options.serve = 0;
    snprintf(url, sizeof url, "udp://%s%s", host, strrchr(bound, ':'));
    CHECK(rp_port_open(&bench->client, url, &options, &bench->server_address, NULL, error) == 0,
          "%s", error);
    if (plain) {
        rp_udp_plain(bench->server);
        rp_udp_plain(bench->client);
    }
}

/* A train of odd-sized datagrams, as only a stranger sends them: each is lent aligned and whole. */
static void check_odd_trains(void) {
    struct bench bench;
    struct rp_packet packets[RP_BURST];
    open_udp(&bench, "udp, odd trains", "udp://127.0.0.1:0", "127.0.0.1", 1400, 0);
    bench.next = 1;
    check_greeting(&bench);
    for (uint32_t size = 57; size < 72; size++) {
        uint32_t lent = rp_port_transport(bench.server)->tx_lease(bench.server, packets, 9);
        for (uint32_t i = 0; i < lent; i++) {
            packets[i].size = i < 8 ? size : 9;
            packets[i].peer = bench.client_address;
            memset(packets[i].data, (int)(size + i), packets[i].size);
        }
        rp_port_transport(bench.server)->tx_send(bench.server, packets, lent);
        receive(&bench, bench.client, packets, 9);
        for (uint32_t i = 0; i < 9; i++) {
            CHECK(packets[i].size == (i < 8 ? size : 9) && (uintptr_t)packets[i].data % 8 == 0);
            for (uint32_t j = 0; j < packets[i].size; j++) {
                CHECK(packets[i].data[j] == (uint8_t)(size + i), "size %u, slice %u", size, i);
            }
        }
        release(bench.client, packets, 9);
    }
    rp_port_close(bench.client);
    rp_port_close(bench.server);
    check_group("udp: trains of odd sizes are lent aligned");
}

/* A server that is gone is silence to its client, never an error that sticks: when another takes
 * the port the next datagram arrives. */
static void check_server_gone(void) {
    struct bench bench;
    struct rp_packet packet;
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {.serve = 1};
    struct rp_peer own;
    uint32_t size = 64;
    CHECK(rp_port_open(&bench.server, "udp://127.0.0.1:0", &options, &own, bound, error) == 0);
    options.serve = 0;
    bench.name = "udp, server gone";
    bench.next = 1;
    CHECK(rp_port_open(&bench.client, bound, &options, &bench.server_address, NULL, error) == 0);
    rp_port_close(bench.server);
    for (int i = 0; i < 5; i++) {
        send_sizes(&bench, bench.client, &bench.server_address, &size, 1);
        CHECK(rp_port_transport(bench.client)->rx_burst(bench.client, &packet, 1) == 0);
    }
    options.serve = 1;
    CHECK(rp_port_open(&bench.server, bound, &options, &own, bound, error) == 0, "%s", error);
    send_sizes(&bench, bench.client, &bench.server_address, &size, 1);
    receive(&bench, bench.server, &packet, 1);
    CHECK(check_pattern(packet.data, packet.size) == bench.next - 1);
    release(bench.server, &packet, 1);
    struct rp_port *second = NULL;
    int status = rp_port_open(&second, bound, &options, &own, bound, error);
    CHECK(status == -RP_SYSTEM && second == NULL && strstr(error, "taken"), "%s", error);
    rp_port_close(bench.client);
    rp_port_close(bench.server);
    check_group("udp: a server that goes and comes back, a busy port");
}

struct refusal {
    const char *url;
    int serve;
    int status;
    const char *says; /* what the sentence must contain */
};

#ifdef RP_POSIX
#define NO_DPDK "built without DPDK: it is Linux's"
enum { KERNEL_COUNTS = 0 }; /* what it drops at a socket */
#else
enum { KERNEL_COUNTS = 1 };
#define NO_DPDK "built without DPDK: apt-get install libdpdk-dev"
#endif

static void check_refusals(void) {
    static const struct refusal refusals[] = {
        {"127.0.0.1:7000", 1, RP_BAD_ARGUMENT, "not a url"},
        {"://x", 1, RP_BAD_ARGUMENT, "not a url"},
        {"udp://", 1, RP_BAD_ARGUMENT, "HOST:PORT"},
        {"udp://127.0.0.1", 1, RP_BAD_ARGUMENT, "HOST:PORT"},
        {"udp://127.0.0.1:", 1, RP_BAD_ARGUMENT, "HOST:PORT"},
        {"udp://127.0.0.1:65536", 1, RP_BAD_ARGUMENT, "HOST:PORT"},
        {"udp://[::1:7000", 1, RP_BAD_ARGUMENT, "HOST:PORT"},
        {"udp://127.0.0.1:7000x", 1, RP_BAD_ARGUMENT, "PORT a number"},
        {"udp://127.0.0.1:0?mtu=511", 1, RP_BAD_ARGUMENT, "?mtu=N"},
        {"udp://127.0.0.1:0?mtu=1401", 1, RP_BAD_ARGUMENT, "?mtu=N"},
        {"udp://127.0.0.1:0?mtu=65512", 1, RP_BAD_ARGUMENT, "?mtu=N"},
        {"udp://127.0.0.1:0?speed=9", 1, RP_BAD_ARGUMENT, "?mtu=N"},
        {"udp://0.0.0.0:0", 1, RP_INSECURE, "insecure"},
        {"udp://[::]:0", 1, RP_INSECURE, "insecure"},
        {"udp://127.0.0.1:0", 0, RP_BAD_ARGUMENT, "needs the server's port"},
        {"dpdk://10.0.0.1", 1, RP_BAD_ARGUMENT, "HOST:PORT"},
        {"dpdk://10.0.0.1:7400?vdev=net_ring&mtu=511", 1, RP_BAD_ARGUMENT, "mtu=N"},
        {"dpdk://10.0.0.1:7400?vdev=net_ring,mtu=511", 1, RP_BAD_ARGUMENT, "mtu=N"},
        {"dpdk://10.0.0.1:7400?vdev=net_ring&mtu=512x", 1, RP_BAD_ARGUMENT, "mtu=N"},
        {"dpdk://10.0.0.1:7400?mtu=512,vdev=net_ring", 1, RP_NO_TRANSPORT, NO_DPDK},
        {"dpdk://10.0.0.1:7400&vdev=net_ring", 1, RP_BAD_ARGUMENT, "begin with ?"},
        {"dpdk://10.0.0.1:7400?vdev=net_ring", 1, RP_NO_TRANSPORT, NO_DPDK},
        {"zmq+tcp://127.0.0.1:1", 0, RP_NO_TRANSPORT, "opened by the Python"},
        {"zmq+tcp://0.0.0.0:0", 1, RP_INSECURE, "curve_secret_key"},
        {"tcp://127.0.0.1:1", 1, RP_NO_TRANSPORT, "no such transport"},
        {"loopback://", 1, RP_BAD_ARGUMENT, "a name"},
        {"loopback://0123456789012345678901234567890123456789012345678901234567890123", 1,
         RP_BAD_ARGUMENT, "1 to 63 bytes"},
        {"loopback://nobody", 0, RP_SYSTEM, "serve at udp://127.0.0.1:0 for several"},
    };
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_peer peer;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *refusal = &refusals[i];
        struct rp_port_options options = {.serve = refusal->serve};
        struct rp_port *port = NULL;
        error[0] = 0;
        int status = rp_port_open(&port, refusal->url, &options, &peer, bound, error);
        CHECK(status == -refusal->status && !port, "%s: %d", refusal->url, status);
        CHECK(strstr(error, refusal->says), "%s: %s", refusal->url, error);
    }
    check_group("urls that are refused, each in a sentence");
}

/* Given hosts of urls. Expect a name of many parts to be one, and only names and numbers that are
 * this host whatever is resolved to have its mtu. */
static void check_hosts(void) {
    static const struct { const char *host; uint32_t mtu; } hosts[] = {
        {"replay-server-0.replay-server.reinforcement-learning.svc.cluster.local", RP_MTU_DEFAULT},
        {"127.example.org", RP_MTU_DEFAULT}, {"127.0.0.1.org", RP_MTU_DEFAULT},
        {"127.9.8.7", RP_MTU_HOST}, {"127.1", RP_MTU_HOST}, {"localhost", RP_MTU_HOST},
    };
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        char text[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES];
        struct rp_url url;
        snprintf(text, sizeof text, "udp://%s:7400", hosts[i].host);
        CHECK(rp_url_parse(&url, text, error) == 0, "%s", error);
        CHECK(strcmp(url.host, hosts[i].host) == 0 && url.mtu_default == hosts[i].mtu, "%s", text);
    }
    check_group("hosts of urls, and which are this one");
}

static void check_names(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES], url[RP_URL_TEXT_BYTES];
    struct rp_port *server, *other, *client;
    struct rp_peer peer;
    struct rp_port_options serve = {.serve = 1}, speak = {.serve = 0};
    CHECK(rp_port_open(&server, "udp://localhost:0?mtu=2048", &serve, &peer, bound, error) == 0);
    CHECK(strncmp(bound, "udp://127.0.0.1:", 16) == 0 && strstr(bound, "?mtu=2048"), "%s", bound);
    CHECK(rp_port_base(server)->mtu == 2048);
    snprintf(url, sizeof url, "udp://localhost:%d", atoi(bound + 16));
    CHECK(rp_port_open(&client, url, &speak, &peer, NULL, error) == 0, "%s", error);
    CHECK(rp_port_base(client)->mtu == RP_MTU_HOST);
    rp_port_close(client);
    rp_port_close(server);
    CHECK(rp_port_open(&server, "loopback://a", &serve, &peer, bound, error) == 0, "%s", error);
    CHECK(rp_port_open(&other, "loopback://a", &serve, &peer, bound, error) == -RP_SYSTEM);
    CHECK(strstr(error, "served already"), "%s", error);
    CHECK(rp_port_open(&client, "loopback://a", &speak, &peer, NULL, error) == 0, "%s", error);
    rp_port_close(server); /* the client outlives it: its datagrams are lost and counted */
    struct bench bench = {.name = "loopback, orphaned", .client = client, .next = 1};
    uint32_t size = 64;
    send_sizes(&bench, client, &peer, &size, 1);
    CHECK(rp_port_base(client)->dropped_out == 1);
    rp_port_close(client);
    CHECK(rp_port_open(&server, "loopback://a", &serve, &peer, bound, error) == 0, "%s", error);
    rp_port_close(server);
    check_group("names, ports resolved, a name that is free again");
}

/* A receive budget never promises more than the socket holds: that many full datagrams, sent while
 * nobody receives, all arrive. */
static void check_budget(void) {
    static const uint32_t mtus[] = {512, 1400, 1472, 4096, 8952, 65504};
    for (size_t m = 0; m < sizeof mtus / sizeof mtus[0]; m++) {
        struct bench bench;
        struct rp_packet packet;
        open_udp(&bench, "udp, budget", "udp://127.0.0.1:0", "127.0.0.1", mtus[m], 1);
        bench.next = 1;
        uint32_t budget = rp_port_base(bench.server)->receive_budget;
        budget = budget > 300 ? 300 : budget;
        for (uint32_t i = 0; i < budget; i++) {
            send_sizes(&bench, bench.client, &bench.server_address, &mtus[m], 1);
        }
        for (uint32_t i = 0; i < budget; i++) {
            receive(&bench, bench.server, &packet, 1);
            CHECK(check_pattern(packet.data, packet.size) == i + 1);
            release(bench.server, &packet, 1);
        }
        rp_port_close(bench.client);
        rp_port_close(bench.server);
    }
    CHECK(rp_udp_budget(212992, 1400) == 92, "what a default socket was measured to hold");
    check_group("udp: the receive budget is what the socket holds");
}

/* UINT64_MAX: there is no such fact. */
static uint64_t fact(struct rp_port *port, const char *name, enum rp_fact_kind kind) {
    struct rp_fact facts[RP_FACTS_MAX];
    uint32_t count = rp_port_facts(port, facts);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp((const char *)facts[i].name, name) == 0 && facts[i].kind == kind) {
            return facts[i].value;
        }
    }
    return UINT64_MAX;
}

/* Sends `count` datagrams to a port that does not look meanwhile; returns how many it finds. */
static uint32_t flood(struct bench *bench, uint32_t count) {
    uint32_t size = mtu_of(bench), got = 0;
    struct rp_packet packets[RP_BURST];
    for (uint32_t i = 0; i < count; i++) {
        send_sizes(bench, bench->client, &bench->server_address, &size, 1);
    }
    for (int empty = 0; empty < 2;) { /* a burst that finds but what it drops is empty too */
        struct rp_port *port = bench->server;
        uint32_t lent = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
        release(port, packets, lent);
        got += lent;
        empty = lent ? 0 : empty + 1;
    }
    return got;
}

/* The kernel tells its drops with what comes next: one datagram more, and every one is accounted
 * for, with drops of the port's own before and behind them. */
static void check_drops(void) {
    struct bench bench;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rp_port_options options = {.serve = 1, .receive_bytes = 65536};
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_peer own;
    uint64_t sent = 0, got = 0;
    int stranger = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(stranger >= 0);
    CHECK(rp_port_open(&bench.server, "udp://127.0.0.1:0?mtu=1400", &options, &own, bound, error)
          == 0, "%s", error);
    options.serve = 0;
    CHECK(rp_port_open(&bench.client, bound, &options, &bench.server_address, NULL, error) == 0);
    rp_udp_plain(bench.server);
    rp_udp_plain(bench.client);
    bench.next = 1;
    to.sin_port = htons((uint16_t)atoi(strrchr(bound, ':') + 1));
    for (uint64_t round = 1; round <= 3; round++) {
        CHECK(sendto(stranger, "", 0, 0, (struct sockaddr *)&to, sizeof to) == 0);
        got += flood(&bench, 400);
        got += flood(&bench, 1);
        sent += 401;
        CHECK(fact(bench.server, "unusable", RP_FACT_IN) == round, "an empty one a round");
        uint64_t lost = sent - got;
        uint64_t counted = fact(bench.server, "socket", RP_FACT_IN);
        CHECK(sent > got && counted == (KERNEL_COUNTS ? lost : UINT64_MAX),
              "%" PRIu64 " sent, %" PRIu64 " came, %" PRIu64 " dropped", sent, got, counted);
        lost = KERNEL_COUNTS ? lost : 0;
        CHECK(rp_port_base(bench.server)->dropped_in == lost + round);
        CHECK(fact(bench.client, "not_taken", RP_FACT_OUT) == 0);
    }
    rp_port_close(bench.client);
    rp_port_close(bench.server);
    close(stranger);
    check_group("udp: every datagram came, or is counted under its reason");
}

int main(void) {
    struct rp_random random;
    struct bench bench;
    rp_random_seed(&random, check_seed(7));
    open_loopback(&bench, 1400);
    check_bench(&bench, &random);
    open_loopback(&bench, 65504);
    check_bench(&bench, &random);
    open_udp(&bench, "udp", "udp://127.0.0.1:0", "127.0.0.1", 1400, 0);
    printf("  udp: the kernel %s trains, %s them\n",
           rp_udp_offloads(bench.server) & 1 ? "cuts" : "does not cut",
           rp_udp_offloads(bench.server) & 2 ? "joins" : "does not join");
    check_bench(&bench, &random);
    open_udp(&bench, "udp, no trains", "udp://127.0.0.1:0", "127.0.0.1", 1400, 1);
    check_bench(&bench, &random);
    open_udp(&bench, "udp, mtu 65504", "udp://127.0.0.1:0", "127.0.0.1", 65504, 0);
    check_bench(&bench, &random);
    open_udp(&bench, "udp, IPv6", "udp://[::1]:0", "[::1]", 512, 0);
    check_bench(&bench, &random);
    open_udp(&bench, "udp, IPv4 to IPv6", "udp://[::]:0", "127.0.0.1", 1400, 0);
    check_bench(&bench, &random);
    check_odd_trains();
    check_server_gone();
    check_refusals();
    check_hosts();
    check_names();
    check_budget();
    check_drops();
    return check_done("test_transport");
}
