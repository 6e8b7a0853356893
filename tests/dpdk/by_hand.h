/* A memif peer whose every message and word a test writes by hand: one at a time. */
#ifndef RP_TEST_BY_HAND_H
#define RP_TEST_BY_HAND_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "dpdk/memif.h"

enum {
    LOG2 = 6, RING = RP_MEMIF_AT_SLOTS + (RP_MEMIF_SLOT << LOG2), REGION = 8 << 20,
    VERSION = 2 << 8, GONE = 0,
};

static int file, region;
static uint8_t *memory; /* the region: the ring to the server, the one from it, and what follows */

/* With all its pages. */
static void lend_new(int seals) {
    region = memfd_create("lent", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(region >= 0 && ftruncate(region, REGION) == 0);
    memory = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, region, 0);
    CHECK(memory != MAP_FAILED && madvise(memory, REGION, MADV_POPULATE_WRITE) == 0);
    CHECK(fcntl(region, F_ADD_SEALS, F_SEAL_SHRINK | seals) == 0);
}

static void end_loan(void) {
    munmap(memory, REGION);
    close(region);
}

/* Whether a process has mapped what was lent. */
static inline int has_lent_memory(pid_t process) {
    char name[64], line[512];
    int found = 0;
    snprintf(name, sizeof name, "/proc/%d/maps", (int)process);
    FILE *maps = fopen(name, "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        found |= strstr(line, "memfd:lent") != NULL;
    }
    fclose(maps);
    return found;
}

/* Says `type`, with three numbers where the protocol has them. */
static void say(uint32_t type, uint32_t first, uint32_t second, uint32_t third, int with) {
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof with), SOL_SOCKET, SCM_RIGHTS}};
    uint8_t message[RP_MEMIF_MESSAGE] = {(uint8_t)type, 0, (uint8_t)first, (uint8_t)(first >> 8)};
    struct iovec part = {message, sizeof message};
    struct msghdr all = {.msg_iov = &part, .msg_iovlen = 1};
    memcpy(message + 4, &second, sizeof second);
    memcpy(message + 8, &third, sizeof third);
    message[12] = type == RP_MEMIF_ADD_RING ? LOG2 : 0;
    if (with >= 0) {
        memcpy(CMSG_DATA(&control.header), &with, sizeof with);
        all.msg_control = control.bytes;
        all.msg_controllen = sizeof control;
    }
    CHECK(sendmsg(file, &all, MSG_NOSIGNAL) == sizeof message, "the server is gone");
}

/* What the next answer says. Where the server left with words unread, it is a reset. */
static uint32_t hear(void) {
    uint8_t message[RP_MEMIF_MESSAGE];
    ssize_t size = recv(file, message, sizeof message, 0);
    CHECK(size == 0 || size == sizeof message || (size < 0 && errno == ECONNRESET), "no answer");
    return size > 0 ? message[0] : GONE;
}

static uint32_t talk(uint32_t type, uint32_t first, uint32_t second, uint32_t third, int with) {
    say(type, first, second, third, with);
    return hear();
}

static void connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(file >= 0 && connect(file, (struct sockaddr *)&address, sizeof address) == 0);
}

static void greet(const char *path, uint32_t link) {
    uint8_t greeting[RP_MEMIF_MESSAGE];
    connect_to(path);
    CHECK(recv(file, greeting, sizeof greeting, 0) == sizeof greeting);
    CHECK(talk(RP_MEMIF_INIT, VERSION, link, 0, -1) == RP_MEMIF_ACK);
}

/* Returns the answer to the region. */
static uint32_t lend(const char *path, uint32_t link) {
    greet(path, link);
    return talk(RP_MEMIF_ADD_REGION, 0, REGION, 0, region);
}

/* By those files it calls, and is called; -1: by none. Returns the answer to the last message. */
static uint32_t start_rings(int calls, int called) {
    static const uint32_t cookie = RP_MEMIF_COOKIE;
    for (uint32_t way = 0; way < 2; way++) {
        memcpy(memory + way * RING, &cookie, sizeof cookie);
        CHECK(talk(RP_MEMIF_ADD_RING, !way, 0, way * RING, way ? called : calls) == RP_MEMIF_ACK);
    }
    return talk(RP_MEMIF_CONNECT, 0, 0, 0, -1);
}

#endif
