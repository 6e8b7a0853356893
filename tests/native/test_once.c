/* The record of numbered requests tells new, open, done and old ids apart exactly as a plain
 * list of everything that ever happened does, for ids in any order and with any gaps. */
#include <string.h>

#include "check.h"
#include "server/once.h"
#include "base/random.h"

enum { IDS = 4096 };

static struct {
    struct rp_intent_log log;
    struct rp_once once;
} region __attribute__((aligned(64)));

struct plain { /* everything that ever happened */
    uint8_t done[IDS];
    uint64_t newest;
};

static enum rp_once_state expected(const struct plain *plain, uint64_t id) {
    if (id > plain->newest) {
        return RP_ONCE_NEW;
    }
    if (plain->newest - id >= RP_ONCE_WINDOW) {
        return RP_ONCE_OLD;
    }
    return plain->done[id] ? RP_ONCE_DONE : RP_ONCE_OPEN;
}

static void check_all(const struct plain *plain) {
    for (uint64_t id = 1; id < IDS; id++) {
        enum rp_once_state state = rp_once_look(&region.once, id);
        CHECK(state == expected(plain, id), "id %" PRIu64 " of newest %" PRIu64 ": state %d", id,
              plain->newest, (int)state);
    }
}

/* Of the ids below this one those are done whose bit is 0; the largest of them is known from then
 * on. */
static void tell(struct plain *plain, uint64_t id, uint64_t open) {
    for (uint64_t i = 0; i < RP_ONCE_WINDOW && i + 1 < id; i++) {
        if (!(open >> i & 1) && id - 1 - i > plain->newest) {
            plain->newest = id - 1 - i;
        }
    }
    for (uint64_t i = 0; i < RP_ONCE_WINDOW && i + 1 < id; i++) {
        plain->done[id - 1 - i] |=
            !(open >> i & 1) && plain->newest - (id - 1 - i) < RP_ONCE_WINDOW;
    }
}

static void walk(struct rp_random *random, uint64_t most) {
    struct plain plain = {{0}, 0};
    struct rp_intent intent;
    memset(&region, 0, sizeof region);
    rp_intent_open(&intent, &region, sizeof region, &region.log);
    check_all(&plain);
    while (plain.newest + most + 2 < IDS) {
        uint64_t reach = 2 * RP_ONCE_WINDOW < plain.newest ? 2 * RP_ONCE_WINDOW : plain.newest;
        int ahead = reach == 0 || rp_random_below(random, 2);
        uint64_t id = ahead ? plain.newest + 1 + rp_random_below(random, most)
                            : plain.newest - rp_random_below(random, reach);
        int done = (int)rp_random_below(random, 3) > 0;
        enum rp_once_state before = expected(&plain, id);
        rp_once_take(&region.once, &intent, id, done);
        CHECK(rp_once_look(&region.once, id) == before, "nothing before the commit");
        rp_intent_commit(&intent);
        plain.newest = id > plain.newest ? id : plain.newest;
        plain.done[id] |= done && plain.newest - id < RP_ONCE_WINDOW;
        check_all(&plain);
        uint64_t open = rp_random_next(random) | rp_random_next(random);
        open = rp_random_below(random, 4) ? open : rp_random_below(random, 2) ? 0 : UINT64_MAX;
        id += rp_random_below(random, 3);
        rp_once_tell(&region.once, &intent, id, open);
        CHECK(intent.count == 0 || intent.count == 2);
        rp_intent_commit(&intent);
        tell(&plain, id, open);
        check_all(&plain);
    }
}

/* The edges of the window by name: 63 behind is told apart, 64 behind is old. */
static void check_edges(void) {
    struct rp_intent intent;
    memset(&region, 0, sizeof region);
    rp_intent_open(&intent, &region, sizeof region, &region.log);
    rp_once_take(&region.once, &intent, 1, 1);
    rp_intent_commit(&intent);
    CHECK(region.once.newest == 1 && region.once.done == 1);
    rp_once_take(&region.once, &intent, 64, 0);
    rp_intent_commit(&intent);
    CHECK(rp_once_look(&region.once, 1) == RP_ONCE_DONE);
    CHECK(rp_once_look(&region.once, 64) == RP_ONCE_OPEN);
    rp_once_take(&region.once, &intent, 65, 1);
    rp_intent_commit(&intent);
    CHECK(rp_once_look(&region.once, 1) == RP_ONCE_OLD);
    CHECK(rp_once_look(&region.once, 2) == RP_ONCE_OPEN);
    rp_once_take(&region.once, &intent, UINT64_MAX, 1);
    rp_intent_commit(&intent);
    CHECK(rp_once_look(&region.once, 65) == RP_ONCE_OLD);
    CHECK(rp_once_look(&region.once, UINT64_MAX) == RP_ONCE_DONE);
    check_group("the window's edges");
}

int main(void) {
    struct rp_random random;
    rp_random_seed(&random, check_seed(9));
    check_edges();
    for (uint64_t most = 1; most <= 256; most *= 4) {
        walk(&random, most);
    }
    check_group("the same as a list of everything");
    return check_done("test_once");
}
