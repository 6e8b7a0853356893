/* Steering: the published verification suite of the hash, the hash by the book on random input, and
 * ports found for queues against every port there is. */
#include <string.h>

#include "check.h"
#include "dpdk/steer.c"
#include "base/random.h"

enum { QUEUES_MAX = 16, FLOWS = 12, ATTEMPTS = 64 };

/* The key of Microsoft's suite, and its five IPv4 flows with both hashes of each. */
static const uint8_t suite_key[RP_STEER_KEY] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
static const struct {
    struct rp_steer_flow flow;
    uint32_t addresses, ports;
} suite[] = {
    {{{66, 9, 149, 187}, {161, 142, 100, 80}, 2794, 1766}, 0x323e8fc2, 0x51ccc178},
    {{{199, 92, 111, 2}, {65, 69, 140, 83}, 14230, 4739}, 0xd718262a, 0xc626b0ea},
    {{{24, 19, 198, 95}, {12, 22, 207, 184}, 12898, 38024}, 0xd2d0a5de, 0x5c2b394a},
    {{{38, 27, 205, 30}, {209, 142, 163, 6}, 48228, 2217}, 0x82989176, 0xafc7327f},
    {{{153, 39, 163, 191}, {202, 188, 127, 2}, 44251, 1303}, 0x5d1809c5, 0x10e828a2},
};

static void check_suite(void) {
    struct rp_steer steer = {.table_size = 1};
    memcpy(steer.key, suite_key, sizeof suite_key);
    for (size_t i = 0; i < sizeof suite / sizeof suite[0]; i++) {
        const struct rp_steer_flow *flow = &suite[i].flow;
        CHECK(rp_steer_hash(suite_key, flow->from, 8) == suite[i].addresses, "flow %zu", i);
        CHECK(hash_flow(&steer, flow, flow->from_port) == suite[i].ports, "flow %zu", i);
    }
    check_group("the published verification suite, with ports and without");
}

/* As the definition tells it: the key moves left under the input, a bit at a time. */
static uint32_t hash_by_the_book(const uint8_t *key, const uint8_t *input, uint32_t size) {
    uint8_t moving[RP_STEER_KEY];
    uint32_t hash = 0;
    memcpy(moving, key, sizeof moving);
    for (uint32_t i = 0; i < size; i++) {
        for (int bit = 7; bit >= 0; bit--) {
            if (input[i] >> bit & 1) {
                hash ^= (uint32_t)moving[0] << 24 | (uint32_t)moving[1] << 16
                        | (uint32_t)moving[2] << 8 | moving[3];
            }
            for (uint32_t k = 0; k < sizeof moving; k++) {
                moving[k] = (uint8_t)(moving[k] << 1
                                      | (k + 1 < sizeof moving ? moving[k + 1] >> 7 : 0));
            }
        }
    }
    return hash;
}

static uint16_t queue_by_the_book(const struct rp_steer *steer, const struct rp_steer_flow *flow,
                                  uint16_t from_port) {
    uint8_t input[12] = {
        [8] = (uint8_t)(from_port >> 8), (uint8_t)from_port, (uint8_t)(flow->to_port >> 8),
        (uint8_t)flow->to_port};
    memcpy(input, flow->from, 4);
    memcpy(input + 4, flow->to, 4);
    return steer->table[hash_by_the_book(steer->key, input, 12) % steer->table_size];
}

static void random_bytes(struct rp_random *random, void *target, size_t size) {
    for (size_t i = 0; i < size; i++) {
        ((uint8_t *)target)[i] = (uint8_t)rp_random_next(random);
    }
}

/* Keys: random, the suite's, one that repeats (both directions of a flow hash alike), zero. */
static void make_steer(struct rp_random *random, struct rp_steer *steer, uint32_t kind,
                       uint32_t queues) {
    memset(steer, 0, sizeof *steer);
    steer->table_size = 1u << rp_random_below(random, 10);
    random_bytes(random, steer->key, sizeof steer->key);
    if (kind == 1) {
        memcpy(steer->key, suite_key, sizeof suite_key);
    } else if (kind >= 2) {
        for (uint32_t i = 0; i < RP_STEER_KEY; i++) {
            steer->key[i] = kind == 3 ? 0 : i % 2 ? 0x5a : 0x6d;
        }
    }
    for (uint32_t i = 0; i < steer->table_size; i++) {
        steer->table[i] = (uint16_t)rp_random_below(random, queues);
    }
}

static void check_ports(struct rp_random *random) {
    uint32_t found = 0, none = 0;
    for (uint32_t i = 0; i < FLOWS; i++) {
        struct rp_steer steer;
        struct rp_steer_flow flow;
        uint8_t reachable[QUEUES_MAX] = {0};
        make_steer(random, &steer, i % 4, 1 + (uint32_t)rp_random_below(random, QUEUES_MAX));
        random_bytes(random, &flow, sizeof flow);
        CHECK(rp_steer_queue(&steer, &flow) == queue_by_the_book(&steer, &flow, flow.from_port));
        for (uint32_t port = RP_STEER_PORT; port < RP_STEER_PORT + RP_STEER_PORTS; port++) {
            reachable[queue_by_the_book(&steer, &flow, (uint16_t)port)] = 1;
        }
        for (uint16_t queue = 0; queue < QUEUES_MAX; queue++) {
            uint16_t port = rp_steer_port(&steer, &flow, queue, (uint32_t)rp_random_next(random));
            CHECK((port != 0) == reachable[queue], "queue %u: port %u", queue, port);
            CHECK(!port || (port >= RP_STEER_PORT
                            && queue_by_the_book(&steer, &flow, port) == queue),
                  "port %u does not land on queue %u", port, queue);
            found += port != 0;
            none += port == 0;
        }
    }
    CHECK(found > FLOWS && none > FLOWS, "both happen");
    check_group("a port for every queue that has one, against every port there is");
}

/* A client that cannot have a port is named another. */
static void check_attempts(struct rp_random *random) {
    struct rp_steer steer;
    struct rp_steer_flow flow;
    uint16_t seen[ATTEMPTS];
    uint32_t different = 0;
    make_steer(random, &steer, 1, 2);
    steer.table_size = RP_STEER_TABLE;
    for (uint32_t i = 0; i < steer.table_size; i++) {
        steer.table[i] = (uint16_t)(i % QUEUES_MAX);
    }
    random_bytes(random, &flow, sizeof flow);
    for (uint32_t i = 0; i < ATTEMPTS; i++) {
        seen[i] = rp_steer_port(&steer, &flow, 3, i);
        uint32_t before = 0;
        while (seen[before] != seen[i]) {
            before++;
        }
        different += before == i;
    }
    CHECK(different > ATTEMPTS / 2, "%u ports", different);
    check_group("another attempt, another port");
}

int main(void) {
    struct rp_random random;
    rp_random_seed(&random, check_seed(11));
    check_suite();
    check_ports(&random);
    check_attempts(&random);
    return check_done("test_steer");
}
