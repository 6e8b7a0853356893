/* Threads of the library's own in a process that is somebody else's. */
#ifndef RP_OS_THREAD_H
#define RP_OS_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Starts a thread that takes no signals: those are for the program's threads, where perhaps one
 * waits for them. But for those of its own faults, where its starter takes them: what a program has
 * installed to report a crash runs for this thread too. The mask is inherited, also by threads that
 * the new one starts; the caller's is put back. Returns pthread_create's. */
static inline int rp_thread_start(pthread_t *thread, const pthread_attr_t *attributes,
    void *(*run)(void *argument), void *argument) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked, before;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (!sigismember(&before, faults[i])) {
            sigdelset(&blocked, faults[i]);
        }
    }
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    int failed = pthread_create(thread, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

#endif
