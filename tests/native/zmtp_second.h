/* A second of a ZMTP port's, made to pass at once, or to pass no more. */
#ifndef RP_TEST_ZMTP_SECOND_H
#define RP_TEST_ZMTP_SECOND_H

#include "check.h"
#include "transport/transport_zmtp_parts.h"

#ifndef RP_POSIX
#include <sys/timerfd.h>

static inline void pass_second(struct zmtp_port *port) {
    struct itimerspec soon = {.it_value.tv_nsec = 1};
    struct pollfd timer = {.fd = port->ready.timer, .events = POLLIN};
    CHECK(timerfd_settime(timer.fd, 0, &soon, NULL) == 0 && poll(&timer, 1, 10000) == 1);
}

static inline void stop_seconds(struct zmtp_port *port) {
    struct itimerspec never = {0};
    CHECK(timerfd_settime(port->ready.timer, 0, &never, NULL) == 0);
}

#else

static inline void pass_second(struct zmtp_port *port) {
    port->ready.ticked_ns -= 1000000000;
}

static inline void stop_seconds(struct zmtp_port *port) {
    port->ready.ticked_ns = UINT64_MAX / 2;
}

#endif

#endif
