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
#include "appliance/say.h"
#include "base/minmax.h"
#include "replay.h"

enum { SERVICES_MAX = 16, EXIT_HOST = 1, EXIT_WRONG = 2, CORES_MAX = 1024,
       LOOK_NS = 200000000 };

static const char help[] =
    "replay-serve [OPTIONS] CONFIG URL...\n"
    "\n"
    "Serves the tables of CONFIG at each URL, every one with memory of its own, until SIGINT or\n"
    "SIGTERM; then, and at SIGUSR1, prints what it counted. At SIGHUP it reads CONFIG anew and\n"
    "serves that, in empty tables; a wrong one changes nothing. If this host cannot serve the new\n"
    "one, it serves the old one again, in empty tables. Lines that nobody reads are dropped, and\n"
    "counted in the next one that is read. CONFIG is made where Python is:\n"
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
    rp_say(STDERR_FILENO, "replay-serve: %s: %s", what, why);
    return EXIT_WRONG;
}

/* An option of a URL, NAME=VALUE: they stand behind ?, between & and commas, in any order. */
struct word {
    const char *text;
    size_t size;
};

static struct word options_of(const char *url) {
    const char *found = strchr(url, '?');
    return (struct word){found ? found : "", 0};
}

/* Steps to the next one; 0 behind the last. */
static int next_word(struct word *word) {
    word->text += word->size;
    word->text += strspn(word->text, "?&,");
    word->size = strcspn(word->text, "&,");
    return word->size > 0;
}

static int begins(const struct word *word, const char *name) {
    return strncmp(word->text, name, strlen(name)) == 0;
}

/* How many queues the device of a URL has; 0: none are said, or it is one that has none (of which
 * the core and the data plane know more to say). */
static unsigned long queues_of(const char *url) {
    struct word word = options_of(url);
    unsigned long queues = 0;
    int on_network = 0;
    while (next_word(&word)) {
        on_network |= begins(&word, "port=") || begins(&word, "vdev=net_af_packet")
            || begins(&word, "vdev=net_af_xdp") || begins(&word, "vdev=net_tap");
        queues = begins(&word, "queues=") ? strtoul(word.text + 7, NULL, 10) : queues;
    }
    return on_network && strncmp(url, "dpdk://", 7) == 0 ? queues : 0;
}

static int read_card(const struct word *word, unsigned card[4]) {
    card[0] = 0;
    if (sscanf(word->text, "port=%4x:%2x:%2x.%1u", &card[0], &card[1], &card[2], &card[3]) == 4) {
        return 1;
    }
    card[0] = 0;
    return sscanf(word->text, "port=%2x:%2x.%1u", &card[1], &card[2], &card[3]) == 3;
}

/* A number behind a driver's name says nothing. */
static size_t size_read(const struct word *word) {
    size_t size = word->size;
    while (begins(word, "vdev=") && word->text[size - 1] >= '0' && word->text[size - 1] <= '9') {
        size--;
    }
    return size;
}

/* As the data plane reads them: 3:0.0 and 0000:03:00.0 are one card. */
static int is_same(const struct word *one, const struct word *other) {
    unsigned card[4], other_card[4];
    if (read_card(one, card) && read_card(other, other_card)) {
        return memcmp(card, other_card, sizeof card) == 0;
    }
    size_t size = size_read(one);
    return size == size_read(other) && memcmp(one->text, other->text, size) == 0;
}

/* Whether the other URL has each option of this one. */
static int has_all(const char *url, const char *other) {
    int all = 1;
    for (struct word word = options_of(url); all && next_word(&word);) {
        int found = 0;
        for (struct word its = options_of(other); !found && next_word(&its);) {
            found = is_same(&word, &its);
        }
        all = found;
    }
    return all;
}

/* Each queue of a device is read by a server of its own. */
static int check_queues(const struct request *request) {
    char why[256];
    for (int i = 0; i < request->url_count; i++) {
        const char *url = request->urls[i];
        unsigned long queues = queues_of(url), alike = 0;
        for (int k = 0; queues > 1 && k < request->url_count; k++) {
            alike += has_all(url, request->urls[k]) && has_all(request->urls[k], url);
        }
        if (queues > 1 && alike != queues) {
            snprintf(why, sizeof why,
                     "queues=%lu, and %lu with these options: each queue of a device is read by a "
                     "server of its own, and clients at the others would get no answer; give a URL "
                     "for each, at ports that follow, or leave queues= out", queues, alike);
            return refuse(url, why);
        }
    }
    return 0;
}

/* 0 to serve, EXIT_WRONG, or -1 where all is said. */
static int read_command(struct request *request, int count, char **words) {
    enum { BUSY = 256, CORE, INSECURE, REGION, VERIFY }; /* no letters: these have none */
    static const struct option options[] = {
        {"busy", no_argument, NULL, BUSY},           {"core", required_argument, NULL, CORE},
        {"insecure", no_argument, NULL, INSECURE},   {"region", required_argument, NULL, REGION},
        {"verify", no_argument, NULL, VERIFY},       {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int chosen;
    memset(request, 0, sizeof *request);
    opterr = 0;
    while ((chosen = getopt_long(count, words, "h", options, NULL)) != -1) {
        char *end = NULL;
        long core = chosen == CORE ? strtol(optarg, &end, 10) : 0;
        switch (chosen) {
        case BUSY: request->options.busy_poll = 1; break;
        case INSECURE: request->options.insecure = 1; break;
        case REGION: request->options.region_path = optarg; break;
        case VERIFY: request->options.verify = 1; break;
        case CORE:
            if (*optarg < '0' || *optarg > '9' || *end || core >= CORES_MAX) {
                return refuse("--core", "it is a number of a core, 0 to 1023");
            }
            request->options.core = 1 + (int32_t)core;
            break;
        case 'h': fputs(help, stdout); return -1;
        default: { /* in the midst of -xy optind is not behind it yet: optopt has the letter */
            char letter[] = {'-', (char)optopt, 0};
            int is_letter = optopt > 0 && optopt < BUSY;
            return refuse(is_letter ? letter : words[optind - 1],
                          "no such option, or its value is missing; --help");
        }
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
    if (request->options.region_path && !request->options.region_path[0]) {
        return refuse("--region", "its folder's name is empty; leave it out for memory that ends "
                      "with the program");
    }
    return request->options.region_path && request->url_count > 1
        ? refuse("--region", "a folder is the memory of one server: start one program for each URL")
        : check_queues(request);
}

/* The file's bytes, allocated; null with errno. */
static uint8_t *read_file(const char *path, size_t *size) {
    struct stat status;
    uint8_t *bytes = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* no pipe is waited for */
    if (file >= 0 && fstat(file, &status) == 0 && !S_ISREG(status.st_mode)) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL; /* no size says what such a one holds */
    } else if (file >= 0 && fstat(file, &status) == 0) {
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
    rp_say(STDOUT_FILENO, "%-26s %12llu  %s", name, (unsigned long long)number, sentence);
}

/* One line that says where and how much, then every counter that moved. */
static void print_counters(struct rp_service *service, const char *what) {
    static struct rp_measures measures; /* one thread asks; it is large */
    uint64_t counters[RP_COUNTER_COUNT] = {0};
    (void)rp_service_counters(service, counters);
    rp_say(STDOUT_FILENO, "%s %s: %llu steps stored, %llu items sampled", what,
           rp_service_address(service),
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
    rp_say(STDOUT_FILENO, "end %s", rp_service_address(service));
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
            snprintf(error, sizeof error, "no thread can be started on core %d: is there one, and "
                     "may this program use it?", options.core - 1);
            return refuse_service(request->urls[i], status, options.core ? error : "");
        }
        rp_say(STDOUT_FILENO, "%sserving at %s (seed %llu)",
               rp_service_attached(services[i]) ? "took over the region, " : "",
               rp_service_address(services[i]), (unsigned long long)rp_service_seed(services[i]));
        if (rp_service_changes(services[i])[0]) {
            rp_say(STDOUT_FILENO, "changed in the region: %s", rp_service_changes(services[i]));
        }
        options.core += options.core != 0;
    }
    return 0;
}

/* Whether the tables of all servers fit into this machine together: each is looked at alone where
 * it opens, and at SIGHUP the old ones are gone by then. 0, or an exit code. */
static int check_memory(const struct request *request, const struct rp_compiled *compiled) {
    const char *whose;
    double most = (double)rp_memory_most(&whose), bytes = 0;
    char error[RP_ERROR_BYTES] = "";
    for (int i = 0; i < request->url_count; i++) {
        bytes += (double)rp_service_bytes(&compiled->config, request->urls[i], error);
    }
    if (bytes <= most || request->options.region_path) {
        return 0;
    }
    snprintf(error, sizeof error, "the tables of %d server%s take %.1f MiB, and %s %.1f MiB: a "
             "smaller capacity, or fewer URLs", request->url_count,
             request->url_count > 1 ? "s" : "", bytes / (1 << 20), whose, most / (1 << 20));
    (void)refuse(request->config, error);
    return EXIT_HOST;
}

static int open_all(struct rp_service **services, const struct request *request,
                    const struct rp_compiled *compiled) {
    int code = check_memory(request, compiled);
    code = code ? code : open_each(services, request, compiled);
    if (code) {
        close_all(services, request->url_count, 0);
    }
    return code;
}

/* The config that is served, and room for the next one. */
struct configs {
    struct loaded loaded[2];
    int served;
};

/* SIGHUP: the config as it is now, in empty tables. A wrong one changes nothing. What only opening
 * can tell is told when the old servers are closed: then the old config is served again. */
static int reload(struct rp_service **services, const struct request *request,
                  struct configs *configs) {
    struct loaded *had = &configs->loaded[configs->served];
    struct loaded *next = &configs->loaded[!configs->served];
    if (request->options.region_path) {
        (void)refuse("SIGHUP", "the tables of --region FOLDER stay as they are; stop, and start "
                     "anew with another file");
        return 0;
    }
    if (load(next, request)) {
        return 0;
    }
    if (check_memory(request, &next->compiled)) {
        unload(next);
        return 0;
    }
    close_all(services, request->url_count, 1);
    if (open_all(services, request, &next->compiled) == 0) {
        unload(had);
        configs->served = !configs->served;
        return 0;
    }
    unload(next);
    (void)refuse("SIGHUP", "the config before it is served again, in empty tables");
    return open_all(services, request, &had->compiled);
}

/* EXIT_HOST once one of them cannot be reached any more. Each remark about its network is printed
 * once: `printed` has the last ones. */
static int look_after(struct rp_service **services, int count, const char **printed) {
    for (int i = 0; i < count; i++) {
        const char *why = rp_service_lost(services[i]), *remark = rp_service_remark(services[i]);
        if (remark && remark != printed[i]) {
            (void)refuse(rp_service_address(services[i]), remark);
            printed[i] = remark;
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
                  struct configs *configs, const sigset_t *signals) {
    const struct timespec look = {0, LOOK_NS};
    const char *printed[SERVICES_MAX] = {NULL};
    int number = 0, code = 0;
    while (!code && number != SIGINT && number != SIGTERM) {
        number = sigtimedwait(signals, NULL, &look);
        for (int i = 0; i < request->url_count && number == SIGUSR1; i++) {
            print_counters(services[i], "serving");
        }
        if (number == SIGHUP) {
            code = reload(services, request, configs);
            memset(printed, 0, sizeof printed); /* the services are others */
        } else {
            code = look_after(services, request->url_count, printed);
        }
    }
    return code;
}

static int serve(const struct request *request, struct configs *configs) {
    static const int handled[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    struct rp_service *services[SERVICES_MAX] = {NULL};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
        sigaddset(&signals, handled[i]);
    }
    /* before any thread begins, so that no other one gets them */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    int code = open_all(services, request, &configs->loaded[configs->served].compiled);
    code = code ? code : attend(services, request, configs, &signals);
    close_all(services, request->url_count, 1);
    return code;
}

int main(int count, char **words) {
    static struct configs configs; /* they are large, and point into themselves */
    struct request request;
    (void)signal(SIGPIPE, SIG_IGN); /* see say.h */
    (void)signal(SIGXFSZ, SIG_IGN); /* a region beyond ulimit -f is a sentence */
    int code = read_command(&request, count, words);
    if (code) {
        return rp_max(code, 0);
    }
    code = load(&configs.loaded[0], &request);
    if (!code) {
        code = serve(&request, &configs);
        unload(&configs.loaded[configs.served]);
    }
    return code;
}
