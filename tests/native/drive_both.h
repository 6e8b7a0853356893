/* A server and a link of it in one process, for the tests of a link: one of each at a time. */
#ifndef RP_DRIVE_BOTH_H
#define RP_DRIVE_BOTH_H

#include "drive.h"

enum { ROW = 64, CAPACITY = 4096 };

static struct rp_service *service;
static struct rp_link *ours;

static void open_both(const char *url) {
    struct rp_service_options serve = {0};
    struct rp_link_options options = {.retry_us_min = 2000, .retry_us_max = 8000};
    struct drive_table made;
    char error[RP_ERROR_BYTES];
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, url, &serve, error) == 0, "%s", error);
    CHECK(strncmp(url, "loopback", 8) == 0 || rp_service_start(service) == 0);
    ours = drive_link(rp_service_address(service), &options);
}

static void close_both(void) {
    rp_link_close(ours, DRIVE_TIMEOUT_NS);
    rp_service_close(service);
}

#endif
