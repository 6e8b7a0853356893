/* A server and a link of it in one process, for the tests of a link: one of each at a time. */
#ifndef RP_DRIVE_BOTH_H
#define RP_DRIVE_BOTH_H

#include "drive_service.h"

static struct rp_service *service;
static struct rp_link *ours;

static void open_both(const char *url) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.retry_us_min = 2000, .retry_us_max = 8000};
    service = open_service(url, &serve);
    CHECK(strncmp(url, "loopback", 8) == 0 || rp_service_start(service) == 0);
    ours = drive_link(rp_service_address(service), &options);
}

static void close_both(void) {
    rp_link_close(ours, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
}

#endif
