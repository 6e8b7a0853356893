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

static struct rp_service *open_region(int attached)
{
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
static void check_descriptors(void)
{
    CHECK(mkdir(region, 0700) == 0);
    for (int time = 0; time < 2; time++) {
        int before = open_descriptors();
        rp_service_close(open_region(time));
        CHECK(open_descriptors() == before, "%d descriptors stay", open_descriptors() - before);
    }
    check_group("descriptors are given back");
}

/* Given a program whose standard input is closed. Expect number 0 to be given back, too. */
static void check_number_zero(void)
{
    int input = dup(0);
    CHECK(input > 0 && close(0) == 0);
    struct rp_service *service = open_region(1);
    CHECK(fcntl(0, F_GETFD) >= 0);
    rp_service_close(service);
    CHECK(fcntl(0, F_GETFD) < 0, "it stays open");
    CHECK(dup2(input, 0) == 0 && close(input) == 0);
    check_group("a descriptor whose number is 0");
}

static void in_child(void (*check)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

static void nothing_mapped(void)
{
    CHECK(mappings_of(region) == 0, "%d mappings", mappings_of(region));
}

/* Given a process that forks while it serves. Expect its child to have no page of the region. */
static void check_forked(void)
{
    struct rp_service *service = open_region(1);
    CHECK(mappings_of(region) >= 4);
    in_child(nothing_mapped);
    rp_service_close(service);
    check_group("a child inherits no region");
}

static void open_without_room(void)
{
    static struct drive_table made;
    struct rp_service *service;
    struct rp_service_options plain = {0};
    struct rlimit most = {.rlim_cur = 64 << 20, .rlim_max = RLIM_INFINITY};
    drive_config(&made, 1 << 20, 256);
    CHECK(setrlimit(RLIMIT_AS, &most) == 0);
    CHECK(rp_service_open(&service, &made.config, "loopback://full", &plain, error)
          == -RP_NO_MEMORY);
    CHECK(strstr(error, "the steps of table main; Cannot allocate memory"), "%s", error);
}

/* Given a process that may not map as much. Expect a sentence. */
static void check_no_room(void)
{
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they map more by themselves */
    in_child(open_without_room);
    check_group("no room in the process: a sentence");
#else
    (void)open_without_room;
#endif
}

int main(void)
{
    char command[64];
    snprintf(place, sizeof place, "/tmp/test_region_process_XXXXXX");
    CHECK(mkdtemp(place) != NULL);
    snprintf(region, sizeof region, "%s/region", place);
    check_descriptors();
    check_number_zero();
    check_forked();
    check_no_room();
    snprintf(command, sizeof command, "rm -r %s", place);
    CHECK(system(command) == 0);
    return check_done("test_region_process");
}
