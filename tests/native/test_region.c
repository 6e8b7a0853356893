/* A region in a folder is made whole by one server at a time, is served again only under the
 * configuration it was made for, and says in a sentence why not otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"
#include "drive/clock.h"
#include "drive_place.h"
#include "process.h"

enum { ROW = 64, CAPACITY = 4096, RACES = 40, RACERS = 4 };

static char region[48]; /* PLACE/region */
static char error[RP_ERROR_BYTES];

static void (*before_lock)(void); /* what another process does just then, once */

/* The C library's, for every lock of this program. */
int flock(int file, int how) {
    void (*meanwhile)(void) = before_lock;
    before_lock = NULL;
    if (meanwhile) {
        meanwhile();
    }
    return (int)syscall(SYS_flock, file, how);
}

static int interruptions; /* signals that come while room on the disk is asked for */

int posix_fallocate(int file, off_t offset, off_t bytes) {
    if (interruptions > 0) {
        interruptions--;
        return EINTR;
    }
    return syscall(SYS_fallocate, file, 0, offset, bytes) == 0 ? 0 : errno;
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) { /* the POSIX build's */
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return syscall(SYS_pwrite64, file, bytes, size, offset);
}

static void place_open(void) {
    snprintf(place, sizeof place, "/tmp/test_region_XXXXXX");
    CHECK(mkdtemp(place) != NULL);
    snprintf(region, sizeof region, "%s/region", place);
}

static int open_with(struct rp_service **service, const struct rp_server_config *config,
                     const char *url) {
    struct rp_service_options serve = {.region_path = region};
    return rp_service_open(service, config, url, &serve, error);
}

/* Given a region and one server after another. Expect it taken over, and locked in between. */
static void check_taken_over(void) {
    static struct drive_batch batch;
    struct rp_link_options options = {0};
    struct drive_table made;
    struct rp_service *service, *second;
    uint64_t incarnation = 0;
    drive_config(&made, CAPACITY, ROW);
    for (int time = 0; time < 2; time++) {
        CHECK(open_with(&service, &made.config, "loopback://file") == 0, "%s", error);
        CHECK(rp_service_attached(service) == time && !rp_service_changes(service)[0]);
        CHECK(time == 0 || rp_service_incarnation(service) == incarnation);
        incarnation = rp_service_incarnation(service);
        struct rp_link *link = drive_link("loopback://file", &options);
        if (time == 0) {
            struct rp_table_info info = drive_info(link);
            drive_writer(link, &info);
            drive_push(link, ROW, 0, 200);
            drive_settle(link);
        }
        drive_sample(link, &batch, ROW, 64);
        rp_link_close(link, DRIVE_TIMEOUT_NS);
        CHECK(open_with(&second, &made.config, "loopback://b") == -RP_SYSTEM);
        CHECK(strstr(error, "another server uses"), "%s", error);
        rp_service_close(service);
        CHECK(mappings_of(place) == 0, "%d pieces of a closed region", mappings_of(place));
    }
    sh("test \"$(ls)\" = region && test \"$(ls region | tr '\\n' ' ')\" = "
       "'state table0.keys table0.steps weights '");
    check_group("a region in a folder: made, taken over, in use");
}

struct difference { /* one field of a configuration, and what has to be said of it */
    const char *said;
    void (*make)(struct drive_table *made);
};

static void other_alpha(struct drive_table *m) { m->table.alpha = 0.5; }
static void other_capacity(struct drive_table *m) { m->table.capacity = 8192; }
static void other_name(struct drive_table *m) { m->table.name[0] = 'p'; }
static void other_spec(struct drive_table *m) { m->table.spec = "rowt"; }
static void first_of_spec(struct drive_table *m) { m->table.spec = "bows"; }
static void other_seed(struct drive_table *m) { m->config.seed = 2; }
static void other_window(struct drive_table *m) { m->table.window = 32; }
static void other_writers(struct drive_table *m) { m->table.writers_max = 3; }
static void other_sessions(struct drive_table *m) { m->config.sessions_max = 17; }
static void other_batch(struct drive_table *m) { m->config.batch_max = 256; }
static void other_records(struct drive_table *m) { m->config.records = 15; }
static void other_weights(struct drive_table *m) { m->config.weights_max = 1 << 17; }
static void other_plan(struct drive_table *m) { m->plan.name[0] = 'c'; }
static void other_pick(struct drive_table *m) { m->picks[1].column = 0; }
static void fewer_picks(struct drive_table *m) { m->plan.pick_count = 1; }
static void other_streams(struct drive_table *m) { m->table.streams_max++; }
static void other_pieces(struct drive_table *m) { m->table.pieces_max++; }
static void longer_spec(struct drive_table *m) {
    m->table.spec = "rows!";
    m->table.spec_bytes++;
}
static void other_step(struct drive_table *m) {
    m->table.step_bytes += 8;
    m->columns[1].size += 8;
}
static void fewer_columns(struct drive_table *m) {
    m->table.column_count = m->plan.pick_count = 1;
}
static void other_columns(struct drive_table *m) {
    m->columns[0].size = 16;
    m->columns[1].offset = 16;
    m->columns[1].size = ROW - 16;
}
static void other_place(struct drive_table *m) {
    m->columns[0].offset = ROW - 8;
    m->columns[1].offset = 0;
}
static void other_pad(struct drive_table *m) { m->columns[1].pad_first = 1; }

static const struct difference differences[] = {
    {"alpha 0.6 of table main, this configuration says 0.5:", other_alpha},
    {"capacity 4096 of table main, this configuration says 8192:", other_capacity},
    {"a table named \"main\", this configuration says \"pain\":", other_name},
    {"\"rows\" of table main, this configuration says \"rowt\":", other_spec},
    {"\"rows\" of table main, this configuration says \"bows\":", first_of_spec},
    {"seed 1, this configuration says 2:", other_seed},
    {"window 64 of table main, this configuration says 32:", other_window},
    {"writers 4 of table main, this configuration says 3:", other_writers},
    {"sessions 16, this configuration says 17:", other_sessions},
    {"batch_max 512, this configuration says 256:", other_batch},
    {"records 16, this configuration says 15:", other_records},
    {"weights_max 65536, this configuration says 131072:", other_weights},
    {"a plan named \"row\" of table main, this configuration says \"cow\":", other_plan},
    {"pick 1 of plan row \"column 1 at 0\" of table main, this configuration says \"column 0",
     other_pick},
    {"plan row's picks 2 of table main, this configuration says 1:", fewer_picks},
    {"streams 4 of table main, this configuration says 5:", other_streams},
    {"pieces 4 of table main, this configuration says 5:", other_pieces},
    {"columns that are \"rows\" of table main, this configuration says \"rows!\":", longer_spec},
    {"step bytes 64 of table main, this configuration says 72:", other_step},
    {"column count 2 of table main, this configuration says 1:", fewer_columns},
    {"column 0's bytes 8 of table main, this configuration says 16:", other_columns},
    {"column 0's offset 0 of table main, this configuration says 56:", other_place},
    {"column 1's pad_first 0 of table main, this configuration says 1:", other_pad},
};

/* Given the region of the test before, and one field changed. Expect that field and both values. */
static void check_differences(void) {
    struct drive_table made;
    struct rp_service *service;
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        drive_config(&made, CAPACITY, ROW);
        differences[i].make(&made);
        CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_REGION,
              "taken over in silence: %s", differences[i].said);
        CHECK(strstr(error, differences[i].said), "\"%s\" and not \"%s\"", error,
              differences[i].said);
    }
    check_group("the first difference is named with both values");
}

/* Given the region without one of its files, or with a state that is empty. Expect the file to be
 * named, and the region to be served when it is whole again. */
static void check_files(void) {
    struct drive_table made;
    struct rp_service *service;
    char start[96];
    drive_config(&made, CAPACITY, ROW);
    sh("mv region/table0.keys keys");
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_SYSTEM);
    snprintf(start, sizeof start, "%s/table0.keys: ", region);
    CHECK(strncmp(error, start, strlen(start)) == 0 && strstr(error, "No such file"), "%s", error);
    sh("head -c 4096 keys > region/table0.keys");
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_REGION);
    CHECK(strncmp(error, start, strlen(start)) == 0 && strstr(error, "4096 bytes of "), "%s",
          error);
    sh("mv keys region/table0.keys && cp region/state state && truncate -s -4096 region/state");
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_REGION);
    CHECK(strstr(error, "shorter than the one"), "%s", error);
    sh(": > region/state");
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_REGION);
    snprintf(start, sizeof start, "%s: its file \"state\"", region);
    CHECK(strncmp(error, start, strlen(start)) == 0, "%s", error);
    sh("mv state region/state");
    CHECK(open_with(&service, &made.config, "loopback://a") == 0, "%s", error);
    CHECK(rp_service_attached(service));
    rp_service_close(service);
    static char long_path[5000];
    memset(long_path, 'x', sizeof long_path - 1);
    struct rp_service_options serve = {.region_path = long_path};
    CHECK(rp_service_open(&service, &made.config, "loopback://a", &serve, error)
          == -RP_BAD_ARGUMENT);
    CHECK(strncmp(error, long_path, 100) == 0 && strstr(error, ": the path is too long"), "%s",
          error);
    check_group("a file that is missing, short or empty is named, and a path that is too long");
}

/* A region of the configuration's shape, and a row in it: another one's files look like its own. */
static void make_alike(const struct rp_server_config *config) {
    static uint8_t weights[1 << 10];
    struct rp_service *service;
    struct rp_link_options options = {0};
    uint64_t version = 0;
    CHECK(open_with(&service, config, "loopback://alike") == 0, "%s", error);
    CHECK(!rp_service_attached(service));
    struct rp_link *link = drive_link("loopback://alike", &options);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    drive_push(link, ROW, 0, 100);
    drive_settle(link);
    CHECK(drive_wait(link, rp_link_publish(link, weights, sizeof weights, &version,
                                           DRIVE_TIMEOUT_NS), NULL) == 0);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
}

/* Given two regions alike, and a file of one among those of the other, in its right place, of the
 * right size, or one with nothing in it. Expect it named and nothing changed, and the region served
 * when its own file is back. */
static void check_seals(void) {
    static const char *const files[] = {"table0.keys", "table0.steps", "weights"};
    struct drive_table made;
    struct rp_service *service;
    char start[96];
    drive_config(&made, CAPACITY, ROW);
    sh("rm -rf region");
    make_alike(&made.config);
    sh("mv region alike");
    make_alike(&made.config);
    sh("cp -r region own");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char command[160];
        for (int empty = 0; empty < 2; empty++) {
            snprintf(command, sizeof command,
                     empty ? "truncate -s 0 region/%s && truncate -r own/%s region/%s"
                           : "cp alike/%s region/%s && cmp -s alike/%s region/%s",
                     files[i], files[i], files[i], files[i]);
            sh(command);
            CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_REGION,
                  "%s of another region was taken", files[i]);
            snprintf(start, sizeof start, "%s is not the one", files[i]);
            CHECK(strncmp(error, start, strlen(start)) == 0, "%s", error);
        }
        snprintf(command, sizeof command, "cp own/%s region/%s", files[i], files[i]);
        sh(command);
        sh("diff -r own region");
    }
    sh("cp region/table0.keys region/table0.steps"); /* of this region, in another's place */
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_REGION, "%s", error);
    sh("cp own/table0.steps region && truncate -s 0 region/state && truncate -r own/state "
       "region/state");
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_REGION);
    CHECK(strstr(error, "never made whole"), "%s", error);
    sh("cp own/state region/state");
    CHECK(open_with(&service, &made.config, "loopback://a") == 0, "%s", error);
    CHECK(rp_service_attached(service));
    rp_service_close(service);
    sh("rm -r alike own");
    check_group("a file of another region is named, and one that never got to the disk");
}

/* Given fields that may change. Expect them said and applied, and not said again. */
static void check_changes(void) {
    struct drive_table made;
    struct rp_service *service;
    struct rp_link_options options = {0};
    const char *said[] = {"mtu 8960 -> 1400", "idle_ms 30000 -> 1000", "lapse_ms 100 -> 200",
                          "samples_per_insert of table main 0 -> 4",
                          "error_max of table main 0 -> 200", "min_size of table main 1 -> 32"};
    for (int time = 0; time < 2; time++) {
        drive_config(&made, CAPACITY, ROW);
        made.config.idle_ms = 1000;
        made.config.lapse_ms = 200;
        made.config.seed = 77;
        made.config.seed_drawn = 1;
        made.table.samples_per_insert = 4;
        made.table.error_max = 200;
        made.table.min_size = 32;
        CHECK(open_with(&service, &made.config, "loopback://a?mtu=1400") == 0, "%s", error);
        for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
            CHECK((strstr(rp_service_changes(service), said[i]) != NULL) == (time == 0),
                  "\"%s\" of \"%s\"", said[i], rp_service_changes(service));
        }
        struct rp_link *link = drive_link("loopback://a?mtu=1400", &options);
        struct rp_table_info info = drive_info(link);
        CHECK(info.samples_per_insert == 4 && info.error_max == 200 && info.min_size == 32);
        CHECK(rp_service_attached(service));
        rp_link_close(link, DRIVE_TIMEOUT_NS);
        rp_service_close(service);
    }
    check_group("limits and limiter may change: said and applied");
}

/* Given a server that dies with a session open. Expect its mtu kept, or a sentence. */
static void check_agreed(void) {
    struct drive_table made;
    struct rp_service *service;
    struct rp_link_options options = {0};
    drive_config(&made, CAPACITY, ROW);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(open_with(&service, &made.config, "loopback://c") == 0, "%s", error);
        drive_link("loopback://c", &options);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(open_with(&service, &made.config, "loopback://c?mtu=512") == -RP_BAD_REGION);
    CHECK(strstr(error, "say ?mtu=8960"), "%s", error);
    CHECK(open_with(&service, &made.config, "loopback://c") == 0, "%s", error);
    rp_service_close(service);
    check_group("a session that is open keeps the datagrams it agreed on");
}

/* Given names that are something else. Expect them left alone. */
static void check_names(void) {
    struct drive_table made;
    struct rp_service *service;
    drive_config(&made, CAPACITY, ROW);
    sh("rm -r region && touch region");
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_ARGUMENT);
    CHECK(strstr(error, "a region is a folder"), "%s", error);
    sh("test -f region && rm region && mkdir region && touch region/mine");
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_ARGUMENT);
    CHECK(strstr(error, "holds other things, but no file \"state\""), "%s", error);
    sh("rm region/mine && mkdir region.new && touch region.new/making");
    made.table.capacity = 0;
    CHECK(open_with(&service, &made.config, "loopback://a") == -RP_BAD_ARGUMENT);
    drive_config(&made, CAPACITY, ROW);
    CHECK(open_with(&service, &made.config, "loopback://a") == 0, "%s", error);
    CHECK(!rp_service_attached(service));
    rp_service_close(service);
    sh("test \"$(ls)\" = region");
    check_group("other files are left alone, an empty folder and a dead start's are used");
}

static void exchange(void) {
    sh("mv region away && mv spare region");
}

/* Given a folder that gets another name between its opening and its lock, and another region with
 * its own. Expect the one that has the name now to be served, and the other left alone. */
static void check_exchanged(void) {
    struct drive_table made;
    struct rp_service *service;
    uint64_t incarnations[2];
    drive_config(&made, CAPACITY, ROW);
    for (int i = 0; i < 2; i++) {
        sh(i == 0 ? "rm -rf region" : "mv region spare");
        CHECK(open_with(&service, &made.config, "loopback://swap") == 0, "%s", error);
        incarnations[i] = rp_service_incarnation(service);
        rp_service_close(service);
    }
    before_lock = exchange;
    CHECK(open_with(&service, &made.config, "loopback://swap") == 0, "%s", error);
    CHECK(before_lock == NULL && rp_service_attached(service));
    CHECK(rp_service_incarnation(service) == incarnations[0], "the folder that was opened first");
    char path[64];
    snprintf(path, sizeof path, "%s/away", place);
    int away = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(away >= 0 && flock(away, LOCK_EX | LOCK_NB) == 0, "it is locked though nobody serves it");
    close(away);
    rp_service_close(service);
    sh("rm -r away");
    check_group("a folder that was renamed before its lock is not the region");
}

/* One of several that start at once: answers whether it made the region or was told why not. */
static void race(const struct rp_server_config *config, int gate, int done) {
    struct rp_service *service;
    char byte;
    CHECK(read(gate, &byte, 1) == 0); /* the parent closes it: all go */
    int status = open_with(&service, config, "loopback://race");
    if (status) {
        CHECK(strstr(error, "another server"), "%s", error);
    } else {
        CHECK(!rp_service_attached(service), "what no other served yet cannot be taken over");
    }
    CHECK(write(done, status ? "-" : "+", 1) == 1);
    if (status == 0) {
        pause(); /* it keeps it until it is killed, when all have answered */
    }
}

/* Given servers that start together. Expect one to make the region, the others a sentence. */
static void check_races(void) {
    struct drive_table made;
    struct rp_service *service;
    drive_config(&made, CAPACITY, ROW);
    for (int i = 0; i < RACES; i++) {
        int gate[2], done[2], won = 0;
        pid_t racers[RACERS];
        char byte;
        sh("rm -rf region");
        CHECK(pipe(gate) == 0 && pipe(done) == 0);
        fflush(stdout);
        for (int racer = 0; racer < RACERS; racer++) {
            racers[racer] = fork();
            if (racers[racer] == 0) {
                close(gate[1]);
                race(&made.config, gate[0], done[1]);
                _exit(0);
            }
        }
        close(gate[1]);
        for (int racer = 0; racer < RACERS; racer++) {
            CHECK(read(done[0], &byte, 1) == 1);
            won += byte == '+';
        }
        for (int racer = 0; racer < RACERS; racer++) {
            int status = 0;
            kill(racers[racer], SIGKILL);
            CHECK(waitpid(racers[racer], &status, 0) == racers[racer]);
        }
        close(gate[0]);
        close(done[0]);
        close(done[1]);
        CHECK(won == 1, "%d servers made one region", won);
        CHECK(open_with(&service, &made.config, "loopback://race") == 0, "%s", error);
        CHECK(rp_service_attached(service), "the winner's region is there under its name");
        rp_service_close(service);
        sh("test \"$(ls)\" = region");
    }
    check_group("servers that start together: one makes the region, the others are told");
}

/* Given a disk that is full and a region with holes. Expect a sentence, and no SIGBUS later. */
static void fill_disk(void) {
    struct drive_table made;
    struct rp_service *service;
    drive_config(&made, CAPACITY, ROW);
    if (mount("none", place, "tmpfs", 0, "size=6m") < 0) {
        printf("  (no tmpfs of its own here: a full disk is not shown)\n");
        return;
    }
    CHECK(open_with(&service, &made.config, "loopback://full") == 0, "%s", error);
    static uint8_t weights[1 << 16];
    struct rp_link_options options = {0};
    struct rp_link *link = drive_link("loopback://full", &options);
    uint64_t version = 0;
    for (int full = 1; full >= 0; full--) { /* weights have no room before somebody publishes */
        sh(full ? "cat /dev/zero > rest 2> /dev/null; test -s rest" : "rm rest");
        uint64_t end_ns = rp_clock_ns() + DRIVE_TIMEOUT_NS;
        int status;
        do { /* room that was refused is not asked for again within a second */
            status = drive_wait(link, rp_link_publish(link, weights, sizeof weights, &version,
                                                      DRIVE_TIMEOUT_NS), NULL);
        } while (!full && status == -RP_DISK_FULL && rp_clock_ns() < end_ns);
        CHECK(status == (full ? -RP_DISK_FULL : 0), "%s", rp_status_name(status));
    }
    CHECK(version == 1);
    rp_link_close(link, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
    sh("s=$(stat -c %s region/table0.steps) && f=region/table0.steps && "
       "truncate -s 0 $f && truncate -s $s $f");
    sh("cat /dev/zero > rest 2> /dev/null; test -s rest");
    CHECK(open_with(&service, &made.config, "loopback://full") == -RP_NO_MEMORY, "%s", error);
    CHECK(strstr(error, "No space left"), "%s", error);
    sh("rm -r region");
    sh("cat /dev/zero > more 2> /dev/null; test -s more");
    CHECK(open_with(&service, &made.config, "loopback://full") == -RP_NO_MEMORY, "%s", error);
    sh("test ! -e region && test ! -e region.new");
    check_group("a full disk: a sentence, at making and at taking over, and nothing is left");
}

static void check_full_disk(void) {
    int status = 0;
    sh("rm -rf region");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
            (void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
        }
        fill_disk();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

/* Given more memory than the machine has. Expect the large term, and what to take less of. */
static void check_advice(void) {
    struct drive_table made;
    struct rp_service *service = NULL;
    struct rp_service_options plain = {0};
    drive_config(&made, 1u << 31, 1 << 14);
    made.table.window = 64;
    CHECK(rp_service_open(&service, &made.config, "loopback://big", &plain, error)
          == -RP_NO_MEMORY);
    CHECK(strstr(error, "the steps of table main") && strstr(error, "this machine has"), "%s",
          error);
    drive_config(&made, CAPACITY, ROW);
    made.config.weights_max = RP_BLOB_BYTES_MAX;
    CHECK(rp_service_open(&service, &made.config, "loopback://big", &plain, error) == 0
              || strstr(error, "weights"), "%s", error);
    rp_service_close(service);
    check_group("a region that does not fit names the term that is large");
}

/* Given a region's name with slashes behind it, of no folder and of an empty one, and signals while
 * room on the disk is asked for. Expect it made beside its place, then taken over. */
static void check_slashes(void) {
    static struct drive_table made;
    char plain[sizeof region];
    memcpy(plain, region, sizeof plain);
    drive_config(&made, CAPACITY, ROW);
    for (int i = 0; i < 4; i++) {
        struct rp_service *service;
        snprintf(region, sizeof region, "%s/slash//", place);
        interruptions = i % 2 == 0 ? 5 : 0;
        int status = open_with(&service, &made.config, "loopback://slash");
        CHECK(status == 0, "%s", error);
        CHECK(interruptions == 0 && rp_service_attached(service) == i % 2);
        rp_service_close(service);
        if (i == 1) {
            sh("rm slash/* && rmdir slash && mkdir slash");
        }
    }
    sh("test ! -e slash.new && rm -r slash");
    memcpy(region, plain, sizeof plain);
    check_group("a name with slashes behind it; signals");
}

int main(void) {
    place_open();
    check_slashes();
    check_taken_over();
    check_differences();
    check_files();
    check_changes();
    check_agreed();
    check_names();
    check_exchanged();
    check_races();
    check_full_disk();
    check_advice();
    check_seals();
    sh("rm -rf region && rmdir ../$(basename $PWD)");
    return check_done("test_region");
}
