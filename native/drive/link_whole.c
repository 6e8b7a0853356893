/* Whole calls of a link: a request is posted, waited for and taken in one, with one stay in the
 * gate. A caller in another language pays for each call and each layer of its own; here a request
 * costs it one.
 *
 * The progress of a call lies in the caller's memory (rp_place, rp_setting). A call returns
 * RP_PENDING from time to time, so that its caller can handle signals; called again, it goes on
 * where it was. A place may be shut by another thread, and is that one's memory from then on: so it
 * is written inside the gate alone, weights too, and not looked at once the gate was left.
 */
#include "base/minmax.h"
#include "drive/link_drive.h"
#include "base/power.h"

struct drawing {
    const struct rp_draw *draw;
    const uint64_t *keys;
    struct rp_place *place;
    uint64_t timeout_ns;
    double beta;
    int entered; /* the gate */
};

/* RP_PENDING, with the ticket in the place; none there: the queue is full. Else why not. */
static int post_draw(struct rp_link *link, const struct drawing *drawing) {
    const struct rp_draw *draw = drawing->draw;
    if (rp_client_incarnation(link->client) != draw->incarnation) {
        return -RP_STALE_EPOCH;
    }
    /* 0: waits for an answer, not for the limiter */
    uint64_t deadline = drawing->timeout_ns ? rp_link_deadline(link, drawing->timeout_ns) : 0;
    int ticket = rp_client_sample(link->client, draw->table, &draw->request, drawing->keys,
                                  &drawing->place->landing, deadline);
    if (ticket <= 0) {
        return ticket == -RP_FULL ? RP_PENDING : ticket;
    }
    drawing->place->ticket = ticket;
    return RP_PENDING;
}

int rp_link_draw_post(struct rp_link *link, const struct rp_draw *draw, struct rp_place *place,
                      uint64_t timeout_ns) {
    int status = rp_gate_enter(&link->gate);
    if (status) {
        return status;
    }
    status = RP_PENDING;
    if (!place->ticket) {
        status = post_draw(link, &(struct drawing){draw, NULL, place, timeout_ns, 0.0, 1});
        rp_link_posted(link);
    }
    rp_gate_leave(&link->gate);
    return status;
}

static int try_draw(struct rp_link *link, void *argument) {
    struct drawing *drawing = argument;
    struct rp_place *place = drawing->place;
    drawing->entered = 1;
    if (place->ticket < 0) {
        return -RP_CLOSED;
    }
    if (!place->ticket) {
        int status = post_draw(link, drawing);
        if (!place->ticket) {
            return status;
        }
        rp_link_posted_to_wait(link);
    }
    int status = rp_client_poll(link->client, place->ticket);
    rp_client_blocked(link->client, place->ticket, &place->blocked);
    if (status != RP_PENDING) {
        rp_client_take(link->client, place->ticket);
        place->ticket = 0;
    }
    if (status == 0 || status == -RP_SHORT_BATCH) {
        rp_place_weigh(place, drawing->draw->uniform, drawing->beta);
    }
    return status;
}

int rp_link_draw(struct rp_link *link, const struct rp_draw *draw, const uint64_t *keys,
                 double beta, struct rp_place *place, uint64_t timeout_ns, uint64_t patience_ns) {
    struct drawing drawing = {draw, keys, place, timeout_ns, beta, 0};
    int status = rp_link_until(link, try_draw, &drawing, patience_ns);
    if (!drawing.entered && place->ticket > 0) {
        place->ticket = 0; /* a link that closed has none any more */
    }
    return status;
}

void rp_link_draw_shut(struct rp_link *link, struct rp_place *place) {
    if (rp_gate_enter(&link->gate)) {
        return;
    }
    if (place->ticket > 0) {
        rp_client_take(link->client, place->ticket);
        rp_link_posted(link); /* what withdraws it */
    }
    place->ticket = -1;
    rp_gate_leave(&link->gate);
}

/* The first that is no priority, as replay.h defines it. Those before it are at most `largest`. */
static uint32_t usable(const double *priorities, uint32_t count, double *largest) {
    uint32_t first = 0;
    for (*largest = 0.0; first < count && rp_power_valid(priorities[first]); first++) {
        *largest = rp_max(*largest, priorities[first]);
    }
    return first;
}

struct set {
    uint64_t incarnation;
    uint64_t epoch;
    const uint64_t *keys;
    const double *priorities;
    struct rp_setting *setting;
    uint64_t timeout_ns;
    uint32_t count;
    uint16_t table;
};

/* As much of what is left as there is room for: 0, RP_PENDING: there is none, or a status. */
static int set_some(struct rp_link *link, const struct set *set) {
    struct rp_setting *setting = set->setting;
    uint32_t left = set->count - setting->done, room = rp_client_update_room(link->client);
    if (room == 0) {
        return RP_PENDING;
    }
    setting->part = rp_min(left, room);
    int ticket = rp_client_update(link->client, set->table, set->epoch,
                                  set->keys + setting->done, set->priorities + setting->done,
                                  setting->part, &setting->answer,
                                  rp_link_deadline(link, set->timeout_ns));
    if (ticket <= 0) {
        return ticket == -RP_FULL ? RP_PENDING : ticket;
    }
    setting->ticket = ticket;
    rp_link_posted_to_wait(link);
    return 0;
}

/* Counts what became of the part that ended with `status`: 0, or a status that ends the call. */
static int count_part(struct rp_setting *setting, int status) {
    setting->done += setting->part;
    if (status == -RP_STALE_EPOCH || status == -RP_UNKNOWN_TABLE) {
        setting->stale += setting->part;
        return 0;
    }
    if (status == 0) {
        setting->applied += setting->answer.applied;
        setting->stale += setting->answer.stale;
        setting->unknown += setting->answer.unknown;
    }
    return status;
}

/* What became of the part under way: RP_PENDING, or as count_part. */
static int take_part(struct rp_link *link, struct rp_setting *setting) {
    int status = rp_client_poll(link->client, setting->ticket);
    if (status == RP_PENDING) {
        return status;
    }
    rp_client_take(link->client, setting->ticket);
    setting->ticket = 0;
    return count_part(setting, status);
}

static int try_set(struct rp_link *link, void *argument) {
    const struct set *set = argument;
    struct rp_setting *setting = set->setting;
    int status = 0;
    if (!setting->done && !setting->ticket
        && rp_client_incarnation(link->client) != set->incarnation) {
        return -RP_STALE_EPOCH;
    }
    while (status == 0 && (setting->ticket || setting->done < set->count)) {
        status = setting->ticket ? take_part(link, setting) : set_some(link, set);
    }
    return status;
}

int rp_link_set(struct rp_link *link, uint64_t incarnation, uint16_t table, uint64_t epoch,
                const uint64_t *keys, const double *priorities, uint32_t count,
                struct rp_setting *setting, uint64_t timeout_ns, uint64_t patience_ns) {
    struct set set = {incarnation, epoch, keys, priorities, setting, timeout_ns, count, table};
    int is_posted = setting->ticket || setting->done; /* what it points to is looked at no more */
    if (!is_posted && usable(priorities, count, &setting->largest) < count) {
        return -RP_BAD_PRIORITY;
    }
    int status = rp_link_until(link, try_set, &set, patience_ns);
    setting->ticket = status == RP_PENDING ? setting->ticket : 0;
    return status;
}

uint32_t rp_priorities_usable(const double *priorities, uint32_t count) {
    double largest;
    return usable(priorities, count, &largest);
}

uint32_t rp_priorities_above(const double *priorities, uint32_t count, double bound) {
    uint32_t first = 0;
    while (first < count && priorities[first] <= bound) {
        first++;
    }
    return first;
}
