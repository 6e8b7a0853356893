/* crc32c.h: the CRC-32C (Castagnoli) checksum of RFC 3720, section 12.1.
 *
 * Polynomial 0x1edc6f41, reflected in and out, initial value and final exclusive-or 0xffffffff. The
 * path is chosen while running (SSE4.2 instruction, or eight tables of 256 words elsewhere); the
 * answer is the same on both. Calls chain: rp_crc32c(rp_crc32c(0, a, n), b, m) is the checksum of
 * a followed by b.
 */
#ifndef RP_CRC32C_H
#define RP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Checksum of `size` bytes at `data` after bytes whose checksum is `crc` (0 at the start). */
uint32_t rp_crc32c(uint32_t crc, const void *data, size_t size);

/* What bytes of checksum `crc` add to a whole in which `behind` more bytes follow them: the
 * checksum of a whole is the exclusive-or of this over its pieces, in any order. A microsecond. */
uint32_t rp_crc32c_share(uint32_t crc, uint64_t behind);

/* The checksum of each of `count` rows of `size` bytes, a multiple of 8, that lie side by side. */
void rp_crc32c_rows(uint32_t *sums, const void *rows, size_t size, size_t count);

/* The same by tables only: for other machines, and for the test that both agree. */
uint32_t rp_crc32c_portable(uint32_t crc, const void *data, size_t size);
void rp_crc32c_rows_portable(uint32_t *sums, const void *rows, size_t size, size_t count);

#endif
