/* The part behind ? in a dpdk:// URL: NAME=VALUE, separated by & or, as in DPDK, by commas. */
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk/dpdk_parts.h"
#include "protocol/status.h"

enum { MEMORY_MAX = 1 << 20,
       MBUFS_MAX = 1 << 20, VALUE_BYTES = 108, ROLE_BYTES = 8, VLAN_MAX = 4094,
       NAMES_MAX = 64 /* of options: more than there are */ };

static int refuse(const struct rp_url *url, char *error, const char *what) {
    snprintf(error, RP_URL_ERROR_BYTES, "dpdk://%.15s:%u: %.220s", url->host, url->port, what);
    return -RP_BAD_ARGUMENT;
}

#define AT(member) offsetof(struct rp_dpdk_options, member)
#define TEXT(name, member) \
    {name, AT(member), sizeof ((struct rp_dpdk_options *)0)->member, name "= is too long"}

static const struct number {
    const char *name;
    size_t at; /* of an int32_t or uint32_t */
    int32_t least, most;
    const char *wrong;
} numbers[] = {
    {"links", AT(links), 1, RP_DPDK_LANES,
     "links= is 1 to 16: how many clients can be there at once"},
    {"queues", AT(queues), 1, RP_DPDK_LANES,
     "queues= is 1 to 16: one for each shard of a card, at this port and those behind it"},
    {"id", AT(id), 0, RP_DPDK_LANES - 1, "id= is 0 to 15: which of the server's links"},
    {"memory", AT(eal.memory), 1, MEMORY_MAX, "memory= is a number of MiB"},
    {"mbufs", AT(mbufs), RP_DPDK_MBUFS_MIN, MBUFS_MAX,
     "mbufs= is how many frames a card has room for: 8 or more"},
    {"vlan", AT(vlan), 1, VLAN_MAX, "vlan= is 1 to 4094: the tag of this network's frames"},
};
static const struct text {
    const char *name;
    size_t at, size;
    const char *wrong;
} texts[] = {
    TEXT("socket", socket), TEXT("group", group), TEXT("iface", iface), TEXT("port", eal.card),
    TEXT("cores", eal.cores), TEXT("eal", eal.words),
};
static const struct text addresses[] = {TEXT("ip", ip), TEXT("gateway", gateway)};

#define ON(vdev) (1u << RP_VDEV_##vdev)

enum {
    SERVERS = 1, CLIENTS, BOTH,
    ASKED = ON(AF_PACKET) | ON(AF_XDP) | ON(PCI), /* whose networks are, for an address */
    KERNEL = ON(AF_PACKET) | ON(AF_XDP) | ON(TAP), NETWORK = KERNEL | ON(PCI),
};

/* Options that not every device or end reads. */
static const struct place {
    const char *name;
    uint32_t vdevs, ends;
    const char *wrong;
} places[] = {
    {"role", ON(MEMIF), BOTH, "role= goes with vdev=net_memif"},
    {"socket", ON(MEMIF), BOTH, "socket= goes with vdev=net_memif"},
    {"group", ON(MEMIF), SERVERS,
     "group= goes with vdev=net_memif and role=server: who may connect to its socket"},
    {"links", ON(MEMIF), SERVERS,
     "links= goes with vdev=net_memif and role=server: how many clients it takes"},
    {"id", ON(MEMIF), CLIENTS,
     "id= goes with vdev=net_memif and role=client: which of the server's links"},
    {"iface", KERNEL, BOTH, "iface= goes with vdev=net_af_packet, net_af_xdp and net_tap"},
    {"take", ON(AF_XDP), BOTH, "take= goes with vdev=net_af_xdp"},
    {"probe", ASKED, BOTH, "probe= goes with vdev=net_af_packet, net_af_xdp and port="},
    {"mbufs", NETWORK, BOTH, "mbufs= is for devices with a network behind them"},
    {"vlan", NETWORK, BOTH, "vlan= is for devices with a network behind them"},
    {"gateway", NETWORK, BOTH, "gateway= is for devices with a network behind them"},
};

static const char *const vdevs[] = {
    [RP_VDEV_RING] = "net_ring",
    [RP_VDEV_MEMIF] = "net_memif",
    [RP_VDEV_AF_PACKET] = "net_af_packet",
    [RP_VDEV_AF_XDP] = "net_af_xdp",
    [RP_VDEV_TAP] = "net_tap",
};

const char *rp_vdev_name(enum rp_vdev vdev) {
    return vdev < RP_VDEV_PCI ? vdevs[vdev] : "";
}

/* A driver's name, with or without a number behind it. */
static int read_vdev(struct rp_dpdk_options *options, const char *value) {
    size_t length = strcspn(value, "0123456789");
    if (value[length + strspn(value + length, "0123456789")]) {
        return 0;
    }
    for (enum rp_vdev vdev = RP_VDEV_RING; vdev < RP_VDEV_PCI; vdev++) {
        if (strlen(vdevs[vdev]) == length && strncmp(value, vdevs[vdev], length) == 0) {
            options->vdev = vdev;
            return 1;
        }
    }
    return 0;
}

static const char *read_number(void *at, const struct number *number, const char *value) {
    char *end;
    long read = strtol(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || read < number->least || read > number->most) {
        return number->wrong;
    }
    int32_t narrow = (int32_t)read;
    memcpy(at, &narrow, sizeof narrow);
    return NULL;
}

static int is_said(const uint8_t *ip) {
    static const uint8_t unsaid[RP_FRAME_IP];
    return memcmp(ip, unsaid, sizeof unsaid) != 0;
}

/* Null, or what is wrong. In a device's arguments DPDK reads =, and a [ that nothing closes, as its
 * own signs: the rest would be dropped, and a socket of DPDK's own name be opened. */
static const char *read_text(char *at, const struct text *text, const char *value) {
    int is_argument = strcmp(text->name, "socket") == 0 || strcmp(text->name, "iface") == 0;
    const char *last = strrchr(value, '[');
    if (is_argument && (strchr(value, '=') || (last && !strchr(last, ']')))) {
        return "socket= and iface= without = or an open [, which DPDK reads: name another";
    }
    return (size_t)snprintf(at, text->size, "%s", value) < text->size ? NULL : text->wrong;
}

/* Null, or what is wrong. */
static const char *read_option(struct rp_dpdk_options *options, const char *name,
                               const char *value, char *role) {
    char *base = (char *)options;
    if (strcmp(name, "vdev") == 0) {
        return read_vdev(options, value) ? NULL
            : "vdev= is net_ring, net_memif, net_af_packet, net_af_xdp or net_tap here";
    }
    if (strcmp(name, "role") == 0) {
        snprintf(role, ROLE_BYTES, "%.7s", value);
        return strcmp(value, "server") == 0 || strcmp(value, "client") == 0 ? NULL
            : "role= is server or client";
    }
    int32_t *is_on = strcmp(name, "huge") == 0 ? &options->eal.huge
        : strcmp(name, "probe") == 0 ? &options->probe
        : strcmp(name, "take") == 0 ? &options->take : NULL;
    if (is_on) {
        *is_on = strcmp(value, "on") == 0;
        return *is_on || strcmp(value, "off") == 0 ? NULL : "huge=, probe= and take= are on or off";
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            return read_number(base + numbers[i].at, &numbers[i], value);
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(name, texts[i].name) == 0) {
            return read_text(base + texts[i].at, &texts[i], value);
        }
    }
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        if (strcmp(name, addresses[i].name) == 0) {
            return inet_pton(AF_INET, value, base + addresses[i].at) == 1
                && is_said((const uint8_t *)base + addresses[i].at) ? NULL
                : "ip= and gateway= are IPv4 addresses: ip= this host's, gateway= its router's";
        }
    }
    return strcmp(name, "mtu") == 0 ? NULL
        : "the options are vdev, port, iface, role, socket, group, ip, gateway, vlan, mbufs, "
          "links, queues, id, probe, take, memory, huge, cores, eal and mtu";
}

/* 3:0.0 and 0000:03:00.0 are one card; 1 where it is an address at all. */
static int read_card(char *card, size_t size) {
    unsigned domain = 0, bus, device, function;
    int end = 0;
    if (card[strspn(card, "0123456789abcdefABCDEF:.")]) {
        return 0; /* a sign, or a blank, that a number may begin with */
    }
    if (sscanf(card, "%4x:%2x:%2x.%1u%n", &domain, &bus, &device, &function, &end) != 4
        || card[end]) {
        domain = end = 0;
        if (sscanf(card, "%2x:%2x.%1u%n", &bus, &device, &function, &end) != 3 || card[end]) {
            return 0;
        }
    }
    snprintf(card, size, "%04x:%02x:%02x.%u", domain & 0xffff, bus & 0xff, device & 0xff,
             function & 0xf);
    return device < 32 && function < 8;
}

static const char *check_memif(const struct rp_dpdk_options *options, const char *role, int serve) {
    if (!options->socket[0]) {
        return "vdev=net_memif needs socket=, a path both processes can reach";
    }
    if (options->socket[0] != '/') {
        return "socket= is a whole path in a folder that is there, such as /run/replay.memif";
    }
    if (role[0] && strcmp(role, serve ? "server" : "client") != 0) {
        return serve ? "role=server is what serves; role=client is for its clients"
            : "role=client is what connects; role=server is for the server";
    }
    return NULL;
}

/* `ip`: that of the URL, the server's. */
static const char *check_addresses(const struct rp_dpdk_options *options, const uint8_t *ip,
                                   int network, int serve) {
    const uint8_t *own = serve ? ip : options->ip;
    if (network && !rp_frame_may_be_host(ip)) {
        return "HOST is the server's own IPv4 address on the DPDK network, such as 10.0.0.1";
    }
    if (network && !serve && !is_said(options->ip)) {
        return "a client on a network of its own needs ip=, an address nobody else has there";
    }
    int is_servers = memcmp(options->ip, ip, RP_FRAME_IP) == 0;
    if (serve && is_said(options->ip) && !is_servers) {
        return "ip= is a client's own address, the server's is HOST: leave ip= out";
    }
    if (!serve && is_servers) {
        return "ip= is this client's own address, HOST the server's: give it one of its own";
    }
    if (is_said(options->ip) && !rp_frame_may_be_host(options->ip)) {
        return "ip= is an address that no host can have: not below 1, not 127, not from 224 on";
    }
    if (is_said(options->gateway) && (!rp_frame_may_be_host(options->gateway)
                                      || memcmp(options->gateway, own, RP_FRAME_IP) == 0)) {
        return "gateway= is the address of another host on the DPDK network, the router";
    }
    return NULL;
}

/* Bit i of `said`: places[i] is. */
static const char *check_places(uint32_t said, enum rp_vdev vdev, int serve) {
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const struct place *place = &places[i];
        int is_read = (place->vdevs >> vdev & 1) && (place->ends & (serve ? SERVERS : CLIENTS));
        if ((said >> i & 1) && !is_read) {
            return place->wrong;
        }
    }
    return NULL;
}

/* By the kernel's rules; it would put a number in the place of %d. */
static int is_interface(const char *name) {
    return !name[strcspn(name, "/%: \t\n\v\f\r")] && strcmp(name, ".") != 0
        && strcmp(name, "..") != 0;
}

static const char *check(struct rp_dpdk_options *options, const uint8_t *ip, const char *role,
                         int serve) {
    int network = options->vdev > RP_VDEV_MEMIF, kernel = network && options->vdev != RP_VDEV_PCI;
    if (kernel && !options->iface[0]) {
        return "this vdev= needs iface=, the name of a network interface";
    }
    if (kernel && !is_interface(options->iface)) {
        return "iface= is a name that the kernel gives no interface: it is 1 to 15 bytes, without "
               "/, %, : and white space";
    }
    if (options->vdev == RP_VDEV_PCI && !read_card(options->eal.card, sizeof options->eal.card)) {
        return "port= is a card's PCI address, such as 0000:03:00.0: replay-server "
               "doctor lists them";
    }
    if (options->queues > 1 && (!network || !serve)) {
        return serve ? "queues= is for devices with a network behind them"
            : "queues= is for the server: a client has one";
    }
    const char *wrong = check_addresses(options, ip, network, serve);
    return wrong || options->vdev != RP_VDEV_MEMIF ? wrong : check_memif(options, role, serve);
}

/* Adds it to those that were said; 0: it was one of them. */
static int say_once(const char **names, uint32_t *count, const char *name) {
    for (uint32_t i = 0; i < *count; i++) {
        if (strcmp(names[i], name) == 0) {
            return 0;
        }
    }
    names[(*count)++] = name;
    return 1;
}

int rp_dpdk_read_options(struct rp_dpdk_options *options, const struct rp_url *url,
                         const uint8_t *ip, int serve, char *error) {
    char text[RP_URL_TEXT_BYTES], why[RP_URL_ERROR_BYTES], role[ROLE_BYTES] = "", *rest = NULL;
    const char *wrong = NULL;
    const char *names[NAMES_MAX];
    uint32_t said = 0, count = 0;
    int devices = 0;
    memset(options, 0, sizeof *options);
    options->links = RP_DPDK_LINKS;
    options->mbufs = RP_DPDK_MBUFS;
    options->queues = 1;
    options->id = -1;
    options->eal.huge = options->probe = options->take = -1;
    snprintf(text, sizeof text, "%s", url->options);
    for (char *at = strtok_r(text, "&,", &rest); at && !wrong; at = strtok_r(NULL, "&,", &rest)) {
        char *value = strchr(at, '=');
        if (!value || !value[1] || strlen(value + 1) >= VALUE_BYTES) {
            return refuse(url, error, "options are NAME=VALUE, a value under 108 bytes");
        }
        *value++ = 0;
        if (count == NAMES_MAX || !say_once(names, &count, at)) {
            return refuse(url, error, "an option is said twice: which one counts?");
        }
        devices += strcmp(at, "vdev") == 0 || strcmp(at, "port") == 0;
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            said |= (uint32_t)(strcmp(at, places[i].name) == 0) << i;
        }
        wrong = read_option(options, at, value, role);
    }
    if (!wrong && devices != 1) {
        wrong = devices ? "vdev= or port=, one device"
            : "say ?vdev=net_ring, or ?vdev=net_memif,role=server,socket=PATH, or "
              "?vdev=net_af_xdp,iface=NAME, or ?port=PCI-ADDRESS";
    }
    options->vdev = options->eal.card[0] ? RP_VDEV_PCI : options->vdev;
    wrong = wrong ? wrong : check_places(said, options->vdev, serve);
    wrong = wrong ? wrong : check(options, ip, role, serve);
    if (!wrong && (rp_eal_check_words(options->eal.words, why, sizeof why)
                   || rp_eal_check_cores(options->eal.cores, why, sizeof why))) {
        wrong = why;
    }
    return wrong ? refuse(url, error, wrong) : 0;
}
