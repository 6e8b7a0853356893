/* What else systems call by other names: chance, pages, room in files, cores, locks. */
#ifndef RP_OS_SYSTEM_H
#define RP_OS_SYSTEM_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/posix.h"

#ifdef __APPLE__
#include <mach/vm_inherit.h>
#endif
#ifdef RP_POSIX
#include <sys/random.h>
#else
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/random.h>
#endif

/* ---- locks ---- */

/* One that knows its holder: whoever takes it twice, or leaves what another took, is answered with
 * an error, which its caller asserts not to come. A plain one would wait for ever, or say
 * nothing. */
static inline void rp_mutex_make(pthread_mutex_t *lock) {
    pthread_mutexattr_t attributes;
    int failed = pthread_mutexattr_init(&attributes)
        || pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK)
        || pthread_mutex_init(lock, &attributes);
    assert(!failed);
    pthread_mutexattr_destroy(&attributes);
}

/* ---- chance ---- */

/* At most 256 bytes of the system's entropy: 0, or -1 with errno. */
static inline int rp_entropy(void *target, size_t size) {
    return getentropy(target, size);
}

/* ---- pages ---- */

/* A forked child does not get these, where the system has a way to say so. Where it has none the
 * child gets them, and its handler lets go of them by rp_pages_leave_in_child. */
static inline void rp_pages_not_for_children(void *base, size_t bytes) {
#ifndef RP_POSIX
    (void)madvise(base, bytes, MADV_DONTFORK);
#elif defined __APPLE__
    (void)minherit(base, bytes, VM_INHERIT_NONE);
#else
    (void)base, (void)bytes;
#endif
}

/* In a forked child: it has these no more; null is fine. Does nothing where the child never got
 * them: other pages of its own may lie at the same place by now. */
static inline void rp_pages_leave_in_child(void *base, size_t bytes) {
#if defined RP_POSIX && !defined __APPLE__
    if (base) {
        (void)munmap(base, bytes);
    }
#else
    (void)base, (void)bytes;
#endif
}

/* Large ones, please: advice. */
static inline void rp_pages_huge(void *base, size_t bytes) {
#ifdef MADV_HUGEPAGE
    (void)madvise(base, bytes, MADV_HUGEPAGE);
#else
    (void)base, (void)bytes;
#endif
}

/* What they hold is of no use any more: the system may have them back. */
static inline void rp_pages_forget(void *base, size_t bytes) {
    (void)madvise(base, bytes, MADV_DONTNEED);
}

/* ---- files ---- */

/* Reads all of a range, with zeros for what is behind the file's end: 0, or -1 with errno. */
static inline int rp_file_read(int file, uint8_t *target, size_t size, uint64_t offset) {
    ssize_t got = 1;
    size_t held = 0;
    while (held < size && got > 0) { /* a short read is not the end */
        got = pread(file, target + held, size - held, (off_t)(offset + held));
        held += got > 0 ? (size_t)got : 0;
    }
    memset(target + held, 0, size - held);
    return got < 0 ? -1 : 0;
}

/* Zeros in each page of the range that holds nothing else. A page that holds something has its
 * room, and is not written. */
static inline int rp_file_fill(int file, uint64_t offset, uint64_t bytes) {
    uint8_t page[4096];
    uint64_t end = offset + bytes;
    while (offset < end) {
        size_t size = sizeof page - (size_t)(offset % sizeof page);
        size = end - offset < size ? (size_t)(end - offset) : size;
        int held = rp_file_read(file, page, size, offset);
        ssize_t done = (ssize_t)size;
        if (held >= 0 && page[0] == 0 && memcmp(page, page + 1, size - 1) == 0) {
            done = pwrite(file, page, size, (off_t)offset);
        }
        if (held < 0 || done < 0) {
            return errno;
        }
        offset += (uint64_t)done;
    }
    return 0;
}

/* Room on the disk for bytes [offset, offset + bytes) of a file, of which it may be the end, a hole
 * or a part that is in use: 0 or an errno, EINTR where a signal came. What the file holds there
 * stays; nobody else writes there meanwhile. Cost: little on Linux; elsewhere that of reading the
 * range, and of writing what is zeros: macOS gives room behind a file's end only (F_PREALLOCATE),
 * some systems have no posix_fallocate, and some answer it without giving room. */
static inline int rp_file_allocate(int file, uint64_t offset, uint64_t bytes) {
#ifndef RP_POSIX
    return posix_fallocate(file, (off_t)offset, (off_t)bytes);
#else
    return rp_file_fill(file, offset, bytes);
#endif
}

enum { RP_HOLES_MAX = 1024 };

/* Gives the room of the range back that nothing was written to: some file systems keep what they
 * had found when they found no more. A system without a way to say so keeps it until the file is
 * removed. Written parts beyond RP_HOLES_MAX end it. */
static inline void rp_file_give_back(int file, uint64_t offset, uint64_t bytes) {
#ifndef RP_POSIX
    off_t at = (off_t)offset, end = (off_t)(offset + bytes);
    for (int i = 0; i < RP_HOLES_MAX && at < end; i++) {
        off_t hole = lseek(file, at, SEEK_HOLE);
        if (hole < 0 || hole >= end) {
            return;
        }
        off_t data = lseek(file, hole, SEEK_DATA);
        at = data < 0 || data > end ? end : data;
        (void)fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, hole, at - hole);
    }
#else
    (void)file, (void)offset, (void)bytes;
#endif
}

#ifndef RP_POSIX
/* Bytes of the range that are holes as far as is known: what was never written, though some of it
 * may have its room. -1 where the file has too many parts, or does not say. Cost: on a tmpfs 13 ms
 * for a GiB that was written; elsewhere little. */
static inline int64_t rp_file_holes(int file, uint64_t offset, uint64_t bytes) {
    off_t at = (off_t)offset, end = (off_t)(offset + bytes);
    int64_t holes = 0;
    for (int i = 0; at < end; i++) {
        off_t hole = lseek(file, at, SEEK_HOLE);
        if (hole < 0 || i == RP_HOLES_MAX) {
            return -1;
        }
        hole = hole > end ? end : hole;
        off_t data = hole < end ? lseek(file, hole, SEEK_DATA) : end;
        at = data < 0 || data > end ? end : data;
        holes += at - hole;
    }
    return holes;
}
#endif

/* Whether the file system has what the range lacks; 1 also where it does not say. Some systems take
 * all the room they have before they find that it is too little. Room that the file was given, and
 * that was never written to, is counted as if all of it were the range's. */
static inline int rp_file_has_room(int file, uint64_t offset, uint64_t bytes) {
#ifndef RP_POSIX
    struct statvfs disk;
    struct stat about;
    if (fstatvfs(file, &disk) || disk.f_blocks == 0) { /* a tmpfs without a limit has none */
        return 1;
    }
    uint64_t free_blocks = geteuid() == 0 ? disk.f_bfree : disk.f_bavail; /* some are for root */
    uint64_t room = free_blocks * disk.f_frsize;
    if (bytes <= room) {
        return 1;
    }
    int64_t lacks = rp_file_holes(file, offset, bytes);
    if (lacks <= (int64_t)room || fstat(file, &about)) {
        return 1;
    }
    int64_t unwritten = rp_file_holes(file, 0, (uint64_t)about.st_size);
    int64_t given = 512 * (int64_t)about.st_blocks - (about.st_size - unwritten);
    return unwritten < 0 || lacks <= (int64_t)room + (given > 0 ? given : 0);
#else
    (void)file, (void)offset, (void)bytes;
    return 1;
#endif
}

/* Whether something is mounted at this open folder. */
static inline int rp_folder_is_mounted(int folder) {
#ifndef RP_POSIX
    struct statx about;
    return statx(folder, "", AT_EMPTY_PATH, STATX_TYPE, &about) == 0
        && (about.stx_attributes & STATX_ATTR_MOUNT_ROOT);
#else
    struct stat own, above; /* a bind mount of one file system looks like none */
    return fstat(folder, &own) == 0 && fstatat(folder, "..", &above, 0) == 0
        && (own.st_dev != above.st_dev || own.st_ino == above.st_ino);
#endif
}

/* ---- cores ---- */

#ifdef RP_POSIX
enum { RP_PINS = 0 }; /* POSIX knows no way to */
#else
enum { RP_PINS = 1 };
#endif

/* How many this thread may run on; in the POSIX build, which knows no way to ask that, how many
 * there are. */
static inline int rp_cores(void) {
#ifndef RP_POSIX
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
#else
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

/* A thread of these attributes is to run on this core: 0, EINVAL where there is no such core or
 * threads cannot be pinned here, or another errno. */
static inline int rp_pin(pthread_attr_t *attributes, int core) {
#ifndef RP_POSIX
    cpu_set_t cores;
    if (core < 0 || core >= CPU_SETSIZE) {
        return EINVAL;
    }
    CPU_ZERO(&cores);
    CPU_SET((size_t)core, &cores);
    return pthread_attr_setaffinity_np(attributes, sizeof cores, &cores);
#else
    (void)attributes, (void)core;
    return EINVAL;
#endif
}

#endif
