/* Which queue of a card a datagram lands on, computed as the card does (receive side scaling): the
 * Toeplitz hash of its addresses and ports under the card's key, then the card's table. Turned
 * round: a source port from which a client's datagrams land on the queue they are to. Pure
 * functions over bytes, no device.
 *
 * Toeplitz is linear: the hash of two inputs' exclusive-or is the exclusive-or of their hashes, so
 * the ports are tried on top of one hash of the addresses.
 */
#ifndef RP_STEER_H
#define RP_STEER_H

#include <stdint.h>

enum rp_steer_limits {
    RP_STEER_INPUT = 12,      /* IPv4: both addresses, both ports */
    RP_STEER_KEY = 40,        /* bytes of a key; an input of n bytes is under its first n + 4 */
    RP_STEER_KEY_MAX = 64,    /* some cards have longer ones, for longer addresses */
    RP_STEER_TABLE = 512,     /* entries a card's table has at most, a power of two */
    RP_STEER_PORT = 49152,    /* ports named to clients: those no service is registered for */
    RP_STEER_PORTS = 16384,
};

struct rp_steer {
    uint8_t key[RP_STEER_KEY];
    uint32_t table_size; /* a power of two */
    uint16_t table[RP_STEER_TABLE];
};

struct rp_steer_flow { /* addresses as they travel, ports in this machine's byte order */
    uint8_t from[4];
    uint8_t to[4];
    uint16_t from_port;
    uint16_t to_port;
};

/* Of at most RP_STEER_INPUT bytes. */
uint32_t rp_steer_hash(const uint8_t *key, const uint8_t *input, uint32_t size);

uint16_t rp_steer_queue(const struct rp_steer *steer, const struct rp_steer_flow *flow);

/* A port that brings the flow to `queue` when it is sent from there; flow->from_port is not looked
 * at. Each `attempt` begins its search elsewhere, so that another one is found where a client
 * cannot have the first. 0: none does. */
uint16_t rp_steer_port(const struct rp_steer *steer, const struct rp_steer_flow *flow,
                       uint16_t queue, uint32_t attempt);

#endif
