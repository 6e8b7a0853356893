/* What DPDK's memif driver, a client's, does not see to when it connects and speaks (22.11). The
 * driver is linked into this object, where its system calls are these (-Wl,--wrap).
 *
 * Its server gets this process's memory, rings and all, and the driver believes what stands there.
 * So whoever listens at the path is looked at first: root, this user, or who owns its folder, where
 * none of the folders above can be written by others. Else a stranger could be there first.
 *
 * A server that is gone: the driver sends without MSG_NOSIGNAL, which would end the process. One
 * that does not open: its connect() would wait without end, and DPDK's interrupt thread with it,
 * where a server's queue is full and nobody accepts.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "dpdk_memif.h"

enum { CONNECT_SECONDS = 1 };

int __real_connect(int file, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int file, const struct sockaddr *address, socklen_t size);
ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags);

static _Atomic uint64_t strangers;
static _Atomic uint32_t stranger;

ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags)
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
        if (stat(path, &about) || about.st_mode & S_IWOTH || (is_folder && about.st_uid != user)) {
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
    atomic_store(&stranger, who.uid);
    atomic_fetch_add(&strangers, 1);
    return 0;
}

int __wrap_connect(int file, const struct sockaddr *address, socklen_t size)
{
    const struct timeval bound = {CONNECT_SECONDS, 0};
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
    if (__real_connect(file, address, size)) {
        return -1;
    }
    if (size >= sizeof(struct sockaddr_un) && is_trusted(file, address)) {
        return 0;
    }
    errno = EACCES; /* its caller closes it, and has sent nothing */
    return -1;
}

int rp_memif_knock(int file, const struct sockaddr_un *address)
{
    return __real_connect(file, (const struct sockaddr *)address, sizeof *address);
}

uint64_t rp_memif_strangers(uint32_t *user)
{
    *user = atomic_load(&stranger);
    return atomic_load(&strangers);
}
