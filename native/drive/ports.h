/* Opening a port so that a forked child never keeps a part of it. */
#ifndef RP_DRIVE_PORTS_H
#define RP_DRIVE_PORTS_H

#include "transport/url.h"

/* As rp_port_open, with forks held while the port's sockets are made, up to where *port says what
 * they are. Loopback has none, and DPDK, which may take seconds, keeps its own from children. No
 * fork waits while a host's name is looked up. */
int rp_ports_open(struct rp_port **port, const char *text, const struct rp_port_options *options,
                  struct rp_peer *server, char *bound, char *error);

#endif
