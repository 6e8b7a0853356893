/* What a PCI card lacks before DPDK can use it, checked before DPDK starts: a kernel driver that
 * gives this process access to it, and hugepages. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dpdk/dpdk_parts.h"
#include "protocol/status.h"

enum { PATH_BYTES = 96 };

/* Which of the kernel's drivers has it: "" for none. */
static void read_driver(char *driver, size_t size, const char *address) {
    char path[PATH_BYTES], target[PATH_BYTES] = "";
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/driver", address);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    const char *slash = strrchr(target, '/');
    snprintf(driver, size, "%.30s", slash ? slash + 1 : "");
}

static int is_for_dpdk(const char *driver) {
    static const char *const those[] = {"vfio-pci", "uio_pci_generic", "igb_uio", "mlx4_core",
                                        "mlx5_core", "mana"};
    for (size_t i = 0; i < sizeof those / sizeof those[0]; i++) {
        if (strcmp(driver, those[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Null, or what keeps DPDK from this card; in why[size]. */
static const char *card_lacks(const char *address, char *why, size_t size) {
    char path[PATH_BYTES], driver[32];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", address);
    if (access(path, F_OK) != 0) {
        snprintf(why, size, "there is no PCI card %s: replay-server doctor lists those "
                 "there are", address);
        return why;
    }
    read_driver(driver, sizeof driver, address);
    if (!is_for_dpdk(driver)) {
        snprintf(why, size, "the card %s is bound to %s, not to vfio-pci: deploy/nic.sh binds it, "
                 "replay-server doctor says what it needs", address,
                 driver[0] ? driver : "no driver");
        return why;
    }
    return NULL;
}

int rp_card_check(const struct rp_dpdk_options *options, char *why, size_t size) {
    int huge = options->eal.huge < 0 ? options->eal.card[0] != 0 : options->eal.huge;
    if (options->eal.card[0] && card_lacks(options->eal.card, why, size)) {
        return RP_SYSTEM;
    }
    if (huge && !rp_eal_hugepages_kib()) {
        snprintf(why, size, "no hugepage is free, and %s needs some: deploy/nic.sh hugepages sets "
                 "more, and leaves those that are there",
                 options->eal.huge < 0 ? "a card (port=)" : "huge=on");
        return RP_SYSTEM;
    }
    return 0;
}
