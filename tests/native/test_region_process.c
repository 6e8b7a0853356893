/* A region and the process that serves it: no descriptor stays open behind it, a child has no
 * part of it, what the process may not map is a sentence, and who ends it finds it free.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"
#include "process.h"

enum { ROW = 64, CAPACITY = 4096, STATE_MAX = 8 << 20 };

static char place[40];  /* a folder of this test's own */
static char region[48]; /* PLACE/region */
static char error[RP_ERROR_BYTES];

static struct rp_service *open_region(int attached) {
    static struct drive_table made;
    struct rp_service_options serve = {.region_path = region};
    struct rp_service *service;
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, "loopback://here", &serve, error) == 0, "%s",
          error);
    CHECK(rp_service_attached(service) == attached);
    return service;
}

/* Given a region that is made in an empty folder, and taken over. Expect nothing to stay open. */
static void check_descriptors(void) {
    CHECK(mkdir(region, 0700) == 0);
    for (int time = 0; time < 2; time++) {
        int before = open_descriptors();
        rp_service_close(open_region(time));
        CHECK(open_descriptors() == before, "%d descriptors stay", open_descriptors() - before);
    }
    check_group("descriptors are given back");
}

/* Given a program whose standard input is closed. Expect number 0 to be given back, too. */
static void check_number_zero(void) {
    int input = dup(0);
    CHECK(input > 0 && close(0) == 0);
    struct rp_service *service = open_region(1);
    CHECK(fcntl(0, F_GETFD) >= 0);
    rp_service_close(service);
    CHECK(fcntl(0, F_GETFD) < 0, "it stays open");
    CHECK(dup2(input, 0) == 0 && close(input) == 0);
    check_group("a descriptor whose number is 0");
}

static void in_child(void (*check)(void)) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

static void nothing_mapped(void) {
    CHECK(mappings_of(region) == 0, "%d mappings", mappings_of(region));
}

/* Given a process that forks while it serves. Expect its child to have no page of the region. */
static void check_forked(void) {
    struct rp_service *service = open_region(1);
    CHECK(mappings_of(region) >= 4);
    in_child(nothing_mapped);
    rp_service_close(service);
    check_group("a child inherits no region");
}

static void open_without_room(void) {
    static struct drive_table made;
    struct rp_service *service;
    struct rp_service_options plain = {0};
    struct rlimit most;
    drive_config(&made, 1 << 20, 256);
    CHECK(getrlimit(RLIMIT_AS, &most) == 0);
    most.rlim_cur = 64 << 20;
    CHECK(setrlimit(RLIMIT_AS, &most) == 0);
    CHECK(rp_service_open(&service, &made.config, "loopback://full", &plain, error)
          == -RP_NO_MEMORY);
    CHECK(strstr(error, "the steps of table main; Cannot allocate memory"), "%s", error);
}

/* Given a process that may not map as much. Expect a sentence. */
static void check_no_room(void) {
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they map more by themselves */
    in_child(open_without_room);
    check_group("no room in the process: a sentence");
#else
    (void)open_without_room;
#endif
}

static size_t read_state(uint8_t *bytes) {
    char path[64];
    snprintf(path, sizeof path, "%s/state", region);
    int file = open(path, O_RDONLY);
    ssize_t size = file < 0 ? -1 : read(file, bytes, STATE_MAX);
    CHECK(size > 0 && size < STATE_MAX && close(file) == 0);
    return (size_t)size;
}

/* Given a region whose every step lost its bytes. Expect it served as it is, and refused by who
 * asks to verify, with nothing in it changed by a configuration that differs. */
static void check_verify(void) {
    static uint8_t steps[CAPACITY * ROW], state[2][STATE_MAX];
    static struct drive_table made;
    struct rp_link_options options = {0};
    struct rp_service *service = open_region(1);
    struct rp_link *link = drive_link("loopback://here", &options);
    struct rp_table_info info = drive_info(link);
    char path[64];
    drive_writer(link, &info);
    drive_push(link, ROW, 0, 200);
    drive_settle(link);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    snprintf(path, sizeof path, "%s/table0.steps", region);
    int file = open(path, O_RDWR);
    CHECK(file >= 0 && pread(file, steps, sizeof steps, 0) == sizeof steps);
    for (size_t i = 0; i < sizeof steps; i++) {
        steps[i] ^= 0xff;
    }
    CHECK(pwrite(file, steps, sizeof steps, 0) == sizeof steps && close(file) == 0);
    rp_service_close(open_region(1));
    struct rp_service_options serve = {.region_path = region, .verify = 1};
    size_t before = read_state(state[0]);
    drive_config(&made, CAPACITY, ROW);
    made.table.samples_per_insert = 1; /* a narrower limiter would end its writers' sessions */
    made.table.error_min = -2;
    made.table.error_max = 3;
    made.config.idle_ms++;
    CHECK(rp_service_open(&service, &made.config, "loopback://here", &serve, error)
          == -RP_BAD_REGION);
    CHECK(strstr(error, "200 of 200 steps are not the bytes"), "%s", error);
    CHECK(read_state(state[1]) == before && memcmp(state[0], state[1], before) == 0,
          "a refused region is changed");
    check_group("who asks to verify is told of steps that are damaged");
}

/* Given a folder that every user may change, one whose state is a pipe, and a new one. Expect two
 * sentences at once, and room on the disk for the page of the weights' seal. */
static void check_folder(void) {
    static struct drive_table made;
    struct rp_service_options serve = {.region_path = region};
    struct rp_service *service;
    struct stat about;
    char path[64], other[64];
    drive_config(&made, CAPACITY, ROW);
    snprintf(path, sizeof path, "%s/weights", region);
    CHECK(stat(path, &about) == 0 && about.st_blocks > 0, "a full disk would be a SIGBUS");
    CHECK(chmod(region, 0777) == 0);
    CHECK(rp_service_open(&service, &made.config, "loopback://here", &serve, error)
          == -RP_SYSTEM);
    CHECK(strstr(error, "every user may change: chmod o-w it"), "%s", error);
    CHECK(chmod(region, 0700) == 0);
    snprintf(path, sizeof path, "%s/state", region);
    snprintf(other, sizeof other, "%s/state", place);
    CHECK(rename(path, other) == 0 && mkfifo(path, 0600) == 0);
    CHECK(rp_service_open(&service, &made.config, "loopback://here", &serve, error)
          == -RP_BAD_REGION);
    CHECK(strstr(error, "its file \"state\" cannot be read"), "%s", error);
    CHECK(rename(other, path) == 0);
    check_group("whose folder it is, and of what its files are");
}

/* Given a region that was served with the budget that its port says, then with more than that has.
 * Expect the first to be half of what the port has room for, the other all of it. */
static void check_budget(void) {
    static struct drive_table made;
    struct rp_service_options serve = {.region_path = region};
    struct rp_service *service;
    uint32_t had = 0, has = 0;
    drive_config(&made, CAPACITY, ROW);
    made.config.receive_budget = 1 << 20;
    CHECK(rp_service_open(&service, &made.config, "loopback://here", &serve, error) == 0, "%s",
          error);
    const char *change = strstr(rp_service_changes(service), "receive_budget ");
    CHECK(change && sscanf(change, "receive_budget %u -> %u", &had, &has) == 2);
    CHECK(had > 0 && has == 2 * had, "%u, %u", had, has);
    rp_service_close(service);
    check_group("what clients may have under way is half of a port's room");
}

static int before_it_served;

static void only_as_before(void) {
    CHECK(open_descriptors() == before_it_served, "%d and %d", open_descriptors(),
          before_it_served);
}

/* Given services of a region at a port, that serve and fork, or cannot open. Expect a child without
 * any of their descriptors, and neither descriptors nor memory to stay, nor number 0 to go. */
static void check_given_back(void) {
    static struct drive_table made;
    struct rp_service_options serve = {.region_path = region};
    struct rp_service *service;
    size_t heap = 0;
    drive_config(&made, CAPACITY, ROW);
    for (int round = 0; round < 12; round++) {
        before_it_served = open_descriptors();
        CHECK(rp_service_open(&service, &made.config, "udp://127.0.0.1:0", &serve, error) == 0);
        if (round == 0) {
            in_child(only_as_before);
        }
        rp_service_close(service);
        CHECK(rp_service_open(&service, &made.config, "udp:/127.0.0.1", &serve, error) < 0);
        CHECK(open_descriptors() == before_it_served && fcntl(0, F_GETFD) >= 0);
        heap = round == 3 ? heap_bytes() : heap;
    }
    CHECK(heap_bytes() <= heap, "%zu bytes were kept", heap_bytes() - heap);
    check_group("what a service took is given back, in a child too");
}

/* A lock that all who end it may have at once, but nobody beside a service. */
static void *end_too(void *service) {
    rp_service_end(service);
    int folder = open(region, O_RDONLY | O_DIRECTORY);
    CHECK(folder >= 0 && flock(folder, LOCK_SH | LOCK_NB) == 0 && close(folder) == 0,
          "who ended it came back while it had its region");
    return NULL;
}

/* Given a service that three threads end. Expect each to come back when it is gone, so that another
 * one may have its region. */
static void check_ended_by_three(void) {
    static struct drive_table made;
    struct rp_service_options serve = {.region_path = region};
    struct rp_service *service;
    pthread_t threads[3];
    drive_config(&made, CAPACITY, ROW);
    for (int round = 0; round < 20; round++) {
        CHECK(rp_service_open(&service, &made.config, "udp://127.0.0.1:0", &serve, error) == 0);
        CHECK(rp_service_start(service) == 0);
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_create(&threads[i], NULL, end_too, service) == 0);
        }
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
        rp_service_free(service);
    }
    check_group("three threads end one service: each comes back when it is gone");
}

int main(void) {
    char command[64];
    snprintf(place, sizeof place, "/tmp/test_region_process_XXXXXX");
    CHECK(mkdtemp(place) != NULL);
    snprintf(region, sizeof region, "%s/region", place);
    check_descriptors();
    check_number_zero();
    check_forked();
    check_no_room();
    check_budget();
    check_given_back();
    check_ended_by_three();
    check_verify();
    check_folder();
    snprintf(command, sizeof command, "rm -r %s", place);
    CHECK(system(command) == 0);
    return check_done("test_region_process");
}
