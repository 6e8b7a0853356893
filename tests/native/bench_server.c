/* bench_server.c: what the server itself costs: datagrams handed over in memory, no network, one
 * core.
 *
 *     bench_server [bursts of a round, default 100]
 *
 * A burst is one turn's worth of requests of 48-byte steps; making them and the copies of a port
 * are left out of the time.
 */
#include "bench_requests.h"

enum { ROUNDS = 40, BURST = 32, CAPACITY = 1 << 17, WINDOW = 1 << 12 };

static double turn(void) {
    double start = bench_ns();
    requests_turn();
    return bench_ns() - start;
}

/* One run of 27 x 48 bytes with the largest mass so far: a whole datagram of 1400. */
static void put_run(void) { put_runs(1, 27, 0); }
static void put_sample_32(void) { put_sample(32); }
static void put_sample_512(void) { put_sample(512); }

/* `items` of a request; the time is that of the turns alone. */
static void measure(const char *name, void (*make)(void), uint32_t burst, uint32_t turns,
                    uint32_t items) {
    static struct bench_rounds rounds;
    char workload[64];
    struct bench_row row = {name, "memory", workload, items};
    snprintf(workload, sizeof workload, "48 B steps, bursts of %u", burst);
    rounds.count = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double spent = 0;
        for (uint32_t i = 0; i < turns; i++) {
            for (uint32_t j = 0; j < burst; j++) {
                make();
            }
            spent += turn();
        }
        bench_keep(&rounds, (double)turns * burst * items * 1e3 / spent);
    }
    bench_rate(&row, &rounds, "M/s");
}

int main(int count, char **arguments) {
    uint32_t turns = count > 1 ? (uint32_t)atoi(arguments[1]) : 100;
    CHECK(turns >= 1);
    requests_open(CAPACITY, WINDOW, 4096);
    for (uint32_t burst = 1; burst <= BURST; burst += BURST - 1) {
        measure("server_ping", put_ping, burst, turns, 1);
        measure("server_sample", put_sample_32, burst, turns, 32);
        measure("server_sample", put_sample_512, burst, turns / 4 + 1, 512);
        measure("server_push", put_run, burst, turns, 27);
        measure("server_update", put_update, burst, turns, 80);
    }
    CHECK(script_counter(&script, RP_COUNT_drop_size) == 0);
    CHECK(script_counter(&script, RP_COUNT_samples_forgotten) == 0);
    CHECK(script_counter(&script, RP_COUNT_pushes_repeated) == 0);
    CHECK(port.sent > 0);
    return check_done("bench_server");
}
