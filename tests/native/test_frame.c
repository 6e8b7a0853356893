/* The frame parser of dpdk://: golden frames made by independent code, every reason to drop, every
 * single flipped bit, and random bytes in memory of exactly their size. */
#include <string.h>

#include "check.h"
#include "dpdk/frame.c"
#include "base/random.h"

static const struct rp_frame_host server = {{2, 10, 0, 0, 0, 1}, {10, 0, 0, 1}, 7400, 0, 0};
static const struct rp_frame_host client = {{2, 10, 0, 0, 0, 2}, {10, 0, 0, 2}, 50000, 0, 0};

/* "replay!" from client to server; an echo request of 9 bytes; who has 10.0.0.1 */
static const uint8_t datagram[] = {
    0x02, 0x0a, 0x00, 0x00, 0x00, 0x01, 0x02, 0x0a, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00, 0x45, 0x00,
    0x00, 0x23, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0xc8, 0x0a, 0x00, 0x00, 0x02, 0x0a, 0x00,
    0x00, 0x01, 0xc3, 0x50, 0x1c, 0xe8, 0x00, 0x0f, 0xa6, 0x49, 0x72, 0x65, 0x70, 0x6c, 0x61, 0x79,
    0x21};
static const uint8_t echo[] = {
    0x02, 0x0a, 0x00, 0x00, 0x00, 0x01, 0x02, 0x0a, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00, 0x45, 0x00,
    0x00, 0x25, 0x00, 0x00, 0x40, 0x00, 0x40, 0x01, 0x26, 0xd6, 0x0a, 0x00, 0x00, 0x02, 0x0a, 0x00,
    0x00, 0x01, 0x08, 0x00, 0xeb, 0x34, 0x12, 0x34, 0x00, 0x01, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66,
    0x67, 0x68, 0x69};
static const uint8_t question[] = {
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x0a, 0x00, 0x00, 0x00, 0x02, 0x08, 0x06, 0x00, 0x01,
    0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x02, 0x0a, 0x00, 0x00, 0x00, 0x02, 0x0a, 0x00, 0x00, 0x02,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0a, 0x00, 0x00, 0x01};

/* The same sum by the book: big-endian words, one by one. */
static uint32_t sum_by_the_book(uint32_t sum, const uint8_t *bytes, uint32_t size) {
    for (uint32_t i = 0; i < size; i++) {
        sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/* A sum grown byte by byte beside sums of the first 0, 1, 2, ... bytes; the bytes end where their
 * memory ends, so that the sanitizer sees one too far. */
static void check_sum(const uint8_t *bytes, uint32_t size, int wide) {
    uint64_t book = 0;
    uint8_t *copy = malloc(size + 1u);
    CHECK(copy);
    for (uint32_t taken = 0; taken <= size; taken++) {
        if (taken) {
            book += (uint64_t)bytes[taken - 1] << (taken % 2 ? 0 : 8);
        }
        CHECK(fold(add(0, bytes, taken)) == fold(book), "of %u bytes", taken);
        uint32_t steps = taken / STEP * STEP;
        if (taken == steps) {
            CHECK(fold(add_portable(bytes, steps)) == fold(book), "of %u bytes, portable", taken);
            CHECK(!wide || fold(add_wide(bytes, steps)) == fold(book), "of %u, wide", taken);
        }
    }
    for (uint32_t taken = 0; taken <= 4u * STEP && taken <= size; taken++) {
        memcpy(copy + size - taken, bytes, taken);
        CHECK(fold(add(7, copy + size - taken, taken)) == fold(7 + add(0, bytes, taken)));
    }
    free(copy);
}

static void check_sums(struct rp_random *random) {
    enum { FRAME = 9014, MOST = SUM_MOST - 1 };
    uint8_t *bytes = aligned_alloc(64, MOST + 1u);
    CHECK(bytes);
    for (int fill = 0; fill < 5; fill++) {
        static const uint8_t fills[][2] = {{0, 0}, {0xff, 0xff}, {0xff, 0}, {0, 0xff}, {0, 0}};
        for (uint32_t i = 0; i <= MOST; i++) {
            bytes[i] = fill < 4 ? fills[fill][i % 2] : (uint8_t)rp_random_next(random);
        }
        for (uint32_t at = 0; at < 64; at++) {
            check_sum(bytes + at, at < 2 ? FRAME : 1024, is_wide());
        }
        for (uint32_t i = 0, book = 0; i < MOST; i++) {
            book = fold(book + ((uint32_t)bytes[i] << (i % 2 ? 8 : 0)));
            CHECK(i < MOST - 1 || fold(add(0, bytes, MOST)) == book, "of %u bytes", i + 1);
        }
    }
    free(bytes);
    check_group("sums as by the book: every size and alignment, the largest values");
}

/* Puts the checksums of a changed frame right, so that only its change can be the reason. */
static void mend(uint8_t *frame, uint32_t capacity) {
    uint32_t size = (uint32_t)(frame[16] << 8 | frame[17]) - 20u;
    memset(frame + 24, 0, 2);
    write16(frame + 24, ~sum_by_the_book(0, frame + 14, 20));
    if (frame[23] == 17 && size <= capacity - 34) {
        memset(frame + 40, 0, 2);
        uint32_t sum = sum_by_the_book(17 + size, frame + 26, 8);
        write16(frame + 40, ~sum_by_the_book(sum, frame + 34, size));
    }
}

/* Reads from memory of exactly `size` bytes: the sanitizer sees a byte too far. */
static enum rp_frame_kind read_exact(const uint8_t *frame, uint32_t size) {
    struct rp_frame_view view = {.size = 0};
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    memcpy(copy, frame, size);
    enum rp_frame_kind kind = rp_frame_read(copy, size, &server, &view);
    CHECK(kind < RP_FRAME_KINDS);
    CHECK(kind != RP_FRAME_DATAGRAM || (view.size > 0 && view.offset + view.size <= size));
    free(copy);
    return kind;
}

static void check_golden(void) {
    struct rp_frame_view view;
    CHECK(rp_frame_read(datagram, sizeof datagram, &server, &view) == RP_FRAME_DATAGRAM);
    CHECK(view.offset == RP_FRAME_HEADERS && view.size == 7);
    CHECK(memcmp(&view.from, &client, sizeof client) == 0 && view.from.port == 50000);
    uint8_t built[64] = {0};
    memcpy(built + 42, "replay!", 7);
    rp_frame_write(built + 42, 7, &client, &server, 1);
    CHECK(memcmp(built, datagram, sizeof datagram) == 0, "written as the golden frame");

    uint8_t asked[RP_FRAME_SHORTEST], answer[RP_FRAME_SHORTEST];
    CHECK(rp_frame_ask(asked, &client, server.ip) == RP_FRAME_SHORTEST);
    CHECK(memcmp(asked, question, sizeof question) == 0, "asked as the golden frame");
    memset(answer, 0xee, sizeof answer);
    memcpy(answer, question, sizeof question);
    CHECK(rp_frame_read(question, sizeof question, &server, &view) == RP_FRAME_ARP_ASKED);
    CHECK(rp_frame_answer_arp(answer, &server) == RP_FRAME_SHORTEST && answer[59] == 0);
    CHECK(rp_frame_read(answer, sizeof answer, &client, &view) == RP_FRAME_ARP_ANSWER);
    CHECK(memcmp(view.from.mac, server.mac, 6) == 0 && memcmp(view.from.ip, server.ip, 4) == 0);

    memset(answer, 0xee, sizeof answer);
    memcpy(answer, echo, sizeof echo);
    answer[22] = 1; /* it came on its last hop: the answer has all of them */
    CHECK(rp_frame_read(echo, sizeof echo, &server, &view) == RP_FRAME_ECHO_ASKED);
    CHECK(rp_frame_answer_echo(answer, &server) == RP_FRAME_SHORTEST && answer[59] == 0);
    CHECK(memcmp(answer, client.mac, 6) == 0 && memcmp(answer + 30, client.ip, 4) == 0);
    CHECK(answer[22] == 64, "an answer of %u hops", answer[22]);
    CHECK(answer[34] == 0 && memcmp(answer + 38, echo + 38, sizeof echo - 38) == 0);
    CHECK(sum_by_the_book(0, answer + 14, 20) == 0xffff);
    CHECK(sum_by_the_book(0, answer + 34, 17) == 0xffff);
    check_group("golden datagram, ARP and echo");
}

/* RFC 5227: whose address it is, asked by who would have it, told to all, and fought for. */
static void check_claims(void) {
    struct rp_frame_host prober = client, thief = client;
    struct rp_frame_view view;
    uint8_t frame[RP_FRAME_SHORTEST];
    memset(prober.ip, 0, sizeof prober.ip);
    memcpy(thief.ip, server.ip, sizeof thief.ip);
    CHECK(rp_frame_ask(frame, &prober, server.ip) == sizeof frame && frame[28] == 0);
    CHECK(rp_frame_read(frame, sizeof frame, &server, &view) == RP_FRAME_ARP_ASKED);
    CHECK(memcmp(&view.from, &prober, sizeof view.from.mac + sizeof view.from.ip) == 0);
    CHECK(rp_frame_answer_arp(frame, &server) == sizeof frame);
    CHECK(memcmp(frame, client.mac, 6) == 0 && read16(frame + 20) == 2);
    for (int answered = 0; answered < 2; answered++) { /* asked for by nobody, and by this host */
        rp_frame_ask(frame, &thief, server.ip);
        if (answered) {
            memcpy(frame, server.mac, 6);
            write16(frame + 20, 2);
            memcpy(frame + 38, client.ip, 4);
        }
        CHECK(rp_frame_read(frame, sizeof frame, &server, &view) == RP_FRAME_DROP_conflict);
        CHECK(memcmp(view.from.mac, client.mac, 6) == 0, "who it is");
    }
    rp_frame_ask(frame, &server, server.ip);
    CHECK(rp_frame_read(frame, sizeof frame, &server, &view) == RP_FRAME_DROP_source, "reflected");
    CHECK(rp_frame_read(frame, sizeof frame, &client, &view) == RP_FRAME_ARP_ANSWER, "announced");
    CHECK(memcmp(view.from.mac, server.mac, 6) == 0 && memcmp(view.from.ip, server.ip, 4) == 0);
    CHECK(rp_frame_addressee(frame, sizeof frame, 0) == RP_FRAME_TO_WHO_ASKED);
    rp_frame_ask(frame, &prober, prober.ip);
    CHECK(rp_frame_read(frame, sizeof frame, &server, &view) == RP_FRAME_DROP_source, "0.0.0.0");
    check_group("an address probed for, announced, and taken by another host");
}

/* A host of three shards, at ports 7399 to 7401, the second of which looks at the frame. */
static void check_shards(void) {
    static const struct { uint16_t port; int taken; } sent[] = {
        {7398, 0}, {7399, 1}, {7400, 1}, {7401, 1}, {7402, 0}, {0, 0}, {65535, 0}};
    struct rp_frame_host shard = server, to = server;
    struct rp_frame_view view;
    uint8_t frame[RP_FRAME_HEADERS + 8] = {0};
    shard.first_port = 7399;
    shard.port_count = 3;
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        to.port = sent[i].port;
        rp_frame_write(frame + RP_FRAME_HEADERS, 8, &client, &to, 1);
        enum rp_frame_kind kind = rp_frame_read(frame, sizeof frame, &shard, &view);
        CHECK(kind == (sent[i].taken ? RP_FRAME_DATAGRAM : RP_FRAME_DROP_closed_port), "port %u",
              to.port);
        CHECK(!sent[i].taken || view.to_port == to.port, "to port %u", view.to_port);
    }
    check_group("the ports of a host of several shards");
}

/* Every size, against the sum by the book; the far end takes what this end wrote. */
static void check_checksums(struct rp_random *random) {
    static uint8_t frame[RP_FRAME_HEADERS + 9000];
    struct rp_frame_view view;
    for (uint32_t size = 1; size < 9000; size += size < 80 ? 1 : 97) {
        for (uint32_t i = 0; i < size; i++) {
            frame[42 + i] = (uint8_t)rp_random_next(random);
        }
        rp_frame_write(frame + 42, size, &client, &server, 1);
        uint32_t sum = sum_by_the_book(17 + 8 + size, frame + 26, 8);
        CHECK(sum_by_the_book(sum, frame + 34, 8 + size) == 0xffff, "size %u", size);
        CHECK(rp_frame_read(frame, 42 + size, &server, &view) == RP_FRAME_DATAGRAM);
        CHECK(view.size == size);
        rp_frame_write(frame + 42, size, &client, &server, 0);
        CHECK(frame[40] == 0 && frame[41] == 0 && sum_by_the_book(0, frame + 14, 20) == 0xffff);
        CHECK(rp_frame_read(frame, 42 + size, &server, &view) == RP_FRAME_DATAGRAM);
    }
    /* The datagram whose sum is 0: written as 0xffff, since 0 says that there is none. */
    memset(frame + 42, 0, 2);
    rp_frame_write(frame + 42, 2, &client, &server, 1);
    memcpy(frame + 42, frame + 40, 2);
    rp_frame_write(frame + 42, 2, &client, &server, 1);
    CHECK(frame[40] == 0xff && frame[41] == 0xff);
    CHECK(rp_frame_read(frame, 44, &server, &view) == RP_FRAME_DATAGRAM);
    memset(frame + 40, 0, 2);
    CHECK(rp_frame_read(frame, 44, &server, &view) == RP_FRAME_DATAGRAM, "none was computed");
    check_group("checksums of every size, none, and zero");
}

/* What a card says of checksums is believed; what it does not say is computed. */
static void check_summed_by_a_card(void) {
    struct rp_frame_view view;
    uint8_t frame[64], written[64] = {0};
    memcpy(frame, datagram, sizeof datagram);
    for (uint32_t sums = 0; sums < 16; sums++) {
        enum rp_frame_kind expected = sums & RP_FRAME_IP_BAD ? RP_FRAME_DROP_ip_checksum
            : sums & RP_FRAME_UDP_BAD ? RP_FRAME_DROP_udp_checksum : RP_FRAME_DATAGRAM;
        CHECK(rp_frame_read_summed(frame, sizeof datagram, sums, &server, &view) == expected,
              "the card said %u", sums);
    }
    frame[48] ^= 1;
    CHECK(rp_frame_read_summed(frame, sizeof datagram, RP_FRAME_IP_GOOD, &server, &view)
          == RP_FRAME_DROP_udp_checksum);
    CHECK(rp_frame_read_summed(frame, sizeof datagram, RP_FRAME_UDP_GOOD, &server, &view)
          == RP_FRAME_DATAGRAM);
    frame[24] ^= 1;
    CHECK(rp_frame_read_summed(frame, sizeof datagram, RP_FRAME_UDP_GOOD, &server, &view)
          == RP_FRAME_DROP_ip_checksum);
    memset(frame + 40, 0, 2); /* its sender computed none: a card has nothing to find wrong */
    CHECK(rp_frame_read_summed(frame, sizeof datagram, RP_FRAME_IP_GOOD | RP_FRAME_UDP_BAD, &server,
                               &view) == RP_FRAME_DATAGRAM);
    /* what is written for a card: the pseudo header's sum, not inverted */
    memcpy(written + 42, "replay!", 7);
    rp_frame_write(written + 42, 7, &client, &server, RP_FRAME_SUM_BY_CARD);
    CHECK(read16(written + 40) == sum_by_the_book(17 + 8 + 7, written + 26, 8));
    memcpy(written + 40, datagram + 40, 2);
    CHECK(memcmp(written, datagram, sizeof datagram) == 0, "but for it, the golden frame");
    check_group("checksums a card found right, wrong, or did not look at");
}

/* Whose a frame is: told from what nobody has checked, so from memory of exactly its size. */
static uint32_t addressee(const uint8_t *frame, uint32_t size, uint32_t vlan) {
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    memcpy(copy, frame, size);
    uint32_t to = rp_frame_addressee(copy, size, vlan);
    free(copy);
    return to;
}

static void check_addressees(void) {
    uint8_t frame[64] = {0}, answer[RP_FRAME_SHORTEST] = {0};
    memcpy(frame + 4, datagram, sizeof datagram);
    CHECK(addressee(datagram, sizeof datagram, 0) == 7400);
    memcpy(answer, question, sizeof question);
    CHECK(addressee(answer, sizeof answer, 0) == RP_FRAME_TO_HOST, "a question is the host's");
    CHECK(rp_frame_answer_arp(answer, &server) == sizeof answer);
    CHECK(addressee(answer, sizeof answer, 0) == RP_FRAME_TO_WHO_ASKED);
    CHECK(addressee(echo, sizeof echo, 0) == RP_FRAME_TO_HOST);
    for (uint32_t size = 0; size < UDP_END; size++) {
        CHECK(addressee(datagram, size, 0) == RP_FRAME_TO_HOST, "of %u bytes", size);
    }
    rp_frame_tag(frame + 4, 77);
    for (uint32_t size = 0; size <= sizeof datagram + 4; size++) {
        CHECK(addressee(frame, size, 77) == (size < UDP_END + 4u ? RP_FRAME_TO_HOST : 7400u));
    }
    CHECK(addressee(frame, sizeof datagram + 4, 0) == RP_FRAME_TO_HOST, "a tag nobody expects");
    for (uint32_t at = 12; at < 24; at++) { /* no IPv4, options, a fragment, another protocol */
        static const uint8_t wrong[] = {1, 1, 1, 0, 0, 0, 0, 0, 0x20, 1, 0, 1};
        memcpy(frame, datagram, sizeof datagram);
        frame[at] ^= wrong[at - 12];
        CHECK(addressee(frame, sizeof datagram, 0) == (wrong[at - 12] ? 0u : 7400u), "%u", at);
    }
    check_group("whose a frame is, of several listeners of one host");
}

/* A tagged frame is the plain one with four bytes more; no other tag is taken off. */
static void check_tags(void) {
    uint8_t frame[RP_FRAME_TAG + 64];
    uint8_t *plain = frame + RP_FRAME_TAG;
    const uint32_t size = sizeof datagram + RP_FRAME_TAG;
    memcpy(plain, datagram, sizeof datagram);
    rp_frame_tag(plain, 0x123);
    CHECK(memcmp(frame, datagram, 12) == 0 && memcmp(frame + 16, datagram + 12, 37) == 0);
    CHECK(frame[12] == 0x81 && frame[13] == 0 && frame[14] == 0x01 && frame[15] == 0x23);
    CHECK(read_exact(frame, size) == RP_FRAME_DROP_vlan, "where none is expected");
    CHECK(!rp_frame_untag(frame, size, 0x124), "another network's");
    CHECK(!rp_frame_untag(frame, 17, 0x123), "cut");
    frame[14] |= 0xe0; /* a priority is no part of it */
    CHECK(rp_frame_untag(frame, size, 0x123));
    CHECK(memcmp(plain, datagram, sizeof datagram) == 0, "as it was");
    CHECK(!rp_frame_untag(plain, sizeof datagram, 0x123), "no tag");
    rp_frame_tag(plain, 7 << 13 | 0);
    CHECK(read_exact(frame, size) == RP_FRAME_DROP_vlan, "the tag is taken off first");
    for (uint32_t cut = 0; cut <= size; cut++) {
        CHECK(addressee(frame, cut, 0) == (cut < UDP_END + 4u ? RP_FRAME_TO_HOST : 7400u));
    }
    CHECK(rp_frame_untag(frame, size, 0) && memcmp(plain, datagram, sizeof datagram) == 0);
    check_group("VLAN tags put in and taken off, this one only");
}

struct change {
    const uint8_t *frame;
    uint32_t at;
    uint8_t byte;
    int mended; /* checksums put right behind the change */
    enum rp_frame_kind expected;
};

/* Two operations of ARP are known; RFC 826 leaves room for others, and an announcement by one of
 * those is none. */
static void check_operations(void) {
    uint8_t frame[sizeof question];
    memcpy(frame, question, sizeof frame);
    frame[41] = 2; /* about its sender */
    for (uint32_t operation = 0; operation <= UINT16_MAX; operation++) {
        frame[20] = (uint8_t)(operation >> 8);
        frame[21] = (uint8_t)operation;
        int known = operation == 1 || operation == 2;
        CHECK(read_exact(frame, sizeof frame)
                  == (known ? RP_FRAME_ARP_ANSWER : RP_FRAME_DROP_arp), "operation %u", operation);
    }
    check_group("operations of ARP: two");
}

static void check_reasons(void) {
    static const struct change changes[] = {
        {datagram, 0, 0x06, 0, RP_FRAME_DROP_foreign_mac},
        {datagram, 6, 0x03, 0, RP_FRAME_DROP_source}, /* a group cannot send */
        {datagram, 12, 0x81, 0, RP_FRAME_DROP_vlan},
        {datagram, 13, 0xdd, 0, RP_FRAME_DROP_ethertype},
        {datagram, 14, 0x46, 1, RP_FRAME_DROP_ip_version},
        {datagram, 14, 0x65, 1, RP_FRAME_DROP_ip_version},
        {datagram, 17, 0x24, 1, RP_FRAME_DROP_ip_length},
        {datagram, 17, 0x13, 1, RP_FRAME_DROP_ip_length},
        {datagram, 17, 0x22, 1, RP_FRAME_DROP_udp_length},
        {datagram, 20, 0x60, 1, RP_FRAME_DROP_fragment},
        {datagram, 21, 0x01, 1, RP_FRAME_DROP_fragment},
        {datagram, 23, 6, 1, RP_FRAME_DROP_protocol},
        {datagram, 22, 63, 0, RP_FRAME_DROP_ip_checksum},
        {datagram, 22, 63, 1, RP_FRAME_DATAGRAM},
        {datagram, 26, 0, 1, RP_FRAME_DROP_source},
        {datagram, 26, 127, 1, RP_FRAME_DROP_source},
        {datagram, 26, 224, 1, RP_FRAME_DROP_source},
        {datagram, 11, 1, 0, RP_FRAME_DROP_source}, /* this host's own MAC */
        {datagram, 29, 1, 1, RP_FRAME_DROP_source}, /* this host's own */
        {datagram, 33, 3, 1, RP_FRAME_DROP_foreign_ip},
        {datagram, 37, 0xe9, 1, RP_FRAME_DROP_closed_port},
        {datagram, 39, 0x10, 1, RP_FRAME_DROP_udp_length},
        {datagram, 39, 0x0e, 1, RP_FRAME_DROP_udp_length},
        {datagram, 48, 0x22, 0, RP_FRAME_DROP_udp_checksum},
        {echo, 34, 0, 0, RP_FRAME_DROP_icmp},
        {echo, 50, 0, 0, RP_FRAME_DROP_icmp},
        {question, 0, 0x02, 0, RP_FRAME_DROP_foreign_mac},
        {question, 18, 8, 0, RP_FRAME_DROP_arp},
        {question, 21, 3, 0, RP_FRAME_DROP_arp},
        {question, 21, 2, 0, RP_FRAME_DROP_arp}, /* an answer to everyone */
        {question, 22, 6, 0, RP_FRAME_ARP_ASKED}, /* as bonds and virtual routers do */
        {question, 22, 3, 0, RP_FRAME_DROP_source},
        {question, 27, 1, 0, RP_FRAME_DROP_source}, /* this host's own MAC */
        {question, 28, 127, 0, RP_FRAME_DROP_source},
        {question, 31, 1, 0, RP_FRAME_DROP_conflict}, /* another host at this one's IP */
        {question, 41, 9, 0, RP_FRAME_DROP_arp},
        {question, 41, 2, 0, RP_FRAME_ARP_ANSWER}, /* announced: whom it answers is not here */
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const struct change *change = &changes[i];
        uint32_t size = change->frame == datagram ? sizeof datagram
            : change->frame == echo ? sizeof echo : sizeof question;
        uint8_t frame[64];
        memcpy(frame, change->frame, size);
        frame[change->at] = change->byte;
        if (change->mended) {
            mend(frame, sizeof frame);
        }
        enum rp_frame_kind kind = read_exact(frame, size);
        CHECK(kind == change->expected, "change %zu at %u: %s", i, change->at,
              kind >= RP_FRAME_DROP_runt ? rp_frame_name(kind) : "taken");
        CHECK(kind < RP_FRAME_DROP_runt || rp_frame_sentence(kind));
    }
    CHECK(!rp_frame_name(RP_FRAME_DATAGRAM) && !rp_frame_name(RP_FRAME_KINDS));
    check_group("each reason to drop");
}

static void check_cut_and_padded(void) {
    uint8_t padded[RP_FRAME_SHORTEST + 40] = {0};
    for (uint32_t size = 0; size < sizeof datagram; size++) {
        CHECK(read_exact(datagram, size) >= RP_FRAME_DROP_runt, "cut to %u", size);
        CHECK(read_exact(echo, size) >= RP_FRAME_DROP_runt, "cut to %u", size);
        CHECK(size >= sizeof question || read_exact(question, size) >= RP_FRAME_DROP_runt);
    }
    memcpy(padded, datagram, sizeof datagram);
    for (uint32_t size = sizeof datagram; size <= sizeof padded; size++) {
        CHECK(read_exact(padded, size) == RP_FRAME_DATAGRAM, "padded to %u", size);
    }
    check_group("cut frames, padded frames");
}

/* What no checksum covers is the sender's MAC; a flip anywhere else is seen. */
static void check_flips(void) {
    for (uint32_t bit = 0; bit < 8 * sizeof datagram; bit++) {
        uint8_t frame[sizeof datagram];
        memcpy(frame, datagram, sizeof datagram);
        frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int covered = bit / 8 < 6 || bit / 8 >= 12;
        CHECK((read_exact(frame, sizeof frame) >= RP_FRAME_DROP_runt) >= covered, "bit %u", bit);
    }
    check_group("every flipped bit");
}

/* Random bytes, half of them behind headers that are right. */
static void check_random(struct rp_random *random) {
    uint64_t kinds[RP_FRAME_KINDS] = {0};
    uint8_t frame[128];
    for (uint32_t round = 0; round < 200000; round++) {
        uint64_t dice = rp_random_next(random);
        const uint8_t *base = dice & 1 ? datagram : dice & 2 ? echo : question;
        uint32_t size = (uint32_t)(dice >> 8) % sizeof frame;
        for (uint32_t i = 0; i < sizeof frame; i++) {
            frame[i] = (uint8_t)rp_random_next(random);
        }
        memcpy(frame, base, dice & 4 ? 42 : 14);
        for (uint32_t i = 0; i < (dice >> 3 & 3); i++) {
            frame[rp_random_next(random) % 42] = (uint8_t)rp_random_next(random);
        }
        if (dice & 32 && base == datagram) {
            mend(frame, sizeof frame);
        }
        kinds[read_exact(frame, size)]++;
    }
    for (int kind = 0; kind <= RP_FRAME_DROP_closed_port; kind++) {
        CHECK(kinds[kind] || kind == RP_FRAME_ARP_ANSWER || kind == RP_FRAME_ECHO_ASKED
              || kind == RP_FRAME_DATAGRAM, "never reached: %s", rp_frame_name(kind));
    }
    check_group("random frames: every reason was reached, nothing read beyond its end");
}

int main(void) {
    struct rp_random random;
    rp_random_seed(&random, check_seed(11));
    check_golden();
    check_claims();
    check_shards();
    check_sums(&random);
    check_checksums(&random);
    check_summed_by_a_card();
    check_addressees();
    check_tags();
    check_reasons();
    check_operations();
    check_cut_and_padded();
    check_flips();
    check_random(&random);
    return check_done("test_frame");
}
