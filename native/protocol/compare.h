/* A region and the configuration it is opened with, compared field by field.
 *
 * A field that decides where things lie or what stored numbers mean must be the region's: the first
 * one that is not ends the comparison with both values in a sentence. A field that may change is
 * noted in words; attach then takes the configuration's value. Nothing is set aside silently.
 */
#ifndef RP_COMPARE_H
#define RP_COMPARE_H

#include <stdint.h>

enum rp_compare_limits { RP_COMPARE_BYTES = 256, RP_COMPARE_VALUE_BYTES = 41 };

struct rp_comparison {
    char what[RP_COMPARE_VALUE_BYTES]; /* whose fields these are: " of table main", or "" */
    char changes[RP_COMPARE_BYTES];    /* "idle_ms 30000 -> 1000, ..."; cut where it is too long */
    char error[RP_COMPARE_BYTES];      /* the first difference that cannot be; or "" */
};

/* Fields that must be equal. All do nothing once there is an error. */
void rp_compare_number(struct rp_comparison *c, const char *name, uint64_t had, uint64_t wants);
void rp_compare_real(struct rp_comparison *c, const char *name, double had, double wants);
void rp_compare_text(struct rp_comparison *c, const char *name, const char *had, const char *wants);
/* Fields that may change. */
void rp_compare_change(struct rp_comparison *c, const char *name, double had, double wants);

#endif
