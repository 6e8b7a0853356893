/* Which system this is built for: Linux, or any POSIX system (RP_POSIX).
 *
 * The POSIX build has no epoll, eventfd, timerfd, futex, recvmmsg or GSO; poll, pipes, conditions
 * and one call a datagram take their places, at the same interfaces. It is chosen where there is no
 * Linux, and by -DRP_POSIX on Linux, where the suite runs over it. Only this room knows the choice.
 */
#ifndef RP_OS_POSIX_H
#define RP_OS_POSIX_H

#if !defined RP_POSIX && !defined __linux__
#define RP_POSIX 1
#endif

#endif
