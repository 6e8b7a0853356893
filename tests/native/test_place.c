/* The memory of a batch is laid out within the room that was asked for, every array at its
 * offset in a slab that begins at a round address, wherever the memory begins.
 */
#include <string.h>

#include "check.h"
#include "replay.h"

enum { COLUMNS = 3, SLAB = 4096 };

static const struct rp_landing_column columns[COLUMNS] = {
    {.target = (void *)2048, .stride = 24, .size = 20},
    {.target = (void *)2560, .stride = 8, .size = 8},
    {.target = (void *)4000, .stride = 1, .size = 1},
};
static const struct rp_shape shape = {
    .columns = columns, .column_count = COLUMNS, .item_bytes = 32, .count = 5,
    .consumes = 1,
    .keys = 64, .masses = 128, .behind = 192, .ahead = 256, .totals = 320, .drawables = 384,
    .ages = 448, .valid = 512, .probabilities = 576, .weights = 640};

static void lay(uint8_t *memory) {
    struct rp_place *place = (void *)memory;
    uint64_t bytes = rp_place_bytes(&shape, SLAB);
    uint8_t *slab = memory + rp_place_lay(place, &shape);
    const struct rp_landing *l = &place->landing;
    CHECK(slab >= (uint8_t *)&place->columns[COLUMNS] && slab + SLAB <= memory + bytes);
    CHECK((uintptr_t)slab % RP_SLAB_ALIGNMENT == 0);
    CHECK(slab - (uint8_t *)&place->columns[COLUMNS] < RP_SLAB_ALIGNMENT, "no more than it takes");
    CHECK(bytes == sizeof *place + sizeof columns + RP_SLAB_ALIGNMENT + SLAB);
    const void *at[] = {l->keys,      l->masses, l->behind, l->ahead,              l->totals,
                        l->drawables, l->ages,   l->valid,  place->probabilities, place->weights};
    for (uint32_t i = 0; i < sizeof at / sizeof *at; i++) {
        CHECK(at[i] == slab + 64 * (i + 1), "array %u", i);
    }
    CHECK(l->columns == place->columns && l->column_count == COLUMNS && l->item_bytes == 32);
    CHECK(l->consumes == 1, "a queue's draw would be another one's");
    CHECK(place->count == 5 && place->ticket == 0);
    for (uint32_t i = 0; i < COLUMNS; i++) {
        const struct rp_landing_column *column = &place->columns[i];
        CHECK(column->target == slab + (uintptr_t)columns[i].target);
        CHECK(column->stride == columns[i].stride && column->size == columns[i].size);
    }
    for (const uint8_t *b = (uint8_t *)&place->columns[COLUMNS]; b < memory + bytes; b++) {
        CHECK(*b == 0xA5, "byte %td is not its", b - memory);
    }
}

/* Given items that are alike, more than the batch has. Expect its own weighed, and no other. */
static void weigh(uint8_t *memory) {
    struct rp_place *place = (void *)memory;
    uint8_t *slab = memory + rp_place_lay(place, &shape);
    memset(slab, 0, SLAB);
    memset(place->landing.valid, 1, 8);
    for (uint32_t i = 0; i < 8; i++) {
        place->landing.masses[i] = 1;
        place->landing.totals[i] = 8;
        place->landing.drawables[i] = 8;
        place->weights[i] = 2;
        place->probabilities[i] = 2;
    }
    rp_place_weigh(place, 0.0, 1.0);
    for (uint32_t i = 0; i < 8; i++) {
        CHECK(place->weights[i] == (i < 5 ? 1.0f : 2.0f), "weight %u", i);
        CHECK(place->probabilities[i] == (i < 5 ? 0.125 : 2.0), "probability %u", i);
    }
}

int main(void) {
    uint8_t *memory = aligned_alloc(RP_SLAB_ALIGNMENT, 3 * SLAB);
    CHECK(memory != NULL && rp_place_bytes(&shape, SLAB) < 2 * SLAB);
    for (uint32_t from = 0; from < 2 * RP_SLAB_ALIGNMENT; from += 8) {
        memset(memory, 0xA5, 3 * SLAB);
        lay(memory + from);
    }
    check_group("everything at its offset, from every address");
    weigh(memory);
    check_group("an item's weight");
    free(memory);
    return check_done("test_place");
}
