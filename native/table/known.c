/* The index of steps that wait: which entry of a writer's window holds this step of this stream.
 *
 * A table of buckets for each writer, each the start of a list through the window's entries; both
 * hold numbers of entries (sequence mod window) plus one. At most one entry holds a step, and as
 * many buckets as entries keep the lists short. The peer chooses the steps, so the hash has a salt
 * that no peer knows (from the server's entropy, new at each attach), and a list has a bound: a
 * step that finds it full is lost, and its writer sends it again later. Two rounds, as one alone
 * leaves steps that follow each other side by side, and under some salts on top of each other.
 */
#include <assert.h>
#include <string.h>

#include "table/store.h"

uint32_t rp_known_bits(uint32_t window) {
    uint32_t bits = 1;
    while ((uint32_t)1 << bits < window) {
        bits++;
    }
    return bits;
}

static uint32_t *links_of(const struct rp_table_private *p, uint32_t writer) {
    return p->known + (size_t)writer * p->known_words;
}

static uint32_t *bucket_of(const struct rp_table_private *p, uint32_t writer, uint32_t stream,
                           uint64_t step) {
    uint64_t hash = (step << 12 ^ stream) * p->salt;
    hash = (hash ^ hash >> 32) * p->salt;
    return links_of(p, writer) + p->window + (hash >> (64 - p->known_bits));
}

/* The newest sequence that has this place in the window. */
static uint64_t sequence_at(const struct rp_table_private *p, uint32_t writer, uint32_t place) {
    uint64_t newest = rp_writer_at(p, writer)->next_sequence - 1;
    return newest - (newest % p->window + p->window - place) % p->window;
}

int rp_known_find(struct rp_table_private *p, uint32_t writer, uint32_t stream, uint64_t step,
                  uint64_t *sequence) {
    if (rp_hint_at(p, writer, stream)->known == 0) {
        return 0;
    }
    uint32_t length = 0;
    const uint32_t *links = links_of(p, writer);
    for (uint32_t at = *bucket_of(p, writer, stream, step); at != 0; at = links[at - 1]) {
        const struct rp_entry *entry = rp_entry_at(p, writer, at - 1);
        rp_work_add(p, 1);
        if (entry->step == step && rp_entry_stream(entry) == stream) {
            *sequence = sequence_at(p, writer, at - 1);
            return 1;
        }
        length++;
        assert(length <= p->window); /* one that closes on itself has no end */
    }
    return length < RP_BUCKET_MAX ? 0 : -1;
}

void rp_known_add(struct rp_table_private *p, uint32_t writer, uint64_t sequence) {
    const struct rp_entry *entry = rp_entry_at(p, writer, sequence);
    uint32_t *bucket = bucket_of(p, writer, rp_entry_stream(entry), entry->step);
    uint32_t place = (uint32_t)(sequence % p->window);
    links_of(p, writer)[place] = *bucket;
    *bucket = place + 1;
    rp_hint_at(p, writer, rp_entry_stream(entry))->known++;
}

void rp_known_remove(struct rp_table_private *p, uint32_t writer, uint64_t sequence) {
    const struct rp_entry *entry = rp_entry_at(p, writer, sequence);
    uint32_t *at = bucket_of(p, writer, rp_entry_stream(entry), entry->step);
    uint32_t place = (uint32_t)(sequence % p->window);
    for (uint32_t length = 1; *at != place + 1; length++) {
        assert(*at != 0 && length < p->window);
        rp_work_add(p, 1);
        at = &links_of(p, writer)[*at - 1];
    }
    *at = links_of(p, writer)[place];
    rp_hint_at(p, writer, rp_entry_stream(entry))->known--;
}

void rp_known_forget(struct rp_table_private *p, uint32_t writer, uint64_t sequence) {
    const struct rp_entry *entry = rp_entry_at(p, writer, sequence);
    if (rp_entry_known(entry)) {
        *bucket_of(p, writer, rp_entry_stream(entry), entry->step) = 0;
    }
}

void rp_known_clear(struct rp_table_private *p, uint32_t writer) {
    memset(links_of(p, writer), 0, p->known_words * sizeof(uint32_t));
}
