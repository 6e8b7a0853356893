/* What stands behind ? in a dpdk:// URL: NAME=VALUE, between & or, as DPDK writes it, commas. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk_parts.h"
#include "status.h"

enum { MEMORY_MAX = 1 << 20, VALUE_BYTES = 108, ROLE_BYTES = 8 };

static int refuse(const struct rp_url *url, char *error, const char *what)
{
    snprintf(error, RP_URL_ERROR_BYTES, "dpdk://%.60s:%u: %.150s", url->host, url->port, what);
    return -RP_BAD_ARGUMENT;
}

/* A number of at most `most`, or -1. */
static int64_t read_number(const char *text, long most)
{
    char *end;
    long number = strtol(text, &end, 10);
    return *text < '0' || *text > '9' || *end || number > most ? -1 : number;
}

/* net_ring, net_memif, either with a number behind it. */
static int read_vdev(struct rp_dpdk_options *options, const char *value)
{
    size_t length = strcspn(value, "0123456789");
    if (value[length + strspn(value + length, "0123456789")]) {
        return 0;
    }
    options->vdev = length == 9 ? RP_VDEV_MEMIF : RP_VDEV_RING;
    return (length == 8 && strncmp(value, "net_ring", 8) == 0)
           || (length == 9 && strncmp(value, "net_memif", 9) == 0);
}

/* Null, or what is wrong. */
static const char *read_option(struct rp_dpdk_options *options, const char *name,
                               const char *value, char *role)
{
    int64_t number = -1;
    if (strcmp(name, "vdev") == 0) {
        return read_vdev(options, value) ? NULL : "vdev= is net_ring or net_memif here";
    }
    if (strcmp(name, "role") == 0) {
        snprintf(role, ROLE_BYTES, "%.7s", value);
        return NULL;
    }
    if (strcmp(name, "socket") == 0) {
        snprintf(options->socket, sizeof options->socket, "%s", value);
        return NULL;
    }
    if (strcmp(name, "ip") == 0) {
        return inet_pton(AF_INET, value, options->ip) == 1 ? NULL : "ip= is an IPv4 address";
    }
    if (strcmp(name, "links") == 0) {
        number = read_number(value, RP_DPDK_LANES);
        options->links = (uint32_t)number;
        return number > 0 ? NULL : "links= is 1 to 16: how many clients can be there at once";
    }
    if (strcmp(name, "id") == 0) {
        number = read_number(value, RP_DPDK_LANES - 1);
        options->id = (int32_t)number;
        return number >= 0 ? NULL : "id= is 0 to 15: which of the server's links";
    }
    if (strcmp(name, "memory") == 0) {
        number = read_number(value, MEMORY_MAX);
        options->memory = (uint32_t)number;
        return number > 0 ? NULL : "memory= is a number of MiB";
    }
    return strcmp(name, "mtu") == 0 ? NULL
        : "the options are vdev, role, socket, ip, links, id, memory and mtu";
}

static const char *check(const struct rp_dpdk_options *options, const char *role, int serve)
{
    if (options->vdev == RP_VDEV_RING) {
        return options->socket[0] ? "socket= goes with vdev=net_memif" : NULL;
    }
    if (!options->socket[0]) {
        return "vdev=net_memif needs socket=, a path both processes can reach";
    }
    if (role[0] && strcmp(role, serve ? "server" : "client") != 0) {
        return serve ? "role=server is what serves; role=client is for its clients"
            : "role=client is what connects; role=server is for the server";
    }
    return NULL;
}

int rp_dpdk_read_options(struct rp_dpdk_options *options, const struct rp_url *url, int serve,
                         char *error)
{
    char text[RP_URL_TEXT_BYTES], role[ROLE_BYTES] = "", *rest = NULL;
    const char *wrong = NULL;
    int has_vdev = 0;
    memset(options, 0, sizeof *options);
    options->links = RP_DPDK_LINKS;
    options->id = -1;
    snprintf(text, sizeof text, "%s", url->options);
    for (char *at = strtok_r(text, "&,", &rest); at && !wrong; at = strtok_r(NULL, "&,", &rest)) {
        char *value = strchr(at, '=');
        if (!value || !value[1] || strlen(value + 1) >= VALUE_BYTES) {
            return refuse(url, error, "options are NAME=VALUE, a value under 108 bytes");
        }
        *value++ = 0;
        has_vdev = has_vdev || strcmp(at, "vdev") == 0;
        wrong = read_option(options, at, value, role);
    }
    if (!wrong && !has_vdev) {
        wrong = "say ?vdev=net_ring, or ?vdev=net_memif,role=server,socket=PATH";
    }
    wrong = wrong ? wrong : check(options, role, serve);
    return wrong ? refuse(url, error, wrong) : 0;
}
