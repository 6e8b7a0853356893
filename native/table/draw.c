/* Drawing: a long row of small look-ups, so it runs in chunks, next reads asked for early.
 *
 * The order of random numbers is part of the interface (a program in another language repeats
 * the draws): item by item, first the choice between uniform and prioritized where u > 0, then
 * the target or rank. The tree is asked afterwards, a chunk at a time; nothing it answers feeds
 * the generator. A queue's draws take none: its oldest items have ranks that follow each other.
 */
#include "base/minmax.h"
#include "base/prefetch.h"
#include "table/store.h"

_Static_assert(RP_QUEUE_BATCH_MAX + 64 <= RP_INTENT_WORDS, "a draw is one transaction");

/* What a stratified draw needs to walk its bounds floor(i * total / count) without 128-bit
 * divisions. */
struct strata {
    uint64_t whole;
    uint64_t rest;
    uint64_t total;
    uint32_t count;
};

static uint64_t stratum_edge(const struct strata *s, uint64_t i) {
    return i * s->whole + i * s->rest / s->count;
}

static uint64_t stratum_target(const struct strata *s, struct rp_random *random, uint64_t i) {
    uint64_t low = stratum_edge(s, i);
    uint64_t high = stratum_edge(s, i + 1);
    if (high == low) {
        return low < s->total ? low : s->total - 1;
    }
    return low + rp_random_below(random, high - low);
}

static void prefetch_slots(const struct rp_table_private *p, const uint32_t *slots,
                           uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        rp_prefetch(&p->keys[slots[i]]);
        rp_prefetch(&p->slots[slots[i]]);
    }
}

/* Slots of items [first, first + count) of a draw without a uniform part. */
static void draw_mass(struct rp_table *table, const struct rp_sample *request,
                      struct rp_random *random, uint32_t first, uint32_t count) {
    struct rp_table_private *p = table->private;
    uint64_t total = rp_tree_total(&table->tree);
    if (request->mode == RP_SAMPLE_STRATIFIED) {
        struct strata s = {total / request->count, total % request->count, total, request->count};
        for (uint32_t i = 0; i < count; i++) {
            p->targets[i] = stratum_target(&s, random, first + i);
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            p->targets[i] = rp_random_below(random, total);
        }
    }
    for (uint32_t i = 0; i < count; i += RP_TREE_GROUP) {
        uint32_t some = rp_min(count - i, RP_TREE_GROUP);
        rp_tree_draw(&table->tree, p->targets + i, p->slots_drawn + i, some);
        prefetch_slots(p, p->slots_drawn + i, some);
    }
}

/* The same with a uniform part: targets go to the front of a chunk, ranks to its back; then both
 * are put where they belong. */
static void draw_mixed(struct rp_table *table, uint32_t uniform, struct rp_random *random,
                       uint32_t count) {
    struct rp_table_private *p = table->private;
    uint64_t total = rp_tree_total(&table->tree);
    uint32_t drawable = rp_tree_count(&table->tree);
    uint32_t targets = 0;
    uint32_t ranks = 0;
    uint8_t by_rank[RP_DRAW_CHUNK];
    uint32_t by_mass[RP_DRAW_CHUNK];
    uint32_t by_count[RP_DRAW_CHUNK];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t choice = (uint32_t)(rp_random_next(random) >> 32);
        by_rank[i] = choice < uniform || uniform == UINT32_MAX;
        if (by_rank[i]) {
            p->ranks[ranks++] = (uint32_t)rp_random_below(random, drawable);
        } else {
            p->targets[targets++] = rp_random_below(random, total);
        }
    }
    rp_tree_draw(&table->tree, p->targets, by_mass, targets);
    rp_tree_draw_rank(&table->tree, p->ranks, by_count, ranks);
    targets = ranks = 0;
    for (uint32_t i = 0; i < count; i++) {
        p->slots_drawn[i] = by_rank[i] ? by_count[ranks++] : by_mass[targets++];
    }
    prefetch_slots(p, p->slots_drawn, count);
}

/* Slots of items [first, first + count) of a queue, the oldest key first: ranks go round from the
 * slot that the ring overwrites next, before which there are `before` drawable ones. */
static void draw_oldest(struct rp_table *table, uint32_t before, uint32_t first, uint32_t count) {
    struct rp_table_private *p = table->private;
    uint64_t drawable = rp_tree_count(&table->tree);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t rank = (uint64_t)before + first + i;
        p->ranks[i] = (uint32_t)(rank < drawable ? rank : rank - drawable);
    }
    rp_tree_draw_rank(&table->tree, p->ranks, p->slots_drawn, count);
    prefetch_slots(p, p->slots_drawn, count);
}

static void fill_items(const struct rp_table_private *p, struct rp_batch_item *items,
                       uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = p->slots_drawn[i];
        uint64_t item = p->slots[slot].item;
        items[i] = (struct rp_batch_item){.key = rp_key_of(p->keys[slot]),
                                          .mass = p->leaves[slot],
                                          .behind = rp_item_behind(item),
                                          .ahead = rp_item_ahead(item)};
    }
}

static void fill_head(const struct rp_table *table, const struct rp_sample *request,
                      struct rp_batch *head) {
    const struct rp_table_header *header = table->header;
    *head = (struct rp_batch){.epoch = header->epoch,
                              .total = rp_tree_total(&table->tree),
                              .head = header->head,
                              .drawable = rp_tree_count(&table->tree),
                              .count = request->count,
                              .item_bytes = rp_table_item_bytes(table, request->plan),
                              .uniform = request->uniform,
                              .capacity = table->private->capacity};
}

/* A drawn item keeps its place in the ring, to be read from; without a mass it is drawn no more. */
static int draw_queue(struct rp_table *table, const struct rp_sample *request,
                      struct rp_batch *head, struct rp_batch_item *items) {
    struct rp_table_private *p = table->private;
    if (request->mode != RP_SAMPLE_INDEPENDENT || request->uniform != 0
        || request->count > RP_QUEUE_BATCH_MAX) {
        return -RP_BAD_ARGUMENT;
    }
    if (request->count > rp_tree_count(&table->tree)) {
        return -RP_NOTHING_DRAWABLE;
    }
    RP_SITE();
    uint32_t before = rp_tree_rank(&table->tree, p->head_slot);
    fill_head(table, request, head);
    for (uint32_t first = 0; first < request->count; first += RP_DRAW_CHUNK) {
        uint32_t left = request->count - first;
        uint32_t count = rp_min(left, RP_DRAW_CHUNK);
        draw_oldest(table, before, first, count);
        fill_items(p, items + first, count);
        for (uint32_t i = 0; i < count; i++) {
            rp_leaf_set(table, p->slots_drawn[i], 0);
        }
    }
    rp_intent_set(table->intent, &table->header->sampled,
                  table->header->sampled + request->count);
    return RP_OK;
}

int rp_table_draw(struct rp_table *table, const struct rp_sample *request, struct rp_batch *head,
                  struct rp_batch_item *items) {
    struct rp_table_header *header = table->header;
    struct rp_random random = header->random;
    if (request->plan >= header->facts.plan_count) {
        return -RP_UNKNOWN_PLAN;
    }
    if (request->mode > RP_SAMPLE_STRATIFIED || request->count == 0 || request->count > RP_BATCH_MAX
        || (request->mode == RP_SAMPLE_STRATIFIED && request->uniform != 0)) {
        return -RP_BAD_ARGUMENT;
    }
    if (rp_tree_count(&table->tree) == 0) {
        return -RP_NOTHING_DRAWABLE;
    }
    if (header->facts.fifo) {
        return draw_queue(table, request, head, items);
    }
    RP_SITE();
    fill_head(table, request, head);
    for (uint32_t first = 0; first < request->count; first += RP_DRAW_CHUNK) {
        uint32_t left = request->count - first;
        uint32_t count = rp_min(left, RP_DRAW_CHUNK);
        if (request->uniform > 0) {
            draw_mixed(table, request->uniform, &random, count);
        } else {
            draw_mass(table, request, &random, first, count);
        }
        fill_items(table->private, items + first, count);
    }
    for (int i = 0; i < 4; i++) {
        rp_intent_set(table->intent, &header->random.s[i], random.s[i]);
    }
    rp_intent_set(table->intent, &header->sampled, header->sampled + request->count);
    return RP_OK;
}

int rp_table_lookup(const struct rp_table *table, const struct rp_sample *request,
                    const uint64_t *keys, struct rp_batch *head, struct rp_batch_item *items) {
    const struct rp_table_private *p = table->private;
    if (request->plan >= table->header->facts.plan_count) {
        return -RP_UNKNOWN_PLAN;
    }
    if (request->mode != RP_SAMPLE_KEYS || request->count == 0 || request->count > RP_BATCH_MAX) {
        return -RP_BAD_ARGUMENT;
    }
    RP_SITE();
    fill_head(table, request, head);
    for (uint32_t i = 0; i < request->count; i++) {
        const struct rp_slot *slot = rp_alive(p, keys[i]);
        items[i] = (struct rp_batch_item){.key = keys[i]};
        if (slot && rp_is_item(slot->item)) {
            items[i].mass = p->leaves[slot - p->slots];
            items[i].behind = rp_item_behind(slot->item);
            items[i].ahead = rp_item_ahead(slot->item);
        }
    }
    return RP_OK;
}
