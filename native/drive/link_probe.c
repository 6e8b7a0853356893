/* Measuring a link: puts and gets of one size, each waited for or several under way, timed from the
 * caller's memory to the caller's memory. One loop in C for every transport, so that the way there
 * and back is what is compared.
 *
 * A step carries its number: its first word is the number, its last word the number mixed, and the
 * words between count up. Steps that come back are checked by that. Where each call is waited for,
 * the check is not part of the measured time.
 */
#include <string.h>

#include "base/minmax.h"
#include "drive/clock.h"
#include "drive/link_drive.h"

enum { DRAWS_MAX = 8 }; /* under way at once */

#define MIX 0x9e3779b97f4a7c15u

/* ---- steps that can be checked ---- */

static void write_step(uint8_t *step, uint32_t bytes, uint64_t number) {
    uint64_t last = number * MIX;
    memcpy(step, &number, 8);
    memcpy(step + bytes - 8, &last, 8);
}

static void write_middle(uint8_t *step, uint32_t bytes) {
    for (uint64_t i = 1; i < bytes / 8 - 1; i++) {
        memcpy(step + 8 * i, &i, 8);
    }
}

static int ends_are_right(const uint8_t *step, uint32_t bytes) {
    uint64_t number, last;
    memcpy(&number, step, 8);
    memcpy(&last, step + bytes - 8, 8);
    return last == number * MIX;
}

static int is_right(const uint8_t *step, uint32_t bytes) {
    for (uint64_t i = 1; i < bytes / 8 - 1; i++) {
        uint64_t word;
        memcpy(&word, step + 8 * i, 8);
        if (word != i) {
            return 0;
        }
    }
    return ends_are_right(step, bytes);
}

/* ---- one put, one get ---- */

static int settle(struct rp_link *link, const struct rp_probe *probe) {
    uint64_t start = rp_clock_ns();
    int status = RP_PENDING;
    while (status == RP_PENDING && rp_clock_ns() - start < probe->patience_ns) {
        status = rp_link_settle(link, probe->table, RP_SLICE_NS);
    }
    return status == RP_PENDING ? -RP_TIMEOUT : status;
}

/* The steps at probe->memory; they are taken, not yet stored. */
static int push(struct rp_link *link, const struct rp_probe *probe) {
    uint64_t start = rp_clock_ns();
    for (uint32_t taken = 0; taken < probe->batch;) {
        int got = rp_link_push(link, probe->table, 0,
                               probe->memory + (size_t)taken * probe->bytes, probe->batch - taken,
                               RP_RUN_ITEM, NULL, RP_SLICE_NS);
        if (got < 0 || (got == 0 && rp_clock_ns() - start >= probe->patience_ns)) {
            return got ? got : -RP_TIMEOUT;
        }
        taken += (uint32_t)got;
    }
    return 0;
}

static int put(struct rp_link *link, struct rp_probe *probe) {
    int status = push(link, probe);
    return status ? status : settle(link, probe);
}

struct draw {
    struct rp_landing_column column;
    struct rp_landing landing;
    int ticket;
};

static int ask(struct rp_link *link, const struct rp_probe *probe, struct draw *draw,
               uint8_t *target) {
    struct rp_sample request = {.count = probe->batch};
    draw->column = (struct rp_landing_column){.target = target, .stride = probe->bytes,
                                              .size = probe->bytes};
    draw->landing = (struct rp_landing){.columns = &draw->column, .column_count = 1,
                                        .item_bytes = probe->bytes};
    draw->ticket = rp_link_sample(link, probe->table, &request, NULL, &draw->landing,
                                  probe->patience_ns);
    return draw->ticket > 0 ? 0 : draw->ticket;
}

/* The request ends by itself, at its time-out. */
static int await(struct rp_link *link, struct draw *draw) {
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_wait(link, draw->ticket, RP_SLICE_NS, NULL);
    }
    draw->ticket = 0;
    return status;
}

static int get(struct rp_link *link, struct rp_probe *probe) {
    struct draw draw;
    int status = ask(link, probe, &draw, probe->memory);
    return status ? status : await(link, &draw);
}

/* ---- the two measurements ---- */

static int is_possible(const struct rp_probe *probe) {
    return probe->memory && probe->batch > 0 && probe->bytes >= 16 && probe->bytes % 8 == 0
           && (probe->work == RP_PROBE_PUT || probe->work == RP_PROBE_GET);
}

static void number_steps(struct rp_probe *probe) {
    for (uint32_t i = 0; i < probe->batch; i++) {
        write_step(probe->memory + (size_t)i * probe->bytes, probe->bytes, probe->next++);
    }
}

static void begin(struct rp_probe *probe) {
    probe->done = probe->spent_ns = probe->wrong = 0;
    for (uint32_t i = 0; i < probe->batch; i++) {
        write_middle(probe->memory + (size_t)i * probe->bytes, probe->bytes);
    }
}

int rp_link_probe_latency(struct rp_link *link, struct rp_probe *probe, uint32_t *call_ns,
                          uint32_t count, uint64_t limit_ns) {
    uint64_t begun = rp_clock_ns();
    int status = 0;
    uint32_t calls = 0;
    if (!is_possible(probe)) {
        return -RP_BAD_ARGUMENT;
    }
    begin(probe);
    while (!status && calls < count && rp_clock_ns() - begun < limit_ns) {
        int puts = probe->work == RP_PROBE_PUT;
        if (puts) {
            number_steps(probe);
        }
        uint64_t start = rp_clock_ns();
        status = puts ? put(link, probe) : get(link, probe);
        uint64_t elapsed_ns = rp_clock_ns() - start;
        for (uint32_t i = 0; !status && !puts && i < probe->batch; i++) {
            probe->wrong += !is_right(probe->memory + (size_t)i * probe->bytes, probe->bytes);
        }
        probe->spent_ns += elapsed_ns;
        probe->done += status ? 0 : probe->batch;
        call_ns[calls++] = elapsed_ns < UINT32_MAX ? (uint32_t)elapsed_ns : UINT32_MAX;
    }
    return status ? status : (int)calls;
}

static int stream_puts(struct rp_link *link, struct rp_probe *probe, uint64_t limit_ns) {
    uint64_t start = rp_clock_ns();
    int status = 0;
    while (!status && (probe->done == 0 || rp_clock_ns() - start < limit_ns)) {
        number_steps(probe);
        status = push(link, probe);
        probe->done += status ? 0 : probe->batch;
    }
    status = status ? status : settle(link, probe);
    probe->spent_ns = rp_clock_ns() - start;
    return status;
}

static int land(struct rp_link *link, struct rp_probe *probe, struct draw *draw,
                const uint8_t *landed) {
    int status = await(link, draw);
    for (uint32_t i = 0; !status && i < probe->batch; i++) {
        probe->wrong += !ends_are_right(landed + (size_t)i * probe->bytes, probe->bytes);
    }
    probe->done += status ? 0 : probe->batch;
    return status;
}

/* Each draw has its own part of the memory. Whatever happens, none is under way at the end. */
static int stream_gets(struct rp_link *link, struct rp_probe *probe, uint64_t limit_ns) {
    struct draw draws[DRAWS_MAX] = {0};
    uint32_t depth = rp_min(probe->depth, DRAWS_MAX);
    size_t part = (size_t)probe->batch * probe->bytes;
    uint64_t start = rp_clock_ns();
    int status = 0;
    for (uint32_t i = 0; !status && i < depth; i++) {
        status = ask(link, probe, &draws[i], probe->memory + i * part);
    }
    for (uint32_t at = 0; !status && rp_clock_ns() - start < limit_ns; at = (at + 1) % depth) {
        status = land(link, probe, &draws[at], probe->memory + at * part);
        status = status ? status : ask(link, probe, &draws[at], probe->memory + at * part);
    }
    for (uint32_t i = 0; i < depth; i++) {
        if (draws[i].ticket > 0 && !status) {
            status = land(link, probe, &draws[i], probe->memory + i * part);
        } else if (draws[i].ticket > 0) {
            rp_link_take(link, draws[i].ticket);
        }
    }
    probe->spent_ns = rp_clock_ns() - start;
    return status;
}

int rp_link_probe_rate(struct rp_link *link, struct rp_probe *probe, uint64_t limit_ns) {
    if (!is_possible(probe) || probe->depth == 0) {
        return -RP_BAD_ARGUMENT;
    }
    begin(probe);
    return (probe->work == RP_PROBE_PUT ? stream_puts : stream_gets)(link, probe, limit_ns);
}
