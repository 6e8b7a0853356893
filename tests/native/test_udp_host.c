/* Goal: the server can tell hosts apart, by UDP. This machine's own addresses are no other host's;
 * two ports of another host are one host's, and a /64 of IPv6 is one host. */
#include <arpa/inet.h>
#include <ifaddrs.h>

#include "check.h"
#include "transport_udp.h"

static void check_hosts(void)
{
    static const struct { const char *text; int own, like; } addresses[] = {
        {"127.9.8.7", 1, 0},      {"198.18.5.1", 0, 1},         {"198.18.5.1", 0, 1},
        {"198.18.5.2", 0, 3},      {"2001:db8:1:2::3", 0, 4},   {"2001:db8:1:2:5::", 0, 4},
        {"2001:db8:1:3::3", 0, 6}, {"::1", 1, 0},              {"::ffff:198.18.5.1", 0, 1},
    };
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port *server;
    struct rp_peer peer;
    struct rp_port_options serve = {.serve = 1};
    uint64_t hosts[sizeof addresses / sizeof addresses[0]];
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
    struct ifaddrs *found = NULL;
    CHECK(getifaddrs(&found) == 0);
    for (const struct ifaddrs *at = found; at; at = at->ifa_next) {
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET) {
            rp_udp_peer_pack(&peer, (const struct sockaddr_in6 *)(const void *)at->ifa_addr);
            CHECK(rp_port_transport(server)->host(server, &peer) == 0, "%s", at->ifa_name);
        }
    }
    freeifaddrs(found);
    rp_port_close(server);
    check_group("udp: which host an address is on");
}

int main(void)
{
    check_hosts();
    return check_done("test_udp_host");
}
