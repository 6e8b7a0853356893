/* Where a service's region lies: anonymous memory, or a folder of files that outlives the process.
 *
 * Each segment (server.h) is a file of its own; all are mapped into one range of addresses, with
 * memory of this process alone behind them. The folder is made under the name PATH.new and gets
 * its own only when the region in it is whole: so PATH either does not exist, or can be attached
 * to. Until then it holds a file `making`. If a start dies, however late, that file stays, and
 * shows that no client was ever served from the folder: the next start rebuilds it. Without that
 * file PATH.new is somebody's region of that name, and is left alone. Folders are locked while they
 * are used, PATH.new while it is made. A forked child has none of the mapping once it runs: it does
 * not inherit it, or lets go of it as it begins, where the system has no way to keep it from
 * children. (Of a start under way it may have rp_memory_state's, which is read-only and private.)
 *
 * Every page gets its room on the disk before it is touched, so that a full disk is never a SIGBUS.
 * State, tables and the weights' seal get it at open, where a full disk is an error sentence. The
 * rest of the weights gets it a range at a time, when a publication says its size; there a full
 * disk is DISK_FULL.
 */
#ifndef RP_SERVICE_MEMORY_H
#define RP_SERVICE_MEMORY_H

#include <limits.h>
#include <stddef.h>

#include "server/server.h"

struct rp_memory {
    void *base;
    size_t bytes;
    int file;     /* the folder, locked; -1: anonymous */
    int attached; /* 1: the folder was there before, and holds a region */
    int made;     /* 1: the folder is PATH.new still: closing removes it */
    int opened;   /* a segment's file while it is mapped, which may take long; else -1 */
    int need_file; /* the segment that takes room at need; -1: none, or anonymous */
    uint64_t need_offset;
    char folder[PATH_MAX]; /* its name; empty: anonymous */
};

/* Nothing is open; closing does nothing. */
void rp_memory_none(struct rp_memory *memory);
/* Finds or makes the folder and locks it, for a memory of which nothing is open; path null:
 * anonymous. Returns 0 or a negative status with a sentence in error[256]; it is closed either way
 * by rp_memory_close. */
int rp_memory_open(struct rp_memory *memory, const char *path, char *error);
/* Of an attached one: its first segment as it is, read-only, to be compared with a configuration
 * before anything else is trusted; munmap it. Null with a sentence. */
const void *rp_memory_state(const struct rp_memory *memory, size_t *bytes, char *error);
/* Maps all segments. */
int rp_memory_map(struct rp_memory *memory, const struct rp_segments *segments, char *error);
/* A made folder holds a whole region now: gives it its name. Nothing for other kinds. */
int rp_memory_keep(struct rp_memory *memory, const char *path, char *error);
/* Room for this range of a segment that takes it at need: 1, or 0 where the disk is full. Then none
 * of the range has room but what was written to. */
int rp_memory_allocate(void *memory, uint64_t offset, uint64_t bytes);
/* In a forked child: frees what it inherited, and leaves the rest to its parent. */
void rp_memory_forget(struct rp_memory *memory);
void rp_memory_close(struct rp_memory *memory);

#endif
