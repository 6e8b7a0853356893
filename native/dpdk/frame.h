/* The frames of a host on its network, as pure functions over bytes: Ethernet, ARP, IPv4, ICMP echo
 * and UDP. No device, no clock, no memory of its own; every frame that is not for this host's one
 * UDP port, its ARP or its echo is a drop with a reason.
 *
 * Learning addresses is not done here: a datagram's sender, its MAC included, is part of the peer
 * its port shows, so a session is bound to it by the engine's cookie and no ARP frame can move it.
 */
#ifndef RP_FRAME_H
#define RP_FRAME_H

#include <stdint.h>

enum rp_frame_sizes {
    RP_FRAME_MAC = 6,
    RP_FRAME_IP = 4,
    RP_FRAME_ETHERNET = 14,
    RP_FRAME_TAG = 4,      /* of a VLAN, behind the Ethernet addresses */
    RP_FRAME_IP_HEADER = 20,
    RP_FRAME_HEADERS = 42, /* Ethernet, IPv4 without options, UDP */
    RP_FRAME_SHORTEST = 60, /* what Ethernet carries at least; shorter ones are padded */
};

/* Why a frame is dropped. */
#define RP_FRAME_DROPS(X) \
    X(runt,           "shorter than the headers it needs") \
    X(foreign_mac,    "not sent to this host's MAC address") \
    X(vlan,           "a VLAN tag where none is expected") \
    X(ethertype,      "neither ARP nor IPv4") \
    X(arp,            "ARP that is malformed, about another host, or not asked for") \
    X(source,         "a source address no host may have, or this host's own") \
    X(ip_version,     "not IPv4, or with header options") \
    X(ip_length,      "an IP length that does not fit its frame") \
    X(ip_checksum,    "a wrong IP header checksum") \
    X(fragment,       "a fragment") \
    X(foreign_ip,     "not sent to this host's IP address") \
    X(protocol,       "neither UDP nor ICMP") \
    X(icmp,           "ICMP other than an echo request that checks") \
    X(udp_length,     "a UDP length that does not fit its packet, or no bytes in it") \
    X(udp_checksum,   "a wrong UDP checksum; from a veth pair: its tx checksum offload is on") \
    X(closed_port,    "a UDP port nobody listens on") \
    X(oversized,      "a datagram larger than the mtu, or a frame in several pieces") \
    X(other_vlan,     "no VLAN tag, or another one, where vlan= is expected") \
    X(stranger,       "a datagram to a client that its server did not send") \
    X(conflict,       "ARP by another host that says it has this host's address")

#define RP_FRAME_DROP_ENUM(name, sentence) RP_FRAME_DROP_##name,
enum rp_frame_kind {
    RP_FRAME_DATAGRAM,
    RP_FRAME_ARP_ASKED,  /* for this host's address: rp_frame_answer_arp; view: the asking host, at
                            0.0.0.0 where it wants the address itself (RFC 5227) */
    RP_FRAME_ARP_ANSWER, /* view: whose address is where; to this host, or announced to all */
    RP_FRAME_ECHO_ASKED, /* rp_frame_answer_echo */
    RP_FRAME_DROPS(RP_FRAME_DROP_ENUM)
    RP_FRAME_KINDS
};

struct rp_frame_host {
    uint8_t mac[RP_FRAME_MAC];
    uint8_t ip[RP_FRAME_IP];
    uint16_t port; /* in this machine's byte order */
    uint16_t first_port; /* a host of several shards: datagrams to port_count ports from here on */
    uint16_t port_count; /* are its own as well; 0: to `port` alone */
};

/* Not this network, a host's own loop, multicast, reserved or broadcast. */
static inline int rp_frame_may_be_host(const uint8_t *ip) {
    return ip[0] != 0 && ip[0] != 127 && ip[0] < 224;
}

struct rp_frame_view {
    struct rp_frame_host from;
    uint16_t to_port;
    uint32_t offset; /* a datagram's bytes in its frame */
    uint32_t size;
};

/* A card's verdict on a frame's checksums; RP_FRAME_SUMS_UNKNOWN: they are computed here. */
enum rp_frame_sums {
    RP_FRAME_SUMS_UNKNOWN = 0,
    RP_FRAME_IP_GOOD = 1,
    RP_FRAME_UDP_GOOD = 2,
    RP_FRAME_IP_BAD = 4,
    RP_FRAME_UDP_BAD = 8,
};

/* What `size` bytes at `frame` are to `host`. *view is written for datagrams, for ARP questions and
 * answers, and of a conflict. */
enum rp_frame_kind rp_frame_read(const uint8_t *frame, uint32_t size,
                                 const struct rp_frame_host *host, struct rp_frame_view *view);

/* The same of a card that looked at checksums: `sums` are what it said of them. */
enum rp_frame_kind rp_frame_read_summed(const uint8_t *frame, uint32_t size, uint32_t sums,
                                        const struct rp_frame_host *host,
                                        struct rp_frame_view *view);

/* For which of several listeners of one host a frame is, before anything in it was checked: a UDP
 * port, 1 to 65535, or one of these. `vlan`: the tag its frames have, 0 for none. */
enum rp_frame_addressees { RP_FRAME_TO_HOST = 0, RP_FRAME_TO_WHO_ASKED = 1 << 16 /* by ARP */ };
uint32_t rp_frame_addressee(const uint8_t *frame, uint32_t size, uint32_t vlan);

/* Takes off the tag of this VLAN: 1, and the frame begins RP_FRAME_TAG bytes later; 0 where it has
 * none, or another one. VLAN 0 is none: such a tag says a priority alone (802.1Q). */
int rp_frame_untag(uint8_t *frame, uint32_t size, uint32_t vlan);
/* Puts it in: the frame begins RP_FRAME_TAG bytes earlier. */
void rp_frame_tag(uint8_t *frame, uint32_t vlan);

enum rp_frame_sum {
    RP_FRAME_NO_SUM,      /* 0, which says that none was computed (RFC 768) */
    RP_FRAME_SUM_HERE,
    RP_FRAME_SUM_BY_CARD, /* what a card begins from: the sum of the pseudo header */
};

/* Write the RP_FRAME_HEADERS bytes in front of a datagram of `size` bytes. */
void rp_frame_write(uint8_t *datagram, uint32_t size, const struct rp_frame_host *from,
                    const struct rp_frame_host *to, enum rp_frame_sum sum);

/* Write the ARP question for `ip`. A question for the host's own address announces it; a question
 * from 0.0.0.0 is a probe (RFC 5227). Returns its size; `frame` has room for RP_FRAME_SHORTEST. */
uint32_t rp_frame_ask(uint8_t *frame, const struct rp_frame_host *host, const uint8_t *ip);

/* Turn a frame that rp_frame_read called ARP_ASKED or ECHO_ASKED into its answer, in place. Return
 * the answer's size; `frame` has room for RP_FRAME_SHORTEST. */
uint32_t rp_frame_answer_arp(uint8_t *frame, const struct rp_frame_host *host);
uint32_t rp_frame_answer_echo(uint8_t *frame, const struct rp_frame_host *host);

/* The name and sentence of a drop; null for kinds that are none. */
const char *rp_frame_name(int kind);
const char *rp_frame_sentence(int kind);

#endif
