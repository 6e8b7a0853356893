/* A group of many, for a test that names it. */
#ifndef RP_TEST_CROWD_H
#define RP_TEST_CROWD_H

#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include "check.h"

/* In a file of groups, made near `path`, that this process alone sees. 0: it may not. */
static int gather_crowd(const char *path, int group, int members) {
    char groups[128];
    snprintf(groups, sizeof groups, "%s_groups", path);
    FILE *file = fopen(groups, "w");
    CHECK(file && fprintf(file, "crowd:x:%d:", group) > 0);
    for (int i = 0; i < members; i++) {
        fprintf(file, "%smember%d", i ? "," : "", i);
    }
    CHECK(fputs("\n", file) >= 0 && fclose(file) == 0);
    int hidden = unshare(CLONE_NEWNS) == 0
        && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
        && mount(groups, "/etc/group", NULL, MS_BIND, NULL) == 0;
    CHECK(unlink(groups) == 0);
    return hidden;
}

#endif
