/* power_tables.h: coefficients of log2 and exp2, private to power*.c.
 *
 * Written by power_tables.py, which explains the approximation; a test compares the two.
 *
 * [degree][segment]; u = w / 2^28 is the place in the segment, all magnitudes below are >= 0.
 *   log2(1 + (segment + u) / 16) * 2^38 = c0 + u * (c1 - u * (c2 - u * (c3 - u * (c4 - u * c5))))
 *   2^((segment + u) / 16) * 2^39       = d0 + u * (d1 + u * (d2 + u * (d3 + u * d4)))
 * evaluated from the inside out as u * a = (w * a) >> 28; no product reaches 2^64.
 */
#ifndef RP_POWER_TABLES_H
#define RP_POWER_TABLES_H

#include <stdint.h>

#define RP_POWER_ALIGNED __attribute__((aligned(64)))

static const uint64_t rp_power_log2[6][16] RP_POWER_ALIGNED = {
    {
        0x0000000000, 0x0598fdbeb2, 0x0ae00d1cfe, 0x0fde0b5c81,
        0x149a784bcd, 0x191bba891f, 0x1d6753e033, 0x21820a01ac,
        0x2570068e7f, 0x2934f0979a, 0x2cd4011c8f, 0x305013ab7d,
        0x33abb3faa0, 0x36e9291eaa, 0x3a0a7eda4c, 0x3d118d66c5,
    },
    {
        0x05c551d909, 0x056e6b26af, 0x05212c4f3e, 0x04dc0f07bb,
        0x049ddb142a, 0x046593b1b2, 0x04326a125b, 0x0403b35f7a,
        0x03d8e13b81, 0x03b17c102b, 0x038d1ead17, 0x036b72df92,
        0x034c2ec54d, 0x032f12acd8, 0x0313e762d1, 0x02fa7cd33e,
    },
    {
        0x002e2a8a69, 0x0028e5059a, 0x00247a1c74, 0x0020bd0558,
        0x001d8bdf53, 0x001acca7ea, 0x00186b22a7, 0x001657602a,
        0x001484b0d6, 0x0012e8e149, 0x00117baa76, 0x001036464f,
        0x000f131eca, 0x000e0d9017, 0x000d21b901, 0x000c4c55e6,
    },
    {
        0x0001ec5b03, 0x00019a7dbf, 0x000159d062, 0x0001260a54,
        0x0000fc1b41, 0x0000d9c819, 0x0000bd6a5a, 0x0000a5c4e2,
        0x000091e67d, 0x0000811585, 0x000072c17f, 0x00006678d9,
        0x00005be176, 0x000052b338, 0x00004ab3f0, 0x000043b456,
    },
    {
        0x000016e88f, 0x000011fd7d, 0x00000e52c2, 0x00000b8b65,
        0x000009686a, 0x000007be49, 0x0000066e57, 0x00000562a0,
        0x0000048b2b, 0x000003dc32, 0x0000034ce9, 0x000002d6ad,
        0x000002746a, 0x0000022236, 0x000001dd05, 0x000001a271,
    },
    {
        0x000000fd9f, 0x000000bcf4, 0x0000008f1a, 0x0000006df9,
        0x00000055a3, 0x000000437c, 0x00000035c3, 0x0000002b41,
        0x000000231e, 0x0000001cc0, 0x00000017b8, 0x00000013b5,
        0x000000107c, 0x0000000ddf, 0x0000000bbe, 0x00000009fe,
    },
};

static const uint64_t rp_power_exp2[5][16] RP_POWER_ALIGNED = {
    {
        0x8000000000, 0x85aac367cc, 0x8b95c1e3eb, 0x91c3d373ab,
        0x9837f0518e, 0x9ef5326092, 0xa5fed6a9b1, 0xad583eea43,
        0xb504f333fa, 0xbd08a39f58, 0xc5672a1155, 0xce248c1520,
        0xd744fccad7, 0xe0ccdeec2b, 0xeac0c6e7dd, 0xf5257d1525,
    },
    {
        0x058b90bf92, 0x05ca6a3a6a, 0x060c0c0cd8, 0x065095c09b,
        0x06982844e8, 0x06e2e5fe3b, 0x0730f2d6de, 0x078274502f,
        0x07d79194a0, 0x0830738a8b, 0x088d44e7dd, 0x08ee324696,
        0x09536a3a3c, 0x09bd1d663b, 0x0a2b7e9546, 0x0a9ec2d1bb,
    },
    {
        0x001ebfbfe9, 0x00201c4304, 0x0021883430, 0x0023044250,
        0x0024912404, 0x00262f9802, 0x0027e06574, 0x0029a45c51,
        0x002b7c55c9, 0x002d6934a8, 0x002f6be5c3, 0x003185606f,
        0x0033b6a6f1, 0x003600c6fe, 0x003864da3d, 0x003ae406cd,
    },
    {
        0x000071a63e, 0x000076ae5b, 0x00007bef7f, 0x0000816c32,
        0x0000872715, 0x00008d22ea, 0x0000936291, 0x000099e90a,
        0x0000a0b979, 0x0000a7d724, 0x0000af4575, 0x0000b707ff,
        0x0000bf227d, 0x0000c798d4, 0x0000d06f14, 0x0000d9a97c,
    },
    {
        0x0000014213, 0x0000015056, 0x0000015f3a, 0x0000016ec7,
        0x0000017f04, 0x0000018ff9, 0x000001a1ae, 0x000001b42c,
        0x000001c77c, 0x000001dba6, 0x000001f0b5, 0x00000206b3,
        0x0000021daa, 0x00000235a5, 0x0000024eb0, 0x00000268d7,
    },
};

#endif
