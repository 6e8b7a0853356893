/* Where a service's region lies: anonymous memory, or a file that outlives the process.
 *
 * A file is made under the name PATH.new and gets its own only when the region in it is whole, so
 * that PATH either does not exist or can be attached to. It is locked while it is used. Forked
 * children do not inherit the mapping.
 */
#ifndef RP_SERVICE_MEMORY_H
#define RP_SERVICE_MEMORY_H

#include <stddef.h>

struct rp_memory {
    void *base;
    size_t bytes;
    int file;     /* -1: anonymous */
    int attached; /* 1: the file was there before, and holds a region */
};

/* path null: anonymous. Returns 0 or a negative status with a sentence in error[256]. */
int rp_memory_open(struct rp_memory *memory, const char *path, size_t bytes, char *error);
/* A made file holds a whole region now: gives it its name. Nothing for other kinds. */
int rp_memory_keep(struct rp_memory *memory, const char *path, char *error);
void rp_memory_close(struct rp_memory *memory);

#endif
