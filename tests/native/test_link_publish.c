/* While a link sums the bytes that it is to publish, others may use it. Situations read "Given ...
 * Expect ...". */
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drive.h"

enum { BYTES = 1 << 16, PATIENCE_S = 20 };

static struct rp_link *link_asked;
static uint8_t *bytes;
static volatile sig_atomic_t asked, state;

/* The first look at the bytes: asks the link within it. */
static void on_fault(int number) {
    (void)number;
    asked++;
    state = rp_link_state(link_asked);
    if (mprotect(bytes, BYTES, PROT_READ | PROT_WRITE) != 0) {
        _exit(1);
    }
}

/* 1. Given bytes that cannot be read before the link has answered another question. Expect it to
 *    answer, and the bytes published. Where it is locked meanwhile, the alarm ends the program. */
static void situation_asked_meanwhile(void) {
    struct rp_service *service;
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct drive_table made;
    char error[RP_ERROR_BYTES];
    uint64_t version = 0, size = 0, got = 0;
    static uint8_t back[BYTES];
    drive_config(&made, 4096, 64);
    CHECK(rp_service_open(&service, &made.config, "loopback://sums", &serve, error) == 0, "%s",
          error);
    link_asked = drive_link("loopback://sums", &options);
    bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bytes != MAP_FAILED);
    for (uint32_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    }
    CHECK(mprotect(bytes, BYTES, PROT_NONE) == 0);
    struct sigaction action = {.sa_handler = on_fault};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    (void)alarm(PATIENCE_S);
    int ticket = rp_link_publish(link_asked, bytes, BYTES, &version, DRIVE_TIMEOUT_NS);
    (void)alarm(0);
    CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR && signal(SIGBUS, SIG_DFL) != SIG_ERR);
    CHECK(asked == 1 && state == 1, "asked %d times, state %d", (int)asked, (int)state);
    CHECK(drive_wait(link_asked, ticket, NULL) == 0 && version > 0);
    ticket = rp_link_blob(link_asked, RP_BLOB_WEIGHTS, 0, 0, back, BYTES, &size, &got,
                          DRIVE_TIMEOUT_NS);
    CHECK(drive_wait(link_asked, ticket, NULL) == 0 && size == BYTES && got == version);
    CHECK(memcmp(back, bytes, BYTES) == 0);
    rp_link_close(link_asked, 0);
    rp_service_close(service);
    munmap(bytes, BYTES);
    check_group("1 a link that sums is asked");
}

/* 2. Given more bytes than any server keeps. Expect them refused unread. */
static void situation_too_many(void) {
    struct rp_service *service;
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    struct drive_table made;
    char error[RP_ERROR_BYTES];
    uint64_t version;
    drive_config(&made, 4096, 64);
    CHECK(rp_service_open(&service, &made.config, "loopback://sums", &serve, error) == 0, "%s",
          error);
    struct rp_link *link = drive_link("loopback://sums", &options);
    const uint8_t *nowhere = (const uint8_t *)&link;
    CHECK(rp_link_publish(link, nowhere, (uint64_t)RP_BLOB_BYTES_MAX + 1, &version, 1)
          == -RP_TOO_LARGE);
    CHECK(rp_link_publish(link, nowhere, UINT64_MAX, &version, 1) == -RP_TOO_LARGE);
    CHECK(rp_link_publish(link, nowhere, 0, &version, 1) == -RP_BAD_ARGUMENT);
    rp_link_close(link, 0);
    rp_service_close(service);
    check_group("2 more bytes than any server keeps");
}

int main(void) {
    situation_asked_meanwhile();
    situation_too_many();
    return check_done("test_link_publish");
}
