/* Files that a forked process inherits, but that are its parent's alone: the socket a memif server
 * listens on, the sockets of its peers, of links, of drivers. While a child has a copy of one, the
 * peers at its other end never learn that a killed process has ended, and an AF_XDP queue cannot be
 * given to another process. A child closes these files as it begins. (A child that is started by
 * clone(2), not by the libc, closes nothing.)
 *
 * A fork may come between any two steps of other threads, and takes no lock here. So each file is
 * known by its descriptor and by the kernel's number for it, and a child closes the files that
 * still have both. Of more than FILES at once the rest are inherited.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "dpdk/dpdk_parts.h"

/* The core's, which counts the holds of the whole process; until it has said so there are none. */
static void do_nothing(void) {
}

static void (*hold)(void) = do_nothing, (*allow)(void) = do_nothing;

void rp_forks_learn(void (*core_hold)(void), void (*core_allow)(void)) {
    hold = core_hold;
    allow = core_allow;
}

void rp_forks_pause(void) {
    hold();
}

void rp_forks_go_on(void) {
    allow();
}

enum { FILES = 1024, EMPTY = 0, CLAIMED = -1 };

static struct {
    _Atomic int file; /* and one: so that all are empty at first */
    uint64_t number;
} files[FILES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint64_t rp_forks_number(int file) {
    struct stat about;
    return fstat(file, &about) == 0 ? about.st_ino : 0;
}

static void in_child(void) {
    for (int i = 0; i < FILES; i++) {
        int file = atomic_exchange(&files[i].file, EMPTY);
        if (file > 0 && rp_forks_number(file - 1) == files[i].number) {
            rp_quiet_close(file - 1);
        }
    }
}

static void begin(void) {
    (void)pthread_atfork(NULL, NULL, in_child);
}

void rp_forks_close(int file) {
    pthread_once(&once, begin);
    for (int i = 0; i < FILES; i++) {
        int empty = EMPTY;
        if (atomic_compare_exchange_strong(&files[i].file, &empty, CLAIMED)) {
            files[i].number = rp_forks_number(file);
            atomic_store(&files[i].file, file + 1);
            return;
        }
    }
}

void rp_forks_forget(int file) {
    for (int i = 0; i < FILES; i++) {
        int found = file + 1;
        if (atomic_compare_exchange_strong(&files[i].file, &found, EMPTY)) {
            return;
        }
    }
}
