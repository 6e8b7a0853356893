/* A server that is killed as it gives a session up, at each store in turn: the next one has the
 * session with all it had, or neither it nor a writer of it; also where that one is killed in its
 * attach, as a narrower limiter has it end another session. Situations read "Given ... Expect ...".
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

/* Writers at two tables, and all but step 1 of a stream, so that what is behind it waits; then
 * silence for too long. */
static void begin(struct script_client *client, uint64_t *epoch) {
    script_tables(tables);
    config = script_config(tables);
    config.idle_ms = 1000;
    script_open(&script, &config);
    script.unchecked = 1;
    *client = script_client(1);
    script_connect(&script, client);
    script_writer(&script, client, 1, 1);
    *epoch = script_writer(&script, client, 0, 1).epoch;
    for (uint64_t step = 0; step < STEPS; step += 1 + (step == 0)) {
        push_step(client, *epoch, step);
    }
    script_later(&script, 3000);
    script.now_ns += 200000000;
    script.server->turned_ns = script.now_ns; /* it did not stand still: the client was silent */
    script.server->unheard_ns = 0;
}

/* The next process; 1 where it has the session. */
static int attach(const struct script_client *client) {
    script.port.leased = script.port.lent = 0;
    script_kill(&script);
    rp_server_check(script.server);
    return rp_session_find(script.server, client->connection) != RP_NOBODY;
}

/* How many places of the tables' writers are taken. */
static uint32_t writers(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < rp_server_table_count(script.server); i++) {
        const struct rp_table *table = rp_server_table(script.server, i);
        for (uint32_t place = 0; place < rp_writer_places(table); place++) {
            count += rp_writer_session(table, place) != 0;
        }
    }
    return count;
}

/* The step that was missing comes: all are stored, none was lost. */
static void goes_on(struct script_client *client, uint64_t epoch) {
    struct rp_pushed told = push_step(client, epoch, 1);
    const struct rp_table *table = rp_server_table(script.server, 0);
    CHECK(told.done_through == STEPS && told.lost_total == 0);
    CHECK(rp_stream_at(table->private, 0, 0)->next_step == STEPS);
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

/* 1. Given a kill at each store of a turn that gives a session up. Expect the next server to have
 *    it whole, so that its writer goes on, or to have neither it nor its writers. */
static void situation_given_up(void) {
    uint32_t kills = 0, whole = 0, gone = 0;
    for (int ended = 0; !ended && kills < KILLS_MAX;) {
        struct script_client client;
        uint64_t epoch;
        begin(&client, &epoch);
        ended = turn_until(kills + 1);
        if (ended) {
            CHECK(rp_server_sessions(script.server) == 0 && writers() == 0, "it was given up");
        } else if (kills++, attach(&client)) {
            CHECK(writers() == 2, "killed at store %u", kills);
            goes_on(&client, epoch);
            whole++;
        } else {
            CHECK(writers() == 0, "killed at store %u: %u writers", kills, writers());
            gone++;
        }
        script_close(&script);
    }
    CHECK(whole > 3 && gone > 10, "%u kills, %u whole, %u gone", kills, whole, gone);
    check_group("1 killed while a session is given up: it is whole, or gone with its writers");
}

/* A session with writers at both tables, and one with a writer at the first. */
static void begin_two(struct script_client *first) {
    struct script_client second = script_client(2);
    script_tables(tables);
    tables[0] = tables[1]; /* both have a limiter */
    memcpy(tables[0].name, "main", sizeof "main");
    config = script_config(tables);
    script_open(&script, &config);
    script.unchecked = 1;
    *first = script_client(1);
    script_connect(&script, first);
    script_connect(&script, &second);
    script_writer(&script, first, 0, 1);
    script_writer(&script, first, 1, 1);
    script_writer(&script, &second, 0, 1);
    script_put(&script, first, RP_OP_CLOSE, 0, 99, NULL, 0);
}

/* How many of them no session has. */
static uint32_t orphans(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < rp_server_table_count(script.server); i++) {
        const struct rp_table *table = rp_server_table(script.server, i);
        for (uint32_t place = 0; place < rp_writer_places(table); place++) {
            uint64_t session = rp_writer_session(table, place);
            count += session != 0 && rp_session_find(script.server, session) == RP_NOBODY;
        }
    }
    return count;
}

enum ended { ATTACHED, REFUSED, KILLED };

/* An attach that is killed at its store `at`; 0: at none. */
static enum ended attach_until(uint64_t at) {
    uint8_t entropy[32];
    char error[256];
    script_entropy(entropy, 9);
    left = at;
    if (setjmp(death) != 0) {
        return KILLED;
    }
    int status = rp_server_attach(&script.server, script.region, script.bytes, &script.config,
                                  entropy, script.now_ns, error);
    left = 0;
    return status == 0 ? ATTACHED : REFUSED;
}

/* 2. Given a kill at each store of a CLOSE, and then at each of an attach with a narrower limiter,
 *    which ends another session. Expect the third server to take the region, by either limiter, and
 *    no writer without a session. */
static void situation_twice(void) {
    uint32_t pairs = 0;
    for (uint64_t first = 1, closed = 0; !closed; first++) {
        for (uint64_t second = 1, attached = 0; !closed && !attached; second++) {
            struct script_client client;
            begin_two(&client);
            const double wide = tables[0].error_max;
            closed = (uint64_t)turn_until(first);
            script.port.leased = script.port.lent = 0;
            tables[0].error_max = wide / 2;
            attached = closed || attach_until(second) == ATTACHED;
            tables[0].error_max = second % 2 ? wide : wide / 2;
            CHECK(attached || attach_until(0) == ATTACHED,
                  "killed at store %" PRIu64 ", then at %" PRIu64, first, second);
            CHECK(orphans() == 0);
            pairs += !attached;
            script_close(&script);
        }
    }
    CHECK(pairs > 100, "%u pairs of kills", pairs);
    check_group("2 killed once more in the attach that a narrower limiter has end a session");
}

int main(void) {
    situation_given_up();
    situation_twice();
    return check_done("test_close_killed");
}
