/* Lines, written or dropped: see say.h. */
#include "appliance/say.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(RP_SAY_BYTES <= PIPE_BUF, "a pipe takes a line whole or not at all");

static uint64_t dropped[3]; /* lines since the last that was taken, of each file */

/* 1 where the line was taken. */
static int write_line(int file, const char *line, size_t size, int wait_ms) {
    struct pollfd ready = {.fd = file, .events = POLLOUT};
    while (size > 0) {
        if (poll(&ready, 1, wait_ms) != 1 || !(ready.revents & POLLOUT)) {
            return 0;
        }
        ssize_t written = write(file, line, size);
        if (written <= 0) { /* nobody reads, or the disk is full */
            return 0;
        }
        line += written;
        size -= (size_t)written;
    }
    return 1;
}

/* As the counters are said, so that whoever reads those can read this. */
static int write_dropped(int file) {
    char line[RP_SAY_BYTES];
    int size = snprintf(line, sizeof line, "%-26s %12llu  lines before this one had no reader\n",
                        "lines_dropped", (unsigned long long)dropped[file]);
    return write_line(file, line, (size_t)size, 0);
}

void rp_say(int file, const char *format, ...) {
    char line[RP_SAY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    size_t size = strlen(line);
    line[size] = '\n';
    int wait_ms = dropped[file] ? 0 : RP_SAY_MS;
    if (dropped[file] && write_dropped(file)) {
        dropped[file] = 0;
    }
    if (dropped[file] || !write_line(file, line, size + 1, wait_ms)) {
        dropped[file]++;
    }
}
