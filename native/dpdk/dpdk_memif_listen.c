/* The socket of a memif server: a path that one process serves, and that its group may connect to.
 *
 * A killed server leaves its socket behind, which would keep the next one from binding. A server
 * looks whether a process listens there, removes the socket of a dead one, and binds its own. It
 * holds the path's lock meanwhile (dpdk_lock.c): of two servers that start at once, the second
 * finds the first one listening.
 *
 * The path is taken for as long as the process lives that began to listen there. A lock held for
 * that time would not do: only the same user in the same container would see it, and the path is
 * shared with others.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "dpdk/dpdk_memif.h"

enum {
    LOCK_TRIES = 400, LOCK_NAP_NS = 5000000, /* 2 s; it is held for binding a socket */
    BACKLOG = RP_DPDK_LANES, MODE = 0660, GROUP_BYTES = 4096, GROUP_MOST = 1 << 20,
};

static int fail(char *why, size_t size, const char *what, int error) {
    snprintf(why, size, "no memif socket there: %s%s%s", what, error ? ": " : "",
             error ? strerror(error) : "");
    return -1;
}

/* The lock to start or end a server at that path: 0, or -1. */
static int lock_path(const char *path, int64_t *place, char *why, size_t size) {
    const struct timespec nap = {0, LOCK_NAP_NS};
    char folder[RP_MEMIF_PATH], name[2 * RP_MEMIF_PATH], who[128];
    struct stat about;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/'); /* the options begin with one */
    slash[slash == folder] = 0;
    if (stat(folder, &about)) {
        return fail(why, size, "its folder has to be there", errno);
    }
    snprintf(name, sizeof name, "memif %lu %lu %s", (unsigned long)about.st_dev,
             (unsigned long)about.st_ino, strrchr(path, '/'));
    for (int tries = 0;; tries++) {
        enum rp_lock_taken taken = rp_lock_take(name, place, who, sizeof who);
        if (taken == RP_LOCK_TAKEN) {
            return 0;
        }
        if (taken == RP_LOCK_NOWHERE || tries == LOCK_TRIES) {
            snprintf(why, size, "no memif socket there: %s%s", who,
                     taken == RP_LOCK_HELD ? " starts or ends a server there, for 2 s now" : "");
            return -1;
        }
        nanosleep(&nap, NULL);
    }
}

/* Whether the process that listens at the other end of a connection has ended. Its socket may live
 * on in a child of it that never looks at it. Where that cannot be found out: no. */
static int is_orphan(int connected) {
    struct ucred who = {0};
    socklen_t size = sizeof who;
    if (getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &who, &size) || who.pid <= 0) {
        return 0; /* 0: of another container */
    }
    int process = (int)syscall(SYS_pidfd_open, who.pid, 0);
    struct pollfd about = {process, POLLIN, 0};
    int ended = process < 0 ? errno == ESRCH : poll(&about, 1, 0) == 1;
    if (process >= 0) {
        rp_quiet_close(process);
    }
    return ended;
}

/* Null, or why this path cannot be taken. A socket that no process serves any more is removed. */
static const char *clear_path(const struct sockaddr_un *address) {
    struct stat about;
    if (lstat(address->sun_path, &about)) {
        return NULL;
    }
    if (!S_ISSOCK(about.st_mode)) {
        return "the file at that path is no socket: name another path";
    }
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failed = file < 0 || rp_memif_knock(file, address);
    int error = failed ? errno : 0;
    int orphan = !failed && is_orphan(file);
    if (file >= 0) { /* its listener may have sent a file already */
        rp_late_close(file);
    }
    if ((!failed && !orphan) || error == EAGAIN) { /* its queue is full */
        return "a server has that socket already";
    }
    if (!orphan && error != ECONNREFUSED) {
        return "the socket at that path is another user's, or of another kind: name another path";
    }
    return unlink(address->sun_path) ? "the socket a server left there cannot be removed" : NULL;
}

/* One with many members needs room for their names. */
static int find_group(const char *name, gid_t *id) {
    char *end, *buffer = NULL;
    struct group group, *found = NULL;
    unsigned long number = strtoul(name, &end, 10); /* which would take a sign, too */
    if (name[0] >= '0' && name[0] <= '9' && !*end && number < UINT32_MAX) {
        *id = (gid_t)number;
        return 0;
    }
    int error = ERANGE;
    for (size_t size = GROUP_BYTES; size <= GROUP_MOST && error == ERANGE; size *= 2) {
        free(buffer);
        buffer = malloc(size);
        error = buffer ? getgrnam_r(name, &group, buffer, size, &found) : ENOMEM;
    }
    if (!error && found) {
        *id = group.gr_gid;
    }
    free(buffer);
    return !error && found ? 0 : -1;
}

/* Sets group and mode of the socket that the path names now, through a descriptor of it. The
 * folder's owner may change the path at any moment, and must not get another file changed. Null, or
 * what failed. */
static const char *own_socket(struct rp_memif_socket *at, gid_t group) {
    char same[64];
    struct stat about = {0};
    const char *failed = NULL;
    errno = 0;
    int place = open(at->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    snprintf(same, sizeof same, "/proc/self/fd/%d", place);
    if (place < 0 || fstat(place, &about) || !S_ISSOCK(about.st_mode) || about.st_nlink != 1) {
        failed = "another user changes what lies there: name a path in a folder of your own";
    } else if (group != (gid_t)-1 && fchownat(place, "", (uid_t)-1, group, AT_EMPTY_PATH)) {
        failed = "group= is one this process is a member of, or root gives it";
    } else if (chmod(same, MODE)) {
        failed = "opening it to its group";
    }
    at->device = about.st_dev;
    at->number = about.st_ino;
    if (place >= 0) {
        int error = errno;
        rp_quiet_close(place);
        errno = error;
    }
    return failed;
}

/* No one can connect before it listens; by then it has its mode, whatever the umask was. */
static int bind_socket(struct rp_memif_socket *at, const struct sockaddr_un *address,
                       const char *group, char *why, size_t size) {
    gid_t id = (gid_t)-1;
    if (group[0] && find_group(group, &id)) {
        return fail(why, size, "group= is a group of this host, by its name or number", 0);
    }
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const char *failed = "binding it";
    int bound = file >= 0 && bind(file, (const struct sockaddr *)address, sizeof *address) == 0;
    if (bound) {
        failed = own_socket(at, id);
        failed = !failed && listen(file, BACKLOG) ? "listening there" : failed;
        rp_forks_close(file);
    }
    if (failed) {
        int error = errno;
        if (bound) {
            (void)unlink(address->sun_path);
        }
        if (file >= 0) {
            rp_quiet_close(file);
        }
        return fail(why, size, failed, error);
    }
    return file;
}

int rp_memif_listen(struct rp_memif_socket *at, const char *path, const char *group, char *why,
                    size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int64_t place;
    snprintf(at->path, sizeof at->path, "%s", path);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (lock_path(path, &place, why, size)) {
        return -1;
    }
    const char *taken = clear_path(&address);
    at->file = taken ? fail(why, size, taken, 0) : bind_socket(at, &address, group, why, size);
    rp_lock_give(place);
    return at->file < 0 ? -1 : 0;
}

void rp_memif_unlisten(struct rp_memif_socket *at) {
    struct stat about;
    char why[128];
    int64_t place;
    int locked = lock_path(at->path, &place, why, sizeof why) == 0;
    if (lstat(at->path, &about) == 0 && about.st_dev == at->device
        && about.st_ino == at->number) { /* not a successor's */
        (void)unlink(at->path);
    }
    (void)shutdown(at->file, SHUT_RDWR);
    rp_late_close(at->file); /* with its queue of visitors not admitted, and of what they sent */
    if (locked) {
        rp_lock_give(place);
    }
}
