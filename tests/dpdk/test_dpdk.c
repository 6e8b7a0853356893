/* The transport dpdk://, unprivileged and without hugepages: net_ring within this process, memif
 * with a child that is killed. Run by `make test-dpdk`; REPLAY_DPDK says where the object is.
 *
 * Each group runs in a child of its own, since DPDK starts once in a process. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpdk/frame.h"
#include "open_port.h"
#include "protocol/status.h"

enum {
    TRIES = 100000, SECONDS = 60, ROUNDS = 300,
    WHOLE = 17, /* of a group that came to its end: DPDK can end a process with 0 */
};

#define RING "dpdk://10.0.0.1:7400?vdev=net_ring"
#define CABLE "dpdk://10.0.0.1:7400?vdev=net_af_packet,iface=x"
#define TAP "dpdk://10.0.0.1:7400?vdev=net_tap,iface="
#define MEMIF "dpdk://10.0.0.1:7400?vdev=net_memif,socket=/nowhere/x"

static const struct rp_dpdk_object *object;
static char socket_path[64];

static const char *memif_url(char *url, int serve, const char *more) {
    snprintf(url, RP_URL_TEXT_BYTES, "dpdk://10.0.0.1:7400?vdev=net_memif,role=%s,socket=%s%s",
             serve ? "server" : "client", socket_path, more);
    return url;
}

static uint8_t pattern(uint64_t number, uint32_t i) {
    return (uint8_t)((number * 131 + i * 7) >> (i % 3));
}

/* Sends datagrams number .. number + count of `size` bytes. */
static void send_some(struct rp_port *port, const struct rp_peer *to, uint64_t number,
                      uint32_t count, uint32_t size) {
    struct rp_packet packets[RP_BURST];
    uint32_t lent = rp_port_transport(port)->tx_lease(port, packets, count);
    CHECK(lent == count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK((uintptr_t)packets[i].data % 8 == 0 && packets[i].capacity >= size);
        packets[i].peer = *to;
        packets[i].size = size;
        for (uint32_t k = 0; k < size; k++) {
            packets[i].data[k] = pattern(number + i, k);
        }
    }
    rp_port_transport(port)->tx_send(port, packets, count);
}

/* Receives exactly `count`, in order; returns the last one's sender. */
static struct rp_peer receive_some(struct rp_port *port, uint64_t number, uint32_t count,
                                   uint32_t size) {
    struct rp_packet packets[RP_BURST];
    struct rp_peer from = {0};
    uint32_t got = 0;
    for (int tries = 0; got < count; tries++) {
        CHECK(tries < TRIES, "%u of %u came", got, count);
        uint32_t room = count - got < RP_BURST ? count - got : RP_BURST;
        uint32_t lent = rp_port_transport(port)->rx_burst(port, packets, room);
        for (uint32_t i = 0; i < lent; i++, got++) {
            const uint8_t *data = packets[i].data;
            CHECK(packets[i].size == size && (uintptr_t)data % 8 == 0);
            CHECK((uint32_t)(data[-4] << 8 | data[-3]) == size + 8, "moved away from its headers");
            for (uint32_t k = 0; k < size; k++) {
                CHECK(packets[i].data[k] == pattern(number + got, k), "byte %u of %u", k, size);
            }
            from = packets[i].peer;
        }
        rp_port_transport(port)->rx_release(port, packets, lent);
        if (!lent) {
            rp_port_transport(port)->wait(port, 1000000);
        }
    }
    return from;
}

static uint32_t look(struct rp_port *port) {
    struct rp_packet packets[RP_BURST];
    uint32_t lent = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
    rp_port_transport(port)->rx_release(port, packets, lent);
    return lent;
}

/* Until the client's datagrams reach the server: its first sends only ask for the address. */
static void meet(struct rp_port *client, const struct rp_peer *server, struct rp_port *port) {
    uint32_t came = 0;
    for (int tries = 0; !came; tries++) {
        CHECK(tries < 1000, "the address was never resolved");
        send_some(client, server, 0, 1, 64);
        came = look(port);
        rp_port_transport(port)->wait(port, 1000000);
        CHECK(look(client) == 0);
    }
    while (look(port)) {
    }
}

/* ---- groups ---- */

static void expect_refusal_of(int serve, const char *url, int status, const char *says) {
    char error[RP_URL_ERROR_BYTES] = "", bound[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {.serve = serve};
    struct rp_port *port = NULL;
    struct rp_peer peer;
    int got = rp_port_open(&port, url, &options, &peer, bound, error);
    CHECK(got == -status && !port && strstr(error, says), "%s: %d %s", url, got, error);
}

static void expect_refusal(const char *url, int status, const char *says) {
    expect_refusal_of(1, url, status, says);
}

static void ring(void) {
    cpu_set_t before, after;
    struct rp_peer own, server, seen[2];
    struct rp_port *clients[2];
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    struct rp_port *port = open_port(RING, 1, &own);
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&before, &after), "DPDK left its opener the CPUs it had");
    send_some(port, &own, 0, 0, 0);
    uint32_t start = object->in_use(port), mtu = rp_port_base(port)->mtu;
    for (uint32_t round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            clients[i] = open_port(RING, 0, &server);
            meet(clients[i], &server, port);
        }
        for (uint32_t size = 1; size <= mtu; size += size < 70 ? 3 : 133) {
            for (int i = 0; i < 2; i++) {
                send_some(clients[i], &server, size, RP_BURST, size);
                seen[i] = receive_some(port, size, RP_BURST, size);
                send_some(port, &seen[i], size + 9, RP_BURST, size);
                struct rp_peer from = receive_some(clients[i], size + 9, RP_BURST, size);
                CHECK(memcmp(&from, &server, sizeof from) == 0, "a client has one peer");
            }
            CHECK(memcmp(&seen[0], &seen[1], sizeof seen[0]) != 0, "clients are told apart");
            CHECK(rp_port_transport(port)->host(port, &seen[0]) == 0, "and are this process's");
        }
        send_some(port, &seen[0], 0, RP_BURST, 64); /* that nobody reads */
        send_some(port, &seen[1], 0, RP_BURST, 64);
        rp_port_close(clients[0]);
        rp_port_close(clients[1]);
    }
    look(port);
    CHECK(object->in_use(port) <= start + RP_BURST, "%u mbufs, %u at the start",
          object->in_use(port), start);
    CHECK(rp_port_base(port)->dropped_in == 0);
    rp_port_close(port);
    CHECK(object->leaked() == 0, "%" PRIu64 " mbufs are not free", object->leaked());
    port = open_port(RING "&mtu=1400", 1, &own);
    expect_refusal_of(0, RING "&mtu=1408", RP_BAD_ARGUMENT, "that server has mtu=1400");
    rp_port_close(open_port(RING "&mtu=1400", 0, &server));
    rp_port_close(port);
    rp_port_close(open_port(RING, 1, &own));
    CHECK(object->leaked() == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        expect_refusal(RING, RP_FORKED, "started in another process");
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a fork has no DPDK");
    check_group("net_ring: two clients, every size, affinity, mbufs, an address free again");
}

/* Datagrams that their receiver must not take, each with its counter. */
static void drops(void) {
    char url[RP_URL_TEXT_BYTES];
    struct rp_peer own, server;
    struct rp_port *port = open_port(memif_url(url, 1, ""), 1, &own);
    struct rp_port *client = open_port(memif_url(url, 0, ""), 0, &server);
    meet(client, &server, port);
    send_some(client, &server, 1, 1, 64);
    struct rp_peer seen = receive_some(port, 1, 1, 64);
    CHECK(rp_port_transport(port)->host(port, &seen) == 1, "a link has its share of sessions");
    snprintf(url, sizeof url, "dpdk://10.0.0.1:7401?vdev=net_memif,socket=%s", socket_path);
    struct rp_port *other = open_port(url, 0, &server);
    for (uint32_t sent = 0; !object->dropped(port, RP_FRAME_DROP_closed_port); sent++) {
        CHECK(sent < 1000);
        send_some(other, &server, 1, 1, 64);
        look(port);
        rp_port_transport(port)->wait(port, 1000000);
        look(other);
    }
    rp_port_close(other);
    snprintf(url, sizeof url, "dpdk://10.0.0.9:7400?vdev=net_memif,socket=%s", socket_path);
    other = open_port(url, 0, &server);
    send_some(other, &server, 1, 3, 64);
    CHECK(rp_port_base(other)->dropped_out >= 3, "nobody answers for that address");
    for (int tries = 0; !object->dropped(port, RP_FRAME_DROP_arp); tries++) {
        CHECK(tries < TRIES);
        look(port);
    }
    rp_port_close(other);
    CHECK(object->in_use(client) < 200);
    rp_port_close(client);
    rp_port_close(port);
    CHECK(object->leaked() == 0);
    check_group("drops below the engine: a closed port, ARP for another, an address nobody has");
}

/* Past the kernel, from one end of a cable to the other, in a network namespace of its own. */
static void cable(void) {
    static const char make[] =
        "ip link add rp-near type veth peer name rp-far && ip link set rp-near mtu 9000 up && "
        "ip link set rp-far mtu 9000 up";
    enum { SOME = 16 }; /* the smaller of its rings holds 128 */
    struct rp_peer own, server;
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 || system(make) != 0) {
        printf("  left out, AF_PACKET: a cable needs root, and ip\n");
        return;
    }
    struct rp_port *port = open_port(
        "dpdk://10.0.0.1:7400?vdev=net_af_packet,iface=rp-near&mtu=8952", 1, &own);
    struct rp_port *client = open_port(
        "dpdk://10.0.0.1:7400?vdev=net_af_packet,iface=rp-far,ip=10.0.0.2&mtu=8952", 0, &server);
    meet(client, &server, port);
    for (uint32_t size = 1; size <= 8952; size += size < 70 ? 3 : 133) {
        send_some(client, &server, size, SOME, size);
        struct rp_peer seen = receive_some(port, size, SOME, size);
        send_some(port, &seen, size + 9, SOME, size);
        receive_some(client, size + 9, SOME, size);
    }
    rp_port_close(client);
    rp_port_close(port);
    CHECK(object->leaked() == 0, "%" PRIu64 " mbufs are not free", object->leaked());
    check_group("net_af_packet: bytes of every size, where they were received");
}

struct refusal {
    const char *url;
    int serve;
    int status;
    const char *says;
};

static const struct refusal refused[] = {
    {"dpdk://10.0.0.1:7400", 1, RP_BAD_ARGUMENT, "?vdev=net_ring"},
    {"dpdk://host:7400?vdev=net_ring", 1, RP_BAD_ARGUMENT, "IPv4 address"},
    {"dpdk://10.0.0.1:7400?vdev=net_bond0", 1, RP_BAD_ARGUMENT, "net_ring, net_memif"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring&speed=9", 1, RP_BAD_ARGUMENT, "the options are"},
    {"dpdk://10.0.0.1:7400?vdev", 1, RP_BAD_ARGUMENT, "NAME=VALUE"},
    {"dpdk://10.0.0.1:7400?vdev=net_memif", 1, RP_BAD_ARGUMENT, "needs socket="},
    {"dpdk://10.0.0.1:7400?vdev=net_memif,role=client,socket=/tmp/x", 1, RP_BAD_ARGUMENT,
     "role=server is what serves"},
    {"dpdk://10.0.0.1:7400?vdev=net_memif,links=17,socket=/tmp/x", 1, RP_BAD_ARGUMENT,
     "1 to 16"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,ip=10.0.0", 0, RP_BAD_ARGUMENT, "ip="},
    {"dpdk://10.0.0.1:7400?vdev=net_ring&mtu=8968", 1, RP_BAD_ARGUMENT, "at most 8960"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,mtu=8968,ip=1.2.3.4", 1, RP_BAD_ARGUMENT,
     "at most 8960"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,mtu=100", 1, RP_BAD_ARGUMENT, "512 to 65504"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,vdev=net_ring", 1, RP_BAD_ARGUMENT, "said twice"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,role=banana", 1, RP_BAD_ARGUMENT,
     "role= is server or client"},
    {"dpdk://10.0.0.1:7400?vdev=net_memif,socket=x", 1, RP_BAD_ARGUMENT, "a whole path"},
    {"dpdk://10.0.0.1:7400?vdev=net_memif,socket=/run/a=1", 1, RP_BAD_ARGUMENT, "or an open ["},
    {"dpdk://10.0.0.1:7400?vdev=net_memif,socket=/run/a[1", 0, RP_BAD_ARGUMENT, "or an open ["},
    {"dpdk://10.0.0.1:7400?vdev=net_af_packet,iface=a=b", 1, RP_BAD_ARGUMENT, "or an open ["},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,socket=/x", 1, RP_BAD_ARGUMENT, "net_memif"},
    {"dpdk://10.0.0.1:7400?vdev=net_tap,iface=a-name-of-16-byte", 1, RP_BAD_ARGUMENT,
     "7400: iface= is too long"},
    {RING ",cores=0;1;2;3;4;5;6;7;8;9;10;11;12;13;14", 1, RP_BAD_ARGUMENT,
     "7400: cores= is too long"},
    {RING ",take=on", 1, RP_BAD_ARGUMENT, "take= goes with vdev=net_af_xdp"},
    {"dpdk://10.0.0.1:7400?vdev=net_af_packet,iface=x,take=on", 1, RP_BAD_ARGUMENT, "take= goes"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,iface=x", 1, RP_BAD_ARGUMENT, "net_af_xdp"},
    {"dpdk://10.0.0.1:7400?vdev=net_af_packet", 1, RP_BAD_ARGUMENT, "needs iface="},
    {"dpdk://127.0.0.9:7400?vdev=net_tap,iface=x", 1, RP_BAD_ARGUMENT, "HOST is the server"},
    {CABLE ",ip=127.0.0.9", 0, RP_BAD_ARGUMENT, "ip= is an address that no host can have"},
    {CABLE ",ip=224.0.0.5", 0, RP_BAD_ARGUMENT, "ip= is an address that no host can have"},
    {CABLE ",ip=0.0.0.1", 0, RP_BAD_ARGUMENT, "ip= is an address that no host can have"},
    {CABLE ",ip=10.0.0.2,gateway=10.0.0.2", 0, RP_BAD_ARGUMENT, "gateway= is the address"},
    {CABLE ",ip=10.0.0.2,gateway=127.0.0.1", 0, RP_BAD_ARGUMENT, "gateway= is the address"},
    {CABLE ",gateway=10.0.0.1", 1, RP_BAD_ARGUMENT, "gateway= is the address"},
    {CABLE ",gateway=255.255.255.255", 1, RP_BAD_ARGUMENT, "gateway= is the address"},
    {CABLE ",ip=10.0.0.2,gateway=0.0.0.0", 0, RP_BAD_ARGUMENT, "gateway= are IPv4 addresses"},
    {CABLE ",ip=10.0.0.1", 0, RP_BAD_ARGUMENT, "HOST the server's: give it one of its own"},
    {CABLE ",ip=10.0.0.2", 1, RP_BAD_ARGUMENT, "ip= is a client's own address"},
    {RING ",ip=10.0.0.2", 1, RP_BAD_ARGUMENT, "ip= is a client's own address"},
    {TAP "tp%d", 1, RP_BAD_ARGUMENT, "the kernel gives no interface"},
    {TAP "a/b", 1, RP_BAD_ARGUMENT, "the kernel gives no interface"},
    {TAP "a:b", 1, RP_BAD_ARGUMENT, "the kernel gives no interface"},
    {TAP "a b", 1, RP_BAD_ARGUMENT, "the kernel gives no interface"},
    {TAP "..", 1, RP_BAD_ARGUMENT, "the kernel gives no interface"},
    {RING ",mbufs=64", 1, RP_BAD_ARGUMENT, "mbufs= is for devices with a network behind them"},
    {RING ",probe=off", 1, RP_BAD_ARGUMENT, "probe= goes with"},
    {TAP "x,probe=off", 1, RP_BAD_ARGUMENT, "probe= goes with"},
    {RING ",links=4", 1, RP_BAD_ARGUMENT, "links= goes with vdev=net_memif and role=server"},
    {MEMIF ",links=4", 0, RP_BAD_ARGUMENT, "links= goes with vdev=net_memif and role=server"},
    {MEMIF ",id=1", 1, RP_BAD_ARGUMENT, "id= goes with vdev=net_memif and role=client"},
    {MEMIF ",mbufs=64", 1, RP_BAD_ARGUMENT, "mbufs= is for"},
    {CABLE ",ip=10.0.0.2,id=1", 0, RP_BAD_ARGUMENT, "id= goes with"},
    {CABLE ",role=server", 1, RP_BAD_ARGUMENT, "role= goes with vdev=net_memif"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,id=16", 1, RP_BAD_ARGUMENT, "0 to 15"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,memory=much", 1, RP_BAD_ARGUMENT, "MiB"},
    {RING ",eal=-h", 1, RP_BAD_ARGUMENT, "eal= does not take -h: leave it out, or say -nN"},
    {RING ",eal=--hel", 1, RP_BAD_ARGUMENT, "does not take --hel: leave"},
    {RING ",eal=--proc-type=secondary", 1, RP_BAD_ARGUMENT, "take --proc-type=secondary: "},
    {RING ",eal=-n4;-d/tmp/code.so", 1, RP_BAD_ARGUMENT, "not take -d/tmp/code.so: "},
    {RING ",eal=-n;4", 1, RP_BAD_ARGUMENT, "does not take -n: "},
    {RING ",eal=-n4;--log-level=help", 1, RP_BAD_ARGUMENT, "take --log-level=help: "},
    {RING ",eal=--iova-mode=va;-r0x2", 1, RP_BAD_ARGUMENT, "does not take -r0x2: "},
    {RING ",eal=-n0", 1, RP_BAD_ARGUMENT, "does not take -n0: "},
    {RING ",eal=-r17", 1, RP_BAD_ARGUMENT, "does not take -r17: "},
    {RING ",eal=--vfio-vf-token=abcd-", 1, RP_BAD_ARGUMENT, "take --vfio-vf-token=abcd-: "},
    {RING ",eal=--vfio-vf-token=", 1, RP_BAD_ARGUMENT, "does not take --vfio-vf-token=: "},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,huge=yes", 1, RP_BAD_ARGUMENT, "on or off"},
    {RING ",cores=two", 1, RP_BAD_ARGUMENT, "2-3"},
    {RING ",cores=0;", 1, RP_BAD_ARGUMENT, "2-3"},
    {RING ",cores=0-", 1, RP_BAD_ARGUMENT, "2-3"},
    {RING ",cores=0-1023", 1, RP_BAD_ARGUMENT, ", and this host has 0"},
    {RING ",cores=9999", 1, RP_BAD_ARGUMENT, "cores= names processor 9999, and this host has 0"},
    {RING ",eal=--socket-mem=64", 1, RP_SYSTEM, "needs hugepages: say huge=on, or memory="},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,vlan=5", 1, RP_BAD_ARGUMENT, "a network behind"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,queues=0", 1, RP_BAD_ARGUMENT, "1 to 16"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,queues=2", 1, RP_BAD_ARGUMENT, "a network behind"},
    {"dpdk://10.0.0.1:7400?port=0000:03:00.9", 1, RP_BAD_ARGUMENT, "such as 0000:03:00.0"},
    {"dpdk://10.0.0.1:7400?port=03:20.0", 1, RP_BAD_ARGUMENT, "such as 0000:03:00.0"},
    {"dpdk://10.0.0.1:7400?port=+003:03:00.0", 1, RP_BAD_ARGUMENT, "such as 0000:03:00.0"},
    {"dpdk://10.0.0.1:7400?port=-3:00.0", 1, RP_BAD_ARGUMENT, "such as 0000:03:00.0"},
    {"dpdk://10.0.0.1:7400?port=3,vdev=net_ring", 1, RP_BAD_ARGUMENT, "one device"},
    {"dpdk://10.0.0.1:0?vdev=net_ring", 0, RP_BAD_ARGUMENT, "server's port"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring", 0, RP_SYSTEM, "nobody serves there"},
    {"dpdk://10.0.0.1:7400?vdev=net_ring,memory=64", 0, RP_BAD_ARGUMENT, "memory=512"},
    {"dpdk://10.0.0.1:7400?vdev=net_memif,socket=/nowhere/x", 0, RP_SYSTEM, "nobody serves"},
    {"dpdk://10.0.0.1:7400?vdev=net_memif,socket=/nowhere/x", 1, RP_SYSTEM, "memif"},
};

/* The first processor this process may run on. */
static int some_cpu(void) {
    cpu_set_t cpus;
    int cpu = 0;
    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    while (!CPU_ISSET((size_t)cpu, &cpus)) {
        cpu++;
    }
    return cpu;
}

static void refusals(void) {
    char url[RP_URL_TEXT_BYTES];
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char error[RP_URL_ERROR_BYTES] = "", bound[RP_URL_TEXT_BYTES];
        struct rp_port_options options = {.serve = refused[i].serve};
        struct rp_port *port = NULL;
        struct rp_peer peer;
        int status = rp_port_open(&port, refused[i].url, &options, &peer, bound, error);
        CHECK(status == -refused[i].status && !port, "%s: %d %s", refused[i].url, status, error);
        CHECK(strstr(error, refused[i].says), "%s: %s", refused[i].url, error);
    }
    snprintf(url, sizeof url, RING ",cores=%d", some_cpu());
    expect_refusal(url, RP_BAD_ARGUMENT, "runs in this process with cores=(unsaid) already");
    check_group("urls that are refused, each in a sentence");
}

static void cannot_start(void) {
    struct rlimit limit = {(rlim_t)2 << 30, (rlim_t)2 << 30};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    expect_refusal(RING ",memory=1048576", RP_SYSTEM, "memory=1048576 is more than this host");
    expect_refusal(RING ",memory=2047", RP_SYSTEM, "DPDK did not start (EAL: ");
    expect_refusal(RING, RP_SYSTEM, "DPDK did not start (EAL: "); /* told again, not tried again */
    check_group("DPDK that cannot start is a sentence, and its own words are in it");
}

static void too_little(void) {
    expect_refusal(RING ",memory=1", RP_SYSTEM, "no memory for frames: memory= in the "
                   "first url is too little, leave it out or say 512");
    check_group("no memory for a pool is a sentence");
}

/* ---- others, while a client waits ---- */

static struct rp_port_options patience = {.timeout_ns = 30000000000};
static _Atomic int waited; /* the client has its answer */

static void *wait_there(void *unused) {
    char url[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES] = "", bound[RP_URL_TEXT_BYTES];
    struct rp_port *port = NULL;
    struct rp_peer peer;
    int status = rp_port_open(&port, memif_url(url, 0, ""), &patience, &peer, bound, error);
    atomic_store(&waited, 1);
    CHECK(status == -RP_SYSTEM && !port, "%d %s", status, error);
    return unused;
}

static struct rp_port *first_client(uint64_t timeout_ns, char *error) {
    char url[RP_URL_TEXT_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {.timeout_ns = timeout_ns};
    struct rp_port *port = NULL;
    struct rp_peer peer;
    (void)rp_port_open(&port, memif_url(url, 0, ",id=0"), &options, &peer, bound, error);
    return port;
}

/* A memif server that hangs: it listens, and accepts nobody. */
static void others_go_on(void) {
    char error[RP_URL_ERROR_BYTES] = "";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct rp_peer own, at;
    pthread_t thread;
    int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    CHECK(door >= 0 && bind(door, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(door, 4) == 0);
    struct pollfd visitor = {.fd = door, .events = POLLIN};
    struct rp_port *port = open_port(RING, 1, &own), *client = open_port(RING, 0, &at);
    CHECK(pthread_create(&thread, NULL, wait_there, NULL) == 0);
    CHECK(poll(&visitor, 1, SECONDS * 1000) == 1, "it does not come");
    rp_port_close(client);
    client = open_port(RING, 0, &at);
    rp_port_close(client);
    rp_port_close(port);
    rp_port_close(open_port(RING, 1, &own));
    CHECK(!first_client(1000000, error) && strstr(error, "does not answer"),
          "its link is one that is being opened: %s", error);
    CHECK(!atomic_load(&waited), "all of them waited until that client gave up");
    CHECK(shutdown(door, SHUT_RDWR) == 0 && close(door) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(unlink(socket_path) == 0);
    check_group("a client waits for a server that hangs: others of its process come and go");
}

/* ---- two processes ---- */

static void echo_for_ever(void) {
    char url[RP_URL_TEXT_BYTES];
    struct rp_peer own;
    struct rp_port *port = open_port(memif_url(url, 1, ""), 1, &own);
    alarm(SECONDS);
    for (;;) {
        struct rp_packet in[RP_BURST], out[RP_BURST];
        uint32_t got = rp_port_transport(port)->rx_burst(port, in, RP_BURST);
        if (got) {
            CHECK(rp_port_transport(port)->tx_lease(port, out, got) == got);
            for (uint32_t i = 0; i < got; i++) {
                memcpy(out[i].data, in[i].data, in[i].size);
                out[i].size = in[i].size;
                out[i].peer = in[i].peer;
            }
            rp_port_transport(port)->tx_send(port, out, got);
            rp_port_transport(port)->rx_release(port, in, got);
        } else {
            rp_port_transport(port)->wait(port, 1000000);
        }
    }
}

/* A server that begins when `begin` has a byte; forked before this process starts DPDK. */
static pid_t fork_echo(int begin[2]) {
    char byte;
    fflush(stdout);
    CHECK(pipe(begin) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(begin[1]);
        if (read(begin[0], &byte, 1) == 1) {
            echo_for_ever();
        }
        _exit(1);
    }
    return child;
}

/* Lets it begin, and connects as soon as somebody serves there. */
static struct rp_port *reach_echo(pid_t child, const int begin[2], struct rp_peer *server) {
    char url[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES] = "", bound[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {0};
    struct rp_port *port = NULL;
    memif_url(url, 0, "");
    CHECK(write(begin[1], "", 1) == 1);
    for (int tries = 0; rp_port_open(&port, url, &options, server, bound, error); tries++) {
        CHECK(tries < 1000 && waitpid(child, NULL, WNOHANG) == 0, "%s", error);
        usleep(10000);
    }
    return port;
}

static void kill_echo(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* Another process has a name in the second of two folders, so a server that has it in the first one
 * is refused. Root, for folders of this process alone. */
static void half_a_name(void) {
    static const char folder[] = "/run/replay-server-dpdk";
    static const char file[] = "/run/replay-server-dpdk/replay-server.lock";
    int begin[2], locked[2];
    char byte, url[RP_URL_TEXT_BYTES];
    struct rp_peer server;
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0
        || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || mount("none", "/run", "tmpfs", 0, "mode=755") != 0) {
        printf("  left out, a name that is taken in part: root, and mounts\n");
        return;
    }
    pid_t next = fork_echo(begin);
    CHECK(mkdir(folder, 0700) == 0 && pipe(locked) == 0);
    pid_t holder = fork();
    CHECK(holder >= 0);
    if (holder == 0) {
        struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int opened = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        alarm(SECONDS);
        CHECK(opened >= 0 && fcntl(opened, F_SETLK, &all) == 0 && write(locked[1], "", 1) == 1);
        for (;;) {
            pause();
        }
    }
    CHECK(read(locked[0], &byte, 1) == 1);
    expect_refusal(memif_url(url, 1, ""), RP_SYSTEM, "starts or ends a server there");
    kill_echo(holder);
    rp_port_close(reach_echo(next, begin, &server));
    kill_echo(next);
    CHECK(unlink(socket_path) == 0);
    check_group("a name that was taken in part is given back");
}

static void two_processes(void) {
    int begin[2][2];
    pid_t children[2] = {fork_echo(begin[0]), fork_echo(begin[1])};
    struct rp_peer server;
    struct rp_port *port = reach_echo(children[0], begin[0], &server);
    uint32_t mtu = rp_port_base(port)->mtu;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t size = 40 + round * 131 % (mtu - 39), count = 1 + round % 32;
        send_some(port, &server, round, count, size);
        receive_some(port, round, count, size);
    }
    kill_echo(children[0]);
    for (int i = 0; i < 10000 && rp_port_base(port)->dropped_out == 0; i++) {
        send_some(port, &server, 0, 4, 64); /* to nobody: lost, counted, and nothing breaks */
        look(port);
        usleep(1000); /* the driver learns of the end in a thread of its own */
    }
    CHECK(rp_port_base(port)->dropped_out > 0);
    rp_port_close(port);
    CHECK(object->leaked() == 0);
    check_group("memif between two processes: every size; a killed peer leaves nothing behind");
    /* The socket's file is still there: its next server needs no clean-up. */
    CHECK(access(socket_path, F_OK) == 0);
    port = reach_echo(children[1], begin[1], &server);
    send_some(port, &server, 5, 8, 500);
    receive_some(port, 5, 8, 500);
    rp_port_close(port);
    kill_echo(children[1]);
    unlink(socket_path);
    check_group("a killed server's successor, at the same socket, without clean-up");
}

static int run(void (*group)(void)) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(SECONDS);
        group();
        fflush(stdout);
        _exit(WHOLE);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == WHOLE;
}

int main(void) {
    void (*const groups[])(void) = {ring, cable, drops, refusals, cannot_start, too_little,
                                    others_go_on, half_a_name, two_processes};
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    object = loaded_object();
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        snprintf(socket_path, sizeof socket_path, "/tmp/test_dpdk_%d_%zu", (int)getpid(), i);
        CHECK(run(groups[i]), "group %zu", i);
    }
    return check_done("test_dpdk");
}
