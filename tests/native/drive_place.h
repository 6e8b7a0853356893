/* A folder of a test's own, and commands in it. */
#ifndef RP_DRIVE_PLACE_H
#define RP_DRIVE_PLACE_H

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

static char place[40];

static void sh(const char *command) {
    char text[256];
    snprintf(text, sizeof text, "cd %s && %s", place, command);
    CHECK(system(text) == 0, "%s", text);
}

#endif
