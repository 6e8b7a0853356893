/* What the systems differ in keeps its word, in the Linux build and in the POSIX one. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "drive/clock.h"
#include "os/limits.h"
#include "os/ready.h"
#include "os/sockets.h"
#include "os/system.h"
#include "os/word.h"

enum { ROUNDS = 20000, PAIRS = 3 };

/* ---- words ---- */

struct pair { /* a ball that two threads throw */
    _Atomic uint32_t turn;
    uint32_t rounds[2];
};

struct player {
    struct pair *pair;
    uint32_t side;
};

static void *play(void *argument) {
    struct player *player = argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t turn;
        while ((turn = atomic_load(&player->pair->turn)) % 2 != player->side) {
            rp_word_wait(&player->pair->turn, turn, RP_WORD_FOREVER);
        }
        player->pair->rounds[player->side]++;
        atomic_store(&player->pair->turn, turn + 1);
        rp_word_wake(&player->pair->turn);
    }
    return NULL;
}

/* Given pairs of threads that wait for each other by turns. Expect every throw to arrive: a wake
 * that is lost would leave both asleep for ever. */
static void check_no_wake_is_lost(void) {
    static struct pair pairs[PAIRS];
    static struct player players[2 * PAIRS];
    pthread_t threads[2 * PAIRS];
    for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        players[i] = (struct player){.pair = &pairs[i / 2], .side = i % 2};
        CHECK(pthread_create(&threads[i], NULL, play, &players[i]) == 0);
    }
    for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        CHECK(pairs[i].turn == 2 * ROUNDS && pairs[i].rounds[0] == ROUNDS);
    }
    check_group("words: no wake is lost");
}

/* Given a word of another value, and one that nobody changes. Expect no sleep, and one of its
 * time. */
static void check_time(void) {
    _Atomic uint32_t word = 7;
    rp_word_wait(&word, 8, RP_WORD_FOREVER);
    rp_word_wait_bits(&word, 8, 1);
    for (uint64_t ns = 1000; ns <= 20000000; ns *= 20) {
        uint64_t begin = rp_clock_ns(), end = begin + ns;
        while (rp_clock_ns() < end) {
            uint64_t before = rp_clock_ns();
            rp_word_wait(&word, 7, before < end ? end - before : 0);
        }
        CHECK(rp_clock_ns() - begin >= ns);
    }
    uint64_t end = rp_clock_ns() + 999999999; /* crosses a second, as nearly all times do by then */
    int waits = 0;
    for (uint64_t now; (now = rp_clock_ns()) < end; waits++) {
        rp_word_wait(&word, 7, end - now);
    }
    CHECK(waits < 1000, "%d waits in place of one", waits);
    check_group("words: a wait of another value, and of its time");
}

struct dreamer {
    pthread_t thread;
    _Atomic uint32_t *word;
    uint32_t bits;
    _Atomic int number; /* the kernel's, of its thread; 0: it has none yet */
    _Atomic int returns;
};

static void *sleep_on_bits(void *argument) {
    struct dreamer *dreamer = argument;
    dreamer->number = (int)syscall(SYS_gettid);
    while (atomic_load(dreamer->word) == 0) {
        rp_word_wait_bits(dreamer->word, 0, dreamer->bits);
        dreamer->returns++;
    }
    return NULL;
}

/* Returns once the thread sleeps. */
static void await_sleep(struct dreamer *dreamer) {
    char path[64], state = 0;
    while (!dreamer->number) {
        sched_yield();
    }
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", dreamer->number);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
    }
}

/* Given two who sleep with the same bit, as two in a line do that is longer than there are bits,
 * and one with another. Expect both woken with that bit, among others, and none by wakes that are
 * not theirs. */
static void check_bits(void) {
    enum { WAKES = 100 };
    static _Atomic uint32_t word, other;
    static struct dreamer dreamers[3];
    for (uint32_t i = 0; i < 3; i++) {
        dreamers[i].word = &word;
        dreamers[i].bits = i < 2 ? 1u << 5 : 1u << 6;
        CHECK(pthread_create(&dreamers[i].thread, NULL, sleep_on_bits, &dreamers[i]) == 0);
    }
    for (int i = 0; i < WAKES; i++) {
        await_sleep(&dreamers[0]);
        await_sleep(&dreamers[1]);
        await_sleep(&dreamers[2]);
        rp_word_wake_bits(&word, 1u << 7);
        rp_word_wake(&other);
    }
    for (int i = 0; i < 3; i++) {
        await_sleep(&dreamers[i]);
        CHECK(dreamers[i].returns < WAKES / 2, "others' wakes end %d sleeps", dreamers[i].returns);
    }
    atomic_store(&word, 1);
    rp_word_wake_bits(&word, 1u << 5 | 1u << 9);
    CHECK(pthread_join(dreamers[0].thread, NULL) == 0);
    CHECK(pthread_join(dreamers[1].thread, NULL) == 0);
    rp_word_wake(&word);
    CHECK(pthread_join(dreamers[2].thread, NULL) == 0);
    check_group("words: bits");
}

static _Atomic uint32_t forks_end;

static void *wake_on(void *argument) {
    while (!atomic_load(&forks_end)) {
        rp_word_wake(argument);
    }
    return NULL;
}

/* Given forks while other threads are in the middle of a wake. Expect words to work in the
 * children. */
static void check_forks(void) {
    static _Atomic uint32_t word;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wake_on, (void *)&word) == 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            rp_word_wake(&word);
            rp_word_wait(&word, 0, 1000);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d: %d", i, status);
    }
    atomic_store(&forks_end, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    check_group("words: in a forked child");
}

/* ---- wake ---- */

/* Given one that was set more often than its room allows. Expect a sleep to end at once, then, when
 * all that was set is taken, one of its time. */
static void check_wake(void) {
    struct rp_wake wake;
    CHECK(rp_wake_open(&wake) == 0);
    for (int end = 0; end < 2; end++) {
        int file = end ? wake.set : wake.read;
        CHECK(fcntl(file, F_GETFD) == FD_CLOEXEC && (fcntl(file, F_GETFL) & O_NONBLOCK));
    }
    for (int i = 0; i < 100000; i++) {
        rp_wake_set(&wake);
    }
    struct pollfd told = {.fd = wake.read, .events = POLLIN};
    CHECK(poll(&told, 1, 0) == 1);
    CHECK(rp_wake_sleep(&wake, -1, UINT64_MAX) == 0);
    CHECK(poll(&told, 1, 0) == 0, "one sleep takes all of it");
    uint64_t begin = rp_clock_ns();
    CHECK(rp_wake_sleep(&wake, -1, 1500000) == 0);
    CHECK(rp_clock_ns() - begin >= 1500000, "not shorter than asked");
    rp_wake_close(&wake);
    CHECK(wake.read == -1 && wake.set == -1);
    check_group("wake");
}

/* ---- ready ---- */

enum { SOCKETS = 6 };

static uint32_t keys_of(struct rp_ready *ready, uint32_t at_once, uint32_t *events) {
    struct rp_ready_event told[SOCKETS + 2];
    uint32_t keys = 0;
    uint32_t count = rp_ready_look(ready, told, at_once);
    CHECK(count <= at_once);
    for (uint32_t i = 0; i < count; i++) {
        if (told[i].key != RP_READY_SECOND) {
            keys |= 1u << told[i].key;
            events[told[i].key] = told[i].events;
        }
    }
    return keys;
}

/* Given sockets with something, without, full, and whose other end has gone. Expect each as it is,
 * again and again, and none of a socket that was taken out; nobody waits behind who has much. */
static void check_ready(void) {
    int near[SOCKETS], far[SOCKETS];
    uint32_t events[SOCKETS] = {0};
    struct rp_ready ready;
    struct rp_wake wake;
    CHECK(rp_ready_open(&ready, SOCKETS) == 0 && rp_wake_open(&wake) == 0);
    for (uint32_t i = 0; i < SOCKETS; i++) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        near[i] = ends[0];
        far[i] = ends[1];
        CHECK(rp_ready_add(&ready, near[i], i, RP_READY_IN) == 0);
    }
    CHECK(keys_of(&ready, SOCKETS + 1, events) == 0);
    CHECK(write(far[1], "x", 1) == 1 && write(far[3], "x", 1) == 1);
    close(far[5]);
    for (int again = 0; again < 2; again++) {
        CHECK(keys_of(&ready, SOCKETS + 1, events) == (1u << 1 | 1u << 3 | 1u << 5));
        CHECK(events[1] == RP_READY_IN && events[5] & RP_READY_IN);
        CHECK(rp_ready_sleep(&ready, &wake, UINT64_MAX) == 1);
    }
    uint32_t seen = 0;
    for (int look = 0; look < SOCKETS; look++) {
        seen |= keys_of(&ready, 1, events);
    }
    CHECK(seen == (1u << 1 | 1u << 3 | 1u << 5), "one at a time: %x", seen);
    rp_ready_change(&ready, near[0], 0, RP_READY_IN | RP_READY_OUT);
    rp_ready_change(&ready, near[3], 3, 0);
    rp_ready_remove(&ready, near[1]);
    rp_ready_remove(&ready, near[5]);
    CHECK(keys_of(&ready, SOCKETS + 1, events) == 1u << 0 && events[0] == RP_READY_OUT);
    rp_ready_remove(&ready, near[0]);
    uint32_t seconds = rp_ready_seconds(&ready);
    for (int sleeps = 0; !seconds && sleeps < 1000; sleeps++) {
        (void)rp_ready_sleep(&ready, &wake, 20000000000u); /* a second's tick ends it */
        seconds = rp_ready_seconds(&ready);
    }
    CHECK(seconds >= 1 && seconds < 20, "%u", seconds);
    rp_wake_set(&wake);
    CHECK(rp_ready_sleep(&ready, &wake, 20000000000u) == 0);
    for (uint32_t i = 0; i < SOCKETS; i++) {
        close(near[i]);
        if (i != 5) {
            close(far[i]);
        }
    }
    rp_ready_close(&ready);
    rp_wake_close(&wake);
    check_group("ready");
}

/* ---- the rest ---- */

/* Given a socket that was opened, one that was accepted, and one moved to another's number. Expect
 * none to wait, and none to be inherited. */
static void check_sockets(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = rp_socket_open(AF_INET, SOCK_STREAM);
    CHECK(bind(listener, (struct sockaddr *)(void *)&address, size) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(rp_socket_accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    CHECK(getsockname(listener, (struct sockaddr *)(void *)&address, &size) == 0);
    int caller = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(caller, (struct sockaddr *)(void *)&address, size) == 0);
    struct pollfd there = {.fd = listener, .events = POLLIN};
    CHECK(poll(&there, 1, 10000) == 1);
    int accepted = rp_socket_accept(listener, NULL, NULL);
    int moved = rp_socket_move(accepted, caller);
    int all[] = {listener, accepted, caller};
    CHECK(moved >= 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK(fcntl(all[i], F_GETFD) == FD_CLOEXEC && (fcntl(all[i], F_GETFL) & O_NONBLOCK));
        close(all[i]);
    }
    check_group("sockets");
}

/* Given more datagrams than one call asks for. Expect them in their order, and EAGAIN behind. */
static void check_datagrams(void) {
    enum { COUNT = 5 };
    int ends[2];
    char out[COUNT], in[COUNT];
    struct iovec vectors[2][COUNT];
    rp_datagram messages[2][COUNT];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    memset(messages, 0, sizeof messages);
    for (uint32_t i = 0; i < COUNT; i++) {
        out[i] = (char)('a' + i);
        vectors[0][i] = (struct iovec){&out[i], 1};
        vectors[1][i] = (struct iovec){&in[i], 1};
        for (int k = 0; k < 2; k++) {
            messages[k][i].msg_hdr = (struct msghdr){.msg_iov = &vectors[k][i], .msg_iovlen = 1};
        }
    }
    CHECK(rp_datagrams_send(ends[0], messages[0], COUNT) == COUNT);
    CHECK(rp_datagrams_receive(ends[1], messages[1], 3) == 3 && messages[1][2].msg_len == 1);
    CHECK(rp_datagrams_receive(ends[1], messages[1] + 3, 2) == 2);
    CHECK(memcmp(in, out, COUNT) == 0);
    int got = rp_datagrams_receive(ends[1], messages[1], 1);
    CHECK(got == -1 && errno == EAGAIN, "%d, %s", got, strerror(errno));
    close(ends[1]);
    CHECK(rp_datagrams_send(ends[0], messages[0], COUNT) == -1);
    close(ends[0]);
    check_group("datagrams");
}

/* Given a limit of open files that is less than the files of a sleep. Expect it to end, not at
 * once: who sleeps again and again does not keep a processor busy. */
static void check_poll_limit(void) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {1, 1};
        struct rp_wake wake;
        struct timespec before, after;
        CHECK(rp_wake_open(&wake) == 0 && setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK(clock_gettime(CLOCK_MONOTONIC, &before) == 0);
        CHECK(rp_wake_sleep(&wake, -1, 20000000000u) == 0);
        CHECK(clock_gettime(CLOCK_MONOTONIC, &after) == 0);
        int64_t slept = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec
            - before.tv_nsec;
        CHECK(slept >= RP_POLL_NAP_NS, "%" PRId64, slept);
        CHECK(rp_wake_sleep(&wake, -1, 0) == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    check_group("a sleep whose files are more than the limit");
}

/* A short read, as a signal or a network's disk may make it. */
ssize_t pread(int file, void *target, size_t size, off_t offset) {
    return syscall(SYS_pread64, file, target, size < 64 ? size : 64, offset);
}

enum { DISK = 1 << 20, HOLES = 4 << 20, PAGE = 4096, USED = 5 * PAGE + 100 };

/* Both ways of asking for room; the second is what systems other than Linux get. */
static int (*const rooms[])(int file, uint64_t offset, uint64_t bytes) = {rp_file_allocate,
                                                                          rp_file_fill};

static void use_disk(const char *place, int way) {
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "%s/%d", place, way);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && ftruncate(file, HOLES) == 0);
    char *at = mmap(NULL, HOLES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(at != MAP_FAILED);
    memset(at + USED, 'x', 3);
    CHECK(rooms[way](file, HOLES - PAGE, PAGE) == 0 && rooms[way](file, 100, DISK / 2) == 0);
    CHECK(fstat(file, &about) == 0 && about.st_size == HOLES);
    CHECK(about.st_blocks >= (DISK / 2 + PAGE) / 512, "%ld blocks", (long)about.st_blocks);
    CHECK(rooms[way](file, 0, HOLES) == ENOSPC, "the disk has less");
    CHECK(rooms[way](file, HOLES, DISK) == ENOSPC, "nor at its end");
    for (int i = 0; i < DISK / 2; i++) {
        CHECK(at[i] == (i >= USED && i < USED + 3 ? 'x' : 0), "what it held has changed: %d", i);
    }
    memset(at, 'y', 100 + DISK / 2); /* no SIGBUS where it said that there is room */
    CHECK(munmap(at, HOLES) == 0 && close(file) == 0 && unlink(path) == 0);
}

static void use_disks(const char *place) {
    int apart = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (apart) {
        (void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    }
    if (!apart || mount("none", place, "tmpfs", 0, "size=1m") < 0) {
        CHECK(!getenv("CI") || getuid() != 0, "no mounts here: %s", strerror(errno));
        printf("  (no mounts here: a full disk is not shown)\n");
        return;
    }
    use_disk(place, 0);
    use_disk(place, 1);
    check_group("files: room within them, on a disk that is full");
}

/* Given a file with holes, and with pages in use, on a disk that holds a part of it. Expect room
 * where it is said to be, ENOSPC else, and nothing of what the file held to change. */
static void check_room(void) {
    char place[] = "/tmp/test_os_XXXXXX";
    int status = 0;
    CHECK(mkdtemp(place) != NULL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        use_disks(place);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    CHECK(rmdir(place) == 0);
}

/* Given a lock that is taken, and one that is not. Expect its holder to be known: neither is taken
 * twice or left by who does not have it, in any build. */
static void check_locks(void) {
    pthread_mutex_t lock;
    rp_mutex_make(&lock);
#ifndef __SANITIZE_THREAD__ /* which stops at the first, as it should */
    CHECK(pthread_mutex_unlock(&lock) == EPERM);
#endif
    CHECK(pthread_mutex_lock(&lock) == 0 && pthread_mutex_lock(&lock) == EDEADLK);
    CHECK(pthread_mutex_unlock(&lock) == 0 && pthread_mutex_destroy(&lock) == 0);
    check_group("locks know their holder");
}

static void check_system(void) {
    uint8_t some[2][32] = {{0}};
    FILE *file = tmpfile();
    struct stat about;
    CHECK(rp_entropy(some[0], 32) == 0 && rp_entropy(some[1], 32) == 0);
    CHECK(memcmp(some[0], some[1], 32) != 0);
    CHECK(file && rp_file_allocate(fileno(file), 4096, 8192) == 0);
    CHECK(fstat(fileno(file), &about) == 0 && about.st_size == 12288);
    CHECK(about.st_blocks >= 16, "the room is there, not only its size");
    fclose(file);
    int proc = open("/proc", O_RDONLY), etc = open("/proc/sys", O_RDONLY);
    CHECK(rp_folder_is_mounted(proc) && !rp_folder_is_mounted(etc));
    close(proc);
    close(etc);
    CHECK(rp_cores() >= 1);
    check_group("chance, room, mounts, cores");
}

/* ---- how much memory ---- */

#ifndef RP_POSIX
/* Makes a tree like the kernel's of "PATH TEXT" pairs; what is said of it. */
static struct rp_memory_limit limit_in(const char *const (*files)[2]) {
    char root[] = "/tmp/test_os_limit_XXXXXX", command[512];
    CHECK(mkdtemp(root) != NULL);
    for (; (*files)[0]; files++) {
        snprintf(command, sizeof command, "f=%s/%s && mkdir -p ${f%%/*} && printf '%s' >$f", root,
                 (*files)[0], (*files)[1]);
        CHECK(system(command) == 0, "%s", command);
    }
    struct rp_memory_limit limit = rp_memory_limit(root);
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
    return limit;
}

#define GROUP_IS(bytes_expected, ...)                                                            \
    do {                                                                                         \
        struct rp_memory_limit limit = limit_in((const char *const[][2]){__VA_ARGS__, {NULL}});  \
        uint64_t bytes = (bytes_expected);                                                       \
        CHECK(limit.bytes == (bytes ? bytes : host) && !bytes == !strstr(limit.whose, "group"),  \
              "%" PRIu64 " bytes that %s", limit.bytes, limit.whose);                            \
    } while (0)

#define CGROUP "proc/self/cgroup"
#define FIRST "sys/fs/cgroup/memory"

/* Given the groups of both versions, in a container or around it, with a limit and without. Expect
 * the least of the group's, those around it and the machine's. */
static void check_groups(void) {
    uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    GROUP_IS(0, {CGROUP, "0::/a/b\\n"}, {"sys/fs/cgroup/a/b/memory.max", "max\\n"});
    GROUP_IS(0, {CGROUP, ""}, {"sys/fs/cgroup/memory.max", "4096\\n"});
    GROUP_IS(8192, {CGROUP, "0::/a/b\\n"}, {"sys/fs/cgroup/a/b/memory.max", "8192\\n"});
    GROUP_IS(4096, {CGROUP, "0::/a/b\\n"}, {"sys/fs/cgroup/a/b/memory.max", "8192\\n"},
             {"sys/fs/cgroup/a/memory.max", "4096\\n"});
    GROUP_IS(4096, {CGROUP, "0::/\\n"}, {"sys/fs/cgroup/memory.max", "4096\\n"});
    GROUP_IS(4096, {CGROUP, "0::/docker/x\\n"}, {"sys/fs/cgroup/memory.max", "4096\\n"});
    GROUP_IS(0, {CGROUP, "0::/a\\n"}, {"sys/fs/cgroup/a/memory.max", "18446744073709551615\\n"});
    GROUP_IS(4096, {CGROUP, "5:cpu,cpuacct:/c\\n4:hugetlb,memory:/a\\n0::/\\n"},
             {FIRST "/a/memory.limit_in_bytes", "4096\\n"});
    GROUP_IS(4096, {CGROUP, "4:memory:/docker/x\\n"}, {FIRST "/memory.limit_in_bytes", "4096\\n"});
    GROUP_IS(0, {CGROUP, "4:memory:/a\\n"},
             {FIRST "/a/memory.limit_in_bytes", "9223372036854771712\\n"});
    GROUP_IS(0, {CGROUP, "4:memoryless:/a\\n"}, {FIRST "/a/memory.limit_in_bytes", "4096\\n"});
    check_group("memory of a machine, or of a control group");
}
#endif

int main(void) {
    check_no_wake_is_lost();
    check_time();
    check_bits();
    check_forks();
    check_wake();
    check_ready();
    check_sockets();
    check_datagrams();
    check_poll_limit();
    check_room();
    check_locks();
    check_system();
#ifndef RP_POSIX
    check_groups();
#endif
    return check_done("test_os");
}
