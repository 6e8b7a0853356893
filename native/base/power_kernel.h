/* power_kernel.h: the batch kernel that power.c may choose at run time; private to power*.c. */
#ifndef RP_POWER_KERNEL_H
#define RP_POWER_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this processor runs the kernel below. */
bool rp_power_avx512_able(void);

/* rp_power_masses for the scaled exponent `alpha`; returns how many masses were cut down. */
uint64_t rp_power_masses_avx512(uint64_t alpha, const double *priority, uint64_t *mass, size_t n,
                                uint64_t mass_max);

#endif
