/* The release build against real kills: the server is a child process on a shared mapping of a
 * file, driven over a socket pair by the simulator's clients and its oracle in the parent, which
 * sends it SIGKILL at a random instant, looks at a copy of what it left, and starts another child
 * that takes the file over.
 *
 *     kill_mapped [--seed N] [--rounds N]
 *
 * Nothing here is virtual but the loss between the clients and the socket pair: the instant of a
 * kill is anywhere in the child, inside a copy, a transaction or the kernel. Clients must not
 * notice more than silence.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "server/server_state.h"
#include "sim.h"

enum { ENVELOPE = sizeof(struct rp_peer), BYTES_MAX = ENVELOPE + 8192, LENT = RP_BURST };

static uint64_t clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SIM_S + (uint64_t)time.tv_nsec;
}

/* ---- the child: a server whose port is one end of the socket pair ---- */

struct pipe_port {
    struct rp_port_base base;
    int socket;
    uint32_t lent; /* buffers lent to the engine: all of a burst come back before the next */
    uint64_t in[LENT][BYTES_MAX / 8];
    uint64_t out[LENT][BYTES_MAX / 8];
};

static struct pipe_port *pipe_of(struct rp_port *face) {
    return (struct pipe_port *)(void *)face;
}

static uint32_t pipe_rx(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct pipe_port *port = pipe_of(face);
    uint32_t got = 0;
    CHECK(port->lent == 0);
    while (got < count && got < LENT) {
        ssize_t size = recv(port->socket, port->in[got], BYTES_MAX, MSG_DONTWAIT);
        if (size < ENVELOPE) {
            break;
        }
        packets[got] = (struct rp_packet){.data = (uint8_t *)port->in[got] + ENVELOPE,
                                          .size = (uint32_t)size - ENVELOPE};
        memcpy(&packets[got].peer, port->in[got], ENVELOPE);
        got++;
    }
    port->lent = got;
    return got;
}

static void pipe_release(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    (void)packets;
    pipe_of(face)->lent -= count;
}

static uint32_t pipe_lease(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct pipe_port *port = pipe_of(face);
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){.data = (uint8_t *)port->out[i] + ENVELOPE,
                                        .capacity = port->base.mtu};
    }
    return count;
}

static void pipe_send(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size > 0) {
            uint8_t *envelope = packets[i].data - ENVELOPE;
            memcpy(envelope, &packets[i].peer, ENVELOPE);
            if (send(pipe_of(face)->socket, envelope, ENVELOPE + packets[i].size, MSG_DONTWAIT)
                < 0) {
                pipe_of(face)->base.dropped_out++;
            }
        }
    }
}

static const struct rp_transport pipe_transport = {
    .name = "pipe",
    .rx_burst = pipe_rx,
    .rx_release = pipe_release,
    .tx_lease = pipe_lease,
    .tx_send = pipe_send,
};

/* Maps the file anew, so at another address than the server before, takes it over, and serves until
 * killed. */
__attribute__((noreturn)) static void child(const char *path, size_t bytes,
                                            const struct rp_server_config *config, uint32_t mtu,
                                            int socket, volatile int *in_turn) {
    static struct pipe_port port;
    char error[256] = "";
    uint8_t entropy[32];
    struct rp_server *server;
    int file = open(path, O_RDWR);
    CHECK(file >= 0 && getentropy(entropy, sizeof entropy) == 0);
    void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(region != MAP_FAILED);
    int status = rp_server_attach(&server, region, bytes, config, entropy, clock_ns(), error);
    CHECK(status == 0, "attach: %s (%d)", error, status);
    port.base.transport = &pipe_transport;
    port.base.mtu = mtu;
    port.base.receive_budget = LENT;
    port.socket = socket;
    for (;;) {
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        if (poll(&ready, 1, 0) > 0) { /* asks all the time: no time to wake up before a kill */
            *in_turn = 1;
            rp_server_turn(server, (struct rp_port *)(void *)&port, clock_ns());
            *in_turn = 0;
        }
    }
}

/* ---- the parent ---- */

struct stage {
    struct sim_world *world;
    char path[64];
    int sockets[2]; /* the parent's end, the child's */
    pid_t child;
    uint8_t *copy;
    volatile int *in_turn; /* shared: the child is between the begin and the end of a turn */
    uint32_t kills, turns, inside; /* kills, those in a turn, and in a transaction */
    struct rp_random chance;
};

static void child_start(struct stage *stage) {
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, stage->sockets) == 0);
    fflush(stdout);
    stage->child = fork();
    CHECK(stage->child >= 0);
    if (stage->child == 0) {
        close(stage->sockets[0]);
        child(stage->path, stage->world->server.bytes, &stage->world->server.config,
              stage->world->mtu, stage->sockets[1],
              stage->in_turn);
    }
    close(stage->sockets[1]);
}

/* What the child sent goes to the oracle's ear and on into the network. */
static void hear(struct stage *stage) {
    static uint64_t data[BYTES_MAX / 8];
    struct sim_world *world = stage->world;
    for (;;) {
        ssize_t size = recv(stage->sockets[0], data, sizeof data, MSG_DONTWAIT);
        if (size < ENVELOPE) {
            return;
        }
        struct rp_packet packet = {.data = (uint8_t *)data + ENVELOPE,
                                   .size = (uint32_t)size - ENVELOPE};
        memcpy(&packet.peer, data, ENVELOPE);
        sim_snoop(world, world->server.port, &packet);
        sim_net_send(&world->net, world->server.port, &packet.peer, packet.data, packet.size);
    }
}

/* What has arrived at the server's address goes to the child. */
static void tell(struct stage *stage) {
    static uint64_t data[BYTES_MAX / 8];
    struct rp_port *port = sim_port_face(stage->world->server.port);
    struct rp_packet packets[RP_BURST];
    uint32_t count = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(data, &packets[i].peer, ENVELOPE);
        memcpy((uint8_t *)data + ENVELOPE, packets[i].data, packets[i].size);
        if (send(stage->sockets[0], data, ENVELOPE + packets[i].size, MSG_DONTWAIT) < 0) {
            stage->world->net.lost++;
        }
    }
    rp_port_transport(port)->rx_release(port, packets, count);
}

static void time_now(struct sim_world *world) {
    world->now = clock_ns();
    world->net.now = world->now;
}

/* Kills in the middle of the work: what the clients say is held back until there is a good deal of
 * it, sent at once, and at some instant of the turn that follows the child is gone. */
static void child_kill(struct stage *stage) {
    struct sim_world *world = stage->world;
    int status;
    for (uint64_t limit = clock_ns() + 20 * SIM_MS;
         clock_ns() < limit && world->server.port->inbox_count < 24;) {
        time_now(world);
        hear(stage);
        sim_actors_step(world);
    }
    time_now(world);
    tell(stage);
    uint64_t instant =
        clock_ns()
        + rp_random_below(&stage->chance, (uint64_t)1024 << rp_random_below(&stage->chance, 7));
    while (clock_ns() < instant) {}
    kill(stage->child, SIGKILL);
    CHECK(waitpid(stage->child, &status, 0) == stage->child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the server ended by itself: %x",
          status);
    hear(stage);
    close(stage->sockets[0]);
    stage->kills++;
    stage->turns += *stage->in_turn != 0;
    *stage->in_turn = 0;
}

/* Attaches to a copy of what the dead server left and compares it with the oracle. */
static void look(struct stage *stage) {
    struct sim_server *server = &stage->world->server;
    uint8_t entropy[32] = {1};
    char error[256] = "";
    memcpy(stage->copy, server->region, server->bytes);
    const struct rp_region *header = (const void *)stage->copy;
    stage->inside +=
        ((const struct rp_intent_log *)(const void *)(stage->copy + header->log))->committed != 0;
    int status =
        rp_server_attach(&server->server, stage->copy, server->bytes, &server->config, entropy,
                         clock_ns(), error);
    CHECK(status == 0, "attach: %s (%d)", error, status);
    CHECK(rp_server_incarnation(server->server) == server->incarnation,
          "an attach keeps the incarnation");
    sim_audit(stage->world);
}

static void until(struct stage *stage, uint64_t instant) {
    while (clock_ns() < instant) {
        struct pollfd ready = {.fd = stage->sockets[0], .events = POLLIN};
        poll(&ready, 1, 0);
        time_now(stage->world);
        hear(stage);
        sim_actors_step(stage->world);
        tell(stage);
    }
}

static void no_pause(void *context, const struct sim_port *port) {
    (void)context;
    (void)port;
}

static void server_create(struct stage *stage) {
    struct sim_server *server = &stage->world->server;
    char error[256] = "";
    uint8_t entropy[32];
    server->bytes = rp_server_bytes(&server->config, error);
    CHECK(server->bytes > 0, "%s", error);
    stage->copy = aligned_alloc(64, (server->bytes + 63) & ~(size_t)63);
    snprintf(stage->path, sizeof stage->path, "/tmp/kill_mapped.XXXXXX");
    int file = mkstemp(stage->path);
    CHECK(stage->copy != NULL && file >= 0 && ftruncate(file, (off_t)server->bytes) == 0);
    server->region = mmap(NULL, server->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(server->region != MAP_FAILED);
    sim_entropy(stage->world, entropy);
    int status = rp_server_create(&server->server, server->region, server->bytes, &server->config,
                                  entropy, clock_ns(), error);
    CHECK(status == 0, "%s", error);
    server->incarnation = rp_server_incarnation(server->server);
    sim_rings_note(stage->world);
    close(file);
}

static void world_open(struct stage *stage, uint64_t seed) {
    static struct sim_totals totals;
    struct sim_world *world = calloc(1, sizeof *world);
    CHECK(world != NULL);
    stage->world = world;
    stage->in_turn =
        mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK((void *)stage->in_turn != MAP_FAILED);
    world->seed = seed;
    world->totals = &totals;
    rp_random_seed(&world->random, seed);
    rp_random_seed(&world->net.random, ~seed);
    rp_random_seed(&stage->chance, seed + 1);
    world->net.snoop = sim_snoop;
    world->net.pause = no_pause;
    world->net.context = world;
    world->net.faults = (struct sim_faults){
        .lose = 50, .repeat = 50, .late = 50, .delay_ns = 1000, .late_ns = SIM_MS};
    world->remote = 1;
    time_now(world);
    world->writer_count = 3;
    sim_tables_make(world);
    world->server.port =
        sim_port_open(&world->net, world->mtu, world->server.config.receive_budget);
    world->vandal = sim_port_open(&world->net, world->mtu, 16);
    server_create(stage);
    sim_actors_add(world, world->writer_count, 2);
    for (uint32_t i = 0; i < 3; i++) {
        world->actors[i].as.writer.goal = UINT32_MAX;
    }
}

int main(int argc, char **argv) {
    static struct stage stage;
    uint64_t seed = 1, rounds = 300;
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 0);
        seed = strcmp(argv[i], "--seed") == 0 ? value : seed;
        rounds = strcmp(argv[i], "--rounds") == 0 ? value : rounds;
    }
    printf("  seed %" PRIu64 ", %" PRIu64 " rounds\n", seed, rounds);
    world_open(&stage, seed);
    struct sim_world *world = stage.world;
    for (uint64_t round = 0; round < rounds; round++) {
        child_start(&stage);
        until(&stage, clock_ns() + SIM_MS + rp_random_below(&stage.chance, 30 * SIM_MS));
        child_kill(&stage);
        look(&stage);
    }
    child_start(&stage);
    world->draining = 1;
    world->net.faults = (struct sim_faults){.delay_ns = 1000};
    for (uint64_t limit = clock_ns() + 30 * SIM_S; !sim_actors_done(world) && clock_ns() < limit;) {
        until(&stage, clock_ns() + 5 * SIM_MS);
    }
    int done = sim_actors_done(world);
    child_kill(&stage);
    unlink(stage.path);
    look(&stage);
    CHECK(done, "the kills have stopped and not everything has finished");
    sim_audit_end(world);
    uint64_t stored = 0;
    for (uint32_t i = 0; i < world->oracle.life_count; i++) {
        stored += world->oracle.lives[i]->acked;
    }
    printf("  %u kills, %u of them in a turn, %u in a committed transaction; %" PRIu64
           " steps acknowledged, %" PRIu64 " batches, %" PRIu64
           " priorities: none lost, none twice\n",
           stage.kills, stage.turns, stage.inside, stored, world->totals->samples,
           world->totals->updates);
    return check_done("kill_mapped");
}
