/* The sessions of each host: see hosts.h. */
#include "server/hosts.h"

#include <assert.h>

#include "server/server_state.h"
#include "base/siphash.h"

uint64_t rp_hosts_bytes(uint32_t sessions_max) {
    return rp_hash_places(sessions_max) * sizeof(struct rp_host);
}

void rp_hosts_open(struct rp_server *server, void *memory) {
    server->hosts =
        (struct rp_hosts){.place = memory, .mask = rp_hash_places(server->limits.sessions_max) - 1};
}

static uint32_t home(const struct rp_server *server, uint64_t number) {
    return (uint32_t)rp_siphash(server->cookie_key, &number, sizeof number) & server->hosts.mask;
}

/* Where the host is, or the free place where it would be. */
static uint32_t find(const struct rp_server *server, uint64_t number) {
    const struct rp_hosts *h = &server->hosts;
    uint32_t i = home(server, number);
    while (h->place[i].count > 0 && h->place[i].number != number) {
        i = (i + 1) & h->mask;
    }
    return i;
}

/* Closes the gap: an entry behind it that would not be found across the gap moves into it. */
static void close_gap(struct rp_server *server, uint32_t gap) {
    struct rp_hosts *h = &server->hosts;
    for (uint32_t i = (gap + 1) & h->mask; h->place[i].count > 0; i = (i + 1) & h->mask) {
        uint32_t from = home(server, h->place[i].number);
        if (((i - from) & h->mask) >= ((i - gap) & h->mask)) {
            h->place[gap] = h->place[i];
            h->place[i].count = 0;
            gap = i;
        }
    }
}

void rp_hosts_set(struct rp_server *server, uint32_t index, uint64_t number) {
    struct rp_hosts *h = &server->hosts;
    uint64_t before = server->lines[index].host;
    if (before != 0) {
        uint32_t i = find(server, before);
        assert(h->place[i].count > 0);
        if (--h->place[i].count == 0) {
            close_gap(server, i);
        }
    }
    server->lines[index].host = number;
    if (number != 0) {
        struct rp_host *place = &h->place[find(server, number)];
        *place = (struct rp_host){number, place->count + 1};
    }
}

uint64_t rp_hosts_count(const struct rp_server *server, uint64_t number) {
    return number != 0 ? server->hosts.place[find(server, number)].count : 0;
}

uint64_t rp_hosts_number(struct rp_server *server, struct rp_port *port,
                         const struct rp_peer *peer) {
    uint64_t (*host_of)(struct rp_port *, const struct rp_peer *) =
        rp_port_transport(port)->host;
    if (host_of == NULL || server->sessions_per_address == 0) {
        return 0;
    }
    for (uint32_t i = 0; !server->hosts.counted && i < server->limits.sessions_max; i++) {
        if (server->sessions[i].connection != 0) {
            struct rp_peer other;
            rp_session_peer(&server->sessions[i], &other);
            rp_hosts_set(server, i, host_of(port, &other));
        }
    }
    server->hosts.counted = 1;
    return host_of(port, peer);
}

void rp_hosts_check(const struct rp_server *server) {
    const struct rp_hosts *h = &server->hosts;
    uint64_t sum = 0, sessions = 0;
    for (uint32_t i = 0; i <= h->mask; i++) {
        sum += h->place[i].count;
        assert(h->place[i].count == 0 || find(server, h->place[i].number) == i);
    }
    for (uint32_t i = 0; i < server->limits.sessions_max; i++) {
        assert(server->lines[i].host == 0 || server->sessions[i].connection != 0);
        assert(server->lines[i].host == 0 || rp_hosts_count(server, server->lines[i].host) > 0);
        sessions += server->lines[i].host != 0;
    }
    assert(sum == sessions);
}
