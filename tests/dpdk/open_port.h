/* Opening a port of dpdk:// in a test program, which ends with DPDK's sentence where it fails. */
#ifndef RP_TEST_OPEN_PORT_H
#define RP_TEST_OPEN_PORT_H

#include "check.h"
#include "transport/transport_dpdk.h"

static inline struct rp_port *open_port(const char *url, int serve, struct rp_peer *peer) {
    struct rp_port_options options = {.serve = serve, .insecure = 1};
    struct rp_port *port = NULL;
    char error[RP_URL_ERROR_BYTES] = "", bound[RP_URL_TEXT_BYTES];
    CHECK(rp_port_open(&port, url, &options, peer, bound, error) == 0, "%s", error);
    return port;
}

/* What only the object itself tells. */
static inline const struct rp_dpdk_object *loaded_object(void) {
    char error[RP_URL_ERROR_BYTES] = "";
    const struct rp_dpdk_object *object = rp_dpdk_load(error);
    CHECK(object, "%s", error);
    return object;
}

#endif
