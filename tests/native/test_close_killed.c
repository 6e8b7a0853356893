/* A server that is killed as it gives a session up, at each store in turn, and the session's client
 * that comes back: no step is told to be stored that is not.
 */
#include <setjmp.h>

#include "base/site.h"
#include "script.h"
#include "table/store.h"

enum { STEPS = 4, KILLS_MAX = 500 };

static jmp_buf death;
static uint64_t left;
static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_push push;

void rp_site_hit(struct rp_site *site) {
    if (left > 0 && --left == 0) {
        site->kills++;
        longjmp(death, 1);
    }
}

static struct rp_pushed push_step(struct script_client *client, uint64_t epoch, uint64_t step) {
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, step, step, 1, 0);
    return script_pushed(script_push(&script, client, 0, 1 + step, &push));
}

/* All but step 1 of a stream, so that what is behind it waits; then silence for too long. */
static struct rp_pushed begin(struct script_client *client, uint64_t *epoch) {
    struct rp_pushed told = {0};
    script_tables(tables);
    config = script_config(tables);
    config.idle_ms = 1000;
    script_open(&script, &config);
    script.unchecked = 1;
    *client = script_client(1);
    script_connect(&script, client);
    *epoch = script_writer(&script, client, 0, 1).epoch;
    for (uint64_t step = 0; step < STEPS; step++) {
        if (step != 1) {
            told = push_step(client, *epoch, step);
        }
    }
    script_later(&script, 3000);
    script.now_ns += 200000000;
    script.server->turned_ns = script.now_ns; /* it did not stand still: the client was silent */
    script.server->unheard_ns = 0;
    return told;
}

/* The next process; 1 where session and writer are there as before. */
static int attach(const struct script_client *client) {
    script.port.leased = script.port.lent = 0;
    script_kill(&script);
    return rp_session_find(script.server, client->connection) != RP_NOBODY
           && rp_writer_find(rp_server_table(script.server, 0), client->connection) >= 0;
}

/* Steps that a client takes for stored by these two answers: those that done_through has passed,
 * where none was lost between them (client_pushed.c). */
static uint64_t taken_for_stored(struct rp_pushed before, struct rp_pushed after) {
    return after.lost_total == before.lost_total ? after.done_through : 0;
}

/* A turn that is killed at its store `at`; 1 where it came to its end before. */
static int turn_until(uint64_t at) {
    left = at;
    if (setjmp(death) != 0) {
        return 0;
    }
    script_turn(&script);
    left = 0;
    return 1;
}

int main(void) {
    uint32_t kills = 0, came_back = 0, half = 0;
    for (int ended = 0; !ended && kills < KILLS_MAX;) {
        struct script_client client;
        uint64_t epoch;
        struct rp_pushed before = begin(&client, &epoch);
        ended = turn_until(kills + 1);
        if (ended) {
            CHECK(rp_server_sessions(script.server) == 0, "it was given up");
        } else if (kills++, attach(&client)) {
            struct rp_pushed after = push_step(&client, epoch, 1);
            const struct rp_table *table = rp_server_table(script.server, 0);
            uint64_t stored = rp_stream_at(table->private, 0, 0)->next_step;
            CHECK(taken_for_stored(before, after) <= stored,
                  "killed at store %u: %" PRIu64 " stored", kills, stored);
            came_back++;
            half += after.lost_total > before.lost_total;
        }
        script_close(&script);
    }
    CHECK(kills > 10 && came_back > 5 && half > 0, "%u kills, %u came back, %u lost steps", kills,
          came_back, half);
    check_group("killed while a session is given up: nothing is told to be stored that is not");
    return check_done("test_close_killed");
}
