/* Fuzz target: the frame parser of dpdk://. Frames are raw, or built whole and then changed; a slow
 * reader, written from the RFCs byte by byte, must agree with it on each.
 *
 * The first byte says how a frame comes to be:
 *     RAW    the rest of the input is the frame
 *     else   kind (1) | payload size (2) | what it repeats (1 + n), then edits: where (2), xor (1)
 *     SUMS   the checksums are put right behind the edits
 *     PADDED zeros behind the packet up to Ethernet's least, SHIFTED memory at an odd address
 *     TAGGED in a VLAN and out of it again; what a card said of the checksums is in its upper bits
 *
 * The slow reader collects every reason there is against a frame: the parser takes what has none
 * against it, and drops the rest for one of them. Then the answer is written in exactly the room
 * that is promised for it, read by the same two readers from the asker's side, and what the port
 * itself writes makes the same round.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dpdk/frame.h"
#include "fuzz_port.h"

enum { RAW = 1, SUMS = 2, PADDED = 4, SHIFTED = 8, OTHER_HOST = 16, TAGGED = 32 };
enum { EDITS_MAX = 8, VLAN = 5 };
enum { DATAGRAM, ECHO, ASK, ANSWER, ROOM = 9100 };

static struct rp_frame_host server = {{2, 10, 0, 0, 0, 1}, {10, 0, 0, 1}, 7400, 7399, 3};
static struct rp_frame_host peer = {{2, 10, 0, 0, 0, 2}, {10, 0, 0, 2}, 50000, 0, 0};

/* ---- the slow reader ---- */

struct slow {
    const uint8_t *frame;
    uint32_t size;
    uint32_t sums; /* what a card said of them: it is believed */
    const struct rp_frame_host *host;
    uint64_t reasons; /* bit i: rp_frame_kind i */
    enum rp_frame_kind kind; /* where there is no reason */
    struct rp_frame_view view;
};

static uint32_t byte(const struct slow *slow, uint32_t at) {
    CHECK(at < slow->size, "the slow reader itself reads beyond the frame");
    return slow->frame[at];
}

static uint32_t pair(const struct slow *slow, uint32_t at) {
    return 256 * byte(slow, at) + byte(slow, at + 1);
}

static void unless(struct slow *slow, int right, enum rp_frame_kind reason) {
    slow->reasons |= right ? 0 : 1ull << reason;
}

static int same(const struct slow *slow, uint32_t at, const uint8_t *bytes, uint32_t size) {
    int equal = 1;
    for (uint32_t i = 0; i < size; i++) {
        equal &= byte(slow, at + i) == bytes[i];
    }
    return equal;
}

/* RFC 1071: 16-bit words, an odd byte as the high half of one, end-around carries. */
static uint32_t word_sum(const struct slow *slow, uint32_t at, uint32_t size, uint32_t sum) {
    for (uint32_t i = 0; i < size; i++) {
        sum += i % 2 == 0 ? byte(slow, at + i) * 256 : byte(slow, at + i);
    }
    while (sum > 0xffff) {
        sum = sum % 0x10000 + sum / 0x10000;
    }
    return sum;
}

/* At `mac` and `ip` addresses a host may have, and neither of them ours. */
static int sound_sender(const struct slow *slow, uint32_t mac, uint32_t ip) {
    return byte(slow, mac) % 2 == 0 && byte(slow, ip) >= 1 && byte(slow, ip) <= 223
           && byte(slow, ip) != 127 && !same(slow, ip, slow->host->ip, 4)
           && !same(slow, mac, slow->host->mac, 6);
}

static void slow_sender(struct slow *slow, uint32_t mac, uint32_t ip) {
    for (uint32_t i = 0; i < 6; i++) {
        slow->view.from.mac[i] = (uint8_t)byte(slow, mac + i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        slow->view.from.ip[i] = (uint8_t)byte(slow, ip + i);
    }
}

/* RFC 826: hardware 1, protocol 0x0800, lengths 6 and 4, operation 1 or 2. RFC 5227: who asks from
 * 0.0.0.0 probes, who asks for its own address announces it, who has ours is in conflict. */
static void slow_arp(struct slow *slow, int to_us) {
    unless(slow, slow->size >= 42, RP_FRAME_DROP_runt);
    if (slow->size < 42) {
        return;
    }
    uint32_t operation = pair(slow, 20);
    unless(slow, pair(slow, 14) == 1 && pair(slow, 16) == 0x0800, RP_FRAME_DROP_arp);
    unless(slow, byte(slow, 18) == 6 && byte(slow, 19) == 4, RP_FRAME_DROP_arp);
    unless(slow, operation == 1 || operation == 2, RP_FRAME_DROP_arp);
    int other = byte(slow, 22) % 2 == 0 && !same(slow, 22, slow->host->mac, 6);
    slow_sender(slow, 22, 28);
    if (other && same(slow, 28, slow->host->ip, 4)) {
        unless(slow, 0, RP_FRAME_DROP_conflict);
        return;
    }
    int ours = same(slow, 38, slow->host->ip, 4), announced = same(slow, 38, slow->frame + 28, 4);
    int probe = ours && operation == 1 && other && same(slow, 28, (const uint8_t[4]){0}, 4);
    unless(slow, announced || (ours && (operation == 1 || to_us)), RP_FRAME_DROP_arp);
    unless(slow, probe || sound_sender(slow, 22, 28), RP_FRAME_DROP_source);
    slow->kind = ours && operation == 1 ? RP_FRAME_ARP_ASKED : RP_FRAME_ARP_ANSWER;
}

/* RFC 768; `size` is the IP packet's without its header. */
static void slow_udp(struct slow *slow, uint32_t size) {
    unless(slow, size > 8 && pair(slow, 38) == size, RP_FRAME_DROP_udp_length);
    if (size <= 8 || pair(slow, 38) != size) {
        return;
    }
    uint32_t pseudo = word_sum(slow, 26, 8, 17 + size);
    int right = word_sum(slow, 34, size, pseudo) == 0xffff || slow->sums & RP_FRAME_UDP_GOOD;
    unless(slow, pair(slow, 40) == 0 || (right && !(slow->sums & RP_FRAME_UDP_BAD)),
           RP_FRAME_DROP_udp_checksum);
    uint32_t to = pair(slow, 36), first = slow->host->first_port;
    unless(slow, to == slow->host->port || (to >= first && to < first + slow->host->port_count),
           RP_FRAME_DROP_closed_port);
    slow->view.to_port = (uint16_t)to;
    slow->kind = RP_FRAME_DATAGRAM;
    slow_sender(slow, 6, 26);
    slow->view.from.port = (uint16_t)pair(slow, 34);
    slow->view.offset = 42;
    slow->view.size = size - 8;
}

/* RFC 791 without options, RFC 792's echo. */
static void slow_ip(struct slow *slow, int to_us) {
    unless(slow, to_us, RP_FRAME_DROP_foreign_mac);
    unless(slow, slow->size >= 34, RP_FRAME_DROP_runt);
    if (slow->size < 34) {
        return;
    }
    uint32_t total = pair(slow, 16), protocol = byte(slow, 23);
    unless(slow, byte(slow, 14) / 16 == 4 && byte(slow, 14) % 16 == 5, RP_FRAME_DROP_ip_version);
    int right = word_sum(slow, 14, 20, 0) == 0xffff || slow->sums & RP_FRAME_IP_GOOD;
    unless(slow, right && !(slow->sums & RP_FRAME_IP_BAD), RP_FRAME_DROP_ip_checksum);
    unless(slow, !(byte(slow, 20) & 0x20), RP_FRAME_DROP_fragment);
    unless(slow, pair(slow, 20) % 0x2000 == 0, RP_FRAME_DROP_fragment);
    unless(slow, same(slow, 30, slow->host->ip, 4), RP_FRAME_DROP_foreign_ip);
    unless(slow, sound_sender(slow, 6, 26), RP_FRAME_DROP_source);
    unless(slow, protocol == 1 || protocol == 17, RP_FRAME_DROP_protocol);
    unless(slow, total >= 20 && 14 + total <= slow->size, RP_FRAME_DROP_ip_length);
    if (total < 20 || 14 + total > slow->size) {
        return;
    }
    if (protocol == 17) {
        slow_udp(slow, total - 20);
    } else {
        unless(slow, total >= 28 && byte(slow, 34) == 8 && byte(slow, 35) == 0
                   && word_sum(slow, 34, total - 20, 0) == 0xffff, RP_FRAME_DROP_icmp);
        slow->kind = RP_FRAME_ECHO_ASKED;
    }
}

static void slow_read(struct slow *slow, const uint8_t *frame, uint32_t size, uint32_t sums,
                      const struct rp_frame_host *host) {
    static const uint8_t everyone[6] = {255, 255, 255, 255, 255, 255};
    *slow = (struct slow){.frame = frame, .size = size, .sums = sums, .host = host};
    unless(slow, size >= 14, RP_FRAME_DROP_runt);
    if (size < 14) {
        return;
    }
    uint32_t type = pair(slow, 12);
    int to_us = same(slow, 0, host->mac, 6);
    unless(slow, type != 0x8100 && type != 0x88a8, RP_FRAME_DROP_vlan);
    unless(slow, type == 0x0800 || type == 0x0806 || type == 0x8100 || type == 0x88a8,
           RP_FRAME_DROP_ethertype);
    if (type == 0x0806) {
        unless(slow, to_us || same(slow, 0, everyone, 6), RP_FRAME_DROP_foreign_mac);
        slow_arp(slow, to_us);
    } else if (type == 0x0800) {
        slow_ip(slow, to_us);
    }
}

/* Both readers on one frame; they agree. */
static enum rp_frame_kind read_both(const uint8_t *frame, uint32_t size, uint32_t sums,
                                    const struct rp_frame_host *host, struct rp_frame_view *view) {
    struct slow slow;
    slow_read(&slow, frame, size, sums, host);
    memset(view, 0, sizeof *view);
    enum rp_frame_kind kind = sums ? rp_frame_read_summed(frame, size, sums, host, view)
        : rp_frame_read(frame, size, host, view);
    if (slow.reasons) {
        CHECK(kind < RP_FRAME_KINDS && slow.reasons >> kind & 1, "%u is none of %#" PRIx64, kind,
              slow.reasons);
        CHECK(rp_frame_name(kind)[0] && rp_frame_sentence(kind)[0]);
        return kind;
    }
    CHECK(kind == slow.kind && !rp_frame_name(kind), "%u is no %u", kind, slow.kind);
    CHECK(rp_frame_addressee(frame, size, 0)
          == (kind == RP_FRAME_DATAGRAM ? slow.view.to_port
              : kind == RP_FRAME_ARP_ANSWER ? RP_FRAME_TO_WHO_ASKED : RP_FRAME_TO_HOST));
    if (kind == RP_FRAME_DATAGRAM || kind == RP_FRAME_ARP_ANSWER) {
        CHECK(memcmp(&view->from, &slow.view.from, sizeof view->from) == 0, "another sender");
    }
    if (kind == RP_FRAME_DATAGRAM) {
        CHECK(view->offset == slow.view.offset && view->size == slow.view.size);
        CHECK(view->to_port == slow.view.to_port);
        CHECK(view->size > 0 && view->offset + view->size <= size, "outside its frame");
    }
    return kind;
}

/* ---- what the host says ---- */

/* The answer to an echo is the request but for its addresses, its type and what follows of them. */
static void check_echo(const uint8_t *asked, const uint8_t *answer, uint32_t size) {
    struct slow slow = {.frame = answer, .size = size};
    uint32_t total = pair(&slow, 16);
    CHECK(same(&slow, 0, asked + 6, 6) && same(&slow, 6, server.mac, 6));
    CHECK(same(&slow, 26, server.ip, 4) && same(&slow, 30, asked + 26, 4));
    CHECK(same(&slow, 12, asked + 12, 10) && byte(&slow, 22) == 64 && byte(&slow, 23) == 1);
    CHECK(byte(&slow, 34) == 0 && byte(&slow, 35) == 0 && same(&slow, 38, asked + 38, total - 24));
    CHECK(word_sum(&slow, 14, 20, 0) == 0xffff && word_sum(&slow, 34, total - 20, 0) == 0xffff);
    CHECK(size == (14 + total < 60 ? 60 : 14 + total), "an answer of %u bytes", size);
    for (uint32_t i = 14 + total; i < size; i++) {
        CHECK(answer[i] == 0, "padding tells nothing");
    }
}

/* Answers in memory of exactly the promised room: the frame's own, or Ethernet's least. */
static void answer(enum rp_frame_kind kind, const uint8_t *frame, uint32_t size) {
    struct rp_frame_host asker = {.port = 1};
    struct rp_frame_view view;
    uint8_t *copy = malloc(size < RP_FRAME_SHORTEST ? RP_FRAME_SHORTEST : size);
    CHECK(copy != NULL);
    memcpy(copy, frame, size);
    if (kind == RP_FRAME_ECHO_ASKED) {
        check_echo(frame, copy, rp_frame_answer_echo(copy, &server));
    } else {
        memcpy(asker.mac, frame + 22, 6);
        memcpy(asker.ip, frame + 28, 4);
        CHECK(rp_frame_answer_arp(copy, &server) == RP_FRAME_SHORTEST);
        CHECK(read_both(copy, RP_FRAME_SHORTEST, 0, &asker, &view) == RP_FRAME_ARP_ANSWER);
        CHECK(memcmp(view.from.mac, server.mac, 6) == 0 && memcmp(view.from.ip, server.ip, 4) == 0);
        CHECK(copy[42] == 0 && memcmp(copy + 42, copy + 43, RP_FRAME_SHORTEST - 43) == 0);
    }
    free(copy);
}

/* A datagram that was taken, written again by its sender: the same bytes arrive. */
static void write_again(const uint8_t *frame, const struct rp_frame_view *view) {
    struct rp_frame_view again;
    uint32_t size = RP_FRAME_HEADERS + view->size;
    uint8_t *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy + RP_FRAME_HEADERS, frame + view->offset, view->size);
    struct slow slow = {.frame = copy, .size = size};
    rp_frame_write(copy + RP_FRAME_HEADERS, view->size, &view->from, &server, RP_FRAME_SUM_BY_CARD);
    CHECK(pair(&slow, 40) == word_sum(&slow, 26, 8, 17 + 8 + view->size), "a card goes on from it");
    for (int summed = 0; summed < 2; summed++) {
        rp_frame_write(copy + RP_FRAME_HEADERS, view->size, &view->from, &server,
                       summed ? RP_FRAME_SUM_HERE : RP_FRAME_NO_SUM);
        CHECK(read_both(copy, size, 0, &server, &again) == RP_FRAME_DATAGRAM);
        CHECK(again.size == view->size && memcmp(&again.from, &view->from, sizeof again.from) == 0);
        CHECK((copy[40] || copy[41]) == summed, "0 says that no checksum was computed");
    }
    free(copy);
}

/* IEEE 802.1Q: a tag of four bytes behind the addresses, its type first. Into the VLAN and out of
 * it, in memory of exactly the tagged frame; out of others, or of what is too short, nothing. */
static void check_tag(const uint8_t *frame, uint32_t size, uint32_t vlan) {
    uint8_t *room = malloc(size + RP_FRAME_TAG), *whole = malloc(size ? size : 1);
    struct slow slow = {.frame = frame, .size = size};
    CHECK(room != NULL && whole != NULL);
    memcpy(whole, frame, size);
    int ours = size >= 18 && pair(&slow, 12) == 0x8100 && pair(&slow, 14) % 4096 == vlan;
    CHECK(rp_frame_untag(whole, size, vlan) == ours);
    if (ours) {
        CHECK(memcmp(whole + 4, frame, 12) == 0 && memcmp(whole + 16, frame + 16, size - 16) == 0);
    } else {
        CHECK(memcmp(whole, frame, size) == 0, "what is not ours is left as it is");
    }
    if (size >= RP_FRAME_ETHERNET) {
        memcpy(room + RP_FRAME_TAG, frame, size);
        rp_frame_tag(room + RP_FRAME_TAG, vlan);
        slow.frame = room;
        slow.size = size + RP_FRAME_TAG;
        CHECK(same(&slow, 0, frame, 12) && pair(&slow, 12) == 0x8100 && pair(&slow, 14) == vlan);
        CHECK(memcmp(room + 16, frame + 12, size - 12) == 0);
        CHECK(rp_frame_addressee(room, slow.size, vlan) == rp_frame_addressee(frame, size, 0));
        CHECK(!rp_frame_untag(room, slow.size, vlan + 1));
        CHECK(rp_frame_untag(room, slow.size, vlan) && memcmp(room + 4, frame, size) == 0);
    }
    free(whole);
    free(room);
}

/* ---- frames ---- */

static void put_sum(uint8_t *frame, uint32_t size, uint32_t at, uint32_t from, uint32_t count,
                    uint32_t sum) {
    struct slow slow = {.frame = frame, .size = size};
    memset(frame + at, 0, 2);
    sum = word_sum(&slow, from, count, sum) ^ 0xffff;
    frame[at] = (uint8_t)(sum / 256);
    frame[at + 1] = (uint8_t)sum;
}

/* Checksums of what the frame says of itself, as far as it reaches. */
static void put_sums(uint8_t *frame, uint32_t size) {
    struct slow slow = {.frame = frame, .size = size};
    if (size < 42 || frame[12] != 8 || frame[13] != 0) {
        return;
    }
    uint32_t total = pair(&slow, 16);
    put_sum(frame, size, 24, 14, 20, 0);
    if (total < 28 || 14 + total > size) {
        return;
    }
    if (frame[23] == 17) {
        put_sum(frame, size, 40, 34, total - 20, word_sum(&slow, 26, 8, 17 + total - 20));
    } else {
        put_sum(frame, size, 36, 34, total - 20, 0);
    }
}

/* A whole frame from the peer; returns its size. The input's payload is repeated to fill it. */
static uint32_t build(struct fuzz_input *input, uint8_t *frame) {
    uint32_t kind = (uint32_t)fuzz_take(input, 1) % 4;
    uint32_t size = (uint32_t)fuzz_take(input, 2);
    size = size < 0xf000 ? size % 128 + 1 : size % (ROOM - RP_FRAME_HEADERS) + 1; /* some large */
    uint8_t *payload = frame + RP_FRAME_HEADERS, seed[16] = {0};
    uint32_t seeds = fuzz_take_bytes(input, seed, 1 + (uint32_t)fuzz_take(input, 1) % 16);
    if (kind == ASK) {
        return rp_frame_ask(frame, &peer, server.ip);
    }
    if (kind == ANSWER) {
        rp_frame_ask(frame, &server, peer.ip);
        return rp_frame_answer_arp(frame, &peer);
    }
    for (uint32_t i = 0; i < size; i++) {
        payload[i] = seeds ? seed[i % seeds] : (uint8_t)i;
    }
    rp_frame_write(payload, size, &peer, &server, RP_FRAME_SUM_HERE);
    if (kind == ECHO) {
        frame[23] = 1;
        memcpy(frame + 34, "\x08\0\0\0\x12\x34\0\x01", 8);
        put_sums(frame, RP_FRAME_HEADERS + size);
    }
    return RP_FRAME_HEADERS + size;
}

/* Up to EDITS_MAX bytes changed; an edit beyond the frame cuts it, or lets it grow, to there. */
static uint32_t edit(struct fuzz_input *input, uint8_t *frame, uint32_t size) {
    for (int i = 0; i < EDITS_MAX && input->size >= 3; i++) {
        uint32_t at = (uint32_t)fuzz_take(input, 2), bits = (uint32_t)fuzz_take(input, 1);
        if (at & 0x8000) {
            size = (at & 0x7fff) % ROOM;
        } else if (size) {
            at %= at & 0x4000 ? size : size < 64 ? size : 64; /* headers more often */
            frame[at] ^= (uint8_t)bits;
        }
    }
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint32_t said[] = {RP_FRAME_SUMS_UNKNOWN, RP_FRAME_IP_GOOD | RP_FRAME_UDP_GOOD,
                                    RP_FRAME_IP_BAD, RP_FRAME_IP_GOOD | RP_FRAME_UDP_BAD};
    static uint8_t room[ROOM];
    static uint32_t written; /* of it, by the input before */
    struct fuzz_input input = {data, size};
    uint32_t how = (uint32_t)fuzz_take(&input, 1), sums = said[how >> 6], length;
    struct rp_frame_view view;
    memset(room, 0, written);
    server.ip[3] = how & OTHER_HOST ? 254 : 1;
    server.port = how & OTHER_HOST ? 0 : 7400;
    if (how & RAW) {
        written = length = fuzz_take_bytes(&input, room, ROOM);
    } else {
        length = build(&input, room);
        length = how & PADDED && length < RP_FRAME_SHORTEST ? RP_FRAME_SHORTEST : length;
        written = length < RP_FRAME_SHORTEST ? RP_FRAME_SHORTEST : length;
        length = edit(&input, room, length);
    }
    written = length > written ? length : written;
    if (how & SUMS) {
        put_sums(room, length);
    }
    uint32_t shift = how & SHIFTED ? 1 : 0;
    uint8_t *memory = malloc(length + shift + 1 - (length + shift > 0));
    CHECK(memory != NULL);
    uint8_t *frame = memory + shift;
    memcpy(frame, room, length);
    if (how & TAGGED) {
        check_tag(frame, length, VLAN);
    }
    enum rp_frame_kind kind = read_both(frame, length, sums, &server, &view);
    CHECK(memcmp(frame, room, length) == 0, "reading changes nothing");
    if (kind == RP_FRAME_ARP_ASKED || kind == RP_FRAME_ECHO_ASKED) {
        answer(kind, frame, length);
    } else if (kind == RP_FRAME_DATAGRAM) {
        write_again(frame, &view);
    }
    free(memory);
    return 0;
}
