/* What a verification found: the first invariant that does not hold, as a sentence. */
#ifndef RP_VERDICT_H
#define RP_VERDICT_H

#include <stdint.h>
#include <stdio.h>

#include "protocol/status.h"

struct verdict {
    const struct rp_table *table;   /* whose words are looked at, */
    const struct rp_server *server; /* or whose */
    const char *name;               /* the table's */
    const char *part;               /* "slot", "writer", "session" */
    uint64_t number;
    char *error;
};

static inline int broken(const struct verdict *v, const char *what) {
    snprintf(v->error, 256,
             "the region is damaged: %s%.31s%s%s %llu: %.100s does not hold; start with a new "
             "region",
             v->name ? "table " : "", v->name ? v->name : "", v->name ? ", " : "", v->part,
             (unsigned long long)v->number, what);
    return -RP_BAD_REGION;
}

#define HOLDS(condition) \
    do { \
        if (!(condition)) { \
            return broken(v, #condition); \
        } \
    } while (0)

#endif
