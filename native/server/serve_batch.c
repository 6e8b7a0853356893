/* A batch as datagrams: cut into equal payloads across item borders, each item gathered straight
 * into the packet.
 *
 * The byte stream is the record's head and items, then the items' bodies. A body is copied out
 * of the ring when its datagram is made, so it may have been overwritten since the draw, even
 * between two datagrams of one item: each datagram says which of its items it found so.
 */
#include <string.h>

#include "base/minmax.h"
#include "server/serve.h"

struct cut { /* how one record's batch falls into datagrams at one mtu */
    const struct rp_record *record;
    const struct rp_table *table;
    uint32_t plan;
    uint32_t item_bytes;
    uint32_t words;     /* of the overwritten bitmap */
    uint32_t payload;
    uint32_t datagrams;
    int alive;          /* 0: the table was reset since, every body is gone */
    uint64_t prefix;    /* bytes before the first body */
    uint64_t bytes;     /* of the whole stream */
};

static struct cut cut_of(const struct rp_call *call, const struct rp_record *record) {
    uint32_t mtu = rp_session_mtu(rp_serve_session(call));
    const struct rp_table *table = &call->server->tables[record->table_plan & 0xFFFF];
    uint32_t plan = (uint32_t)(record->table_plan >> 16);
    struct cut cut = {.record = record, .table = table, .plan = plan};
    cut.item_bytes = record->head.item_bytes;
    cut.words = rp_overwritten_words(mtu, cut.item_bytes);
    cut.payload = rp_batch_payload(mtu, cut.item_bytes);
    cut.bytes = rp_batch_bytes(record->head.count, cut.item_bytes);
    cut.prefix = cut.bytes - (uint64_t)record->head.count * cut.item_bytes;
    cut.datagrams = (uint32_t)((cut.bytes + cut.payload - 1) / cut.payload);
    cut.alive = record->head.epoch == rp_table_epoch(table);
    return cut;
}

uint32_t rp_serve_batch_datagrams(const struct rp_call *call, const struct rp_record *record) {
    return cut_of(call, record).datagrams;
}

enum { AHEAD = 12 }; /* items whose rows are asked for before they are copied */

static void prefetch(const struct cut *cut, uint64_t item) {
    if (item < cut->record->head.count) {
        rp_table_prefetch(cut->table, &cut->record->items[item]);
    }
}

/* Copies part of one item's body; 0 where it has been overwritten. */
static int gather(const struct cut *cut, uint64_t item, uint32_t offset, uint32_t size,
                  uint8_t *to) {
    if (cut->alive) {
        return rp_table_gather(cut->table, cut->plan, &cut->record->items[item], offset, size, to);
    }
    memset(to, 0, size);
    return 0;
}

/* Bodies in [start, end), counted from the first body; sets the bits of the overwritten. Returns
 * how many. */
static uint32_t gather_range(const struct cut *cut, uint64_t start, uint64_t end, uint64_t *words,
                             uint8_t *to) {
    uint32_t overwritten = 0;
    uint64_t first = start / cut->item_bytes;
    uint64_t item = first;
    uint32_t offset = (uint32_t)(start % cut->item_bytes);
    for (uint64_t ahead = first; start == 0 && ahead < AHEAD; ahead++) {
        prefetch(cut, ahead);
    }
    for (uint64_t left = end - start; left > 0; item++, offset = 0) {
        uint32_t size = cut->item_bytes - offset;
        size = size < left ? size : (uint32_t)left;
        prefetch(cut, item + AHEAD);
        if (!gather(cut, item, offset, size, to)) {
            words[(item - first) / 64] |= 1ull << ((item - first) % 64);
            overwritten++;
        }
        left -= size;
        to += size;
    }
    return overwritten;
}

/* Writes one datagram's answer body and returns its size. */
static uint32_t write_datagram(struct rp_call *call, const struct cut *cut, uint32_t datagram) {
    struct rp_batch_datagram *head = (void *)rp_serve_room(call);
    uint64_t *words = (uint64_t *)(head + 1);
    uint8_t *to = (uint8_t *)(words + cut->words);
    uint64_t start = (uint64_t)datagram * cut->payload;
    uint64_t end = rp_min(start + cut->payload, cut->bytes);
    uint32_t total = (uint32_t)(sizeof *head + 8 * cut->words + (end - start));
    *head = (struct rp_batch_datagram){datagram, cut->datagrams, cut->payload, cut->words};
    memset(words, 0, 8 * cut->words);
    if (start < cut->prefix) {
        uint64_t size = rp_min(end, cut->prefix) - start;
        memcpy(to, (const uint8_t *)&cut->record->head + start, size);
        start += size;
        to += size;
    }
    if (start < end) {
        call->server->counters[RP_COUNT_items_served_overwritten] +=
            gather_range(cut, start - cut->prefix, end - cut->prefix, words, to);
    }
    return total;
}

void rp_serve_batch(struct rp_call *call, const struct rp_record *record, uint32_t first,
                    uint32_t count) {
    struct cut cut = cut_of(call, record);
    uint32_t end = count < cut.datagrams - first ? first + count : cut.datagrams;
    uint32_t i = first;
    for (; i < end && rp_serve_lease(call->turn, 1); i++) {
        rp_serve_send(call, write_datagram(call, &cut, i));
        rp_serve_early(call->turn);
    }
    rp_serve_train_sent(call, i - first);
}
