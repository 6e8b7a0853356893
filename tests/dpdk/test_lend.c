/* Memory that a memif peer lends, and then tries to take back: by holes punched in it, before it is
 * at work and behind that. Who touches a page meanwhile would sleep as long as the punch takes. And
 * memory that has holes, for the server to fill and answer for. Expect a server that lets nobody
 * work whose pages can still go or are not there, and a client beside it that misses nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "by_hand.h"
#include "honest.h"

enum {
    SECONDS = 120, TRIES = 20000, BLOCK = 512, PUNCHERS = 2, VISITS = 20, PAGE = 4096,
    WHOLE_US = 2000,
};

static pid_t server;
/* A frame that means nothing goes in; its slot comes back when the server has read it. */
static void check_at_work(void) {
    _Atomic uint16_t *head = (_Atomic uint16_t *)(void *)(memory + RP_MEMIF_AT_HEAD);
    const _Atomic uint16_t *tail = (_Atomic uint16_t *)(void *)(memory + RP_MEMIF_AT_TAIL);
    memset(memory + RP_MEMIF_AT_SLOTS, 0, RP_MEMIF_SLOT);
    memory[RP_MEMIF_AT_SLOTS + 4] = RP_MEMIF_SLOT; /* bytes */
    atomic_store(head, 1);
    for (int tries = 0; atomic_load(tail) != 1; tries++) {
        CHECK(tries < TRIES, "the server does not read");
        usleep(100);
    }
}

/* ---- what it tries ---- */

static int punch(off_t from, off_t bytes) {
    return fallocate(region, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, bytes);
}

static uint64_t count_blocks(void) {
    struct stat about;
    CHECK(fstat(region, &about) == 0);
    return (uint64_t)about.st_blocks;
}

/* Bytes of the server's memory that cannot be swapped. */
static uint64_t count_locked(void) {
    char path[64], line[256];
    unsigned long long found = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)server);
    FILE *status = fopen(path, "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) {
        (void)sscanf(line, "VmLck: %llu kB", &found);
    }
    fclose(status);
    return found << 10;
}

static void take_back(void) {
    lend_new(0);
    CHECK(punch(0, REGION) == 0 && madvise(memory, REGION, MADV_POPULATE_WRITE) == 0,
          "it could be done before");
    CHECK(lend(socket_path, 1) == RP_MEMIF_ACK && start_rings(-1, -1) == RP_MEMIF_CONNECTED);
    CHECK(punch(0, REGION) != 0 && errno == EPERM, "a hole can be punched under a server's bursts");
    CHECK(madvise(memory, REGION, MADV_REMOVE) != 0 && errno == EPERM);
    CHECK(ftruncate(region, 0) != 0 && errno == EPERM);
    CHECK(count_blocks() == REGION / BLOCK);
    CHECK(geteuid() != 0 || count_locked() >= REGION, "%llu", (unsigned long long)count_locked());
    check_at_work();
    close(file);
    end_loan();
    check_group("no page of a peer's at work can be taken out, and all are there");
}

/* To ask the server by. */
static struct rp_link *link_aside(void) {
    struct rp_link_options options = {0};
    char text[RP_URL_BYTES];
    snprintf(text, sizeof text, "dpdk://10.0.0.1:7400?vdev=net_memif,id=2,socket=%s", socket_path);
    return drive_link(text, &options);
}

/* Refused for each page, the first to the last one; none of them is made, and a whole one is fit
 * though its file goes on behind it. */
static void lend_holes(void) {
    static const off_t holes[] = {0, REGION / 2, REGION - PAGE};
    struct rp_link *link = link_aside();
    uint64_t refused = fact(link, "memif_memory_refused");
    for (int i = 0; i < 3; i++) {
        lend_new(0);
        CHECK(punch(holes[i], PAGE) == 0 && count_blocks() == (REGION - PAGE) / BLOCK);
        CHECK(lend(socket_path, 1) == RP_MEMIF_DISCONNECT, "memory with a hole at %ld is taken",
              holes[i]);
        CHECK(count_blocks() == (REGION - PAGE) / BLOCK, "the server has filled the hole");
        close(file);
        end_loan();
    }
    CHECK(fact(link, "memif_memory_refused") == refused + 3);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    lend_new(0);
    CHECK(ftruncate(region, 2 * REGION) == 0);
    CHECK(lend(socket_path, 1) == RP_MEMIF_ACK && start_rings(-1, -1) == RP_MEMIF_CONNECTED);
    check_at_work();
    CHECK(count_blocks() == REGION / BLOCK);
    close(file);
    end_loan();
    check_group("memory with a page that is not there: refused, counted, and left as it is");
}

static void lend_what_does_not_stay(void) {
    struct rp_link *link = link_aside();
    uint64_t refused = fact(link, "memif_memory_refused");
    lend_new(F_SEAL_SEAL);
    CHECK(lend(socket_path, 1) == RP_MEMIF_DISCONNECT, "memory that takes no seal is taken");
    close(file);
    end_loan();
    lend_new(F_SEAL_FUTURE_WRITE);
    CHECK(lend(socket_path, 1) == RP_MEMIF_DISCONNECT, "memory that cannot be mapped is taken");
    close(file);
    end_loan();
    CHECK(fact(link, "memif_memory_refused") == refused + 2);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    check_group("memory that takes no seal, or was sealed before: refused, and counted");
}

static _Atomic int punching_ends;
static _Atomic uint64_t holes;

static void *keep_punching(void *unused) {
    while (!punching_ends) {
        (void)madvise(memory, REGION, MADV_POPULATE_WRITE);
        usleep(WHOLE_US);
        holes += punch(0, REGION) == 0;
    }
    return unused;
}

/* While the server maps, seals and starts: it may be late, and refuse; nobody else waits. */
static void take_back_meanwhile(void) {
    pthread_t punchers[PUNCHERS];
    uint64_t at_work = 0;
    for (int visit = 0; visit < VISITS || (!at_work && visit < TRIES); visit++) {
        uint64_t before = holes;
        lend_new(0);
        punching_ends = 0;
        for (int i = 0; i < PUNCHERS; i++) {
            CHECK(pthread_create(&punchers[i], NULL, keep_punching, NULL) == 0);
        }
        for (int tries = 0; holes == before; tries++) {
            CHECK(tries < TRIES, "no hole is punched");
            usleep(1000);
        }
        if (lend(socket_path, 1) == RP_MEMIF_ACK) {
            CHECK(start_rings(-1, -1) == RP_MEMIF_CONNECTED && punch(0, REGION) != 0);
            check_at_work();
            at_work++;
        }
        punching_ends = 1;
        for (int i = 0; i < PUNCHERS; i++) {
            CHECK(pthread_join(punchers[i], NULL) == 0);
        }
        close(file);
        end_loan();
    }
    CHECK(at_work > 0);
    printf("  %" PRIu64 " holes punched while %d peers came, %" PRIu64 " of them at work then\n",
           (uint64_t)holes, VISITS, at_work);
    check_group("holes punched while memory is mapped: none behind that");
}

/* A write whose page does not come: until it does, the file cannot be sealed. */
static void *write_slowly(void *page) {
    CHECK(pwrite(region, page, PAGE, 0) == PAGE, "%s", strerror(errno));
    return NULL;
}

static int begin_slow_write(pthread_t *writer, void *page) {
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {(uintptr_t)page, PAGE},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK); /* else poll errs */
    CHECK(faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0, "root may have userfaultfd");
    CHECK(ioctl(faults, UFFDIO_REGISTER, &all) == 0);
    CHECK(pthread_create(writer, NULL, write_slowly, page) == 0);
    struct pollfd wait = {faults, POLLIN, 0};
    CHECK(poll(&wait, 1, SECONDS * 1000) == 1 && wait.revents == POLLIN, "the page was asked for");
    return faults;
}

static void await_unmapped(void) {
    for (int tries = 0; has_lent_memory(server); tries++) {
        CHECK(tries < TRIES / 10, "the server waits with a mapping, which holds who else maps");
        usleep(1000);
    }
}

static void await_end_of_loan(void) {
    for (int tries = 0;
         !(fcntl(region, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) || has_lent_memory(server);
         tries++) {
        CHECK(tries < TRIES / 10, "the server %s it",
              has_lent_memory(server) ? "keeps" : "never sealed");
        usleep(1000);
    }
}

/* It is sent away, and its memory goes when the server gets it; what it says behind that, a region
 * that could be had at once, is not heard. */
static void lend_for_longer_than_it_may_take(void) {
    pthread_t writer;
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_zeropage rest = {.range = {(uintptr_t)page, PAGE}};
    lend_new(0);
    int faults = begin_slow_write(&writer, page);
    int behind = memfd_create("behind", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(behind >= 0 && ftruncate(behind, REGION) == 0);
    CHECK(fcntl(behind, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(fallocate(behind, 0, 0, REGION) == 0);
    greet(socket_path, 1);
    say(RP_MEMIF_ADD_REGION, 0, REGION, 0, region);
    say(RP_MEMIF_ADD_REGION, 0, REGION, 0, behind);
    CHECK(hear() == GONE, "it is answered before its memory is sealed");
    close(behind);
    await_unmapped();
    close(file);
    int before = region;
    uint8_t *memory_before = memory;
    lend_new(0);
    CHECK(lend(socket_path, 1) == RP_MEMIF_ACK && start_rings(-1, -1) == RP_MEMIF_CONNECTED);
    check_at_work();
    close(file);
    end_loan();
    CHECK(fcntl(before, F_GET_SEALS) == F_SEAL_SHRINK, "it waits no longer");
    region = before;
    memory = memory_before;
    CHECK(ioctl(faults, UFFDIO_ZEROPAGE, &rest) == 0 && pthread_join(writer, NULL) == 0);
    await_end_of_loan();
    close(faults);
    munmap(page, PAGE);
    end_loan();
    check_group("a peer whose memory cannot be sealed in time: sent away, and nothing of it stays");
}

/* A client is told what its server lacks, not to ask for more links. */
static void lend_where_nothing_can_be_mapped(void) {
    static const char says[] = "sends this client away: The server has no memory left to map";
    const struct rlimit none = {1, RLIM_INFINITY};
    struct rlimit before;
    struct rp_link_options options = {0};
    struct rp_link *link = NULL;
    char text[RP_URL_BYTES], error[RP_ERROR_BYTES] = "";
    snprintf(text, sizeof text, "dpdk://10.0.0.1:7400?vdev=net_memif,id=2,socket=%s", socket_path);
    CHECK(prlimit(server, RLIMIT_AS, &none, &before) == 0);
    CHECK(rp_link_open(&link, text, &options, error) != 0 && strstr(error, says), "%s", error);
    CHECK(prlimit(server, RLIMIT_AS, &before, NULL) == 0);
    rp_link_close(link_aside(), DRIVE_TIMEOUT_NS);
    check_group("a server that can map nothing: its client says so");
}

/* ---- all ---- */

static pid_t start(void (*run)(void)) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(SECONDS);
        run();
        _exit(0);
    }
    return child;
}

int main(void) {
    int status;
    CHECK(getenv("REPLAY_DPDK"), "REPLAY_DPDK names the object: make test-dpdk sets it");
    snprintf(socket_path, sizeof socket_path, "/tmp/test_lend_%d", (int)getpid());
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    alarm(SECONDS);
    server = start(serve);
    for (int tries = 0; access(socket_path, F_OK); tries++) {
        CHECK(tries < TRIES && waitpid(server, NULL, WNOHANG) == 0, "no server");
        usleep(1000);
    }
    pid_t client = start(work);
    for (int tries = 0; !told->acknowledged; tries++) {
        CHECK(tries < TRIES && waitpid(client, NULL, WNOHANG) == 0, "no client");
        usleep(1000);
    }
    take_back();
    lend_holes();
    lend_what_does_not_stay();
    take_back_meanwhile();
    lend_where_nothing_can_be_mapped();
    lend_for_longer_than_it_may_take();
    told->ends = 1;
    CHECK(waitpid(client, &status, 0) == client && status == 0, "the honest client");
    CHECK(kill(server, SIGTERM) == 0 && waitpid(server, &status, 0) == server && status == 0,
          "the server ended with %d", status);
    return check_done("test_lend");
}
