/* Whether the numbers of some records are finite: one NaN in a batch makes every weight of a
 * learner NaN, so it is refused where it would be written.
 *
 * A number is a NaN or an infinity exactly where all bits of its exponent are set, whatever its
 * width. Records lie at any address that suits their columns, so bytes are copied to be read. The
 * loop is written once; each width's call makes one of its own of it.
 */
#include <string.h>

#include "replay.h"

static inline __attribute__((always_inline)) int is_finite_of(const uint8_t *at, uint32_t count,
                                                              size_t width, uint64_t exponent) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bits = 0; /* little-endian, as wire.h asks for */
        memcpy(&bits, at + i * width, width);
        wrong |= (bits & exponent) == exponent;
    }
    return !wrong;
}

static int is_finite(const uint8_t *at, const struct rp_float_column *column) {
    switch (column->width) {
    case 2: return is_finite_of(at, column->count, 2, 0x7C00u);
    case 4: return is_finite_of(at, column->count, 4, 0x7F800000u);
    default: return is_finite_of(at, column->count, 8, 0x7FF0000000000000u);
    }
}

int rp_floats_finite(const struct rp_floats *floats, uint64_t group) {
    const uint8_t *record = floats->records + group * floats->group * floats->record_bytes;
    for (uint32_t i = 0; i < floats->group; i++, record += floats->record_bytes) {
        for (uint32_t c = 0; c < floats->column_count; c++) {
            if (!is_finite(record + floats->columns[c].offset, &floats->columns[c])) {
                return 0;
            }
        }
    }
    return 1;
}
