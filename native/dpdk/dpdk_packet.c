/* What DPDK's driver of raw sockets does not do by itself (22.11). It is linked into this object,
 * where its setsockopt() is this one (-Wl,--wrap).
 *
 * The driver puts the sockets of a device in a group, among which the kernel spreads the frames
 * that come, and names that group by the process's number. In two containers that share a network
 * both may be process 1: each would get half of the other's frames. So the kernel is asked for a
 * name that no group has.
 *
 * Frames that this host's kernel sends on the interface are not received.
 */
#include <linux/if_packet.h>
#include <string.h>
#include <sys/socket.h>

#include "dpdk/dpdk_parts.h"

int __real_setsockopt(int file, int level, int option, const void *value, socklen_t size);
int __wrap_setsockopt(int file, int level, int option, const void *value, socklen_t size);

/* The third is newer than many headers: PACKET_FANOUT_FLAG_IGNORE_OUTGOING. Older kernels keep it
 * and do nothing. */
enum { NAME_BITS = 16, NAME_MASK = 0xffff, IGNORE_OUTGOING = 0x4000 };

static _Thread_local int group = -1; /* of the device that is being opened */

void rp_packet_begin(void) {
    group = -1;
}

static int join(int file, int wanted) {
    const int of_kind = (wanted & ~NAME_MASK) | IGNORE_OUTGOING << NAME_BITS;
    int named = group < 0 ? of_kind | PACKET_FANOUT_FLAG_UNIQUEID << NAME_BITS : of_kind | group;
    socklen_t size = sizeof named;
    if (__real_setsockopt(file, SOL_PACKET, PACKET_FANOUT, &named, sizeof named)
        || getsockopt(file, SOL_PACKET, PACKET_FANOUT, &named, &size)) {
        return -1;
    }
    group = named & NAME_MASK;
    return 0;
}

int __wrap_setsockopt(int file, int level, int option, const void *value, socklen_t size) {
    int wanted;
    if (level != SOL_PACKET || option != PACKET_FANOUT || size != sizeof wanted) {
        return __real_setsockopt(file, level, option, value, size);
    }
    memcpy(&wanted, value, sizeof wanted);
    return join(file, wanted);
}
