/* Interfaces as the kernel's netlink tells of them, in the calling thread's network namespace.
 * (Sysfs shows those of the namespace it was mounted in.)
 */
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "dpdk_parts.h"

/* One answer holds several interfaces; one interface without its counters is far smaller. */
enum { ANSWER_BYTES = 1 << 15, WITHOUT_COUNTERS = RTEXT_FILTER_SKIP_STATS, ANSWERS_MAX = 10000 };

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

typedef void read_message(const struct nlmsghdr *message, void *argument);

static uint32_t number(const struct rtattr *at)
{
    uint32_t value = 0;
    memcpy(&value, RTA_DATA(at), RTA_PAYLOAD(at) < sizeof value ? RTA_PAYLOAD(at) : sizeof value);
    return value;
}

static void copy_text(char *to, size_t size, const struct rtattr *at)
{
    size_t length = strnlen(RTA_DATA(at), RTA_PAYLOAD(at));
    snprintf(to, size, "%.*s", (int)length, (const char *)RTA_DATA(at));
}

/* The next of attributes that take `left` bytes; null: there is none. */
static const struct rtattr *next(const struct rtattr *at, int *left)
{
    at = RTA_NEXT(at, *left);
    return RTA_OK(at, *left) ? at : NULL;
}

static const struct rtattr *first(const void *data, int left)
{
    const struct rtattr *at = data;
    return RTA_OK(at, left) ? at : NULL;
}

static void read_xdp(struct rp_link *link, const struct rtattr *nest)
{
    int left = (int)RTA_PAYLOAD(nest);
    for (const struct rtattr *at = first(RTA_DATA(nest), left); at; at = next(at, &left)) {
        if (at->rta_type == IFLA_XDP_ATTACHED) {
            link->has_program = *(const uint8_t *)RTA_DATA(at) != XDP_ATTACHED_NONE;
        } else if (at->rta_type == IFLA_XDP_PROG_ID) {
            link->program = number(at);
        }
    }
}

static void read_kind(struct rp_link *link, const struct rtattr *nest)
{
    int left = (int)RTA_PAYLOAD(nest);
    for (const struct rtattr *at = first(RTA_DATA(nest), left); at; at = next(at, &left)) {
        if (at->rta_type == IFLA_INFO_KIND) {
            copy_text(link->kind, sizeof link->kind, at);
        }
    }
}

static void read_link(struct rp_link *link, const struct nlmsghdr *message)
{
    const struct ifinfomsg *body = NLMSG_DATA(message);
    int left = (int)IFLA_PAYLOAD(message), is_elsewhere = 0;
    *link = (struct rp_link){.index = (unsigned)body->ifi_index,
                             .is_up = (body->ifi_flags & IFF_UP) != 0,
                             .has_carrier = (body->ifi_flags & IFF_RUNNING) != 0};
    for (const struct rtattr *at = first(IFLA_RTA(body), left); at; at = next(at, &left)) {
        switch (at->rta_type & NLA_TYPE_MASK) {
        case IFLA_IFNAME:
            copy_text(link->name, sizeof link->name, at);
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

/* 1: more follows; 0: that was all; or a negative errno. */
static int read_answer(const void *data, ssize_t size, read_message *read_it, void *argument)
{
    int left = (int)size;
    const struct nlmsghdr *at = data;
    int more = 1;
    for (; more > 0 && NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
        if (at->nlmsg_type == NLMSG_ERROR) {
            return ((const struct nlmsgerr *)NLMSG_DATA(at))->error;
        }
        read_it(at, argument);
        more = at->nlmsg_type != NLMSG_DONE && at->nlmsg_flags & NLM_F_MULTI;
    }
    return more;
}

/* 0, or a negative errno. */
static int ask(const void *question, size_t length, read_message *read_it, void *argument)
{
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
            : read_answer(answer, size, read_it, argument);
    }
    rp_quiet_close(file);
    return more;
}

struct seeing {
    rp_link_see *see;
    void *argument;
};

static void see_link(const struct nlmsghdr *message, void *argument)
{
    const struct seeing *seeing = argument;
    struct rp_link link;
    if (message->nlmsg_type == RTM_NEWLINK) {
        read_link(&link, message);
        seeing->see(&link, seeing->argument);
    }
}

int rp_links_see(unsigned index, rp_link_see *see, void *argument)
{
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

static void see_address(const struct nlmsghdr *message, void *argument)
{
    struct addressed *asked = argument;
    const struct ifaddrmsg *body = NLMSG_DATA(message);
    asked->is_found |= message->nlmsg_type == RTM_NEWADDR && body->ifa_family == AF_INET
        && body->ifa_index == asked->index;
}

int rp_link_has_address(unsigned index)
{
    const struct question_of_addresses question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.ifa_family = AF_INET},
    };
    struct addressed asked = {.index = index};
    int failed = ask(&question, sizeof question, see_address, &asked);
    return failed ? failed : asked.is_found;
}

static void keep(const struct rp_link *link, void *argument)
{
    *(struct rp_link *)argument = *link;
}

int rp_link_read(unsigned index, struct rp_link *link)
{
    link->index = 0;
    int status = index ? rp_links_see(index, keep, link) : -ENODEV;
    return status ? status : link->index ? 0 : -ENODEV;
}
