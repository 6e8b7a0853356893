/* The server can tell hosts apart, by UDP. This machine's own addresses are no other host's;
 * two ports of another host are one host's, and a /64 of IPv6 is one host. And what a UDP port is
 * on its host: its bounds, its refusals, its local port. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "process.h"
#include "protocol/status.h"
#include "transport/transport_udp.h"

/* ---- the C library's, for the port's calls: they tell what a test has them tell ---- */

static struct addrinfo *names; /* what every name is found as; null: nothing is */

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found) {
    static struct addrinfo numeric;
    static struct sockaddr_in address;
    (void)hints;
    if (names) {
        *found = names;
        return 0;
    }
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    numeric = (struct addrinfo){.ai_family = AF_INET, .ai_addrlen = sizeof address,
                                .ai_addr = (struct sockaddr *)(void *)&address};
    *found = &numeric;
    return inet_pton(AF_INET, host, &address.sin_addr) == 1 ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found) {
    (void)found;
}

static struct ifaddrs *cards; /* what the system tells of itself; null: nothing */

int getifaddrs(struct ifaddrs **found) {
    *found = cards;
    return cards ? 0 : -1;
}

void freeifaddrs(struct ifaddrs *found) {
    (void)found;
}

/* Given a machine with more addresses than are kept. Expect as many as there is room for. */
static void check_many_addresses(void) {
    enum { MANY = RP_UDP_OWN_MAX + 3 };
    static struct { struct rp_udp_own own; uint8_t behind[3 * sizeof(struct rp_peer)]; } kept;
    static struct ifaddrs each[MANY];
    static struct sockaddr_in6 addresses[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        addresses[i] = (struct sockaddr_in6){.sin6_family = AF_INET6};
        addresses[i].sin6_addr.s6_addr[0] = 0x20;
        addresses[i].sin6_addr.s6_addr[15] = (uint8_t)i;
        each[i] = (struct ifaddrs){.ifa_addr = (struct sockaddr *)(void *)&addresses[i],
                                   .ifa_next = i + 1 < MANY ? &each[i + 1] : NULL};
    }
    cards = each;
    rp_udp_own(&kept.own);
    cards = NULL;
    CHECK(kept.own.count == RP_UDP_OWN_MAX, "%u", kept.own.count);
    for (size_t i = 0; i < sizeof kept.behind; i++) {
        CHECK(kept.behind[i] == 0, "written behind its end");
    }
    check_group("udp: a machine of many addresses");
}

static int wake_is_zero; /* the next eventfd, or pipe, has number 0 */

int pipe(int ends[2]) {
    int failed = (int)syscall(SYS_pipe2, ends, 0);
    if (wake_is_zero && !failed && ends[0] > 0) {
        CHECK(dup2(ends[0], 0) == 0 && close(ends[0]) == 0);
        ends[0] = 0;
    }
    return failed;
}

int eventfd(unsigned int count, int flags) {
    int made = (int)syscall(SYS_eventfd2, count, flags);
    if (wake_is_zero && made > 0) {
        CHECK(dup2(made, 0) == 0 && close(made) == 0);
        made = 0;
    }
    return made;
}

static int stranger = -1; /* sends to each port just before it is connected */

int connect(int socket, const struct sockaddr *address, socklen_t size) {
    struct sockaddr_in6 at;
    socklen_t at_size = sizeof at;
    CHECK(getsockname(socket, (struct sockaddr *)(void *)&at, &at_size) == 0);
    if (stranger >= 0 && at.sin6_port) { /* of both families, at the same place */
        CHECK(sendto(stranger, "STRANGER", 8, 0, (struct sockaddr *)(void *)&at, at_size) == 8);
    }
    return (int)syscall(SYS_connect, socket, address, size);
}

/* Given a name that is an IPv6 address first and an IPv4 one behind it, and the other way round.
 * Expect IPv4 each time, as at the other end. */
static void check_names(void) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, got;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rp_url url = {.scheme = "udp", .host = "localhost", .port = 9};
    char error[RP_URL_ERROR_BYTES];
    for (int first = 0; first < 2; first++) {
        struct addrinfo found[2];
        found[first] = (struct addrinfo){.ai_family = AF_INET6, .ai_addrlen = sizeof six,
                                         .ai_addr = (struct sockaddr *)(void *)&six};
        found[1 - first] = (struct addrinfo){.ai_family = AF_INET, .ai_addrlen = sizeof four,
                                             .ai_addr = (struct sockaddr *)(void *)&four};
        found[0].ai_next = &found[1];
        found[1].ai_next = NULL;
        names = found;
        CHECK(rp_udp_resolve(&got, &url, error) == 0, "%s", error);
        CHECK(got.sin6_family == AF_INET, "IPv4 first");
        names = NULL;
    }
    check_group("udp: a name is its IPv4 address");
}

/* Given a program whose standard input is closed. Expect number 0 to be given back, too. */
static void check_number_zero(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1};
    struct rp_port *port;
    struct rp_peer own;
    int input = dup(0);
    CHECK(input > 0);
    wake_is_zero = 1;
    CHECK(rp_port_open(&port, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0, "%s", error);
    wake_is_zero = 0;
    CHECK(fcntl(0, F_GETFD) >= 0);
    rp_port_close(port);
    CHECK(fcntl(0, F_GETFD) < 0, "it stays open");
    CHECK(dup2(input, 0) == 0 && close(input) == 0);
    check_group("udp: a descriptor whose number is 0");
}

static void check_hosts(void) {
    static const struct { const char *text; int own, like; } addresses[] = {
        {"127.9.8.7", 1, 0},      {"198.18.5.1", 0, 1},         {"198.18.5.1", 0, 1},
        {"198.18.5.2", 0, 3},      {"2001:db8:1:2::3", 0, 4},   {"2001:db8:1:2:5::", 0, 4},
        {"2001:db8:1:3::3", 0, 6}, {"2001:db8:1:42::3", 0, 7},  {"2001:db8:1:82::3", 0, 8},
        {"2001:db8:1:102::3", 0, 9}, {"2001:db8:8001:2::3", 0, 10}, {"a001:db8:1:2::3", 0, 11},
        {"::1", 1, 0},            {"::ffff:198.18.5.1", 0, 1},  {"::2", 0, 14},
        {"::3", 0, 14},           {"0:0:0:1::3", 0, 16},        {"0:0:c612:501::", 0, 17},
        {"c612:501::", 0, 18},    {"0:1:c612:501::", 0, 19},
    };
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port *server;
    struct rp_peer peer;
    struct rp_port_options serve = {.serve = 1};
    uint64_t hosts[sizeof addresses / sizeof addresses[0]];
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr.s6_addr = {0xfd, 7}};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0A141E28)};
    struct ifaddrs own[3] = {
        {.ifa_name = "bare", .ifa_next = &own[1]},
        {.ifa_name = "six", .ifa_next = &own[2], .ifa_addr = (struct sockaddr *)(void *)&six},
        {.ifa_name = "four", .ifa_addr = (struct sockaddr *)(void *)&four}};
    cards = own;
    CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &peer, bound, error) == 0);
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = (uint16_t)i};
        struct sockaddr_in *ipv4 = (void *)&address;
        if (!inet_pton(AF_INET6, addresses[i].text, &address.sin6_addr)) {
            ipv4->sin_family = AF_INET;
            CHECK(inet_pton(AF_INET, addresses[i].text, &ipv4->sin_addr) == 1);
        }
        rp_udp_peer_pack(&peer, &address);
        hosts[i] = rp_port_transport(server)->host(server, &peer);
        CHECK((hosts[i] == 0) == addresses[i].own, "%s", addresses[i].text);
        for (size_t k = 0; k < i; k++) {
            CHECK(addresses[i].own || addresses[k].own
                  || (hosts[i] == hosts[k]) == (addresses[i].like == addresses[k].like),
                  "%s and %s", addresses[i].text, addresses[k].text);
        }
    }
    for (const struct ifaddrs *at = &own[1]; at; at = at->ifa_next) {
        rp_udp_peer_pack(&peer, (const struct sockaddr_in6 *)(const void *)at->ifa_addr);
        CHECK(rp_port_transport(server)->host(server, &peer) == 0, "%s", at->ifa_name);
    }
    cards = NULL;
    rp_port_close(server);
    check_group("udp: which host an address is on");
}

/* Given a link-local address that this machine has on one of its links. Expect it to be its own
 * there, and a neighbour's on another link; one of everywhere is its own on any link. */
static void check_neighbours(void) {
    static const struct { const char *text; uint32_t scope; int own; } addresses[] = {
        {"fe80::1", 3, 1}, {"fe80::1", 4, 0}, {"fe80::1", 0, 0}, {"fe80::1", 3 << 16, 0},
        {"fe80::2", 3, 0}, {"fd07::1", 0, 1}, {"fd07::1", 4, 1},
    };
    static struct rp_udp_own own;
    struct sockaddr_in6 local = {.sin6_family = AF_INET6, .sin6_scope_id = 3}, wide = local;
    struct ifaddrs listed[2] = {
        {.ifa_next = &listed[1], .ifa_addr = (struct sockaddr *)(void *)&local},
        {.ifa_addr = (struct sockaddr *)(void *)&wide}};
    CHECK(inet_pton(AF_INET6, "fe80::1", &local.sin6_addr) == 1);
    CHECK(inet_pton(AF_INET6, "fd07::1", &wide.sin6_addr) == 1);
    cards = listed;
    rp_udp_own(&own);
    cards = NULL;
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                       .sin6_scope_id = addresses[i].scope};
        struct rp_peer peer;
        CHECK(inet_pton(AF_INET6, addresses[i].text, &address.sin6_addr) == 1);
        rp_udp_peer_pack(&peer, &address);
        CHECK((rp_udp_host(&own, &peer) == 0) == addresses[i].own, "%s%%%u", addresses[i].text,
              addresses[i].scope);
    }
    check_group("udp: a neighbour is not this machine, whatever address it takes");
}

/* Given a port that knows no address of this machine. Expect it to know all of 127.0.0.0/8 and ::1
 * by themselves, and nothing near them. */
static void check_unknowing(void) {
    static const struct { const char *text; int own; } addresses[] = {
        {"::1", 1}, {"::2", 0}, {"::", 0}, {"::101", 0}, {"100::1", 0}, {"1::1", 0},
        {"::ffff:127.0.0.1", 1}, {"::ffff:128.0.0.1", 0}, {"::ffff:126.255.255.255", 0},
    };
    static const struct rp_udp_own nothing;
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct sockaddr_in6 address = {.sin6_family = AF_INET6};
        struct rp_peer peer;
        CHECK(inet_pton(AF_INET6, addresses[i].text, &address.sin6_addr) == 1);
        rp_udp_peer_pack(&peer, &address);
        CHECK((rp_udp_host(&nothing, &peer) == 0) == addresses[i].own, "%s",
              addresses[i].text);
        CHECK(rp_udp_is_loopback(&address) == addresses[i].own, "%s", addresses[i].text);
    }
    check_group("udp: which addresses are this machine's, whatever it tells");
}

/* Given addresses of both families. Expect each to come back from a peer's bytes as it was, on a
 * socket of its own family and on one of IPv6. */
static void check_peers(void) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(7001),
                               .sin6_scope_id = 0x01020304};
    struct sockaddr_in6 four = {0}, back;
    struct sockaddr_in *ipv4 = (void *)&four;
    struct rp_peer peer, mapped;
    CHECK(inet_pton(AF_INET6, "fe80::1:2:3:4", &six.sin6_addr) == 1);
    rp_udp_peer_pack(&peer, &six);
    CHECK(rp_udp_peer_unpack(&peer, AF_INET6, &back) == sizeof six);
    CHECK(memcmp(&back, &six, sizeof six) == 0);
    *ipv4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(513)};
    CHECK(inet_pton(AF_INET, "10.20.30.40", &ipv4->sin_addr) == 1);
    rp_udp_peer_pack(&peer, &four);
    CHECK(rp_udp_peer_unpack(&peer, AF_INET, &back) == sizeof *ipv4);
    CHECK(memcmp(&back, &four, sizeof *ipv4) == 0);
    CHECK(rp_udp_peer_unpack(&peer, AF_INET6, &back) == sizeof six);
    CHECK(IN6_IS_ADDR_V4MAPPED(&back.sin6_addr) && back.sin6_port == htons(513));
    CHECK(memcmp(back.sin6_addr.s6_addr + 12, &ipv4->sin_addr, 4) == 0);
    rp_udp_peer_pack(&mapped, &back);
    CHECK(memcmp(&mapped, &peer, sizeof peer) == 0, "an address has one peer");
    check_group("udp: addresses there and back");
}

static void check_bounds(void) {
    static const struct { uint32_t bytes, mtu, budget; } bounds[] = {
        {0, 1400, 1}, {2303, 1400, 1}, {2 * 2304, 1400, 2}, {3 * 2304 - 1, 1400, 2},
        {768 * 5, 64, 5}, {1280 * 7, 576, 7}, {2304 * 7, 584, 7}, {UINT32_MAX, 512, 65535},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        uint32_t budget = rp_udp_budget(bounds[i].bytes, bounds[i].mtu);
        CHECK(budget == bounds[i].budget, "%u bytes, mtu %u: %u", bounds[i].bytes, bounds[i].mtu,
              budget);
    }
    check_group("udp: what a socket buffer holds, at least one datagram");
}

static uint16_t local_port(struct rp_port *port) {
    uint16_t local;
    memcpy(&local, rp_port_base(port)->address.bytes + 2, sizeof local);
    return ntohs(local);
}

static void speak(struct rp_port *client, struct rp_port *server, const struct rp_peer *to) {
    struct rp_packet packet;
    CHECK(rp_port_transport(client)->tx_lease(client, &packet, 1) == 1);
    memset(packet.data, 7, 64);
    packet.size = 64;
    packet.peer = *to;
    rp_port_transport(client)->tx_send(client, &packet, 1);
    while (rp_port_transport(server)->rx_burst(server, &packet, 1) == 0) {
        rp_port_transport(server)->wait(server, 1000000000);
    }
    CHECK(packet.size == 64);
    CHECK(memcmp(&packet.peer, &rp_port_base(client)->address, sizeof packet.peer) == 0,
          "it comes from where the port says it is");
    rp_port_transport(server)->rx_release(server, &packet, 1);
}

static uint32_t kernel_offloads(void) {
#ifdef RP_POSIX
    return 0; /* which uses none */
#endif
    int on = 1, off = 0, plain = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(plain >= 0);
    uint32_t bits = setsockopt(plain, SOL_UDP, UDP_SEGMENT, &off, sizeof off) == 0 ? 1 : 0;
    bits |= setsockopt(plain, SOL_UDP, UDP_GRO, &on, sizeof on) == 0 ? 2 : 0;
    close(plain);
    return bits;
}

/* Given socket buffers that are asked for, and none. Expect those (the kernel counts twice as
 * much), and more where nothing is said. */
static void check_buffers(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options asked = {.serve = 1, .receive_bytes = 50000, .send_bytes = 100000};
    struct rp_port_options plain = {.serve = 1};
    int sizes[2][2];
    for (int time = 0; time < 2; time++) {
        struct rp_port *port;
        struct rp_peer own;
        socklen_t length = sizeof(int);
        CHECK(rp_port_open(&port, "udp://127.0.0.1:0", time ? &plain : &asked, &own, bound, error)
              == 0, "%s", error);
        int socket = ((struct rp_udp_port *)(void *)port)->socket;
        CHECK(getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &sizes[time][0], &length) == 0);
        CHECK(getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &sizes[time][1], &length) == 0);
        CHECK(rp_port_base(port)->receive_budget
              == rp_udp_budget((uint32_t)sizes[time][0], rp_port_base(port)->mtu));
        rp_port_close(port);
    }
    CHECK(sizes[0][0] == 100000 && sizes[0][1] == 200000, "%d, %d", sizes[0][0], sizes[0][1]);
    CHECK(sizes[1][0] > sizes[0][0] && sizes[1][1] > sizes[0][1]);
    check_group("udp: socket buffers as asked for");
}

/* Given a client's port that is to send from another local port. Expect one that is taken to be
 * refused and nothing changed, a free one to be used, any one where none is named; a server's port
 * to stay where it is. */
static void check_rebind(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port *server, *client, *other;
    struct rp_peer own, to;
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
    CHECK(rp_port_open(&client, bound, &visit, &to, NULL, error) == 0, "%s", error);
    CHECK(rp_port_open(&other, bound, &visit, &to, NULL, error) == 0, "%s", error);
    const struct rp_transport *transport = rp_port_transport(client);
    uint16_t first = local_port(client), taken = local_port(server);
    uint32_t offloads = rp_udp_offloads(client);
    CHECK(offloads == kernel_offloads(), "trains where the kernel has them: %u", offloads);
    int before = open_descriptors();
    CHECK(transport->rebind(client, taken) == -RP_SYSTEM && local_port(client) == first);
    CHECK(open_descriptors() == before, "%d descriptors stay", open_descriptors() - before);
    speak(client, server, &to);
    CHECK(transport->rebind(server, first) == -RP_SYSTEM && local_port(server) == taken);
    uint16_t free_one = local_port(other);
    rp_port_close(other);
    CHECK(transport->rebind(client, free_one) == 0 && local_port(client) == free_one);
    speak(client, server, &to);
    CHECK(transport->wait(client, 600000000000u) == 0, "who sleeps on the old socket is woken");
    CHECK(rp_udp_offloads(client) == offloads, "trains as before");
    rp_udp_plain(client);
    int joins = 0; /* the kernel what arrives into trains */
    socklen_t size = sizeof joins;
    if (getsockopt(((struct rp_udp_port *)(void *)client)->socket, SOL_UDP, UDP_GRO, &joins, &size)
        == 0) { /* else this kernel does not say */
        CHECK(joins == 0, "the kernel joins on");
    }
    CHECK(transport->rebind(client, 0) == 0 && local_port(client) != free_one);
    CHECK(rp_udp_offloads(client) == 0, "none, as before");
    speak(client, server, &to);
    rp_port_close(client);
    rp_port_close(server);
    client = (struct rp_port *)1;
    CHECK(rp_port_open(&client, "udp://255.255.255.255:9", &visit, &to, NULL, error)
          == -RP_SYSTEM && client == NULL);
    CHECK(strstr(error, "udp://255.255.255.255:9: cannot reach it: "), "%s", error);
    check_group("udp: a local port of its own");
}

static uint64_t strangers_of(struct rp_port *port) {
    struct rp_fact facts[RP_FACTS_MAX];
    uint64_t found = UINT64_MAX;
    for (uint32_t i = rp_port_facts(port, facts); i-- > 0;) {
        found = strcmp((char *)facts[i].name, "strangers") == 0 ? facts[i].value : found;
    }
    return found;
}

/* The server's own datagram comes at the client's port as the only one, and from the server. */
static void answer(struct rp_port *server, struct rp_port *client, const struct rp_peer *from) {
    struct rp_packet packet;
    CHECK(rp_port_transport(server)->tx_lease(server, &packet, 1) == 1);
    memset(packet.data, 9, 64);
    packet.size = 64;
    packet.peer = rp_port_base(client)->address;
    rp_port_transport(server)->tx_send(server, &packet, 1);
    while (rp_port_transport(client)->rx_burst(client, &packet, 1) == 0) {
        rp_port_transport(client)->wait(client, 1000000000);
    }
    CHECK(packet.size == 64 && packet.data[0] == 9, "%.8s", (char *)packet.data);
    CHECK(memcmp(&packet.peer, from, sizeof packet.peer) == 0);
    rp_port_transport(client)->rx_release(client, &packet, 1);
    CHECK(rp_port_transport(client)->rx_burst(client, &packet, 1) == 0);
}

/* Given a stranger who sends to a client's new port before it is connected, and a server whose
 * address the kernel names otherwise than the client. Expect the server's datagrams to come, and
 * the stranger's to be dropped and counted. */
static void check_strangers(void) {
    static const char *const hosts[][2] = {
        {"127.0.0.1", "127.0.0.1"}, {"127.0.0.1", "0.0.0.0"}};
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES], url[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct rp_port *server, *client;
        struct rp_peer own, to;
        snprintf(url, sizeof url, "udp://%s:0", hosts[i][0]);
        CHECK(rp_port_open(&server, url, &serve, &own, bound, error) == 0, "%s", error);
        snprintf(url, sizeof url, "udp://%s%s", hosts[i][1], strrchr(bound, ':'));
        CHECK(rp_port_open(&client, url, &visit, &to, NULL, error) == 0, "%s", error);
        answer(server, client, &to);
        CHECK(strangers_of(client) == 0 && strangers_of(server) == UINT64_MAX);
        stranger = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(stranger >= 0 && rp_port_transport(client)->rebind(client, 0) == 0);
        CHECK(close(stranger) == 0);
        stranger = -1;
        answer(server, client, &to);
        CHECK(strangers_of(client) == 1 && rp_port_base(client)->dropped_in == 1);
        rp_port_close(client);
        rp_port_close(server);
    }
    check_group("udp: what strangers sent before a port was connected is not the server's");
}

/* Given ports that open and close. Expect no memory more than before. */
static void check_given_back(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1}, visit = {0};
    size_t before = 0;
    for (int round = 0; round < 30; round++) {
        struct rp_port *server, *client;
        struct rp_peer own;
        CHECK(rp_port_open(&server, "udp://127.0.0.1:0", &serve, &own, bound, error) == 0);
        CHECK(rp_port_open(&client, bound, &visit, &own, NULL, error) == 0, "%s", error);
        rp_port_close(client);
        rp_port_close(server);
        before = round == 9 ? mallinfo2().uordblks + mallinfo2().hblkhd : before;
    }
    size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(now <= before, "%zu bytes were kept", now - before);
    check_group("udp: what is closed is given back");
}

/* Given no descriptor to be had. Expect no port, a sentence, and no memory kept. */
static void check_no_descriptor(void) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1};
    struct rlimit before, none;
    size_t first = 0;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    for (int round = 0; round < 30; round++) {
        struct rp_port *port = (struct rp_port *)1;
        struct rp_peer own;
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        int status = rp_port_open(&port, "udp://127.0.0.1:7", &serve, &own, bound, error);
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        CHECK(status < 0 && port == NULL && error[0]);
        first = round == 9 ? mallinfo2().uordblks + mallinfo2().hblkhd : first;
    }
    size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(now <= first, "%zu bytes were kept", now - first);
    check_group("udp: what could not be opened is given back");
}

/* Buffers of a port that was asked for so much. */
static int buffer_of(uint32_t bytes) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options asked = {.serve = 1, .receive_bytes = bytes, .send_bytes = bytes};
    struct rp_port *port;
    struct rp_peer own;
    int size = 0;
    socklen_t length = sizeof size;
    if (rp_port_open(&port, "udp://127.0.0.1:0", &asked, &own, bound, error) == 0) {
        getsockopt(((struct rp_udp_port *)(void *)port)->socket, SOL_SOCKET, SO_RCVBUF, &size,
                   &length);
        rp_port_close(port);
    }
    return size;
}

static int may_force(int bytes) {
    int plain = socket(AF_INET, SOCK_DGRAM, 0);
    int may = setsockopt(plain, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) == 0;
    close(plain);
    return may;
}

/* Given a user who may exceed the system's bound, and one who may not. Expect the first to get a
 * buffer past it, the other what lies within. */
static void check_bound_of_buffers(void) {
    int most = 0, status = 0;
    FILE *file = fopen("/proc/sys/net/core/rmem_max", "r");
    CHECK(file && fscanf(file, "%d", &most) == 1 && most > 0 && most < 1 << 28);
    fclose(file);
    if (may_force(2 * most)) {
        CHECK(buffer_of(2 * (uint32_t)most) == 4 * most, "the bound held though it need not");
    }
    CHECK(buffer_of(UINT32_MAX) >= 2 * most, "more than an int holds is as much as there is");
    pid_t child = fork();
    if (child == 0) {
        int left = getuid() == 0 ? setuid(65534) : 0; /* with it goes the right to force */
        int within = buffer_of(20000), past = buffer_of(2 * (uint32_t)most);
        _exit(left ? 3 : may_force(20000) ? 0 : within == 40000 && past == 2 * most ? 0 : 4);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    check_group("udp: buffers past the system's bound, where they may be");
}

int main(void) {
    check_names();
    check_many_addresses();
    check_number_zero();
    check_no_descriptor();
    check_bound_of_buffers();
    check_given_back();
    check_hosts();
    check_neighbours();
    check_unknowing();
    check_peers();
    check_bounds();
    check_buffers();
    check_rebind();
    check_strangers();
    return check_done("test_udp_host");
}
