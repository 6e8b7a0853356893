/* The sockets that drivers of raw sockets and AF_XDP open, which outlive their devices otherwise.
 *
 * A forked process would go on having them, through its files and through their rings, which are
 * mapped. An AF_XDP queue is taken as long as somebody has its socket. Raw sockets of one process
 * and interface are one group among which the kernel spreads flows: a child's would be given half
 * of those its parent opens anew, and never look. So rings are not inherited, and a child closes
 * the files. And the driver of AF_XDP leaves its own open at the end of its device (DPDK 22.11.11).
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "dpdk_parts.h"

enum { LINE_BYTES = 512 };

static int is_drivers(int file)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0
           && (domain == AF_XDP || domain == AF_PACKET);
}

static uint64_t number_of(int file)
{
    struct stat about;
    return fstat(file, &about) == 0 ? about.st_ino : 0;
}

static int has(const struct rp_sockets *sockets, uint64_t number)
{
    for (uint32_t i = 0; i < sockets->count; i++) {
        if (sockets->numbers[i] == number) {
            return 1;
        }
    }
    return 0;
}

void rp_sockets_list(struct rp_sockets *sockets, const struct rp_sockets *before)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    sockets->count = 0;
    while (folder && (entry = readdir(folder)) && sockets->count < RP_SOCKETS) {
        int file = atoi(entry->d_name);
        if (is_drivers(file) && !(before && has(before, number_of(file)))) {
            sockets->files[sockets->count] = file;
            sockets->numbers[sockets->count++] = number_of(file);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

void rp_sockets_keep_private(const struct rp_sockets *sockets)
{
    char line[LINE_BYTES];
    unsigned long first, end, number;
    FILE *maps = fopen("/proc/self/maps", "re");
    for (uint32_t i = 0; i < sockets->count; i++) {
        (void)fcntl(sockets->files[i], F_SETFD, FD_CLOEXEC);
    }
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s socket:[%lu]", &first, &end, &number) == 3
            && has(sockets, number)) {
            (void)madvise((void *)first, end - first, MADV_DONTFORK);
        }
    }
    if (maps) {
        fclose(maps);
    }
}

void rp_sockets_close(struct rp_sockets *sockets)
{
    for (uint32_t i = 0; i < sockets->count; i++) {
        int file = sockets->files[i];
        if (is_drivers(file) && number_of(file) == sockets->numbers[i]) {
            rp_quiet_close(file);
        }
    }
    sockets->count = 0;
}
