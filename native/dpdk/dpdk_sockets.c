/* The sockets that drivers of raw sockets and AF_XDP open, which outlive their devices otherwise.
 *
 * A forked process would keep them, through its files and through their mapped rings. An AF_XDP
 * queue is taken for as long as a process has its socket. Raw sockets of one process and interface
 * are one group among which the kernel spreads flows: a child's sockets would get half of the flows
 * of the sockets that its parent opens later, and never read them. So rings are not inherited, and
 * a child closes the files. Also, the driver of AF_XDP leaves its sockets open at the end of its
 * device (DPDK 22.11.11), and with them files of the program and a map that libxdp loaded for it.
 *
 * The process has other sockets, and other threads may open some at the same moment. A socket is
 * taken for the driver's if it was not there before the device was opened, and if its rings are
 * mapped once that has ended; a raw one also has rings of the driver's form, on the device's
 * interface. The kernel does not show which thread opened a socket: if another thread opens such a
 * socket meanwhile, it is taken for the driver's. Programs and maps have numbers in the kernel: of
 * those that the driver brought, all files are closed at its end, also files opened only then.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpdk/dpdk_parts.h"

enum { LINE_BYTES = 512, STEP = 64 };
/* In the place of a domain; and in the upper halves of numbers, which no socket reaches. */
enum { RP_BPF = -1, RP_BPF_PROGRAM = 1 << 30, RP_BPF_MAP };

static int domain_of(int file) {
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) ? 0 : domain;
}

/* The number of a program or map of BPF, of which kind that is in the upper half; 0: it is none. */
static uint64_t bpf_of(int file) {
    static const char kept[] = "anon_inode:bpf-";
    char path[64], line[LINE_BYTES] = "";
    unsigned number = 0, kind = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (readlink(path, line, sizeof line - 1) < 0 || strncmp(line, kept, sizeof kept - 1) != 0) {
        return 0;
    }
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", file);
    FILE *about = fopen(path, "re");
    while (about && !kind && fgets(line, sizeof line, about)) {
        kind = sscanf(line, "prog_id: %u", &number) == 1 ? RP_BPF_PROGRAM
            : sscanf(line, "map_id: %u", &number) == 1 ? RP_BPF_MAP : 0;
    }
    if (about) {
        fclose(about);
    }
    return kind ? (uint64_t)kind << 32 | number : 0;
}

static uint64_t number_of(int file) {
    struct stat about;
    return fstat(file, &about) == 0 ? about.st_ino : 0;
}

static struct rp_socket *find(const struct rp_sockets *sockets, uint64_t number) {
    for (uint32_t i = 0; i < sockets->count; i++) {
        if (sockets->list[i].number == number) {
            return &sockets->list[i];
        }
    }
    return NULL;
}

static int add(struct rp_sockets *sockets, int file) {
    if (sockets->count % STEP == 0) {
        struct rp_socket *longer =
            realloc(sockets->list, (sockets->count + STEP) * sizeof *longer);
        if (!longer) {
            return -1;
        }
        sockets->list = longer;
    }
    int domain = domain_of(file);
    sockets->list[sockets->count++] = (struct rp_socket){
        .number = domain ? number_of(file) : bpf_of(file), .file = file,
        .domain = domain ? domain : RP_BPF};
    return 0;
}

/* All sockets of that domain; with those of AF_XDP, what is BPF's. */
static int list(struct rp_sockets *sockets, int domain) {
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int failed = !folder;
    *sockets = (struct rp_sockets){0};
    while (!failed && (entry = readdir(folder))) {
        int file = atoi(entry->d_name);
        int is_one = domain_of(file) == domain || (domain == AF_XDP && bpf_of(file));
        failed = domain && is_one && add(sockets, file);
    }
    if (folder) {
        closedir(folder);
    }
    return failed ? -1 : 0;
}

static void forget(struct rp_sockets *sockets) {
    free(sockets->list);
    *sockets = (struct rp_sockets){0};
}

/* A raw socket with the driver's form of rings, on that interface. */
static int is_alike(int file, unsigned interface) {
    struct sockaddr_ll address = {0};
    int version = -1;
    socklen_t size = sizeof address, one = sizeof version;
    return getsockname(file, (struct sockaddr *)&address, &size) == 0
           && address.sll_ifindex == (int)interface
           && getsockopt(file, SOL_PACKET, PACKET_VERSION, &version, &one) == 0
           && version == TPACKET_V2;
}

/* Each ring of these sockets that is mapped. */
static int see_rings(struct rp_sockets *sockets,
                     void (*see)(struct rp_socket *socket, void *ring, size_t size)) {
    char line[LINE_BYTES];
    unsigned long first, end, number;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s socket:[%lu]", &first, &end, &number) == 3) {
            struct rp_socket *found = find(sockets, number);
            if (found) {
                see(found, (void *)first, end - first);
            }
        }
    }
    if (maps) {
        fclose(maps);
    }
    return maps ? 0 : -1;
}

/* No child inherits it. */
static void mark_mapped(struct rp_socket *socket, void *ring, size_t size) {
    socket->is_mapped = 1;
    (void)madvise(ring, size, MADV_DONTFORK);
}

static void unmap(struct rp_socket *socket, void *ring, size_t size) {
    (void)socket;
    rp_quiet_unmap(ring, size);
}

void rp_sockets_unmap(struct rp_sockets *sockets) {
    (void)see_rings(sockets, unmap);
}

/* Those of the driver, when it has opened the device. */
static int take(struct rp_sockets *sockets, const struct rp_sockets *before, int domain,
                unsigned interface) {
    uint32_t kept = 0;
    int failed = list(sockets, domain);
    for (uint32_t i = 0; i < sockets->count; i++) {
        const struct rp_socket *each = &sockets->list[i];
        if (!find(before, each->number)
            && (domain != AF_PACKET || is_alike(each->file, interface))) {
            sockets->list[kept++] = *each;
        }
    }
    sockets->count = kept;
    failed = failed || (kept && see_rings(sockets, mark_mapped));
    for (uint32_t i = kept = 0; i < sockets->count; i++) {
        if (sockets->list[i].domain == RP_BPF) {
            sockets->list[kept++] = sockets->list[i];
        } else if (sockets->list[i].is_mapped) {
            (void)fcntl(sockets->list[i].file, F_SETFD, FD_CLOEXEC);
            rp_forks_close(sockets->list[i].file);
            sockets->list[kept++] = sockets->list[i];
        }
    }
    sockets->count = kept;
    return failed ? -1 : 0;
}

int rp_sockets_watch(struct rp_sockets *sockets, int domain, const char *interface,
                     void (*run)(void *argument), void *argument) {
    struct rp_sockets before;
    int failed = list(&before, domain);
    if (!failed) {
        run(argument);
        failed = take(sockets, &before, domain, if_nametoindex(interface));
    }
    forget(&before);
    return failed;
}

/* The files of these programs and maps that are left: libxdp opens more when it takes one away. */
static void close_bpf(const struct rp_sockets *sockets) {
    struct rp_sockets left = {0};
    (void)list(&left, AF_XDP);
    for (uint32_t i = 0; i < left.count; i++) {
        if (left.list[i].domain == RP_BPF && find(sockets, left.list[i].number)) {
            rp_quiet_close(left.list[i].file);
        }
    }
    forget(&left);
}

/* It, if its number has not become another's. */
static void close_socket(const struct rp_socket *socket) {
    rp_forks_forget(socket->file); /* a file that has that number by now registers itself again */
    if (domain_of(socket->file) == socket->domain && number_of(socket->file) == socket->number) {
        rp_quiet_close(socket->file);
    }
}

void rp_sockets_close(struct rp_sockets *sockets) {
    int programs = 0;
    for (uint32_t i = 0; i < sockets->count; i++) {
        if (sockets->list[i].domain == RP_BPF) {
            programs = 1;
        } else {
            close_socket(&sockets->list[i]);
        }
    }
    if (programs) {
        close_bpf(sockets);
    }
    forget(sockets);
}
