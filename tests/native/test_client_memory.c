/* A client is small, whatever it may be asked for: an idle one, and one that works. Memory is
 * what the kernel says is in use; the server is another process, so that none of it is counted. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEASURED = 0 };
#else
enum { MEASURED = 1 };
#endif
enum { CLIENTS = 4, ROW = 64, CAPACITY = 1 << 16, IDLE_BYTES = 512 << 10, BUSY_BYTES = 2 << 20 };

static uint64_t resident_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*u %lu", &pages) == 1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The server's process: tells its address, and serves until its input ends. */
static void serve(const char *url, int input, int output) {
    struct rp_service_options options = {0};
    struct drive_table made;
    struct rp_service *service;
    char error[RP_ERROR_BYTES], byte, address[RP_URL_BYTES] = {0};
    drive_config(&made, CAPACITY, ROW);
    made.table.writers_max = 2 * CLIENTS;
    made.table.window = CAPACITY / 16 / (2 * CLIENTS);
    CHECK(rp_service_open(&service, &made.config, url, &options, error) == 0, "%s", error);
    CHECK(rp_service_start(service) == 0);
    snprintf(address, sizeof address, "%s", rp_service_address(service));
    CHECK(write(output, address, sizeof address) == (ssize_t)sizeof address);
    CHECK(read(input, &byte, 1) == 0);
    rp_service_close(service);
    _exit(0);
}

struct server {
    pid_t process;
    int input, output;
    char address[RP_URL_BYTES];
};

static void server_open(struct server *server, const char *url) {
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    server->process = fork();
    CHECK(server->process >= 0);
    if (server->process == 0) {
        close(to[1]);
        close(from[0]);
        serve(url, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    server->input = to[1];
    server->output = from[0];
    CHECK(read(server->output, server->address, RP_URL_BYTES) == RP_URL_BYTES);
}

static void server_close(struct server *server) {
    int status;
    close(server->input);
    close(server->output);
    CHECK(waitpid(server->process, &status, 0) == server->process && status == 0);
}

/* A client as Python has them: a link that samples, and its writer's own. */
struct pair {
    struct rp_link *asks, *writes;
};

static struct pair pair_open(const char *address) {
    struct rp_link_options options = {.mtu = RP_MTU_HOST};
    return (struct pair){drive_link(address, &options), drive_link(address, &options)};
}

static void pair_work(const struct pair *pair) {
    static struct drive_batch batch;
    struct rp_table_info info = drive_info(pair->writes);
    struct rp_updated updated;
    double priorities[DRIVE_BATCH_MAX];
    drive_writer(pair->writes, &info);
    drive_push(pair->writes, ROW, 0, 20000);
    drive_settle(pair->writes);
    for (uint32_t i = 0; i < DRIVE_BATCH_MAX; i++) {
        priorities[i] = i + 1;
    }
    for (uint32_t i = 0; i < 20; i++) {
        drive_sample(pair->asks, &batch, ROW, DRIVE_BATCH_MAX);
        int status = drive_wait(pair->asks,
                                rp_link_update(pair->asks, 0, info.epoch, batch.keys, priorities,
                                               DRIVE_BATCH_MAX, &updated, DRIVE_TIMEOUT_NS), NULL);
        CHECK(status == 0, "update: %s", rp_status_name(status));
    }
}

static void pair_close(const struct pair *pair) {
    rp_link_close(pair->writes, DRIVE_TIMEOUT_NS);
    rp_link_close(pair->asks, DRIVE_TIMEOUT_NS);
}

/* Given clients that connect, and then work. Expect each to take less than half a mebibyte, and
 * less than two. The first one is not counted: it pays for the program's own pages. */
static void check_memory(const char *url) {
    struct server server;
    struct pair pairs[CLIENTS + 1];
    server_open(&server, url);
    pairs[0] = pair_open(server.address);
    pair_work(&pairs[0]);
    uint64_t before = resident_bytes();
    for (uint32_t i = 1; i <= CLIENTS; i++) {
        pairs[i] = pair_open(server.address);
    }
    uint64_t idle = (resident_bytes() - before) / CLIENTS;
    for (uint32_t i = 1; i <= CLIENTS; i++) {
        pair_work(&pairs[i]);
    }
    uint64_t busy = (resident_bytes() - before) / CLIENTS;
    printf("  %s: a client and its writer: %" PRIu64 " KiB idle, %" PRIu64 " KiB at work\n", url,
           idle >> 10, busy >> 10);
    int measured = MEASURED && !getenv("RP_EMULATED"); /* an emulator's own pages are among them */
    CHECK(!measured || (idle < IDLE_BYTES && busy < BUSY_BYTES));
    for (uint32_t i = 0; i <= CLIENTS; i++) {
        pair_close(&pairs[i]);
    }
    server_close(&server);
}

int main(void) {
    check_memory("udp://127.0.0.1:0?mtu=8960");
    check_group("a client's memory");
    return check_done("test_client_memory");
}
