/* Every rule of what a dead server may leave is compared at attach, where it begins and where
 * it ends, and the sentence names the rule and the place. Each case makes one word wrong, by as
 * little as makes it wrong, and asks the verifier; then the word is put back. (That no wrong word
 * ends a server is test_damage's.)
 */
#include "verify_world.h"

/* ---- slots ---- */

enum kind { ITEM = 1, PLAIN = 2, GONE = 4, FIRST = 8 };

static enum kind kind_of(uint32_t i) {
    uint64_t word = p->slots[i].item;
    uint32_t flags = rp_item_flags(word);
    return (rp_is_item(word) ? ITEM : flags & RP_STEP_ITEM ? GONE : PLAIN)
        | (rp_item_depth(word) == 0 ? FIRST : 0);
}

/* A committed slot of this kind, both of whose neighbours are stored in the order of slots. */
static uint32_t slot_of(enum kind kind) {
    for (uint32_t i = 0; i < p->capacity; i++) {
        const struct rp_slot *slot = &p->slots[i];
        if (rp_state_of(p->keys[i]) == RP_SLOT_COMMITTED && kind_of(i) == kind
            && rp_previous(p, slot) && rp_previous(p, slot) < slot && rp_next(p, slot) > slot) {
            return i;
        }
    }
    CHECK(0, "no slot of kind %d", kind);
    return 0;
}

static uint32_t at_key(uint64_t key) {
    return (uint32_t)(key % p->capacity);
}

static void wrong_keys(void) {
    const char *place =
        "key == 0 || (key % p->capacity == index && key < p->head && p->head - key <= p->capacity)";
    uint32_t first = 0; /* looked at before its neighbours are */
    uint64_t key = rp_key_of(p->keys[first]), next = at_key(p->head);
    set(&p->keys[first], rp_key_word(3, key));
    TABLE("slot", first, "state <= RP_SLOT_COMMITTED");
    set(&p->keys[first], rp_key_word(RP_SLOT_COMMITTED, 0));
    TABLE("slot", first, "key != 0 || state == RP_SLOT_FREE");
    set(&p->keys[first], p->keys[first] + 1);
    TABLE("slot", first, place);
    set(&p->keys[first], p->keys[first] - p->capacity);
    TABLE("slot", first, place);
    set(&p->keys[next], rp_key_word(RP_SLOT_RESERVED, p->head));
    TABLE("slot", next, place);
    uint32_t newest = at_key(p->head - 1);
    CHECK(rp_state_of(p->keys[newest]) == RP_SLOT_RESERVED);
    set(&p->keys[newest], 0);
    TABLE("slot", p->capacity, "keys == 0 || rp_key_of(newest) == p->head - 1");
    uint32_t between = at_key(p->head - 2); /* a reset would stop there */
    CHECK(rp_state_of(p->keys[between]) == RP_SLOT_RESERVED);
    set(&p->keys[between], 0);
    TABLE("slot", p->capacity, "used == rp_used_slots(p)");
}

static void wrong_leaves(void) {
    const char *most = "p->leaves[index] <= table->header->maximum";
    struct rp_table_header *header = rp_server_table(script.server, 0)->header;
    uint32_t item = slot_of(ITEM), plain = slot_of(PLAIN);
    set(&p->leaves[plain], 1);
    TABLE("slot", plain, "p->leaves[index] == 0 || item");
    set(&p->leaves[item], header->maximum);
    WHOLE;
    set(&p->leaves[item], header->maximum + 1);
    TABLE("slot", item, most);
    set(&header->maximum, p->mass_max);
    set(&p->leaves[item], p->mass_max);
    WHOLE;
    CHECK(rp_tree_leaf_count(p->capacity) == 528);
    for (uint32_t i = p->capacity; i < 528; i += 7) {
        set(&p->leaves[i], 1);
        TABLE("slot", i, "p->leaves[v->number] == 0");
    }
}

static void wrong_items(void) {
    const char *plain_rule =
        "flags & RP_STEP_ITEM || !(flags & RP_STEP_EVICTED || slot->item >> 32)";
    const char *window = "rp_item_behind(slot->item) == whole && rp_item_ahead(slot->item) <= "
                         "p->reach_ahead";
    uint32_t item = slot_of(ITEM), plain = slot_of(PLAIN), first = slot_of(PLAIN | FIRST);
    uint64_t *word = &p->slots[plain].item;
    set(word, *word | 8ull << 16);
    TABLE("slot", plain, "flags <= (RP_STEP_END | RP_STEP_ITEM | RP_STEP_EVICTED)");
    set(word, *word | (uint64_t)RP_STEP_EVICTED << 16);
    TABLE("slot", plain, plain_rule);
    set(word, *word | 1ull << 32);
    TABLE("slot", plain, plain_rule);
    set(word, *word | 1ull << 63);
    TABLE("slot", plain, plain_rule);
    set(word, *word + 1);
    TABLE("slot", plain, "rp_item_depth(slot->item) == depth_after(previous)");
    word = &p->slots[item].item;
    set(word, *word + (1ull << 32));
    TABLE("slot", item, window);
    set(word, *word - (1ull << 32));
    TABLE("slot", item, window);
    set(word, *word + ((uint64_t)(p->reach_ahead + 1 - rp_item_ahead(*word)) << 48));
    TABLE("slot", item, window);
    set(word, *word | (uint64_t)RP_STEP_END << 16);
    TABLE("slot", item, "!(rp_item_flags(slot->item) & RP_STEP_END)");
    word = &p->slots[first].item;
    set(word, *word | (uint64_t)(RP_STEP_ITEM | RP_STEP_EVICTED) << 16);
    TABLE("slot", first, "whole > 0 || !(rp_item_flags(slot->item) & RP_STEP_EVICTED)");
}

static void wrong_links(void) {
    uint32_t i = slot_of(ITEM);
    struct rp_slot *slot = &p->slots[i], *next = rp_next(p, slot), *last;
    set(&slot->links, rp_links_word(rp_link_previous(slot->links), 0));
    TABLE("slot", next - p->slots,
          "rp_link_next(previous->links) == rp_link_previous(slot->links)");
    set(&next->links, rp_links_word(0, rp_link_next(next->links)));
    TABLE("slot", i, "!next || rp_link_previous(next->links) == rp_link_next(slot->links)");
    last = rp_alive(p, rp_stream_at(p, 0, 1)->head);
    CHECK(last && rp_link_next(last->links) == 0);
    set(&last->links, rp_links_word(rp_link_previous(last->links), 100));
    TABLE("slot", last - p->slots, "next || rp_link_next(slot->links) == 0");
    /* who has no stored step behind it may name what is gone, and nothing that is stored */
    for (i = 0; i < p->capacity; i++) {
        slot = &p->slots[i];
        if (rp_state_of(p->keys[i]) == RP_SLOT_COMMITTED && !rp_previous(p, slot)
            && rp_link_previous(slot->links)) {
            uint64_t gone = rp_key_at(p, slot) - (p->head - p->capacity) + 1;
            set(&slot->links, rp_links_word(gone, rp_link_next(slot->links)));
            WHOLE;
        }
    }
    uint64_t oldest = p->head - p->capacity;
    next = rp_next(p, &p->slots[at_key(oldest)]);
    CHECK(rp_state_of(p->keys[at_key(oldest)]) == RP_SLOT_COMMITTED && next);
    set(&p->leaves[at_key(oldest)], 0);
    set(&p->keys[at_key(oldest)], rp_key_word(RP_SLOT_RESERVED, oldest));
    TABLE("slot", next - p->slots,
          "previous || back == 0 || rp_key_at(p, slot) < p->head - p->capacity + back");
}

static void wrong_windows(void) {
    const char *behind = "(rows < rp_item_behind(slot->item)) == ((flags & RP_STEP_EVICTED) != 0)";
    const char *ahead = "ahead == p->reach_ahead || (ended && ahead == rows)";
    uint32_t item = slot_of(ITEM);
    uint64_t *word = &p->slots[item].item;
    set(&p->leaves[item], 0);
    set(word, *word | (uint64_t)RP_STEP_EVICTED << 16);
    TABLE("slot", item, behind);
    CHECK(rp_item_ahead(*word) == p->reach_ahead);
    set(word, *word - (1ull << 48));
    TABLE("slot", item, ahead);
    const struct rp_slot *last = rp_alive(p, rp_stream_at(p, 0, 1)->head);
    uint32_t newest = (uint32_t)(last - p->slots), depth = rp_item_depth(last->item);
    CHECK(kind_of(newest) == PLAIN && depth >= p->reach_behind && p->reach_ahead > 0);
    set(&p->slots[newest].item, rp_item_word(depth, RP_STEP_ITEM, p->reach_behind, 0));
    TABLE("slot", newest, ahead); /* its episode has not ended */
    set(&p->slots[newest].item, rp_item_word(depth, RP_STEP_ITEM, p->reach_behind, 1));
    TABLE("slot", newest, "ahead <= rows");
    set(&p->keys[p->capacity], rp_key_word(RP_SLOT_COMMITTED, p->head - 1)); /* no slot's */
    WHOLE;
    for (uint32_t i = 0; i < p->capacity; i++) { /* the last item that misses a row behind it */
        const struct rp_slot *slot = &p->slots[i];
        if (rp_state_of(p->keys[i]) == RP_SLOT_COMMITTED && !rp_previous(p, slot)) {
            CHECK(rp_item_depth(slot->item) > 0);
            for (uint32_t j = 1; j < p->reach_behind; j++) {
                slot = rp_next(p, slot);
            }
            set(&p->leaves[slot - p->slots], 0);
            set(&p->slots[slot - p->slots].item,
                rp_item_word(rp_item_depth(slot->item), RP_STEP_ITEM | RP_STEP_EVICTED,
                             p->reach_behind, p->reach_ahead));
            WHOLE;
        }
    }
    uint32_t found = 0;
    for (uint32_t i = 0; i < p->capacity; i++) { /* the episode ends within its reach */
        word = &p->slots[i].item;
        if (rp_state_of(p->keys[i]) == RP_SLOT_COMMITTED && rp_is_item(*word)
            && rp_item_ahead(*word) < p->reach_ahead) {
            set(word, *word + (1ull << 48));
            TABLE("slot", i, "ahead <= rows");
            if (rp_item_ahead(*word) > 0) {
                set(word, *word - (1ull << 48));
                TABLE("slot", i, ahead);
            }
            found++;
        }
        if (rp_state_of(p->keys[i]) == RP_SLOT_COMMITTED && kind_of(i) == GONE) {
            set(word, *word & ~((uint64_t)RP_STEP_EVICTED << 16));
            TABLE("slot", i, behind);
            found++;
        }
    }
    CHECK(found > 1, "%u", found);
}

/* ---- writers ---- */

static void wrong_streams(void) {
    struct rp_writer *writer = rp_writer_at(p, 0);
    struct rp_stream *stream = rp_stream_at(p, 0, 1), *unused = rp_stream_at(p, 0, 2);
    set(&writer->streams, 0);
    TABLE("writer", 0, "writer->streams >= 1 && writer->streams <= p->streams_max");
    set(&writer->streams, p->streams_max);
    WHOLE;
    set(&writer->streams, p->streams_max + 1);
    TABLE("writer", 0, "writer->streams >= 1 && writer->streams <= p->streams_max");
    set(&stream->head, p->head);
    TABLE("writer", 0, "state->head < p->head && state->head <= RP_KEY_MASK");
    set(&stream->next_step, 0);
    TABLE("writer", 0, "(state->head == 0) == (state->next_step == 0)");
    set(&unused->next_step, 1);
    TABLE("writer", 0, "(state->head == 0) == (state->next_step == 0)");
    set(&stream->next_step, RP_KEY_MASK);
    WHOLE;
    set(&stream->next_step, RP_KEY_MASK + 1);
    TABLE("writer", 0, "state->next_step <= RP_KEY_MASK");
    set(&stream->abandoned, writer->next_sequence);
    WHOLE;
    set(&stream->abandoned, writer->next_sequence + 1);
    TABLE("writer", 0, "state->abandoned <= rp_writer_at(p, index)->next_sequence");
    set(&rp_stream_at(p, 0, 3)->abandoned, 1); /* which it was not granted */
    TABLE("writer", 0, "!(none->next_step | none->head | none->abandoned | none->depth)");
    set(&unused->depth, UINT16_MAX);
    WHOLE;
    set(&unused->depth, UINT16_MAX + 1);
    TABLE("writer", 0, "state->depth <= UINT16_MAX");
    set(&stream->depth, stream->depth + 1);
    TABLE("writer", 0, "state->depth == depth_after(last)");
    const struct rp_slot *before = rp_previous(p, rp_alive(p, stream->head));
    set(&stream->head, rp_key_at(p, before));
    set(&stream->depth, rp_item_depth(before->item) + 1u);
    TABLE("writer", 0, "rp_link_next(last->links) == 0");
    set(&rp_writer_at(p, 1)->streams, 0); /* whose place is free */
    WHOLE;
}

static void wrong_entries(void) {
    uint64_t next = rp_writer_at(p, 0)->next_sequence;
    struct rp_entry *oldest = rp_entry_at(p, 0, next - p->window);
    struct rp_entry *empty = rp_entry_at(p, 0, next - 8), *last = rp_entry_at(p, 0, next - 1);
    const char *state = "state >= RP_ENTRY_EMPTY && state <= RP_ENTRY_LOST";
    CHECK(rp_state_of(empty->key) == RP_ENTRY_EMPTY && rp_state_of(last->key) == RP_ENTRY_COMPLETE);
    set(&oldest->key, rp_key_of(oldest->key));
    TABLE("writer", 0, state);
    set(&oldest->key, rp_key_word(RP_ENTRY_LOST, rp_key_of(oldest->key)));
    WHOLE;
    set(&oldest->key, rp_key_word(RP_ENTRY_LOST + 1, rp_key_of(oldest->key)));
    TABLE("writer", 0, state);
    set(&oldest->key, rp_key_word(RP_ENTRY_COMMITTED, p->capacity));
    WHOLE;
    set(&oldest->key, rp_key_word(RP_ENTRY_COMMITTED, p->capacity - 1));
    TABLE("writer", 0, "key >= p->capacity && key < p->head");
    set(&oldest->key, rp_key_word(RP_ENTRY_COMMITTED, 1));
    TABLE("writer", 0, "key >= p->capacity && key < p->head");
    set(&last->key, rp_key_word(RP_ENTRY_COMPLETE, p->head));
    TABLE("writer", 0, "key >= p->capacity && key < p->head");
    set(&last->key, last->key - 1);
    TABLE("writer", 0, "key > last");
    set(&p->keys[at_key(rp_key_of(empty->key))],
        rp_key_word(RP_SLOT_FREE, rp_key_of(empty->key)));
    TABLE("writer", 0, "p->keys[rp_slot_of(p, key)] == rp_key_word(RP_SLOT_RESERVED, key)");
    set(&empty->key, rp_key_word(RP_ENTRY_LOST, rp_key_of(empty->key)));
    TABLE("writer", 2, "reserved.slots == held.slots && reserved.keys == held.keys");
}

static void wrong_steps_that_wait(void) {
    uint64_t next = rp_writer_at(p, 0)->next_sequence;
    struct rp_entry *e = rp_entry_at(p, 0, next - 1);
    uint64_t step = rp_stream_at(p, 0, 0)->next_step, most = tables[0].pieces_max;
    const char *pieces = "pieces >= 1 && pieces <= v->table->header->facts.pieces_max";
    CHECK(e->facts == rp_entry_facts(0, 0, 1, 1) && e->pieces[0] == 1);
    set(&e->facts, rp_entry_facts(2, 0, 1, 1));
    WHOLE;
    set(&e->facts, rp_entry_facts(3, 0, 1, 1));
    TABLE("writer", 0, "rp_entry_stream(entry) < rp_writer_at(p, index)->streams");
    set(&e->facts, rp_entry_facts(0, RP_RUN_END, 1, 1));
    WHOLE;
    set(&e->facts, rp_entry_facts(0, RP_RUN_FLAGS + 1, 1, 1));
    TABLE("writer", 0, "!(flags & ~RP_RUN_FLAGS)");
    set(&e->facts, rp_entry_facts(0, RP_RUN_PRIORITY, 1, 1));
    TABLE("writer", 0, "!(flags & RP_RUN_PRIORITY) || flags & RP_RUN_ITEM");
    set(&e->facts, rp_entry_facts(0, RP_RUN_ITEM, 1, 1)); /* of a table whose items have windows */
    TABLE("writer", 0,
          "!(flags & RP_RUN_ITEM) || (!(flags & RP_RUN_END) && p->reach_behind + p->reach_ahead "
          "== 0)");
    set(&e->facts, rp_entry_facts(0, 0, 0, 0));
    TABLE("writer", 0, pieces);
    set(&e->facts, rp_entry_facts(0, 0, most, most));
    set(&e->pieces[0], UINT64_MAX);
    set(&e->pieces[1], (1ull << (most - 64)) - 1);
    WHOLE;
    set(&e->facts, rp_entry_facts(0, 0, most, most));
    set(&e->pieces[0], UINT64_MAX - 1);
    set(&e->pieces[1], (1ull << (most - 63)) - 1);
    TABLE("writer", 0, "bits_beyond == 0");
    set(&e->pieces[0], 2); /* of the one piece that it has */
    TABLE("writer", 0, "bits_beyond == 0");
    set(&e->facts, rp_entry_facts(0, 0, 64, 64));
    set(&e->pieces[0], UINT64_MAX);
    WHOLE;
    set(&e->facts, rp_entry_facts(0, 0, 64, 64));
    set(&e->pieces[0], UINT64_MAX - 1);
    set(&e->pieces[1], 1);
    TABLE("writer", 0, "bits_beyond == 0");
    set(&e->facts, rp_entry_facts(0, 0, most + 1, most + 1));
    TABLE("writer", 0, pieces);
    set(&e->pieces[0], 3);
    TABLE("writer", 0, "p->bitmap_words == 0 || bits == rp_entry_received(entry)");
    set(&e->facts, rp_entry_facts(0, 0, 1, 2));
    set(&e->pieces[0], 3);
    TABLE("writer", 0, "rp_entry_received(entry) <= pieces");
    set(&e->facts, rp_entry_facts(0, 0, 2, 1));
    TABLE("writer", 0, "(state == RP_ENTRY_COMPLETE) == (rp_entry_received(entry) == pieces)");
    set(&e->key, rp_key_word(RP_ENTRY_PARTIAL, rp_key_of(e->key)));
    TABLE("writer", 0, "(state == RP_ENTRY_COMPLETE) == (rp_entry_received(entry) == pieces)");
    set(&e->step, step);
    WHOLE;
    set(&e->step, step - 1);
    TABLE("writer", 0,
          "entry->step >= rp_stream_at(p, index, rp_entry_stream(entry))->next_step");
    set(&e->step, RP_KEY_MASK);
    WHOLE;
    set(&e->step, RP_KEY_MASK + 1);
    TABLE("writer", 0, "entry->step <= RP_KEY_MASK");
    set(&e->priority, 0x7FF8000000000000u);
    WHOLE; /* it has none: what is there is not read */
}

static void wrong_header(void) {
    struct rp_table_header *h = rp_server_table(script.server, 0)->header;
    const char *head = "header->epoch != 0 && header->head >= p->capacity && header->head <= "
                       "RP_KEY_MASK";
    set(&h->epoch, 0);
    TABLE("header", 0, head);
    set(&h->head, p->capacity);
    WHOLE;
    set(&h->head, p->capacity - 1);
    TABLE("header", 0, head);
    set(&h->head, RP_KEY_MASK);
    WHOLE;
    set(&h->head, RP_KEY_MASK + 1);
    TABLE("header", 0, head);
    const char *maximum = "header->maximum >= RP_POWER_ONE && header->maximum <= p->mass_max";
    set(&h->maximum, RP_POWER_ONE - 1);
    TABLE("header", 0, maximum);
    set(&h->maximum, p->mass_max);
    WHOLE;
    set(&h->maximum, p->mass_max + 1);
    TABLE("header", 0, maximum);
    set(&h->resetting, 1);
    TABLE("header", 0, "header->resetting == 0 && header->resetting_not == 0");
    set(&h->resetting_not, 1);
    TABLE("header", 0, "header->resetting == 0 && header->resetting_not == 0");
    for (uint32_t kept = 0; kept < 5; kept++) {
        for (uint32_t i = 0; i < 4; i++) {
            if (i != kept) {
                set(&h->random.s[i], 0);
            }
        }
        if (kept < 4) {
            WHOLE;
        } else {
            TABLE("header", 0, "(header->random.s[0] | header->random.s[1] | header->random.s[2] "
                               "| header->random.s[3]) != 0");
        }
    }
}

/* Given items that reach nothing, of a table whose items reach one step ahead. */
static void wrong_short_reach(void) {
    const struct rp_table *table = rp_server_table(script.server, 1);
    struct rp_table_private *q = table->private;
    char error[256];
    CHECK(q->reach_behind + q->reach_ahead == 0 && rp_table_verify(table, error) == 0);
    q->reach_ahead = 1;
    CHECK(rp_table_verify(table, error) == -RP_BAD_REGION);
    CHECK(strstr(error, "ahead == p->reach_ahead || (ended && ahead == rows)"), "%s", error);
    q->reach_ahead = 0;
}

/* Given parts of the ring. Expect each to be looked at up to its end, which is the ring's at most,
 * and what is damaged counted, the first by its key. */
static void wrong_bytes(void) {
    const struct rp_table *table = rp_server_table(script.server, 0);
    struct rp_damage all = {0}, part = {0}, rest = {0};
    char error[256] = "", said[256];
    uint32_t end = p->capacity;
    CHECK(rp_table_verify_steps(table, 0, UINT32_MAX, &all) == end && all.damaged == 0);
    CHECK(rp_table_verify_steps(table, 0, end - 4, &part) == end - 4);
    CHECK(rp_table_verify_steps(table, end - 4, 5, &rest) == end);
    CHECK(part.steps + rest.steps == all.steps && rest.steps <= 4 && all.steps > 0);
    CHECK(rp_server_verify_steps(script.server, error) == 0, "%s", error);
    uint64_t key = UINT64_MAX;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t slot = slot_of(i ? ITEM : PLAIN);
        p->steps[(size_t)slot * p->step_bytes + 1] ^= 1;
        key = rp_key_at(p, &p->slots[slot]) < key ? rp_key_at(p, &p->slots[slot]) : key;
    }
    snprintf(said, sizeof said,
             "the region is damaged: table main: 2 of %llu steps are not the bytes that were "
             "stored, the first has key %llu; start with a new region, or serve it as it is "
             "without verify", (unsigned long long)all.steps, (unsigned long long)key);
    CHECK(rp_server_verify_steps(script.server, error) == -RP_BAD_REGION);
    CHECK(strcmp(error, said) == 0, "\"%s\"", error);
    for (uint32_t i = 0; i < 2; i++) {
        p->steps[(size_t)slot_of(i ? ITEM : PLAIN) * p->step_bytes + 1] ^= 1;
    }
    check_group("its steps");
}

int main(void) {
    make_server();
    wrong_header();
    wrong_keys();
    wrong_leaves();
    wrong_items();
    wrong_links();
    wrong_windows();
    wrong_short_reach();
    check_group("a table's header, slots and windows");
    wrong_streams();
    wrong_entries();
    wrong_steps_that_wait();
    check_group("its writers");
    wrong_bytes();
    printf("  %u cases\n", cases);
    rp_server_check(script.server);
    script_close(&script);
    return check_done("test_verify");
}
