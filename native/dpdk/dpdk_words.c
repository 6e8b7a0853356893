/* The arguments that eal= may have, and how much memory= may ask for. Both are checked before DPDK
 * starts: some of DPDK's arguments end the process (--help), wait for another process
 * (--proc-type), or load code (-d).
 */
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk/dpdk_parts.h"
#include "protocol/status.h"

enum { MIB_KIB = 1024, DIGITS_MAX = 9, NAME_SHOWN = 40 };

/* Arguments that tune a device or its memory. A name is compared whole, as DPDK takes abbreviations
 * too. Null for `values`: a number. */
static const struct word {
    const char *name;
    const char *const *values;
} words[] = {
    {"-n", NULL},
    {"-r", NULL},
    {"--iova-mode=", (const char *const[]){"pa", "va", NULL}},
    {"--socket-mem=", NULL},
    {"--socket-limit=", NULL},
    {"--vfio-intr=", (const char *const[]){"legacy", "msi", "msix", NULL}},
    {"--vfio-vf-token=", (const char *const[]){NULL}}, /* a UUID: hexadecimal digits and - */
};

static const char known[] = "-nN, -rN, --iova-mode, --socket-mem, --socket-limit, --vfio-intr or "
                            "--vfio-vf-token=VALUE";

static int is_value(const struct word *word, const char *value) {
    size_t digits = strspn(value, "0123456789");
    if (!word->values) {
        return digits > 0 && digits <= DIGITS_MAX && !value[digits];
    }
    if (!word->values[0]) {
        return *value && strspn(value, "0123456789abcdefABCDEF-") == strlen(value);
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

/* MiB of free hugepages, whatever their size. */
static unsigned long free_hugepages(void) {
    glob_t sizes = {0};
    unsigned long kib = 0;
    (void)glob("/sys/kernel/mm/hugepages/hugepages-*kB/free_hugepages", 0, NULL, &sizes);
    for (size_t i = 0; i < sizes.gl_pathc; i++) {
        unsigned long page = 0;
        (void)sscanf(sizes.gl_pathv[i], "/sys/kernel/mm/hugepages/hugepages-%lukB", &page);
        kib += page * read_number(sizes.gl_pathv[i], "%lu");
    }
    globfree(&sizes);
    return kib / MIB_KIB;
}

int rp_eal_check_memory(const struct rp_eal_options *options, char *why, size_t size) {
    unsigned long has = options->huge ? free_hugepages()
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
