/* One loop, and starting and stopping it. The stop flag is looked at once a turn. A sleeping pump
 * is woken after the flag is set, and a wake that comes before the sleep ends that sleep at once:
 * so no stop is missed.
 */
#include "drive/pump.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "drive/clock.h"
#include "os/system.h"
#include "os/thread.h"
#include "os/word.h"
#include "protocol/status.h"

static void *run(void *argument) {
    struct rp_pump *pump = argument;
    const struct rp_pump_job *job = &pump->job;
    struct rp_spin spin = {.for_ns = job->spin_ns};
    uint64_t idle_since = 0; /* 0: the last turn moved something */
    while (!pump->stop) {
        if (job->turn(job->owner)) {
            if (idle_since) {
                rp_spin_learn(&spin, rp_clock_ns() - idle_since);
            }
            idle_since = 0;
            continue;
        }
        if (job->busy_poll) { /* asks for no time: that costs as much as a look */
            rp_pump_relax();
            continue;
        }
        uint64_t now = rp_clock_ns();
        idle_since = idle_since ? idle_since : now;
        if (rp_spin_pays(&spin) && now - idle_since < spin.for_ns) {
            rp_pump_relax();
        } else {
            job->sleep(job->owner);
        }
    }
    return NULL;
}

int rp_pump_start(struct rp_pump *pump, const struct rp_pump_job *job) {
    pthread_attr_t attributes;
    uint32_t state = atomic_load(&pump->state);
    int failed = 0;
    if (state != RP_PUMP_NONE) {
        return state == RP_PUMP_RUNS ? 0 : RP_PENDING;
    }
    pump->job = *job;
    pump->stop = 0;
    pthread_attr_init(&attributes);
    if (job->core) {
        failed = job->core < 0 ? EINVAL : rp_pin(&attributes, job->core - 1);
    }
    failed = failed ? failed : rp_thread_start(&pump->thread, &attributes, run, pump);
    pthread_attr_destroy(&attributes);
    pump->state = failed ? RP_PUMP_NONE : RP_PUMP_RUNS;
    return !failed ? 0 : failed == EINVAL ? -RP_BAD_ARGUMENT : -RP_SYSTEM;
}

void rp_pump_await(struct rp_pump *pump) {
    while (atomic_load(&pump->state) == RP_PUMP_ENDS) {
        rp_word_wait(&pump->state, RP_PUMP_ENDS, RP_WORD_FOREVER);
    }
}

/* The first to come ends it, the others wait until it has. */
void rp_pump_stop(struct rp_pump *pump) {
    uint32_t before = RP_PUMP_RUNS;
    if (atomic_compare_exchange_strong(&pump->state, &before, RP_PUMP_ENDS)) {
        pump->stop = 1;
        pump->job.wake(pump->job.owner);
        int failed = pthread_join(pump->thread, NULL);
        assert(!failed);
        atomic_store(&pump->state, RP_PUMP_NONE);
        rp_word_wake(&pump->state);
    }
    rp_pump_await(pump);
}
