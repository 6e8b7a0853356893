/* Whether this host uses an interface: by the rule of deploy/nic.sh and doctor
 * (replay_server/observe/interfaces.py). It is up, and it or a virtual function of it has an
 * address or a route, over any next hop and in any table, or something stands on it: a bridge, a
 * bond, a VLAN, a vxlan, a PPPoE session, filters of tc; or another process has a raw socket
 * there, or something made it promiscuous. Asked in the calling thread's network namespace.
 *
 * A device on it in another network namespace, such as a container's macvlan, is not seen itself.
 * But a macvlan makes an interface promiscuous that cannot filter by MAC address, such as a veth:
 * that is seen. Not seen at all: a container's macvlan on a card that can filter, or a container's
 * ipvlan or VLAN.
 */
#include <dirent.h>
#include <glob.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dpdk/dpdk_parts.h"

enum { LINE_BYTES = 512, PATH_BYTES = 320, OF_HOST = 0x10, OF_LINK = 0x20 };

struct use {
    unsigned index;
    struct rp_netdev link; /* of that number */
    char *what; /* the first thing found; "": none */
    size_t size;
};

static void keep_own(const struct rp_netdev *link, void *argument) {
    struct use *use = argument;
    if (link->index == use->index) {
        use->link = *link;
    }
}

/* The two ends of a cable are not one on the other. */
static void find_upper(const struct rp_netdev *link, void *argument) {
    struct use *use = argument;
    int is_upper = link->index == use->link.master
        || (link->below == use->index && strcmp(link->kind, "veth") != 0
            && strcmp(link->kind, "netkit") != 0);
    if (is_upper && link->index != use->index && !use->what[0]) {
        snprintf(use->what, use->size, "%s stands on %s", link->name, use->link.name);
    }
}

static int is_address6(const char *line, const struct use *use) {
    char name[IF_NAMESIZE];
    unsigned scope;
    return sscanf(line, "%*s %*s %*s %x %*s %15s", &scope, name) == 2 && scope != OF_HOST
           && scope != OF_LINK && strcmp(name, use->link.name) == 0;
}

/* Whether the open files of this process have that socket. */
static int is_own_socket(unsigned long inode) {
    char path[PATH_BYTES], wanted[LINE_BYTES], found[LINE_BYTES];
    int is_own = 0;
    DIR *files = opendir("/proc/self/fd");
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    for (struct dirent *file; files && !is_own && (file = readdir(files));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", file->d_name);
        ssize_t length = readlink(path, found, sizeof found - 1);
        found[length < 0 ? 0 : length] = 0;
        is_own = strcmp(found, wanted) == 0;
    }
    if (files) {
        closedir(files);
    }
    return is_own;
}

/* The interface's number is the fifth word, the socket's the ninth. Raw sockets of this process are
 * not counted. */
static int is_raw_socket(const char *line, const struct use *use) {
    unsigned index;
    unsigned long inode;
    return sscanf(line, "%*s %*s %*s %*s %u %*s %*s %*s %lu", &index, &inode) == 2
           && index == use->index && !is_own_socket(inode);
}

static int is_pppoe(const char *line, const struct use *use) {
    char name[IF_NAMESIZE];
    return sscanf(line, "%*s %*s %15s", name) == 1 && strcmp(name, use->link.name) == 0;
}

static void find_line(struct use *use, const char *path, const char *what,
                      int (*is_one)(const char *, const struct use *)) {
    char line[LINE_BYTES];
    FILE *file = use->what[0] ? NULL : fopen(path, "re");
    while (file && !use->what[0] && fgets(line, sizeof line, file)) {
        if (is_one(line, use)) {
            snprintf(use->what, use->size, "%s carries %s", use->link.name, what);
        }
    }
    if (file) {
        fclose(file);
    }
}

/* 0, or -1: the kernel gives no answer. Procfs shows only the first next hop of each route, and of
 * IPv4 one table. */
static int find_route(struct use *use) {
    int route = rp_netdev_route(use->index);
    if (route > 0) {
        snprintf(use->what, use->size, "%s carries %s", use->link.name,
                 route == RP_LINK_ROUTE_DEFAULT ? "the default route" : "a route");
    }
    return route < 0 ? -1 : 0;
}

/* The same. */
static int find_address(struct use *use) {
    int has = use->what[0] ? 0 : rp_link_has_address(use->index);
    if (has > 0) {
        snprintf(use->what, use->size, "%s carries an address", use->link.name);
    }
    return has < 0 ? -1 : 0;
}

/* The same. */
static int find_filters(struct use *use) {
    int has = use->what[0] ? 0 : rp_link_has_filters(use->index);
    if (has > 0) {
        snprintf(use->what, use->size, "a clsact or ingress qdisc of tc is on %s",
                 use->link.name);
    }
    return has < 0 ? -1 : 0;
}

/* The same. */
static int look_at(struct use *use, unsigned index) {
    use->index = index;
    use->link = (struct rp_netdev){.index = 0};
    if (rp_links_see(index, keep_own, use)) {
        return -1;
    }
    if (!use->link.is_up) {
        return 0;
    }
    if (find_route(use)) {
        return -1;
    }
    find_line(use, "/proc/thread-self/net/if_inet6", "an address", is_address6);
    find_line(use, "/proc/thread-self/net/packet", "another process's raw socket", is_raw_socket);
    find_line(use, "/proc/thread-self/net/pppoe", "a PPPoE session", is_pppoe);
    if (find_address(use) || (!use->what[0] && rp_links_see(0, find_upper, use))
        || find_filters(use)) {
        return -1;
    }
    if (!use->what[0] && use->link.listeners) {
        snprintf(use->what, use->size, "a macvlan elsewhere, or a capture, made %s promiscuous",
                 use->link.name);
    }
    return 0;
}

/* For glob(), which would find other interfaces by a name like x*. */
static void escape(char escaped[2 * IF_NAMESIZE], const char *name) {
    for (; *name; name++) {
        if (strchr("*?[\\", *name)) {
            *escaped++ = '\\';
        }
        *escaped++ = *name;
    }
    *escaped = 0;
}

int rp_interface_use(unsigned index, char *what, size_t size) {
    struct use use = {.what = what, .size = size};
    char path[PATH_BYTES], name[2 * IF_NAMESIZE];
    glob_t functions = {0};
    what[0] = 0;
    int failed = look_at(&use, index);
    escape(name, use.link.name);
    snprintf(path, sizeof path, "/sys/class/net/%s/device/virtfn*/net/*", name);
    (void)glob(path, 0, NULL, &functions);
    for (size_t i = 0; i < functions.gl_pathc && !failed && !what[0]; i++) {
        unsigned function = if_nametoindex(strrchr(functions.gl_pathv[i], '/') + 1);
        failed = function && look_at(&use, function);
    }
    globfree(&functions);
    if (failed) {
        snprintf(what, size, "the kernel does not tell what it carries");
    }
    return what[0] != 0;
}
