/* A hostile memif peer beside an honest client. The peer speaks the protocol by hand: its rings'
 * words, its descriptors and now and then a message are anything. Expect a server that lives, drops
 * it each time it lies and counts that, and a client beside it that misses nothing.
 *
 * An execution is a slot the server has looked at, or was dropped for. RP_HOSTILE sets how many.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpdk/memif.h"
#include "honest.h"
#include "base/random.h"
#include "stuck.h"

enum {
    LINKS = 4, SECONDS = 900, EXECUTIONS = 50000, LOG2 = 6, SLOTS = 1 << LOG2, FRAME = 2048,
    RING = RP_MEMIF_AT_SLOTS + SLOTS * RP_MEMIF_SLOT, BUFFERS = 8192, SPINS = 64, LOOKS = 10000,
    REGION = BUFFERS + 2 * SLOTS * FRAME, TRIES = 20000, VERSION = 2 << 8, ARP_BYTES = 42,
};

enum { SILENT = 8, KINDS = 8, FILES_MAX = 3, LONELY_MS = 10000 };

static struct rp_random chance;
static uint32_t files_sent = 1; /* with a message that has some */
static int ring_files[2]; /* sent along with a ring: by which the server is called, and calls */
static int stumbles; /* its messages are wrong now and then */
static uint64_t drops, misspoken, confused; /* lies in memory, in messages, and to itself */

/* ---- the hostile ---- */

static struct hostile {
    int file;
    int region; /* a memfd */
    uint8_t *memory;
    uint16_t heads[2]; /* of the ring to the server, and of the one from it */
} peer;

static void put16(uint8_t *at, uint32_t value) {
    uint16_t narrow = (uint16_t)value;
    memcpy(at, &narrow, sizeof narrow);
}

static void put32(uint8_t *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static uint32_t odd_number(void) {
    static const uint32_t near[] = {0, 7, SLOTS, BUFFERS, REGION, 1 << 16, 0xf0000000, UINT32_MAX};
    uint64_t word = rp_random_next(&chance);
    return word & 1 ? (uint32_t)(word >> 32)
        : near[word >> 8 & 7] + (uint32_t)(word >> 16 & 31) - 16;
}

static int one_in(uint32_t count) {
    return rp_random_below(&chance, count) == 0;
}

static void begin(uint8_t *message, uint32_t type) {
    memset(message, 0, RP_MEMIF_MESSAGE);
    put16(message, type);
}

/* Sends a message, as it is or with a word of it changed, and waits for the answer of that type. */
static int talk(uint8_t *message, int with, uint32_t expected) {
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(FILES_MAX * sizeof(int))];
    } control = {0};
    int files[FILES_MAX] = {with, with, with};
    size_t bytes = (size_t)files_sent * sizeof with;
    struct iovec part = {message, RP_MEMIF_MESSAGE};
    struct msghdr all = {.msg_iov = &part, .msg_iovlen = 1};
    uint8_t answer[RP_MEMIF_MESSAGE];
    if (stumbles && one_in(40)) {
        put16(message + 2 * rp_random_below(&chance, 8), odd_number());
        part.iov_len -= one_in(4) ? rp_random_below(&chance, RP_MEMIF_MESSAGE) : 0;
        misspoken++;
    }
    if (with >= 0) {
        all.msg_control = control.bytes;
        all.msg_controllen = CMSG_SPACE(bytes);
        control.header = (struct cmsghdr){CMSG_LEN(bytes), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), files, bytes);
    }
    return sendmsg(peer.file, &all, MSG_NOSIGNAL) > 0
            && recv(peer.file, answer, sizeof answer, 0) == sizeof answer
            && answer[0] == expected ? 0 : -1;
}

static int greet(uint32_t link) {
    uint8_t message[RP_MEMIF_MESSAGE];
    if (recv(peer.file, message, sizeof message, 0) != sizeof message
        || message[0] != RP_MEMIF_HELLO) {
        return -1;
    }
    begin(message, RP_MEMIF_INIT);
    put16(message + 2, VERSION);
    put32(message + 4, link);
    return talk(message, -1, RP_MEMIF_ACK);
}

static int lend(uint32_t link, int region, uint32_t expected) {
    uint8_t message[RP_MEMIF_MESSAGE];
    if (greet(link)) {
        return -1;
    }
    begin(message, RP_MEMIF_ADD_REGION);
    put32(message + 4, REGION);
    return talk(message, region, expected);
}

static int sealed(unsigned flags, off_t size, int seals) {
    int file = memfd_create("hostile", MFD_ALLOW_SEALING | MFD_CLOEXEC | flags);
    CHECK(file < 0 || (ftruncate(file, size) == 0 && fcntl(file, F_ADD_SEALS, seals) == 0));
    return file;
}

/* New memory, in the place of what was lent before: no server can map that any more. */
static void make_region(void) {
    int region = sealed(0, REGION, F_SEAL_SHRINK), how = MAP_SHARED | MAP_POPULATE;
    how |= peer.memory ? MAP_FIXED : 0;
    uint8_t *memory = mmap(peer.memory, REGION, PROT_READ | PROT_WRITE, how, region, 0);
    CHECK(memory != MAP_FAILED && (!peer.memory || close(peer.region) == 0));
    peer.memory = memory;
    peer.region = region;
}

static int shake_hands(uint32_t link) {
    uint8_t message[RP_MEMIF_MESSAGE];
    make_region();
    if (lend(link, peer.region, RP_MEMIF_ACK)) {
        return -1;
    }
    for (uint32_t way = 0; way < 2; way++) {
        begin(message, RP_MEMIF_ADD_RING);
        put16(message + 2, !way);
        put32(message + 8, way * RING);
        message[12] = LOG2;
        put32(peer.memory + way * RING, RP_MEMIF_COOKIE);
        put16(peer.memory + way * RING + RP_MEMIF_AT_FLAGS, 0); /* calls are wanted */
        int file = stumbles ? stuck[rp_random_below(&chance, STUCK)] : ring_files[way];
        if (talk(message, file, RP_MEMIF_ACK)) {
            return -1;
        }
    }
    begin(message, RP_MEMIF_CONNECT);
    return talk(message, -1, RP_MEMIF_CONNECTED);
}

static int knock(int flags) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, SOCK_SEQPACKET | flags, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    int met = -1;
    for (int tries = 0; met != 0 && tries < 5000; tries++) { /* its queue of visitors may be full */
        met = connect(file, (struct sockaddr *)&address, sizeof address);
        if (met != 0 && errno == EAGAIN) {
            usleep(1000);
        } else {
            break;
        }
    }
    CHECK(file >= 0 && met == 0, "the server is gone: %s", strerror(errno));
    return file;
}

static void come_again(void) {
    for (int tries = 0;; tries++) {
        CHECK(tries < TRIES, "the server lets nobody in any more");
        if (peer.file >= 0) {
            close(peer.file);
        }
        peer.file = knock(0);
        uint32_t link = one_in(16) ? odd_number() % (LINKS + 1) : 1 + (uint32_t)tries % (LINKS - 1);
        if (shake_hands(link) == 0) {
            peer.heads[0] = peer.heads[1] = 0;
            return;
        }
    }
}

static uint16_t read_tail(uint32_t way) {
    return atomic_load((_Atomic uint16_t *)(void *)(peer.memory + way * RING + RP_MEMIF_AT_TAIL));
}

static void write_head(uint32_t way, uint16_t head) {
    atomic_store((_Atomic uint16_t *)(void *)(peer.memory + way * RING + RP_MEMIF_AT_HEAD), head);
}

/* Who has 10.0.0.1? Its answer goes through the ring from the server. */
static void write_arp(uint8_t *frame) {
    static const uint8_t question[ARP_BYTES] = {
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1,
        2, 0, 0, 0, 0, 9, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1};
    memcpy(frame, question, sizeof question);
}

/* A slot of room or of a frame; what is wrong with it is one of its words, most of the time. */
static void write_slot(uint32_t way, uint16_t index) {
    uint32_t at = index % SLOTS, offset = BUFFERS + (way * SLOTS + at) * FRAME;
    uint8_t *slot = peer.memory + way * RING + RP_MEMIF_AT_SLOTS + at * RP_MEMIF_SLOT;
    put16(slot, one_in(50) ? odd_number() : 0);
    put16(slot + 2, one_in(200) ? odd_number() : 0);
    put32(slot + 4, one_in(100) ? odd_number() : way ? FRAME : ARP_BYTES);
    put32(slot + 8, one_in(200) ? odd_number() : offset);
    if (!way) {
        write_arp(peer.memory + offset);
        if (one_in(4)) {
            peer.memory[offset + rp_random_below(&chance, ARP_BYTES)] ^=
                (uint8_t)rp_random_next(&chance);
        }
    }
}

static int is_dropped(void) {
    uint8_t byte;
    return recv(peer.file, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Until the server has looked at all there is, or has dropped this peer: -1. What it answers is
 * written where this peer's slots lead, which may be its own rings: then it comes again too. */
static int await_look(pid_t server) {
    for (uint32_t looks = 0; looks < LOOKS; looks++) {
        for (uint32_t spins = 0; spins < SPINS; spins++) {
            if (read_tail(0) == peer.heads[0]) {
                return 0;
            }
        }
        if (is_dropped()) {
            drops++;
            return -1;
        }
        sched_yield();
    }
    CHECK(waitpid(server, NULL, WNOHANG) == 0, "the server died");
    confused++;
    return -1;
}

static void attack(uint64_t executions, pid_t server, pid_t client) {
    for (uint64_t done = 0; done < executions;) {
        uint32_t count = 1 + (uint32_t)rp_random_below(&chance, 4);
        while ((uint16_t)(peer.heads[1] - read_tail(1)) < SLOTS && !one_in(SLOTS)) {
            write_slot(1, peer.heads[1]++);
        }
        for (uint32_t i = 0; i < count; i++) {
            write_slot(0, peer.heads[0]++);
        }
        done += count;
        write_head(1, one_in(500) ? (uint16_t)odd_number() : peer.heads[1]);
        peer.heads[0] = one_in(500) ? (uint16_t)odd_number() : peer.heads[0];
        write_head(0, peer.heads[0]);
        if (await_look(server)) {
            come_again();
        }
        CHECK(waitpid(client, NULL, WNOHANG) == 0, "the honest client ended");
    }
}

static _Atomic int race_ends;
static _Atomic uint64_t rewritten; /* words, while the server may look at them */

/* Words of descriptors change at any moment, also between two looks at one. */
static void *race(void *unused) {
    struct rp_random own = chance; /* not the attack's: that one stays what its seed says */
    uint64_t words = 0;
    (void)unused;
    while (!race_ends) {
        for (uint32_t i = 0; i < SPINS; i++, words++) {
            uint64_t draw = rp_random_next(&own);
            uint32_t at = RP_MEMIF_AT_SLOTS + (draw >> 8) % (SLOTS * RP_MEMIF_SLOT / 4) * 4;
            uint32_t word = draw & 2 ? (uint32_t)(draw >> 32) % (2 * REGION) : FRAME;
            put32(peer.memory + (draw & 1) * RING + at, word);
        }
        rewritten = words;
        sched_yield();
    }
    return NULL;
}

static void attack_and_race(uint64_t executions, pid_t server, pid_t client) {
    pthread_t racer;
    CHECK(pthread_create(&racer, NULL, race, NULL) == 0);
    attack(executions, server, client);
    race_ends = 1;
    CHECK(pthread_join(racer, NULL) == 0 && rewritten > 0);
}

/* ---- memory that is refused, and those who say nothing ---- */

static uint32_t files_of(pid_t process) {
    char path[64];
    uint32_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    DIR *folder = opendir(path);
    CHECK(folder);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

static void await_files(pid_t process, uint32_t count) {
    for (int tries = 0; files_of(process) != count; tries++) {
        CHECK(tries < TRIES, "%u files, not %u", files_of(process), count);
        usleep(1000);
    }
}

/* How many the kernel has, `more` than before; without one to map, theirs is refused anyway. */
static void change_hugepages(int more) {
    int count = 0;
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "r+");
    if (file && fscanf(file, "%d", &count) == 1 && fseek(file, 0, SEEK_SET) == 0) {
        fprintf(file, "%d\n", count + more);
        fclose(file);
    }
}

/* Regions that could be taken away, block, or are not what their message says. */
static void lend_wrongly(pid_t server) {
    const int kinds[KINDS] = {
        -1, sealed(0, REGION, 0), sealed(0, REGION - 4096, F_SEAL_SHRINK),
        sealed(0, REGION, F_SEAL_SHRINK | F_SEAL_WRITE),
        sealed(MFD_HUGETLB, 1 << 21, F_SEAL_SHRINK), eventfd(0, 0), open("/dev/zero", O_RDWR),
        open("/tmp", O_RDWR | O_TMPFILE, 0600)};
    uint32_t before = files_of(server);
    change_hugepages(1);
    for (int i = 0; i < KINDS; i++) {
        peer.file = knock(0);
        CHECK(lend(1, kinds[i], RP_MEMIF_DISCONNECT) == 0, "memory of kind %d is taken", i);
        uint8_t byte;
        CHECK(recv(peer.file, &byte, 1, 0) == 0);
        close(peer.file);
        if (kinds[i] >= 0) {
            close(kinds[i]);
        }
    }
    await_files(server, before);
    change_hugepages(-1);
    for (files_sent = 2; files_sent <= FILES_MAX; files_sent++) { /* they are not opened */
        peer.file = knock(0);
        CHECK(shake_hands(1) != 0, "%u files are taken", files_sent);
        await_files(server, before);
        close(peer.file);
    }
    files_sent = 1;
    check_group("memory that could be taken away, or is none: refused, and no file kept");
}

/* A server's calls go to a socket of this machine's own, and it is called by an eventfd: any other
 * file could hold it up, or have it send where this peer may not. Such a file is not kept. */
static void call_wrongly(pid_t server) {
    int pair[2], calls = eventfd(0, EFD_NONBLOCK), datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    int elsewhere = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    const struct {
        int files[2]; /* of the ring to the server, and from it */
        uint32_t kept; /* and what an eventfd is heard through */
    } kinds[] = {{{calls, pair[0]}, 3}, {{calls, elsewhere}, 2}, {{calls, datagram}, 2},
                 {{calls, calls}, 2}, {{pair[0], pair[0]}, 1}, {{elsewhere, pair[0]}, 1}};
    uint32_t before = files_of(server);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        memcpy(ring_files, kinds[i].files, sizeof ring_files);
        peer.file = knock(0);
        CHECK(shake_hands(1) == 0);
        await_files(server, before + 1 + kinds[i].kept);
        close(peer.file);
        await_files(server, before);
    }
    memcpy(ring_files, kinds[0].files, sizeof ring_files);
    pid_t other = fork(); /* the socket is another process's, of the same user */
    CHECK(other >= 0);
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        peer.file = knock(0);
        CHECK(shake_hands(1) == 0);
        pause();
    }
    await_files(server, before + 1 + 2);
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
    await_files(server, before);
    ring_files[0] = ring_files[1] = -1;
    close(pair[0]);
    close(pair[1]);
    close(calls);
    close(datagram);
    close(elsewhere);
    check_group("files to call by that are of another kind: not kept");
}

static int is_sent_away(int file) {
    uint8_t greeting[RP_MEMIF_MESSAGE];
    while (recv(file, greeting, sizeof greeting, MSG_DONTWAIT) > 0) {
    }
    return recv(file, greeting, sizeof greeting, MSG_DONTWAIT) == 0;
}

/* More of them than there are links: those who greet ask for one, and send no other message. */
static void say_little(int greets) {
    int files[SILENT];
    for (int i = 0; i < SILENT; i++) {
        files[i] = peer.file = knock(0);
        CHECK(!greets || greet(1 + (uint32_t)i % (LINKS - 1)) == 0, "who only asked has the link");
    }
    peer.file = -1;
    come_again();
    for (int i = 0; i < SILENT; i++) {
        CHECK(is_sent_away(files[i]) == (i == 0), "of those who say nothing the first one goes, "
              "no other: not %d", i);
        close(files[i]);
    }
    close(peer.file);
    peer.file = -1;
    check_group(greets ? "as many who ask for a link, and no more: the first one goes for the next"
                : "as many visitors who say nothing as are let in: the first goes for the next");
}

static void stay_silent(void) {
    struct pollfd alone = {knock(SOCK_NONBLOCK), POLLRDHUP, 0};
    CHECK(poll(&alone, 1, LONELY_MS) == 1, "who says nothing, and is alone, stays");
    close(alone.fd);
    check_group("a visitor who says nothing goes in time, also where nobody else comes");
}

/* ---- frames that do not fit ---- */

enum { ANSWER = 60, SENTINEL = 0xa5, SMALL = 20, LARGE = 2112, FRAMES = 4 };

static void write_plain(uint32_t way, uint16_t index, uint32_t flags, uint32_t size) {
    uint32_t at = index % SLOTS, offset = BUFFERS + (way * SLOTS + at) * FRAME;
    uint8_t *slot = peer.memory + way * RING + RP_MEMIF_AT_SLOTS + at * RP_MEMIF_SLOT;
    put16(slot, flags);
    put16(slot + 2, 0);
    put32(slot + 4, size);
    put32(slot + 8, offset);
    if (!way) {
        write_arp(peer.memory + offset);
    }
}

/* Until the server has looked at as many slots, and has said so of its answers. */
static void send_plain(uint32_t count) {
    peer.heads[0] = (uint16_t)(peer.heads[0] + count);
    write_head(0, peer.heads[0]);
    for (int tries = 0; read_tail(0) != peer.heads[0]; tries++) {
        CHECK(tries < TRIES && !is_dropped(), "the server does not look");
        usleep(100);
    }
}

/* A frame in `count` slots, in as many bursts or in one. */
static void send_chain(uint32_t count, int at_once) {
    for (uint32_t i = 0; i < count; i++) {
        write_plain(0, (uint16_t)(peer.heads[0] + (at_once ? i : 0)),
                    i + 1 < count ? RP_MEMIF_CHAINED : 0, ARP_BYTES);
        if (!at_once) {
            send_plain(1);
        }
    }
    if (at_once) {
        send_plain(count);
    }
}

/* A question whose answer has to go to a slot of `size` bytes, which comes back with `said`. */
static void ask(uint32_t size, uint32_t said) {
    uint16_t at = peer.heads[1] % SLOTS;
    uint8_t *slot = peer.memory + RING + RP_MEMIF_AT_SLOTS + at * RP_MEMIF_SLOT;
    uint8_t *data = peer.memory + BUFFERS + (uint32_t)(SLOTS + at) * FRAME;
    uint32_t length;
    memset(data, SENTINEL, FRAME);
    write_plain(1, peer.heads[1]++, RP_MEMIF_CHAINED, size);
    write_head(1, peer.heads[1]);
    write_plain(0, peer.heads[0], 0, ARP_BYTES);
    send_plain(1);
    for (int tries = 0; read_tail(1) != peer.heads[1]; tries++) {
        CHECK(tries < TRIES && !is_dropped(), "a question is not answered");
        usleep(100);
    }
    memcpy(&length, slot + 4, sizeof length);
    CHECK(length == said && slot[0] == 0, "%u bytes, flags %u", length, slot[0]);
    for (uint32_t i = said; i < FRAME; i++) {
        CHECK(data[i] == SENTINEL, "byte %u behind a slot of %u", i, size);
    }
}

static void fit(void) {
    struct rp_link_options options = {0};
    char text[RP_URL_BYTES];
    snprintf(text, sizeof text, "dpdk://10.0.0.1:7400?vdev=net_memif,id=3,socket=%s", socket_path);
    struct rp_link *link = drive_link(text, &options);
    come_again();
    uint64_t unfit = fact(link, "device_errors");
    for (; peer.heads[1] < SLOTS; peer.heads[1]++) {
        write_plain(1, peer.heads[1], 0, FRAME);
    }
    write_head(1, peer.heads[1]);
    for (uint32_t count = 2; count <= FRAMES; count++) {
        send_chain(count, 1);
        send_chain(count, 0);
    }
    unfit += 2 * (FRAMES - 1);
    CHECK(fact(link, "device_errors") == unfit, "%" PRIu64 " frames in parts dropped, not %" PRIu64,
          fact(link, "device_errors"), unfit);
    for (int i = 0; i < FRAMES; i++) {
        write_plain(0, (uint16_t)(peer.heads[0] + i), 0, LARGE);
    }
    send_plain(FRAMES);
    unfit += FRAMES;
    CHECK(fact(link, "device_errors") == unfit);
    CHECK(read_tail(1) == 0, "a frame that was dropped is answered");
    come_again();
    ask(FRAME, ANSWER);
    CHECK(fact(link, "device_errors") == unfit);
    ask(SMALL, 0);
    CHECK(fact(link, "device_errors") == unfit + 1, "an answer larger than its slot is dropped");
    ask(ANSWER, ANSWER);
    come_again();
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    check_group("frames in parts, and larger than their place: none is taken or written");
}

/* ---- all ---- */

static pid_t start(void (*run)(void)) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(SECONDS);
    run();
    _exit(0);
}

int main(void) {
    const char *asked = getenv("RP_HOSTILE");
    uint64_t executions = asked ? strtoull(asked, NULL, 10) : EXECUTIONS, before;
    int status;
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    snprintf(socket_path, sizeof socket_path, "/tmp/test_hostile_%d", (int)getpid());
    rp_random_seed(&chance, check_seed(23));
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    pid_t server = start(serve);
    for (int tries = 0; access(socket_path, F_OK); tries++) {
        CHECK(tries < TRIES && waitpid(server, NULL, WNOHANG) == 0, "no server");
        usleep(1000);
    }
    pid_t client = start(work);
    for (int tries = 0; !told->acknowledged; tries++) {
        CHECK(tries < TRIES && waitpid(client, NULL, WNOHANG) == 0, "no client");
        usleep(1000);
    }
    peer.file = -1;
    lend_wrongly(server);
    call_wrongly(server);
    say_little(0);
    say_little(1);
    stay_silent();
    fit();
    make_stuck();
    stumbles = 1;
    before = told->acknowledged;
    attack(executions - executions / 4, server, client);
    attack_and_race(executions / 4, server, client);
    CHECK(told->acknowledged > before && drops > 0);
    printf("  %" PRIu64 " executions, dropped for %" PRIu64 " of them; %" PRIu64 " wrong messages; "
           "%" PRIu64 " times its own rings overwritten; %" PRIu64 " words rewritten meanwhile\n",
           executions, drops, misspoken, confused, rewritten);
    printf("  beside it: %" PRIu64 " steps stored; %" PRIu64 " operations, none failed; %" PRIu64
           " requests sent again, %" PRIu64 " at most within one (%d may)\n",
           told->acknowledged - before, told->operations, told->retries, told->retries_most,
           RETRIES_MOST);
    told->ends = 1;
    CHECK(waitpid(client, &status, 0) == client && status == 0, "the honest client");
    CHECK(kill(server, SIGTERM) == 0 && waitpid(server, &status, 0) == server && status == 0,
          "the server ended with %d", status);
    CHECK(access(socket_path, F_OK) != 0, "its socket stays behind");
    return check_done("test_hostile");
}
