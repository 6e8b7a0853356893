/* Whether the numbers of some records are finite: one NaN in a batch makes every weight of a
 * learner NaN, so it is refused where it would be written.
 *
 * A number is a NaN or an infinity exactly where all bits of its exponent are set, whatever its
 * width. Records lie at any address that suits their columns, so bytes are copied to be read.
 */
#include <string.h>

#include "replay.h"

static int is_finite16(const uint8_t *at, uint32_t count)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, at + i * sizeof bits, sizeof bits);
        wrong |= (bits & 0x7C00u) == 0x7C00u;
    }
    return !wrong;
}

static int is_finite32(const uint8_t *at, uint32_t count)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, at + i * sizeof bits, sizeof bits);
        wrong |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return !wrong;
}

static int is_finite64(const uint8_t *at, uint32_t count)
{
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, at + i * sizeof bits, sizeof bits);
        wrong |= (bits & 0x7FF0000000000000u) == 0x7FF0000000000000u;
    }
    return !wrong;
}

static int is_finite(const uint8_t *at, const struct rp_float_column *column)
{
    return column->width == 2   ? is_finite16(at, column->count)
           : column->width == 4 ? is_finite32(at, column->count)
                                : is_finite64(at, column->count);
}

int rp_floats_finite(const struct rp_floats *floats, uint64_t group)
{
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
