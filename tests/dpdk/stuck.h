/* Files in which a write never ends, for a test that hands them to a server. */
#ifndef RP_TEST_STUCK_H
#define RP_TEST_STUCK_H

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum { STUCK = 6 };
static int stuck[STUCK];

static void fill(int file, int type) {
    CHECK(fcntl(file, F_SETFL, O_NONBLOCK) == 0);
    while (type ? send(file, "", 1, 0) >= 0 : write(file, "", 1) >= 0) {
    }
    CHECK(fcntl(file, F_SETFL, 0) == 0);
}

static void make_stuck(void) {
    static const int types[] = {0, SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET};
    for (int i = 0; i < STUCK - 2; i++) {
        int ends[2];
        CHECK((types[i] ? socketpair(AF_UNIX, types[i], 0, ends) : pipe(ends)) == 0);
        fill(ends[1], types[i]);
        stuck[i] = ends[1];
    }
    stuck[STUCK - 2] = eventfd(0, 0);
    uint64_t most = UINT64_MAX - 1;
    CHECK(write(stuck[STUCK - 2], &most, sizeof most) == sizeof most);
    stuck[STUCK - 1] = -1;
}

#endif
