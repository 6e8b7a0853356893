/* Addresses of the UDP transport: names to addresses, addresses to peers and back, and to text.
 *
 * struct sockaddr_in6 is the carrier for both families; where its family says AF_INET its bytes are
 * a struct sockaddr_in.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/minmax.h"
#include "protocol/status.h"
#include "transport/transport_udp.h"

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static struct sockaddr_in *as_ipv4(struct sockaddr_in6 *address) {
    return (struct sockaddr_in *)(void *)address;
}

static const struct sockaddr_in *as_ipv4_const(const struct sockaddr_in6 *address) {
    return (const struct sockaddr_in *)(const void *)address;
}

static void write_peer(struct rp_peer *peer, uint16_t family, uint16_t port, uint32_t scope,
                       const void *address, size_t size) {
    memset(peer, 0, sizeof *peer);
    peer->size = RP_UDP_PEER_BYTES;
    memcpy(peer->bytes, &family, sizeof family);
    memcpy(peer->bytes + 2, &port, sizeof port);
    memcpy(peer->bytes + 4, &scope, sizeof scope);
    memcpy(peer->bytes + 8, address, size);
}

static uint16_t family_of(const struct rp_peer *peer) {
    uint16_t family;
    memcpy(&family, peer->bytes, sizeof family);
    return family;
}

void rp_udp_peer_pack(struct rp_peer *peer, const struct sockaddr_in6 *address) {
    const uint8_t *bytes = address->sin6_addr.s6_addr;
    if (address->sin6_family == AF_INET) {
        const struct sockaddr_in *ipv4 = as_ipv4_const(address);
        write_peer(peer, AF_INET, ipv4->sin_port, 0, &ipv4->sin_addr, 4);
    } else if (memcmp(bytes, mapped_prefix, sizeof mapped_prefix) == 0) {
        write_peer(peer, AF_INET, address->sin6_port, 0, bytes + 12, 4);
    } else {
        write_peer(peer, AF_INET6, address->sin6_port, address->sin6_scope_id, bytes, 16);
    }
}

socklen_t rp_udp_peer_unpack(const struct rp_peer *peer, int family, struct sockaddr_in6 *address) {
    uint16_t port;
    memcpy(&port, peer->bytes + 2, sizeof port);
    memset(address, 0, sizeof *address);
    if (family == AF_INET) {
        struct sockaddr_in *ipv4 = as_ipv4(address);
        ipv4->sin_family = AF_INET;
        ipv4->sin_port = port;
        memcpy(&ipv4->sin_addr, peer->bytes + 8, sizeof ipv4->sin_addr);
        return sizeof *ipv4;
    }
    address->sin6_family = AF_INET6;
    address->sin6_port = port;
    memcpy(&address->sin6_scope_id, peer->bytes + 4, sizeof address->sin6_scope_id);
    if (family_of(peer) == AF_INET) {
        memcpy(address->sin6_addr.s6_addr, mapped_prefix, sizeof mapped_prefix);
        memcpy(address->sin6_addr.s6_addr + 12, peer->bytes + 8, 4);
    } else {
        memcpy(&address->sin6_addr, peer->bytes + 8, sizeof address->sin6_addr);
    }
    return sizeof *address;
}

int rp_udp_resolve(struct sockaddr_in6 *address, const struct rp_url *url, char *error) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM,
                             .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", url->port);
    int failed = getaddrinfo(url->number[0] ? url->number : url->host, port, &hints, &found);
    if (failed) {
        snprintf(error, RP_URL_ERROR_BYTES, "%s://%.140s:%u: no such host: %s", url->scheme,
                 url->host, url->port, gai_strerror(failed));
        return -RP_BAD_ARGUMENT;
    }
    /* IPv4 first: "localhost" must be the same address at both ends, whatever /etc/hosts says. */
    const struct addrinfo *best = found;
    for (const struct addrinfo *at = found; at && best->ai_family != AF_INET; at = at->ai_next) {
        best = at->ai_family == AF_INET ? at : best;
    }
    assert(best->ai_addrlen <= sizeof *address);
    memset(address, 0, sizeof *address);
    memcpy(address, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

int rp_udp_look_up(struct rp_url *url, char *error) {
    struct sockaddr_in6 address;
    int status = rp_udp_resolve(&address, url, error);
    if (status) {
        return status;
    }
    socklen_t size = address.sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof address;
    int failed = getnameinfo((struct sockaddr *)(void *)&address, size, url->number,
                             sizeof url->number, NULL, 0, NI_NUMERICHOST);
    if (failed) {
        snprintf(error, RP_URL_ERROR_BYTES, "%s://%.140s:%u: its address has no text: %s",
                 url->scheme, url->host, url->port, gai_strerror(failed));
        return -RP_SYSTEM;
    }
    return 0;
}

/* 127.0.0.0/8, mapped or not, and ::1. */
static int is_local(const struct rp_peer *peer) {
    struct in6_addr address;
    memcpy(&address, peer->bytes + 8, sizeof address);
    return family_of(peer) == AF_INET ? peer->bytes[8] == 127 : IN6_IS_ADDR_LOOPBACK(&address);
}

int rp_udp_is_loopback(const struct sockaddr_in6 *address) {
    struct rp_peer peer;
    rp_udp_peer_pack(&peer, address);
    return is_local(&peer);
}

/* %INTERFACE: a link-local address is one on each link. Empty for others. */
static void print_scope(char *text, size_t capacity, const struct sockaddr_in6 *address) {
    char name[IF_NAMESIZE];
    text[0] = 0;
    if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) && address->sin6_scope_id) {
        if (if_indextoname(address->sin6_scope_id, name)) {
            snprintf(text, capacity, "%%%s", name);
        } else {
            snprintf(text, capacity, "%%%u", address->sin6_scope_id);
        }
    }
}

void rp_udp_print(char *text, size_t capacity, const struct sockaddr_in6 *address) {
    char host[INET6_ADDRSTRLEN] = "?", scope[1 + IF_NAMESIZE];
    if (address->sin6_family == AF_INET) {
        const struct sockaddr_in *ipv4 = as_ipv4_const(address);
        inet_ntop(AF_INET, &ipv4->sin_addr, host, sizeof host);
        snprintf(text, capacity, "udp://%s:%u", host, ntohs(ipv4->sin_port));
    } else {
        inet_ntop(AF_INET6, &address->sin6_addr, host, sizeof host);
        print_scope(scope, sizeof scope, address);
        snprintf(text, capacity, "udp://[%s%s]:%u", host, scope, ntohs(address->sin6_port));
    }
}

/* Where the system lists none the list stays empty: then only 127.0.0.0/8 and ::1 are its own. */
void rp_udp_own(struct rp_udp_own *own) {
    struct ifaddrs *found = NULL;
    if (getifaddrs(&found) < 0) {
        return;
    }
    for (const struct ifaddrs *at = found; at; at = at->ifa_next) {
        int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        if ((family == AF_INET || family == AF_INET6) && own->count < RP_UDP_OWN_MAX) {
            rp_udp_peer_pack(&own->peers[own->count++],
                             (const struct sockaddr_in6 *)(const void *)at->ifa_addr);
        }
    }
    freeifaddrs(found);
}

/* A link-local address is one on each link: a neighbour may have there what is this machine's on
 * another, so that its scope counts. */
static int is_same_address(const struct rp_peer *one, const struct rp_peer *other) {
    struct in6_addr address;
    memcpy(&address, one->bytes + 8, sizeof address);
    int scoped = family_of(one) == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address);
    return family_of(one) == family_of(other)
        && memcmp(one->bytes + 8, other->bytes + 8, sizeof address) == 0
        && (!scoped || memcmp(one->bytes + 4, other->bytes + 4, 4) == 0);
}

uint64_t rp_udp_host(const struct rp_udp_own *own, const struct rp_peer *peer) {
    const uint8_t *address = peer->bytes + 8;
    int family = family_of(peer);
    static const uint8_t none[8];
    uint8_t number[8] = {0xff, 4};
    uint64_t host;
    if (is_local(peer)) {
        return 0;
    }
    for (uint32_t i = 0; i < own->count; i++) {
        if (is_same_address(&own->peers[i], peer)) {
            return 0;
        }
    }
    /* An IPv6 host's number is its prefix, all of it. The rest has numbers of multicast prefixes,
     * from which nobody sends: an IPv4 host its address behind ff04, and ::/64 one that is not 0.
     */
    if (family == AF_INET) {
        memcpy(number + 4, address, 4);
    } else if (memcmp(address, none, sizeof none) != 0) {
        memcpy(number, address, sizeof number);
    } else {
        number[1] = 1;
    }
    memcpy(&host, number, sizeof host);
    return host;
}

uint32_t rp_udp_budget(uint32_t socket_bytes, uint32_t mtu) {
    /* The kernel charges a datagram its buffer, a power of two that also holds headers and 320
     * bytes of skb_shared_info, and 256 bytes of sk_buff. */
    uint32_t charge = 512;
    while (charge < mtu + 128 + 320) {
        charge *= 2;
    }
    uint32_t budget = socket_bytes / (charge + 256);
    return budget < 1 ? 1 : rp_min(budget, 65535);
}
