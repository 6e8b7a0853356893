/* replay-serve: serves tables without Python, for appliances, guests and hosts that have nothing
 * else. It opens a service of the core for each URL and waits for a signal; the config is a file
 * that Python compiled (compiled.h), the transports are the core's. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "appliance/compiled.h"
#include "base/minmax.h"
#include "replay.h"

enum { SERVICES_MAX = 16, EXIT_HOST = 1, EXIT_WRONG = 2, CORES_MAX = 1024,
       LOOK_NS = 200000000 };

static const char help[] =
    "replay-serve [OPTIONS] CONFIG URL...\n"
    "\n"
    "Serves the tables of CONFIG at each URL, every one with memory of its own, until SIGINT or\n"
    "SIGTERM; then, and at SIGUSR1, prints what it counted. At SIGHUP it reads CONFIG anew and\n"
    "serves that, in empty tables; a wrong one changes nothing. CONFIG is made where Python is:\n"
    "  replay-server serve tables.toml --compile CONFIG\n"
    "\n"
    "  --busy         its threads never sleep\n"
    "  --core N       the core its thread is pinned to; that of the next URL follows\n"
    "  --insecure     serve beyond this machine without a key: anybody may read and write\n"
    "  --region FOLDER  the memory, taken over if it exists; with one URL only\n"
    "  --verify       takes a region over only if each stored step has its checksum; reads it all\n"
    "  --help         this\n"
    "\n"
    "examples:\n"
    "  replay-serve tables.bin udp://127.0.0.1:7400\n"
    "  replay-serve --insecure tables.bin 'dpdk://10.0.0.1:7400?port=0000:03:00.0'\n"
    "\n"
    "A dpdk:// URL needs _dpdk.so (make dpdk) beside this program, or its path in REPLAY_DPDK.\n"
    "Exit codes: 0 stopped; 1 this host does not give what is asked for now, or its network card\n"
    "was taken away: starting again may help; 2 something about the request is wrong. One\n"
    "sentence says which.\n";

struct request {
    struct rp_service_options options;
    const char *config;
    char **urls;
    int url_count;
};

static int refuse(const char *what, const char *why) {
    fprintf(stderr, "replay-serve: %s: %s\n", what, why);
    return EXIT_WRONG;
}

/* The number behind queues= of a url, which stands between ?, & and commas; 0: none. */
static unsigned long queues_of(const char *url) {
    const char *found = strchr(url, '?');
    while (found && strncmp(found + 1, "queues=", 7) != 0) {
        found = strpbrk(found + 1, "&,");
    }
    return found ? strtoul(found + 8, NULL, 10) : 0;
}

/* Each queue of a device is read by a server of its own. */
static int check_queues(const struct request *request) {
    char why[256];
    for (int i = 0; i < request->url_count; i++) {
        unsigned long queues = queues_of(request->urls[i]), alike = 0;
        for (int k = 0; queues && k < request->url_count; k++) {
            const char *options = strchr(request->urls[k], '?');
            alike += options && strcmp(options, strchr(request->urls[i], '?')) == 0;
        }
        if (queues > 1 && alike != queues) {
            snprintf(why, sizeof why,
                     "queues=%lu, and %lu with these options: each queue of a device is read by a "
                     "server of its own, and clients at the others would get no answer; give a URL "
                     "for each, at ports that follow, or leave queues= out", queues, alike);
            return refuse(request->urls[i], why);
        }
    }
    return 0;
}

/* 0 to serve, EXIT_WRONG, or -1 where all is said. */
static int read_command(struct request *request, int count, char **words) {
    static const struct option options[] = {
        {"busy", no_argument, NULL, 'b'},        {"core", required_argument, NULL, 'c'},
        {"insecure", no_argument, NULL, 'i'},    {"region", required_argument, NULL, 'r'},
        {"verify", no_argument, NULL, 'v'},      {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int chosen;
    memset(request, 0, sizeof *request);
    opterr = 0;
    while ((chosen = getopt_long(count, words, "h", options, NULL)) != -1) {
        char *end = NULL;
        long core = chosen == 'c' ? strtol(optarg, &end, 10) : 0;
        switch (chosen) {
        case 'b': request->options.busy_poll = 1; break;
        case 'i': request->options.insecure = 1; break;
        case 'r': request->options.region_path = optarg; break;
        case 'v': request->options.verify = 1; break;
        case 'c':
            if (*optarg < '0' || *optarg > '9' || *end || core >= CORES_MAX) {
                return refuse("--core", "it is a number of a core, 0 to 1023");
            }
            request->options.core = 1 + (int32_t)core;
            break;
        case 'h': fputs(help, stdout); return -1;
        default:
            return refuse(words[optind - 1], "no such option, or its value is missing; --help");
        }
    }
    request->config = words[optind];
    request->urls = words + optind + 1;
    request->url_count = count - optind - 1;
    if (request->url_count < 1) {
        return refuse("CONFIG URL...", "a compiled config and an address are needed; --help");
    }
    if (request->url_count > SERVICES_MAX) {
        return refuse("URL...", "at most 16 addresses");
    }
    return request->options.region_path && request->url_count > 1
        ? refuse("--region", "a folder is the memory of one server: start one program for each URL")
        : check_queues(request);
}

/* The file's bytes, allocated; null with errno. */
static uint8_t *read_file(const char *path, size_t *size) {
    struct stat status;
    uint8_t *bytes = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &status) == 0) {
        *size = (size_t)(status.st_size < RP_COMPILED_BYTES_MAX ? status.st_size
                                                                : RP_COMPILED_BYTES_MAX + 1);
        bytes = malloc(*size + 1);
        ssize_t got = bytes ? read(file, bytes, *size) : -1;
        if (got < 0) {
            free(bytes);
            bytes = NULL;
        } else {
            *size = (size_t)got;
        }
    }
    if (file >= 0) {
        int why = errno;
        close(file);
        errno = why;
    }
    return bytes;
}

/* ---- serving ---- */

static void print_fact(const char *name, uint64_t number, const char *sentence) {
    printf("%-26s %12llu  %s\n", name, (unsigned long long)number, sentence);
}

/* One line that says where and how much, then every counter that moved. */
static void print_counters(struct rp_service *service, const char *what) {
    static struct rp_measures measures; /* one thread asks; it is large */
    uint64_t counters[RP_COUNTER_COUNT] = {0};
    (void)rp_service_counters(service, counters);
    printf("%s %s: %llu steps stored, %llu items sampled\n", what, rp_service_address(service),
           (unsigned long long)counters[RP_COUNT_steps_committed],
           (unsigned long long)counters[RP_COUNT_items_sampled]);
    for (int i = 0; i < RP_COUNTER_COUNT; i++) {
        if (counters[i]) {
            print_fact(rp_counter_name(i), counters[i], rp_counter_sentence(i));
        }
    }
    print_fact("sessions", rp_service_sessions(service), "sessions open now");
    print_fact("weights_version", rp_service_weights_version(service),
               "the newest weights; 0: none");
    print_fact("dropped", rp_service_dropped(service), "datagrams the network did not take");
    print_fact("dropped_in", rp_service_dropped_in(service), "dropped below the engine, at least");
    (void)rp_service_measure(service, &measures);
    for (uint64_t i = 0; i < measures.fact_count; i++) {
        const struct rp_fact *fact = &measures.facts[i];
        print_fact((const char *)fact->name, fact->value, (const char *)fact->sentence);
    }
    printf("end %s\n", rp_service_address(service));
    fflush(stdout);
}

/* ---- configs ---- */

struct loaded { /* a config, and the bytes it points into */
    struct rp_compiled compiled;
    uint8_t *bytes;
};

static void unload(struct loaded *loaded) {
    free(loaded->bytes);
    loaded->bytes = NULL;
}

/* Reads the config and asks the core about it at each URL, so that what begins can be served. */
static int load(struct loaded *loaded, const struct request *request) {
    char error[RP_ERROR_BYTES] = "";
    size_t size = 0;
    loaded->bytes = read_file(request->config, &size);
    if (!loaded->bytes) {
        return refuse(request->config, strerror(errno));
    }
    int wrong = rp_compiled_read(&loaded->compiled, loaded->bytes, size, error);
    for (int i = 0; i < request->url_count && !wrong; i++) {
        wrong = !rp_service_bytes(&loaded->compiled.config, request->urls[i], error);
    }
    if (wrong) {
        unload(loaded);
        return refuse(request->config, error);
    }
    return 0;
}

/* ---- life ---- */

/* In the order opposite to their opening. What those that served have counted is printed first. */
static void close_all(struct rp_service **services, int count, int print_them) {
    for (int i = 0; i < count && services[i]; i++) {
        (void)rp_service_stop(services[i]);
        if (print_them) {
            print_counters(services[i], "stopped");
        }
    }
    for (int i = count - 1; i >= 0; i--) {
        rp_service_close(services[i]);
        services[i] = NULL;
    }
}

/* The exit code of a refusal: what another moment may mend is not wrong. */
static int refuse_service(const char *url, int status, const char *error) {
    (void)refuse(url, error[0] ? error : rp_status_sentence(status));
    return status == -RP_SYSTEM || status == -RP_NO_MEMORY || status == -RP_DISK_FULL ? EXIT_HOST
        : EXIT_WRONG;
}

static int open_each(struct rp_service **services, const struct request *request,
                     const struct rp_compiled *compiled) {
    struct rp_service_options options = request->options;
    char error[RP_ERROR_BYTES] = "";
    for (int i = 0; i < request->url_count; i++) {
        struct rp_server_config config = compiled->config;
        if ((!compiled->seeded
             && getrandom(&config.seed, sizeof config.seed, 0) != sizeof config.seed)
            || getrandom(&config.first_lap, sizeof config.first_lap, 0)
                   != sizeof config.first_lap) {
            return refuse("random bytes", strerror(errno));
        }
        /* as Python has them: 63 bits drawn, or a seed of its own for each server */
        config.seed_drawn = !compiled->seeded;
        config.first_lap += config.first_lap == 0;
        config.seed = compiled->seeded ? config.seed + (uint64_t)i : config.seed >> 1;
        int status = rp_service_open(&services[i], &config, request->urls[i], &options, error);
        if (status) {
            return refuse_service(request->urls[i], status, error);
        }
        status = rp_service_start(services[i]);
        if (status) {
            return refuse_service(request->urls[i], status, "");
        }
        printf("%sserving at %s (seed %llu)\n",
               rp_service_attached(services[i]) ? "took over the region, " : "",
               rp_service_address(services[i]), (unsigned long long)rp_service_seed(services[i]));
        if (rp_service_changes(services[i])[0]) {
            printf("changed in the region: %s\n", rp_service_changes(services[i]));
        }
        fflush(stdout);
        options.core += options.core != 0;
    }
    return 0;
}

static int open_all(struct rp_service **services, const struct request *request,
                    const struct rp_compiled *compiled) {
    int code = open_each(services, request, compiled);
    if (code) {
        close_all(services, request->url_count, 0);
    }
    return code;
}

/* SIGHUP: the config as it is now, in empty tables. A wrong one changes nothing. */
static int reload(struct rp_service **services, const struct request *request) {
    static struct loaded loaded;
    if (request->options.region_path) {
        (void)refuse("SIGHUP", "the tables of --region FOLDER stay as they are; stop, and start "
                     "anew with another file");
        return 0;
    }
    if (load(&loaded, request)) {
        return 0;
    }
    close_all(services, request->url_count, 1);
    int code = open_all(services, request, &loaded.compiled);
    unload(&loaded);
    return code;
}

/* EXIT_HOST once one of them cannot be reached any more. A remark about its network is printed
 * once. */
static int look_after(struct rp_service **services, int count, int *remarked) {
    for (int i = 0; i < count; i++) {
        const char *why = rp_service_lost(services[i]), *remark = rp_service_remark(services[i]);
        if (remark && !remarked[i]) {
            (void)refuse(rp_service_address(services[i]), remark);
            remarked[i] = 1;
        }
        if (why) {
            (void)refuse(rp_service_address(services[i]), why);
            return EXIT_HOST;
        }
    }
    return 0;
}

/* Until a signal that ends, a restart that fails, or a card that is taken away. */
static int attend(struct rp_service **services, const struct request *request,
                  const sigset_t *signals) {
    const struct timespec look = {0, LOOK_NS};
    int number = 0, code = 0, remarked[SERVICES_MAX] = {0};
    while (!code && number != SIGINT && number != SIGTERM) {
        number = sigtimedwait(signals, NULL, &look);
        for (int i = 0; i < request->url_count && number == SIGUSR1; i++) {
            print_counters(services[i], "serving");
        }
        code = number == SIGHUP ? reload(services, request)
            : look_after(services, request->url_count, remarked);
    }
    return code;
}

static int serve(const struct request *request, const struct rp_compiled *compiled) {
    static const int handled[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    struct rp_service *services[SERVICES_MAX] = {NULL};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
        sigaddset(&signals, handled[i]);
    }
    /* before any thread begins, so that no other one gets them */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    int code = open_all(services, request, compiled);
    code = code ? code : attend(services, request, &signals);
    close_all(services, request->url_count, 1);
    return code;
}

int main(int count, char **words) {
    static struct loaded loaded;
    struct request request;
    int code = read_command(&request, count, words);
    if (code) {
        return rp_max(code, 0);
    }
    code = load(&loaded, &request);
    if (!code) {
        code = serve(&request, &loaded.compiled);
        unload(&loaded);
    }
    return code;
}
