/* Which socket a memif client connects to (dpdk_gone.c), where links lie on the way: the one in the
 * folder that was looked at, whatever becomes of the links meanwhile. One that accepts nobody is
 * not waited for. Unprivileged; run by `make test-dpdk`.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "dpdk/dpdk_memif.h"

enum { PATH = sizeof ((struct sockaddr_un *)0)->sun_path, LONG = 80, BACKLOG = 4 };

static const double BLINK_NS = 5e8; /* a connect that waits does so for a second */

int __real_connect(int file, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int file, const struct sockaddr *address, socklen_t size);
ssize_t __real_recvmsg(int file, struct msghdr *message, int flags);
ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags);

static char top[64], one[96], other[96], way[96];
static int swaps; /* the link, between the look and the connect */

int __real_connect(int file, const struct sockaddr *address, socklen_t size) {
    CHECK(!swaps || (unlink(way) == 0 && symlink(other, way) == 0));
    return connect(file, address, size);
}

ssize_t __real_recvmsg(int file, struct msghdr *message, int flags) {
    return recvmsg(file, message, flags);
}

ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags) {
    return sendmsg(file, message, flags);
}

struct rp_memif_bell *rp_memif_find_bell(int file) {
    (void)file;
    return NULL;
}

ssize_t rp_bell_forward(struct rp_memif_bell *bell, int to, const struct msghdr *message,
                        int flags) {
    (void)bell;
    return rp_memif_sendmsg(to, message, flags);
}

void rp_bell_connected(struct rp_memif_bell *bell, int file) {
    CHECK(!bell && file < 0, "it has no bell");
}

void rp_forks_close(int file) {
    CHECK(file >= 0);
}

static double now_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct sockaddr_un name(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(snprintf(address.sun_path, PATH, "%s/memif", folder) < PATH);
    return address;
}

static int listen_in(const char *folder) {
    const struct sockaddr_un address = name(folder);
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    CHECK(file >= 0 && bind(file, (const struct sockaddr *)&address, sizeof address) == 0
          && listen(file, BACKLOG) == 0, "%s", strerror(errno));
    return file;
}

static void unlisten(int listener, const char *folder) {
    CHECK(close(listener) == 0 && unlink(name(folder).sun_path) == 0);
}

/* Whether it connects there. */
static int visits(const char *folder) {
    const struct sockaddr_un address = name(folder);
    int file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(file >= 0);
    int failed = __wrap_connect(file, (const struct sockaddr *)&address, sizeof address);
    CHECK(close(file) == 0);
    return !failed;
}

/* How many came there. */
static int came(int listener) {
    int count = 0;
    for (int file; (file = accept(listener, NULL, NULL)) >= 0; count++) {
        CHECK(close(file) == 0);
    }
    CHECK(errno == EAGAIN);
    return count;
}

static void check_links(void) {
    CHECK(mkdir(one, 0700) == 0 && mkdir(other, 0700) == 0 && symlink(one, way) == 0);
    int first = listen_in(one), second = listen_in(other);
    CHECK(visits(one) && visits(way) && came(first) == 2 && came(second) == 0);
    swaps = 1;
    CHECK(visits(way) && came(first) == 1 && came(second) == 0, "it goes where the link leads now");
    swaps = 0;
    CHECK(visits(way) && came(first) == 0 && came(second) == 1);
    unlisten(first, one);
    unlisten(second, other);
    CHECK(!visits(one) && !visits(way));
    CHECK(rmdir(one) == 0 && rmdir(other) == 0 && unlink(way) == 0 && !visits(one));
    check_group("it is connected to the socket in the folder that was looked at");
}

/* Its server accepts none meanwhile. Nobody waits: neither a send, nor who opens another port. */
static void check_full(void) {
    const struct sockaddr_un address = name(top);
    int visitors[BACKLOG + 2], count = 0, failed = 0;
    int listener = listen_in(top);
    double before = now_ns();
    while (!failed) {
        CHECK(count < BACKLOG + 2 && (visitors[count] = socket(AF_UNIX, SOCK_SEQPACKET, 0)) >= 0);
        failed = __wrap_connect(visitors[count], (const struct sockaddr *)&address, sizeof address);
        CHECK(!failed || errno == EAGAIN, "%s", strerror(errno));
        CHECK((fcntl(visitors[count++], F_GETFL) & O_NONBLOCK) == 0);
    }
    CHECK(count == BACKLOG + 2 && came(listener) == BACKLOG + 1);
    CHECK(now_ns() - before < BLINK_NS, "it waited for %.3f s", (now_ns() - before) / 1e9);
    while (count) {
        CHECK(close(visitors[--count]) == 0);
    }
    unlisten(listener, top);
    check_group("a server whose queue is full is not waited for");
}

/* A socket's path has 107 bytes: one that is longer behind its links has no other name. */
static void check_long(void) {
    char folder[sizeof top + LONG + 2];
    int length = snprintf(folder, sizeof folder, "%s/", top);
    memset(folder + length, 'x', LONG);
    folder[length + LONG] = 0;
    CHECK(mkdir(folder, 0700) == 0 && symlink(folder, way) == 0);
    int listener = listen_in(way);
    CHECK(visits(way) && came(listener) == 1);
    unlisten(listener, way);
    CHECK(unlink(way) == 0 && rmdir(folder) == 0);
    check_group("one whose whole path is too long, by the link");
}

int main(void) {
    snprintf(top, sizeof top, "/tmp/test_gone_%d_in_a_folder", (int)getpid());
    snprintf(one, sizeof one, "%s/one", top);
    snprintf(other, sizeof other, "%s/other", top);
    snprintf(way, sizeof way, "%s/way", top);
    CHECK(mkdir(top, 0700) == 0);
    check_links();
    check_long();
    check_full();
    CHECK(rmdir(top) == 0);
    return check_done("test_gone");
}
