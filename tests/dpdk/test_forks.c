/* Processes of memif that fork, a data loader say, and are killed while their children live.
 *
 * A child is started by fork(), or by clone(2) alone, which no library hears of. Expect of a killed
 * server that its peers learn of it and the next one serves at its socket; of a killed client that
 * its lane is free for the next one. Who really serves goes on to refuse others. A child of a
 * process in which another thread starts DPDK is refused, and does not wait for that thread. Nor
 * does one whose parent's other thread loads the object.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "by_hand.h"
#include "open_port.h"
#include "protocol/status.h"

enum { SECONDS = 120, TRIES = 20000, GREETING = 128, LOADS_US = 20000, FORKS = 20 };
enum how { BY_FORK, BY_CLONE, HOWS };

static struct told {
    _Atomic int child; /* of the process that is to be killed */
} *told;

static char path[64];

static int lane; /* that clients ask for; there is one, 0 */

static int try_open(struct rp_port **port, int serve, char *error) {
    char url[RP_URL_TEXT_BYTES], bound[RP_URL_TEXT_BYTES];
    struct rp_port_options options = {.serve = serve};
    struct rp_peer peer;
    *port = NULL;
    snprintf(url, sizeof url, "dpdk://10.0.0.1:7400?vdev=net_memif,socket=%s,%s=%d", path,
             serve ? "links" : "id", serve ? 1 : lane);
    return rp_port_open(port, url, &options, &peer, bound, error);
}

static pid_t start_process(void) {
    fflush(stdout);
    pid_t started = fork();
    CHECK(started >= 0);
    if (started == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(SECONDS);
    }
    return started;
}

/* In a process of its own: 0, it opened. */
static int opens(int serve, const char *says) {
    char error[RP_URL_ERROR_BYTES] = "";
    struct rp_port *port;
    int status;
    pid_t process = start_process();
    if (process == 0) {
        int failed = try_open(&port, serve, error);
        if (!failed) {
            rp_port_close(port);
        } else if (!says || !strstr(error, says)) {
            fprintf(stderr, "%s\n", error);
            _exit(2);
        }
        _exit(failed != 0);
    }
    CHECK(waitpid(process, &status, 0) == process && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* One that opens, has a child and looks after its port until it is killed. */
static pid_t start_parent(int serve, enum how how) {
    char error[RP_URL_ERROR_BYTES] = "";
    told->child = 0;
    pid_t parent = start_process();
    if (parent == 0) {
        struct rp_port *port;
        CHECK(try_open(&port, serve, error) == 0, "%s", error);
        pid_t child = how == BY_FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0);
        if (child == 0) {
            alarm(SECONDS);
            for (;;) {
                pause();
            }
        }
        told->child = child;
        for (;;) {
            pause();
        }
    }
    for (int tries = 0; !told->child; tries++) {
        CHECK(tries < TRIES && waitpid(parent, NULL, WNOHANG) == 0, "it does not open");
        usleep(1000);
    }
    return parent;
}

static void end_process(pid_t process) {
    CHECK(kill(process, SIGKILL) == 0 && waitpid(process, NULL, 0) == process);
}

static void end_child(void) {
    CHECK(kill(told->child, SIGKILL) == 0);
}

/* Connected, once somebody listens. */
static int visit(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int visitor = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    for (int tries = 0; connect(visitor, (struct sockaddr *)&address, sizeof address); tries++) {
        CHECK(visitor >= 0 && tries < TRIES, "nobody listens there");
        usleep(1000);
    }
    return visitor;
}

static void servers(void) {
    char message[GREETING];
    for (enum how how = BY_FORK; how < HOWS; how++) {
        pid_t parent = start_parent(1, how);
        CHECK(opens(1, "a server has that socket already") == 1, "beside one that lives");
        end_process(parent);
        CHECK(opens(1, NULL) == 0, "its child keeps the next server out, %d", how);
        end_child();
    }
    check_group("a killed server whose child lives: the next one serves at its socket");
    pid_t parent = start_parent(1, BY_FORK);
    end_child();
    int visitor = visit();
    CHECK(recv(visitor, message, sizeof message, 0) == sizeof message && close(visitor) == 0);
    end_process(parent);
    check_group("a server goes on when its child ends");
}

static void peers(void) {
    char message[GREETING];
    int bell[2], calls = eventfd(0, 0);
    told->child = 0;
    pid_t parent = start_process();
    if (parent == 0) { /* it forks when it has a peer */
        char error[RP_URL_ERROR_BYTES] = "";
        struct rp_port *port;
        sigset_t asked;
        int number;
        sigemptyset(&asked);
        sigaddset(&asked, SIGUSR1);
        sigprocmask(SIG_BLOCK, &asked, NULL);
        CHECK(try_open(&port, 1, error) == 0, "%s", error);
        CHECK(sigwait(&asked, &number) == 0);
        pid_t child = fork();
        alarm(SECONDS);
        told->child = child ? child : told->child;
        for (;;) {
            pause();
        }
    }
    int greeted = visit();
    CHECK(recv(greeted, message, sizeof message, 0) == sizeof message);
    lend_new(0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, bell) == 0);
    CHECK(lend(path, 0) == RP_MEMIF_ACK && start_rings(calls, bell[1]) == RP_MEMIF_CONNECTED);
    CHECK(close(bell[1]) == 0 && has_lent_memory(parent));
    CHECK(kill(parent, SIGUSR1) == 0);
    for (int tries = 0; !told->child; tries++) {
        CHECK(tries < TRIES);
        usleep(1000);
    }
    CHECK(!has_lent_memory(told->child), "it has the memory of a peer");
    end_process(parent);
    struct timeval bound = {SECONDS / 2, 0};
    CHECK(setsockopt(greeted, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) == 0);
    CHECK(recv(greeted, message, sizeof message, 0) == 0, "its peer does not learn of it");
    CHECK(setsockopt(bell[0], SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) == 0);
    CHECK(recv(bell[0], message, sizeof message, 0) == 0, "it has a file to call a peer by");
    CHECK(close(greeted) == 0 && close(file) == 0 && close(bell[0]) == 0 && close(calls) == 0);
    end_loan();
    end_child();
    check_group("a killed server whose child lives: its peers learn of it, and it has nothing of "
                "theirs");
}

static void clients(void) {
    char error[RP_URL_ERROR_BYTES] = "";
    pid_t server = start_process();
    if (server == 0) {
        struct rp_port *port;
        CHECK(try_open(&port, 1, error) == 0, "%s", error);
        for (;;) {
            pause();
        }
    }
    CHECK(close(visit()) == 0);
    pid_t client = start_parent(0, BY_FORK);
    end_process(client);
    CHECK(opens(0, NULL) == 0, "its child keeps the next client from its lane");
    end_child();
    lane = 1;
    CHECK(opens(0, "no link is free") == 1, "a lane beyond those there are");
    end_process(server);
    check_group("a killed client whose child lives: its lane is free for the next one");
}

static void *open_one(void *unused) {
    char error[RP_URL_ERROR_BYTES] = "";
    struct rp_port *port;
    CHECK(try_open(&port, 1, error) == 0, "%s", error);
    return unused;
}

static int count_threads(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    CHECK(folder);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count - 2; /* . and .. */
}

/* One thread of a process opens a port, in a thread of its own DPDK starts: then it forks. */
static void starting(void) {
    int status;
    pid_t parent = start_process();
    if (parent == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, open_one, NULL) == 0);
        for (int tries = 0; count_threads() < 3; tries++) {
            CHECK(tries < 100 * TRIES, "nothing starts");
        }
        pid_t child = start_process();
        if (child == 0) {
            char error[RP_URL_ERROR_BYTES] = "";
            struct rp_port *port;
            alarm(SECONDS / 4);
            _exit(try_open(&port, 1, error) == -RP_FORKED ? 0 : 1);
        }
        CHECK(waitpid(child, &status, 0) == child && pthread_join(thread, NULL) == 0);
        _exit(status ? 1 : 0);
    }
    CHECK(waitpid(parent, &status, 0) == parent && status == 0, "the child waits for DPDK");
    check_group("a fork while another thread starts DPDK: the child is refused at once");
}

static void *load(void *unused) {
    (void)loaded_object();
    return unused;
}

/* In processes of their own, in none of which the object is loaded yet. Loading takes 10 ms. */
static void loading(void) {
    int status;
    for (useconds_t delay = 0; delay <= LOADS_US; delay += LOADS_US / FORKS) {
        pid_t parent = start_process();
        if (parent == 0) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, load, NULL) == 0);
            usleep(delay);
            pid_t child = start_process();
            if (child == 0) {
                alarm(SECONDS / 12);
                (void)load(NULL);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && pthread_join(thread, NULL) == 0);
            _exit(status ? 1 : 0);
        }
        CHECK(waitpid(parent, &status, 0) == parent && status == 0,
              "forked after %u us, the child waits for a thread of its parent's", delay);
    }
    check_group("a fork while another thread loads the object: the child loads it too");
}

int main(void) {
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    snprintf(path, sizeof path, "/tmp/test_forks_%d", (int)getpid());
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    alarm(SECONDS);
    loading();
    servers();
    (void)unlink(path);
    peers();
    (void)unlink(path);
    clients();
    (void)unlink(path);
    starting();
    (void)unlink(path);
    return check_done("test_forks");
}
