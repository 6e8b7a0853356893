/* Interfaces of the kernel's: what a device on one needs, and who on this host has its address
 * already. No question on the wire would tell the latter: the kernel hears none of what a device on
 * its interface sends, and raw sockets do not hear each other.
 *
 * The kernel is asked for its addresses. A process that has one past the kernel holds a socket in
 * the abstract names of its network namespace, which ends with it: of two that start at once one
 * has it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dpdk_parts.h"

int __real_connect(int file, const struct sockaddr *address, socklen_t size);

uint32_t rp_interface_mtu(const char *interface)
{
    struct ifreq asked = {0};
    int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(asked.ifr_name, sizeof asked.ifr_name, "%.15s", interface);
    int failed = file < 0 || ioctl(file, SIOCGIFMTU, &asked) != 0;
    if (file >= 0) {
        close(file);
    }
    return failed ? 0 : (uint32_t)asked.ifr_mtu;
}

int rp_interface_may_open(void)
{
    int file = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (file >= 0) {
        close(file);
    }
    return file >= 0 || errno != EPERM;
}

static int held_by_kernel(const uint8_t *ip, char *interface, size_t size)
{
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

/* Who listens there: 0 where nobody can tell; -1: a process that is gone and left a child with its
 * files. */
static pid_t find_holder(const struct sockaddr_un *address, socklen_t size)
{
    struct ucred who = {0};
    socklen_t room = sizeof who;
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)__real_connect(file, (const struct sockaddr *)address, size);
    (void)getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &room);
    if (file >= 0) {
        close(file);
    }
    return who.pid > 0 && kill(who.pid, 0) && errno == ESRCH ? -1 : who.pid;
}

/* By *holder, where it is not this one's from now on. */
static int held_by_process(const struct rp_hold *hold, int *file, pid_t *holder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *name = address.sun_path + 1; /* behind a zero: abstract */
    int length = snprintf(name, sizeof address.sun_path - 1, "replay-server/%s/%u/%u.%u.%u.%u",
                          hold->interface, hold->vlan, hold->ip[0], hold->ip[1], hold->ip[2],
                          hold->ip[3]);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    *file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int taken = *file >= 0 && bind(*file, (struct sockaddr *)&address, size) && errno == EADDRINUSE;
    if (!taken) {
        (void)listen(*file, SOMAXCONN); /* nobody is let in: who asks is told who this is */
        return 0;
    }
    close(*file);
    *file = -1;
    *holder = find_holder(&address, size);
    return *holder >= 0;
}

int rp_interface_hold(const struct rp_hold *hold, int *file, char *why, size_t size)
{
    const uint8_t *ip = hold->ip;
    char interface[IF_NAMESIZE], who[32] = "another process";
    pid_t holder = 0;
    if (held_by_kernel(ip, interface, sizeof interface)) {
        snprintf(why, size, "%u.%u.%u.%u is the kernel's here, on %s: dpdk:// needs an address "
                 "that nobody has", ip[0], ip[1], ip[2], ip[3], interface);
        return -1;
    }
    if (!held_by_process(hold, file, &holder)) {
        return 0;
    }
    if (holder) {
        snprintf(who, sizeof who, "process %d", (int)holder);
    }
    snprintf(why, size, "%s has %u.%u.%u.%u on %s already: end it, or take another address", who,
             ip[0], ip[1], ip[2], ip[3], hold->interface);
    return -1;
}
