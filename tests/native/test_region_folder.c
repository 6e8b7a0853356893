/* A region's folder is this user's own, no link and no mount point; and nothing but what a
 * start that died left is removed to make one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"
#include "drive_place.h"
#include "process.h"
#include "drive/service_memory.h"

enum { ROW = 64, CAPACITY = 4096 };

static char error[RP_ERROR_BYTES];

static void (*before_lock)(void); /* what another does before each lock of this program */
static int interruptions;         /* signals that come while room on the disk is asked for */
static const char *closed_name;   /* what of a folder cannot be opened, for want of descriptors */
static const char *odd_name;      /* what of it turns out to be no folder */
static uint64_t room_kib;         /* what the disk says that it has; 0: as it is */
static int is_root = 1;
static int allocations;           /* how often it was asked for more */
static int half_full;             /* the disk ends within what is asked for, and keeps that */
static int is_mounted;            /* something is mounted where the kernel is asked */

/* The C library's. */
int flock(int file, int how) {
    if (before_lock && how & LOCK_EX) {
        before_lock();
    }
    return (int)syscall(SYS_flock, file, how);
}

int fstatvfs(int file, struct statvfs *about) {
    struct statfs own;
    if (fstatfs(file, &own)) {
        return -1;
    }
    *about = (struct statvfs){.f_blocks = own.f_blocks, .f_bfree = own.f_bfree,
                              .f_bavail = own.f_bavail, .f_frsize = (unsigned long)own.f_bsize};
    if (room_kib > 0) {
        about->f_frsize = 1024;
        about->f_bfree = room_kib;
        about->f_bavail = room_kib / 2; /* the rest is root's */
    }
    return 0;
}

uid_t geteuid(void) {
    return is_root ? 0 : 1000;
}

int posix_fallocate(int file, off_t offset, off_t bytes) {
    allocations++;
    if (half_full) {
        return syscall(SYS_fallocate, file, 0, offset, bytes / 2) == 0 ? ENOSPC : errno;
    }
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

int openat(int folder, const char *name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    CHECK(flags & O_CLOEXEC, "%s would be open in a program started now", name);
    if (closed_name && strcmp(name, closed_name) == 0) {
        errno = EMFILE;
        return -1;
    }
    int odd = odd_name && strcmp(name, odd_name) == 0;
    return (int)(odd ? syscall(SYS_openat, folder, "/dev/null", O_RDONLY | O_CLOEXEC)
                     : syscall(SYS_openat, folder, name, flags, mode));
}

int statx(int folder, const char *name, int flags, unsigned mask, struct statx *about) {
    int result = (int)syscall(SYS_statx, folder, name, flags, mask, about);
    about->stx_attributes |= is_mounted ? STATX_ATTR_MOUNT_ROOT : 0;
    return result;
}

/* Serves PLACE/name: its incarnation, or 0 with a sentence. */
static uint64_t serve(const char *name) {
    char path[64];
    struct drive_table made;
    struct rp_service *service;
    snprintf(path, sizeof path, "%s/%s", place, name);
    struct rp_service_options options = {.region_path = path};
    drive_config(&made, CAPACITY, ROW);
    if (rp_service_open(&service, &made.config, "loopback://folder", &options, error) != 0) {
        return 0;
    }
    uint64_t incarnation = rp_service_incarnation(service);
    rp_service_close(service);
    return incarnation;
}

/* Whether the sentence is of PLACE/name, and says why. */
static int said_of(const char *name, const char *why) {
    char path[64];
    int size = snprintf(path, sizeof path, "%s/%s: ", place, name);
    return strncmp(error, path, (size_t)size) == 0 && strstr(error, why) != NULL;
}

/* Given a whole region, or files of something else, under the name that a new region is made under.
 * Expect a sentence, and all of them there afterwards. */
static void check_kept(void) {
    uint64_t incarnation = serve("a.new");
    CHECK(incarnation != 0 && serve("a") == 0 && said_of("a.new", "holds a region"), "%s",
          error);
    CHECK(serve("a.new") == incarnation, "another region than before");
    static const char *const others[] = {
        "touch b.new/thesis", "touch b.new/making b.new/table16.steps", "touch b.new/weights",
        "touch b.new/state b.new/thesis",
        "touch b.new/making b.new/state b.new/thesis", "touch b.new/state",
        "echo nothing-of-ours > b.new/state", "mkdir b.new/state", "mkfifo b.new/state",
        "ln -s ../a.new/state b.new/state"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char made[96];
        snprintf(made, sizeof made, "rm -rf b.new && mkdir b.new && %s && ls b.new > had",
                 others[i]);
        sh(made);
        CHECK(serve("b") == 0 && said_of("b.new", "holds a region or other"), "%s", others[i]);
        sh("ls b.new | cmp - had");
    }
    sh("rm -r a.new b.new had");
    check_group("what no start that died left is not removed");
}

/* Given what a start leaves that was killed while it made its files or removed them. Expect a new
 * region in its place. */
static void check_half_made(void) {
    static const char *const left[] = {
        "true", "touch c.new/making", "touch c.new/making c.new/state",
        "cd c.new && touch making table0.keys table15.steps && head -c 9000 /dev/zero > state"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        char made[160];
        snprintf(made, sizeof made, "rm -rf c && mkdir c.new && %s", left[i]);
        sh(made);
        int before = open_descriptors();
        CHECK(serve("c") != 0, "%s: %s", left[i], error);
        CHECK(serve("c") != 0, "%s", error); /* attached */
        CHECK(open_descriptors() == before, "%d descriptors stay", open_descriptors() - before);
        sh("test \"$(ls)\" = c && test \"$(ls c | tr '\\n' ' ')\" = "
           "'state table0.keys table0.steps weights '");
    }
    sh("rm -r c");
    check_group("what a start that died left is replaced");
}

static enum { LIVES, BEFORE_RENAME, AFTER_RENAME } dies;
static int rename_fails; /* the number with which it does */

/* The core's, to be killed at it. */
int rename(const char *old, const char *new) {
    if (rename_fails) {
        errno = rename_fails;
        return -1;
    }
    if (dies == BEFORE_RENAME) {
        kill(getpid(), SIGKILL);
    }
    int result = (int)syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
    if (dies == AFTER_RENAME) {
        kill(getpid(), SIGKILL);
    }
    return result;
}

/* Given starts that are killed when their region is whole: before it got its name, and just after.
 * Expect the next start to serve, and no trace of what came before it. */
static void check_killed_at_rename(void) {
    for (dies = BEFORE_RENAME; dies <= AFTER_RENAME; dies++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            serve("k");
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        sh(dies == BEFORE_RENAME ? "test -s k.new/state" : "test -s k/state");
        int kind = (int)dies;
        dies = LIVES;
        uint64_t incarnation = serve("k");
        CHECK(incarnation != 0, "%d: %s", kind, error);
        CHECK(serve("k") == incarnation, "%s", error);
        sh("test \"$(ls)\" = k && test \"$(ls k | tr '\\n' ' ')\" = "
           "'state table0.keys table0.steps weights ' && rm -r k");
        dies = kind;
    }
    dies = LIVES;
    check_group("a start that was killed with its region whole does not block the next");
}

/* Serves as long as `left` descriptors are enough: whether they were. */
static int serve_with(int left) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int next = dup(0);
        struct rlimit most = {.rlim_cur = (rlim_t)(next + left), .rlim_max = (rlim_t)(next + left)};
        CHECK(next >= 0 && close(next) == 0 && setrlimit(RLIMIT_NOFILE, &most) == 0);
        int served = serve("l") != 0;
        int by_port = strstr(error, "no memory for a port") != NULL; /* POSIX's needs two */
        CHECK(served || by_port || strstr(error, "Too many open files"), "%d left: %s", left,
              error);
        _exit(served);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    return WEXITSTATUS(status);
}

/* Given few descriptors, one more each time, and nothing there, or a region. Expect the reason to
 * be named each time, and nothing to be left or lost. */
static void check_few_descriptors(void) {
    for (int there = 0; there < 2; there++) {
        uint64_t incarnation = there ? serve("l") : 0;
        int left = 1;
        for (; left < 64 && !serve_with(left); left++) {
            sh(there ? "test \"$(ls)\" = l" : "(rmdir l.new || :) 2>&- && test -z \"$(ls)\"");
        }
        CHECK(left > 1 && left < 64, "%d", left);
        CHECK(!there || serve("l") == incarnation);
    }
    sh("rm -r l");
    check_group("few descriptors: the reason is named");
}

/* Given folders that cannot be looked into or marked, and a mount point, told before and while its
 * name is taken. Expect the folder's name, then why, and each descriptor closed. */
static void check_refusals(void) {
    static const struct { const char *made, *closed, *odd, *of, *why; } refusals[] = {
        {"mkdir m", ".", NULL, "m", "Too many open"},
        {"mkdir m", NULL, ".", "m", "Not a directory"},
        {"true", ".", NULL, "m.new", "Too many open"},
        {"true", NULL, ".", "m.new", "Not a directory"},
        {"true", "making", NULL, "m.new", "Too many open"},
    };
    int before = open_descriptors();
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        sh(refusals[i].made);
        closed_name = refusals[i].closed;
        odd_name = refusals[i].odd;
        CHECK(serve("m") == 0 && said_of(refusals[i].of, refusals[i].why), "%zu: %s", i, error);
        closed_name = odd_name = NULL;
        CHECK(open_descriptors() == before, "%zu: some stay open", i);
        sh("rm -rf m m.new");
    }
    sh("mkdir m");
#ifndef RP_POSIX /* where rename tells it */
    is_mounted = 1;
    CHECK(serve("m") == 0 && said_of("m", "a mount point"), "%s", error);
    is_mounted = 0;
#endif
    rename_fails = EBUSY;
    CHECK(serve("m") == 0 && said_of("m", "a mount point"), "%s", error);
    rename_fails = EACCES;
    CHECK(serve("m") == 0 && said_of("m", "Permission denied"), "%s", error);
    rename_fails = 0;
    CHECK(serve("m") != 0 && open_descriptors() == before, "%s", error);
    sh("test \"$(ls)\" = m && rm -r m && mkdir m");
    CHECK(serve("m/.") == 0 && said_of("m/.", "name the folder by its own name"), "%s", error);
    CHECK(serve("m/./") == 0 && said_of("m/.", "name the folder by its own name"), "%s", error);
    sh("test -z \"$(ls -A m)\"");
    CHECK(serve("m") != 0 && serve("m/.") != 0, "what is taken over is not renamed: %s", error);
    sh("test \"$(ls)\" = m && rm -r m");
    check_group("what cannot be looked into, marked, or renamed to");
}

/* Given links in place of the folders. Expect a sentence, and nothing done where they lead. */
static void check_links(void) {
    sh("mkdir home empty && touch home/thesis && ln -s home d.new && ln -s empty e && "
       "ln -s away f");
    static const char *const names[] = {"d", "e", "e/", "f"};
    static const char *const links[] = {"d.new", "e", "e", "f"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(serve(names[i]) == 0 && said_of(links[i], "a link, which is not followed"), "%s: %s",
              names[i], error);
    }
    sh("test -f home/thesis && test \"$(ls | tr '\\n' ' ')\" = 'd.new e empty f home ' && rm -r *");
    check_group("a link is not followed");
}

/* Given folders of another user. Expect a sentence, and their files left alone. */
static void check_owner(void) {
    sh("mkdir g h.new && touch h.new/state");
    if (geteuid() != 0) {
        printf("  (not root: folders of another user are not shown)\n");
    } else {
        sh("chown 12345 g h.new");
        CHECK(serve("g") == 0 && said_of("g", "a folder of another user"), "%s", error);
        CHECK(serve("h") == 0 && said_of("h.new", "a folder of another user"), "%s", error);
        sh("test -f h.new/state && test ! -e g/state");
    }
    sh("rm -r g h.new");
    check_group("another user's folder is refused");
}

/* Given a folder that is locked, one whose parent is not there, and a process whose first free
 * descriptor is 0. Expect the path, then why; and each descriptor closed. */
static void check_words(void) {
    char path[64];
    sh("mkdir k");
    snprintf(path, sizeof path, "%s/k", place);
    int held = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(held >= 0 && flock(held, LOCK_EX | LOCK_NB) == 0);
    CHECK(serve("k") == 0 && strstr(error, "another server uses this region"), "%s", error);
    CHECK(strncmp(error, path, strlen(path)) == 0, "%s", error);
    close(held);
    CHECK(serve("away/l") == 0 && strstr(error, "No such file"), "%s", error);
    CHECK(strncmp(error, place, strlen(place)) == 0, "%s", error);
    int input = fcntl(0, F_DUPFD_CLOEXEC, 3);
    close(0);
    for (int round = 0; round < 2; round++) { /* made, and attached to */
        CHECK(serve("k") != 0, "%s", error);
        CHECK(fcntl(0, F_GETFD) < 0, "0 is a descriptor as any other");
    }
    CHECK(input < 0 || (dup2(input, 0) == 0 && close(input) == 0));
    sh("rm -r k");
    check_group("a region's path and what is wrong with it");
}

/* Given an empty mount point. Expect a sentence before anything is made, and a region in it. */
static void serve_mounted(void) {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        printf("  (no mounts here: a mount point is not shown)\n");
        return;
    }
    (void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    sh("mkdir volume");
    char path[64];
    snprintf(path, sizeof path, "%s/volume", place);
    if (mount("none", path, "tmpfs", 0, "size=64m") == 0) {
        CHECK(serve("volume") == 0 && said_of("volume", "a mount point"), "%s", error);
        sh("test \"$(ls)\" = volume");
        CHECK(serve("volume/region") != 0, "%s", error);
        check_group("a mount point is refused, a folder in it served");
        CHECK(umount(path) == 0);
    }
    sh("rmdir volume");
}

static void check_mount(void) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        serve_mounted();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    sh("rm -rf volume");
}

/* The status of mapping a region under PLACE/i.new with a limit of this process lowered. */
static int map_with(int limit, uint64_t most) {
    struct rp_segments segments = {.count = 1, .bytes = 1 << 20};
    segments.segment[0] = (struct rp_segment){.bytes = 1 << 20, .what = "tests"};
    rp_segment_name(0, segments.segment[0].name);
    struct rlimit before, low;
    struct rp_memory memory;
    char path[64];
    snprintf(path, sizeof path, "%s/i", place);
    CHECK(rp_memory_open(&memory, path, error) == 0 && getrlimit(limit, &before) == 0);
    low = (struct rlimit){most, before.rlim_max};
    CHECK(setrlimit(limit, &low) == 0);
    int status = rp_memory_map(&memory, &segments, error);
    CHECK(setrlimit(limit, &before) == 0);
    if (!status) {
        sh("mkdir -p i/other");
        CHECK(rp_memory_keep(&memory, path, error) < 0 && strstr(error, "not empty"), "%s", error);
    }
    rp_memory_close(&memory);
    return status;
}

DRIVE_UNUSED static uint64_t file_blocks(int file) {
    struct stat about;
    CHECK(fstat(file, &about) == 0);
    return (uint64_t)about.st_blocks;
}

/* Given a file with a part in use, and a disk that has half of the room around it. Expect a refusal
 * that keeps none of it, and the part as it was. */
static void check_half_full(void) {
#ifndef RP_POSIX
    enum { KIB = 1024, SIZE = 1024 * KIB, USED_AT = 128 * KIB, USED = 64 * KIB };
    static uint8_t used[USED], found[USED];
    char path[64];
    struct rp_memory memory;
    snprintf(path, sizeof path, "%s/weights", place);
    rp_memory_none(&memory);
    memory.need_file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    memory.need_offset = SIZE;
    memset(used, 7, sizeof used);
    CHECK(memory.need_file >= 0 && ftruncate(memory.need_file, SIZE) == 0);
    CHECK(syscall(SYS_pwrite64, memory.need_file, used, USED, (off_t)USED_AT) == USED);
    uint64_t before = file_blocks(memory.need_file);
    half_full = 1;
    CHECK(!rp_memory_allocate(&memory, SIZE + 64 * KIB, 512 * KIB));
    CHECK(file_blocks(memory.need_file) == before, "the disk keeps %" PRIu64 " blocks",
          file_blocks(memory.need_file) - before);
    half_full = 0;
    allocations = 0;
    room_kib = 447; /* a KiB less than lies unused there */
    CHECK(!rp_memory_allocate(&memory, SIZE + 64 * KIB, 512 * KIB));
    CHECK(allocations == 0 && file_blocks(memory.need_file) == before, "it takes all there is");
    room_kib = 448;
    CHECK(rp_memory_allocate(&memory, SIZE + 64 * KIB, 512 * KIB));
    CHECK(file_blocks(memory.need_file) > before);
    room_kib = 1; /* all of it was given before, though nothing was written there */
    CHECK(rp_memory_allocate(&memory, SIZE + 64 * KIB, 512 * KIB));
    CHECK(!rp_memory_allocate(&memory, SIZE + 64 * KIB, 960 * KIB));
    room_kib = 448; /* as much as lacks, half of it for root alone */
    is_root = 0;
    CHECK(!rp_memory_allocate(&memory, SIZE + 64 * KIB, 960 * KIB));
    is_root = 1;
    CHECK(rp_memory_allocate(&memory, SIZE + 64 * KIB, 960 * KIB));
    room_kib = 0;
    CHECK(pread(memory.need_file, found, USED, USED_AT) == USED);
    CHECK(memcmp(found, used, USED) == 0);
    rp_memory_close(&memory);
    CHECK(unlink(path) == 0);
    check_group("a disk that is full in the middle of it keeps nothing");
#endif
}

/* Given no room on the disk, no room for addresses, and a folder of the region's name that somebody
 * filled meanwhile. Expect a sentence, and nothing left of the new region. */
static void check_no_room(void) {
    signal(SIGXFSZ, SIG_IGN);
    CHECK(map_with(RLIMIT_FSIZE, 4096) == -RP_NO_MEMORY && strstr(error, "for tests; File too"),
          "%s", error);
    sh("test -z \"$(ls)\"");
#if !defined(__SANITIZE_ADDRESS__)
    CHECK(map_with(RLIMIT_AS, 4096) == -RP_NO_MEMORY && strstr(error, "for tests; Cannot alloc"),
          "%s", error);
    sh("test -z \"$(ls)\"");
#endif
    CHECK(map_with(RLIMIT_FSIZE, 1 << 20) == 0, "%s", error);
    sh("test \"$(ls)\" = i && rm -r i");
    check_group("no room, or no name, for a new region");
}

static void close_input(void) {
    close(0);
}

/* Given a program without an input, so that files of the region get the number 0: of a start that
 * died, of one taken over. Expect them read, and closed. */
static void check_number_zero(void) {
    int input = dup(0);
    CHECK(input >= 0);
    sh("mkdir k.new && touch k.new/making k.new/state");
    before_lock = close_input;
    for (int attached = 0; attached < 2; attached++) {
        CHECK(dup2(input, 0) == 0, "else the port would have it");
        CHECK(serve("k") != 0, "%s", error);
        CHECK(fcntl(0, F_GETFD) < 0, "0 stays open");
    }
    before_lock = NULL;
    char path[64];
    struct rp_memory memory;
    snprintf(path, sizeof path, "%s/n", place);
    for (int attached = 0; attached < 2; attached++) {
        CHECK(rp_memory_open(&memory, path, error) == 0 && memory.file == 0, "%s", error);
        CHECK(rp_memory_keep(&memory, path, error) == 0, "%s", error);
        sh("test ! -e n/making && touch n/state");
        int held = fcntl(0, F_DUPFD_CLOEXEC, 3); /* as a forked child holds it */
        rp_memory_close(&memory);
        CHECK(fcntl(0, F_GETFD) < 0, "the folder stays open");
        CHECK(flock(open(path, O_RDONLY | O_DIRECTORY), LOCK_EX | LOCK_NB) == 0, "locked");
        CHECK(close(0) == 0 && close(held) == 0);
    }
    CHECK(dup2(input, 0) == 0 && close(input) == 0);
    sh("rm -r n");
    sh("test \"$(stat -c %a k/* | sort -u)\" = 600");
    sh("test $(($(stat -c '%b * %B' k/weights))) -lt 100000"); /* of 200000 */
    sh("rm -r k");
    check_group("files whose number is 0, and whose they are");
}

static int exchanges;

static void exchange(void) {
    exchanges++;
    sh("for f in l l.new; do if test -e $f; then mv $f old && mkdir $f && rmdir old; fi; done");
}

/* Given others who always are faster, a path that is as long as can be, the root, and signals
 * without an end. Expect a sentence of each, in the end. */
static void check_sentences(void) {
    enum { SIGNALS = 1000, LONGEST = PATH_MAX - sizeof ".new/table15.steps" };
    static char path[PATH_MAX];
    struct rp_memory memory;
    sh("mkdir l");
    before_lock = exchange;
    CHECK(serve("l") == 0 && said_of("l", "other servers made and removed it all the time"), "%s",
          error);
    before_lock = NULL;
    CHECK(exchanges == 2 * 16, "%d locks", exchanges);
    sh("rm -r l*");
    memset(path, 'x', LONGEST);
    CHECK(rp_memory_open(&memory, path, error) < 0 && strstr(error, "the path is too long"));
    CHECK(rp_memory_open(&memory, "", error) == -RP_BAD_ARGUMENT && strstr(error, "is empty"));
    path[LONGEST - 1] = 0;
    CHECK(rp_memory_open(&memory, path, error) < 0 && strstr(error, "File name too long"));
    CHECK(rp_memory_open(&memory, "//", error) < 0 && strncmp(error, "/: ", 3) == 0, "%s", error);
    rp_memory_close(&memory);
    for (int more = 0; more < 2; more++) {
        interruptions = SIGNALS - 1 + more;
        CHECK((serve("l") == 0) == more && interruptions == 0);
        CHECK(!more || strstr(error, "Interrupted"), "%s", error);
        sh("rm -rf l");
    }
    check_group("what cannot be, in words");
}

/* Given as much memory as the machine has, and more addresses than there are. Expect the first to
 * be no more than it has; a region of files to be bounded by addresses alone. */
static void check_most(void) {
    uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct rp_segments segments = {.count = 1, .bytes = host, .segment = {{.bytes = host}}};
    struct rp_memory memory;
    error[0] = 0;
    rp_memory_none(&memory);
    (void)rp_memory_map(&memory, &segments, error);
    CHECK(!strstr(error, "this machine has"), "%s", error);
    rp_memory_close(&memory);
    memory.folder[0] = 'x';
    segments = (struct rp_segments){.bytes = 1ull << 50};
    CHECK(rp_memory_map(&memory, &segments, error) == -RP_NO_MEMORY);
    CHECK(strstr(error, "Cannot allocate memory"), "%s", error);
    rp_memory_close(&memory);
    check_group("as much as there is");
}

int main(void) {
    snprintf(place, sizeof place, "/tmp/test_region_folder_XXXXXX");
    CHECK(mkdtemp(place) != NULL);
    check_kept();
    check_half_made();
    check_killed_at_rename();
    check_few_descriptors();
    check_refusals();
    check_links();
    check_owner();
    check_no_room();
    check_half_full();
    check_words();
    check_number_zero();
    check_sentences();
    check_most();
    check_mount();
    CHECK(rmdir(place) == 0, "something is left in %s", place);
    return check_done("test_region_folder");
}
