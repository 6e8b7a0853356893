/* Names that one process has at a time: an address on an interface, the path of a memif socket.
 *
 * Each name is one byte of an empty file, at the hash of the name, locked by fcntl(). Such a lock
 * belongs to one process: a forked child does not have it, it ends with its process however that
 * ends, and a process that is refused learns which process has it. Within one process no call is
 * refused.
 *
 * The files lie where no other user may write to or open them: else any user could hold a name, and
 * keep its server from starting. The price: two users do not see each other's names.
 *
 * A file is opened once and stays open, since closing it would end every lock of this process.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpdk/dpdk_parts.h"

enum { PATH_BYTES = 256, TRIES = 3, PLACE_BITS = 62, FOLDERS = 7, OF_ROOT = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int files[FOLDERS] = {-1, -1, -1, -1, -1, -1, -1};

static int64_t place_of(const char *name) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *name; name++) {
        hash = (hash ^ (uint8_t)*name) * 1099511628211u;
    }
    return (int64_t)(hash >> (64 - PLACE_BITS));
}

/* Only root and this user can have put files there. */
static int is_private(const char *folder) {
    struct stat about;
    return lstat(folder, &about) == 0 && S_ISDIR(about.st_mode)
           && (about.st_uid == 0 || about.st_uid == geteuid())
           && !(about.st_mode & (S_IWGRP | S_IWOTH));
}

static int open_in(const char *folder) {
    char path[PATH_BYTES];
    struct stat about;
    if (!folder || !is_private(folder)
        || snprintf(path, sizeof path, "%s/replay-server.lock", folder) >= (int)sizeof path) {
        return -1;
    }
    int opened = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (opened >= 0 && (fstat(opened, &about) || !S_ISREG(about.st_mode) || about.st_mode & 077)) {
        rp_quiet_close(opened);
        opened = -1;
    }
    return opened;
}

/* Takes a name in every folder that may be this user's: processes started by hand do not know the
 * folder that a systemd unit gives its own processes. A folder may be made later. */
static void open_files(void) {
    char own[PATH_BYTES], made[PATH_BYTES];
    snprintf(own, sizeof own, "/run/user/%u", geteuid());
    snprintf(made, sizeof made, "/tmp/replay-server-%u", geteuid());
    const char *folders[FOLDERS] = {"/run", "/run/replay-server-dpdk", "/run/replay-server", own,
                                    made, getenv("XDG_RUNTIME_DIR"), getenv("RUNTIME_DIRECTORY")};
    for (int i = 0; i < FOLDERS && (i < OF_ROOT || files[0] < 0); i++) {
        if (files[i] < 0 && folders[i] == made) {
            (void)mkdir(made, 0700);
        }
        files[i] = files[i] < 0 ? open_in(folders[i]) : files[i];
    }
}

static int try_to_take(int file, int64_t place, short kind, char *why, size_t size) {
    for (int tries = 0; tries < TRIES; tries++) {
        struct flock range = {.l_type = kind, .l_whence = SEEK_SET, .l_start = place,
                              .l_len = 1};
        if (fcntl(file, F_SETLK, &range) == 0) {
            return RP_LOCK_TAKEN;
        }
        if (errno != EACCES && errno != EAGAIN) {
            snprintf(why, size, "this system gives no lock");
            return RP_LOCK_NOWHERE;
        }
        if (fcntl(file, F_GETLK, &range) == 0 && range.l_type != F_UNLCK && range.l_pid > 0) {
            snprintf(why, size, "process %d", (int)range.l_pid);
            return RP_LOCK_HELD;
        }
    }
    snprintf(why, size, "another process"); /* of a container, most likely: it has no number here */
    return RP_LOCK_HELD;
}

static enum rp_lock_taken take(const char *name, short kind, int64_t *place, char *why,
                               size_t size) {
    enum rp_lock_taken taken = RP_LOCK_NOWHERE;
    *place = place_of(name);
    pthread_mutex_lock(&lock);
    open_files();
    snprintf(why, size, "no folder here is this user's alone: set XDG_RUNTIME_DIR to one");
    for (int i = 0, refused = 0; i < FOLDERS && !refused; i++) {
        taken = files[i] < 0 ? taken : (enum rp_lock_taken)try_to_take(files[i], *place, kind, why,
                                                                       size);
        refused = files[i] >= 0 && taken != RP_LOCK_TAKEN;
    }
    pthread_mutex_unlock(&lock);
    if (taken != RP_LOCK_TAKEN) {
        rp_lock_give(*place);
    }
    return taken;
}

enum rp_lock_taken rp_lock_take(const char *name, int64_t *place, char *why, size_t size) {
    return take(name, F_WRLCK, place, why, size);
}

enum rp_lock_taken rp_lock_share(const char *name, int64_t *place, char *why, size_t size) {
    return take(name, F_RDLCK, place, why, size);
}

void rp_lock_give(int64_t place) {
    struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
    for (int i = 0; i < FOLDERS && place >= 0; i++) {
        if (files[i] >= 0) {
            (void)fcntl(files[i], F_SETLK, &range);
        }
    }
}
