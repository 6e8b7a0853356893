/* process.h: what a native test asks the kernel about its own process. */
#ifndef RP_TEST_PROCESS_H
#define RP_TEST_PROCESS_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

/* Open descriptors; the one that counts is among them each time. */
__attribute__((unused)) static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Places of this process's memory where files lie whose path holds `part`. */
__attribute__((unused)) static int mappings_of(const char *part)
{
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
