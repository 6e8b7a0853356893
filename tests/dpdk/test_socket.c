/* The socket of a memif server: whose it is, that one server has it, and whose a client goes to.
 *
 * In each round two processes open a server at one path at the same moment, in every other round
 * where a killed one left its socket. Expect one to serve there and the other to be told so. A
 * timer stops both at odd moments, so that one is often found between any two of its steps.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crowd.h"
#include "open_port.h"
#include "protocol/status.h"

enum { RACERS = 2, ROUNDS = 100, SECONDS = 120, ANY_GROUP = 1, STOP_EVERY_US = 411,
       STOPPED_NS = 150000, STRANGER = 65534, TRIES = 20000, BYTES = 64, CROWD = 20000,
       SWAPS = 400, SHORT_NS = 100000000, LONG_NS = 2000000000 };

static struct told {
    _Atomic uint32_t arrived;          /* at barriers, ever */
    _Atomic uint32_t opened[ROUNDS];
    _Atomic uint32_t refused[ROUNDS];
    _Atomic uint32_t served;   /* by the stranger: how often it began to; and what it received */
    _Atomic uint32_t received;
    _Atomic int serves_again;
    _Atomic int ends;
} *told;

static char path[64], above[48], folder[64], inside[80];

static int open_at(struct rp_port **port, const char *at, const char *more, int serve,
                   struct rp_peer *peer, char *error) {
    char url[RP_URL_TEXT_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {.serve = serve};
    *port = NULL;
    snprintf(url, sizeof url, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=%s%s", at, more);
    return rp_port_open(port, url, &options, peer, bound, error);
}

static int try_open(struct rp_port **port, const char *more, int serve, char *error) {
    struct rp_peer peer;
    return open_at(port, path, more, serve, &peer, error);
}

/* ---- whose it is ---- */

static void opens_as(const char *more, mode_t mask, gid_t group) {
    char error[RP_URL_ERROR_BYTES] = "";
    struct rp_port *port;
    struct stat about;
    mode_t before = umask(mask);
    CHECK(try_open(&port, more, 1, error) == 0, "%s", error);
    umask(before);
    CHECK(stat(path, &about) == 0 && (about.st_mode & 07777) == 0660, "mode %o", about.st_mode);
    CHECK(about.st_gid == group, "group %u", about.st_gid);
    rp_port_close(port);
    CHECK(access(path, F_OK) != 0, "its socket stays behind");
}

static void open_to_crowd(void) {
    if (gather_crowd(path, ANY_GROUP, CROWD)) {
        opens_as(",group=crowd", 022, ANY_GROUP);
    }
}

static void opens_to_crowd(void) {
    int status;
    fflush(stdout);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        open_to_crowd();
        _exit(0);
    }
    CHECK(waitpid(process, &status, 0) == process && status == 0);
}

static void refuses_at(const char *at, const char *more, int serve, int status, const char *says) {
    char error[RP_URL_ERROR_BYTES] = "";
    struct rp_port *port;
    struct rp_peer peer;
    int got = open_at(&port, at, more, serve, &peer, error);
    CHECK(got == -status && !port && strstr(error, says), "%d %s", got, error);
}

static void refuses(const char *more, int serve, int status, const char *says) {
    refuses_at(path, more, serve, status, says);
}

static int make_socket(int type) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, type, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    CHECK(file >= 0 && bind(file, (struct sockaddr *)&address, sizeof address) == 0);
    return file;
}

/* Of whoever listens there: nobody else is let in. */
static void fill_queue(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    do {
        file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    } while (connect(file, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(errno == EAGAIN && close(file) == 0);
}

static void whose(void) {
    char more[64];
    struct stat about;
    opens_as("", 0, getegid());
    opens_as("", 0777, getegid());
    snprintf(more, sizeof more, ",group=%u", getegid());
    opens_as(more, 022, getegid());
    if (geteuid() == 0) {
        snprintf(more, sizeof more, ",group=%u", ANY_GROUP);
        opens_as(more, 022, ANY_GROUP);
        opens_as(",group=root", 022, 0);
    }
    static const char *const no_groups[] = { /* the last one is 6, if it wraps */
        ",group=no-such-group", ",group=+0", ",group=4294967295", ",group=-18446744073709551610"};
    int anyone = open("/tmp", O_RDONLY | O_DIRECTORY);
    CHECK(anyone >= 0 && flock(anyone, LOCK_SH) == 0);
    opens_as("", 022, getegid());
    CHECK(close(anyone) == 0);
    for (size_t i = 0; i < sizeof no_groups / sizeof no_groups[0]; i++) {
        refuses(no_groups[i], 1, RP_SYSTEM, "group= is a group of this host");
    }
    refuses(",group=0", 0, RP_BAD_ARGUMENT, "group= goes with vdev=net_memif and role=server");
    check_group("a memif socket: 0660 whatever the umask, its group's, gone at the end");
    FILE *file = fopen(path, "w");
    CHECK(file && fclose(file) == 0);
    refuses("", 1, RP_SYSTEM, "is no socket: name another path");
    CHECK(stat(path, &about) == 0 && S_ISREG(about.st_mode) && unlink(path) == 0);
    int other = make_socket(SOCK_STREAM);
    CHECK(listen(other, 1) == 0);
    refuses("", 1, RP_SYSTEM, "another user's, or of another kind");
    CHECK(stat(path, &about) == 0 && unlink(path) == 0 && close(other) == 0);
    char error[RP_URL_ERROR_BYTES] = "";
    struct rp_port *port;
    CHECK(try_open(&port, "", 1, error) == 0 && unlink(path) == 0);
    other = make_socket(SOCK_SEQPACKET);
    CHECK(listen(other, 0) == 0);
    rp_port_close(port);
    CHECK(stat(path, &about) == 0, "a successor's socket goes with its predecessor");
    fill_queue();
    refuses("", 1, RP_SYSTEM, "a server has that socket already");
    CHECK(stat(path, &about) == 0 && unlink(path) == 0 && close(other) == 0);
    check_group("a path that is taken by something else is left alone");
}

/* ---- how long a client waits ---- */

static void gives_up(uint64_t timeout_ns, const char *says) {
    char url[RP_URL_TEXT_BYTES], bound[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES] = "";
    struct rp_port_options options = {.timeout_ns = timeout_ns};
    struct rp_port *port = NULL;
    struct rp_peer peer;
    snprintf(url, sizeof url, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=%s", path);
    int status = rp_port_open(&port, url, &options, &peer, bound, error);
    CHECK(status == -RP_SYSTEM && !port && strstr(error, says), "%d %s", status, error);
}

static void *wait_for_answer(void *argument) {
    (void)argument;
    gives_up(LONG_NS, "does not answer within the time allowed");
    return NULL;
}

/* Something listens there that lets in and says nothing, or that lets nobody in. */
static void how_long(void) {
    pthread_t other;
    int mute = make_socket(SOCK_SEQPACKET);
    CHECK(listen(mute, 0) == 0);
    CHECK(pthread_create(&other, NULL, wait_for_answer, NULL) == 0);
    int visitor = accept(mute, NULL, NULL);
    CHECK(visitor >= 0);
    gives_up(SHORT_NS, "does not answer within the time allowed"); /* nor waits for the other */
    CHECK(pthread_join(other, NULL) == 0);
    gives_up(SHORT_NS, "does not answer within the time allowed");
    fill_queue();
    gives_up(SHORT_NS, "does not answer within the time allowed");
    CHECK(close(mute) == 0 && close(visitor) == 0);
    gives_up(SHORT_NS, "nobody serves at that socket");
    CHECK(unlink(path) == 0);
    check_group("a client whose server says nothing: an error when its time is over");
}

/* ---- a server that greets, and is gone ---- */

enum { HELLO = 2, MESSAGE = 128, AT_VERSIONS = 34, AT_REGIONS = 38, AT_LOG2 = 44, AGAIN = 20 };

static void put16(uint8_t *at, uint16_t value) {
    memcpy(at, &value, sizeof value);
}

static void *greet_and_go(void *mute) {
    uint8_t hello[MESSAGE] = {0};
    put16(hello, HELLO);
    put16(hello + AT_VERSIONS, 2 << 8);
    put16(hello + AT_VERSIONS + 2, 2 << 8);
    put16(hello + AT_REGIONS, 1);
    hello[AT_LOG2] = 10;
    for (int visitor; (visitor = accept(*(int *)mute, NULL, NULL)) >= 0;) {
        CHECK(send(visitor, hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
        close(visitor);
    }
    return NULL;
}

/* What the client's driver says then goes to nobody: SIGPIPE would end this process. */
static void greeted_by_who_goes(void) {
    pthread_t other;
    int mute = make_socket(SOCK_SEQPACKET);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR && listen(mute, AGAIN) == 0);
    CHECK(pthread_create(&other, NULL, greet_and_go, &mute) == 0);
    for (int i = 0; i < AGAIN; i++) {
        gives_up(SHORT_NS, "Broken pipe");
    }
    CHECK(shutdown(mute, SHUT_RDWR) == 0 && pthread_join(other, NULL) == 0);
    CHECK(close(mute) == 0 && unlink(path) == 0);
    check_group("a client whose server greets it and goes: no signal ends it");
}

/* ---- two at once ---- */

static void meet(uint32_t times) {
    atomic_fetch_add(&told->arrived, 1);
    while (atomic_load(&told->arrived) < times * RACERS) {
        sched_yield();
    }
}

static void stop_here(int number) {
    const struct timespec nap = {0, STOPPED_NS};
    (void)number;
    nanosleep(&nap, NULL);
}

static void stop_now_and_then(void) {
    struct sigaction action = {.sa_handler = stop_here, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, STOP_EVERY_US}, {0, STOP_EVERY_US}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void race(int leaves_stale) {
    char error[RP_URL_ERROR_BYTES];
    struct rp_peer own;
    struct rp_port *port = open_port("dpdk://10.0.0.1:7400?vdev=net_ring", 1, &own);
    rp_port_close(port); /* DPDK runs from here on */
    stop_now_and_then();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (leaves_stale && round % 2) {
            close(make_socket(SOCK_SEQPACKET));
        }
        meet(3 * round + 1);
        int status = try_open(&port, "", 1, error);
        int refused = status && strstr(error, "a server has that socket already");
        atomic_fetch_add(&told->opened[round], status == 0); /* judged when all rounds are over */
        atomic_fetch_add(&told->refused[round], refused);
        if (status && !refused) {
            fprintf(stderr, "round %u: %s\n", round, error);
        }
        meet(3 * round + 2);
        if (port) {
            rp_port_close(port);
        }
        unlink(path);
        meet(3 * round + 3);
    }
    _exit(0);
}

static void two_at_once(void) {
    pid_t racers[RACERS];
    int status;
    for (int i = 0; i < RACERS; i++) {
        fflush(stdout);
        racers[i] = fork();
        CHECK(racers[i] >= 0);
        if (racers[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            race(i == 0);
        }
    }
    for (int i = 0; i < RACERS; i++) {
        CHECK(waitpid(racers[i], &status, 0) == racers[i] && status == 0, "racer %d: %d", i,
              status);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        CHECK(told->opened[round] == 1 && told->refused[round] == 1,
              "%u servers in round %u, %u refused", told->opened[round], round,
              told->refused[round]);
    }
    check_group("two servers at one socket at once, a hundred times: one serves");
}

/* ---- a folder of somebody else's ---- */

static char contested[80], spare[80], victim[80];

/* Its owner puts a link to another file in the place of each socket that is bound there. A hard one
 * to another user's socket: hosts where that is allowed are few, so root makes it here. */
static void swap_for_ever(int hard) {
    struct stat about;
    CHECK(hard || (setgid(STRANGER) == 0 && setuid(STRANGER) == 0));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        (void)!(hard ? link : symlink)(victim, spare);
        if (lstat(contested, &about) == 0 && S_ISSOCK(about.st_mode)) {
            (void)rename(spare, contested);
        }
    }
}

static void make_victim(int hard) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(victim, sizeof victim, "%s.victim", folder);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", victim);
    int file = hard ? socket(AF_UNIX, SOCK_SEQPACKET, 0) : open(victim, O_CREAT | O_WRONLY, 0600);
    CHECK(!hard || bind(file, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(file >= 0 && chmod(victim, 0600) == 0 && close(file) == 0);
}

static void swapped(int hard) {
    char error[RP_URL_ERROR_BYTES];
    const struct itimerval never = {0};
    struct rp_port *port;
    struct rp_peer own;
    struct stat about;
    int status;
    snprintf(folder, sizeof folder, "/run/test_socket_%d", (int)getpid());
    snprintf(contested, sizeof contested, "%s/memif", folder);
    snprintf(spare, sizeof spare, "%s/spare", folder);
    CHECK(mkdir(folder, 0755) == 0 && chown(folder, STRANGER, STRANGER) == 0);
    make_victim(hard);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        swap_for_ever(hard);
    }
    stop_now_and_then();
    for (int i = 0; i < SWAPS; i++) {
        if (open_at(&port, contested, "", 1, &own, error) == 0) {
            rp_port_close(port);
        }
        (void)unlink(contested);
        CHECK(stat(victim, &about) == 0 && (about.st_mode & 07777) == 0600,
              "the mode of another file is %o now", about.st_mode);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    (void)unlink(spare);
    (void)unlink(contested);
    CHECK(unlink(victim) == 0 && rmdir(folder) == 0);
    check_group(hard ? "nor a socket that a hard link leads to"
                     : "a folder whose owner swaps files: no file of others has its mode changed");
}

/* ---- whose a client goes to ---- */

static struct rp_port *serve_at(const char *at) {
    char error[RP_URL_ERROR_BYTES] = "";
    struct rp_port *port;
    struct rp_peer own;
    CHECK(open_at(&port, at, "", 1, &own, error) == 0, "%s", error);
    CHECK(chmod(at, 0777) == 0);
    return port;
}

static void receive(struct rp_port *port) {
    struct rp_packet packets[RP_BURST];
    uint32_t count = rp_port_transport(port)->rx_burst(port, packets, RP_BURST);
    if (count) {
        rp_port_transport(port)->rx_release(port, packets, count);
        atomic_fetch_add(&told->received, count);
    }
}

/* Another user, who serves where anybody may write, and in a folder of its own. */
static void be_stranger(void) {
    (void)loaded_object(); /* while its file can be read */
    CHECK(setgid(STRANGER) == 0 && setuid(STRANGER) == 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which a change of user forgets */
    CHECK(unsetenv("XDG_RUNTIME_DIR") == 0 && unsetenv("RUNTIME_DIRECTORY") == 0);
    refuses("", 1, RP_SYSTEM, "set XDG_RUNTIME_DIR to one"); /* somebody else made what it would */
    CHECK(setenv("XDG_RUNTIME_DIR", folder, 1) == 0);
    char lock[96]; /* as others could open it, and hold every name */
    snprintf(lock, sizeof lock, "%s/replay-server.lock", folder);
    int file = open(lock, O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK(file >= 0 && fchmod(file, 0640) == 0 && close(file) == 0);
    refuses("", 1, RP_SYSTEM, "set XDG_RUNTIME_DIR to one");
    CHECK(unlink(lock) == 0);
    struct rp_port *anywhere = serve_at(path), *at_home = serve_at(inside);
    told->served = 1;
    while (!told->ends) {
        receive(at_home);
        if (told->serves_again) {
            rp_port_close(at_home);
            at_home = serve_at(inside);
            told->serves_again = 0;
            told->served++;
        }
    }
    rp_port_close(anywhere);
    rp_port_close(at_home);
    _exit(0);
}

static pid_t start_stranger(void) {
    char squat[64], left[96];
    snprintf(above, sizeof above, "/run/test_socket_%d", (int)getpid());
    snprintf(folder, sizeof folder, "%s/own", above);
    snprintf(inside, sizeof inside, "%s/memif", folder);
    CHECK(mkdir(above, 0755) == 0 && mkdir(folder, 0755) == 0);
    CHECK(chown(folder, STRANGER, STRANGER) == 0);
    snprintf(squat, sizeof squat, "/tmp/replay-server-%d", STRANGER);
    snprintf(left, sizeof left, "%s/replay-server.lock", squat); /* by a run that failed */
    (void)unlink(left);
    (void)rmdir(squat);
    CHECK(mkdir(squat, 0777) == 0 && chmod(squat, 0777) == 0, "%s is to be removed", squat);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        be_stranger();
    }
    for (int tries = 0; !told->served; tries++) {
        CHECK(tries < TRIES && waitpid(child, NULL, WNOHANG) == 0, "the stranger does not serve");
        usleep(1000);
    }
    CHECK(rmdir(squat) == 0);
    return child;
}

static void write_to(const char *name, const char *text) {
    int file = open(name, O_WRONLY);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "%s", name);
    close(file);
}

/* This user is the only one in a namespace of its own, by the number that all others have there,
 * the stranger too. */
static void visit_nobody(void) {
    static const char refused[] = "user 65534 listens at that socket";
    int status;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)loaded_object(); /* while its file can be read */
        CHECK(unshare(CLONE_NEWUSER) == 0);
        write_to("/proc/self/uid_map", "65534 0 1");
        CHECK(geteuid() == STRANGER);
        refuses_at(path, "", 0, RP_SYSTEM, refused);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%d", status);
}

static void send_one(struct rp_port *port, const struct rp_peer *peer) {
    const struct rp_transport *transport = rp_port_transport(port);
    struct rp_packet packet = {.peer = *peer};
    CHECK(transport->tx_lease(port, &packet, 1) == 1);
    memset(packet.data, 7, BYTES);
    packet.peer = *peer;
    packet.size = BYTES;
    transport->tx_send(port, &packet, 1);
}

static uint64_t fact(struct rp_port *port, const char *name) {
    struct rp_fact facts[RP_FACTS_MAX];
    uint32_t count = rp_port_facts(port, facts);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp((const char *)facts[i].name, name) == 0) {
            return facts[i].value;
        }
    }
    CHECK(0, "no fact is called %s", name);
    return 0;
}

static void until_received(struct rp_port *port, const struct rp_peer *peer) {
    uint32_t before = told->received;
    struct rp_packet answer;
    for (int tries = 0; told->received == before; tries++) {
        CHECK(tries < TRIES, "nothing arrives");
        send_one(port, peer);
        if (rp_port_transport(port)->rx_burst(port, &answer, 1)) {
            rp_port_transport(port)->rx_release(port, &answer, 1);
        }
        usleep(1000);
    }
}

static void spoil(int how, int spoiled) {
    const char *where = how < 2 ? folder : above;
    mode_t mode = how == 0 || how == 2 ? 0777 : how == 1 || how == 3 ? 0775 : 0755;
    CHECK(chmod(where, spoiled ? mode : 0755) == 0);
    CHECK(how < 4 || chown(above, spoiled ? STRANGER - 1 : 0, 0) == 0);
}

/* Its server comes anew where others could have put another one in its place. */
static void visit_spoiled(struct rp_port *port, const struct rp_peer *peer, int how) {
    spoil(how, 1);
    told->serves_again = 1;
    for (int tries = 0; told->serves_again; tries++) {
        CHECK(tries < TRIES);
        usleep(1000);
    }
    uint32_t before = told->received;
    uint64_t refused = fact(port, "memif_servers_refused");
    for (int tries = 0; fact(port, "memif_servers_refused") == refused; tries++) {
        CHECK(tries < TRIES, "its client connects to whoever listens there, %d", how);
        send_one(port, peer);
        usleep(1000);
    }
    CHECK(told->received == before);
    spoil(how, 0);
    until_received(port, peer);
}

static void visit_stranger(pid_t stranger) {
    static const char refused[] = "user 65534 listens at that socket";
    char error[RP_URL_ERROR_BYTES] = "", way[64], linked[80];
    snprintf(way, sizeof way, "/run/test_socket_link_%d", (int)getpid());
    snprintf(linked, sizeof linked, "%s/memif", way);
    struct rp_port *port;
    struct rp_peer peer;
    int status;
    refuses_at(path, "", 0, RP_SYSTEM, refused);
    CHECK(chown(folder, 0, 0) == 0);
    refuses_at(inside, "", 0, RP_SYSTEM, refused);
    CHECK(chown(folder, STRANGER, STRANGER) == 0 && chown(above, STRANGER, 0) == 0
          && symlink(folder, way) == 0);
    refuses_at(linked, "", 0, RP_SYSTEM, refused); /* it could put another folder there */
    CHECK(chown(above, 0, 0) == 0);
    CHECK(open_at(&port, linked, "", 0, &peer, error) == 0 && unlink(way) == 0, "%s", error);
    rp_port_close(port);
    CHECK(open_at(&port, inside, "", 0, &peer, error) == 0, "%s", error);
    until_received(port, &peer);
    CHECK(fact(port, "memif_servers_refused") == 0);
    for (int how = 0; how < 5; how++) {
        visit_spoiled(port, &peer, how);
    }
    rp_port_close(port);
    told->ends = 1;
    CHECK(waitpid(stranger, &status, 0) == stranger && status == 0);
    snprintf(error, sizeof error, "%s/replay-server.lock", folder);
    CHECK(unlink(error) == 0 && rmdir(folder) == 0 && rmdir(above) == 0);
    check_group("a client's server: root's, its own user's, or in a folder of that server's own");
}

int main(void) {
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    snprintf(path, sizeof path, "/tmp/test_socket_%d", (int)getpid());
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    alarm(SECONDS);
    opens_to_crowd(); /* before DPDK runs here: it does not outlive a fork */
    two_at_once();
    if (geteuid() == 0) {
        pid_t stranger = start_stranger();
        visit_nobody();
        visit_stranger(stranger);
    }
    whose();
    how_long();
    greeted_by_who_goes();
    if (geteuid() == 0) {
        swapped(0);
        swapped(1);
    }
    return check_done("test_socket");
}
