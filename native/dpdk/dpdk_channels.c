/* Over how many of its receive queues an interface spreads what comes.
 *
 * An AF_XDP device hears the queues that it was opened with, the first ones. The default program of
 * libxdp gives what comes to another queue to the kernel, which has no such address: those flows
 * get no answer, and no counter says so. So it is asked before a device is opened.
 * IFLA_NUM_RX_QUEUES would not do: it counts what the driver made room for, not what is in use.
 *
 * A card may have more queues than it spreads over: its table says which (`ethtool -X`). And where
 * somebody set rules (`ethtool -N`), these may bring the flows together: the rules are trusted.
 */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/minmax.h"
#include "dpdk/dpdk_parts.h"

enum { TABLE_MAX = 1 << 14 };

static int ask(int file, const char *interface, void *about) {
    struct ifreq asked;
    memset(&asked, 0, sizeof asked);
    snprintf(asked.ifr_name, sizeof asked.ifr_name, "%.15s", interface);
    asked.ifr_data = about;
    return ioctl(file, SIOCETHTOOL, &asked);
}

/* One more than the last queue in its table; 0: it has no table. */
static uint32_t read_table(int file, const char *interface) {
    struct ethtool_rxfh_indir size = {.cmd = ETHTOOL_GRXFHINDIR};
    uint32_t queues = 0;
    if (ask(file, interface, &size) || size.size == 0 || size.size > TABLE_MAX) {
        return 0;
    }
    struct ethtool_rxfh_indir *table =
        calloc(1, sizeof *table + size.size * sizeof table->ring_index[0]);
    if (table) {
        table->cmd = ETHTOOL_GRXFHINDIR;
        table->size = size.size;
        if (ask(file, interface, table) == 0) {
            for (uint32_t i = 0; i < rp_min(table->size, size.size); i++) {
                queues = rp_max(queues, table->ring_index[i] + 1);
            }
        }
        free(table);
    }
    return queues;
}

static int has_rules(int file, const char *interface) {
    struct ethtool_rxnfc rules = {.cmd = ETHTOOL_GRXCLSRLCNT};
    return ask(file, interface, &rules) == 0 && rules.rule_cnt > 0;
}

struct rp_channels rp_interface_channels(const char *interface) {
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct rp_channels found = {.spread = 1, .kind = "combined"};
    int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0) {
        return found;
    }
    if (ask(file, interface, &channels) == 0) { /* else it has one, or does not tell */
        uint32_t table = read_table(file, interface);
        uint32_t queues = channels.combined_count + channels.rx_count;
        found.kind = channels.combined_count ? "combined" : "rx";
        queues = table ? rp_min(table, queues) : queues;
        found.spread = has_rules(file, interface) ? 1 : rp_max(queues, 1u);
    }
    rp_quiet_close(file);
    return found;
}
