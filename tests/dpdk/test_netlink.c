/* What dpdk_links.c makes of netlink's answers, from a kernel that is made up here: lists that end
 * in an error, or change while they are told, routes that count and those that do not, next hops
 * that are gone. Unprivileged; run by `make test-dpdk`.
 */
#include <errno.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"
#include "dpdk/dpdk_parts.h"

enum { OWN = 7, OTHER = 8, FILE_NUMBER = 99, ANSWER = 4096, TRIES = 100, NOWHERE = 9 };

int __wrap_socket(int domain, int type, int protocol);
int __wrap_setsockopt(int file, int level, int name, const void *value, socklen_t size);
ssize_t __wrap_send(int file, const void *data, size_t size, int flags);
ssize_t __wrap_recv(int file, void *data, size_t size, int flags);

static void (*answer_to)(const struct nlmsghdr *question);
static _Alignas(struct nlmsghdr) char answer[ANSWER];
static size_t answered;
static int asked, hops_asked, open_files; /* since begin() */

int __wrap_socket(int domain, int type, int protocol) {
    CHECK(domain == AF_NETLINK && type & SOCK_RAW && protocol == NETLINK_ROUTE);
    open_files++;
    return FILE_NUMBER;
}

int __wrap_setsockopt(int file, int level, int name, const void *value, socklen_t size) {
    CHECK(file == FILE_NUMBER && level == SOL_SOCKET && name == SO_RCVTIMEO && value && size);
    return 0;
}

void rp_quiet_close(int file) {
    CHECK(file == FILE_NUMBER);
    open_files--;
}

ssize_t __wrap_send(int file, const void *data, size_t size, int flags) {
    const struct nlmsghdr *question = data;
    CHECK(file == FILE_NUMBER && question->nlmsg_len == size && !flags);
    CHECK(asked + hops_asked < TRIES, "it is asked without end");
    *(question->nlmsg_type == RTM_GETNEXTHOP ? &hops_asked : &asked) += 1;
    answered = 0;
    answer_to(question);
    return (ssize_t)size;
}

ssize_t __wrap_recv(int file, void *data, size_t size, int flags) {
    CHECK(file == FILE_NUMBER && answered && answered <= size && !flags);
    memcpy(data, answer, answered);
    size_t told = answered;
    answered = 0;
    return (ssize_t)told;
}

static void begin(void (*kernel)(const struct nlmsghdr *question)) {
    answer_to = kernel;
    asked = hops_asked = 0;
}

/* ---- what it says ---- */

static struct nlmsghdr *say(int type, int flags, const void *body, size_t size) {
    struct nlmsghdr *message = (struct nlmsghdr *)(answer + answered);
    CHECK(answered + NLMSG_SPACE(size) <= sizeof answer);
    *message = (struct nlmsghdr){.nlmsg_len = (uint32_t)NLMSG_SPACE(size),
                                 .nlmsg_type = (uint16_t)type, .nlmsg_flags = (uint16_t)flags};
    memcpy(NLMSG_DATA(message), body, size);
    answered += NLMSG_SPACE(size);
    return message;
}

/* To the message that was said last. */
static void add(struct nlmsghdr *message, int type, const void *value, size_t size) {
    struct rtattr *at = (struct rtattr *)(answer + answered);
    CHECK(answered + RTA_SPACE(size) <= sizeof answer);
    *at = (struct rtattr){(uint16_t)RTA_LENGTH(size), (uint16_t)type};
    memcpy(RTA_DATA(at), value, size);
    answered += RTA_SPACE(size);
    message->nlmsg_len += (uint32_t)RTA_SPACE(size);
}

static void add_number(struct nlmsghdr *message, int type, uint32_t value) {
    add(message, type, &value, sizeof value);
}

static void say_done(int flags, int status) {
    say(NLMSG_DONE, NLM_F_MULTI | flags, &status, sizeof status);
}

static void say_address(int flags, unsigned index) {
    const struct ifaddrmsg body = {.ifa_family = AF_INET, .ifa_index = index};
    say(RTM_NEWADDR, NLM_F_MULTI | flags, &body, sizeof body);
}

/* ---- lists that fail, and that change ---- */

static void list_fails(const struct nlmsghdr *question) {
    (void)question;
    say_address(0, OWN);
    say_done(0, -ENOBUFS);
}

static void list_is_refused(const struct nlmsghdr *question) {
    const struct nlmsgerr body = {.error = -EPERM};
    (void)question;
    say(NLMSG_ERROR, 0, &body, sizeof body);
}

static void list_is_whole(const struct nlmsghdr *question) {
    (void)question;
    say_address(0, OTHER);
    say_address(0, OWN);
    say_done(0, 0);
}

static void list_is_empty(const struct nlmsghdr *question) {
    (void)question;
    say_done(0, 0);
}

static void check_ends(void) {
    begin(list_fails);
    CHECK(rp_link_has_address(OWN) == -ENOBUFS && asked == 1);
    begin(list_is_refused);
    CHECK(rp_link_has_address(OWN) == -EPERM && asked == 1);
    begin(list_is_whole);
    CHECK(rp_link_has_address(OWN) == 1 && rp_link_has_address(OWN + 2) == 0 && asked == 2);
    begin(list_is_empty);
    CHECK(rp_link_has_address(OWN) == 0 && open_files == 0);
    check_group("a list that ends in an error is an error");
}

/* The first two have lost an address: one says so where it is told, and one at its end. */
static void list_changes(const struct nlmsghdr *question) {
    (void)question;
    say_address(asked == 1 ? NLM_F_DUMP_INTR : 0, OTHER);
    say_address(0, asked < 3 ? OTHER : OWN);
    say_done(asked == 2 ? NLM_F_DUMP_INTR : 0, 0);
}

static void list_never_rests(const struct nlmsghdr *question) {
    (void)question;
    say_address(NLM_F_DUMP_INTR, OTHER);
    say_done(NLM_F_DUMP_INTR, 0);
}

static void check_changes(void) {
    begin(list_changes);
    CHECK(rp_link_has_address(OWN) == 1 && asked == 3, "asked %d times", asked);
    begin(list_never_rests);
    CHECK(rp_link_has_address(OWN) == -EAGAIN && asked > 3 && open_files == 0);
    check_group("a list that changed while it was told is asked for again, and not for ever");
}

/* ---- routes, and the next hops they name ---- */

struct route { /* the last one of a list is of no family */
    int family;
    uint8_t to[2]; /* its first bytes */
    uint8_t bits;  /* 0: the default route */
    uint32_t leaves, hop;
};

static const struct route *routes;
static int hop_status; /* of the one that is NOWHERE */

/* Next hop 1 leaves elsewhere, and 65 by our interface; 2 and 66 the other way round. */
static void say_hop(const struct nlmsghdr *question) {
    uint32_t id;
    memcpy(&id, (const char *)NLMSG_DATA(question) + NLMSG_ALIGN(sizeof(struct nhmsg))
           + RTA_LENGTH(0), sizeof id);
    if (id == NOWHERE) {
        const struct nlmsgerr body = {.error = hop_status};
        say(NLMSG_ERROR, 0, &body, sizeof body);
    } else {
        const struct nhmsg body = {.nh_family = AF_INET};
        struct nlmsghdr *message = say(RTM_NEWNEXTHOP, 0, &body, sizeof body);
        add_number(message, NHA_OIF, id == 65 || id == 2 ? OWN : OTHER);
    }
}

static void say_route(const struct route *route) {
    uint8_t to[16] = {route->to[0], route->to[1]};
    const struct rtmsg body = {.rtm_family = (uint8_t)route->family, .rtm_dst_len = route->bits};
    struct nlmsghdr *message = say(RTM_NEWROUTE, NLM_F_MULTI, &body, sizeof body);
    if (route->bits) {
        add(message, RTA_DST, to, route->family == AF_INET ? 4 : sizeof to);
    }
    if (route->hop) {
        add_number(message, RTA_NH_ID, route->hop);
    } else {
        add_number(message, RTA_OIF, route->leaves);
    }
}

static void routes_are(const struct nlmsghdr *question) {
    if (question->nlmsg_type == RTM_GETNEXTHOP) {
        say_hop(question);
        return;
    }
    const struct rtmsg *body = NLMSG_DATA(question);
    CHECK(question->nlmsg_type == RTM_GETROUTE);
    for (const struct route *route = routes; route->family; route++) {
        if (route->family == body->rtm_family) {
            say_route(route);
        }
    }
    say_done(0, 0);
}

static int route_over(const struct route *listed) {
    routes = listed;
    begin(routes_are);
    return rp_netdev_route(OWN);
}

#define OVER(...) route_over((const struct route[]){__VA_ARGS__, {.family = 0}})

static void check_routes(void) {
    const struct route some = {AF_INET, {10, 0}, 8, OWN, 0}, all = {AF_INET, {0}, 0, OWN, 0};
    const struct route some6 = {AF_INET6, {0xfd}, 8, OWN, 0}, all6 = {AF_INET6, {0}, 0, OWN, 0};
    CHECK(OVER({AF_INET, {10, 0}, 8, OTHER, 0}) == RP_LINK_ROUTE_NONE && asked == 2);
    CHECK(OVER(some) == RP_LINK_ROUTE_SOME && OVER(some6) == RP_LINK_ROUTE_SOME);
    CHECK(OVER(some, all) == RP_LINK_ROUTE_DEFAULT && OVER(all, some) == RP_LINK_ROUTE_DEFAULT);
    CHECK(OVER(some, all6) == RP_LINK_ROUTE_DEFAULT && OVER(all, some6) == RP_LINK_ROUTE_DEFAULT);
    check_group("the foremost route, wherever it is listed");
    CHECK(OVER({AF_INET6, {0xff, 0}, 8, OWN, 0}) == RP_LINK_ROUTE_NONE);
    CHECK(OVER({AF_INET6, {0xff, 5}, 16, OWN, 0}) == RP_LINK_ROUTE_NONE);
    CHECK(OVER({AF_INET6, {0xfe, 0x80}, 64, OWN, 0}) == RP_LINK_ROUTE_NONE);
    CHECK(OVER({AF_INET6, {0xfe, 0xbf}, 64, OWN, 0}) == RP_LINK_ROUTE_NONE);
    CHECK(OVER({AF_INET6, {0xfe, 0xc0}, 64, OWN, 0}) == RP_LINK_ROUTE_SOME);
    CHECK(OVER({AF_INET, {0xff, 0}, 8, OWN, 0}) == RP_LINK_ROUTE_SOME);
    CHECK(OVER({AF_INET, {0xfe, 0x80}, 16, OWN, 0}) == RP_LINK_ROUTE_SOME);
    check_group("neighbours and groups of IPv6 are no route, and those of IPv4 are");
}

static void check_hops(void) {
    CHECK(OVER({AF_INET, {10}, 8, 0, 1}, {AF_INET, {11}, 8, 0, 65}) == RP_LINK_ROUTE_SOME);
    CHECK(OVER({AF_INET, {10}, 8, 0, 2}, {AF_INET, {0}, 0, 0, 66}) == RP_LINK_ROUTE_SOME);
    CHECK(OVER({AF_INET, {10}, 8, 0, 1}, {AF_INET, {11}, 8, 0, 1}, {AF_INET6, {0xfd}, 8, 0, 1})
          == RP_LINK_ROUTE_NONE && hops_asked == 1, "asked %d times", hops_asked);
    check_group("a next hop is asked for once, and is not taken for another one");
    hop_status = -ENOENT;
    CHECK(OVER({AF_INET, {10}, 8, 0, NOWHERE}) == RP_LINK_ROUTE_NONE);
    CHECK(OVER({AF_INET, {10}, 8, 0, NOWHERE}, {AF_INET, {11}, 8, 0, 65}) == RP_LINK_ROUTE_SOME);
    hop_status = -EPERM;
    CHECK(OVER({AF_INET, {10}, 8, 0, NOWHERE}, {AF_INET, {11}, 8, 0, 65}) == -EPERM);
    CHECK(open_files == 0);
    check_group("one that is gone leads nowhere, and one that is not told is an error");
}

int main(void) {
    check_ends();
    check_changes();
    check_routes();
    check_hops();
    return check_done("test_netlink");
}
