/* What the files of memif share: its server's socket, and its server. */
#ifndef RP_DPDK_MEMIF_H
#define RP_DPDK_MEMIF_H

#include <sys/types.h>
#include <sys/un.h>

#include "dpdk_parts.h"

enum { RP_MEMIF_PATH = sizeof((struct rp_dpdk_options *)0)->socket };

struct rp_memif_socket {
    char path[RP_MEMIF_PATH];
    int file;
    dev_t device; /* of the path, once bound */
    ino_t number;
};

/* 0, or -1 with a sentence in why. Where nobody listens at `path` any more it is taken over. */
int rp_memif_listen(struct rp_memif_socket *at, const char *path, const char *group, char *why,
                    size_t size);
void rp_memif_unlisten(struct rp_memif_socket *at);

/* connect(), whoever listens there. */
int rp_memif_knock(int file, const struct sockaddr_un *address);
/* What becomes of connects of the driver's in the calling thread, from now on; null: no longer. */
struct rp_memif_visit {
    uint64_t within_ns; /* each; a second at most */
    int is_full;        /* nobody was let in meanwhile */
    uint64_t strangers; /* who listened and is not to be trusted: how often, and the last one */
    uint32_t stranger;
};
void rp_memif_visit(struct rp_memif_visit *visit);

/* A server at options->socket, of options->links links; null, with a sentence in why. */
struct rp_memif_server *rp_memif_serve(const struct rp_dpdk_options *options,
                                       struct rte_mempool *pool, char *why, size_t size);
void rp_memif_end(struct rp_memif_server *server);

#endif
