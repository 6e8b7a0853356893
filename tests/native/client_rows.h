/* What the writer of the table "rows" has told, for tests of pushes. */
#ifndef RP_CLIENT_ROWS_H
#define RP_CLIENT_ROWS_H

#include "client_world.h"

enum { ROWS = 1 };

static struct rp_push_state state_of(const struct world *world) {
    struct rp_push_state state;
    rp_client_push_state(world->client, ROWS, &state);
    return state;
}

static void settle(struct world *world) {
    uint64_t end = world_later(world, 10000);
    while (state_of(world).messages_open > 0) {
        CHECK(world->now_ns < end, "pushes never settle");
        CHECK(state_of(world).status == 0, "the writer ended: %d", state_of(world).status);
        world_step(world, WORLD_MS);
    }
}

#endif
