/* What DPDK's memif driver, a client's, does not see to when it connects and speaks (22.11). The
 * driver is linked into this object, where its system calls are these (-Wl,--wrap).
 *
 * Its server gets this process's memory, rings and all, and the driver trusts the words in it. So
 * the process that listens at the path is checked first. It must be root's, this user's, or that of
 * the folder's owner. No other user may write to that folder, and only root or this user to the
 * folders above. Else a stranger could listen there first, or put a folder of its own in the place
 * of the server's. Links are followed first: the folders checked are the real ones, and the
 * connection is made through them.
 *
 * When a server sends this client away it gives a reason, which the driver logs and forgets: here
 * it is kept.
 *
 * A server that has ended: the driver sends without MSG_NOSIGNAL, which would end this process. A
 * server whose queue is full and that accepts none: the driver's connect() would wait without end,
 * and DPDK's interrupt thread with it. It does not wait: who opens tries again a moment later, and
 * a client that has lost its server as well, at one of its next sends. No message that the driver
 * sends waits for longer than a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "dpdk/dpdk_memif.h"
#include "dpdk/memif.h"

int __real_connect(int file, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int file, const struct sockaddr *address, socklen_t size);
ssize_t __real_recvmsg(int file, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int file, struct msghdr *message, int flags);
ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags);

static _Thread_local struct rp_memif_visit *visiting;

ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags) {
    struct rp_memif_bell *bell = rp_memif_find_bell(file);
    return bell ? rp_bell_forward(bell, file, message, flags)
        : rp_memif_sendmsg(file, message, flags);
}

ssize_t __wrap_recvmsg(int file, struct msghdr *message, int flags) {
    ssize_t size = __real_recvmsg(file, message, flags);
    struct rp_memif_bell *bell = size == RP_MEMIF_MESSAGE ? rp_memif_find_bell(file) : NULL;
    if (bell && message->msg_iovlen == 1) {
        rp_memif_reason(message->msg_iov->iov_base, bell->reason, sizeof bell->reason);
    }
    return size;
}

ssize_t rp_memif_sendmsg(int file, const struct msghdr *message, int flags) {
    return __real_sendmsg(file, message, flags | MSG_NOSIGNAL);
}

/* The same socket, with no link on the way to its folder; -1: it cannot be named so. */
static int resolve(const struct sockaddr *address, socklen_t size, struct sockaddr_un *resolved) {
    struct sockaddr_un given;
    char path[sizeof given.sun_path + 1] = "", whole[PATH_MAX];
    if (size < sizeof given || address->sa_family != AF_UNIX) {
        return -1;
    }
    memcpy(&given, address, sizeof given);
    memcpy(path, given.sun_path, sizeof given.sun_path);
    char *slash = strrchr(path, '/');
    if (!slash) {
        return -1;
    }
    *slash = 0;
    if (!realpath(slash == path ? "/" : path, whole)) {
        return -1;
    }
    memset(resolved, 0, sizeof *resolved);
    resolved->sun_family = AF_UNIX;
    size_t room = sizeof resolved->sun_path;
    int length = snprintf(resolved->sun_path, room, "%s/%s", whole[1] ? whole : "", slash + 1);
    return length >= 0 && (size_t)length < room ? 0 : -1;
}

/* Whether that number is one user's. In a user namespace all users without a number there share
 * one. */
static int is_one_user(uid_t user) {
    uid_t nobody = 65534;
    unsigned inside, outside, count = 0;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
    if (file) {
        (void)!fscanf(file, "%u", &nobody);
        (void)fclose(file);
    }
    file = user == nobody ? fopen("/proc/self/uid_map", "re") : NULL;
    if (file) {
        int fields = fscanf(file, "%u %u %u", &inside, &outside, &count);
        count = fields == 3 ? count : 0;
        (void)fclose(file);
    }
    return user != nobody || count == UINT32_MAX; /* that map has a number for each user */
}

/* Whether it owns the folder of that path, and no other user could have put that folder there. */
static int owns_folder(uid_t user, const struct sockaddr_un *address) {
    char path[sizeof address->sun_path + 1] = "";
    struct stat about;
    memcpy(path, address->sun_path, sizeof address->sun_path);
    char *slash = strrchr(path, '/');
    for (int is_folder = 1; slash; is_folder = 0, slash = strrchr(path, '/')) {
        slash[slash == path] = 0; /* what is left of / is / */
        if (lstat(path, &about) || about.st_mode & (S_IWGRP | S_IWOTH)) {
            return 0;
        }
        int by_us = about.st_uid == 0
            || (about.st_uid == geteuid() && is_one_user(about.st_uid));
        if (is_folder ? about.st_uid != user : !by_us) {
            return 0;
        }
        if (slash == path) {
            return 1;
        }
    }
    return 0; /* no whole path */
}

/* `resolved`: null where the way there may lead through links. */
static int is_trusted(int file, const struct sockaddr_un *resolved) {
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &size)) {
        return 0;
    }
    if (who.uid == 0 || (is_one_user(who.uid) && (who.uid == geteuid()
                         || (resolved && owns_folder(who.uid, resolved))))) {
        return 1;
    }
    if (visiting) {
        visiting->stranger = who.uid;
        visiting->strangers++;
    }
    return 0;
}

/* EAGAIN: the server's queue is full. The file is for the driver as it was. */
static int connect_now(int file, const struct sockaddr *address, socklen_t size) {
    int flags = fcntl(file, F_GETFL);
    if (flags < 0 || fcntl(file, F_SETFL, flags | O_NONBLOCK)) {
        return -1;
    }
    int failed = __real_connect(file, address, size), why = errno;
    (void)fcntl(file, F_SETFL, flags);
    errno = why;
    return failed;
}

int __wrap_connect(int file, const struct sockaddr *address, socklen_t size) {
    static const struct timeval bound = {.tv_sec = 1};
    struct sockaddr_un resolved;
    int is_resolved = resolve(address, size, &resolved) == 0;
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
    if (is_resolved ? connect_now(file, (const struct sockaddr *)&resolved, sizeof resolved)
        : connect_now(file, address, size)) {
        if (visiting) {
            visiting->is_full = errno == EAGAIN;
        }
        return -1;
    }
    if (size >= sizeof resolved && is_trusted(file, is_resolved ? &resolved : NULL)) {
        if (visiting && visiting->bell) {
            rp_bell_connected(visiting->bell, file);
        }
        rp_forks_close(file);
        return 0;
    }
    errno = EACCES; /* its caller closes it, and has sent nothing */
    return -1;
}

int rp_memif_connect(int file, const struct sockaddr_un *address) {
    return __real_connect(file, (const struct sockaddr *)address, sizeof *address);
}

void rp_memif_visit(struct rp_memif_visit *visit) {
    visiting = visit;
}
