/* Forks: a child is told for each gate, keeps nothing of its parent's, and is refused; its parent
 * goes on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive_service.h"
#include "process.h"
#include "drive/link_drive.h"
#include "drive/pump_gate.h"
#include "os/forks.h"

#ifdef __SANITIZE_ADDRESS__
enum { ADDRESS_SANITIZER = 1 };
#else
enum { ADDRESS_SANITIZER = 0 };
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZER = 1 };
#else
enum { SANITIZER = 0 };
#endif

static char error[RP_ERROR_BYTES];

/* By exit, so that what the child ran is counted (tests/mutants); but not where that looks for
 * leaks, with locks of threads that are not there, or sleeps a second. */
static void end_child(int status) {
    (SANITIZER ? _exit : exit)(status);
}

static void note_fork(void *owner) {
    ++*(uint32_t *)owner;
}

/* In a child with a gate of its own: its child hears of that gate, and of none of its parent's
 * parent, which were let go of. */
static int is_told_of_its_own(const uint32_t told[3]) {
    struct rp_gate own;
    uint32_t told_own = 0, sum = told[0] + told[1] + told[2];
    int status;
    rp_gate_open(&own, note_fork, &told_own);
    pid_t child = fork();
    if (child == 0) {
        end_child(told_own != 1 || told[0] + told[1] + told[2] != sum);
    }
    CHECK(waitpid(child, &status, 0) == child);
    rp_gate_free(&own);
    return status == 0;
}

/* Given three gates, and one of them freed: the oldest, the middle one, the newest. Expect a forked
 * child to be told once for each that is left, and only for those; and its own child of its own. */
static void check_told(void) {
    for (int freed = 0; freed < 3; freed++) {
        struct rp_gate gates[3];
        uint32_t told[3] = {0};
        int status;
        for (int i = 0; i < 3; i++) {
            rp_gate_open(&gates[i], note_fork, &told[i]);
        }
        rp_gate_free(&gates[freed]);
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(is_told_of_its_own(told));
            end_child((int)(told[0] + 4 * told[1] + 16 * told[2]));
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 1 + 4 + 16 - (1 << 2 * freed), "gate %d freed: %o", freed,
              (unsigned)WEXITSTATUS(status));
        CHECK(told[0] + told[1] + told[2] == 0, "nobody is told in the parent");
        for (int i = 0; i < 3; i++) {
            if (i != freed) {
                rp_gate_free(&gates[i]);
            }
        }
    }
    check_group("a child is told for each gate that is there");
}

/* Given a child that was forked before its parent's server ended, and lives on. Expect port and
 * region to be free for the next server, and a loopback name that means nothing in the child. */
static void check_lets_go(void) {
    char path[] = "/tmp/test_fork_XXXXXX", file[64];
    char address[RP_URL_TEXT_BYTES];
    struct rp_link_options options = {0};
    struct rp_link *link;
    int held[2], forked[2], status;
    CHECK(mkdtemp(path) != NULL && pipe(held) == 0 && pipe(forked) == 0);
    snprintf(file, sizeof file, "%s/region", path);
    struct rp_service_options serve = {.region_path = file}, plain = {0};
    struct rp_service *inner = open_service("loopback://inner", &plain);
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve);
    CHECK(rp_service_start(service) == 0 && mappings_of(path) > 0);
    snprintf(address, sizeof address, "%s", rp_service_address(service));
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte = 0;
        close(held[1]);
        CHECK(write(forked[1], &byte, 1) == 1);
        CHECK(rp_link_open(&link, "loopback://inner", &options, error) == -RP_SYSTEM, "not here");
        CHECK(rp_service_turn(inner) == -RP_FORKED && rp_service_lost(service) == NULL);
        CHECK(mappings_of(path) == 0, "the child has the region");
        CHECK(read(held[0], &byte, 1) == 0);
        rp_service_close(service);
        rp_service_close(inner);
        end_child(0);
    }
    char byte;
    CHECK(read(forked[0], &byte, 1) == 1); /* it has let go: fork's handlers ran */
    close(forked[0]);
    close(forked[1]);
    close(held[0]);
    rp_service_close(service);
    service = open_service(address, &serve);
    CHECK(rp_service_attached(service), "the region is free");
    rp_service_close(service);
    rp_service_close(inner);
    close(held[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
    check_group("a forked child keeps neither port nor region of its parent's server");
}

/* Given a child of a process that serves, has a link and its pump, and a link that has ended.
 * Expect every call refused in the child, and all as before in its parent. */
static void check_refused(void) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    int before = open_descriptors();
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve);
    uint64_t counters[RP_COUNTER_COUNT];
    struct rp_push_state state;
    int status;
    CHECK(open_descriptors() > before && rp_service_start(service) == 0);
    struct rp_link *link = drive_link(rp_service_address(service), &options);
    CHECK(rp_link_start_pump(link) == 0);
    void *memory = link->memory;
    unsigned char there;
    CHECK(mincore(memory, 1, &there) == 0);
    struct rp_link *ended = drive_link(rp_service_address(service), &options);
    rp_link_end(ended, 0); /* and its memory is still its owner's */
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(open_descriptors() == before, "the child holds some of its parent's");
        CHECK(getenv("RP_EMULATED") || (mincore(memory, 1, &there) < 0 && errno == ENOMEM),
              "the child has the link's memory"); /* qemu-user's children keep all */
        CHECK(rp_link_ping(link, 1) == -RP_FORKED);
        CHECK(rp_link_wait(link, 1, 1, NULL) == -RP_FORKED);
        CHECK(rp_link_start_pump(link) == -RP_FORKED && rp_link_stop_pump(link) == -RP_FORKED);
        CHECK(rp_link_push_state(link, 0, &state) == -RP_FORKED);
        CHECK(rp_service_counters(service, counters) == -RP_FORKED);
        CHECK(rp_service_start(service) == -RP_FORKED && rp_service_turn(service) == -RP_FORKED);
        rp_link_close(link, DRIVE_TIMEOUT_NS);
        rp_service_close(service);
        end_child(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(drive_wait(link, rp_link_ping(link, DRIVE_TIMEOUT_NS), NULL) == 0);
    rp_link_close(ended, 0);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    check_group("a forked child is refused, and its parent goes on");
}

/* Given a service over UDP whose process forks, while it serves and once it has ended. Expect the
 * child to hold no socket: the address is free as soon as the parent lets go of it. */
static void check_sockets(void) {
    struct rp_service_options serve = {0};
    struct rp_service *service = open_service("udp://127.0.0.1:0", &serve), *after;
    struct drive_table made;
    char address[RP_URL_TEXT_BYTES], byte;
    int gate[2], forked[2], status = 0;
    snprintf(address, sizeof address, "%s", rp_service_address(service));
    CHECK(pipe(gate) == 0 && pipe(forked) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(gate[1]);
        end_child(write(forked[1], "", 1) != 1 || read(gate[0], &byte, 1) != 0
             || rp_service_turn(service) != -RP_FORKED);
    }
    CHECK(read(forked[0], &byte, 1) == 1); /* it has let go: fork's handlers ran */
    rp_service_end(service);
    pid_t late = fork();
    if (late == 0) {
        end_child(rp_service_turn(service) != -RP_FORKED);
    }
    CHECK(waitpid(late, &status, 0) == late && status == 0, "status %d", status);
    rp_service_close(service);
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&after, &made.config, address, &serve, error) == 0, "%s", error);
    rp_service_close(after);
    close(gate[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    close(gate[0]);
    close(forked[0]);
    close(forked[1]);
    check_group("a forked child holds no socket");
}

/* Sockets of this process that speak IP; `port`: of these, those at this port, 0: at any. */
static int internet_sockets(uint16_t port) {
    int count = 0;
    for (int i = 3; i < 1024; i++) {
        struct sockaddr_in address;
        socklen_t size = sizeof address;
        count += getsockname(i, (struct sockaddr *)(void *)&address, &size) == 0
            && (address.sin_family == AF_INET || address.sin_family == AF_INET6)
            && (!port || address.sin_port == port);
    }
    return count;
}

/* Mappings of a region's files that are more than a look at one which is being opened. */
static int shared_mappings(void) {
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        count += strstr(line, " rw-s ") && strstr(line, "/tmp/test_fork_");
    }
    fclose(file);
    return count;
}

/* Open files of a region's tables. */
static int segment_files(void) {
    char name[32], path[128];
    int count = 0;
    for (int i = 3; i < 1024; i++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", i);
        ssize_t size = readlink(name, path, sizeof path - 1);
        path[size > 0 ? size : 0] = 0;
        count += strstr(path, "/tmp/test_fork_") && strstr(path, "/table");
    }
    return count;
}

struct churn {
    pthread_t thread;
    const char *region; /* null: links, else services whose region this is */
    _Atomic int stop;
};

static void *open_and_close(void *argument) {
    struct churn *churn = argument;
    struct rp_service_options serve = {.region_path = churn->region};
    struct rp_link_options options = {0};
    char why[RP_ERROR_BYTES];
    while (!atomic_load(&churn->stop)) {
        if (churn->region) {
            rp_service_close(open_service("udp://127.0.0.1:0", &serve));
        } else {
            struct rp_link *link;
            CHECK(rp_link_open(&link, "udp://127.0.0.1:9", &options, why) == 0, "%s", why);
            rp_link_close(link, 0);
        }
    }
    return NULL;
}

/* Forks again and again. Expects each child to end as it should, with all the files that its parent
 * opened before, and no socket of its parent's at this port (0: at any). */
static void fork_often(int forks, uint16_t port) {
    enum { FILES = 4 };
    fflush(stdout);
    for (int i = 0, rounds = check_rounds(forks); i < rounds; i++) {
        int files[FILES], missing = 0, status;
        for (int j = 0; j < FILES; j++) {
            files[j] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
        pid_t child = fork();
        CHECK(child >= 0);
        for (int j = 0; j < FILES; j++) {
            missing += fcntl(files[j], F_GETFD) < 0;
            close(files[j]);
        }
        if (child == 0) {
            end_child(missing + 10 * (internet_sockets(port) > 0)
                      + 20 * (shared_mappings() > 0) + 40 * (segment_files() > 0));
        }
        CHECK(waitpid(child, &status, 0) == child && missing == 0);
        CHECK(WIFEXITED(status), "fork %d: the child died of signal %d", i, WTERMSIG(status));
        CHECK(WEXITSTATUS(status) % 10 == 0, "fork %d: the child lost a file of its parent's", i);
        CHECK(WEXITSTATUS(status) / 10 % 2 == 0, "fork %d: the child keeps a socket", i);
        CHECK(WEXITSTATUS(status) / 20 % 2 == 0, "fork %d: the child keeps its parent's region", i);
        CHECK(WEXITSTATUS(status) == 0, "fork %d: the child keeps a file of the region", i);
    }
}

/* Given a process that forks while another of its threads opens and closes. Expect each child to
 * lose nothing, and to keep no socket, of a port that is being opened neither. */
static void check_beside_closing(const char *region) {
    struct churn churn = {.region = region};
    CHECK(pthread_create(&churn.thread, NULL, open_and_close, &churn) == 0);
    fork_often(300, 0);
    atomic_store(&churn.stop, 1);
    CHECK(pthread_join(churn.thread, NULL) == 0);
    check_group(region ? "forks beside a service that closes" : "forks beside a link that closes");
}

static void check_closing(void) {
    char path[] = "/tmp/test_fork_XXXXXX", file[64], command[80];
    check_beside_closing(NULL);
    CHECK(mkdtemp(path) != NULL);
    snprintf(file, sizeof file, "%s/region", path);
    check_beside_closing(file);
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

struct callers {
    pthread_t thread;
    struct sockaddr_in server;
    _Atomic int stop;
};

/* Connections that come, are greeted and end, some of them for what they say. */
static void *call_and_go(void *argument) {
    struct callers *callers = argument;
    const struct sockaddr *server = (const struct sockaddr *)(void *)&callers->server;
    const struct linger at_once = {.l_onoff = 1};
    uint8_t junk[64] = {1}, heard[64];
    for (int i = 0; !atomic_load(&callers->stop); i++) {
        int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(connect(caller, server, sizeof callers->server) == 0);
        CHECK(i % 2 || write(caller, junk, sizeof junk) == sizeof junk);
        while (recv(caller, heard, sizeof heard, 0) > 0 && i % 2 == 0) {
        }
        CHECK(setsockopt(caller, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
        close(caller);
    }
    return NULL;
}

/* Given a process that forks while its server takes connections and ends them. Expect each child to
 * lose nothing, and to keep no connection: who is at its other end would not hear of its end. */
static void check_beside_connections(void) {
    struct rp_service_options serve = {0};
    struct rp_service *service = open_service("zmq+tcp://127.0.0.1:0", &serve);
    const char *port = strrchr(rp_service_address(service), ':') + 1;
    struct callers callers = {.server = {.sin_family = AF_INET}};
    callers.server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    callers.server.sin_port = htons((uint16_t)atoi(port));
    CHECK(rp_service_start(service) == 0);
    CHECK(pthread_create(&callers.thread, NULL, call_and_go, &callers) == 0);
    fork_often(600, callers.server.sin_port);
    atomic_store(&callers.stop, 1);
    CHECK(pthread_join(callers.thread, NULL) == 0);
    rp_service_close(service);
    check_group("forks beside connections that come and go");
}

struct toggler {
    pthread_t thread;
    struct rp_service *service;
    _Atomic int stop;
};

static void *start_and_stop(void *argument) {
    struct toggler *toggler = argument;
    while (!atomic_load(&toggler->stop)) {
        CHECK(rp_service_start(toggler->service) == 0);
        CHECK(rp_service_stop(toggler->service) == 0);
    }
    return NULL;
}

/* Given a process that forks while another of its threads is stopping the server's. Expect a start
 * in the child to be refused: it does not wait for a thread that is not there. */
static void check_beside_stopping(void) {
    struct rp_service_options serve = {0};
    struct toggler toggler = {.service = open_service("udp://127.0.0.1:0", &serve)};
    CHECK(pthread_create(&toggler.thread, NULL, start_and_stop, &toggler) == 0);
    fflush(stdout);
    for (int i = 0, rounds = check_rounds(300); i < rounds; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            end_child(rp_service_start(toggler.service) != -RP_FORKED);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "fork %d: status %x", i,
              (unsigned)status);
    }
    atomic_store(&toggler.stop, 1);
    CHECK(pthread_join(toggler.thread, NULL) == 0);
    rp_service_close(toggler.service);
    check_group("forks beside a server's thread that is stopped");
}

enum { HOLDERS = 8, TURNS = 20, PASSED_MAX = TURNS * 4000 };

static _Atomic uint32_t holds;
static _Atomic int holders_stop;

/* Long enough that holds of several threads overlap; it ends where they have passed forks that
 * should have had their turn. */
static void *hold_and_allow(void *unused) {
    while (!atomic_load(&holders_stop) && atomic_load(&holds) < PASSED_MAX) {
        rp_forks_hold();
        atomic_fetch_add(&holds, 1);
        usleep(50);
        rp_forks_hold(); /* who holds already does not wait for a fork that waits for him */
        rp_forks_allow();
        rp_forks_allow();
    }
    return unused;
}

/* Given threads that hold all the time, each its own while, and a process that forks, also while it
 * holds itself. Expect few holds to pass each fork, and the child to be able to hold and fork. */
static void check_turn(void) {
    pthread_t threads[HOLDERS];
    for (int i = 0; i < HOLDERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, hold_and_allow, NULL) == 0);
    }
    fflush(stdout);
    for (int i = 0; i < TURNS; i++) {
        int status;
        if (i % 2) {
            rp_forks_hold();
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            rp_forks_hold();
            rp_forks_allow();
            pid_t grandchild = fork();
            if (grandchild == 0) {
                end_child(0);
            }
            end_child(waitpid(grandchild, &status, 0) != grandchild || status != 0);
        }
        if (i % 2) {
            rp_forks_allow();
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "status %x", (unsigned)status);
    }
    CHECK(atomic_load(&holds) < PASSED_MAX, "a fork waits for all who hold meanwhile");
    atomic_store(&holders_stop, 1);
    for (int i = 0; i < HOLDERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_group("a fork has its turn among those who hold");
}

static volatile sig_atomic_t handled;

static void fork_in_handler(int signal) {
    int before = errno, status = 0;
    (void)signal;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    handled += status == 0;
    errno = before;
}

/* Given a signal whose handler forks, which comes at any moment of a hold. Expect it not to wait
 * for the thread that it has interrupted, and signals to be heard as before. */
static void check_in_handler(void) {
    struct itimerval often = {.it_interval.tv_usec = 300, .it_value.tv_usec = 300}, never = {0};
    struct sigaction act = {.sa_handler = fork_in_handler}, before;
    sigset_t mask;
    CHECK(sigaction(SIGALRM, &act, &before) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int rounds = check_rounds(500); handled < rounds;) {
        rp_forks_hold();
        rp_forks_allow();
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(sigaction(SIGALRM, &before, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGALRM));
    check_group("forks in a signal's handler");
}

int main(void) {
    check_told();
    check_refused();
    check_sockets();
    check_lets_go();
    if (!SANITIZER) {
        check_turn();
        check_in_handler();
    }
    if (!ADDRESS_SANITIZER) { /* a thread of the parent's may hold its allocator's lock */
        check_closing();
        check_beside_connections();
        check_beside_stopping();
    }
    return check_done("test_fork");
}
