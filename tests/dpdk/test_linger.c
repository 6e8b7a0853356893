/* Memif peers that hand over sockets which do not close: with unsent data, and a day to linger.
 * Whoever lets the last reference of one go is held that long. Expect a server that lets in the
 * next client behind each of them, ends when it is told to, and lets another one begin; and that
 * they are closed once the other ends of those sockets are gone. The server is stopped while a peer
 * speaks, so that the reference in the message is the last one.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpdk/memif.h"
#include "open_port.h"

enum {
    SECONDS = 60, WITHIN_MS = 5000, DAY_S = 86400, TRIES = 5000, REGION = 1 << 16, LOG2 = 6,
    VERSION = 2 << 8, LINGERS_MAX = 32, FILES_MAX = 3, CHUNK = 1 << 16,
    KNOCKS = 12, SHUT = 64, LANES = 4, LIMITED = 20,
};

static char path[64];
static pid_t server;
static _Atomic int *opened; /* ports, by the server */
static int far_ends[LINGERS_MAX]; /* of sockets that linger: nobody reads there */
static uint32_t lingers;

/* ---- sockets that linger ---- */

static int make_lingering(void) {
    static const char data[CHUNK];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const struct linger day = {1, DAY_S};
    int door = socket(AF_INET, SOCK_STREAM, 0), file = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(door >= 0 && file >= 0 && bind(door, (struct sockaddr *)&at, size) == 0);
    CHECK(listen(door, 1) == 0 && getsockname(door, (struct sockaddr *)&at, &size) == 0);
    CHECK(connect(file, (struct sockaddr *)&at, size) == 0 && lingers < LINGERS_MAX);
    far_ends[lingers++] = accept(door, NULL, NULL);
    CHECK(setsockopt(file, SOL_SOCKET, SO_LINGER, &day, sizeof day) == 0);
    while (send(file, data, sizeof data, MSG_DONTWAIT) > 0) {
    }
    close(door);
    return file;
}

static void let_them_close(void) {
    const struct linger never = {1, 0};
    for (; lingers; lingers--) {
        int end = far_ends[lingers - 1];
        CHECK(setsockopt(end, SOL_SOCKET, SO_LINGER, &never, sizeof never) == 0);
        close(end);
    }
}

static uint32_t count_files(void) {
    char name[64];
    uint32_t count = 0;
    snprintf(name, sizeof name, "/proc/%d/fd", (int)server);
    DIR *folder = opendir(name);
    CHECK(folder);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

static void await_files(uint32_t count) {
    for (int tries = 0; count_files() > count; tries++) {
        CHECK(tries < TRIES, "%u files are open, %u were", count_files(), count);
        usleep(1000);
    }
}

/* ---- a peer ---- */

static int knock(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    memcpy(address.sun_path, path, sizeof path);
    CHECK(file >= 0 && connect(file, (struct sockaddr *)&address, sizeof address) == 0);
    return file;
}

static void put16(uint8_t *at, uint32_t value) {
    uint16_t narrow = (uint16_t)value;
    memcpy(at, &narrow, sizeof narrow);
}

static void begin(uint8_t *message, uint32_t type) {
    uint32_t region = REGION;
    memset(message, 0, 2 * RP_MEMIF_MESSAGE);
    put16(message, type);
    if (type == RP_MEMIF_INIT) {
        put16(message + 2, VERSION);
    } else if (type == RP_MEMIF_ADD_REGION) {
        memcpy(message + 4, &region, sizeof region);
    } else if (type == RP_MEMIF_ADD_RING) {
        put16(message + 2, 1); /* to the server */
        message[12] = LOG2;
    }
}

/* With so many sockets that linger, of which this process keeps none. */
static void tell(int peer, const uint8_t *message, size_t bytes, uint32_t count) {
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(FILES_MAX * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)message, bytes};
    struct msghdr all = {.msg_iov = &part, .msg_iovlen = 1};
    int files[FILES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        files[i] = make_lingering();
    }
    if (count) {
        all.msg_control = control.bytes;
        all.msg_controllen = CMSG_SPACE(count * sizeof files[0]);
        control.header =
            (struct cmsghdr){CMSG_LEN(count * sizeof files[0]), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), files, count * sizeof files[0]);
    }
    CHECK(sendmsg(peer, &all, MSG_NOSIGNAL) == (ssize_t)bytes);
    for (uint32_t i = 0; i < count; i++) {
        close(files[i]); /* the one in the message is the last */
    }
}

static int hears(int peer, uint32_t type) {
    uint8_t answer[RP_MEMIF_MESSAGE];
    struct pollfd wait = {peer, POLLIN, 0};
    return poll(&wait, 1, WITHIN_MS) == 1
        && recv(peer, answer, sizeof answer, MSG_DONTWAIT) == sizeof answer && answer[0] == type;
}

/* The next one is let in, to another lane: the last one's is its own until the server has seen that
 * it is gone. */
static int greet(const char *behind) {
    static uint32_t lane;
    uint8_t message[2 * RP_MEMIF_MESSAGE];
    int peer = knock();
    CHECK(hears(peer, RP_MEMIF_HELLO), "nobody is let in behind %s", behind);
    begin(message, RP_MEMIF_INIT);
    message[4] = (uint8_t)(lane++ % LANES);
    tell(peer, message, RP_MEMIF_MESSAGE, 0);
    CHECK(hears(peer, RP_MEMIF_ACK), "nobody is heard behind %s", behind);
    return peer;
}

static void stop_server(void) {
    int status;
    CHECK(kill(server, SIGSTOP) == 0 && waitpid(server, &status, WUNTRACED) == server
          && WIFSTOPPED(status));
}

static void linger_in(uint32_t type, size_t bytes, uint32_t count, const char *what) {
    uint8_t message[2 * RP_MEMIF_MESSAGE];
    int peer = type == RP_MEMIF_INIT ? knock() : greet("those before");
    begin(message, type);
    stop_server();
    tell(peer, message, bytes, count);
    kill(server, SIGCONT);
    close(greet(what));
    close(peer);
    close(greet(what));
}

/* Refused for its first message, with a second one behind it that is never read. */
static void linger_unread(void) {
    uint8_t message[2 * RP_MEMIF_MESSAGE];
    int peer = greet("those before");
    begin(message, RP_MEMIF_INIT);
    stop_server();
    tell(peer, message, RP_MEMIF_MESSAGE, 0);
    tell(peer, message, RP_MEMIF_MESSAGE, 1);
    kill(server, SIGCONT);
    close(greet("a message that is not read"));
    close(peer);
    close(greet("a message that is not read"));
}

/* A file where none is wanted, with a message that would be right without it. */
static void bring_unwanted(void) {
    uint8_t message[2 * RP_MEMIF_MESSAGE];
    int peer = knock();
    CHECK(hears(peer, RP_MEMIF_HELLO));
    begin(message, RP_MEMIF_INIT);
    stop_server();
    tell(peer, message, RP_MEMIF_MESSAGE, 1);
    kill(server, SIGCONT);
    CHECK(hears(peer, RP_MEMIF_DISCONNECT), "an INIT that brings a file is taken");
    close(peer);
    check_group("a file with a message that wants none: its peer is sent away");
}

/* While the server has no memory for a thread's stack, until it lets nobody in. */
static void fill_up_without_threads(void) {
    const struct rlimit none = {1, RLIM_INFINITY};
    struct rlimit before;
    uint32_t files = count_files();
    CHECK(prlimit(server, RLIMIT_AS, &none, &before) == 0);
    for (uint32_t i = 0; count_files() < files + SHUT; i++) {
        CHECK(i < TRIES, "%u files are open, %u were", count_files(), files);
        close(knock());
        usleep(1000);
    }
    CHECK(prlimit(server, RLIMIT_AS, &before, NULL) == 0);
    close(greet("a shortage of threads"));
    await_files(files);
    check_group("64 files that no thread could be had for are closed when one can, and no later");
}

/* Before it is let in, and nobody is any more. */
static void end_with_them_at_the_door(void) {
    uint8_t message[2 * RP_MEMIF_MESSAGE];
    begin(message, RP_MEMIF_INIT);
    stop_server();
    for (int i = 0; i < KNOCKS; i++) {
        int peer = knock();
        tell(peer, message, RP_MEMIF_MESSAGE, 1);
        close(peer);
    }
    CHECK(kill(server, SIGTERM) == 0 && kill(server, SIGCONT) == 0);
}

static void await_port(int number) {
    for (int tries = 0; *opened < number; tries++) {
        CHECK(tries < TRIES, "port %d does not open", number);
        usleep(1000);
    }
}

/* A port, closed as it is told to; and the next one, of the same process. */
static void serve(void) {
    char url[RP_URL_TEXT_BYTES];
    struct rp_peer peer;
    sigset_t ending;
    int number;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ending, NULL); /* in all its threads */
    snprintf(url, sizeof url, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=%s,links=%d", path,
             LANES);
    for (int i = 0; i < 2; i++) {
        struct rp_port *port = open_port(url, 1, &peer);
        ++*opened;
        sigwait(&ending, &number);
        rp_port_close(port);
    }
}

static void start_server(void) {
    opened = mmap(NULL, sizeof *opened, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(opened != MAP_FAILED);
    fflush(stdout);
    server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve();
        _exit(0);
    }
    await_port(1);
}

/* A server that may have fewer files than it has: poll(2) refuses to look at so many. */
static void end_without_files(void) {
    const struct rlimit few = {LIMITED, LIMITED};
    int status;
    CHECK(prlimit(server, RLIMIT_NOFILE, &few, NULL) == 0);
    close(knock()); /* the server wakes, and polls again */
    CHECK(kill(server, SIGTERM) == 0 && waitpid(server, &status, 0) == server && status == 0,
          "the server ended with %d", status);
    check_group("a server whose files were limited meanwhile ends when it is told to");
}

int main(void) {
    enum { M = RP_MEMIF_MESSAGE };
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    snprintf(path, sizeof path, "/tmp/test_linger_%d", (int)getpid());
    alarm(SECONDS);
    start_server();
    fill_up_without_threads(); /* first: stacks of threads that have ended are used again */
    uint32_t before = count_files();
    linger_in(RP_MEMIF_INIT, M, 1, "an INIT that brings a socket");
    linger_in(RP_MEMIF_ADD_REGION, M, 1, "a region that is a socket");
    linger_in(RP_MEMIF_ADD_REGION, M, 3, "a region of three sockets");
    linger_in(RP_MEMIF_ADD_RING, M, 1, "a ring called by a socket");
    linger_in(RP_MEMIF_ADD_RING, M, 3, "a ring called by three sockets");
    linger_in(RP_MEMIF_CONNECT, M, 1, "a CONNECT that brings a socket");
    linger_in(RP_MEMIF_CONNECT, M + 1, 1, "a message too long");
    linger_unread();
    bring_unwanted();
    check_group("sockets that linger for a day, in messages of each kind: the next one gets in");
    end_with_them_at_the_door();
    await_port(2);
    close(greet("a server that has ended"));
    check_group("its port closes meanwhile, with more of them in its queue, and another one opens");
    let_them_close();
    await_files(before);
    check_group("all are closed, once nothing is unsent");
    end_without_files();
    return check_done("test_linger");
}
