/* How much memory this process may have, as far as it can be known. */
#ifndef RP_OS_LIMITS_H
#define RP_OS_LIMITS_H

#include <stdint.h>

struct rp_memory_limit {
    uint64_t bytes;
    const char *whose; /* "this machine has" or "this process's control group has" */
};

/* The machine's memory, or that of the memory control group of this process, or of a group around
 * it, where one has less (a container's, a unit's MemoryMax=). `root` is "", or a folder with a
 * tree of files like the kernel's in /proc and /sys: a test's. */
struct rp_memory_limit rp_memory_limit(const char *root);

#endif
