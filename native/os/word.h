/* Sleeping on a 32-bit word until another thread changes it and says so: futex(2) on Linux, else
 * a mutex that the word's address is hashed to, and a condition of each sleeper's own.
 *
 * A wait returns at once where the word is not `value` any more. It may return early, for a signal
 * or for nothing: the caller looks again. Waking looks at the address alone, so the word may be
 * freed by then. All words are this process's own.
 */
#ifndef RP_OS_WORD_H
#define RP_OS_WORD_H

#include <stdatomic.h>
#include <stdint.h>

#define RP_WORD_FOREVER UINT64_MAX

/* `timeout_ns` is a duration, RP_WORD_FOREVER: until woken. */
void rp_word_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
/* Wakes all threads that wait on it. */
void rp_word_wake(_Atomic uint32_t *word);

/* Waits until it is woken with one of the same bits. */
void rp_word_wait_bits(_Atomic uint32_t *word, uint32_t value, uint32_t bits);
void rp_word_wake_bits(_Atomic uint32_t *word, uint32_t bits);

#endif
