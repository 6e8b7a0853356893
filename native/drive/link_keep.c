/* The keeper: a thread that turns a link while no caller does, such as during a reset that takes a
 * minute, an evaluation, or in a debugger. The session stays open, posted requests are sent and
 * repeated, and room that the limiter made is used in time.
 *
 * It looks at the clock every now and then, and takes turns only where no other thread did
 * meanwhile: a caller turns the link itself, sooner. There is no keeper over loopback, where a
 * session does not end by silence and a server may have no thread but its callers'.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "drive/link_drive.h"
#include "os/word.h"

enum {
    LOOK_NS = 20000000,   /* while something is under way, */
    COME_NS = 100000000,  /* while callers come, */
    REST_NS = 500000000,  /* and while neither is so */
    SOON_NS = 1100000000, /* what is under way has a timer that is due so soon */
};

static int is_left_alone(const struct rp_link *link, uint64_t now) {
    return !link->driven && now - link->looked_ns >= LOOK_NS;
}

static uint32_t keep_turn(void *owner) {
    struct rp_link *link = owner;
    if (rp_gate_enter(&link->gate)) {
        return 0; /* closing: its end is near */
    }
    uint32_t moved = 0;
    if (is_left_alone(link, rp_link_now(link))) {
        moved = rp_link_turn(link);
        link->kept_ns = link->looked_ns;
    }
    rp_gate_leave(&link->gate);
    return moved;
}

static void keep_sleep(void *owner) {
    struct rp_link *link = owner;
    uint64_t time_ns = LOOK_NS;
    if (rp_gate_enter(&link->gate) == 0) {
        if (link->driven || link->looked_ns != link->kept_ns) {
            time_ns = COME_NS;
        } else if (rp_client_deadline(link->client) > rp_link_now(link) + SOON_NS) {
            time_ns = REST_NS;
        }
        rp_gate_leave(&link->gate);
    }
    rp_word_wait(&link->keeper_ends, 0, time_ns);
}

static void keep_wake(void *owner) {
    struct rp_link *link = owner;
    atomic_store(&link->keeper_ends, 1);
    rp_word_wake(&link->keeper_ends);
}

void rp_link_keep(struct rp_link *link) {
    struct rp_pump_job job = {.turn = keep_turn, .sleep = keep_sleep, .wake = keep_wake,
                              .owner = link};
    (void)rp_pump_start(&link->keeper, &job);
}

void rp_link_end_keeper(struct rp_link *link) {
    rp_gate_step_out(&link->gate);
    rp_pump_stop(&link->keeper);
    rp_gate_step_in(&link->gate);
}
