/* Opening ports, see ports.h. A name is looked up twice: here, before forks are held, which may
 * take as long as name servers do; and by the transport a moment later, when the answer is at hand.
 * Where the first look fails the second will most likely too, and forks are not held for it.
 */
#include "drive/ports.h"

#include <netdb.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "os/forks.h"

static int has_sockets(const struct rp_url *url) {
    return strcmp(url->scheme, "udp") == 0 || strcmp(url->scheme, "zmq+tcp") == 0;
}

static int is_found(const struct rp_url *url) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(url->host, NULL, &hints, &found) != 0) {
        return 0;
    }
    freeaddrinfo(found);
    return 1;
}

int rp_ports_open(struct rp_port **port, const char *text, const struct rp_port_options *options,
                  struct rp_peer *server, char *bound, char *error) {
    struct rp_url url;
    *port = NULL;
    int status = rp_url_parse(&url, text, error);
    if (status) {
        return status;
    }
    int holds = has_sockets(&url) && is_found(&url);
    if (holds) {
        rp_forks_hold();
    }
    status = rp_port_open(port, text, options, server, bound, error);
    if (holds) {
        rp_forks_allow();
    }
    return status;
}
