/* Interfaces as the kernel's netlink lists them, in the calling thread's network namespace. (Sysfs
 * shows those of the namespace it was mounted in.)
 */
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_parts.h"

/* One answer holds several interfaces; one interface without its counters is far smaller. */
enum { ANSWER_BYTES = 1 << 15, WITHOUT_COUNTERS = RTEXT_FILTER_SKIP_STATS, ANSWERS_MAX = 10000 };
enum { HOPS_KNOWN = 64, TRIES_MAX = 10 };

static const struct timeval PATIENCE = {2, 0}; /* the kernel answers at once */

struct question {
    struct nlmsghdr head;
    struct ifinfomsg body;
    struct rtattr about;
    uint32_t filter;
};

struct question_of_addresses {
    struct nlmsghdr head;
    struct ifaddrmsg body;
};

struct question_of_filters {
    struct nlmsghdr head;
    struct tcmsg body;
};

struct question_of_routes {
    struct nlmsghdr head;
    struct rtmsg body;
};

struct question_of_hop {
    struct nlmsghdr head;
    struct nhmsg body;
    struct rtattr about;
    uint32_t number;
};

typedef void read_message(const struct nlmsghdr *message, void *argument);

struct asking {
    read_message *read_it;
    void *argument;
    int has_changed; /* what is listed, while it was */
};

static uint32_t number(const struct rtattr *at) {
    uint32_t value = 0;
    memcpy(&value, RTA_DATA(at), rp_min(RTA_PAYLOAD(at), sizeof value));
    return value;
}

static void copy_text(char *to, size_t size, const struct rtattr *at) {
    size_t length = strnlen(RTA_DATA(at), RTA_PAYLOAD(at));
    snprintf(to, size, "%.*s", (int)length, (const char *)RTA_DATA(at));
}

/* The next of attributes that take `left` bytes; null: there is none. */
static const struct rtattr *next(const struct rtattr *at, int *left) {
    at = RTA_NEXT(at, *left);
    return RTA_OK(at, *left) ? at : NULL;
}

static const struct rtattr *first(const void *data, int left) {
    const struct rtattr *at = data;
    return RTA_OK(at, left) ? at : NULL;
}

static void read_xdp(struct rp_netdev *link, const struct rtattr *nest) {
    int left = (int)RTA_PAYLOAD(nest);
    for (const struct rtattr *at = first(RTA_DATA(nest), left); at; at = next(at, &left)) {
        if (at->rta_type == IFLA_XDP_ATTACHED) {
            link->has_program = *(const uint8_t *)RTA_DATA(at) != XDP_ATTACHED_NONE;
        } else if (at->rta_type == IFLA_XDP_PROG_ID) {
            link->program = number(at);
        }
    }
}

/* A vxlan says nowhere else what it stands on. */
static void read_vxlan(struct rp_netdev *link, const struct rtattr *nest) {
    int left = (int)RTA_PAYLOAD(nest);
    for (const struct rtattr *at = first(RTA_DATA(nest), left); at; at = next(at, &left)) {
        if (at->rta_type == IFLA_VXLAN_LINK) {
            link->below = number(at);
        }
    }
}

/* The kind comes before what is the kind's own. */
static void read_kind(struct rp_netdev *link, const struct rtattr *nest) {
    int left = (int)RTA_PAYLOAD(nest);
    for (const struct rtattr *at = first(RTA_DATA(nest), left); at; at = next(at, &left)) {
        int type = at->rta_type & NLA_TYPE_MASK;
        if (type == IFLA_INFO_KIND) {
            copy_text(link->kind, sizeof link->kind, at);
        } else if (type == IFLA_INFO_DATA && strcmp(link->kind, "vxlan") == 0) {
            read_vxlan(link, at);
        }
    }
}

static void read_link(struct rp_netdev *link, const struct nlmsghdr *message) {
    const struct ifinfomsg *body = NLMSG_DATA(message);
    int left = (int)IFLA_PAYLOAD(message), is_elsewhere = 0;
    *link = (struct rp_netdev){.index = (unsigned)body->ifi_index,
                             .is_up = (body->ifi_flags & IFF_UP) != 0,
                             .has_carrier = (body->ifi_flags & IFF_RUNNING) != 0};
    for (const struct rtattr *at = first(IFLA_RTA(body), left); at; at = next(at, &left)) {
        switch (at->rta_type & NLA_TYPE_MASK) {
        case IFLA_IFNAME:
            copy_text(link->name, sizeof link->name, at);
            break;
        case IFLA_ADDRESS:
            link->mac = RTA_PAYLOAD(at) == RP_FRAME_MAC ? rp_mac_number(RTA_DATA(at)) : 0;
            break;
        case IFLA_MTU:
            link->mtu = number(at);
            break;
        case IFLA_MASTER:
            link->master = number(at);
            break;
        case IFLA_LINK:
            link->below = number(at);
            break;
        case IFLA_LINK_NETNSID:
            is_elsewhere = 1;
            break;
        case IFLA_NUM_RX_QUEUES:
            link->queues = number(at);
            break;
        case IFLA_LINKINFO:
            read_kind(link, at);
            break;
        case IFLA_PROMISCUITY:
            link->listeners = number(at);
            break;
        case IFLA_XDP:
            read_xdp(link, at);
        }
    }
    link->below = is_elsewhere ? 0 : link->below;
    /* The switch of `ip link` is one of them, which DPDK's drivers set and a killed one leaves. */
    link->listeners -= link->listeners && body->ifi_flags & IFF_PROMISC;
}

/* What both an error and the end of a list begin with: 0, or a negative errno. */
static int read_status(const struct nlmsghdr *message) {
    int status = 0;
    if (NLMSG_PAYLOAD(message, 0) >= sizeof status) {
        memcpy(&status, NLMSG_DATA(message), sizeof status);
    }
    return status < 0 ? status : 0;
}

/* 1: more follows; 0: that was all; or a negative errno. */
static int read_answer(const void *data, ssize_t size, struct asking *asking) {
    int left = (int)size;
    const struct nlmsghdr *at = data;
    int more = 1;
    for (; more && NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
        asking->has_changed |= (at->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
        if (at->nlmsg_type == NLMSG_ERROR || at->nlmsg_type == NLMSG_DONE) {
            return read_status(at);
        }
        asking->read_it(at, asking->argument);
        more = (at->nlmsg_flags & NLM_F_MULTI) != 0;
    }
    return more;
}

/* 0, or a negative errno. */
static int ask_once(const void *question, size_t length, struct asking *asking) {
    _Alignas(struct nlmsghdr) char answer[ANSWER_BYTES];
    int file = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), more = 1;
    if (file < 0) {
        return -errno;
    }
    if (setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &PATIENCE, sizeof PATIENCE)
        || send(file, question, length, 0) < 0) {
        more = -errno;
    }
    for (int count = 0; more > 0; count++) {
        ssize_t size = recv(file, answer, sizeof answer, 0);
        more = size < 0 ? -errno : count == ANSWERS_MAX ? -EIO
            : read_answer(answer, size, asking);
    }
    rp_quiet_close(file);
    return more;
}

/* The same. A list that changed while it was sent may lack entries that were there all the time.
 * Then it is asked for again, and read_it sees its entries again. */
static int ask(const void *question, size_t length, read_message *read_it, void *argument) {
    struct asking asking = {read_it, argument, 1};
    int failed = 0;
    for (int tries = 0; asking.has_changed && !failed; tries++) {
        asking.has_changed = 0;
        failed = tries == TRIES_MAX ? -EAGAIN : ask_once(question, length, &asking);
    }
    return failed;
}

struct seeing {
    rp_netdev_see *see;
    void *argument;
};

static void see_link(const struct nlmsghdr *message, void *argument) {
    const struct seeing *seeing = argument;
    struct rp_netdev link;
    if (message->nlmsg_type == RTM_NEWLINK) {
        read_link(&link, message);
        seeing->see(&link, seeing->argument);
    }
}

int rp_links_see(unsigned index, rp_netdev_see *see, void *argument) {
    const struct question question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETLINK,
                 .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | (index ? 0 : NLM_F_DUMP))},
        .body = {.ifi_family = AF_UNSPEC, .ifi_index = (int)index},
        .about = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = IFLA_EXT_MASK},
        .filter = WITHOUT_COUNTERS,
    };
    struct seeing seeing = {see, argument};
    return ask(&question, sizeof question, see_link, &seeing);
}

struct addressed {
    unsigned index;
    int is_found;
};

static void see_address(const struct nlmsghdr *message, void *argument) {
    struct addressed *asked = argument;
    const struct ifaddrmsg *body = NLMSG_DATA(message);
    asked->is_found |= message->nlmsg_type == RTM_NEWADDR && body->ifa_family == AF_INET
        && body->ifa_index == asked->index;
}

int rp_link_has_address(unsigned index) {
    const struct question_of_addresses question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.ifa_family = AF_INET},
    };
    struct addressed asked = {.index = index};
    int failed = ask(&question, sizeof question, see_address, &asked);
    return failed ? failed : asked.is_found;
}

static void see_filters(const struct nlmsghdr *message, void *argument) {
    struct addressed *asked = argument;
    const struct tcmsg *body = NLMSG_DATA(message);
    int left = (int)NLMSG_PAYLOAD(message, sizeof *body);
    if (message->nlmsg_type != RTM_NEWQDISC || (unsigned)body->tcm_ifindex != asked->index) {
        return;
    }
    for (const struct rtattr *at = first(TCA_RTA(body), left); at; at = next(at, &left)) {
        char kind[IF_NAMESIZE] = "";
        if (at->rta_type == TCA_KIND) {
            copy_text(kind, sizeof kind, at);
        }
        asked->is_found |= strcmp(kind, "ingress") == 0 || strcmp(kind, "clsact") == 0;
    }
}

int rp_link_has_filters(unsigned index) {
    const struct question_of_filters question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETQDISC,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
    };
    struct addressed asked = {.index = index};
    int failed = ask(&question, sizeof question, see_filters, &asked);
    return failed == -EOPNOTSUPP ? 0 : failed ? failed : asked.is_found; /* CONFIG_NET_SCHED=n */
}

struct hop {
    unsigned index;
    int is_there; /* or a negative errno */
};

static int is_hop_there(uint32_t id, unsigned index);

/* Its interface, or those of the group that it is. */
static void see_hop(const struct nlmsghdr *message, void *argument) {
    struct hop *asked = argument;
    const struct nhmsg *body = NLMSG_DATA(message);
    int left = (int)NLMSG_PAYLOAD(message, sizeof *body);
    const void *attributes = (const char *)body + NLMSG_ALIGN(sizeof *body);
    if (message->nlmsg_type != RTM_NEWNEXTHOP) {
        return;
    }
    for (const struct rtattr *at = first(attributes, left); at; at = next(at, &left)) {
        const struct nexthop_grp *members = RTA_DATA(at);
        int type = at->rta_type & NLA_TYPE_MASK;
        if (type == NHA_OIF) {
            asked->is_there = number(at) == asked->index;
        }
        size_t count = type == NHA_GROUP ? RTA_PAYLOAD(at) / sizeof *members : 0;
        for (size_t i = 0; i < count && !asked->is_there; i++) {
            asked->is_there = is_hop_there(members[i].id, asked->index);
        }
    }
}

/* 1, 0, or a negative errno. One that has gone since is nowhere. */
static int is_hop_there(uint32_t id, unsigned index) {
    const struct question_of_hop question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETNEXTHOP,
                 .nlmsg_flags = NLM_F_REQUEST},
        .about = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = NHA_ID},
        .number = id,
    };
    struct hop asked = {.index = index};
    int failed = ask(&question, sizeof question, see_hop, &asked);
    return failed == -ENOENT ? 0 : failed ? failed : asked.is_there;
}

struct routed {
    unsigned index;
    int failed; /* a negative errno */
    enum rp_netdev_route found;
    struct { /* what was asked last: many routes have one hop */
        uint32_t id;
        int is_there;
    } known[HOPS_KNOWN];
};

static int is_over_hop(struct routed *asked, uint32_t id) {
    size_t place = id % HOPS_KNOWN;
    if (asked->known[place].id != id) {
        int is_there = is_hop_there(id, asked->index);
        if (is_there < 0) {
            asked->failed = is_there;
            return 0;
        }
        asked->known[place].id = id;
        asked->known[place].is_there = is_there;
    }
    return asked->known[place].is_there;
}

static int is_over_several(const struct rtattr *nest, unsigned index) {
    int left = (int)RTA_PAYLOAD(nest);
    const struct rtnexthop *hop = RTA_DATA(nest);
    while (left >= (int)sizeof *hop && RTNH_OK(hop, left)) {
        if ((unsigned)hop->rtnh_ifindex == index) {
            return 1;
        }
        left -= (int)RTNH_ALIGN(hop->rtnh_len);
        hop = RTNH_NEXT(hop);
    }
    return 0;
}

/* Neighbours and groups, which each interface has of IPv6 that is up. */
static int is_of_link(const struct rtmsg *body, const struct rtattr *target) {
    const uint8_t *bytes = RTA_DATA(target);
    return body->rtm_family == AF_INET6
        && (bytes[0] == 0xff || (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80));
}

/* Where the kernel names a next hop by its number alone (nexthop_compat_mode is 0), it is asked. */
static void see_route(const struct nlmsghdr *message, void *argument) {
    struct routed *asked = argument;
    const struct rtmsg *body = NLMSG_DATA(message);
    int left = (int)RTM_PAYLOAD(message), is_there = 0, has_device = 0, is_own = 0;
    uint32_t hop = 0;
    if (message->nlmsg_type != RTM_NEWROUTE) {
        return;
    }
    for (const struct rtattr *at = first(RTM_RTA(body), left); at; at = next(at, &left)) {
        switch (at->rta_type & NLA_TYPE_MASK) {
        case RTA_TABLE:
            is_own |= number(at) == RT_TABLE_LOCAL;
            break;
        case RTA_DST:
            is_own |= is_of_link(body, at);
            break;
        case RTA_OIF:
            has_device = 1;
            is_there |= number(at) == asked->index;
            break;
        case RTA_MULTIPATH:
            has_device = 1;
            is_there |= is_over_several(at, asked->index);
            break;
        case RTA_NH_ID:
            hop = number(at);
        }
    }
    enum rp_netdev_route route = body->rtm_dst_len ? RP_LINK_ROUTE_SOME : RP_LINK_ROUTE_DEFAULT;
    if (route > asked->found && !is_own
        && (is_there || (hop && !has_device && is_over_hop(asked, hop)))) {
        asked->found = route;
    }
}

int rp_netdev_route(unsigned index) {
    static const uint8_t FAMILIES[] = {AF_INET, AF_INET6};
    struct routed asked = {.index = index};
    for (size_t i = 0; i < sizeof FAMILIES && !asked.failed; i++) {
        const struct question_of_routes question = {
            .head = {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETROUTE,
                     .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
            .body = {.rtm_family = FAMILIES[i]},
        };
        int failed = ask(&question, sizeof question, see_route, &asked);
        asked.failed = failed ? failed : asked.failed;
    }
    return asked.failed ? asked.failed : (int)asked.found;
}

static void keep(const struct rp_netdev *link, void *argument) {
    *(struct rp_netdev *)argument = *link;
}

int rp_netdev_read(unsigned index, struct rp_netdev *link) {
    link->index = 0;
    int status = index ? rp_links_see(index, keep, link) : -ENODEV;
    return status ? status : link->index ? 0 : -ENODEV;
}
