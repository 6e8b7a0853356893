/* The sockets that drivers of raw sockets and AF_XDP open, which outlive their devices otherwise.
 *
 * A forked process would keep them, through its files and through their mapped rings. An AF_XDP
 * queue is taken for as long as a process has its socket. Raw sockets of one process and interface
 * are one group among which the kernel spreads flows: a child's sockets would get half of the flows
 * of the sockets that its parent opens later, and never read them. So rings are not inherited, and
 * a child closes the files. Also, the driver of AF_XDP leaves its sockets open at the end of its
 * device (DPDK 22.11.11), and with them files of the program libxdp loaded for it (dpdk_bpf.c).
 *
 * The process has other sockets, and other threads may open some at the same moment. A socket is
 * taken for the driver's if it was not there before the device was opened, and if its rings are
 * mapped once that has ended; a raw one also has rings of the driver's form, on the device's
 * interface. The kernel does not show which thread opened a socket: if another thread opens such a
 * socket meanwhile, it is taken for the driver's.
 *
 * A device that opens may use up the process's files. Its sockets are to be found all the same, as
 * otherwise nobody closes them. So what is looked at then is opened before it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
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

struct looks { /* at this process; open while a device opens */
    DIR *files;
    FILE *maps;
    int spare; /* a file that is closed where another one is needed */
};

static int domain_of(int file) {
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) ? 0 : domain;
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
    sockets->list[sockets->count++] = (struct rp_socket){
        .number = rp_forks_number(file), .file = file, .domain = domain_of(file)};
    return 0;
}

/* All sockets of that domain, or as many as there is memory for: then -1. */
static int list(struct rp_sockets *sockets, DIR *files, int domain) {
    struct dirent *entry;
    int failed = 0;
    *sockets = (struct rp_sockets){0};
    rewinddir(files);
    while (!failed && (entry = readdir(files))) {
        int file = atoi(entry->d_name);
        failed = domain && domain_of(file) == domain && add(sockets, file);
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

/* Each ring of these sockets that is mapped; `maps`: /proc/self/maps. */
static void see_rings(struct rp_sockets *sockets, FILE *maps,
                      void (*see)(struct rp_socket *socket, void *ring, size_t size)) {
    char line[LINE_BYTES];
    unsigned long first, end, number;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s socket:[%lu]", &first, &end, &number) == 3) {
            struct rp_socket *found = find(sockets, number);
            if (found) {
                see(found, (void *)first, end - first);
            }
        }
    }
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
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps) {
        see_rings(sockets, maps, unmap);
        fclose(maps);
    }
}

/* Those of the driver, when it has opened the device. */
static int take(struct rp_sockets *sockets, const struct looks *looks,
                const struct rp_sockets *before, int domain, unsigned interface) {
    uint32_t kept = 0;
    int failed = list(sockets, looks->files, domain);
    for (uint32_t i = 0; i < sockets->count; i++) {
        const struct rp_socket *each = &sockets->list[i];
        if (!find(before, each->number)
            && (domain != AF_PACKET || is_alike(each->file, interface))) {
            sockets->list[kept++] = *each;
        }
    }
    sockets->count = kept;
    see_rings(sockets, looks->maps, mark_mapped);
    for (uint32_t i = kept = 0; i < sockets->count; i++) {
        if (sockets->list[i].is_mapped) {
            (void)fcntl(sockets->list[i].file, F_SETFD, FD_CLOEXEC);
            rp_forks_close(sockets->list[i].file);
            sockets->list[kept++] = sockets->list[i];
        }
    }
    sockets->count = kept;
    return failed;
}

static void stop_looking(struct looks *looks) {
    if (looks->files) {
        closedir(looks->files);
    }
    if (looks->maps) {
        fclose(looks->maps);
    }
    if (looks->spare >= 0) {
        rp_quiet_close(looks->spare);
    }
    looks->spare = -1;
}

static int begin_looking(struct looks *looks) {
    looks->files = opendir("/proc/self/fd");
    looks->maps = fopen("/proc/self/maps", "re");
    looks->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return looks->files && looks->maps && looks->spare >= 0 ? 0 : -1;
}

int rp_sockets_watch(struct rp_sockets *sockets, int domain, const char *interface,
                     void (*run)(void *argument), void *argument) {
    struct rp_sockets before = {0};
    struct rp_bpf bpf = {0};
    struct looks looks;
    int failed = begin_looking(&looks) || list(&before, looks.files, domain)
        || (domain == AF_XDP && rp_bpf_begin(&bpf, looks.files));
    if (!failed) {
        if (domain) {
            rp_forks_pause();
        }
        run(argument);
        rp_quiet_close(looks.spare);
        looks.spare = -1;
        unsigned number = if_nametoindex(interface);
        failed = take(sockets, &looks, &before, domain, number);
        if (domain) {
            rp_forks_go_on();
        }
        failed = (domain == AF_XDP && number && rp_bpf_take(&bpf, looks.files, number)) || failed;
    }
    sockets->bpf = bpf;
    stop_looking(&looks);
    forget(&before);
    return failed ? -1 : 0;
}

/* Raw sockets: the kernel counts from one question to the next. So what is asked is added up here:
 * whoever asks, none is counted twice. */
static void see_packets(struct rp_sockets *sockets, int file) {
    struct tpacket_stats counts = {0};
    socklen_t size = sizeof counts;
    if (getsockopt(file, SOL_PACKET, PACKET_STATISTICS, &counts, &size) == 0) {
        atomic_fetch_add(&sockets->missed, counts.tp_drops);
    }
}

/* AF_XDP: the driver adds up what found no mbuf (rx_dropped), and forgets what found no room in its
 * ring. rx_fill_ring_empty_descs is not added: it counts attempts, not frames. */
static uint64_t see_queue(int file) {
    struct xdp_statistics counts = {0};
    socklen_t size = sizeof counts;
    return getsockopt(file, SOL_XDP, XDP_STATISTICS, &counts, &size) ? 0 : counts.rx_ring_full;
}

uint64_t rp_sockets_missed(struct rp_sockets *sockets) {
    uint64_t queues = 0;
    for (uint32_t i = 0; i < sockets->count; i++) {
        const struct rp_socket *each = &sockets->list[i];
        if (each->domain == AF_PACKET) {
            see_packets(sockets, each->file);
        } else {
            queues += see_queue(each->file);
        }
    }
    return queues + atomic_load(&sockets->missed);
}

/* An interface that is deleted or moved lets its sockets go, and no other one gets them, not even
 * one of its number. A send of nothing, which may wait, does nothing on a socket of AF_XDP: it says
 * whether that has an interface. */
static int is_bound(const struct rp_socket *socket, unsigned interface) {
    struct sockaddr_ll address = {0};
    socklen_t size = sizeof address;
    if (socket->domain == AF_PACKET) {
        return getsockname(socket->file, (struct sockaddr *)&address, &size) != 0
            || address.sll_ifindex == (int)interface;
    }
    return send(socket->file, NULL, 0, 0) >= 0 || errno != ENXIO;
}

int rp_sockets_bound(const struct rp_sockets *sockets, unsigned interface) {
    for (uint32_t i = 0; i < sockets->count; i++) {
        if (!is_bound(&sockets->list[i], interface)) {
            return 0;
        }
    }
    return 1;
}

/* It, if its number has not become another's. */
static void close_socket(const struct rp_socket *socket) {
    rp_forks_forget(socket->file); /* a file that has that number by now registers itself again */
    if (domain_of(socket->file) == socket->domain
        && rp_forks_number(socket->file) == socket->number) {
        rp_quiet_close(socket->file);
    }
}

void rp_sockets_close(struct rp_sockets *sockets) {
    for (uint32_t i = 0; i < sockets->count; i++) {
        close_socket(&sockets->list[i]);
    }
    rp_bpf_close(&sockets->bpf);
    forget(sockets);
}
