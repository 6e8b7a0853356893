/* Opening ports, see ports.h. A host's name is looked up once, before forks are held, and takes as
 * long as name servers do; the transport gets the address that was found. So between hold and allow
 * nobody waits for another host.
 */
#include "drive/ports.h"

#include <stddef.h>
#include <string.h>

#include "os/forks.h"

static int has_sockets(const struct rp_url *url) {
    return strcmp(url->scheme, "udp") == 0 || strcmp(url->scheme, "zmq+tcp") == 0;
}

int rp_ports_open(struct rp_port **port, const char *text, const struct rp_port_options *options,
                  struct rp_peer *server, char *bound, char *error) {
    struct rp_url url;
    *port = NULL;
    int status = rp_url_parse(&url, text, error);
    status = status ? status : rp_url_look_up(&url, options, error);
    if (status) {
        return status;
    }
    int holds = has_sockets(&url);
    if (holds) {
        rp_forks_hold();
    }
    status = rp_url_open(port, &url, text, options, server, bound, error);
    if (holds) {
        rp_forks_allow();
    }
    return status;
}
