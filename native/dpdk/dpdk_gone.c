/* A memif client that is gone before its server greets it. The driver's listener answers a failed
 * send by freeing the channel and closing its file, and leaves both registered with DPDK's
 * interrupt thread, which then ends the process ("Error adding fd", DPDK 22.11); without
 * MSG_NOSIGNAL the send itself could. So what nobody is there to read counts as sent here: the next
 * receive says the same, and that path cleans up after itself.
 *
 * And a server that does not open: connect() would wait for it without end once two clients stand
 * before this one (it listens with a backlog of 1), and DPDK's interrupt thread with it.
 *
 * The driver is linked into this object, where its system calls are these (-Wl,--wrap).
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { CONNECT_SECONDS = 1 };

int __real_connect(int file, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int file, const struct sockaddr *address, socklen_t size);
ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags)
{
    ssize_t sent = __real_sendmsg(file, message, flags | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)) {
        sent = 0;
        for (size_t i = 0; i < message->msg_iovlen; i++) {
            sent += (ssize_t)message->msg_iov[i].iov_len;
        }
    }
    return sent;
}

int __wrap_connect(int file, const struct sockaddr *address, socklen_t size)
{
    const struct timeval bound = {CONNECT_SECONDS, 0};
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
    return __real_connect(file, address, size);
}
