/* Files that a memif peer sent have a list of who watches them, which the peer can make as long as
 * it likes: whoever writes there, or is put into it, is held as long. Expect a port that never
 * does: its thread may make the system calls below and no other, on the server's own files, while a
 * peer is called, calls, and is expelled. And which a word of a peer's does not keep awake.
 */
#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "by_hand.h"
#include "open_port.h"

enum { EPOLLS = 200, NUMBERS = 700, FILES = 4096, CALL_MS = 50, WITHIN_MS = 10000 };
enum { SECONDS = 60, ROUNDS = 20, GROWN = 12, OWN_FILES = 128, FRAME = 2048, TRIES = 20000 };

static const uint64_t HOUR_NS = 3600000000000ull;
static const char path[] = "test_watched.socket";
static struct rp_port *port;
static _Atomic uint32_t sleeps, woken; /* that began; that ended because something had come */
static _Atomic int ends;

/* ---- the port's thread ---- */

static void tell_call(int signal, siginfo_t *about, void *unused) {
    (void)signal, (void)unused;
    char told[64];
    int size = snprintf(told, sizeof told, "the port made system call %d\n", about->si_syscall);
    _exit(write(STDERR_FILENO, told, (size_t)size) != 0);
}

/* In this thread, from now on. Any of them ends it otherwise: write() to a file that came later. */
static void forbid_calls(void) {
    static const uint32_t allowed[] = {
#ifdef SYS_epoll_wait
        SYS_epoll_wait,
#endif
        SYS_futex, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_prctl, SYS_nanosleep, SYS_madvise,
        SYS_clock_nanosleep, SYS_sched_yield, SYS_rt_sigprocmask, SYS_exit, SYS_exit_group};
    enum { ALLOWED = sizeof allowed / sizeof allowed[0] };
    const uint32_t number = offsetof(struct seccomp_data, nr);
    const uint32_t file_of = offsetof(struct seccomp_data, args[0]);
    struct sock_filter rules[ALLOWED * 2 + 6];
    unsigned short count = 0;
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number);
    for (size_t i = 0; i < ALLOWED; i++) {
        rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3);
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, file_of);
    rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, OWN_FILES, 1, 0);
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog all = {count, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0, "no filter of system calls here");
}

static void *serve(void *unused) {
    struct rp_packet packets[RP_BURST];
    const struct rp_transport *transport = rp_port_transport(port);
    (void)transport->rx_burst(port, packets, RP_BURST); /* DPDK gets to know this thread */
    forbid_calls();
    while (!ends) {
        sleeps++;
        woken += transport->wait(port, HOUR_NS) != 0;
        transport->rx_release(port, packets, transport->rx_burst(port, packets, RP_BURST));
    }
    return unused;
}

/* Until it has slept in vain so often that its sleeps are long. */
static void await_sleep(void) {
    uint32_t first = sleeps;
    for (int tries = 0; sleeps - first < GROWN; tries++) {
        CHECK(tries < TRIES, "the port does not sleep");
        usleep(1000);
    }
}

/* ---- the peer ---- */

static uint16_t asked; /* questions, each answered in a slot of the other ring */

static _Atomic uint16_t *word(uint32_t way, uint32_t at) {
    return (_Atomic uint16_t *)(void *)(memory + way * RING + at);
}

static void write_slot(uint32_t way, uint32_t index, uint32_t size) {
    uint8_t *slot = memory + way * RING + RP_MEMIF_AT_SLOTS + (index << 4);
    uint32_t words[] = {size, 2 * RING + (way << LOG2) * FRAME + index * FRAME};
    memset(slot, 0, RP_MEMIF_SLOT);
    memcpy(slot + 4, words, sizeof words);
}

/* Who has 10.0.0.1? */
static void ask(int calls) {
    static const uint8_t question[] = {
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1,
        2, 0, 0, 0, 0, 9, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1};
    uint32_t index = asked++ % (1 << LOG2);
    write_slot(0, index, sizeof question);
    write_slot(1, index, FRAME);
    memcpy(memory + 2 * RING + index * FRAME, question, sizeof question);
    atomic_store(word(1, RP_MEMIF_AT_HEAD), asked);
    atomic_store(word(0, RP_MEMIF_AT_HEAD), asked);
    CHECK(eventfd_write(calls, 1) == 0);
}

static void come(int calls, int called) {
    lend_new(0);
    CHECK(lend(path, 0) == RP_MEMIF_ACK && start_rings(calls, called) == RP_MEMIF_CONNECTED);
    atomic_store(word(1, RP_MEMIF_AT_FLAGS), 0); /* it is to be called */
    asked = 0;
}

static void call_both(int calls, int bell) {
    uint32_t before = woken;
    char said;
    for (int round = 0; round < ROUNDS; round++) {
        await_sleep();
        ask(calls);
        CHECK(recv(bell, &said, 1, 0) == 1, "a peer is not called");
        CHECK(atomic_load(word(1, RP_MEMIF_AT_TAIL)) == asked, "but no answer is there");
    }
    CHECK(woken - before > ROUNDS / 2, "the port was woken %u times of %d", woken - before, ROUNDS);
    check_group("a peer calls and is called: the port touches files of the server's alone");
}

static int unread(int bell) {
    int bytes = 0;
    CHECK(ioctl(bell, FIONREAD, &bytes) == 0);
    return bytes;
}

/* What is sent would be the server's memory for as long as the peer likes. */
static void leave_unread(int calls, int bell) {
    uint8_t said[RP_MEMIF_MESSAGE] = {RP_MEMIF_INIT};
    for (int round = 0; round < ROUNDS; round++) {
        ask(calls);
        await_sleep();
    }
    CHECK(unread(bell) == 1, "%d calls wait to be read", unread(bell));
    CHECK(recv(bell, said, 1, 0) == 1);
    ask(calls);
    CHECK(recv(bell, said, 1, 0) == 1, "a peer that reads again is not called");
    check_group("who does not read its calls is called once");
    close(file);
    end_loan();
    connect_to(path);
    said[0] = RP_MEMIF_INIT;
    said[3] = VERSION >> 8;
    CHECK(send(file, said, sizeof said, 0) == sizeof said);
    struct pollfd gone = {file, POLLRDHUP, 0}; /* what is read meanwhile would be read in time */
    CHECK(poll(&gone, 1, WITHIN_MS) == 1, "who reads no answer stays");
    CHECK(recv(file, said, sizeof said, 0) == sizeof said && said[0] == RP_MEMIF_HELLO);
    CHECK(recv(file, said, sizeof said, 0) == 0, "who reads no answer is answered again");
    close(file);
    check_group("who does not read its answers is sent away");
}

/* ---- what the port sleeps on ---- */

static int is_kind(int number, const char *kind) {
    char name[64], link[64] = "";
    snprintf(name, sizeof name, "/proc/self/fd/%d", number);
    return readlink(name, link, sizeof link - 1) > 0 && strcmp(link, kind) == 0;
}

/* Files of one kind in an epoll. */
static uint32_t count_in(int epoll, const char *kind) {
    char name[64], line[256];
    uint32_t count = 0;
    int number;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", epoll);
    FILE *about = fopen(name, "r");
    CHECK(about);
    while (fgets(line, sizeof line, about)) {
        count += sscanf(line, "tfd: %d", &number) == 1 && is_kind(number, kind);
    }
    fclose(about);
    return count;
}

static void look_at_epolls(void) {
    static const char epoll[] = "anon_inode:[eventpoll]", eventfd_name[] = "anon_inode:[eventfd]";
    uint32_t found = 0;
    for (int number = 3; number < 2 * OWN_FILES; number++) {
        if (is_kind(number, epoll) && count_in(number, epoll)) {
            found++;
            CHECK(count_in(number, eventfd_name) == 1, "a port sleeps on a peer's file");
        }
    }
    CHECK(found == 1, "%u epolls hear others", found);
    check_group("a peer's file is in an epoll of its own");
}

/* ---- what a peer writes ---- */

static void keep_awake(void) {
    await_sleep();
    atomic_store(word(0, RP_MEMIF_AT_TAIL), (uint16_t)(asked + 1));
    await_sleep();
    uint32_t before = woken;
    await_sleep();
    CHECK(woken == before, "the port was woken %u times", woken - before);
    check_group("a tail that a peer moved itself keeps nobody awake");
}

/* In so many epolls by so many numbers: whoever sends to its other end goes through all. */
static void watch(int watched, int *epolls) {
    static int numbers[NUMBERS];
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    for (int i = 0; i < NUMBERS; i++) {
        CHECK((numbers[i] = dup(watched)) >= 0);
    }
    for (int i = 0; i < EPOLLS; i++) {
        CHECK((epolls[i] = epoll_create1(0)) >= 0);
        for (int k = 0; k < NUMBERS; k++) {
            CHECK(epoll_ctl(epolls[i], EPOLL_CTL_ADD, numbers[k], &event) == 0);
        }
    }
    for (int i = 0; i < NUMBERS; i++) {
        close(numbers[i]);
    }
}

static void forget(const int *epolls) {
    for (int i = 0; i < EPOLLS; i++) {
        close(epolls[i]);
    }
}

/* The server answers all the same, and calls within CALL_MS, or not for long. */
static void cost_much(int calls, int bell) {
    static int epolls[EPOLLS];
    char said[ROUNDS];
    ssize_t heard = 0;
    watch(bell, epolls);
    for (int round = 0; round < ROUNDS; round++) {
        ask(calls);
        for (int tries = 0; atomic_load(word(1, RP_MEMIF_AT_TAIL)) != asked; tries++) {
            CHECK(tries < TRIES, "a question is not answered");
            usleep(100);
        }
        struct pollfd call = {bell, POLLIN, 0};
        (void)poll(&call, 1, CALL_MS);
        ssize_t some = recv(bell, said, sizeof said, MSG_DONTWAIT);
        heard += some > 0 ? some : 0;
    }
    CHECK(heard <= ROUNDS / 2, "who takes long to call was called %d times of %d", (int)heard,
          ROUNDS);
    forget(epolls);
    check_group("a peer that takes long to call is called seldom");
}

static void make_answer_long(void) {
    static const uint32_t cookie = RP_MEMIF_COOKIE;
    static int epolls[EPOLLS];
    char said;
    lend_new(0);
    CHECK(lend(path, 1) == RP_MEMIF_ACK);
    memcpy(memory, &cookie, sizeof cookie);
    watch(file, epolls);
    CHECK(talk(RP_MEMIF_ADD_RING, 1, 0, 0, -1) == RP_MEMIF_ACK);
    CHECK(recv(file, &said, 1, 0) == 0, "who takes long to answer is answered again");
    forget(epolls);
    close(file);
    end_loan();
    check_group("who takes long to answer is sent away");
}

static void lie(int calls) {
    char said;
    await_sleep();
    atomic_store(word(0, RP_MEMIF_AT_HEAD), (uint16_t)(asked + 5000));
    CHECK(eventfd_write(calls, 1) == 0);
    CHECK(recv(file, &said, 1, 0) == 0, "a peer that lies is not sent away");
    close(file);
    end_loan();
    check_group("a peer that lies is expelled without a call about it");
}

int main(void) {
    struct sigaction trap = {.sa_sigaction = tell_call, .sa_flags = SA_SIGINFO};
    char url[RP_URL_TEXT_BYTES], folder[] = "/tmp/test_watched_XXXXXX";
    struct rp_peer own;
    pthread_t thread;
    int bell[2], calls = eventfd(0, EFD_NONBLOCK);
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    alarm(SECONDS);
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max < FILES ? files.rlim_max : FILES;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(mkdtemp(folder) && chdir(folder) == 0);
    CHECK(sigaction(SIGSYS, &trap, NULL) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, bell) == 0);
    snprintf(url, sizeof url, "dpdk://10.0.0.1:7400?vdev=net_memif,links=2,socket=%s/%s", folder,
             path);
    port = open_port(url, 1, &own);
    while (dup(0) < OWN_FILES) {
    }
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    for (int visit = 0; visit < 2; visit++) {
        come(calls, bell[1]);
        call_both(calls, bell[0]);
        look_at_epolls();
        keep_awake();
        lie(calls);
    }
    come(calls, bell[1]);
    leave_unread(calls, bell[0]);
    come(calls, bell[1]);
    cost_much(calls, bell[0]);
    lie(calls);
    make_answer_long();
    ends = 1;
    pthread_join(thread, NULL);
    rp_port_close(port);
    CHECK(chdir("/") == 0 && rmdir(folder) == 0, "its socket stays behind");
    return check_done("test_watched");
}
