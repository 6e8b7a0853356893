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

/* connect(), whoever listens there. The driver's own goes to servers it may trust alone: how often
 * it went to none so far, and which user the last one was. */
int rp_memif_knock(int file, const struct sockaddr_un *address);
uint64_t rp_memif_strangers(uint32_t *user);

/* A server at options->socket, of options->links links; null, with a sentence in why. */
struct rp_memif_server *rp_memif_serve(const struct rp_dpdk_options *options,
                                       struct rte_mempool *pool, char *why, size_t size);
void rp_memif_end(struct rp_memif_server *server);

#endif
