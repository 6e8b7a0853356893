/* Folders, locks and mappings: see service_memory.h.
 *
 * Two servers that start together meet at the lock of PATH.new: one makes the region, the other is
 * refused. Between opening a folder and locking it, its owner may have renamed or removed it. So
 * once the folder is locked, it is looked up by name again, and if it has lost that name the loop
 * starts again. Each turn of that loop means that another process succeeded; turns are counted.
 */
#include "drive/service_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/forks.h"
#include "os/limits.h"
#include "os/system.h"
#include "protocol/status.h"

enum { ERROR_BYTES = 256, TRIES = 16, SIGNALS_MAX = 1000, AGAIN = 1 };

#define MIB(bytes) ((double)(bytes) / (1 << 20))

static const char making[] = "making"; /* a file in a folder that no server has served yet */
static const char mounted[] = "a mount point, which nothing can replace: name a folder in it";
static const char dots[] = "nothing can replace \".\" or \"..\": name the folder by its own name";

static int refuse(char *error, const char *path, const char *why) {
    snprintf(error, ERROR_BYTES, "%.100s: %.140s", path, why);
    return -RP_SYSTEM;
}

/* A path that no other moment makes right. */
static int refuse_path(char *error, const char *path, const char *why) {
    (void)refuse(error, path, why);
    return -RP_BAD_ARGUMENT;
}

void rp_memory_none(struct rp_memory *memory) {
    *memory = (struct rp_memory){.file = -1, .opened = -1, .need_file = -1};
}

/* ---- the folder ---- */

/* Opens the folder if it is this user's own. A link is not followed: its owner chose where it
 * leads. AGAIN where there is no folder. */
static int open_folder(struct rp_memory *memory, const char *name, struct stat *own, char *error) {
    rp_forks_hold();
    memory->file = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int failed = memory->file < 0 || fstat(memory->file, own) < 0 ? errno : 0;
    rp_forks_allow();
    if (failed == ENOENT) {
        return AGAIN;
    }
    if (failed) {
        if (lstat(name, own) == 0 && S_ISLNK(own->st_mode)) {
            return refuse_path(error, name, "a link, which is not followed: remove it, or name the "
                                            "folder it leads to");
        }
        return failed == ENOTDIR
            ? refuse_path(error, name, "a file; a region is a folder: name another")
            : refuse(error, name, strerror(failed));
    }
    return own->st_uid == geteuid()
        ? 0
        : refuse(error, name, "a folder of another user, who could change what is served: serve as "
                              "its owner, or name another");
}

/* Locks the folder of this name: 0, AGAIN where the name went to another folder meanwhile, or a
 * negative status. */
static int lock_folder(struct rp_memory *memory, const char *name, const char *taken, char *error) {
    struct stat own, named;
    int status = open_folder(memory, name, &own, error);
    if (status) {
        return status;
    }
    if (flock(memory->file, LOCK_EX | LOCK_NB) < 0) {
        return refuse(error, name, errno == EWOULDBLOCK ? taken : strerror(errno));
    }
    int same = lstat(name, &named) == 0 && own.st_ino == named.st_ino
        && own.st_dev == named.st_dev;
    return same ? 0 : AGAIN;
}

static int is_file_of_region(const char *entry) {
    char name[RP_SEGMENT_NAME_BYTES];
    int found = strcmp(entry, making) == 0;
    for (uint32_t i = 0; i < RP_SEGMENTS_MAX && !found; i++) {
        rp_segment_name(i, name);
        found = strcmp(entry, name) == 0;
    }
    return found;
}

/* Removes the region's files, but for the one that says that it is being made. */
static void empty_folder(const struct rp_memory *memory) {
    char name[RP_SEGMENT_NAME_BYTES];
    for (uint32_t i = 0; i < RP_SEGMENTS_MAX; i++) {
        rp_segment_name(i, name);
        (void)unlinkat(memory->file, name, 0);
    }
}

enum contents { UNREADABLE, NOTHING, PARTS, OTHERS };

/* What the folder holds: nothing, files of a region, other things too; UNREADABLE, and errno. */
static enum contents look_around(const struct rp_memory *memory) {
    int again = openat(memory->file, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again < 0 ? NULL : fdopendir(again);
    if (!folder) {
        int why = errno;
        if (again >= 0) {
            close(again);
        }
        errno = why;
        return UNREADABLE;
    }
    enum contents found = NOTHING;
    struct dirent *entry;
    while (found != OTHERS && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            found = is_file_of_region(entry->d_name) ? PARTS : OTHERS;
        }
    }
    closedir(folder);
    return found;
}

static int make_folder(struct rp_memory *memory, const char *path, char *error) {
    snprintf(memory->folder, sizeof memory->folder, "%s.new", path);
    if (mkdir(memory->folder, 0700) < 0 && errno != EEXIST) {
        return refuse(error, memory->folder, strerror(errno));
    }
    int status = lock_folder(memory, memory->folder, "another server is making this region", error);
    if (status) {
        return status;
    }
    enum contents contents = look_around(memory);
    if (contents == UNREADABLE) {
        return refuse(error, memory->folder, strerror(errno));
    }
    int died = faccessat(memory->file, making, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (contents == OTHERS || (contents == PARTS && !died)) {
        return refuse(error, memory->folder, "holds a region or other things, but the new region "
                                             "is made under this name: move it, or name another");
    }
    memory->made = 1;
    int mark = openat(memory->file, making, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (mark < 0) {
        return refuse(error, memory->folder, strerror(errno));
    }
    close(mark);
    empty_folder(memory);
    return 0;
}

/* Nothing can be renamed to where something is mounted. */
static int is_mount_point(const struct rp_memory *memory) {
    return rp_folder_is_mounted(memory->file);
}

/* Nor to ".", nor to "..". */
static int ends_in_dots(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    return strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
}

/* A folder that holds a region is taken over; where there is none, or an empty one, PATH.new is
 * made. AGAIN: another process was faster. */
static int find_folder(struct rp_memory *memory, const char *path, char *error) {
    char state[PATH_MAX];
    snprintf(state, sizeof state, "%s/state", path); /* it fits, see rp_memory_open */
    struct stat own;
    int status = lock_folder(memory, path, "another server uses this region", error);
    if (status == 0 && access(state, F_OK) == 0) {
        if (fstat(memory->file, &own) < 0 || own.st_mode & S_IWOTH) {
            return refuse(error, path, "a region that every user may change: chmod o-w it, if "
                                       "nobody did");
        }
        memory->attached = 1;
        snprintf(memory->folder, sizeof memory->folder, "%s", path);
        return 0;
    }
    enum contents contents = status == 0 ? look_around(memory) : NOTHING;
    if (contents == UNREADABLE) {
        return refuse(error, path, strerror(errno));
    }
    if (contents != NOTHING) {
        return refuse_path(error, path, "a folder that holds other things, but no file \"state\": "
                                        "put that back, or name an empty or a new folder");
    }
    if (status == 0 && (ends_in_dots(path) || is_mount_point(memory))) {
        return refuse_path(error, path, ends_in_dots(path) ? dots : mounted);
    }
    if (status != 0 && status != AGAIN) {
        return status;
    }
    rp_memory_close(memory);
    status = make_folder(memory, path, error);
    return status == 0 && access(state, F_OK) == 0 ? AGAIN : status;
}

int rp_memory_open(struct rp_memory *memory, const char *path, char *error) {
    char bare[PATH_MAX - sizeof ".new/table15.steps"]; /* without slashes behind it */
    rp_memory_none(memory);
    if (!path) {
        return 0;
    }
    if (!path[0]) {
        snprintf(error, ERROR_BYTES, "a region's folder needs a name, and this one is empty");
        return -RP_BAD_ARGUMENT;
    }
    if (strlen(path) >= sizeof bare) {
        return refuse_path(error, path, "the path is too long");
    }
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    snprintf(bare, sizeof bare, "%.*s", (int)length, path);
    for (int i = 0; i < TRIES; i++) {
        int status = find_folder(memory, bare, error);
        if (status != AGAIN) {
            return status;
        }
        rp_memory_close(memory);
    }
    return refuse(error, path, "other servers made and removed it all the time: try again");
}

const void *rp_memory_state(const struct rp_memory *memory, size_t *bytes, char *error) {
    struct stat about;
    void *state = MAP_FAILED;
    /* a pipe of that name would be waited for */
    int file = openat(memory->file, "state", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && fstat(file, &about) == 0 && !S_ISREG(about.st_mode)) {
        errno = ENODEV; /* as mmap has it */
    } else if (file >= 0) {
        *bytes = (size_t)about.st_size;
        state = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0); /* EINVAL where it is empty */
    }
    if (state == MAP_FAILED) {
        snprintf(error, ERROR_BYTES,
                 "%.100s: its file \"state\" cannot be read: %.80s: name another region",
                 memory->folder, strerror(errno));
    }
    if (file >= 0) {
        close(file);
    }
    return state == MAP_FAILED ? NULL : state;
}

/* ---- the mapping ---- */

static const struct rp_segment *largest(const struct rp_segments *segments) {
    const struct rp_segment *found = &segments->segment[0];
    for (uint32_t i = 1; i < segments->count; i++) {
        if (segments->segment[i].bytes > found->bytes) {
            found = &segments->segment[i];
        }
    }
    return found;
}

static int no_room(char *error, const struct rp_segments *segments, const char *why) {
    const struct rp_segment *term = largest(segments);
    snprintf(error, ERROR_BYTES,
             "the region takes %.1f MiB, %.1f MiB of them for %s; %.80s: make room, or that "
             "smaller",
             MIB(segments->bytes), MIB(term->bytes), term->what, why);
    return -RP_NO_MEMORY;
}

/* Room on the disk, whatever signals come meanwhile. 0 or an errno. */
static int allocate(int file, uint64_t offset, uint64_t bytes) {
    int failed = EINTR;
    for (int i = 0; i < SIGNALS_MAX && failed == EINTR; i++) {
        failed = rp_file_allocate(file, offset, bytes);
    }
    return failed;
}

/* Pages that no forked child gets, whenever it is forked; null, and errno. */
static void *map_pages(void *at, uint64_t bytes, int flags, int file) {
    rp_forks_hold();
    void *pages = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    int failed = pages == MAP_FAILED ? errno : 0;
    if (!failed) {
        rp_pages_not_for_children(pages, bytes);
    }
    rp_forks_allow();
    errno = failed;
    return failed ? NULL : pages;
}

/* A forked child closes the file wherever it is. -1 with errno. */
static int open_segment(struct rp_memory *memory, const char *name) {
    int flags = O_RDWR | O_CLOEXEC | (memory->made ? O_CREAT | O_EXCL : 0);
    rp_forks_hold();
    memory->opened = openat(memory->file, name, flags, 0600);
    int failed = errno;
    rp_forks_allow();
    errno = failed;
    return memory->opened;
}

static void close_segment(struct rp_memory *memory, int is_kept) {
    rp_forks_hold();
    if (is_kept) {
        memory->need_file = memory->opened;
    } else {
        close(memory->opened);
    }
    memory->opened = -1;
    rp_forks_allow();
}

/* Room on the disk for the file's pages, then the pages over their part of the range. */
static int map_file(struct rp_memory *memory, const struct rp_segments *segments,
                    const struct rp_segment *segment, char *error) {
    int file = open_segment(memory, segment->name);
    struct stat about;
    if (file < 0 || fstat(file, &about) < 0) {
        snprintf(error, ERROR_BYTES, "%.100s/%s: %.80s", memory->folder, segment->name,
                 strerror(errno));
        return -RP_SYSTEM;
    }
    int status = 0;
    int failed = 0;
    if (memory->attached && (uint64_t)about.st_size != segment->bytes) {
        snprintf(error, ERROR_BYTES, "%.100s/%s: holds %lld bytes of %llu: name another region",
                 memory->folder, segment->name, (long long)about.st_size,
                 (unsigned long long)segment->bytes);
        status = -RP_BAD_REGION;
    } else if (segment->at_need) {
        failed = ftruncate(file, (off_t)segment->bytes) < 0
            ? errno
            : allocate(file, segment->bytes - RP_SEGMENT_ALIGN, RP_SEGMENT_ALIGN);
    } else {
        failed = allocate(file, 0, segment->bytes);
    }
    if (failed) {
        status = no_room(error, segments, strerror(failed));
    }
    uint8_t *at = (uint8_t *)memory->base + segment->offset;
    if (!status && !map_pages(at, segment->bytes, MAP_SHARED | MAP_FIXED, file)) {
        status = no_room(error, segments, strerror(errno));
    }
    memory->need_offset = segment->at_need ? segment->offset : memory->need_offset;
    close_segment(memory, !status && segment->at_need);
    return status;
}

/* Anonymous pages are there when they are first touched, and a host or a control group that has too
 * few kills processes then; so more than all of its memory is refused now. */
static int check_host(const struct rp_segments *segments, char *error) {
    struct rp_memory_limit limit = rp_memory_limit("");
    char why[96];
    snprintf(why, sizeof why, "%s %.1f MiB", limit.whose, MIB(limit.bytes));
    return segments->bytes > limit.bytes ? no_room(error, segments, why) : 0;
}

/* No file could be mapped where its segment begins. */
static int check_pages(const struct rp_memory *memory, char *error) {
    long page = sysconf(_SC_PAGESIZE);
    char why[128];
    snprintf(why, sizeof why, "pages of memory have %ld bytes here, its files are laid out for %d "
             "at most: serve without a region", page, (int)RP_SEGMENT_ALIGN);
    return page > RP_SEGMENT_ALIGN ? refuse(error, memory->folder, why) : 0;
}

int rp_memory_map(struct rp_memory *memory, const struct rp_segments *segments, char *error) {
    int status = memory->folder[0] ? check_pages(memory, error) : check_host(segments, error);
    if (status) {
        return status;
    }
    rp_forks_hold();
    memory->bytes = segments->bytes;
    memory->base = map_pages(NULL, memory->bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    rp_forks_allow();
    if (!memory->base) {
        return no_room(error, segments, strerror(errno));
    }
    for (uint32_t i = 0; memory->folder[0] && !status && i < segments->count; i++) {
        status = map_file(memory, segments, &segments->segment[i], error);
    }
    rp_pages_huge(memory->base, memory->bytes); /* without them, slower */
    return status;
}

int rp_memory_keep(struct rp_memory *memory, const char *path, char *error) {
    if (memory->made && rename(memory->folder, path) < 0) {
        return refuse(error, path, errno == EBUSY ? mounted : strerror(errno));
    }
    memory->made = 0;
    if (memory->file >= 0) { /* also one that was killed here, and is attached to */
        (void)unlinkat(memory->file, making, 0);
    }
    return 0;
}

int rp_memory_allocate(void *owner, uint64_t offset, uint64_t bytes) {
    const struct rp_memory *memory = owner;
    uint64_t at = offset - memory->need_offset;
    if (memory->need_file < 0) {
        return 1;
    }
    if (!rp_file_has_room(memory->need_file, at, bytes)) {
        return 0;
    }
    int failed = allocate(memory->need_file, at, bytes);
    if (failed) {
        rp_file_give_back(memory->need_file, at, bytes);
    }
    return !failed;
}

void rp_memory_forget(struct rp_memory *memory) {
    rp_pages_leave_in_child(memory->base, memory->bytes);
    if (memory->file >= 0) {
        close(memory->file);
    }
    if (memory->opened >= 0) {
        close(memory->opened);
    }
    if (memory->need_file >= 0) {
        close(memory->need_file);
    }
    rp_memory_none(memory);
}

void rp_memory_close(struct rp_memory *memory) {
    rp_forks_hold();
    if (memory->base) {
        munmap(memory->base, memory->bytes);
        memory->base = NULL;
    }
    rp_forks_allow();
    if (memory->made) { /* under its lock: no other process uses it */
        empty_folder(memory);
        (void)unlinkat(memory->file, making, 0);
        (void)rmdir(memory->folder);
    }
    if (memory->file >= 0) { /* a child that is just forked has it open, and so its lock */
        (void)flock(memory->file, LOCK_UN);
    }
    rp_forks_hold();
    rp_memory_forget(memory);
    rp_forks_allow();
}
