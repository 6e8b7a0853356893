/* Numbers that are not finite are found, wherever they stand and however wide they are.
 * Situations read "Given ... Expect ...". */
#include <string.h>

#include "check.h"
#include "replay.h"

enum { RECORD = 64, GROUP = 3, GROUPS = 2 };

struct width { /* bit patterns, lowest bytes first */
    uint32_t bytes;
    uint64_t bad[4];  /* both infinities, two NaNs */
    uint64_t good[4]; /* the largest, a denormal, minus 0, the sign and all bits but the lowest of
                       * the exponent */
};

static const struct width widths[] = {
    {2, {0x7C00, 0xFC00, 0x7C01, 0xFFFF}, {0x7BFF, 0x03FF, 0x8000, 0xF800}},
    {4, {0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF},
     {0x7F7FFFFF, 0x007FFFFF, 0x80000000, 0xFF000000}},
    {8, {0x7FF0000000000000, 0xFFF0000000000000, 0x7FF0000000000001, UINT64_MAX},
     {0x7FEFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF, 0x8000000000000000, 0xFFE0000000000000}},
};

/* Given one number of all that are looked at, and every other byte such that it would be found were
 * it looked at. Expect the number, and its group, to decide alone. */
static void check_width(const struct width *width) {
    /* two columns at odd addresses, none at the record's ends */
    const struct rp_float_column columns[] = {{3, 2, width->bytes}, {37, 3, width->bytes}};
    static uint8_t records[GROUPS * GROUP * RECORD];
    const struct rp_floats floats = {.records = records, .columns = columns,
                                     .record_bytes = RECORD, .group = GROUP, .column_count = 2};
    memset(records, 0xFF, sizeof records);
    for (uint32_t record = 0; record < GROUPS * GROUP; record++) {
        for (int c = 0; c < 2; c++) {
            memset(records + record * RECORD + columns[c].offset, 0,
                   (size_t)columns[c].count * width->bytes);
        }
    }
    CHECK(rp_floats_finite(&floats, 0) == 1 && rp_floats_finite(&floats, 1) == 1);
    for (uint32_t record = 0; record < GROUPS * GROUP; record++) {
        for (uint32_t number = 0; number < 5; number++) {
            const struct rp_float_column *column = &columns[number >= 2];
            uint8_t *at = records + record * RECORD + column->offset
                + (number >= 2 ? number - 2 : number) * width->bytes;
            for (int i = 0; i < 4; i++) {
                memcpy(at, &width->bad[i], width->bytes);
                CHECK(rp_floats_finite(&floats, record / GROUP) == 0, "%u bytes, number %u of "
                      "record %u: pattern %d passed", width->bytes, number, record, i);
                CHECK(rp_floats_finite(&floats, !(record / GROUP)) == 1, "the other group");
                memcpy(at, &width->good[i], width->bytes);
                CHECK(rp_floats_finite(&floats, record / GROUP) == 1, "%u bytes, number %u of "
                      "record %u: pattern %d was refused", width->bytes, number, record, i);
            }
        }
    }
}

int main(void) {
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        check_width(&widths[i]);
    }
    check_group("a NaN or an infinity of 2, 4 or 8 bytes, in any place");
    return check_done("test_finite");
}
