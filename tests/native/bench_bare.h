/* bench_bare.h: the yardstick beside every UDP figure: two sockets of this host, nothing behind
 * them.
 *
 * One thread echoes, the caller asks and polls; connected sockets, plain send and recv. What a
 * request costs above this is the replay server's doing, what is in it is the kernel's.
 */
#ifndef RP_BENCH_BARE_H
#define RP_BENCH_BARE_H

#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include "bench.h"

struct bare {
    int echo;
    int ask;
    uint32_t answer_bytes;
    volatile int stop;
};

static void *bare_echo(void *argument) {
    struct bare *bare = argument;
    char buffer[2048];
    while (!bare->stop) {
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        if (recvfrom(bare->echo, buffer, sizeof buffer, MSG_DONTWAIT, (void *)&from, &size) > 0) {
            sendto(bare->echo, buffer, bare->answer_bytes, 0, (void *)&from, size);
        }
    }
    return NULL;
}

static void bare_open(struct bare *bare) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    bare->echo = socket(AF_INET, SOCK_DGRAM, 0);
    bare->ask = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bare->echo >= 0 && bind(bare->echo, (void *)&at, sizeof at) == 0);
    CHECK(getsockname(bare->echo, (void *)&at, &size) == 0);
    CHECK(bare->ask >= 0 && connect(bare->ask, (void *)&at, sizeof at) == 0);
}

/* The echo's thread starts where it stays: on `core` (1 = the first). */
static pthread_t bare_start(struct bare *bare, int core) {
    pthread_attr_t attributes;
    pthread_t thread;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET((size_t)core - 1, &cores);
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setaffinity_np(&attributes, sizeof cores, &cores) == 0);
    CHECK(pthread_create(&thread, &attributes, bare_echo, bare) == 0);
    pthread_attr_destroy(&attributes);
    return thread;
}

/* The round trips of `ask_bytes` out and `answer_bytes` back for `ns` nanoseconds. */
static void bench_bare(struct bench_row *row, uint32_t ask_bytes, uint32_t answer_bytes, double ns,
                       int core, double *latencies, size_t latencies_max) {
    struct bare bare = {.answer_bytes = answer_bytes};
    char buffer[2048] = {0};
    size_t count = 0;
    bare_open(&bare);
    pthread_t thread = bare_start(&bare, core);
    double start = bench_ns(), before = start;
    while (before - start < ns && count < latencies_max) {
        CHECK(send(bare.ask, buffer, ask_bytes, 0) == (ssize_t)ask_bytes);
        while (recv(bare.ask, buffer, sizeof buffer, MSG_DONTWAIT) < 0) {
        }
        double after = bench_ns();
        latencies[count++] = (after - before) / 1e3;
        before = after;
    }
    bare.stop = 1;
    pthread_join(thread, NULL);
    close(bare.echo);
    close(bare.ask);
    bench_latency(row, latencies, count);
}

#endif
