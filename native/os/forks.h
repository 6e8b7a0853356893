/* Moments at which no fork(2) of this process begins. A forked child has to close what is its
 * parent's alone (sockets, locked files), and finds it by looking where the parent keeps it. So
 * who opens, closes or moves such a descriptor does it between hold and allow, together with the
 * words that say where it is. A child then finds it from before the change or after.
 *
 * Any number of threads may hold at once, and one may hold several times. A fork waits for them,
 * and a thread that begins to hold waits for a fork that waits. So what lies between is short, a
 * few system calls, and needs no lock that a thread may have when it begins to hold. A thread that
 * forks, also in a signal's handler, does not wait for itself.
 */
#ifndef RP_OS_FORKS_H
#define RP_OS_FORKS_H

void rp_forks_hold(void);
void rp_forks_allow(void);
/* From now on every forked child calls this as it begins, with its one thread: it may close, free
 * and hold, and must take no other lock. One function a process. */
void rp_forks_watch(void (*in_child)(void));

#endif
