/* In the way of the POSIX build, which must not include it. */
#error "sys/signalfd.h: only Linux has it, the POSIX build must not include it"
