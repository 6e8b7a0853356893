/* What DPDK's memif driver, a client's, does not see to when it connects and speaks (22.11). The
 * driver is linked into this object, where its system calls are these (-Wl,--wrap).
 *
 * Its server gets this process's memory, rings and all, and the driver believes what stands there.
 * So whoever listens at the path is looked at first: root, this user, or who owns its folder, which
 * nobody else may write to, below folders that only root or this user may write to. Else a stranger
 * could be there first, or put a folder of its own in the place of the server's.
 *
 * A server that is gone: the driver sends without MSG_NOSIGNAL, which would end the process. One
 * that does not open: its connect() would wait without end, and DPDK's interrupt thread with it,
 * where a server's queue is full and nobody accepts.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "dpdk/dpdk_memif.h"

int __real_connect(int file, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int file, const struct sockaddr *address, socklen_t size);
ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags);

static const uint64_t BOUND_NS = 1000000000, LEAST_NS = 1000000; /* 0 would be without end */

static _Thread_local struct rp_memif_visit *visiting;

ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags)
{
    struct rp_memif_bell *bell = rp_memif_find_bell(file);
    return bell ? rp_bell_overhear(bell, file, message, flags)
        : rp_memif_say(file, message, flags);
}

ssize_t rp_memif_say(int file, const struct msghdr *message, int flags)
{
    return __real_sendmsg(file, message, flags | MSG_NOSIGNAL);
}

/* Whether it owns the folder of that path, and nobody could have put another one there. */
static int owns_folder(uid_t user, const struct sockaddr_un *address)
{
    char path[sizeof address->sun_path + 1] = "";
    struct stat about;
    memcpy(path, address->sun_path, sizeof address->sun_path);
    char *slash = strrchr(path, '/');
    for (int is_folder = 1; slash; is_folder = 0, slash = strrchr(path, '/')) {
        slash[slash == path] = 0; /* what is left of / is / */
        if (stat(path, &about) || about.st_mode & (S_IWGRP | S_IWOTH)) {
            return 0;
        }
        int by_us = about.st_uid == 0 || about.st_uid == geteuid();
        if (is_folder ? about.st_uid != user : !by_us) {
            return 0;
        }
        if (slash == path) {
            return 1;
        }
    }
    return 0; /* no whole path */
}

static int is_trusted(int file, const struct sockaddr *address)
{
    struct ucred who;
    socklen_t size = sizeof who;
    struct sockaddr_un path;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &size)) {
        return 0;
    }
    memcpy(&path, address, sizeof path);
    if (who.uid == 0 || who.uid == geteuid() || owns_folder(who.uid, &path)) {
        return 1;
    }
    if (visiting) {
        visiting->stranger = who.uid;
        visiting->strangers++;
    }
    return 0;
}

int __wrap_connect(int file, const struct sockaddr *address, socklen_t size)
{
    uint64_t within = visiting && visiting->within_ns < BOUND_NS ? visiting->within_ns : BOUND_NS;
    within = within > LEAST_NS ? within : LEAST_NS;
    const struct timeval bound = {(time_t)(within / 1000000000),
                                  (suseconds_t)(within % 1000000000 / 1000)};
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
    if (__real_connect(file, address, size)) {
        if (visiting) {
            visiting->is_full = errno == EAGAIN;
        }
        return -1;
    }
    if (size >= sizeof(struct sockaddr_un) && is_trusted(file, address)) {
        if (visiting && visiting->bell) {
            rp_bell_connected(visiting->bell, file);
        }
        rp_forks_close(file);
        return 0;
    }
    errno = EACCES; /* its caller closes it, and has sent nothing */
    return -1;
}

int rp_memif_knock(int file, const struct sockaddr_un *address)
{
    return __real_connect(file, (const struct sockaddr *)address, sizeof *address);
}

void rp_memif_visit(struct rp_memif_visit *visit)
{
    visiting = visit;
}
