/* What else systems call by other names: chance, pages, room in files, cores, locks. */
#ifndef RP_OS_SYSTEM_H
#define RP_OS_SYSTEM_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
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

/* Room on the disk for bytes [offset, offset + bytes) of a file: 0 or an errno. */
static inline int rp_file_allocate(int file, uint64_t offset, uint64_t bytes) {
#ifndef __APPLE__
    return posix_fallocate(file, (off_t)offset, (off_t)bytes);
#else
    fstore_t room = {.fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE};
    struct stat now;
    if (fstat(file, &now) < 0) {
        return errno;
    }
    off_t end = (off_t)(offset + bytes);
    room.fst_length = end - now.st_size;
    if (end <= now.st_size) {
        return 0;
    }
    return fcntl(file, F_PREALLOCATE, &room) < 0 || ftruncate(file, end) < 0 ? errno : 0;
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

/* How many this thread may run on. */
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
