/* table_memory.h: a table's four blocks side by side, where a test needs no segments. */
#ifndef RP_TABLE_MEMORY_H
#define RP_TABLE_MEMORY_H

#include "table/table.h"

static inline size_t table_memory_bytes(const struct rp_table_sizes *sizes) {
    return sizes->state + sizes->keys + sizes->steps + sizes->local;
}

static inline struct rp_table_memory table_memory_at(uint8_t *base,
                                                     const struct rp_table_sizes *sizes) {
    uint8_t *keys = base + sizes->state;
    uint8_t *steps = keys + sizes->keys;
    return (struct rp_table_memory){base, keys, steps, steps + sizes->steps};
}

#endif
