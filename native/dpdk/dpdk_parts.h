/* Inside the DPDK object: what its files share. Not for others.
 *
 * A port is a host on a wire. A wire is a list of lanes, one for each client of a server and one
 * for a client; a lane is a queue of a device, polled and written by the port's one thread.
 *
 * Words that are used in these files alone:
 *     take    mbufs: out of a pool; a name: from other processes, by a lock, until it is given
 *     hold    an address and an interface of the kernel's, for this process: rp_hold
 *     keep    mbufs: a port's, leased in vain, for its next lease; a closed device's, not returned
 *     lend    a received frame, to the engine, until it releases it; a peer of memif, its memory
 *     loan    a region of a peer's while it is mapped and sealed: dpdk_memif_lend.c
 *     place   of a wire: the address it goes to; of a lock: by what it is given back
 *     seat    a link's part of a device that links of this process share: dpdk_share.c
 */
#ifndef RP_DPDK_PARTS_H
#define RP_DPDK_PARTS_H

#include <dirent.h>
#include <pthread.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <stdatomic.h>
#include <string.h>

#include "dpdk/frame.h"
#include "dpdk/steer.h"
#include "transport/transport_dpdk.h"

enum rp_dpdk_limits {
    RP_DPDK_LANES = 16, /* clients of one server; what net_ring has of queues */
    RP_DPDK_LINKS = 4,  /* memif clients a server takes where its url says nothing */
    RP_DPDK_RING = 1024, /* frames a lane holds in each direction */
    RP_DPDK_BUDGET = RP_DPDK_RING / 2,
    RP_DPDK_SHARERS = 16, /* links of this process on one device */
    RP_DPDK_MBUFS_MIN = 8, /* of a device, and of each link on it: 4 lie ready for answers */
    RP_DPDK_MBUFS = 4095,      /* of a memif port, or a card */
    RP_DPDK_XDP_MBUFS = 2048,  /* what an AF_XDP device's driver keeps of each queue */
    RP_DPDK_HUB_MBUFS = 16383, /* of a net_ring server and all its clients */
    RP_DPDK_BPF_MAPS = 16, /* of a program on an interface; libxdp's has two or three */
    RP_DPDK_CACHE = 64,   /* mbufs a thread keeps of each pool, which no other can have */
    RP_DPDK_CACHERS = 16, /* threads of a process that do: others work without */
    RP_DPDK_MEMORY = 512, /* MiB asked of the system at start; touched as pools are made */
    RP_DPDK_MTU_MAX = RP_MTU_HOST,
    /* a datagram is to lie 8-byte aligned behind its headers */
    RP_DPDK_SHIFT = (8 - RP_FRAME_HEADERS % 8) % 8,
};

/* Those behind memif have a network behind them, which others reach too. */
enum rp_vdev { RP_VDEV_RING, RP_VDEV_MEMIF, RP_VDEV_AF_PACKET, RP_VDEV_AF_XDP, RP_VDEV_TAP,
               RP_VDEV_PCI };

struct rp_eal_options { /* how DPDK starts, for all of a process */
    uint32_t memory; /* MiB; 0: not said */
    int32_t huge;    /* -1: not said: on for PCI cards */
    char card[32];   /* a PCI address; "": none */
    char cores[32];  /* where its main thread may run; "": not said */
    char words[108]; /* more arguments, between ;, of those rp_eal_check_words knows */
};

struct rp_dpdk_options { /* what stands behind ? in the url */
    enum rp_vdev vdev;
    struct rp_eal_options eal;
    char socket[108];
    char group[32]; /* whose members may connect there; "": the process's own */
    char iface[16];
    uint8_t ip[RP_FRAME_IP]; /* 0.0.0.0: not said */
    uint8_t gateway[RP_FRAME_IP];
    uint32_t vlan; /* 0: none */
    uint32_t mbufs; /* a card's, for each queue, beside those its driver keeps */
    uint32_t links;
    uint32_t queues;
    int32_t id; /* -1: not said */
    int32_t probe; /* -1: not said, which is on */
    int32_t take;  /* an interface that this host uses, for AF_XDP; -1: not said, which is off */
};

/* A MAC address as a number, which threads can share. */
static inline uint64_t rp_mac_number(const uint8_t *mac) {
    uint64_t number = 0;
    memcpy(&number, mac, RP_FRAME_MAC);
    return number;
}

struct rp_lane {
    uint16_t device;
    uint16_t queue;
};

struct rp_hub; /* the rings of a net_ring server and its clients */

struct rp_memif_link; /* a link this process is a client on */

struct rp_memif_bell; /* its */

struct rp_memif_server;

struct rp_card; /* a device with a network behind it */

struct rp_bpf_file {
    int file;
    int is_program; /* or it is a map */
    uint32_t number; /* the kernel's, for that program or map */
};
struct rp_bpf_files {
    uint32_t count;
    struct rp_bpf_file *list;
};
struct rp_bpf { /* of an AF_XDP device, what its driver leaves open: dpdk_bpf.c */
    uint32_t program; /* on its interface; 0: none */
    uint32_t map_count;
    uint32_t maps[RP_DPDK_BPF_MAPS]; /* that program's */
    struct rp_bpf_files before; /* open before the device was; then, before it ended */
    struct rp_bpf_files drivers;
    int is_ending; /* `before` is whole */
};

struct rp_socket {
    uint64_t number; /* the kernel's, for this file and no other */
    int file;
    int domain; /* AF_PACKET, AF_XDP */
    int is_mapped;
};
struct rp_sockets { /* for devices on interfaces of the kernel's: dpdk_sockets.c */
    uint32_t count; /* one for each queue, in their order */
    struct rp_socket *list;
    struct rp_bpf bpf;
    _Atomic uint64_t missed; /* frames, of raw sockets: what was asked so far */
};

struct rp_queues { /* of a card: one for each shard of its host, at ports that follow each other */
    uint32_t count;
    uint16_t first_port;
    /* of each queue, one more than the shard that polls it: its own, or another one while that one
     * is not served; 0: none */
    _Atomic uint32_t pollers[RP_DPDK_LANES];
    enum { RP_QUEUES_UNKNOWN, RP_QUEUES_HASH, RP_QUEUES_RULES } how;
    struct rp_steer steer; /* HASH */
};

/* A link's place on a device that links of this process share: dpdk_share.c. */
struct rp_seat {
    struct rte_ring *ring; /* frames for it that other links' bursts brought */
    uint16_t port;         /* its UDP port; 0: none yet */
    _Atomic int asked;     /* it awaits an answer of ARP */
    _Atomic uint64_t overflowed; /* frames that found its ring full */
    _Atomic int is_asleep; /* it is to be woken when a frame is on its ring, */
    _Atomic int wake;      /* by this eventfd */
};

struct rp_share {
    _Atomic int is_shared; /* bursts go through here */
    pthread_mutex_t receiving; /* all below, and ports of seats; a burst only tries it */
    pthread_mutex_t sending;
    uint32_t count;
    uint32_t room;    /* frames that each ring may hold */
    uint32_t mbufs;   /* of the device's pool, and of them what its driver may hold */
    uint32_t drivers;
    struct rp_seat *seats[RP_DPDK_SHARERS]; /* the first one reports the device's counts */
};

struct rp_wire {
    struct rp_lane lanes[RP_DPDK_LANES];
    uint32_t lane_count;
    const _Atomic uint32_t *used; /* lanes worth a look, where that changes; null: all */
    uint32_t slot; /* a client's place among its server's */
    /* Frames never leave this host's memory, which damages none: they carry no UDP checksum, and
     * the datagrams have their own. */
    int in_memory;
    int is_shifted; /* its pool is */
    struct rte_mempool *pool;
    struct rp_hub *hub;
    struct rp_memif_link *link;
    struct rp_memif_bell *bell; /* its */
    struct rp_memif_server *served; /* its lanes are memif's, without a device of DPDK's */
    struct rp_card *card;
    struct rp_sockets *sockets; /* its card's */
    struct rp_share *share; /* of a client's card; null: its queue is this wire's alone */
    struct rp_seat seat;    /* there */
    const struct rp_queues *queues; /* of a card with several; null: there is one */
    uint8_t mac[RP_FRAME_MAC]; /* its device's own; zero: it has none to keep */
    const _Atomic uint64_t *mac_now; /* of an interface, which may get another; null: it cannot */
    const _Atomic uint32_t *links; /* how often its link came; null: it has none */
    int claimed; /* this wire brought its device's address onto the network */
    int down;           /* a client's device could not be started again: not to be called */
    uint64_t mended_ns; /* when that was last tried */
    _Atomic uint64_t strangers; /* servers it did not connect to then: dpdk_gone.c */
    uint32_t vlan;             /* the tag of all frames; 0: none has one */
    int32_t reads_sums;        /* its device looks at received checksums */
    int32_t reaps;             /* its device returns what was sent when it is asked to send */
    enum rp_frame_sum sum;     /* of sent ones */
    uint32_t device_count;
    uint16_t devices[RP_DPDK_LANES];
    char names[RP_DPDK_LANES][RTE_ETH_NAME_MAX_LEN];
};

/* Where a wire goes: the server's address on it. */
struct rp_wire_place {
    char host[RP_URL_HOST_BYTES];
    uint16_t port;
    int serve;
    uint32_t mtu;
    uint64_t until_ns; /* by rp_wire_now_ns(), when a client gives up */
};

/* Starts DPDK, once per process, in a thread of its own; later calls have to agree with the first.
 * 0, or a negative status with a sentence in error[RP_URL_ERROR_BYTES]. */
int rp_eal_start(const struct rp_eal_options *options, char *error);
/* What eal= says, cores=, and memory= beside eal= (huge: 0 or 1): 0, or -1 with what is wrong in
 * why[size]. */
int rp_eal_check_words(const char *text, char *why, size_t size);
int rp_eal_check_cores(const char *text, char *why, size_t size);
int rp_eal_check_memory(const struct rp_eal_options *options, char *why, size_t size);
/* KiB of hugepages of any size that are free, and that no other process has reserved. */
unsigned long rp_eal_hugepages_kib(void);
/* What to do where a pool found no memory: a sentence's end. Once DPDK runs. */
const char *rp_eal_advice(void);
/* DPDK's first error line since rp_eal_listen, or ""; in text[size]. */
void rp_eal_said(char *text, size_t size);
void rp_eal_listen(void);
/* Between these two the calling thread's output to stdout and stderr is dropped: DPDK and the
 * libraries under it write there. One thread at a time. */
void rp_eal_mute(void);
void rp_eal_unmute(void);
/* Registers the calling thread with DPDK, which gives it caches of its own, where fewer than
 * RP_DPDK_CACHERS have them: what lies in one is lost to all others while its thread lives, and
 * lies there for the next one behind that. Once for a thread. */
void rp_eal_register_thread(void);

/* A port's bursts, counted at begin and end: odd within one. See dpdk_quiet.c. */
struct rp_bursts {
    _Atomic uint32_t count;
    struct rp_bursts *next;
};

extern int rp_burst_fences; /* this kernel has no membarrier */

static inline void rp_burst_mark(struct rp_bursts *bursts, memory_order order) {
    uint32_t count = atomic_load_explicit(&bursts->count, memory_order_relaxed);
    atomic_store_explicit(&bursts->count, count + 1, order);
}

static inline void rp_burst_begin(struct rp_bursts *bursts) {
    rp_burst_mark(bursts, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (rp_burst_fences) {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

static inline void rp_burst_end(struct rp_bursts *bursts) {
    rp_burst_mark(bursts, memory_order_release);
}

/* Begin and end of a port: bursts in between are waited for. */
void rp_bursts_open(struct rp_bursts *bursts);
void rp_bursts_close(struct rp_bursts *bursts);
/* Returns when every burst that has begun has ended. */
void rp_bursts_await(void);
/* How often the memif driver waited, since this process began. */
uint64_t rp_bursts_waits(void);
/* Close and unmap without waiting: where the caller has waited, or no burst reads it. */
void rp_quiet_close(int file);
void rp_quiet_unmap(void *address, size_t size);

/* Opens the devices; closing brings back all there was, mbufs included. */
int rp_wire_open(struct rp_wire *wire, const struct rp_wire_place *place,
                 const struct rp_dpdk_options *options, char *error);
void rp_wire_close(struct rp_wire *wire);
/* What its devices dropped, and where its mbufs are. */
void rp_wire_facts(const struct rp_wire *wire, struct rp_fact *facts, uint32_t *count);

/* For wires: a device configured and started with as many queues as pairs; a pool, and its end. */
int rp_wire_start(struct rp_wire *wire, uint16_t device, const char *name, uint32_t queues);
struct rte_mempool *rp_pool_open(uint32_t mbufs, uint32_t room, int socket);
/* For AF_XDP; drivers: how many of them its driver keeps. */
struct rte_mempool *rp_pool_open_paged(uint32_t mbufs, uint32_t drivers, int socket);
/* For devices that copy frames into mbufs: the buffers begin RP_DPDK_SHIFT bytes later, so that a
 * received datagram is aligned. Cards need buffers where they were made. */
struct rte_mempool *rp_pool_open_shifted(uint32_t mbufs, uint32_t room);
uint32_t rp_pool_room(uint32_t mtu); /* bytes of a frame its mbufs are to hold */
/* `kept`: mbufs that its closed device keeps, and that are not written to any more. */
void rp_pool_close(struct rte_mempool *pool, uint32_t kept);

/* Mbufs of a port: all of one pool, of one segment, with no other owner. So they are taken and
 * given back as they are, without a look at each. Those from rp_pool_take have no offload flags and
 * begin at `headroom`; 0, or -1: there are not so many. */
static inline int rp_pool_take(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count,
                               uint16_t headroom) {
    if (rte_mempool_get_bulk(pool, (void **)mbufs, count)) {
        return -1;
    }
    for (uint32_t i = 0; i < count; i++) {
        mbufs[i]->data_off = headroom;
        mbufs[i]->ol_flags = 0;
    }
    return 0;
}

static inline void rp_pool_give(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count) {
    rte_mempool_put_bulk(pool, (void *const *)mbufs, count);
}
uint64_t rp_pool_leaked(void);
int rp_ring_open(struct rp_wire *wire, const struct rp_wire_place *place, char *error);
void rp_ring_leave(struct rp_wire *wire);
/* A sentence once its hub has no server any more, else null; from any thread. */
const char *rp_ring_lost(const struct rp_hub *hub);
int rp_memif_open(struct rp_wire *wire, const struct rp_wire_place *place,
                  const struct rp_dpdk_options *options, char *error);
void rp_memif_leave(struct rp_wire *wire);
/* Bursts of a lane of a server's; those sent are freed. And what it counts. */
uint32_t rp_memif_receive(struct rp_memif_server *server, uint32_t lane, struct rte_mbuf **mbufs,
                          uint32_t count);
uint32_t rp_memif_transmit(struct rp_memif_server *server, uint32_t lane, struct rte_mbuf **mbufs,
                           uint32_t count);
void rp_memif_facts(const struct rp_memif_server *server, struct rp_fact *facts, uint32_t *count);
int rp_card_open(struct rp_wire *wire, const struct rp_wire_place *place,
                 const struct rp_dpdk_options *options, char *error);
void rp_card_leave(struct rp_wire *wire);
/* Whether that queue's shard is the first one that is there. */
int rp_card_leads(const struct rp_card *card, uint32_t queue);
/* Links that share a device, each from its own thread; joining and leaving within the lock of
 * wires. `drivers`: mbufs of the pool that the driver may hold. */
void rp_share_open(struct rp_share *share, uint32_t mbufs, uint32_t drivers);
void rp_share_close(struct rp_share *share);
int rp_share_join(struct rp_share *share, struct rp_seat *seat); /* -1: no memory for its ring */
void rp_share_leave(struct rp_share *share, struct rp_seat *seat);
/* Frames to this port are the link's from now on; -1: they are another one's, nothing changed. */
int rp_share_name(struct rp_share *share, struct rp_seat *seat, uint16_t port);
/* Whether this link is the one that reports the device's counts. */
int rp_share_reports(struct rp_share *share, const struct rp_seat *seat);
/* While is_shared: frames for this link, or for the host; at most RP_BURST. */
uint32_t rp_share_receive(struct rp_share *share, struct rp_seat *own, const struct rp_lane *lane,
                          uint32_t vlan, struct rte_mbuf **mbufs, uint32_t count);
/* For a card with several queues. _ask: what its configuration asks for. _settle: how it spreads,
 * once started. _port: the port a sender should use, if its datagram came to another queue than its
 * shard's; 0: any. */
void rp_queues_ask(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info);
void rp_queues_settle(struct rp_queues *queues, uint16_t device,
                      const struct rte_eth_dev_info *info);
uint16_t rp_queues_port(const struct rp_queues *queues, const struct rp_frame_view *view,
                        const uint8_t *ip, uint32_t attempt);
/* Bit i of `served`: shard i is. Waits for bursts; within the lock of wires. */
void rp_queues_share_out(struct rp_queues *queues, uint32_t served);
/* Within a burst of that shard: the queue is its. */
static inline int rp_queues_polls(const struct rp_queues *queues, uint32_t shard, uint32_t queue) {
    return atomic_load_explicit(&queues->pollers[queue], memory_order_acquire) == shard + 1;
}
/* A sentence once the kernel asked for the card back, else null; from any thread. */
const char *rp_card_lost(const struct rp_card *card);
/* An address to be had on a network: dpdk_arp.c. */
struct rp_claim {
    struct rp_frame_host host;
    uint32_t vlan;
    uint16_t device, queues;
    struct rte_mempool *pool;
    int probes; /* 0: announced without a question */
    const _Atomic int *has_carrier; /* written by the interrupt thread */
    uint64_t until_ns;              /* a client's: the carrier is not waited for longer */
};
/* Asks the network for the address, and announces it, on a started device that is not used yet. -1:
 * another host has the address, with a sentence in why[size]. It takes 0.2 s, and before that 4 s
 * at most until a card's link is there. */
int rp_arp_claim(const struct rp_claim *claim, char *why, size_t size);
/* Interfaces of the kernel's, in the calling thread's network namespace: dpdk_interface.c. */
struct rp_naming { /* an interface may have several names; here its first one, and its number */
    char name[32];
    unsigned index; /* 0: there is none */
};
void rp_interface_name(void *naming);
uint32_t rp_interface_mtu(const char *interface); /* 0: there is none of that name */
int rp_interface_is_ethernet(const char *interface); /* its frames begin with MAC addresses */
int rp_interface_may_open(void); /* a raw socket */
/* Over how many of its receive queues it spreads what comes, from the first one on; and what
 * ethtool -L calls them. Where the kernel does not say: over one. dpdk_channels.c */
struct rp_channels {
    uint32_t spread;
    const char *kind; /* "combined", "rx" */
};
struct rp_channels rp_interface_channels(const char *interface);
/* Takes an address on an interface for this process, and a place on the interface, until
 * rp_lock_give() of both: 0. -1: the kernel or another process has them, as why[size] says. */
struct rp_hold {
    const char *interface;
    unsigned index;
    int alone; /* with no other process: AF_XDP takes all frames, a tap belongs to its maker */
    const uint8_t *ip;
    uint32_t vlan;
};
int rp_interface_hold(const struct rp_hold *hold, int64_t *address, int64_t *beside, char *why,
                      size_t size);
/* 1: this host uses that interface, as what[size] says; 0: it does not. dpdk_use.c */
int rp_interface_use(unsigned index, char *what, size_t size);
/* What the kernel says of one, in that namespace: dpdk_links.c. */
struct rp_netdev {
    unsigned index;
    char name[16];
    char kind[16]; /* "" for a card's */
    int is_up;
    int has_carrier; /* something is at the other end */
    unsigned master; /* a bridge, a bond: their number */
    unsigned below;  /* what it stands on, or a veth's other end, where that is here */
    uint32_t mtu;
    uint32_t queues;
    int has_program;  /* XDP's */
    uint32_t program; /* its number; 0: there are several */
    uint32_t listeners; /* how many made it promiscuous, beside the switch of `ip link` */
    uint64_t mac;       /* by rp_mac_number; 0: it has none of Ethernet's */
};
typedef void rp_netdev_see(const struct rp_netdev *link, void *argument);
/* rp_links_see calls `see` for each link, perhaps twice for some, or for the one of that number: 0,
 * or a negative errno. rp_netdev_read reads one; -ENODEV: it is gone. */
int rp_links_see(unsigned index, rp_netdev_see *see, void *argument);
int rp_netdev_read(unsigned index, struct rp_netdev *link);
/* Of IPv4, whatever its label: 1, 0, or a negative errno. */
int rp_link_has_address(unsigned index);
/* Of tc, on what comes there, which may send it on elsewhere: 1, 0, or a negative errno. */
int rp_link_has_filters(unsigned index);
/* The most general route that leaves there, over any of its next hops and in any table but the
 * host's own: one of these, or a negative errno. Link-local and multicast targets of IPv6 do not
 * count. */
enum rp_netdev_route { RP_LINK_ROUTE_NONE, RP_LINK_ROUTE_SOME, RP_LINK_ROUTE_DEFAULT };
int rp_netdev_route(unsigned index);
/* Takes a name that one process of this user has at a time. A process that is refused finds in
 * why[size] which one has it, or why there are no locks here. */
enum rp_lock_taken { RP_LOCK_TAKEN, RP_LOCK_HELD, RP_LOCK_NOWHERE };
enum rp_lock_taken rp_lock_take(const char *name, int64_t *place, char *why, size_t size);
/* The same, shared: several may have the name, but not while another one has it alone. */
enum rp_lock_taken rp_lock_share(const char *name, int64_t *place, char *why, size_t size);
void rp_lock_give(int64_t place); /* -1: none */
/* Checks a device, as far as that is possible before DPDK starts: 0, or a status and a sentence. */
int rp_card_check(const struct rp_dpdk_options *options, char *why, size_t size);
const char *rp_vdev_name(enum rp_vdev vdev);
/* Call it before a driver opens raw sockets: it makes the next ones a group of their own. */
void rp_packet_begin(void);
void rp_memif_closed(int file); /* this file is about to be closed */
/* A client that cannot send: connects again where its link is down, but not all the time. Where its
 * link was given away it goes on to another one, unless id= named it. */
void rp_memif_mend(struct rp_wire *wire);
/* Between _pause and _go_on, both in one thread, no fork of this process begins. It then waits: for
 * some tens of milliseconds. _learn: how that is done, before the first one. */
void rp_forks_learn(void (*core_hold)(void), void (*core_allow)(void));
void rp_forks_pause(void);
void rp_forks_go_on(void);
/* A forked child closes this file, until rp_forks_forget. A close in this object calls that. */
void rp_forks_close(int file);
void rp_forks_forget(int file);
/* What tells a file from another that got its descriptor since; 0 where it is none. */
uint64_t rp_forks_number(int file);
/* Of libxdp, which the driver has load one; behind a socket's program as much as its own. */
extern const char rp_bpf_own[];
/* A program's name, perhaps ""; -1: the kernel does not show it to this user. */
int rp_bpf_name(uint32_t program, char *name, size_t size);
/* Around the opening of an AF_XDP device: _begin notes what is open; `files`: /proc/self/fd. _take
 * asks what is on the interface, and notes what the driver has opened of it; it needs one file. -1:
 * no memory, or no file. _ends: before the device ends, which needs one too. _close closes what the
 * driver left; call it in any case. */
int rp_bpf_begin(struct rp_bpf *bpf, DIR *files);
int rp_bpf_take(struct rp_bpf *bpf, DIR *files, unsigned interface);
void rp_bpf_ends(struct rp_bpf *bpf);
void rp_bpf_close(struct rp_bpf *bpf);
/* Waits until the kernel gives each of the queues to the next AF_XDP socket; a second at most. 0;
 * or EBUSY: another process has *queue; or an errno: it cannot be asked. */
int rp_xdp_await(unsigned interface, uint32_t queues, uint32_t *queue);
/* Checks, before the driver runs, that XDP is not used there already: 0, or -1 and a sentence. */
int rp_xdp_check(unsigned interface, uint32_t queues, char *why, size_t size);
/* Before a driver ends, which removes the program that is there: what is to be done. END_IT: it is
 * this one (0: any of libxdp's), or none. HIDDEN: end it, as it may be another, and the calling
 * thread is in a network namespace without it until rp_xdp_unhide, which gets *here. LEAVE_IT: it
 * may be another, and this process may not have a namespace (RestrictNamespaces= of systemd), or
 * has no file left: the driver is not to be ended. It needs one file. */
enum rp_xdp_end { RP_XDP_END_IT, RP_XDP_HIDDEN, RP_XDP_LEAVE_IT };
enum rp_xdp_end rp_xdp_hide(unsigned interface, uint32_t program, int *here);
void rp_xdp_unhide(int here);
/* Runs `run`, in which a driver opens a device on the interface, with sockets of that domain (0:
 * none). The sockets are kept from this process's children: where there are some no fork begins
 * meanwhile, so `run` is to wait for nobody. -1: too few files or too little memory
 * to find out which they are; then nothing was opened, or the caller has to close it.
 * rp_sockets_close closes those that are not closed yet. */
int rp_sockets_watch(struct rp_sockets *sockets, int domain, const char *interface,
                     void (*run)(void *argument), void *argument);
void rp_sockets_close(struct rp_sockets *sockets);
/* Frames that came while their rings were full, beside those that the drivers count. From any
 * thread, while they are open. */
uint64_t rp_sockets_missed(struct rp_sockets *sockets);
/* Whether they still have the interface: not once that was deleted or moved, even if it is back. */
int rp_sockets_bound(const struct rp_sockets *sockets, unsigned interface);
/* Call it before that where their driver is not ended: a mapped ring keeps its socket open. */
void rp_sockets_unmap(struct rp_sockets *sockets);
void rp_wire_stop(struct rp_wire *wire); /* its devices */
uint32_t rp_wire_number(void); /* for names: never the same twice */
uint64_t rp_wire_now_ns(void);
/* Within rp_wire_open: others may come and go from _let_go on until _go_on, which gets what _let_go
 * returned. Then what all share is to be looked at anew; if others opened meanwhile, what DPDK said
 * is forgotten. _nap: both, a moment apart. */
uint64_t rp_wire_let_go(void);
void rp_wire_go_on(uint64_t before);
void rp_wire_nap(void);
/* Runs it in DPDK's interrupt thread and waits until it has run. */
void rp_wire_run(void (*run)(void *argument), void *argument);

/* Writes one sentence that ends in DPDK's first error line. Returns `status` negated. RP_NO_MEMORY:
 * the sentence also says what to do, and it returns RP_SYSTEM. */
int rp_dpdk_refuse(char *error, const struct rp_wire_place *place, int status, const char *what);
/* The same where other wires may open meanwhile: without what DPDK said, perhaps of theirs. */
int rp_dpdk_refuse_plainly(char *error, const struct rp_wire_place *place, int status,
                           const char *what);

/* `ip`: that of the url. */
int rp_dpdk_read_options(struct rp_dpdk_options *options, const struct rp_url *url,
                         const uint8_t *ip, int serve, char *error);

#endif
