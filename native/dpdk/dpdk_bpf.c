/* Files of BPF that a device of AF_XDP leaves open in its process.
 *
 * libxdp puts a program on the interface, and opens files of it and of its maps: some when the
 * device opens, some more when it takes the program away again. It closes none of them. The process
 * may have programs and maps of its own, and other threads may make some at any moment. The kernel
 * has a number for each: it says which program is on the interface, and which maps that one uses.
 * Files of these numbers are the driver's if they were opened while the device was, or while it
 * ended. Between the two the process may open such a file itself, to read the program's counts say.
 */
#include <dirent.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_parts.h"

enum { STEP = 64 };

const char rp_bpf_own[] = "xsk_def_prog";

static long bpf(int command, union bpf_attr *attributes) {
    return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

static int ask(int file, void *answer, size_t size) {
    union bpf_attr about;
    memset(&about, 0, sizeof about);
    about.info.bpf_fd = (uint32_t)file;
    about.info.info_len = (uint32_t)size;
    about.info.info = (uintptr_t)answer;
    return bpf(BPF_OBJ_GET_INFO_BY_FD, &about) ? -1 : 0;
}

static int open_program(uint32_t program) {
    union bpf_attr which;
    memset(&which, 0, sizeof which);
    which.prog_id = program;
    return (int)bpf(BPF_PROG_GET_FD_BY_ID, &which);
}

int rp_bpf_name(uint32_t program, char *name, size_t size) {
    struct bpf_prog_info info;
    memset(&info, 0, sizeof info);
    int file = open_program(program), failed = file < 0 || ask(file, &info, sizeof info);
    snprintf(name, size, "%.15s", failed ? "" : info.name);
    if (file >= 0) {
        rp_quiet_close(file);
    }
    return failed ? -1 : 0;
}

/* Of a program or a map; number 0: it is neither. It opens no file. */
static struct rp_bpf_file look_at(int file) {
    static const char program[] = "anon_inode:bpf-prog", map[] = "anon_inode:bpf-map";
    struct rp_bpf_file found = {.file = file};
    struct bpf_prog_info of_program;
    struct bpf_map_info of_map;
    char path[64], name[sizeof program + 1] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (readlink(path, name, sizeof name - 1) < 0) {
        return found;
    }
    if (strcmp(name, program) == 0) {
        memset(&of_program, 0, sizeof of_program);
        found.is_program = 1;
        found.number = ask(file, &of_program, sizeof of_program) ? 0 : of_program.id;
    } else if (strcmp(name, map) == 0) {
        memset(&of_map, 0, sizeof of_map);
        found.number = ask(file, &of_map, sizeof of_map) ? 0 : of_map.id;
    }
    return found;
}

static int keep(struct rp_bpf_files *files, const struct rp_bpf_file *file) {
    if (files->count % STEP == 0) {
        struct rp_bpf_file *longer = realloc(files->list, (files->count + STEP) * sizeof *longer);
        if (!longer) {
            return -1;
        }
        files->list = longer;
    }
    files->list[files->count++] = *file;
    return 0;
}

static int is_among(const struct rp_bpf_files *files, const struct rp_bpf_file *file) {
    for (uint32_t i = 0; i < files->count; i++) {
        const struct rp_bpf_file *each = &files->list[i];
        if (each->file == file->file && each->number == file->number
            && each->is_program == file->is_program) {
            return 1;
        }
    }
    return 0;
}

static void forget(struct rp_bpf_files *files) {
    free(files->list);
    *files = (struct rp_bpf_files){0};
}

/* Of the program on the interface, or of its maps. */
static int is_of_device(const struct rp_bpf *bpf, const struct rp_bpf_file *file) {
    int found = file->is_program && file->number == bpf->program;
    for (uint32_t i = 0; i < bpf->map_count && !file->is_program; i++) {
        found = found || file->number == bpf->maps[i];
    }
    return found;
}

/* Those that are open; with a `bpf`, those of its device that were not open before. */
static int list(struct rp_bpf_files *found, DIR *files, const struct rp_bpf *bpf) {
    struct dirent *entry;
    int failed = 0;
    rewinddir(files);
    while (!failed && (entry = readdir(files))) {
        struct rp_bpf_file each = look_at(atoi(entry->d_name));
        int is_wanted = each.number
            && (!bpf || (is_of_device(bpf, &each) && !is_among(&bpf->before, &each)));
        failed = is_wanted && keep(found, &each);
    }
    return failed ? -1 : 0;
}

int rp_bpf_begin(struct rp_bpf *bpf, DIR *files) {
    *bpf = (struct rp_bpf){0};
    return list(&bpf->before, files, NULL);
}

int rp_bpf_take(struct rp_bpf *bpf, DIR *files, unsigned interface) {
    struct bpf_prog_info info;
    struct rp_netdev link;
    if (rp_netdev_read(interface, &link)) {
        return -1;
    }
    memset(&info, 0, sizeof info);
    bpf->program = link.program;
    int file = bpf->program ? open_program(bpf->program) : -1;
    if (file >= 0) {
        info.nr_map_ids = RP_DPDK_BPF_MAPS;
        info.map_ids = (uintptr_t)bpf->maps;
        int failed = ask(file, &info, sizeof info);
        int is_libxdps = !failed && strncmp(info.name, rp_bpf_own, sizeof info.name) == 0;
        bpf->program = is_libxdps ? bpf->program : 0;
        bpf->map_count = is_libxdps ? rp_min(info.nr_map_ids, (uint32_t)RP_DPDK_BPF_MAPS) : 0;
        rp_quiet_close(file);
    }
    int failed = list(&bpf->drivers, files, bpf);
    forget(&bpf->before);
    return failed;
}

void rp_bpf_ends(struct rp_bpf *bpf) {
    DIR *files = bpf->program ? opendir("/proc/self/fd") : NULL;
    bpf->is_ending = files && !list(&bpf->before, files, NULL);
    if (files) {
        closedir(files);
    }
}

void rp_bpf_close(struct rp_bpf *bpf) {
    DIR *files = bpf->is_ending ? opendir("/proc/self/fd") : NULL;
    if (files) {
        (void)list(&bpf->drivers, files, bpf); /* or as many as there is memory for */
        closedir(files);
    }
    for (uint32_t i = 0; i < bpf->drivers.count; i++) {
        struct rp_bpf_file now = look_at(bpf->drivers.list[i].file);
        if (now.number && is_among(&bpf->drivers, &now)) { /* not another's since */
            rp_quiet_close(now.file);
        }
    }
    forget(&bpf->before);
    forget(&bpf->drivers);
    *bpf = (struct rp_bpf){0};
}
