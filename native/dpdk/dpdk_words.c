/* The arguments that eal= may have, where cores= may be, and how much memory= may ask for. All are
 * checked before DPDK starts, as it starts once in a process. And some of its arguments end the
 * process (--help), wait for another process (--proc-type), or load code (-d).
 */
#include <ctype.h>
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_parts.h"
#include "protocol/status.h"

#define SOCKET_MEMORY "--socket-mem="

enum { MIB_KIB = 1024, DIGITS_MAX = 9, DIGITS_LAST = 999999999, NAME_SHOWN = 40 };

/* Arguments that tune a device or its memory. A name is compared whole, as DPDK takes abbreviations
 * too. Null for `values`: a number from `first` to `last`. */
static const struct word {
    const char *name;
    const char *const *values;
    long first, last;
} words[] = {
    {"-n", NULL, 1, 32}, /* memory channels, at least one */
    {"-r", NULL, 1, 16}, /* and ranks: DPDK takes no more */
    {"--iova-mode=", (const char *const[]){"pa", "va", NULL}, 0, 0},
    {SOCKET_MEMORY, NULL, 0, DIGITS_LAST},
    {"--socket-limit=", NULL, 0, DIGITS_LAST},
    {"--vfio-intr=", (const char *const[]){"legacy", "msi", "msix", NULL}, 0, 0},
    {"--vfio-vf-token=", (const char *const[]){NULL}, 0, 0}, /* a UUID */
};

static const char known[] = "-nN, -rN, --iova-mode, --socket-mem, --socket-limit, --vfio-intr or "
                            "--vfio-vf-token=UUID";

/* 8-4-4-4-12 hexadecimal digits. */
static int is_uuid(const char *text) {
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    size_t i = 0;
    while (text[i] && (form[i] == 'x' ? isxdigit((unsigned char)text[i]) : text[i] == form[i])) {
        i++;
    }
    return i == sizeof form - 1 && !text[i];
}

static int is_value(const struct word *word, const char *value) {
    size_t digits = strspn(value, "0123456789");
    if (!word->values) {
        return digits > 0 && digits <= DIGITS_MAX && !value[digits]
            && atol(value) >= word->first && atol(value) <= word->last;
    }
    if (!word->values[0]) {
        return is_uuid(value);
    }
    for (const char *const *one = word->values; *one; one++) {
        if (strcmp(*one, value) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is_known(const char *text) {
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i].name);
        if (strncmp(text, words[i].name, length) == 0) {
            return is_value(&words[i], text + length);
        }
    }
    return 0;
}

int rp_eal_check_words(const char *text, char *why, size_t size) {
    char copy[sizeof ((struct rp_eal_options *)0)->words], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strtok_r(copy, ";", &rest); at; at = strtok_r(NULL, ";", &rest)) {
        if (!is_known(at)) {
            snprintf(why, size, "eal= does not take %.*s: leave it out, or say %s", NAME_SHOWN, at,
                     known);
            return -1;
        }
    }
    return 0;
}

/* ---- cores ---- */

/* Of "3" or "3-5" at the beginning of `text`; returns what follows, or null: it is neither. */
static const char *read_range(const char *text, unsigned *first, unsigned *last) {
    int length = 0, whole = 0;
    if (!isdigit((unsigned char)*text) || sscanf(text, "%4u%n", first, &length) != 1) {
        return NULL;
    }
    *last = *first;
    if (text[length] == '-') {
        if (sscanf(text + length, "-%4u%n", last, &whole) != 1) {
            return NULL;
        }
        length += whole;
    }
    return text + length;
}

static int may_run_on(const cpu_set_t *cpus) {
    cpu_set_t before;
    int may = sched_getaffinity(0, sizeof before, &before) == 0
        && sched_setaffinity(0, sizeof *cpus, cpus) == 0;
    if (may) {
        (void)sched_setaffinity(0, sizeof before, &before);
    }
    return may;
}

/* 0; or -1: one of them is not here, *missing. */
static int add_range(cpu_set_t *cpus, unsigned first, unsigned last, unsigned *missing) {
    char path[64];
    for (unsigned cpu = first; cpu <= last; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology", cpu);
        if (cpu >= CPU_SETSIZE || access(path, F_OK)) {
            *missing = cpu;
            return -1;
        }
        CPU_SET(cpu, cpus);
    }
    return 0;
}

static int refuse_missing(unsigned cpu, char *why, size_t size) {
    char online[64] = "others";
    FILE *file = fopen("/sys/devices/system/cpu/online", "re");
    if (file) {
        (void)!fscanf(file, "%63s", online);
        fclose(file);
    }
    snprintf(why, size, "cores= names processor %u, and this host has %s", cpu, online);
    return -1;
}

int rp_eal_check_cores(const char *text, char *why, size_t size) {
    unsigned first, last, missing;
    const char *at = text;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (int more = *at != 0; more; at++) {
        at = read_range(at, &first, &last);
        if (!at || (*at && *at != ';')) {
            snprintf(why, size, "cores= is a list of processors, such as 2 or 2-3 or 2;4");
            return -1;
        }
        if (add_range(&cpus, rp_min(first, last), rp_max(first, last), &missing)) {
            return refuse_missing(missing, why, size);
        }
        more = *at == ';';
    }
    if (*text && !may_run_on(&cpus)) {
        snprintf(why, size, "cores=%.32s is where this process may not run (its cgroup's cpuset)",
                 text);
        return -1;
    }
    return 0;
}

/* ---- memory ---- */

static unsigned long read_number(const char *path, const char *format) {
    char line[128];
    unsigned long number = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, format, &number) != 1) {
    }
    if (file) {
        fclose(file);
    }
    return number;
}

/* /proc/meminfo counts those of the default size alone. What a process has mapped and not touched
 * yet counts as free there and here, but DPDK could not have it: it subtracts that too. */
unsigned long rp_eal_hugepages_kib(void) {
    static const char folder[] = "/sys/kernel/mm/hugepages/hugepages-";
    glob_t sizes = {0};
    unsigned long kib = 0;
    char path[sizeof folder + NAME_SHOWN];
    (void)glob("/sys/kernel/mm/hugepages/hugepages-*kB", 0, NULL, &sizes);
    for (size_t i = 0; i < sizes.gl_pathc; i++) {
        unsigned long page = strtoul(sizes.gl_pathv[i] + sizeof folder - 1, NULL, 10);
        snprintf(path, sizeof path, "%s%lukB/free_hugepages", folder, page);
        unsigned long pages = read_number(path, "%lu");
        snprintf(path, sizeof path, "%s%lukB/resv_hugepages", folder, page);
        unsigned long reserved = read_number(path, "%lu");
        kib += pages > reserved ? page * (pages - reserved) : 0;
    }
    globfree(&sizes);
    return kib;
}

int rp_eal_check_memory(const struct rp_eal_options *options, char *why, size_t size) {
    if (strstr(options->words, SOCKET_MEMORY) && (!options->huge || options->memory)) {
        snprintf(why, size, options->huge ? "memory= and eal=--socket-mem both say how much: say "
                 "one of them" : "eal=--socket-mem needs hugepages: say huge=on, or memory= in its "
                 "place");
        return -1;
    }
    unsigned long has = options->huge ? rp_eal_hugepages_kib() / MIB_KIB
        : read_number("/proc/meminfo", "MemAvailable: %lu") / MIB_KIB;
    if (options->memory <= has) {
        return 0;
    }
    if (options->huge) {
        snprintf(why, size, "memory=%u is more than this host's free hugepages, %lu MiB: "
                 "deploy/nic.sh hugepages sets more, or leave memory= out", options->memory, has);
    } else {
        snprintf(why, size, "memory=%u is more than this host has free, %lu MiB: say less, or "
                 "nothing for %u", options->memory, has, RP_DPDK_MEMORY);
    }
    return -1;
}
