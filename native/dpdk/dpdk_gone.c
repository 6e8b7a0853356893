/* A memif server that is gone, or does not open, while a client speaks to it. DPDK's driver sends
 * without MSG_NOSIGNAL, which would end the process; and its connect() would wait without end, and
 * DPDK's interrupt thread with it, where a server's queue is full and nobody accepts (DPDK 22.11).
 *
 * The driver is linked into this object, where its system calls are these (-Wl,--wrap).
 */
#include <sys/socket.h>
#include <sys/time.h>

enum { CONNECT_SECONDS = 1 };

int __real_connect(int file, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int file, const struct sockaddr *address, socklen_t size);
ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags)
{
    return __real_sendmsg(file, message, flags | MSG_NOSIGNAL);
}

int __wrap_connect(int file, const struct sockaddr *address, socklen_t size)
{
    const struct timeval bound = {CONNECT_SECONDS, 0};
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
    return __real_connect(file, address, size);
}
