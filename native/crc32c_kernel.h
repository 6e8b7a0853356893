/* crc32c_kernel.h: the kernel that crc32c.c may choose at run time; private to crc32c*.c. */
#ifndef RP_CRC32C_KERNEL_H
#define RP_CRC32C_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this processor runs the kernel below. */
bool rp_crc32c_sse42_able(void);

/* Carry the raw register (before the final exclusive-or) over `size` bytes. */
uint32_t rp_crc32c_sse42(uint32_t state, const uint8_t *bytes, size_t size);

#endif
