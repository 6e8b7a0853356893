/* A server of one small table, for the tests that drive services and links. */
#ifndef RP_DRIVE_SERVICE_H
#define RP_DRIVE_SERVICE_H

#include "drive.h"

enum { ROW = 64, CAPACITY = 4096 };

DRIVE_UNUSED static struct rp_service *open_service(const char *url,
                                                    const struct rp_service_options *options) {
    struct drive_table made;
    struct rp_service *service;
    char error[RP_ERROR_BYTES];
    drive_config(&made, CAPACITY, ROW);
    CHECK(rp_service_open(&service, &made.config, url, options, error) == 0, "%s", error);
    return service;
}

#endif
