/* Comparing values and saying what differs: see compare.h. */
#include "protocol/compare.h"

#include <stdio.h>
#include <string.h>

static void refuse(struct rp_comparison *c, const char *name, const char *had, const char *wants) {
    snprintf(c->error, sizeof c->error,
             "the region was made with %.32s %.40s%.40s, this configuration says %.40s: give the "
             "region's value, or name another region",
             name, had, c->what, wants);
}

void rp_compare_number(struct rp_comparison *c, const char *name, uint64_t had, uint64_t wants) {
    char text[2][RP_COMPARE_VALUE_BYTES];
    if (had != wants && !c->error[0]) {
        snprintf(text[0], sizeof text[0], "%llu", (unsigned long long)had);
        snprintf(text[1], sizeof text[1], "%llu", (unsigned long long)wants);
        refuse(c, name, text[0], text[1]);
    }
}

void rp_compare_real(struct rp_comparison *c, const char *name, double had, double wants) {
    char text[2][RP_COMPARE_VALUE_BYTES];
    if (had != wants && !c->error[0]) {
        snprintf(text[0], sizeof text[0], "%.9g", had);
        snprintf(text[1], sizeof text[1], "%.9g", wants);
        refuse(c, name, text[0], text[1]);
    }
}

void rp_compare_text(struct rp_comparison *c, const char *name, const char *had,
                     const char *wants) {
    char text[2][RP_COMPARE_VALUE_BYTES];
    if (strcmp(had, wants) != 0 && !c->error[0]) {
        snprintf(text[0], sizeof text[0], "\"%.38s\"", had);
        snprintf(text[1], sizeof text[1], "\"%.38s\"", wants);
        refuse(c, name, text[0], text[1]);
    }
}

void rp_compare_change(struct rp_comparison *c, const char *name, double had, double wants) {
    size_t used = strlen(c->changes);
    if (had != wants && !c->error[0]) {
        snprintf(c->changes + used, sizeof c->changes - used, "%s%s%s %.9g -> %.9g",
                 used > 0 ? ", " : "", name, c->what, had, wants);
    }
}
