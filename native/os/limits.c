/* Control groups as Linux shows them. A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; of
 * version 2 it is 0::PATH and the limit is in memory.max ("max": none), of version 1 CONTROLLERS
 * has `memory` and the limit is in memory.limit_in_bytes (without one larger than any machine). A
 * path may be the host's, and not be there in a container, whose own group is then where the tree
 * is mounted: so each group from PATH up to that one is looked at, and the least counts. What
 * cannot be read limits nothing.
 */
#include "os/limits.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/posix.h"

#ifndef RP_POSIX

enum { TEXT_BYTES = 4096 };

/* The file's first bytes as text; empty where there are none. */
static void read_text(const char *path, char text[TEXT_BYTES]) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = file < 0 ? 0 : read(file, text, TEXT_BYTES - 1);
    text[got > 0 ? got : 0] = 0;
    if (file >= 0) {
        close(file);
    }
}

static uint64_t limit_of(const char *tree, const char *group, const char *name) {
    char path[PATH_MAX], text[TEXT_BYTES], *end;
    int size = snprintf(path, sizeof path, "%s%s/%s", tree, group, name);
    if (size < 0 || size >= (int)sizeof path) {
        return UINT64_MAX;
    }
    read_text(path, text);
    unsigned long long bytes = strtoull(text, &end, 10);
    return end == text ? UINT64_MAX : bytes;
}

/* The least of the group and those around it. `group` is cut. */
static uint64_t least_of(const char *tree, char *group, const char *name) {
    uint64_t least = limit_of(tree, group, name);
    for (char *slash; (slash = strrchr(group, '/')) != NULL;) {
        *slash = 0;
        uint64_t around = limit_of(tree, group, name);
        least = around < least ? around : least;
    }
    return least;
}

static int has_memory(const char *controllers) {
    size_t size = strlen("memory");
    for (const char *at = controllers; (at = strstr(at, "memory")) != NULL; at += size) {
        if ((at == controllers || at[-1] == ',') && (at[size] == ',' || at[size] == 0)) {
            return 1;
        }
    }
    return 0;
}

static uint64_t group_limit(const char *root) {
    char path[PATH_MAX], lines[TEXT_BYTES], *rest = lines;
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    read_text(path, lines);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *number = strsep(&line, ":"), *controllers = strsep(&line, ":");
        if (!line) {
            continue;
        }
        int first = has_memory(controllers);
        if (first || (strcmp(number, "0") == 0 && !controllers[0])) {
            snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, first ? "/memory" : "");
            uint64_t limit =
                least_of(path, line, first ? "memory.limit_in_bytes" : "memory.max");
            least = limit < least ? limit : least;
        }
    }
    return least;
}

#else

static uint64_t group_limit(const char *root) {
    (void)root;
    return UINT64_MAX;
}

#endif

struct rp_memory_limit rp_memory_limit(const char *root) {
    uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t group = group_limit(root);
    return group < host ? (struct rp_memory_limit){group, "this process's control group has"}
                        : (struct rp_memory_limit){host, "this machine has"};
}
