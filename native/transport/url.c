/* Parsing URLs, and the one table of transports. */
#include "transport/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/status.h"
#include "transport/transport_dpdk.h"
#include "transport/transport_loopback.h"
#include "transport/transport_udp.h"
#include "transport/transport_zmq.h"

struct scheme {
    const char *name;
    rp_port_opener *open;
    int has_port;
    int has_options; /* beside ?mtu=, which all have */
    uint32_t mtu;
};

static const struct scheme schemes[] = {
    {"loopback", rp_loopback_open, 0, 0, RP_MTU_HOST},
    {"udp", rp_udp_open, 1, 0, RP_MTU_DEFAULT},
    {"zmq+tcp", rp_zmq_open, 1, 0, RP_ZMQ_MTU},
    {"dpdk", rp_dpdk_open, 1, 1, RP_MTU_DEFAULT},
};
enum { SCHEMES = sizeof schemes / sizeof schemes[0] };

static const struct scheme *find_scheme(const char *name) {
    for (int i = 0; i < SCHEMES; i++) {
        if (strcmp(schemes[i].name, name) == 0) {
            return &schemes[i];
        }
    }
    return NULL;
}

/* Decimal digits from *text on, at most `most`; moves *text behind them. -1: there are none. */
static int64_t read_number(const char **text, int64_t most) {
    int64_t number = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9' && number <= most; at++) {
        number = number * 10 + (*at - '0');
    }
    if (at == *text || number > most) {
        return -1;
    }
    *text = at;
    return number;
}

static int refuse(char *error, const char *text, const char *why) {
    snprintf(error, RP_URL_ERROR_BYTES, "%.120s: %.120s", text, why);
    return -RP_BAD_ARGUMENT;
}

/* Copies [from, to) as a string; 0 where it is empty or too long. */
static int copy_span(char *target, size_t capacity, const char *from, const char *to) {
    size_t size = (size_t)(to - from);
    if (size == 0 || size >= capacity) {
        return 0;
    }
    memcpy(target, from, size);
    target[size] = 0;
    return 1;
}

/* HOST:PORT or [HOST]:PORT. Returns where it ended, null where it is no such thing. */
static const char *read_host_port(struct rp_url *url, const char *at) {
    const char *host = *at == '[' ? at + 1 : at;
    const char *end = host + strcspn(host, host == at ? ":?" : "]");
    if (!copy_span(url->host, sizeof url->host, host, end)) {
        return NULL;
    }
    at = host == end || *end != ']' ? end : end + 1;
    if (*at != ':') {
        return NULL;
    }
    at++;
    int64_t port = read_number(&at, 65535);
    if (port < 0) {
        return NULL;
    }
    url->port = (uint16_t)port;
    return strchr("?&,", *at) ? at : NULL; /* its end, or what may be meant as options */
}

/* ?mtu=N, or nothing; where the scheme has options ?NAME=VALUE&..., or commas. 1 where the rest
 * of the url is one of them. */
static int read_options(struct rp_url *url, const char *at, int has_options) {
    if (*at == 0) {
        return 1;
    }
    if (has_options && *at == '?') {
        snprintf(url->options, sizeof url->options, "%s", at + 1);
        const char *mtu = strstr(at, "mtu=");
        if (!mtu || !strchr("?&,", mtu[-1])) {
            return 1;
        }
        at = mtu;
    } else if (strncmp(at, "?mtu=", 5) == 0) {
        at++;
    } else {
        return 0;
    }
    at += 4;
    int64_t mtu = read_number(&at, RP_MTU_MAX);
    int ended = *at == 0 || (has_options && (*at == '&' || *at == ','));
    if (mtu < RP_MTU_MIN || mtu % 8 != 0 || !ended) {
        return 0;
    }
    url->mtu = (uint32_t)mtu;
    return 1;
}

/* A name is not resolved for this: only those that are this host by themselves count. */
static int within_host(const struct rp_url *url) {
    int is_number = url->host[strspn(url->host, ".0123456789")] == 0;
    return strcmp(url->host, "localhost") == 0 || strcmp(url->host, "::1") == 0
           || (is_number && strncmp(url->host, "127.", 4) == 0);
}

int rp_url_parse(struct rp_url *url, const char *text, char *error) {
    memset(url, 0, sizeof *url);
    if (strlen(text) >= RP_URL_TEXT_BYTES) {
        return refuse(error, text, "a url has fewer than 256 bytes");
    }
    const char *colon = strstr(text, "://");
    if (!colon || !copy_span(url->scheme, sizeof url->scheme, text, colon)) {
        return refuse(error, text,
                      "not a url: udp://HOST:PORT, zmq+tcp://HOST:PORT or loopback://NAME is "
                      "expected");
    }
    const char *at = colon + 3;
    const struct scheme *scheme = find_scheme(url->scheme);
    if (!scheme) {
        snprintf(error, RP_URL_ERROR_BYTES,
                 "%.100s: no such transport; this build has loopback://, udp://, zmq+tcp:// and "
                 "dpdk://", text);
        return -RP_NO_TRANSPORT;
    }
    url->mtu_default = scheme->mtu;
    if (scheme->has_port) {
        at = read_host_port(url, at);
        if (!at) {
            return refuse(error, text,
                          "HOST:PORT is expected behind ://, PORT a number up to 65535, IPv6 in "
                          "brackets");
        }
        if (url->mtu_default < RP_MTU_HOST && within_host(url)) {
            url->mtu_default = RP_MTU_HOST;
        }
    } else {
        const char *end = at + strcspn(at, "?");
        if (!copy_span(url->host, RP_URL_NAME_BYTES, at, end)) {
            return refuse(error, text, "a name of 1 to 63 bytes is expected behind ://");
        }
        at = end;
    }
    if (!read_options(url, at, scheme->has_options)) {
        return refuse(error, text,
                      scheme->has_options
                      ? "options begin with ?; mtu=N is 512 to 65504, a multiple of 8"
                      : "?mtu=N is the only option: 512 to 65504, a multiple of 8");
    }
    return 0;
}

/* A zmq+tcp port that Python has opened has its address, and a client's is not opened here. */
int rp_url_look_up(struct rp_url *url, const struct rp_port_options *options, char *error) {
    int needed = strcmp(url->scheme, "udp") == 0
        || (strcmp(url->scheme, "zmq+tcp") == 0 && options->serve && !options->zmq);
    return needed ? rp_udp_look_up(url, error) : 0;
}

int rp_url_open(struct rp_port **port, const struct rp_url *url, const char *text,
                const struct rp_port_options *options, struct rp_peer *server, char *bound,
                char *error) {
    struct rp_port_options filled = *options;
    *port = NULL;
    filled.mtu = url->mtu ? url->mtu : options->mtu ? options->mtu : url->mtu_default;
    if (filled.mtu < RP_MTU_MIN || filled.mtu > RP_MTU_MAX || filled.mtu % 8 != 0) {
        return refuse(error, text, "the mtu is 512 to 65504 bytes, a multiple of 8");
    }
    char address[RP_URL_TEXT_BYTES];
    const struct scheme *scheme = find_scheme(url->scheme);
    int status = scheme->open(port, url, &filled, server, bound ? bound : address, error);
    if (!status && bound && url->mtu) { /* clients are to take the mtu with the url */
        size_t size = strlen(bound);
        snprintf(bound + size, RP_URL_TEXT_BYTES - size, "%cmtu=%u",
                 strchr(bound, '?') ? '&' : '?', url->mtu);
    }
    return status;
}

int rp_port_open(struct rp_port **port, const char *text, const struct rp_port_options *options,
                 struct rp_peer *server, char *bound, char *error) {
    struct rp_url url;
    *port = NULL;
    int status = rp_url_parse(&url, text, error);
    return status ? status : rp_url_open(port, &url, text, options, server, bound, error);
}

void rp_port_close(struct rp_port *port) {
    if (port) {
        rp_port_transport(port)->close(port);
    }
}
