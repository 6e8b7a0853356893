/* The socket of a memif server: whose it is, and that one server has it.
 *
 * In each round two processes open a server at one path at the same moment, in every other round
 * where a killed one left its socket. Expect one to serve there and the other to be told so. A
 * timer stops both at odd moments, so that one is often found between any two of its steps.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "open_port.h"
#include "status.h"

enum { RACERS = 2, ROUNDS = 100, SECONDS = 120, ANY_GROUP = 1, STOP_EVERY_US = 171,
       STOPPED_NS = 150000 };

static struct told {
    _Atomic uint32_t arrived;          /* at barriers, ever */
    _Atomic uint32_t opened[ROUNDS];
    _Atomic uint32_t refused[ROUNDS];
} *told;

static char path[64];

static int try_open(struct rp_port **port, const char *more, int serve, char *error)
{
    char url[RP_URL_TEXT_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {.serve = serve};
    struct rp_peer peer;
    *port = NULL;
    snprintf(url, sizeof url, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=%s%s", path, more);
    return rp_port_open(port, url, &options, &peer, bound, error);
}

/* ---- whose it is ---- */

static void opens_as(const char *more, mode_t mask, gid_t group)
{
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

static void refuses(const char *more, int serve, int status, const char *says)
{
    char error[RP_URL_ERROR_BYTES] = "";
    struct rp_port *port;
    int got = try_open(&port, more, serve, error);
    CHECK(got == -status && !port && strstr(error, says), "%d %s", got, error);
}

static int make_socket(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, type, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    CHECK(file >= 0 && bind(file, (struct sockaddr *)&address, sizeof address) == 0);
    return file;
}

static void whose(void)
{
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
    refuses(",group=no-such-group", 1, RP_SYSTEM, "group= is a group of this host");
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
    check_group("a path that is taken by something else is left alone");
}

/* ---- two at once ---- */

static void meet(uint32_t times)
{
    atomic_fetch_add(&told->arrived, 1);
    while (atomic_load(&told->arrived) < times * RACERS) {
        sched_yield();
    }
}

static void stop_here(int number)
{
    const struct timespec nap = {0, STOPPED_NS};
    (void)number;
    nanosleep(&nap, NULL);
}

static void stop_now_and_then(void)
{
    struct sigaction action = {.sa_handler = stop_here, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, STOP_EVERY_US}, {0, STOP_EVERY_US}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void race(int leaves_stale)
{
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

static void two_at_once(void)
{
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

int main(void)
{
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    snprintf(path, sizeof path, "/tmp/test_socket_%d", (int)getpid());
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    alarm(SECONDS);
    two_at_once(); /* before DPDK runs here: it does not outlive a fork */
    whose();
    return check_done("test_socket");
}
