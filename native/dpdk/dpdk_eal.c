/* Starting DPDK's environment: once, in a thread of its own, because it pins its caller to one CPU.
 * Its log is kept, not printed: its first error line is the reason in our sentence. The first
 * dpdk:// url of a process decides how it starts. A later url that says otherwise is refused.
 *
 * A fork may come while another thread starts DPDK. The child has no such thread, so it gets the
 * lock anew. It has no DPDK either: `process` says so from before the first step of a start.
 */
#include <assert.h>
#include <ctype.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_parts.h"
#include "os/thread.h"
#include "protocol/status.h"

/* Those of eal= are 3 bytes or more, with a ; behind each. */
enum {
    SAID_BYTES = 120, OWN = 14, ARGUMENTS = OWN + sizeof((struct rp_eal_options *)0)->words / 4,
    ARGUMENT_BYTES = sizeof((struct rp_eal_options *)0)->words,
};

#define PREFIX "replay-server" /* of the folder that DPDK makes at start, and needs no more then */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    enum { EAL_NOT_STARTED, EAL_RUNNING, EAL_FAILED } state;
    struct rp_eal_options options;
    int error;
    pid_t process;
    char why[SAID_BYTES];
} eal;

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[SAID_BYTES];

/* ---- what it says ---- */

static void keep(const char *text, size_t size) {
    pthread_mutex_lock(&said_lock);
    if (!said[0] && size && isprint((unsigned char)*text)) {
        size_t length = strcspn(text, "\n");
        length = rp_min(length, size);
        snprintf(said, sizeof said, "%.*s", (int)(length < sizeof said ? length : sizeof said - 1),
                 text);
    }
    pthread_mutex_unlock(&said_lock);
}

static ssize_t keep_line(void *cookie, const char *text, size_t size) {
    (void)cookie;
    if (rte_log_cur_msg_loglevel() <= (int)RTE_LOG_ERR) {
        keep(text, size);
    }
    return (ssize_t)size;
}

void rp_eal_listen(void) {
    pthread_mutex_lock(&said_lock);
    said[0] = 0;
    pthread_mutex_unlock(&said_lock);
}

void rp_eal_said(char *text, size_t size) {
    pthread_mutex_lock(&said_lock);
    snprintf(text, size, "%s", said);
    pthread_mutex_unlock(&said_lock);
}

/* DPDK writes what is fatal to stderr, and how it is used to stdout, past its own log; so does the
 * library under AF_XDP. While they are muted, these two streams lead here: what the muting thread
 * writes is not printed, what other threads write meanwhile is. */
static _Thread_local int muted;
static FILE *before_mute[2];

static ssize_t pass_by(void *cookie, const char *text, size_t size) {
    return muted ? (ssize_t)size : write(*(const int *)cookie, text, size);
}

void rp_eal_mute(void) {
    static FILE *streams[2]; /* never closed: another thread may hold one */
    static int files[2] = {STDOUT_FILENO, STDERR_FILENO};
    const cookie_io_functions_t writes = {.write = pass_by};
    before_mute[0] = stdout;
    before_mute[1] = stderr;
    for (int i = 0; i < 2; i++) {
        streams[i] = streams[i] ? streams[i] : fopencookie(&files[i], "w", writes);
        if (streams[i]) {
            setvbuf(streams[i], NULL, _IONBF, 0);
        }
    }
    muted = 1;
    stdout = streams[0] ? streams[0] : stdout;
    stderr = streams[1] ? streams[1] : stderr;
}

void rp_eal_unmute(void) {
    stdout = before_mute[0];
    stderr = before_mute[1];
    muted = 0;
}

/* ---- starting ---- */

static int first_cpu(void) {
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

struct arguments {
    int count;
    char *list[ARGUMENTS + 1];
    char bytes[ARGUMENTS][ARGUMENT_BYTES];
};

static void add(struct arguments *arguments, const char *first, const char *second) {
    const char *const both[2] = {first, second};
    for (int i = 0; i < 2 && both[i]; i++) {
        assert(arguments->count < ARGUMENTS);
        char *to = arguments->bytes[arguments->count];
        int size = snprintf(to, ARGUMENT_BYTES, "%s", both[i]);
        assert(size < ARGUMENT_BYTES);
        arguments->list[arguments->count++] = to;
    }
}

static void compose(struct arguments *arguments, const struct rp_eal_options *options) {
    char number[16], cores[ARGUMENT_BYTES], words[sizeof options->words], *rest = NULL;
    add(arguments, "replay-server", "--no-telemetry");
    add(arguments, "--file-prefix=" PREFIX, NULL);
    if (options->huge) {
        add(arguments, "--in-memory", NULL); /* nothing is left behind on a file system */
    } else {
        add(arguments, "--no-huge", "--no-shconf");
    }
    if (options->memory) {
        snprintf(number, sizeof number, "%u", options->memory);
        add(arguments, "-m", number);
    }
    if (options->card[0]) { /* where its memory lies for the card is then DPDK's to find out */
        add(arguments, "-a", options->card);
    } else {
        add(arguments, "--no-pci", "--iova-mode=va");
    }
    if (options->cores[0]) {
        snprintf(cores, sizeof cores, "0@(%s)", options->cores);
    } else {
        snprintf(cores, sizeof cores, "0@%d", first_cpu());
    }
    for (char *at = cores; *at; at++) {
        *at = *at == ';' ? ',' : *at;
    }
    add(arguments, "--lcores", cores);
    snprintf(words, sizeof words, "%s", options->words);
    for (char *at = strtok_r(words, ";", &rest); at; at = strtok_r(NULL, ";", &rest)) {
        add(arguments, at, NULL);
    }
}

/* DPDK makes a folder for files, though the arguments above forbid these files. Servers and clients
 * that start at once share the folder, and none needs it. The folder above it is shared by all DPDK
 * programs. */
static void clean_up(void) {
    const char *folder = rte_eal_get_runtime_dir(), *name = strrchr(folder, '/');
    if (name && strcmp(name + 1, PREFIX) == 0) {
        (void)rmdir(folder); /* refused where it is not empty */
    }
}

static void *start(void *argument) {
    static struct arguments arguments; /* DPDK keeps pointers to them */
    (void)argument;
    compose(&arguments, &eal.options);
    rp_eal_mute();
    eal.error = rte_eal_init(arguments.count, arguments.list) < 0 ? rte_errno ? rte_errno : EINVAL
        : 0;
    rp_eal_unmute();
    clean_up();
    return NULL;
}

static int start_once(void) {
    cookie_io_functions_t writes = {.write = keep_line};
    pthread_t thread;
    FILE *log = fopencookie(NULL, "w", writes);
    rp_eal_listen();
    if (!log || rte_openlog_stream(log) || rp_thread_start(&thread, NULL, start, NULL)) {
        eal.error = ENOMEM;
    } else {
        pthread_join(thread, NULL);
    }
    rp_eal_said(eal.why, sizeof eal.why);
    return eal.error ? EAL_FAILED : EAL_RUNNING;
}

/* How it is to start; -1 where the host lacks what is asked for, with a sentence in error. */
static int settle(const struct rp_eal_options *options, char *error) {
    struct rp_eal_options settled = *options;
    char why[RP_URL_ERROR_BYTES - 32];
    settled.huge = options->huge < 0 ? options->card[0] != 0 : options->huge;
    if (rp_eal_check_memory(&settled, why, sizeof why)) {
        snprintf(error, RP_URL_ERROR_BYTES, "DPDK is not started: %s", why);
        return -1;
    }
    if (!settled.memory && !settled.huge) {
        settled.memory = RP_DPDK_MEMORY;
    }
    eal.options = settled;
    return 0;
}

/* The option by which a later url differs from the first one; 0: they agree. */
static int disagrees(const struct rp_eal_options *said_later, char *how, size_t size) {
    const struct rp_eal_options *first = &eal.options;
    if (said_later->memory && said_later->memory != first->memory) {
        snprintf(how, size, "memory=%u", first->memory);
    } else if (said_later->huge >= 0 && said_later->huge != first->huge) {
        snprintf(how, size, "huge=%s", first->huge ? "on" : "off");
    } else if (said_later->cores[0] && strcmp(said_later->cores, first->cores) != 0) {
        snprintf(how, size, "cores=%s", first->cores[0] ? first->cores : "(unsaid)");
    } else if (said_later->words[0] && strcmp(said_later->words, first->words) != 0) {
        snprintf(how, size, "eal=%.60s", first->words[0] ? first->words : "(unsaid)");
    } else {
        return 0;
    }
    return 1;
}

static void in_child(void) {
    (void)pthread_mutex_init(&lock, NULL);
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, in_child);
}

/* Within the lock. */
static int start_or_agree(const struct rp_eal_options *options, char *error) {
    char how[80];
    int status = 0;
    if (eal.process && eal.process != getpid()) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK was started in another process, from which this one was forked: use a new "
                 "one (multiprocessing: spawn)");
        return -RP_FORKED;
    }
    if (eal.state == EAL_NOT_STARTED && settle(options, error)) {
        return -RP_SYSTEM;
    }
    if (eal.state == EAL_NOT_STARTED) {
        eal.process = getpid();
        eal.state = start_once();
    }
    if (eal.state == EAL_FAILED) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK did not start (%.100s: %.40s): it can be tried again in a new process, with "
                 "another memory=MIB%s", eal.why, strerror(eal.error),
                 eal.options.words[0] ? " or eal=" : "");
        status = -RP_SYSTEM;
    } else if (disagrees(options, how, sizeof how)) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK runs in this process with %.79s already and starts only once: say that, "
                 "or nothing", how);
        status = -RP_BAD_ARGUMENT;
    } else if (options->card[0] && !eal.options.card[0]) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "DPDK runs in this process without PCI cards, as its first dpdk:// url had none: "
                 "open the one with port= first");
        status = -RP_BAD_ARGUMENT;
    }
    return status;
}

int rp_eal_start(const struct rp_eal_options *options, char *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    int status = start_or_agree(options, error);
    pthread_mutex_unlock(&lock);
    return status;
}

const char *rp_eal_advice(void) {
    return eal.options.huge
        ? "too few hugepages are free, deploy/nic.sh hugepages COUNT --node N sets more"
        : eal.options.memory < RP_DPDK_MEMORY
        ? "memory= in the first url is too little, leave it out or say 512"
        : "say a larger memory= in the first url";
}

/* ---- threads ---- */

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static _Thread_local int registered;
static _Atomic uint32_t cachers;

static void part(void *value) {
    (void)value;
    rte_thread_unregister();
    atomic_fetch_sub(&cachers, 1);
}

static void make_key(void) {
    (void)pthread_key_create(&thread_key, part);
}

void rp_eal_register_thread(void) {
    if (registered) {
        return;
    }
    registered = 1; /* where there is no place left the thread works without caches */
    pthread_once(&thread_key_once, make_key);
    if (atomic_fetch_add(&cachers, 1) < RP_DPDK_CACHERS && rte_thread_register() == 0) {
        pthread_setspecific(thread_key, &thread_key);
    } else {
        atomic_fetch_sub(&cachers, 1);
    }
}
