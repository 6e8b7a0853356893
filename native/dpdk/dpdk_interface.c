/* Interfaces of the kernel's: what a device on one needs, and whether this host has the device's
 * address already. A question on the wire would not find that out: the kernel hears nothing that a
 * device on its interface sends, and raw sockets do not hear each other.
 *
 * The kernel is asked for its addresses. A process that uses an address past the kernel holds a
 * lock of that name (dpdk_lock.c): of two that start at once one gets it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpdk/dpdk_parts.h"

enum { NAME_BYTES = 96, WHO_BYTES = 96 };

void rp_interface_name(void *naming) {
    struct rp_naming *asked = naming;
    char first[IF_NAMESIZE];
    asked->index = if_nametoindex(asked->name);
    if (asked->index && if_indextoname(asked->index, first)) {
        snprintf(asked->name, sizeof asked->name, "%s", first);
    }
}

/* What the kernel answers of an interface to one of its SIOCGIF calls: 0, or -1. */
static int ask(const char *interface, unsigned long call, struct ifreq *asked) {
    int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(asked->ifr_name, sizeof asked->ifr_name, "%.15s", interface);
    int failed = file < 0 || ioctl(file, call, asked) != 0;
    if (file >= 0) {
        close(file);
    }
    return failed ? -1 : 0;
}

uint32_t rp_interface_mtu(const char *interface) {
    struct ifreq asked = {0};
    return ask(interface, SIOCGIFMTU, &asked) ? 0 : (uint32_t)asked.ifr_mtu;
}

int rp_interface_is_ethernet(const char *interface) {
    struct ifreq asked = {0};
    return ask(interface, SIOCGIFHWADDR, &asked) == 0
        && asked.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

int rp_interface_may_open(void) {
    int file = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (file >= 0) {
        close(file);
    }
    return file >= 0 || errno != EPERM;
}

static int held_by_kernel(const uint8_t *ip, char *interface, size_t size) {
    struct ifaddrs *all = NULL;
    int found = 0;
    if (getifaddrs(&all)) {
        return 0;
    }
    for (const struct ifaddrs *each = all; each && !found; each = each->ifa_next) {
        struct sockaddr_in address;
        if (each->ifa_addr && each->ifa_addr->sa_family == AF_INET) {
            memcpy(&address, each->ifa_addr, sizeof address);
            found = memcmp(&address.sin_addr, ip, RP_FRAME_IP) == 0;
            snprintf(interface, size, "%s", each->ifa_name);
        }
    }
    freeifaddrs(all);
    return found;
}

/* By its number: an interface has several names. A tap that is to be made has none yet. */
static void name_lock(char *name, size_t size, const char *what, const struct rp_hold *hold) {
    struct stat network = {0};
    (void)stat("/proc/thread-self/ns/net", &network); /* each has its own interfaces */
    snprintf(name, size, "%s %lu %u %.31s", what, (unsigned long)network.st_ino, hold->index,
             hold->index ? "" : hold->interface);
}

static int hold_interface(const struct rp_hold *hold, int64_t *place, char *why, size_t size) {
    char name[NAME_BYTES], who[WHO_BYTES];
    name_lock(name, sizeof name, "interface", hold);
    switch ((hold->alone ? rp_lock_take : rp_lock_share)(name, place, who, sizeof who)) {
    case RP_LOCK_TAKEN:
        return 0;
    case RP_LOCK_HELD:
        snprintf(why, size, hold->alone ? "%s has %.16s already, and AF_XDP or a tap shares with "
                 "nobody: end it, or take another interface"
                 : "%s has %.16s over AF_XDP, which takes every frame: end it, or take another "
                 "interface", who, hold->interface);
        break;
    case RP_LOCK_NOWHERE:
        snprintf(why, size, "%s", who);
    }
    *place = -1;
    return -1;
}

static int hold_address(const struct rp_hold *hold, int64_t *place, char *why, size_t size) {
    const uint8_t *ip = hold->ip;
    char name[2 * NAME_BYTES], interface[NAME_BYTES], who[WHO_BYTES];
    name_lock(interface, sizeof interface, "address", hold);
    snprintf(name, sizeof name, "%s %u %u.%u.%u.%u", interface, hold->vlan, ip[0], ip[1], ip[2],
             ip[3]);
    switch (rp_lock_take(name, place, who, sizeof who)) {
    case RP_LOCK_TAKEN:
        return 0;
    case RP_LOCK_HELD:
        snprintf(why, size, "%s has %u.%u.%u.%u on %s already: end it, or take another address",
                 who, ip[0], ip[1], ip[2], ip[3], hold->interface);
        break;
    case RP_LOCK_NOWHERE:
        snprintf(why, size, "%s", who);
    }
    *place = -1;
    return -1;
}

int rp_interface_hold(const struct rp_hold *hold, int64_t *address, int64_t *beside, char *why,
                      size_t size) {
    const uint8_t *ip = hold->ip;
    char interface[IF_NAMESIZE];
    if (held_by_kernel(ip, interface, sizeof interface)) {
        snprintf(why, size, "%u.%u.%u.%u is the kernel's here, on %s: dpdk:// needs an address "
                 "that nobody has", ip[0], ip[1], ip[2], ip[3], interface);
        return -1;
    }
    return hold_address(hold, address, why, size) || hold_interface(hold, beside, why, size) ? -1
        : 0;
}
