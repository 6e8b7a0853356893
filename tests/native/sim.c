/* The simulator's loop: one world for each seed, half of its life with faults, then until
 * everything has finished.
 *
 *     sim --seed FIRST --seeds HOW-MANY [--commit NAME]
 *
 * Time jumps to whatever is due next: a datagram's arrival, a client's deadline, an actor's next
 * act. The first seed is run twice and both runs must send the same bytes; so must builds by other
 * compilers, so no expression takes two random numbers (in what order is the compiler's choice).
 * A failure names seed,
 * commit and the command that repeats it.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "sim.h"

static struct {
    uint64_t seed;
    char told[256];
    char commit[128];
} current;

/* ---- the world of a seed ---- */

static uint32_t below(struct sim_world *world, uint32_t bound) {
    return (uint32_t)rp_random_below(&world->random, bound);
}

static void pause_here(void *context, const struct sim_port *port) {
    const struct sim_world *world = context;
    if (port == world->server.port) {
        sim_process_pause();
    }
}

static void faults_make(struct sim_world *world) {
    static const uint64_t late_ns[] = {SIM_MS / 5, SIM_MS, 5 * SIM_MS, 20 * SIM_MS};
    struct sim_faults *faults = &world->net.faults;
    *faults = (struct sim_faults){.cut = 10, .flip = 20, .short_lease = 100};
    faults->lose = 200 + below(world, 100);
    faults->repeat = 200 + below(world, 100);
    faults->late = 250 + below(world, 150);
    faults->delay_ns = 30000 + below(world, 100000);
    faults->late_ns = late_ns[below(world, 4)];
    faults->again = world->seed % 3 == 0 ? 300 : 0;
    world->net.shards = below(world, 3) == 0 ? 2 + below(world, 3) : 1;
    world->restart_permille = below(world, 3) == 0 ? 150 : 0;
    world->reset_permille = below(world, 4) == 0 ? 40 : 0;
    world->server.kills_left = 4 + below(world, 16);
}

static struct sim_world *world_open(uint64_t seed, struct sim_totals *totals) {
    struct sim_world *world = calloc(1, sizeof *world);
    CHECK(world != NULL);
    world->seed = seed;
    world->totals = totals;
    world->now = SIM_S;
    rp_random_seed(&world->random, seed);
    rp_random_seed(&world->net.random, ~seed);
    world->net.now = world->now;
    world->net.snoop = sim_snoop;
    world->net.pause = pause_here;
    world->net.context = world;
    world->writer_count = 2 + below(world, 3);
    sim_tables_make(world);
    faults_make(world);
    world->server.port =
        sim_port_open(&world->net, world->mtu, world->server.config.receive_budget);
    world->vandal = sim_port_open(&world->net, world->mtu, 16);
    world->vandal_nonce = rp_random_next(&world->random);
    sim_server_start(world);
    sim_actors_add(world, world->writer_count, 1 + below(world, 2));
    return world;
}

static void world_close(struct sim_world *world) {
    struct sim_totals *totals = world->totals;
    for (uint32_t i = 0; i < world->actor_count; i++) {
        sim_actor_close(world, &world->actors[i], 1);
    }
    sim_server_stop(world);
    totals->seeds++;
    totals->kills += world->server.kills;
    totals->restarts += world->server.restarts;
    totals->datagrams += world->net.sent;
    totals->dropped += world->net.lost;
    totals->repeated += world->net.repeated;
    totals->delayed += world->net.delayed;
    totals->damaged += world->net.damaged;
    totals->again += world->net.again;
    totals->virtual_ns += world->now - SIM_S;
    for (uint32_t i = 0; i < RP_COUNTER_COUNT; i++) {
        totals->server[i] += world->server.counters[i];
    }
    for (uint32_t i = 0; i < SIM_PORTS_MAX; i++) {
        if (world->net.ports[i]) {
            sim_port_close(world->net.ports[i]);
        }
    }
    sim_oracle_close(world);
    free(world);
}

/* ---- time ---- */

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void time_jump(struct sim_world *world) {
    uint64_t next = sim_port_next(world->server.port);
    next = earlier(next, world->vandal_at);
    for (uint32_t i = 0; i < world->actor_count; i++) {
        const struct sim_actor *actor = &world->actors[i];
        next = earlier(
            next, earlier(sim_port_next(actor->port), earlier(actor->turn_at, actor->next_at)));
    }
    world->now = next > world->now ? next : world->now + 1000; /* a turn takes its time, too */
    world->net.now = world->now;
}

static void step(struct sim_world *world) {
    time_jump(world);
    if (sim_port_next(world->server.port) <= world->now || below(world, 100) == 0) {
        sim_server_turn(world);
    }
    sim_actors_step(world);
    if (world->vandal_at <= world->now) {
        sim_vandal_act(world);
        world->vandal_at = world->draining ? UINT64_MAX : world->vandal_at;
    }
}

/* Cuts a writer off just when a step it sent is missing before later ones, for so long that the
 * ring may come round: then that step has lost its place. */
static int cut_off_with_hole(struct sim_world *world) {
    for (uint32_t i = 0; i < world->actor_count; i++) {
        struct sim_actor *actor = &world->actors[i];
        if (actor->port->partitioned_until < world->now && sim_has_hole(world, actor)) {
            actor->port->partitioned_until =
                world->now + rp_random_below(&world->random, 5 * SIM_S);
            return 1;
        }
    }
    return 0;
}

/* What happens to clients now and then: cut off for a while, moved to another address, killed and
 * started anew. */
static void mishap(struct sim_world *world) {
    struct sim_actor *actor = &world->actors[below(world, world->actor_count)];
    uint32_t what = below(world, 100);
    if (what < 30 && cut_off_with_hole(world)) {
        return;
    }
    if (what < 60) {
        uint64_t length = rp_random_below(&world->random, what < 5 ? 3 * SIM_S : SIM_S / 8);
        struct sim_port *port = what < 33 ? world->server.port : actor->port;
        port->partitioned_until = world->now + length;
    } else if (what < 75) {
        sim_port_move(actor->port);
    } else if (what < 85) {
        sim_actor_close(world, actor, what < 80);
        sim_actor_open(world, actor);
        world->totals->client_restarts++;
    }
}

static int writers_have_pushed(const struct sim_world *world) {
    for (uint32_t i = 0; i < world->actor_count; i++) {
        const struct sim_actor *actor = &world->actors[i];
        if (actor->kind == SIM_WRITER && actor->as.writer.goal > 0) {
            return 0;
        }
    }
    return 1;
}

static void faults_stop(struct sim_world *world) {
    world->draining = 1;
    world->net.faults = (struct sim_faults){.delay_ns = 50000};
    for (uint32_t i = 0; i < world->net.port_count; i++) {
        world->net.ports[i]->partitioned_until = 0;
    }
}

static void unfinished(const struct sim_world *world) {
    for (uint32_t i = 0; i < world->actor_count; i++) {
        const struct sim_actor *actor = &world->actors[i];
        if (sim_actor_done(world, actor)) {
            continue;
        }
        fprintf(stderr, "unfinished: actor %u, kind %d, client state %d\n", i, actor->kind,
                rp_client_state(actor->client));
        if (actor->kind == SIM_WRITER && actor->as.writer.life) {
            const struct sim_life *life = actor->as.writer.life;
            struct rp_push_state state;
            rp_client_push_state(actor->client, (uint16_t)life->table, &state);
            fprintf(stderr,
                    "  writer: phase %u, %" PRIu64 " of %" PRIu64 " steps, %" PRIu64
                    " messages open, need %" PRIu64 ", status %d\n",
                    actor->as.writer.phase, life->acked, life->posted, state.messages_open,
                    state.need, state.status);
        }
    }
}

/* Returns the digest of all datagrams sent. */
static uint64_t seed_run(uint64_t seed, struct sim_totals *totals) {
    struct sim_world *world = world_open(seed, totals);
    uint64_t limit = world->now + 10 * SIM_S;
    for (uint64_t steps = 1; world->now < limit && !writers_have_pushed(world); steps++) {
        step(world);
        if (steps % 1024 == 0) {
            sim_audit(world);
        }
        if (below(world, 500) == 0) {
            mishap(world);
        }
    }
    faults_stop(world);
    limit = world->now + SIM_DRAIN_NS;
    while (!sim_actors_done(world) && world->now < limit) {
        step(world);
    }
    if (!sim_actors_done(world)) {
        unfinished(world);
    }
    CHECK(sim_actors_done(world), "faults stopped %d s ago and not everything has finished",
          (int)(SIM_DRAIN_NS / SIM_S));
    sim_audit_end(world);
    uint64_t digest = world->net.digest;
    world_close(world);
    return digest;
}

/* ---- the report ---- */

static void tell_failure(void) {
    if (write(STDERR_FILENO, current.told, strlen(current.told)) < 0) {
        return;
    }
}

static void on_signal(int number) {
    tell_failure();
    signal(number, SIG_DFL);
    raise(number);
}

static void on_exit_early(void) {
    if (current.told[0]) {
        tell_failure();
    }
}

static void seed_is(uint64_t seed) {
    current.seed = seed;
    snprintf(current.told, sizeof current.told,
             "simulator: seed %" PRIu64
             " failed at commit %s; repeat it with: make sim SEED=%" PRIu64 " SEEDS=1\n",
             seed, current.commit, seed);
}

static void counters_tell(const char *who, const uint64_t *counters) {
    printf("%s:", who);
    for (int i = 0; i < RP_COUNTER_COUNT; i++) {
        if (counters[i] > 0) {
            printf(" %s=%" PRIu64, rp_counter_name(i), counters[i]);
        }
    }
    printf("\n");
}

static void totals_tell(const struct sim_totals *t) {
    uint32_t all, hit, killed;
    sim_process_sites(&all, &hit, &killed);
    printf("seeds %" PRIu64 ", %.1f s of virtual time\n", t->seeds, (double)t->virtual_ns / 1e9);
    printf("pushes %" PRIu64 ", steps acknowledged %" PRIu64 " (%" PRIu64
           " without a key), items asked for %" PRIu64 ", samples %" PRIu64 ", priorities %" PRIu64
           ", weights %" PRIu64 " published and %" PRIu64 " pulled\n",
           t->pushes, t->steps, t->keyless, t->items, t->samples, t->updates, t->versions,
           t->pulls);
    double delivered = (double)(t->datagrams - t->dropped);
    printf("datagrams %" PRIu64 ", lost %" PRIu64 " (%.0f %%), of the others repeated %" PRIu64
           " (%.0f %%), late %" PRIu64 " (%.0f %%), damaged %" PRIu64
           ", replaced by an old update %" PRIu64 "\n",
           t->datagrams, t->dropped, 100.0 * (double)t->dropped / (double)t->datagrams, t->repeated,
           100.0 * (double)t->repeated / delivered, t->delayed,
           100.0 * (double)t->delayed / (delivered + (double)t->repeated), t->damaged, t->again);
    printf("kills %" PRIu64 " (%u distinct sites of %u, %u reached), started empty %" PRIu64
           ", clients restarted %" PRIu64 ", tables reset %" PRIu64 ", audits %" PRIu64 "\n",
           t->kills, killed, all, hit, t->restarts, t->client_restarts, t->resets, t->audits);
    printf("allocations after open: %" PRIu64 "\n", sim_process_allocations());
    counters_tell("server counters", t->server);
    counters_tell("client counters", t->client);
}

int main(int argc, char **argv) {
    static struct sim_totals totals, again;
    uint64_t first = 1, seeds = 50, all = 0;
    snprintf(current.commit, sizeof current.commit, "unknown");
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0) {
            first = strtoull(argv[i + 1], NULL, 0);
        } else if (strcmp(argv[i], "--seeds") == 0) {
            seeds = strtoull(argv[i + 1], NULL, 0);
        } else {
            snprintf(current.commit, sizeof current.commit, "%s", argv[i + 1]);
        }
    }
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    atexit(on_exit_early);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        seed_is(seed);
        uint64_t digest = seed_run(seed, &totals);
        all = (all ^ digest) * UINT64_C(0x9E3779B97F4A7C15) >> 7 ^ digest;
        if (seed == first) {
            CHECK(seed_run(seed, &again) == digest, "two runs of one seed differ");
        }
    }
    current.told[0] = 0;
    totals_tell(&totals);
    printf("all that was sent: %016" PRIx64 ", by any compiler\n", all);
    printf("sim: ok\n");
    return 0;
}
