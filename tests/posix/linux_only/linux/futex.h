/* In the way of the POSIX build, which must not include it. */
#error "linux/futex.h: only Linux has it, the POSIX build must not include it"
