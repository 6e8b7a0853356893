/* Mappings. Every page of a file is allocated before it is mapped: a full disk is a sentence at
 * open and not a SIGBUS in the middle of a push.
 */
#include "service_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"

enum { ERROR_BYTES = 256 };

static int refuse(char *error, const char *path, const char *why)
{
    snprintf(error, ERROR_BYTES, "%.100s: %.140s", path, why);
    return -RP_SYSTEM;
}

static int map(struct rp_memory *memory, char *error)
{
    int flags = memory->file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    memory->base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, flags, memory->file, 0);
    if (memory->base == MAP_FAILED) {
        memory->base = NULL;
        snprintf(error, ERROR_BYTES,
                 "the system refused %.1f MiB of memory (%s): take smaller tables",
                 (double)memory->bytes / (1 << 20), strerror(errno));
        return -RP_NO_MEMORY;
    }
    (void)madvise(memory->base, memory->bytes, MADV_HUGEPAGE); /* advice: without it, slower */
    (void)madvise(memory->base, memory->bytes, MADV_DONTFORK);
    return 0;
}

static int lock(struct rp_memory *memory, const char *path, char *error)
{
    if (flock(memory->file, LOCK_EX | LOCK_NB) == 0) {
        return 0;
    }
    return refuse(error, path, errno == EWOULDBLOCK ? "another server uses this region"
                                                    : strerror(errno));
}

static int open_old(struct rp_memory *memory, const char *path, char *error)
{
    struct stat about;
    int status = lock(memory, path, error);
    if (status) {
        return status;
    }
    if (fstat(memory->file, &about) < 0) {
        return refuse(error, path, strerror(errno));
    }
    if ((size_t)about.st_size != memory->bytes) {
        snprintf(error, ERROR_BYTES,
                 "%.100s: holds %lld bytes, this configuration takes %zu: name another file, or "
                 "remove it", path, (long long)about.st_size, memory->bytes);
        return -RP_BAD_REGION;
    }
    memory->attached = 1;
    return map(memory, error);
}

static int open_new(struct rp_memory *memory, const char *path, char *error)
{
    char name[PATH_MAX];
    int length = snprintf(name, sizeof name, "%s.new", path);
    if (length >= (int)sizeof name) {
        return refuse(error, path, "the path is too long");
    }
    memory->file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (memory->file < 0) {
        return refuse(error, name, strerror(errno));
    }
    int status = lock(memory, name, error);
    if (status) {
        return status;
    }
    int failed = ftruncate(memory->file, 0) < 0 ? errno : 0; /* what a start that died left in it */
    failed = failed ? failed : posix_fallocate(memory->file, 0, (off_t)memory->bytes);
    if (failed) {
        snprintf(error, ERROR_BYTES, "%.100s: no room for %.1f MiB (%s)", name,
                 (double)memory->bytes / (1 << 20), strerror(failed));
        return -RP_NO_MEMORY;
    }
    return map(memory, error);
}

int rp_memory_open(struct rp_memory *memory, const char *path, size_t bytes, char *error)
{
    *memory = (struct rp_memory){.bytes = bytes, .file = -1};
    int status;
    if (!path) {
        status = map(memory, error);
    } else {
        memory->file = open(path, O_RDWR | O_CLOEXEC);
        if (memory->file >= 0) {
            status = open_old(memory, path, error);
        } else {
            status = errno == ENOENT ? open_new(memory, path, error)
                                     : refuse(error, path, strerror(errno));
        }
    }
    if (status) {
        rp_memory_close(memory);
    }
    return status;
}

int rp_memory_keep(struct rp_memory *memory, const char *path, char *error)
{
    char name[PATH_MAX];
    if (memory->file < 0 || memory->attached) {
        return 0;
    }
    snprintf(name, sizeof name, "%s.new", path); /* it fitted at open */
    return rename(name, path) == 0 ? 0 : refuse(error, path, strerror(errno));
}

void rp_memory_close(struct rp_memory *memory)
{
    if (memory->base) {
        munmap(memory->base, memory->bytes);
    }
    if (memory->file >= 0) {
        close(memory->file);
    }
    memory->base = NULL;
    memory->file = -1;
}
