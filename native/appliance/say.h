/* What replay-serve says on its stdout and stderr: lines that are written or dropped, never waited
 * for. A reader that is gone, or that does not read, is no reason to end, nor to be deaf for
 * signals. A line that finds no room within RP_SAY_MS is dropped; those behind it wait no more,
 * until one is taken again. That one follows a line that says how many are missing.
 *
 * The program ignores SIGPIPE. One thread says everything. A pipe that has room for anything has
 * room for a line; only another program that fills the same pipe just then could make it wait.
 */
#ifndef RP_SAY_H
#define RP_SAY_H

enum rp_say_limits {
    RP_SAY_MS = 200,
    RP_SAY_BYTES = 1024, /* of a line; what is longer is cut */
};

/* One line, without its end, to file 1 or 2. */
__attribute__((format(printf, 2, 3))) void rp_say(int file, const char *format, ...);

#endif
