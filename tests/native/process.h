/* process.h: what a native test asks the kernel about its own process. */
#ifndef RP_TEST_PROCESS_H
#define RP_TEST_PROCESS_H

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* Open descriptors; the one that counts is among them each time. */
__attribute__((unused)) static int open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Descriptors that a program started by this one would have too; the first three aside. */
__attribute__((unused)) static int inherited_descriptors(void) {
    int count = 0;
    for (int i = 3; i < 1024; i++) {
        int flags = fcntl(i, F_GETFD);
        count += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    return count;
}

/* Bytes of addresses in use: of the heap, or of all mappings. */
__attribute__((unused)) static size_t heap_bytes(void) {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

__attribute__((unused)) static size_t mapped_bytes(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Places of this process's memory where files lie whose path holds `part`. */
__attribute__((unused)) static int mappings_of(const char *part) {
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        count += strstr(line, part) != NULL;
    }
    fclose(file);
    return count;
}

#endif
