/* A link-local address keeps its interface in every text that is made of it, so that a url a
 * server says leads to it. */
#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "transport/transport_udp.h"
#include "transport/transport_zmq.h"

/* Given addresses with and without a scope. Expect the interface's name, or its number where there
 * is none of it, of a link-local one; nothing of others; and a url that leads to the same. */
static void check_texts(void) {
    static const struct { const char *address; uint32_t scope; const char *text; } texts[] = {
        {"fe80::1:2:3:4", 1, "udp://[fe80::1:2:3:4%lo]:7"},
        {"fe80::1", 4000000000u, "udp://[fe80::1%4000000000]:7"},
        {"fe80::1", 0, "udp://[fe80::1]:7"}, {"febf::1", 1, "udp://[febf::1%lo]:7"},
        {"fec0::1", 1, "udp://[fec0::1]:7"}, {"::1", 1, "udp://[::1]:7"},
        {"2001:db8::1", 1, "udp://[2001:db8::1]:7"},
    };
    char text[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES];
    char endpoint[RP_ZMQ_ENDPOINT_BYTES];
    uint32_t own = if_nametoindex("lo");
    CHECK(own > 0);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(7)}, back;
        struct rp_url url;
        CHECK(inet_pton(AF_INET6, texts[i].address, &address.sin6_addr) == 1);
        address.sin6_scope_id = texts[i].scope == 1 ? own : texts[i].scope;
        rp_udp_print(text, sizeof text, &address);
        CHECK(strcmp(text, texts[i].text) == 0, "%s, not %s", text, texts[i].text);
        CHECK(rp_url_parse(&url, text, error) == 0, "%s", error);
        CHECK(rp_udp_resolve(&back, &url, error) == 0, "%s", error);
        CHECK(memcmp(&back.sin6_addr, &address.sin6_addr, sizeof back.sin6_addr) == 0);
        CHECK(back.sin6_scope_id == (strchr(text, '%') ? address.sin6_scope_id : 0));
        snprintf(text, sizeof text, "zmq+tcp%s", strstr(texts[i].text, "://"));
        CHECK(rp_zmq_endpoint(text, 1, 1, endpoint, error) == 0, "%s", error);
        CHECK(strcmp(endpoint, text + 4) == 0, "%s", endpoint);
    }
    check_group("a link-local address with its interface");
}

/* One datagram there and one back; each end knows the other by the address it was given. */
static void exchange(const char *where) {
    char error[RP_URL_ERROR_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options serve = {.serve = 1, .insecure = 1}, visit = {0};
    struct rp_port *ports[2];
    struct rp_peer own, to;
    struct rp_packet packet;
    CHECK(rp_port_open(&ports[0], where, &serve, &own, bound, error) == 0, "%s", error);
    CHECK(strstr(bound, "%lo]:"), "%s", bound);
    CHECK(rp_port_open(&ports[1], bound, &visit, &to, NULL, error) == 0, "%s", error);
    CHECK(memcmp(&to, &own, sizeof to) == 0);
    for (int from = 1; from >= 0; from--) {
        CHECK(rp_port_transport(ports[from])->tx_lease(ports[from], &packet, 1) == 1);
        memset(packet.data, from, 64);
        packet.size = 64;
        packet.peer = to;
        rp_port_transport(ports[from])->tx_send(ports[from], &packet, 1);
        struct rp_port *other = ports[1 - from];
        for (int tries = 0; rp_port_transport(other)->rx_burst(other, &packet, 1) == 0; tries++) {
            CHECK(tries < 10, "nothing came");
            rp_port_transport(other)->wait(other, 1000000000);
        }
        CHECK(packet.size == 64 && packet.data[0] == from);
        rp_port_transport(other)->rx_release(other, &packet, 1);
        to = packet.peer;
    }
    CHECK(memcmp(&to, &own, sizeof to) == 0, "the answer is from the server");
    rp_port_close(ports[1]);
    CHECK(rp_port_open(&ports[1], "zmq+tcp://[fe80::7%lo]:0", &serve, &own, bound, error) == 0,
          "%s", error);
    CHECK(strncmp(bound, "zmq+tcp://[fe80::7%lo]:", 23) == 0, "%s", bound);
    rp_port_close(ports[1]);
    rp_port_close(ports[0]);
    check_group("a server at a link-local address is reached by the url it says");
}

/* lo is up and has fe80::7, without iproute2, which a bare machine lacks: 0, or -1. */
static int prepare_network(void) {
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    struct { /* in6_ifreq, which Linux's header cannot declare beside netinet/in.h */
        struct in6_addr address;
        uint32_t prefix;
        int index;
    } local = {.prefix = 64, .index = (int)if_nametoindex("lo")};
    int file = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET6, "fe80::7", &local.address);
    int failed = file < 0 || ioctl(file, SIOCSIFFLAGS, &up) || ioctl(file, SIOCSIFADDR, &local);
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = local.address,
                               .sin6_scope_id = (uint32_t)local.index};
    for (int tries = 0; !failed && bind(file, (struct sockaddr *)&own, sizeof own); tries++) {
        failed = tries == 2000; /* the kernel is still looking whether another host has it */
        usleep(1000);
    }
    close(file);
    return failed ? -1 : 0;
}

/* Given a link-local address, on a network of this test's own. */
static void check_reached(void) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int apart = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
        if (apart && prepare_network() == 0) {
            exchange("udp://[fe80::7%lo]:0");
        } else {
            CHECK(!getenv("CI") || getuid() != 0, "no network of its own here");
            printf("  (no network of its own here: no link-local address is served)\n");
        }
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

int main(void) {
    check_texts();
    check_reached();
    return check_done("test_udp_scope");
}
