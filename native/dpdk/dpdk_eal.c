/* Starting DPDK's environment: once, in a thread of its own, because it pins its caller to one CPU.
 * What it logs is kept, not printed: its first error line is the reason that is told. */
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dpdk_parts.h"
#include "status.h"

enum { SAID_BYTES = 120, ARGUMENT_BYTES = 24 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    enum { EAL_NOT_STARTED, EAL_RUNNING, EAL_FAILED } state;
    uint32_t memory;
    int error;
    pid_t process;
    char why[SAID_BYTES];
} eal;

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[SAID_BYTES];

/* ---- what it says ---- */

static ssize_t keep_line(void *cookie, const char *text, size_t size)
{
    (void)cookie;
    pthread_mutex_lock(&said_lock);
    if (!said[0] && rte_log_cur_msg_loglevel() <= (int)RTE_LOG_ERR) {
        size_t length = strcspn(text, "\n");
        length = length < size ? length : size;
        snprintf(said, sizeof said, "%.*s", (int)(length < sizeof said ? length : sizeof said - 1),
                 text);
    }
    pthread_mutex_unlock(&said_lock);
    return (ssize_t)size;
}

void rp_eal_listen(void)
{
    pthread_mutex_lock(&said_lock);
    said[0] = 0;
    pthread_mutex_unlock(&said_lock);
}

void rp_eal_said(char *text, size_t size)
{
    pthread_mutex_lock(&said_lock);
    snprintf(text, size, "%s", said);
    pthread_mutex_unlock(&said_lock);
}

/* ---- starting ---- */

static int first_cpu(void)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof cpus, &cpus);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &cpus)) {
            return cpu;
        }
    }
    return 0;
}

static void *start(void *argument)
{
    char memory[ARGUMENT_BYTES], core[ARGUMENT_BYTES];
    char name[] = "replay-server", huge[] = "--no-huge", files[] = "--no-shconf",
         pci[] = "--no-pci", telemetry[] = "--no-telemetry", iova[] = "--iova-mode=va",
         memory_flag[] = "-m", core_flag[] = "--lcores";
    char *arguments[] = {name, huge, files, pci, telemetry, iova, memory_flag, memory,
                         core_flag, core, NULL};
    (void)argument;
    snprintf(memory, sizeof memory, "%u", eal.memory);
    snprintf(core, sizeof core, "0@%d", first_cpu());
    eal.error = rte_eal_init(10, arguments) < 0 ? rte_errno ? rte_errno : EINVAL : 0;
    return NULL;
}

static int start_once(uint32_t memory)
{
    cookie_io_functions_t writes = {.write = keep_line};
    pthread_t thread;
    FILE *log = fopencookie(NULL, "w", writes);
    eal.process = getpid();
    eal.memory = memory ? memory : RP_DPDK_MEMORY;
    rp_eal_listen();
    if (!log || rte_openlog_stream(log) || pthread_create(&thread, NULL, start, NULL)) {
        eal.error = ENOMEM;
    } else {
        pthread_join(thread, NULL);
    }
    rp_eal_said(eal.why, sizeof eal.why);
    return eal.error ? EAL_FAILED : EAL_RUNNING;
}

int rp_eal_start(uint32_t memory, char *error)
{
    int status = 0;
    pthread_mutex_lock(&lock);
    if (eal.state == EAL_NOT_STARTED) {
        eal.state = start_once(memory);
    }
    if (eal.process != getpid()) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK was started in another process, from which this one was forked: use a new "
                 "one (multiprocessing: spawn)");
        status = -RP_FORKED;
    } else if (eal.state == EAL_FAILED) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK did not start (%.100s: %.40s): it can be tried again in a new process, with "
                 "another memory=MIB", eal.why, strerror(eal.error));
        status = -RP_SYSTEM;
    } else if (memory && memory != eal.memory) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK runs in this process with memory=%u already and starts only once: say that, "
                 "or nothing", eal.memory);
        status = -RP_BAD_ARGUMENT;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- threads ---- */

static pthread_key_t greeted_key;
static pthread_once_t greeted_once = PTHREAD_ONCE_INIT;
static _Thread_local int greeted;

static void part(void *value)
{
    (void)value;
    rte_thread_unregister();
}

static void make_key(void)
{
    (void)pthread_key_create(&greeted_key, part);
}

void rp_eal_greet(void)
{
    if (greeted) {
        return;
    }
    greeted = 1; /* where there is no place left the thread works without caches */
    pthread_once(&greeted_once, make_key);
    if (rte_thread_register() == 0) {
        pthread_setspecific(greeted_key, &greeted_key);
    }
}
