/* Goal: a region and the process that serves it: no descriptor stays open behind it, a child has no
 * part of it, and what the process may not map is a sentence.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"
#include "process.h"

enum { ROW = 64, CAPACITY = 4096 };

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

/* Given a region whose every step lost its bytes. Expect it served as it is, and refused by who
 * asks to verify. */
static void check_verify(void) {
    static uint8_t steps[CAPACITY * ROW];
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
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, "loopback://here", &serve, error)
          == -RP_BAD_REGION);
    CHECK(strstr(error, "200 of 200 steps are not the bytes"), "%s", error);
    check_group("who asks to verify is told of steps that are damaged");
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
    check_verify();
    snprintf(command, sizeof command, "rm -r %s", place);
    CHECK(system(command) == 0);
    return check_done("test_region_process");
}
