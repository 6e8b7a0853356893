/* The honest ones of test_hostile.c, each a process: a memif server, and a client that pushes and
 * draws beside whoever is hostile, looks at each row, and counts how often it has to ask.
 */
#ifndef RP_DPDK_HONEST_TEST_H
#define RP_DPDK_HONEST_TEST_H

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "drive.h"
#include "transport/transport_dpdk.h"

/* A push of a batch is PUSHES datagrams. A server that has no processor for a while has each of
 * them sent again, so the bound is six times each: then two seconds have passed: the call ends. */
enum { ROW = 256, CAPACITY = 1 << 14, BATCH = 64, PUSHES = 16, RETRIES_MOST = 6 * PUSHES };

static struct told { /* by the children */
    _Atomic uint64_t acknowledged, operations, retries, retries_most;
    _Atomic int ends;
} *told;

static char socket_path[64];

static const char *url(char *text, int serve) {
    snprintf(text, RP_URL_BYTES, "dpdk://10.0.0.1:7400?vdev=net_memif,%ssocket=%s",
             serve ? "links=4," : "id=0,", socket_path);
    return text;
}

static void serve(void) {
    struct rp_service_options options = {0};
    struct rp_service *service;
    struct drive_table made;
    char error[RP_ERROR_BYTES], text[RP_URL_BYTES];
    sigset_t ending;
    int number;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ending, NULL); /* in all its threads */
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, url(text, 1), &options, error) == 0, "%s", error);
    CHECK(rp_service_start(service) == 0); /* it sleeps where nothing comes */
    sigwait(&ending, &number);
    rp_service_close(service);
    const struct rp_dpdk_object *object = rp_dpdk_load(error);
    CHECK(object->leaked() == 0, "%" PRIu64 " mbufs are not free", object->leaked());
}

static uint64_t fact(struct rp_link *link, const char *name) {
    struct rp_fact facts[RP_FACTS_MAX];
    uint32_t count;
    CHECK(drive_wait(link, rp_link_facts(link, facts, &count, DRIVE_TIMEOUT_NS), NULL) == 0);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp((const char *)facts[i].name, name) == 0) {
            return facts[i].value;
        }
    }
    CHECK(0, "no fact is called %s", name);
    return 0;
}

/* An operation has succeeded: how often its requests were sent. */
static void count_operation(struct rp_link *link) {
    static uint64_t before;
    uint64_t counters[RP_COUNTER_COUNT];
    CHECK(rp_link_counters(link, counters) == 0);
    uint64_t retries = counters[RP_COUNT_retransmissions] - before;
    before += retries;
    told->operations++;
    told->retries += retries;
    told->retries_most = retries > told->retries_most ? retries : told->retries_most;
    CHECK(retries <= RETRIES_MOST, "%" PRIu64 " requests sent again within an operation", retries);
}

/* Pushes and draws until it is told to end; each call has its time, each row is looked at. */
static void work(void) {
    static struct drive_batch batch;
    struct rp_link_options options = {0};
    struct rp_push_state state;
    uint64_t counters[RP_COUNTER_COUNT], next = 0;
    char text[RP_URL_BYTES];
    struct rp_link *link = drive_link(url(text, 0), &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    while (!told->ends) {
        drive_push(link, ROW, next, BATCH);
        drive_settle(link);
        next += BATCH;
        CHECK(rp_link_push_state(link, 0, &state) == 0 && state.steps_stored == next);
        count_operation(link);
        drive_sample(link, &batch, ROW, BATCH);
        count_operation(link);
        told->acknowledged = next;
    }
    CHECK(drive_wait(link, rp_link_stats(link, counters, NULL, DRIVE_TIMEOUT_NS), NULL) == 0
          && counters[RP_COUNT_steps_committed] == next);
    CHECK(fact(link, "memif_peers_refused") > 0, "those who were dropped are counted");
    rp_link_close(link, DRIVE_TIMEOUT_NS);
}

#endif
