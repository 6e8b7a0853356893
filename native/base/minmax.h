/* The smaller and the larger of two numbers, in the type that C's own arithmetic gives the pair.
 *
 * _Generic looks at the type of a + b without evaluating it, so each argument is evaluated once
 * and nothing is cut: of a uint32_t and a uint64_t both are compared as uint64_t.
 */
#ifndef RP_MINMAX_H
#define RP_MINMAX_H

#define RP_MINMAX(name, type)                                                                      \
    static inline type rp_min_##name(type a, type b) { return a < b ? a : b; }                     \
    static inline type rp_max_##name(type a, type b) { return a > b ? a : b; }

RP_MINMAX(int, int)
RP_MINMAX(unsigned, unsigned)
RP_MINMAX(long, long)
RP_MINMAX(unsigned_long, unsigned long)
RP_MINMAX(long_long, long long)
RP_MINMAX(unsigned_long_long, unsigned long long)
RP_MINMAX(double, double)

#define RP_MINMAX_OF(which, a, b)                                                                  \
    _Generic((a) + (b),                                                                            \
        int: rp_##which##_int,                                                                     \
        unsigned: rp_##which##_unsigned,                                                           \
        long: rp_##which##_long,                                                                   \
        unsigned long: rp_##which##_unsigned_long,                                                 \
        long long: rp_##which##_long_long,                                                         \
        unsigned long long: rp_##which##_unsigned_long_long,                                       \
        double: rp_##which##_double)(a, b)

#define rp_min(a, b) RP_MINMAX_OF(min, a, b)
#define rp_max(a, b) RP_MINMAX_OF(max, a, b)

#endif
