/* Frames over memif, and what the server spends on a datagram.
 *
 *     bench_dpdk serve URL              serves frames until its input ends
 *     bench_dpdk frames SECONDS URL     pushes and samples them from another process, polling
 *     bench_dpdk echo URL               answers datagrams of the mtu by such until its input ends
 *     bench_dpdk bare SECONDS URL       asks it, 128 under way: what the wire alone gives
 *     bench_dpdk cost WORKLOAD N URL URL   N requests to a server at the first URL, whose client
 *                                       has the second, one thread turning both ends; tells what
 *                                       passed, for benchmarks/dpdk_cost.py
 *
 * A frame is 84 x 84 bytes and an action, a row and an item of its own, 7064 bytes.
 */
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"
#include "drive.h"
#include "open_port.h"

enum {
    FRAME = 7064, SMALL = 40, FRAMES = 4096, SMALLS = 1 << 16, BLOCK = 8, BATCH = 32, PREFETCH = 4,
    PARTS = 8, UNDER_WAY = 128, SOME = 32,
};

struct load {
    const char *name;
    uint32_t row_bytes;
    uint32_t rows;  /* pushed in a request, or */
    uint32_t items; /* sampled in one; neither: a ping */
};

static const struct load loads[] = {
    {"ping", SMALL, 0, 0},
    {"push 1 small step", SMALL, 1, 0},
    {"push 64 small steps", SMALL, 64, 0},
    {"sample 32 small items", SMALL, 0, 32},
    {"push 8 frames", FRAME, BLOCK, 0},
    {"sample 32 frames", FRAME, 0, BATCH},
};

static struct rp_service *service; /* turned here */
static uint64_t server_ns, server_instructions;
static int counter = -1; /* the processor's, of instructions of this program's own; -1: none here */
static uint8_t rows[64 * FRAME];

static struct rp_service *serve(const char *url, uint32_t row_bytes, int polls) {
    struct rp_column columns[] = {{0, row_bytes - 8, 0}, {row_bytes - 8, 8, 0}};
    struct rp_pick picks[] = {{0, 0}, {1, 0}};
    struct rp_plan plan = {"row", picks, 2};
    uint32_t capacity = row_bytes == FRAME ? FRAMES : SMALLS;
    struct rp_table_config table = {
        .name = "main", .capacity = capacity, .step_bytes = row_bytes, .columns = columns,
        .column_count = 2, .plans = &plan, .plan_count = 1, .alpha = 0.6, .min_size = 1,
        .writers_max = 1, .streams_max = 1, .window = capacity / 16, .pieces_max = 8,
        .spec = "rows", .spec_bytes = 4};
    struct rp_server_config config = {
        .tables = &table, .table_count = 1, .sessions_max = 4, .batch_max = DRIVE_BATCH_MAX,
        .records = 16, .idle_ms = 30000, .lapse_ms = 100, .weights_max = 1 << 16, .seed = 1};
    struct rp_service_options options = {.busy_poll = (uint32_t)polls, .core = polls ? 2 : 0,
                                         .insecure = 1};
    struct rp_service *opened;
    char error[RP_ERROR_BYTES];
    CHECK(rp_service_open(&opened, &config, url, &options, error) == 0, "%s", error);
    return opened;
}

static void open_counter(void) {
    struct perf_event_attr what = {.type = PERF_TYPE_HARDWARE, .size = sizeof what,
                                   .config = PERF_COUNT_HW_INSTRUCTIONS, .exclude_kernel = 1,
                                   .exclude_hv = 1};
    counter = (int)syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static uint64_t instructions(void) {
    uint64_t count = 0;
    return counter >= 0 && read(counter, &count, sizeof count) == sizeof count ? count : 0;
}

/* Turns that bring nothing are not counted: how many there are is chance. */
static void turn(void) {
    if (service) {
        uint64_t before = instructions();
        double start = bench_ns();
        int brought = rp_service_turn(service) > 0;
        server_ns += brought ? (uint64_t)(bench_ns() - start) : 0;
        server_instructions += brought ? instructions() - before : 0;
    }
}

static int finish(struct rp_link *link, int ticket) {
    int status = RP_PENDING;
    CHECK(ticket > 0, "%s", rp_status_name(ticket));
    while (status == RP_PENDING) {
        turn();
        status = rp_link_wait(link, ticket, service ? 0 : RP_SLICE_NS, NULL);
    }
    return status;
}

static void settle(struct rp_link *link) {
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        turn();
        status = rp_link_settle(link, 0, service ? 0 : RP_SLICE_NS);
    }
    CHECK(status == 0, "settle: %s", rp_status_name(status));
}

static void push(struct rp_link *link, uint32_t row_bytes, uint32_t count) {
    for (uint32_t taken = 0; taken < count;) {
        int got = rp_link_push(link, 0, 0, rows + (size_t)taken * row_bytes, count - taken,
                               RP_RUN_ITEM, NULL, service ? 0 : RP_SLICE_NS);
        CHECK(got >= 0, "push: %s", rp_status_name(got));
        taken += (uint32_t)got;
        turn();
    }
}

static int draw(struct rp_link *link, uint8_t *target, uint32_t row_bytes, uint32_t items) {
    struct rp_sample request = {.count = items, .budget = 64};
    struct rp_landing_column column = {.target = target, .stride = row_bytes, .size = row_bytes};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = row_bytes};
    return rp_link_sample(link, 0, &request, NULL, &landing, DRIVE_TIMEOUT_NS);
}

static struct rp_link *reach(const char *url) {
    struct rp_link_options options = {.busy_poll = 1};
    struct rp_link *link;
    struct rp_table_info info;
    struct rp_writer_granted granted;
    char error[RP_ERROR_BYTES];
    CHECK(rp_link_open(&link, url, &options, error) == 0, "%s", error);
    while (rp_link_connect(link, 1000) == RP_PENDING) {
        turn();
    }
    CHECK(finish(link, rp_link_table(link, "main", &info, DRIVE_TIMEOUT_NS)) == 0);
    CHECK(finish(link, rp_link_writer(link, &info, 1, &granted, DRIVE_TIMEOUT_NS)) == 0);
    return link;
}

/* ---- frames from another process ---- */

static void frames(const char *url, double seconds) {
    static uint8_t target[PREFETCH][BATCH * FRAME];
    struct bench_row row = {"push_stream", "dpdk", "frames of 7064 bytes", 0};
    struct rp_link *link = reach(url);
    int tickets[PREFETCH];
    uint64_t count = 0;
    double start = bench_ns(), passed = 0;
    for (; passed < seconds * 1e9; passed = bench_ns() - start) {
        push(link, FRAME, BLOCK);
        count += BLOCK;
    }
    settle(link);
    bench_number(&row, "payload", (double)count * FRAME * 8 / (bench_ns() - start), "Gbit/s");
    for (int i = 0; i < PREFETCH; i++) {
        tickets[i] = draw(link, target[i], FRAME, BATCH);
    }
    start = bench_ns();
    for (count = 0, passed = 0; passed < seconds * 1e9; passed = bench_ns() - start) {
        int *ticket = &tickets[count % PREFETCH];
        CHECK(finish(link, *ticket) == 0);
        *ticket = draw(link, target[count++ % PREFETCH], FRAME, BATCH);
    }
    row.name = "sample_stream";
    row.batch = BATCH;
    bench_number(&row, "payload", (double)count * BATCH * FRAME * 8 / passed, "Gbit/s");
    for (int i = 0; i < PREFETCH; i++) {
        CHECK(finish(link, tickets[i]) == 0);
    }
    rp_link_close(link, DRIVE_TIMEOUT_NS);
}

/* ---- the wire alone ---- */

static void send_full(struct rp_port *port, const struct rp_peer *to, uint32_t count) {
    struct rp_packet packets[RP_BURST];
    uint32_t lent = rp_port_transport(port)->tx_lease(port, packets, count);
    for (uint32_t i = 0; i < lent; i++) {
        packets[i].peer = *to;
        packets[i].size = rp_port_base(port)->mtu;
    }
    rp_port_transport(port)->tx_send(port, packets, lent);
}

static uint32_t receive_some(struct rp_port *port, struct rp_peer *from) {
    struct rp_packet packets[RP_BURST];
    uint32_t got = rp_port_transport(port)->rx_burst(port, packets, SOME);
    *from = got ? packets[0].peer : *from;
    rp_port_transport(port)->rx_release(port, packets, got);
    return got;
}

static void echo(const char *url) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    struct rp_peer peer;
    struct rp_port *port = open_port(url, 1, &peer);
    for (uint32_t i = 0; i % (1 << 20) || poll(&input, 1, 0) == 0; i++) {
        uint32_t got = receive_some(port, &peer);
        if (got) {
            send_full(port, &peer, got);
        }
    }
    rp_port_close(port);
}

static void bare(const char *url, double seconds) {
    struct bench_row row = {"bare_echo", "dpdk", "datagrams of the mtu", 0};
    struct rp_peer server, from;
    struct rp_port *port = open_port(url, 0, &server);
    uint64_t sent = 0, came = 0;
    double start = bench_ns(), passed = 0, heard = start;
    while (passed < seconds * 1e9) {
        uint32_t got = receive_some(port, &from);
        double now = bench_ns();
        came += got;
        heard = got ? now : heard;
        if (now - heard > 1e7) { /* lost on the way: begins anew */
            sent = came;
            heard = now;
        }
        if (sent - came + SOME <= UNDER_WAY) {
            send_full(port, &server, SOME);
            sent += SOME;
        }
        passed = now - start;
    }
    bench_number(&row, "payload", (double)came * rp_port_base(port)->mtu * 8 / passed, "Gbit/s");
    rp_port_close(port);
}

/* ---- what a datagram costs ---- */

static void ask(struct rp_link *link, const struct load *load) {
    static uint8_t target[BATCH * FRAME];
    if (load->rows) {
        push(link, load->row_bytes, load->rows);
        settle(link);
    } else if (load->items) {
        CHECK(finish(link, draw(link, target, load->row_bytes, load->items)) == 0);
    } else {
        CHECK(finish(link, rp_link_ping(link, DRIVE_TIMEOUT_NS)) == 0);
    }
}

static void cost(const char *name, uint32_t requests, const char *url, const char *client) {
    uint64_t before[RP_COUNTER_COUNT], after[RP_COUNTER_COUNT];
    const struct load *load = loads;
    while (strcmp(load->name, name) != 0) {
        load++;
        CHECK(load < loads + sizeof loads / sizeof loads[0], "no workload %s", name);
    }
    service = serve(url, load->row_bytes, 0);
    struct rp_link *link = reach(client);
    for (uint32_t i = 0; i < FRAMES / 64; i++) { /* the ring of frames is touched once */
        push(link, load->row_bytes, 64);
        settle(link);
    }
    ask(link, load);
    open_counter();
    CHECK(rp_service_counters(service, before) == 0);
    server_instructions = 0;
    uint64_t best = UINT64_MAX; /* of parts of equal size, what the quietest takes */
    for (uint32_t part = 0; part < PARTS; part++) {
        server_ns = 0;
        for (uint32_t i = 0; i < requests / PARTS; i++) {
            ask(link, load);
        }
        best = server_ns < best ? server_ns : best;
    }
    CHECK(rp_service_counters(service, after) == 0);
    printf("cost\t%" PRIu64, best * PARTS);
    const int told[] = {RP_COUNT_datagrams_in, RP_COUNT_datagrams_out, RP_COUNT_bytes_in,
                        RP_COUNT_bytes_out};
    for (int i = 0; i < 4; i++) {
        printf("\t%" PRIu64, after[told[i]] - before[told[i]]);
    }
    printf("\t%u\t%" PRIu64 "\n", requests / PARTS * PARTS * (load->rows + load->items),
           server_instructions);
    rp_link_close(link, 0);
    rp_service_close(service);
}

int main(int argc, char **argv) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    CHECK(argc > 2, "see the head of tests/dpdk/bench_dpdk.c");
    memset(rows, 7, sizeof rows);
    if (strcmp(argv[1], "cost") == 0 && argc > 5) {
        cost(argv[2], (uint32_t)atoi(argv[3]), argv[4], argv[5]);
    } else if (strcmp(argv[1], "frames") == 0 && argc > 3) {
        CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
        frames(argv[3], atof(argv[2]));
    } else if (strcmp(argv[1], "bare") == 0 && argc > 3) {
        CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
        bare(argv[3], atof(argv[2]));
    } else if (strcmp(argv[1], "echo") == 0) {
        echo(argv[2]);
    } else {
        struct rp_service *started = serve(argv[2], FRAME, 1);
        CHECK(rp_service_start(started) == 0);
        printf("%s\n", rp_service_address(started));
        fflush(stdout);
        while (getchar() != EOF) {
        }
        rp_service_close(started);
    }
    return 0;
}
