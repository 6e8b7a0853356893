/* What the files of memif share: its server's socket, and its server. */
#ifndef RP_DPDK_MEMIF_H
#define RP_DPDK_MEMIF_H

#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "dpdk/dpdk_parts.h"

enum { RP_MEMIF_PATH = sizeof((struct rp_dpdk_options *)0)->socket };

struct rp_memif_socket {
    char path[RP_MEMIF_PATH];
    int file;
    dev_t device; /* of the path, once bound */
    ino_t number;
};

/* 0, or -1 with a sentence in why. Where no process listens at `path` any more it is taken over. */
int rp_memif_listen(struct rp_memif_socket *at, const char *path, const char *group, char *why,
                    size_t size);
void rp_memif_unlisten(struct rp_memif_socket *at);

/* Closes a file that a peer sent, or that has messages of one, later and in another thread, as it
 * can last. And how many of those are open; from RP_LATE_MOST on no peer is admitted.
 * dpdk_memif_late.c */
enum { RP_LATE_MOST = 64 };
struct rp_memif_loan;
void rp_late_close(int file);
void rp_late_shut(int file); /* shuts it down first, so that its other end learns of it */
void rp_late_lend(int file, struct rp_memif_loan *loan); /* fulfils the loan first */
void rp_late_go_on(void); /* tries again where no thread could be started for them */
uint32_t rp_late_count(void);

/* Memory of a peer's, mapped and sealed in another thread, which also closes the file. `wake`, an
 * eventfd, is set when that has ended. Null: no memory. dpdk_memif_lend.c */
struct rp_memif_loan *rp_loan_begin(int file, uint64_t size, int wake);
void rp_loan_fulfil(struct rp_memif_loan *loan);
/* 1: the loan is over. *memory is its memory; or null, and *why says why, or is null too. 0: it is
 * still under way. */
int rp_loan_take(struct rp_memif_loan *loan, uint8_t **memory, const char **why);
void rp_loan_forget(struct rp_memif_loan *loan);

/* The thread that calls a peer of a server's lane. 0, or -1: none is left. dpdk_memif_call.c */
struct rp_memif_caller {
    pthread_t thread;
    sem_t turn;          /* something of the below has changed */
    _Atomic int is_due;  /* a call */
    _Atomic int next;    /* the file to call by from now on */
};
int rp_caller_start(struct rp_memif_caller *caller);
void rp_caller_end(struct rp_memif_caller *caller);
void rp_caller_take(struct rp_memif_caller *caller, int file); /* to close it; -1: no file */
void rp_caller_call(struct rp_memif_caller *caller); /* by that file, soon; in bursts */
uint64_t rp_memif_spent_ns(void); /* processor time of the calling thread */
/* An ear, through which an epoll hears a peer's eventfd, or -1; and its removal. */
int rp_ear_open(int files, int file);
void rp_ear_close(int files, int ear);
int rp_call_is_socket(int file, int control); /* the peer can be called by it, */
int rp_call_is_eventfd(int file);             /* or can call by it */
int rp_memif_is_read(int file); /* all that was sent to a peer there */

/* connect() itself, without a check of the process that listens there. */
int rp_memif_connect(int file, const struct sockaddr_un *address);
/* Records the driver's connects in the calling thread, from now on; null: no longer. */
struct rp_memif_visit {
    struct rp_memif_bell *bell; /* of the link it is for */
    int is_full;        /* the server admitted no one meanwhile */
    uint64_t strangers; /* untrusted users that listened: how often, and the last one */
    uint32_t stranger;
};
void rp_memif_visit(struct rp_memif_visit *visit);
ssize_t rp_memif_sendmsg(int file, const struct msghdr *message, int flags);

/* Of a client's link: how it is woken, and wakes its server (dpdk_memif_bell.c). */
struct rp_memif_bell {
    uint32_t id; /* of the link: what its driver asks for, whatever number that gave its device */
    _Atomic int control; /* one more than the file its driver speaks with its server by; 0: none */
    _Atomic uint32_t ends; /* how often its driver closed that file */
    int pair[2];         /* of sockets: the server gets the second one */
    int server;          /* an eventfd it is woken by */
    uint8_t *memory;     /* of the region its rings are in, the beginning; null: none */
    size_t size;
    uint32_t slots;      /* of the ring below */
    _Atomic(uint8_t *) from_server, to_server; /* rings; null: not known */
    char reason[97]; /* why its server sent it away; empty: it did not say */
    _Atomic int is_elsewhere; /* as this link is not to be had: another one may be */
};
int rp_bell_open(struct rp_memif_bell *bell); /* -1: no file left */
void rp_bell_close(struct rp_memif_bell *bell);
void rp_bell_connected(struct rp_memif_bell *bell, int file);
/* Sends its driver's message on, and notes what it says of regions and rings. */
ssize_t rp_bell_forward(struct rp_memif_bell *bell, int to, const struct msghdr *message,
                        int flags);
/* The link whose driver speaks by that file, or null. */
struct rp_memif_bell *rp_memif_find_bell(int file);
/* Says whether its server is to call it from now on. 1: frames have come meanwhile; -1: it cannot.
 */
int rp_bell_ask(const struct rp_memif_bell *bell, int on);
void rp_bell_clear(const struct rp_memif_bell *bell); /* takes the calls that have come */
int rp_bell_is_wanted(const struct rp_memif_bell *bell); /* by a server that sleeps */
void rp_bell_ring(const struct rp_memif_bell *bell); /* behind a burst: where it is wanted now */

/* A server at options->socket, of options->links links; null, with a sentence in why. */
struct rp_memif_server *rp_memif_serve(const struct rp_dpdk_options *options,
                                       struct rte_mempool *pool, char *why, size_t size);
void rp_memif_end(struct rp_memif_server *server);
/* The files it sleeps on. And: says whether its peers are to call it from now on; 1: frames have
 * come. */
void rp_memif_files(const struct rp_memif_server *server, int *files, int *wake);
int rp_memif_ask(struct rp_memif_server *server, int on);

#endif
