/* dpdk://: what the core knows of it. The transport itself is a second shared object, the only code
 * that includes rte_*; it is looked for and opened at the first dpdk:// URL.
 *
 *     dpdk://HOST:PORT?vdev=net_ring                               within one process
 *     dpdk://HOST:PORT?vdev=net_memif,role=server,socket=PATH      between two, role=client there
 *     dpdk://HOST:PORT?vdev=net_af_xdp,iface=NAME                  on an interface of the kernel's
 *     dpdk://HOST:PORT?vdev=net_af_packet,iface=NAME               the same, by raw sockets
 *     dpdk://HOST:PORT?vdev=net_tap,iface=NAME                     on one that it makes
 *     dpdk://HOST:PORT?port=0000:03:00.0                           on a PCI card
 *
 * HOST:PORT is the server's IPv4 address on its own network and its UDP port, in a client's URL
 * too; no kernel has that address. Further options, after & or commas: ip= (a client's own address;
 * behind the last four it must be said), gateway= (a client's router), vlan= (the tag of all
 * frames), links= (how many memif clients a server takes), id= (which of its links a client takes),
 * group= (whose members may connect to a memif server's socket, a name or number; mode 0660),
 * queues= (shards on a card: shard i is served at PORT + i, with the same device and queues),
 * probe=on|off (is the network first asked for the address: it takes 0.2 s),
 * take=on|off (AF_XDP on an interface that this host uses, which is cut off there),
 * mbufs= (frames a card has room for), mtu=. One that a device, or an end of it, does not read is
 * refused there.
 * Clients of one process that name one device share it, up to 16, each with the same ip=, vlan=,
 * mbufs= and mtu=; two processes on one interface need an ip= each.
 * memory= (MiB), huge=on|off (a card needs on), cores= (of DPDK's main thread; 2-3 or 2;4) and eal=
 * (more of DPDK's own arguments, between ;: -nN, -rN, --iova-mode, --socket-mem, --socket-limit,
 * --vfio-intr, --vfio-vf-token) are the whole process's: its first dpdk:// URL decides.
 *
 * The last four are networks that others reach: without a key a server there needs `insecure`. What
 * they serve is a udp:// address to clients of any kind. Interfaces are those of the network
 * namespace in which the first dpdk:// URL was opened.
 *
 * The object exports rp_dpdk_takes_cards too: `replay_server doctor` names dpdk:// for cards where
 * it does.
 *
 * The object lies beside the library or program this file is in; REPLAY_DPDK names another place.
 * It is never unloaded: DPDK cannot start twice in a process.
 */
#ifndef RP_TRANSPORT_DPDK_H
#define RP_TRANSPORT_DPDK_H

#include "transport/url.h"

#define RP_DPDK_OBJECT "_dpdk.so"
#define RP_DPDK_SYMBOL "rp_dpdk_object"

struct rp_dpdk_object {
    uint32_t layout; /* RP_DPDK_LAYOUT where the object was compiled */
    uint32_t reserved;
    rp_port_opener *open;
    /* frames a port dropped for this reason (enum rp_frame_kind) */
    uint64_t (*dropped)(struct rp_port *port, int kind);
    /* mbufs of a port's pool that are not free */
    uint32_t (*in_use)(struct rp_port *port);
    /* mbufs that were still in use when their pool was to be freed, since this process began */
    uint64_t (*leaked)(void);
    /* how often the memif driver waited for bursts, before it freed what they read */
    uint64_t (*waits)(void);
    /* says how to hold forks (os/forks.h), before the first port is opened */
    void (*learn_forks)(void (*hold)(void), void (*allow)(void));
};

/* Changes with every struct that crosses the border: object and core are built from one tree. */
#define RP_DPDK_LAYOUT                                                                            \
    ((uint32_t)(sizeof(struct rp_url) + 7 * sizeof(struct rp_port_options)                        \
                + 49 * sizeof(struct rp_packet) + 343 * sizeof(struct rp_port_base)               \
                + 2401 * sizeof(struct rp_transport) + 16807 * sizeof(struct rp_dpdk_object)      \
                + RP_FACTS_MAX * sizeof(struct rp_fact)))

rp_port_opener rp_dpdk_open;

/* The object, loaded; null with a sentence in error[RP_URL_ERROR_BYTES]. */
const struct rp_dpdk_object *rp_dpdk_load(char *error);

#endif
