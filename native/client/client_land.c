/* Landing: bytes of a batch's stream go straight from the received datagram to their columns, one
 * copy.
 *
 *     stream = rp_batch | count x rp_batch_item | count x item
 *
 * A datagram may begin and end anywhere at a multiple of 8: heads are taken word by word, items
 * that are whole in the datagram column by column, cut ones piece by piece. Columns that lie side
 * by side both in the item and in memory are merged when the request is posted, so that a
 * sequence of hundreds of steps is one copy per column.
 */
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "client/client_parts.h"

enum {
    HEAD_BYTES = sizeof(struct rp_batch),
    HEAD_EACH = sizeof(struct rp_batch_item), /* an item's own head */
    ITEM_HEAD_WORDS = HEAD_EACH / 8,
};

static inline void copy_items(uint8_t *target, uint64_t stride, const uint8_t *source,
                              uint32_t item_bytes, uint32_t items, uint32_t size) {
    for (uint32_t i = 0; i < items; i++) {
        memcpy(target, source, size);
        target += stride;
        source += item_bytes;
    }
}

/* ---- columns ---- */

static int side_by_side(const struct rp_landing_column *left,
                        const struct rp_landing_column *right) {
    return left->item_offset + left->size == right->item_offset
           && left->target + left->size == right->target && left->stride == right->stride;
}

/* Checks that columns rise inside the item, and merges them. 0 = they do not. */
int rp_client_land_columns(struct client_sample *sample) {
    const struct rp_landing *landing = &sample->landing;
    uint32_t count = 0;
    uint64_t end = 0;
    for (uint32_t i = 0; i < landing->column_count; i++) {
        const struct rp_landing_column *column = &landing->columns[i];
        if (column->item_offset < end || column->size == 0 || column->target == NULL) {
            return 0;
        }
        end = (uint64_t)column->item_offset + column->size;
        if (count > 0 && count <= CLIENT_COLUMNS_MAX
            && side_by_side(&sample->columns[count - 1], column)) {
            sample->columns[count - 1].size += column->size;
        } else if (count < CLIENT_COLUMNS_MAX) {
            sample->columns[count++] = *column;
        } else {
            count = CLIENT_COLUMNS_MAX + 1;
        }
    }
    sample->column_count = count <= CLIENT_COLUMNS_MAX ? count : 0;
    return end <= landing->item_bytes;
}

static const struct rp_landing_column *columns_of(const struct client_sample *sample,
                                                  uint32_t *count) {
    if (sample->column_count > 0) {
        *count = sample->column_count;
        return sample->columns;
    }
    *count = sample->landing.column_count;
    return sample->landing.columns;
}

/* ---- heads ---- */

static void land_word(const struct client_sample *sample, uint32_t item, uint32_t word,
                      uint64_t value) {
    const struct rp_landing *landing = &sample->landing;
    uint32_t at = client_sample_position(sample, item);
    if (word == 0) {
        if (landing->keys != NULL) {
            landing->keys[at] = value;
        }
        if (landing->ages != NULL) { /* the age is known when the batch's head is */
            landing->ages[at] = value;
        }
    } else if (word == 1) {
        if (landing->masses != NULL) {
            landing->masses[at] = value;
        }
    } else {
        if (landing->behind != NULL) {
            landing->behind[at] = (uint16_t)value;
        }
        if (landing->ahead != NULL) {
            landing->ahead[at] = (uint16_t)(value >> 16);
        }
    }
}

/* Whole heads that land side by side, field by field: which fields are wanted is looked up once,
 * not for each head. Returns bits that are set though no key or reserved field may have them. */
static uint64_t land_whole_heads(const struct client_sample *sample, uint32_t item, uint32_t items,
                                 const uint8_t *bytes) {
    const struct rp_landing *landing = &sample->landing;
    uint64_t at = (uint64_t)sample->first_item + item;
    const uint8_t *masses = bytes + offsetof(struct rp_batch_item, mass);
    const uint8_t *behind = bytes + offsetof(struct rp_batch_item, behind);
    const uint8_t *ahead = bytes + offsetof(struct rp_batch_item, ahead);
    if (landing->keys != NULL) {
        copy_items((uint8_t *)(landing->keys + at), 8, bytes, HEAD_EACH, items, 8);
    }
    if (landing->ages != NULL) { /* the age is known when the batch's head is */
        copy_items((uint8_t *)(landing->ages + at), 8, bytes, HEAD_EACH, items, 8);
    }
    if (landing->masses != NULL) {
        copy_items((uint8_t *)(landing->masses + at), 8, masses, HEAD_EACH, items, 8);
    }
    if (landing->behind != NULL) {
        copy_items((uint8_t *)(landing->behind + at), 2, behind, HEAD_EACH, items, 2);
    }
    if (landing->ahead != NULL) {
        copy_items((uint8_t *)(landing->ahead + at), 2, ahead, HEAD_EACH, items, 2);
    }
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < items; i++) {
        struct rp_batch_item head;
        memcpy(&head, bytes + (size_t)i * HEAD_EACH, sizeof head);
        wrong |= head.key >> RP_KEY_BITS | head.reserved;
    }
    return wrong;
}

/* Bytes [offset, offset + size) of the items' heads. 0 where a key or a reserved field cannot be.
 */
static int land_heads(const struct client_sample *sample, uint64_t offset, const uint8_t *bytes,
                      uint32_t size) {
    uint32_t item = (uint32_t)(offset / HEAD_EACH);
    uint32_t word = (uint32_t)(offset / 8 % ITEM_HEAD_WORDS);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < size;) {
        uint32_t whole = word == 0 && !sample->mapped ? (size - i) / HEAD_EACH : 0;
        if (whole > 0) {
            wrong |= land_whole_heads(sample, item, whole, bytes + i);
            item += whole;
            i += whole * HEAD_EACH;
            continue;
        }
        uint64_t value;
        memcpy(&value, bytes + i, 8);
        wrong |= word == 0 ? value >> RP_KEY_BITS : word == 2 ? value >> 32 : 0;
        land_word(sample, item, word, value);
        if (++word == ITEM_HEAD_WORDS) {
            word = 0;
            item++;
        }
        i += 8;
    }
    return wrong == 0;
}

/* ---- items ---- */

/* The first column that ends behind `offset`. */
static uint32_t first_column(const struct rp_landing_column *columns, uint32_t count,
                             uint32_t offset) {
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (columns[middle].item_offset + columns[middle].size > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Bytes [offset, offset + size) of one item. */
static void land_part(const struct client_sample *sample, uint32_t item, uint32_t offset,
                      const uint8_t *bytes, uint32_t size) {
    uint32_t count;
    const struct rp_landing_column *columns = columns_of(sample, &count);
    uint64_t at = client_sample_position(sample, item);
    uint32_t end = offset + size;
    for (uint32_t i = first_column(columns, count, offset); i < count; i++) {
        const struct rp_landing_column *column = &columns[i];
        if (column->item_offset >= end) {
            return;
        }
        uint32_t from = rp_max(column->item_offset, offset);
        uint32_t to = column->item_offset + column->size;
        to = rp_min(to, end);
        memcpy(column->target + at * column->stride + (from - column->item_offset),
               bytes + (from - offset), to - from);
    }
}

/* One column of `items` whole items; the usual small sizes are copied without a call. */
static void land_column(uint8_t *target, uint64_t stride, const uint8_t *source,
                        uint32_t item_bytes, uint32_t items, uint32_t size) {
    switch (size) {
    case 1: copy_items(target, stride, source, item_bytes, items, 1); break;
    case 2: copy_items(target, stride, source, item_bytes, items, 2); break;
    case 4: copy_items(target, stride, source, item_bytes, items, 4); break;
    case 8: copy_items(target, stride, source, item_bytes, items, 8); break;
    case 12: copy_items(target, stride, source, item_bytes, items, 12); break;
    case 16: copy_items(target, stride, source, item_bytes, items, 16); break;
    case 32: copy_items(target, stride, source, item_bytes, items, 32); break;
    default: copy_items(target, stride, source, item_bytes, items, size); break;
    }
}

static void land_whole(const struct client_sample *sample, uint32_t item, uint32_t items,
                       const uint8_t *bytes) {
    uint32_t item_bytes = sample->landing.item_bytes;
    uint32_t count;
    const struct rp_landing_column *columns = columns_of(sample, &count);
    if (sample->mapped) {
        for (uint32_t i = 0; i < items; i++) {
            land_part(sample, item + i, 0, bytes + (uint64_t)i * item_bytes, item_bytes);
        }
        return;
    }
    uint64_t at = (uint64_t)sample->first_item + item;
    for (uint32_t i = 0; i < count; i++) {
        const struct rp_landing_column *column = &columns[i];
        land_column(column->target + at * column->stride, column->stride,
                    bytes + column->item_offset, item_bytes, items, column->size);
    }
}

static void land_items(const struct client_sample *sample, uint64_t offset, const uint8_t *bytes,
                       uint32_t size) {
    uint32_t item_bytes = sample->landing.item_bytes;
    uint32_t item = (uint32_t)(offset / item_bytes);
    uint32_t within = (uint32_t)(offset % item_bytes);
    if (within != 0) {
        uint32_t part = rp_min(item_bytes - within, size);
        land_part(sample, item++, within, bytes, part);
        bytes += part;
        size -= part;
    }
    uint32_t items = size / item_bytes;
    if (items > 0) {
        land_whole(sample, item, items, bytes);
    }
    uint32_t rest = size - items * item_bytes;
    if (rest > 0) {
        land_part(sample, item + items, 0, bytes + (uint64_t)items * item_bytes, rest);
    }
}

/* ---- the stream ---- */

static int head_valid(const struct client_sample *sample) {
    const struct rp_batch *head = &sample->head;
    return head->count == sample->round_count && head->item_bytes == sample->landing.item_bytes
           && head->epoch != 0 && head->capacity > 0
           && (sample->request.epoch == 0 || sample->request.epoch == head->epoch);
}

int rp_client_land(struct client_sample *sample, uint64_t offset, const uint8_t *bytes,
                   uint32_t size) {
    uint64_t heads_end =
        HEAD_BYTES + (uint64_t)sample->round_count * sizeof(struct rp_batch_item);
    if (offset == 0) { /* a payload always holds the whole head */
        memcpy(&sample->head, bytes, HEAD_BYTES);
        if (!head_valid(sample)) {
            return 0;
        }
        offset = HEAD_BYTES;
        bytes += HEAD_BYTES;
        size -= HEAD_BYTES;
    }
    if (offset < heads_end) {
        uint64_t left = heads_end - offset;
        uint32_t part = left < size ? (uint32_t)left : size;
        if (!land_heads(sample, offset - HEAD_BYTES, bytes, part)) {
            return 0;
        }
        offset += part;
        bytes += part;
        size -= part;
    }
    if (size > 0) {
        land_items(sample, offset - heads_end, bytes, size);
    }
    return 1;
}

/* Writes the numbers that are the same for all items of the round; and the ages, from the keys that
 * were put in their place. */
void rp_client_land_totals(struct client_sample *sample) {
    const struct rp_landing landing = sample->landing; /* copies: no store can change them */
    const struct rp_batch head = sample->head;
    const uint32_t *map = sample->mapped ? sample->map : NULL;
    uint32_t first = sample->first_item, count = sample->round_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = map != NULL ? map[i] : first + i;
        if (landing.totals != NULL) {
            landing.totals[at] = head.total;
        }
        if (landing.drawables != NULL) {
            landing.drawables[at] = head.drawable;
        }
        if (landing.ages != NULL) {
            uint64_t key = landing.ages[at];
            landing.ages[at] = key < head.head ? head.head - 1 - key : 0;
        }
    }
}
