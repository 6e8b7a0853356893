/* Offsets are written out: a frame is read where it lies, at any alignment. One's complement sums
 * do not depend on byte order (RFC 1071), so they are taken and stored in this machine's. */
#include "dpdk/frame.h"

#include <assert.h>
#include <string.h>

enum offsets { /* in the frame; IPv4 without options */
    ETHER_TO = 0, ETHER_FROM = 6, ETHER_TYPE = 12,
    ARP_FIXED = 14, ARP_OPERATION = 20, ARP_FROM_MAC = 22, ARP_FROM_IP = 28, ARP_TO_MAC = 32,
    ARP_TO_IP = 38, ARP_END = 42,
    IP = 14, IP_TOTAL = 16, IP_IDENTIFICATION = 18, IP_FRAGMENT = 20, IP_TTL = 22,
    IP_PROTOCOL = 23, IP_CHECKSUM = 24, IP_FROM = 26, IP_TO = 30, IP_END = 34,
    ICMP = 34, ICMP_CHECKSUM = 36,
    UDP = 34, UDP_TO = 36, UDP_SIZE = 38, UDP_CHECKSUM = 40, UDP_END = 42,
};
enum values {
    TYPE_IP = 0x0800, TYPE_ARP = 0x0806, TYPE_VLAN = 0x8100, TYPE_VLAN_OUTER = 0x88a8,
    VLAN_ID = 0xfff,
    PROTOCOL_ICMP = 1, PROTOCOL_UDP = 17, ECHO_REQUEST = 8, IP_HEADER = 20, ICMP_HEADER = 8,
    UDP_HEADER = 8, VERSION_AND_SIZE = 0x4500, DO_NOT_FRAGMENT = 0x4000, MORE_OR_OFFSET = 0x3fff,
    HOPS = 64,
};

/* Ethernet and IPv4, sizes 6 and 4, ask and answer come behind them */
static const uint8_t arp_fixed[6] = {0, 1, 8, 0, RP_FRAME_MAC, RP_FRAME_IP};
static const uint8_t everyone[RP_FRAME_MAC] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static uint16_t read16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void write16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* ---- sums of 16-bit words ---- */

/* In vectors, each lane of which adds the 32-bit words it meets, and the upper halves of these once
 * more: the lower halves are what lies between. Of SUM_MOST bytes no lane overflows. `size` is a
 * multiple of STEP. */
enum { STEP = 32, SUM_MOST = 1 << 16 };

#define ADD(all, upper, words, bytes) \
    (memcpy(&(words), (bytes), sizeof(words)), (all) += (words), (upper) += (words) >> 16)

#define ADD_STEPS(name, vector, ...)                                             \
    __VA_ARGS__ static uint64_t name(const uint8_t *bytes, uint32_t size)        \
    {                                                                            \
        const uint32_t width = sizeof(vector), pair = 2 * width;                 \
        const uint8_t *end = bytes + size;                                       \
        vector all = {0}, upper = {0}, words;                                    \
        uint64_t sum = 0;                                                        \
        if (size % pair) {                                                       \
            ADD(all, upper, words, bytes);                                       \
            bytes += width;                                                      \
        }                                                                        \
        for (; bytes < end; bytes += pair) {                                     \
            ADD(all, upper, words, bytes);                                       \
            ADD(all, upper, words, bytes + width);                               \
        }                                                                        \
        all += upper - (upper << 16);                                            \
        for (uint32_t i = 0; i < width / sizeof all[0]; i++) {                   \
            sum += all[i];                                                       \
        }                                                                        \
        return sum;                                                              \
    }

typedef uint32_t four_lanes __attribute__((vector_size(16)));
ADD_STEPS(add_portable, four_lanes, __attribute__((noinline)))

#ifdef __x86_64__
typedef uint32_t eight_lanes __attribute__((vector_size(32)));
ADD_STEPS(add_wide, eight_lanes, __attribute__((noinline, target("avx2"))))

static inline int is_wide(void) {
    return __builtin_cpu_supports("avx2") != 0;
}
#else
#define add_wide add_portable

static inline int is_wide(void) {
    return 0;
}
#endif

static inline uint64_t word(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Adds 16-bit words; `size` may be odd only for the last part of a sum, and is below SUM_MOST. */
static uint64_t add(uint64_t sum, const uint8_t *bytes, uint32_t size) {
    assert(size < SUM_MOST);
    if (size >= STEP) {
        uint32_t steps = size / STEP * STEP;
        sum += is_wide() ? add_wide(bytes, steps) : add_portable(bytes, steps);
        bytes += steps;
        size -= steps;
    }
    for (; size >= 4; size -= 4, bytes += 4) {
        sum += word(bytes);
    }
    uint32_t rest = 0;
    memcpy(&rest, bytes, size);
    return sum + rest;
}

static uint16_t fold(uint64_t sum) {
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)sum;
}

static void put_checksum(uint8_t *at, uint64_t sum) {
    uint16_t checksum = (uint16_t)~fold(sum);
    memcpy(at, &checksum, sizeof checksum);
}

/* Of an IPv4 header without options. */
static inline uint64_t sum_header(const uint8_t *ip) {
    return word(ip) + word(ip + 4) + word(ip + 8) + word(ip + 12) + word(ip + 16);
}

/* The addresses, the protocol and the size, as a UDP checksum begins (RFC 768). */
static inline uint64_t pseudo_header(const uint8_t *frame, uint32_t size) {
    uint8_t tail[4] = {0, PROTOCOL_UDP, (uint8_t)(size >> 8), (uint8_t)size};
    return word(frame + IP_FROM) + word(frame + IP_TO) + word(tail);
}

/* ---- reading ---- */

#define RARELY static __attribute__((noinline)) /* so a datagram saves no registers for it */

/* MACs of one maker begin alike: they differ at the end. */
static inline int is_other(const uint8_t *mac, const struct rp_frame_host *host) {
    return memcmp(mac + 2, host->mac + 2, RP_FRAME_MAC - 2) != 0
           || memcmp(mac, host->mac, 2) != 0;
}

static inline int may_send(const uint8_t *mac, const uint8_t *ip,
                           const struct rp_frame_host *host) {
    return !(mac[0] & 1) && rp_frame_may_be_host(ip) && memcmp(ip, host->ip, RP_FRAME_IP) != 0
           && is_other(mac, host);
}

static void view_sender(struct rp_frame_view *view, const uint8_t *mac, const uint8_t *ip,
                        uint16_t port) {
    memcpy(view->from.mac, mac, RP_FRAME_MAC);
    memcpy(view->from.ip, ip, RP_FRAME_IP);
    view->from.port = port;
    view->from.first_port = view->from.port_count = 0;
}

/* The Ethernet source is not compared with ARP's sender: bonds and virtual routers (VRRP) differ
 * there, and a host that forges one could forge both. */
RARELY enum rp_frame_kind read_arp(const uint8_t *frame, uint32_t size,
                                   const struct rp_frame_host *host, struct rp_frame_view *view) {
    static const uint8_t nobody[RP_FRAME_IP];
    if (size < ARP_END) {
        return RP_FRAME_DROP_runt;
    }
    const uint8_t *mac = frame + ARP_FROM_MAC, *ip = frame + ARP_FROM_IP;
    const uint8_t *about = frame + ARP_TO_IP;
    int operation = read16(frame + ARP_OPERATION);
    if (memcmp(frame + ARP_FIXED, arp_fixed, sizeof arp_fixed) != 0 || operation < 1
        || operation > 2) {
        return RP_FRAME_DROP_arp;
    }
    view_sender(view, mac, ip, 0);
    int others = !(mac[0] & 1) && is_other(mac, host);
    if (others && memcmp(ip, host->ip, RP_FRAME_IP) == 0) {
        return RP_FRAME_DROP_conflict;
    }
    int to_us = memcmp(about, host->ip, RP_FRAME_IP) == 0;
    int announced = memcmp(about, ip, RP_FRAME_IP) == 0;
    if (!to_us && !announced) {
        return RP_FRAME_DROP_arp;
    }
    int probe = operation == 1 && to_us && others && memcmp(ip, nobody, RP_FRAME_IP) == 0;
    if (!probe && !may_send(mac, ip, host)) {
        return RP_FRAME_DROP_source;
    }
    if (operation == 1 && to_us) {
        return RP_FRAME_ARP_ASKED;
    }
    return announced || memcmp(frame + ETHER_TO, host->mac, RP_FRAME_MAC) == 0
        ? RP_FRAME_ARP_ANSWER : RP_FRAME_DROP_arp; /* an answer to no possible question */
}

/* `size` is that of the IP packet from here on, its own header behind it left out. */
static enum rp_frame_kind read_udp(const uint8_t *frame, uint32_t size, uint32_t sums,
                                   const struct rp_frame_host *host, struct rp_frame_view *view) {
    if (size <= UDP_HEADER || read16(frame + UDP_SIZE) != size) {
        return RP_FRAME_DROP_udp_length;
    }
    int summed = frame[UDP_CHECKSUM] || frame[UDP_CHECKSUM + 1]; /* 0: its sender computed none */
    if (summed && sums & RP_FRAME_UDP_BAD) {
        return RP_FRAME_DROP_udp_checksum;
    }
    if (summed && !(sums & RP_FRAME_UDP_GOOD)
        && fold(add(pseudo_header(frame, size), frame + UDP, size)) != 0xffff) {
        return RP_FRAME_DROP_udp_checksum;
    }
    uint16_t to = read16(frame + UDP_TO);
    if (to != host->port && (uint16_t)(to - host->first_port) >= host->port_count) {
        return RP_FRAME_DROP_closed_port;
    }
    view_sender(view, frame + ETHER_FROM, frame + IP_FROM, read16(frame + UDP));
    view->to_port = to;
    view->offset = UDP_END;
    view->size = size - UDP_HEADER;
    return RP_FRAME_DATAGRAM;
}

RARELY enum rp_frame_kind read_icmp(const uint8_t *frame, uint32_t size) {
    if (size < ICMP_HEADER || frame[ICMP] != ECHO_REQUEST || frame[ICMP + 1] != 0
        || fold(add(0, frame + ICMP, size)) != 0xffff) {
        return RP_FRAME_DROP_icmp;
    }
    return RP_FRAME_ECHO_ASKED;
}

static enum rp_frame_kind read_ip(const uint8_t *frame, uint32_t size, uint32_t sums,
                                  const struct rp_frame_host *host, struct rp_frame_view *view) {
    if (size < IP_END) {
        return RP_FRAME_DROP_runt;
    }
    uint32_t total = read16(frame + IP_TOTAL);
    if (frame[IP] != 0x45) {
        return RP_FRAME_DROP_ip_version;
    }
    if (total < IP_HEADER || total > size - RP_FRAME_ETHERNET) {
        return RP_FRAME_DROP_ip_length; /* what lies behind `total` is Ethernet's padding */
    }
    if (sums & RP_FRAME_IP_BAD
        || (!(sums & RP_FRAME_IP_GOOD) && fold(sum_header(frame + IP)) != 0xffff)) {
        return RP_FRAME_DROP_ip_checksum;
    }
    if (read16(frame + IP_FRAGMENT) & MORE_OR_OFFSET) {
        return RP_FRAME_DROP_fragment;
    }
    if (memcmp(frame + IP_TO, host->ip, RP_FRAME_IP) != 0) {
        return RP_FRAME_DROP_foreign_ip;
    }
    if (!may_send(frame + ETHER_FROM, frame + IP_FROM, host)) {
        return RP_FRAME_DROP_source;
    }
    switch (frame[IP_PROTOCOL]) {
    case PROTOCOL_UDP:
        return read_udp(frame, total - IP_HEADER, sums, host, view);
    case PROTOCOL_ICMP:
        return read_icmp(frame, total - IP_HEADER);
    default:
        return RP_FRAME_DROP_protocol;
    }
}

enum rp_frame_kind rp_frame_read_summed(const uint8_t *frame, uint32_t size, uint32_t sums,
                                        const struct rp_frame_host *host,
                                        struct rp_frame_view *view) {
    if (size < RP_FRAME_ETHERNET) {
        return RP_FRAME_DROP_runt;
    }
    int type = read16(frame + ETHER_TYPE);
    int to_us = memcmp(frame + ETHER_TO, host->mac, RP_FRAME_MAC) == 0;
    if (type == TYPE_VLAN || type == TYPE_VLAN_OUTER) {
        return RP_FRAME_DROP_vlan;
    }
    if (type != TYPE_ARP && type != TYPE_IP) {
        return RP_FRAME_DROP_ethertype;
    }
    if (!to_us && (type == TYPE_IP || memcmp(frame + ETHER_TO, everyone, RP_FRAME_MAC) != 0)) {
        return RP_FRAME_DROP_foreign_mac;
    }
    return type == TYPE_ARP ? read_arp(frame, size, host, view)
        : read_ip(frame, size, sums, host, view);
}

enum rp_frame_kind rp_frame_read(const uint8_t *frame, uint32_t size,
                                 const struct rp_frame_host *host, struct rp_frame_view *view) {
    return rp_frame_read_summed(frame, size, RP_FRAME_SUMS_UNKNOWN, host, view);
}

/* Of RP_FRAME_ETHERNET + RP_FRAME_TAG bytes at least. */
static int is_tagged(const uint8_t *frame, uint32_t vlan) {
    return read16(frame + ETHER_TYPE) == TYPE_VLAN
           && (read16(frame + ETHER_TYPE + 2) & VLAN_ID) == vlan;
}

uint32_t rp_frame_addressee(const uint8_t *frame, uint32_t size, uint32_t vlan) {
    uint32_t tagged = vlan ? RP_FRAME_TAG : 0;
    if (size < UDP_END + tagged) {
        return RP_FRAME_TO_HOST;
    }
    frame += tagged;
    if (is_tagged(frame, 0)) { /* a priority alone */
        if (size < UDP_END + tagged + RP_FRAME_TAG) {
            return RP_FRAME_TO_HOST;
        }
        frame += RP_FRAME_TAG;
    }
    if (read16(frame + ETHER_TYPE) == TYPE_ARP) {
        return read16(frame + ARP_OPERATION) == 2
                || memcmp(frame + ARP_FROM_IP, frame + ARP_TO_IP, RP_FRAME_IP) == 0
            ? RP_FRAME_TO_WHO_ASKED : RP_FRAME_TO_HOST;
    }
    return read16(frame + ETHER_TYPE) == TYPE_IP && frame[IP] == 0x45
            && frame[IP_PROTOCOL] == PROTOCOL_UDP
            && !(read16(frame + IP_FRAGMENT) & MORE_OR_OFFSET)
        ? read16(frame + UDP_TO) : RP_FRAME_TO_HOST;
}

/* ---- VLAN ---- */

int rp_frame_untag(uint8_t *frame, uint32_t size, uint32_t vlan) {
    if (size < RP_FRAME_ETHERNET + RP_FRAME_TAG || !is_tagged(frame, vlan)) {
        return 0;
    }
    memmove(frame + RP_FRAME_TAG, frame, ETHER_TYPE);
    return 1;
}

void rp_frame_tag(uint8_t *frame, uint32_t vlan) {
    memmove(frame - RP_FRAME_TAG, frame, ETHER_TYPE);
    write16(frame - RP_FRAME_TAG + ETHER_TYPE, TYPE_VLAN);
    write16(frame - RP_FRAME_TAG + ETHER_TYPE + 2, vlan);
}

/* ---- writing ---- */

static void write_ethernet(uint8_t *frame, const uint8_t *to, const struct rp_frame_host *from,
                           uint32_t type) {
    memcpy(frame + ETHER_TO, to, RP_FRAME_MAC);
    memcpy(frame + ETHER_FROM, from->mac, RP_FRAME_MAC);
    write16(frame + ETHER_TYPE, type);
}

/* The sum of a header's words is taken from their values: what was just written narrow is slow to
 * read wide. */
static uint32_t sum_addresses(const uint8_t *from, const uint8_t *to) {
    return (uint32_t)read16(from) + read16(from + 2) + read16(to) + read16(to + 2);
}

void rp_frame_write(uint8_t *datagram, uint32_t size, const struct rp_frame_host *from,
                    const struct rp_frame_host *to, enum rp_frame_sum sum) {
    uint8_t *frame = datagram - RP_FRAME_HEADERS;
    uint32_t total = IP_HEADER + UDP_HEADER + size, addresses = sum_addresses(from->ip, to->ip);
    write_ethernet(frame, to->mac, from, TYPE_IP);
    write16(frame + IP, VERSION_AND_SIZE);
    write16(frame + IP_TOTAL, total);
    write16(frame + IP_IDENTIFICATION, 0); /* it may be 0 without fragments (RFC 6864) */
    write16(frame + IP_FRAGMENT, DO_NOT_FRAGMENT);
    write16(frame + IP_TTL, HOPS << 8 | PROTOCOL_UDP);
    write16(frame + IP_CHECKSUM,
            (uint16_t)~fold(VERSION_AND_SIZE + (uint64_t)total + DO_NOT_FRAGMENT
                            + (HOPS << 8 | PROTOCOL_UDP) + addresses));
    memcpy(frame + IP_FROM, from->ip, RP_FRAME_IP);
    memcpy(frame + IP_TO, to->ip, RP_FRAME_IP);
    write16(frame + UDP, from->port);
    write16(frame + UDP_TO, to->port);
    write16(frame + UDP_SIZE, UDP_HEADER + size);
    write16(frame + UDP_CHECKSUM, 0);
    if (sum == RP_FRAME_SUM_BY_CARD) {
        uint16_t begun = fold(pseudo_header(frame, UDP_HEADER + size));
        memcpy(frame + UDP_CHECKSUM, &begun, sizeof begun);
    } else if (sum == RP_FRAME_SUM_HERE) {
        put_checksum(frame + UDP_CHECKSUM, add(pseudo_header(frame, UDP_HEADER + size), frame + UDP,
                                               UDP_HEADER + size));
        if (!frame[UDP_CHECKSUM] && !frame[UDP_CHECKSUM + 1]) {
            memset(frame + UDP_CHECKSUM, 0xff, 2); /* 0 would say that none was computed */
        }
    }
}

static uint32_t write_arp(uint8_t *frame, const struct rp_frame_host *host, int operation,
                          const uint8_t *mac, const uint8_t *ip) {
    static const uint8_t unknown[RP_FRAME_MAC];
    write_ethernet(frame, mac ? mac : everyone, host, TYPE_ARP);
    memcpy(frame + ARP_FIXED, arp_fixed, sizeof arp_fixed);
    write16(frame + ARP_OPERATION, (uint32_t)operation);
    memcpy(frame + ARP_FROM_MAC, host->mac, RP_FRAME_MAC);
    memcpy(frame + ARP_FROM_IP, host->ip, RP_FRAME_IP);
    memcpy(frame + ARP_TO_MAC, mac ? mac : unknown, RP_FRAME_MAC);
    memcpy(frame + ARP_TO_IP, ip, RP_FRAME_IP);
    memset(frame + ARP_END, 0, RP_FRAME_SHORTEST - ARP_END);
    return RP_FRAME_SHORTEST;
}

uint32_t rp_frame_ask(uint8_t *frame, const struct rp_frame_host *host, const uint8_t *ip) {
    return write_arp(frame, host, 1, NULL, ip);
}

uint32_t rp_frame_answer_arp(uint8_t *frame, const struct rp_frame_host *host) {
    uint8_t mac[RP_FRAME_MAC], ip[RP_FRAME_IP];
    memcpy(mac, frame + ARP_FROM_MAC, sizeof mac);
    memcpy(ip, frame + ARP_FROM_IP, sizeof ip);
    return write_arp(frame, host, 2, mac, ip);
}

uint32_t rp_frame_answer_echo(uint8_t *frame, const struct rp_frame_host *host) {
    uint32_t total = read16(frame + IP_TOTAL), size = RP_FRAME_ETHERNET + total;
    uint8_t mac[RP_FRAME_MAC];
    memcpy(mac, frame + ETHER_FROM, sizeof mac);
    write_ethernet(frame, mac, host, TYPE_IP);
    memcpy(frame + IP_TO, frame + IP_FROM, RP_FRAME_IP);
    memcpy(frame + IP_FROM, host->ip, RP_FRAME_IP);
    frame[IP_TTL] = HOPS;
    memset(frame + IP_CHECKSUM, 0, 2);
    put_checksum(frame + IP_CHECKSUM, sum_header(frame + IP));
    frame[ICMP] = 0;
    memset(frame + ICMP_CHECKSUM, 0, 2);
    put_checksum(frame + ICMP_CHECKSUM, add(0, frame + ICMP, total - IP_HEADER));
    if (size < RP_FRAME_SHORTEST) {
        memset(frame + size, 0, RP_FRAME_SHORTEST - size);
        size = RP_FRAME_SHORTEST;
    }
    return size;
}

/* ---- names ---- */

#define DROP_NAME(name, sentence) [RP_FRAME_DROP_##name] = #name,
#define DROP_SENTENCE(name, sentence) [RP_FRAME_DROP_##name] = sentence,
static const char *const names[RP_FRAME_KINDS] = {RP_FRAME_DROPS(DROP_NAME)};
static const char *const sentences[RP_FRAME_KINDS] = {RP_FRAME_DROPS(DROP_SENTENCE)};

const char *rp_frame_name(int kind) {
    return kind >= 0 && kind < RP_FRAME_KINDS ? names[kind] : NULL;
}

const char *rp_frame_sentence(int kind) {
    return kind >= 0 && kind < RP_FRAME_KINDS ? sentences[kind] : NULL;
}
