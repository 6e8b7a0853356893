/* What a memif server and its client live through below the protocol: a pool without a free mbuf, a
 * link that goes down and comes up, bytes damaged on their way. Both ends are in this process; the
 * faults are real ones: control sockets are shut down, and the shared memory is written to.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "drive.h"
#include "open_port.h"
#include "base/random.h"

enum {
    ROW = 256, CAPACITY = 1 << 14, STEPS = 512, BATCH = 64, DOWNS = 5, DAMAGED_ROUNDS = 20,
    HELD_MAX = 8192, TRIES = 200000, SECONDS = 60, DAMAGE_BURST = 64,
    DAMAGE_NAP_US = 20,
    RINGS_BYTES = 1 << 16, /* of a region, more than its rings: frames lie behind them */
};

static char socket_path[64], server_url[RP_URL_BYTES];
static const struct rp_dpdk_object *object;
static _Atomic int damaging;

static void name_socket(int number) {
    snprintf(socket_path, sizeof socket_path, "/tmp/test_faults_%d_%d", (int)getpid(), number);
    snprintf(server_url, sizeof server_url, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=%s",
             socket_path);
}

/* ---- a pool without a free mbuf ---- */

static uint32_t send_some(struct rp_port *port, const struct rp_peer *to, uint32_t count) {
    struct rp_packet packets[RP_BURST];
    uint32_t lent = rp_port_transport(port)->tx_lease(port, packets, count);
    for (uint32_t i = 0; i < lent; i++) {
        packets[i].peer = *to;
        packets[i].size = 64;
        memset(packets[i].data, 1, 64);
    }
    rp_port_transport(port)->tx_send(port, packets, lent);
    return lent;
}

/* Received and kept, until the pool has no more. */
static uint32_t hold_all(struct rp_port *client, const struct rp_peer *server,
                         struct rp_port *port, struct rp_packet *held) {
    uint32_t count = 0;
    for (int tries = 0; tries < TRIES && count + RP_BURST <= HELD_MAX; tries++) {
        struct rp_packet none[RP_BURST]; /* the client hears where its server is */
        rp_port_transport(client)->rx_release(
            client, none, rp_port_transport(client)->rx_burst(client, none, RP_BURST));
        (void)send_some(client, server, 8);
        uint32_t got = rp_port_transport(port)->rx_burst(port, held + count, RP_BURST);
        count += got;
        if (!got && count > 2000) {
            break;
        }
    }
    return count;
}

static void exhausted(void) {
    static struct rp_packet held[HELD_MAX];
    struct rp_peer own, server, peer;
    name_socket(1);
    struct rp_port *port = open_port(server_url, 1, &own), *client = NULL;
    uint32_t start = object->in_use(port);
    client = open_port(server_url, 0, &server);
    uint32_t count = hold_all(client, &server, port, held);
    peer = held[0].peer;
    CHECK(count > 2000 && send_some(port, &peer, 8) < 8, "%u held and there are mbufs", count);
    for (uint32_t i = 0; i < count; i += RP_BURST) {
        rp_port_transport(port)->rx_release(port, held + i,
                                            count - i < RP_BURST ? count - i : RP_BURST);
    }
    CHECK(send_some(port, &peer, 8) == 8, "it goes on");
    struct rp_packet packets[RP_BURST];
    uint32_t came = 0;
    for (int tries = 0; came < 8; tries++) {
        CHECK(tries < TRIES, "%u of 8 came", came);
        uint32_t got = rp_port_transport(client)->rx_burst(client, packets, RP_BURST);
        rp_port_transport(client)->rx_release(client, packets, got);
        came += got;
    }
    for (int quiet = 0; quiet < 10; quiet++) { /* what still stands in the ring */
        uint32_t got = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
        rp_port_transport(port)->rx_release(port, packets, got);
        quiet = got ? 0 : quiet;
    }
    CHECK(object->in_use(port) <= start + RP_BURST, "%u mbufs in use, %u at the start",
          object->in_use(port), start);
    rp_port_close(client);
    rp_port_close(port);
    CHECK(object->leaked() == 0);
    check_group("memif, every mbuf in use: no room is told, all is as before when they are back");
}

/* ---- a conversation ---- */

static struct rp_service *open_service(void) {
    struct rp_service_options options = {0};
    struct rp_service *service;
    struct drive_table made;
    char error[RP_ERROR_BYTES];
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, server_url, &options, error) == 0, "%s", error);
    CHECK(rp_service_start(service) == 0);
    return service;
}

static void converse(struct rp_link *link, uint64_t *next) {
    static struct drive_batch batch;
    struct rp_push_state state;
    drive_push(link, ROW, *next, STEPS);
    drive_settle(link);
    *next += STEPS;
    CHECK(rp_link_push_state(link, 0, &state) == 0 && state.steps_stored == *next);
    CHECK(drive_wait(link, drive_draw(link, &batch, ROW, BATCH, 20ull * DRIVE_TIMEOUT_NS), NULL)
          == 0);
    drive_check_rows(&batch, ROW, BATCH);
}

static void check_stored(struct rp_service *service, uint64_t pushed) {
    uint64_t counters[RP_COUNTER_COUNT];
    CHECK(rp_service_counters(service, counters) == 0);
    CHECK(counters[RP_COUNT_steps_committed] == pushed, "%" PRIu64 " of %" PRIu64 " stored",
          counters[RP_COUNT_steps_committed], pushed);
}

/* ---- a link that goes down ---- */

/* Every connection on our socket, the listener not among them. */
static int shut_down(void) {
    int count = 0;
    for (int file = 3; file < 1024; file++) {
        struct sockaddr_un address = {0};
        socklen_t size = sizeof address;
        if (getpeername(file, (struct sockaddr *)&address, &size) == 0
            && address.sun_family == AF_UNIX && strcmp(address.sun_path, socket_path) == 0) {
            count += shutdown(file, SHUT_RDWR) == 0;
        }
    }
    return count;
}

static void down_and_up(void) {
    struct rp_link_options options = {0};
    uint64_t next = 0;
    name_socket(2);
    struct rp_service *service = open_service();
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    for (int i = 0; i < DOWNS; i++) {
        converse(link, &next);
        CHECK(shut_down() > 0, "no connection to be cut");
        converse(link, &next);
    }
    CHECK(rp_link_dropped(link) > 0, "what a link that is down does not take is counted");
    check_stored(service, next);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    CHECK(object->leaked() == 0);
    check_group("memif, the link down and up: both go on, nothing acknowledged is lost");
}

/* ---- damage ---- */

/* The longest mapping of it: the memory that was lent takes no new one. */
static uint8_t *find_region(size_t *bytes) {
    char line[256];
    unsigned long from, to, found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    *bytes = 0;
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "memif_region") && sscanf(line, "%lx-%lx", &from, &to) == 2
            && to - from > *bytes) {
            *bytes = to - from;
            found = from;
        }
    }
    fclose(maps);
    CHECK(*bytes > 0, "the region of the link is not found");
    return (uint8_t *)found;
}

static void *damage(void *argument) {
    struct rp_random random;
    size_t bytes;
    uint8_t *region = find_region(&bytes);
    (void)argument;
    rp_random_seed(&random, 5);
    while (damaging) { /* without naps a quiet machine damages every frame */
        for (int i = 0; i < DAMAGE_BURST; i++) {
            uint64_t at = rp_random_below(&random, (bytes - RINGS_BYTES) / 2048);
            uint64_t of = rp_random_below(&random, i % 2 ? 2048 : 64); /* headers as often as all */
            region[RINGS_BYTES + at * 2048 + of] ^= 0x10;
        }
        usleep(DAMAGE_NAP_US);
    }
    return NULL;
}

static void damaged(void) {
    struct rp_link_options options = {.retry_us_min = 2000};
    uint64_t next = 0, counters[RP_COUNTER_COUNT];
    pthread_t thread;
    name_socket(3);
    struct rp_service *service = open_service();
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    damaging = 1;
    CHECK(pthread_create(&thread, NULL, damage, NULL) == 0);
    for (int i = 0; i < DAMAGED_ROUNDS; i++) {
        converse(link, &next);
    }
    for (int i = 0; rp_service_dropped_in(service) == 0; i++) {
        CHECK(i < 2000 * DAMAGED_ROUNDS, "no damaged frame was met");
        converse(link, &next);
    }
    damaging = 0;
    pthread_join(thread, NULL);
    check_stored(service, next);
    CHECK(rp_service_counters(service, counters) == 0 && counters[RP_COUNT_drop_checksum] > 0,
          "damaged datagrams are counted by the protocol, damaged frames by their parser");
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    CHECK(object->leaked() == 0);
    check_group("memif, bytes damaged on their way: dropped and counted, every row is right");
}

static void give_up(int number) {
    static const char said[] = "a conversation did not end: a link stays down\n";
    (void)number;
    (void)!write(STDERR_FILENO, said, sizeof said - 1);
    _exit(1);
}

int main(void) {
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    object = loaded_object();
    signal(SIGALRM, give_up);
    alarm(SECONDS);
    exhausted();
    down_and_up();
    damaged();
    return check_done("test_faults");
}
