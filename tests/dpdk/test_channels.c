/* Over how many receive queues a card spreads what comes (dpdk_channels.c), as a kernel says it
 * that is made up here: cards with a table, with rules, and ones that do not tell. Unprivileged;
 * run by `make test-dpdk`.
 */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "check.h"
#include "dpdk/dpdk_parts.h"

enum { TABLE = 128, ALL = 8 };

static struct {
    int failed; /* an errno: it has no channels to tell of */
    uint32_t combined, receive;
    uint32_t table_size, last; /* of a table; its entries are 0 to `last`, over and over */
    uint32_t rules;
} card;

int __wrap_ioctl(int file, unsigned long request, ...);

static int read_table(struct ethtool_rxfh_indir *table) {
    uint32_t room = table->size;
    if (!card.table_size) {
        errno = EOPNOTSUPP;
        return -1;
    }
    CHECK(room == 0 || room == card.table_size);
    table->size = card.table_size;
    for (uint32_t i = 0; i < room; i++) {
        table->ring_index[i] = i % (card.last + 1);
    }
    return 0;
}

int __wrap_ioctl(int file, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    struct ifreq *asked = va_arg(rest, struct ifreq *);
    va_end(rest);
    uint32_t command;
    CHECK(file >= 0 && request == SIOCETHTOOL && strcmp(asked->ifr_name, "eth1") == 0);
    memcpy(&command, asked->ifr_data, sizeof command);
    if (command == ETHTOOL_GRXFHINDIR) {
        return read_table((struct ethtool_rxfh_indir *)(void *)asked->ifr_data);
    }
    if (command == ETHTOOL_GRXCLSRLCNT) {
        ((struct ethtool_rxnfc *)(void *)asked->ifr_data)->rule_cnt = card.rules;
        return 0;
    }
    CHECK(command == ETHTOOL_GCHANNELS);
    struct ethtool_channels *channels = (struct ethtool_channels *)(void *)asked->ifr_data;
    channels->max_combined = channels->max_rx = 4 * ALL; /* room it has, but does not use */
    channels->combined_count = card.combined;
    channels->rx_count = card.receive;
    errno = card.failed;
    return card.failed ? -1 : 0;
}

void rp_quiet_close(int file) {
    close(file);
}

static int spreads(uint32_t queues, const char *kind) {
    struct rp_channels found = rp_interface_channels("eth1");
    return found.spread == queues && strcmp(found.kind, kind) == 0;
}

static void check_queues(void) {
    card.combined = ALL;
    CHECK(spreads(ALL, "combined"));
    card.combined = 1;
    CHECK(spreads(1, "combined"));
    card.combined = 0;
    card.receive = 2;
    CHECK(spreads(2, "rx"));
    card.failed = EOPNOTSUPP;
    CHECK(spreads(1, "combined"));
    card.failed = 0;
    check_group("those in use count, not those there is room for");
}

static void check_table(void) {
    card.combined = ALL;
    card.receive = 0;
    card.table_size = TABLE;
    card.last = ALL - 1;
    CHECK(spreads(ALL, "combined"));
    card.last = 0; /* ethtool -X eth1 equal 1 */
    CHECK(spreads(1, "combined"));
    card.last = 1;
    CHECK(spreads(2, "combined"));
    check_group("a table that leaves queues out is believed");
    card.last = ALL - 1;
    card.rules = 1;
    CHECK(spreads(1, "combined"));
    card.rules = 0;
    check_group("rules that somebody set are trusted");
}

int main(void) {
    check_queues();
    check_table();
    return check_done("test_channels");
}
