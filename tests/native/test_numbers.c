/* The arithmetic on whole batches that Python hands to the core: which numbers are finite,
 * and what an item's draw weighs. test_client_landing.py compares the latter
 * with numpy.
 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "replay.h"

enum { GROUPS = 3, GROUP = 2, RECORD_BYTES = 44, NUMBERS = 3 };

/* Three columns, of 2, 4 and 8 bytes a number; the last at an address that is no multiple of 8. */
static const struct rp_float_column float_columns[] = {{0, NUMBERS, 2}, {6, NUMBERS, 4},
                                                       {20, NUMBERS, 8}};

static void put(uint8_t *records, uint32_t record, uint32_t column, uint32_t number,
                uint64_t bits) {
    const struct rp_float_column *c = &float_columns[column];
    memcpy(records + record * RECORD_BYTES + c->offset + number * c->width, &bits, c->width);
}

/* Given one number of one record that is not finite, whichever, or just below it. Expect its group
 * told, and no other. */
static void check_finite(void) {
    static const struct {
        uint64_t largest, wrong[4];
    } bits[] = {
        {0x7BFF, {0x7C00, 0xFC00, 0x7E00, 0x7C01}},
        {0x7F7FFFFF, {0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001}},
        {0x7FEFFFFFFFFFFFFF,
         {0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001}},
    };
    static uint8_t records[GROUPS * GROUP * RECORD_BYTES];
    struct rp_floats floats = {.records = records, .columns = float_columns,
                               .record_bytes = RECORD_BYTES, .group = GROUP, .column_count = 3};
    for (uint32_t place = 0; place < GROUPS * GROUP * 3 * NUMBERS; place++) {
        uint32_t number = place % NUMBERS, column = place / NUMBERS % 3;
        uint32_t record = place / NUMBERS / 3;
        put(records, record, column, number, bits[column].largest);
        for (uint64_t group = 0; group < GROUPS; group++) {
            CHECK(rp_floats_finite(&floats, group), "the largest number is one");
        }
        for (uint32_t i = 0; i < 4; i++) {
            put(records, record, column, number, bits[column].wrong[i]);
            for (uint64_t group = 0; group < GROUPS; group++) {
                CHECK(rp_floats_finite(&floats, group) == (group != record / GROUP),
                      "record %u, column %u, number %u, group %" PRIu64, record, column, number,
                      group);
            }
        }
        put(records, record, column, number, 0);
    }
    check_group("NaN and infinity are found wherever they stand");
}

/* Given items of known masses, one invalid, one of an empty table. Expect probabilities as the
 * formula has them (numbers that no rounding touches), and weights over the largest of those that
 * were drawn. */
static void check_weights(void) {
    enum { COUNT = 5 };
    uint64_t masses[COUNT] = {25, 50, 0, 50, 0}, totals[COUNT] = {100, 100, 100, 100, 0};
    uint32_t drawables[COUNT] = {4, 4, 4, 4, 0};
    uint8_t valid[COUNT] = {1, 1, 1, 0, 1};
    double probabilities[COUNT];
    float weights[COUNT];
    struct rp_place place = {.landing = {.masses = masses, .totals = totals,
                                         .drawables = drawables, .valid = valid},
                             .probabilities = probabilities, .weights = weights, .count = COUNT};
    const double expected[COUNT] = {0.25, 0.375, 0.125, 0.0, 0.5};
    const double over_least[COUNT] = {0.5, 0.5 / 1.5, 1.0, 0.0, 1.0};
    for (int beta = 0; beta <= 2; beta++) {
        rp_place_weigh(&place, 0.5, beta);
        for (int i = 0; i < COUNT; i++) {
            double weight = i == 3 ? 0.0 : pow(over_least[i], beta);
            CHECK(probabilities[i] == expected[i], "item %d: %g", i, probabilities[i]);
            CHECK(fabs(weights[i] - weight) < 1e-6, "item %d: %g", i, weights[i]);
        }
    }
    rp_place_weigh(&place, 0.0, 1.0);
    CHECK(probabilities[4] == 0.0 && probabilities[2] == 0.0, "no mass, no draw");
    CHECK(weights[4] == 0.0f && weights[2] == 0.0f && weights[0] == 1.0f);
    place.count = 0;
    rp_place_weigh(&place, 0.0, 1.0);
    check_group("probabilities and weights of a batch");
}

int main(void) {
    check_finite();
    check_weights();
    return check_done("test_numbers");
}
