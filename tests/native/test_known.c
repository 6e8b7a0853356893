/* The index of steps that wait finds what is in it, each at the cost of the entries it looks
 * at, and says when a list is full. Entries are written by hand: an index knows no more of them.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "table/store.h"
#define MODEL_KEYS 1
#define MODEL_SEQUENCES 1
#include "table_fixture.h"

enum { WINDOW = 64, NEXT = 1000 * WINDOW + 40 };

static const struct rp_column columns[] = {{0, 8, 0}};
static const struct rp_pick row[] = {{0, 0}};
static const struct rp_plan row_plan[] = {{"row", row, 1}};
static struct fixture t;
static struct rp_table_private *p;
static uint32_t writer;

static void make_table(uint64_t seed) {
    struct rp_table_config config = {
        .name = "known", .capacity = 16 * 2 * WINDOW, .step_bytes = 8, .columns = columns,
        .column_count = 1, .plans = row_plan, .plan_count = 1, .alpha = 0.5, .writers_max = 2,
        .streams_max = RP_STREAMS_MAX, .window = WINDOW, .pieces_max = 1};
    fixture_open(&t, &config, seed);
    p = t.table.private;
    CHECK(rp_writer_open(&t.table, 4, 2) == 0);
    writer = (uint32_t)rp_writer_open(&t.table, 5, RP_STREAMS_MAX);
    CHECK(writer == 1, "not the first: each has an index of its own");
    rp_writer_at(p, writer)->next_sequence = NEXT;
}

static void put(uint64_t sequence, uint64_t stream, uint64_t step, uint64_t state, uint64_t flags) {
    struct rp_entry *entry = rp_entry_at(p, writer, sequence);
    entry->key = rp_key_word(state, p->capacity + 1);
    entry->facts = rp_entry_facts(stream, flags, 1, state == RP_ENTRY_COMPLETE);
    entry->step = step;
    rp_known_add(p, writer, sequence);
}

/* What a look says, and its units. */
static uint64_t look(uint64_t stream, uint64_t step, int wanted, uint64_t wanted_sequence) {
    uint64_t before = p->work_total, before_pass = p->work, sequence = 0;
    int found = rp_known_find(p, writer, (uint32_t)stream, step, &sequence);
    CHECK(found == wanted, "step %" PRIu64 ": %d", step, found);
    CHECK(sequence == wanted_sequence, "step %" PRIu64 " is at %" PRIu64, step, sequence);
    CHECK(p->work_total - before == p->work - before_pass);
    return p->work_total - before;
}

/* Given entries at both ends of the window, one step in two streams. Expect each at its place. */
static void both_ends(void) {
    make_table(1);
    CHECK(look(0, 7, 0, 0) == 0, "nothing is known");
    put(NEXT - 1, 0, 7, RP_ENTRY_PARTIAL, 0);
    CHECK(look(1, 7, 0, 0) == 0, "nothing of this stream");
    put(NEXT - WINDOW, 1, 7, RP_ENTRY_PARTIAL, 0);
    put(NEXT - 40, 1, 8, RP_ENTRY_PARTIAL, 0); /* the first place of the window */
    CHECK(look(0, 7, 1, NEXT - 1) >= 1);
    CHECK(look(1, 7, 1, NEXT - WINDOW) >= 1);
    CHECK(look(1, 8, 1, NEXT - 40) >= 1);
    look(0, 8, 0, 0);
    look(1, 6, 0, 0);
    writer = 0;
    CHECK(look(0, 7, 0, 0) == 0 && look(1, 7, 0, 0) == 0, "another writer's");
    writer = 1;
    rp_known_clear(p, writer);
    look(0, 7, 0, 0);
    look(1, 7, 0, 0);
    fixture_close(&t);
    check_group("found at their places in the window");
}

/* Given steps of one hash, found by what a look costs. Expect each found at the cost of those that
 * came later, and after 16 of them that there is no room. */
static void full_list(void) {
    make_table(2);
    uint64_t steps[RP_BUCKET_MAX], next = 1;
    put(NEXT - WINDOW, 0, 0, RP_ENTRY_PARTIAL, 0);
    steps[0] = 0;
    for (uint64_t n = 1; n < RP_BUCKET_MAX; n++, next++) {
        while (look(0, next, 0, 0) != n) {
            next++;
        }
        steps[n] = next;
        put(NEXT - WINDOW + n, 0, next, RP_ENTRY_PARTIAL, 0);
    }
    uint64_t sequence, absent = next;
    while (rp_known_find(p, writer, 0, absent, &sequence) == 0) {
        CHECK(absent++ < next + 4096, "one of the next hashes alike");
    }
    CHECK(look(0, absent, -1, 0) == RP_BUCKET_MAX);
    for (uint64_t n = 0; n < RP_BUCKET_MAX; n++) {
        CHECK(look(0, steps[n], 1, NEXT - WINDOW + n) == RP_BUCKET_MAX - n);
    }
    uint64_t before = p->work_total;
    rp_known_remove(p, writer, NEXT - WINDOW + 5);
    CHECK(p->work_total - before == RP_BUCKET_MAX - 6, "those before it are looked at");
    CHECK(look(0, steps[5], 0, 0) == RP_BUCKET_MAX - 1, "there is room again");
    CHECK(look(0, steps[4], 1, NEXT - WINDOW + 4) == RP_BUCKET_MAX - 5);
    CHECK(look(0, steps[6], 1, NEXT - WINDOW + 6) == RP_BUCKET_MAX - 6);
    before = p->work_total;
    rp_known_remove(p, writer, NEXT - WINDOW + 15);
    CHECK(p->work_total == before, "the first of its list");
    look(0, steps[15], 0, 0);
    for (uint64_t n = 0; n < 15; n++) {
        if (n != 5) {
            rp_known_remove(p, writer, NEXT - WINDOW + n);
        }
    }
    CHECK(look(0, steps[0], 0, 0) == 0 && rp_hint_at(p, writer, 0)->known == 0);
    fixture_close(&t);
    check_group("a list's cost, and its end");
}

/* Given steps of a stream with a high number. Expect the steps of the first stream not to share
 * their lists: no bit of a stream's number is one of a step's. */
static void high_streams(void) {
    for (uint64_t stream = 1; stream < RP_STREAMS_MAX; stream *= 2) {
        make_table(6);
        put(NEXT - 1, 0, 1000, RP_ENTRY_PARTIAL, 0);
        uint64_t cost = 0;
        for (uint64_t step = 0; step < 32; step += 2) {
            put(NEXT - 2 - step, stream, step, RP_ENTRY_PARTIAL, 0);
        }
        for (uint64_t step = 0; step < 32; step += 2) {
            cost += look(0, step + 1, 0, 0);
        }
        CHECK(cost < 16, "stream %" PRIu64 ": %" PRIu64, stream, cost);
        fixture_close(&t);
    }
    check_group("streams of any number have lists of their own");
}

/* The step arrives under `sequence`, reserved before: the state that it comes to. */
static uint32_t arrive(uint64_t sequence, uint64_t step) {
    struct rp_run run = {.sequence = sequence, .step = step, .count = 1, .piece_count = 1,
                         .size = 8};
    struct rp_run_done done;
    uint64_t bytes = step;
    rp_entry_at(p, writer, sequence)->key = rp_key_word(RP_ENTRY_EMPTY, p->head - 1);
    p->holes[writer]++;
    rp_writer_run(&t.table, (int)writer, &run, (const uint8_t *)&bytes, &done);
    return rp_state_of(rp_entry_at(p, writer, sequence)->key);
}

/* Given steps that come under two sequences, and one whose list is full. Expect the newer sequence
 * to keep the step, whichever came first, and the last to be lost. */
static void arrivals(void) {
    make_table(5);
    p->done_through[writer] = NEXT - WINDOW;
    CHECK(arrive(NEXT - 3, 7) == RP_ENTRY_COMPLETE);
    CHECK(arrive(NEXT - 2, 7) == RP_ENTRY_COMPLETE, "a newer one takes its place");
    CHECK(rp_state_of(rp_entry_at(p, writer, NEXT - 3)->key) == RP_ENTRY_LOST);
    CHECK(arrive(NEXT - 4, 7) == RP_ENTRY_LOST, "an older one does not");
    CHECK(look(0, 7, 1, NEXT - 2) == 1);
    uint64_t sequence, next = 8;
    for (uint64_t n = 1; n < RP_BUCKET_MAX; n++, next++) {
        while (look(0, next, 0, 0) != n) {
            next++;
        }
        put(NEXT - WINDOW + n, 0, next, RP_ENTRY_PARTIAL, 0);
    }
    while (rp_known_find(p, writer, 0, next, &sequence) >= 0) {
        next++;
    }
    CHECK(arrive(NEXT - 5, next) == RP_ENTRY_LOST, "there is no room for it");
    fixture_close(&t);
    check_group("of two arrivals the newer sequence's is kept");
}

/* What a look for a step that is not there, or the removal of one, ends with in a child that may
 * use a second of its processor. */
static int signal_of(int removal) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0}, second = {1, 1};
        uint64_t sequence;
        setrlimit(RLIMIT_CORE, &none);
        setrlimit(RLIMIT_CPU, &second);
        fclose(stderr);
        if (removal) {
            rp_known_remove(p, writer, NEXT - 3);
        } else {
            rp_known_find(p, writer, 0, 8, &sequence);
        }
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Given a list that closes on itself, which no datagram can make of it. Expect the fault told where
 * it is met, and no server that stands still. */
static void closed_list(void) {
    make_table(4);
    for (uint64_t stream = 0; stream < 2; stream++) {
        put(NEXT - 1 - stream, stream, 7, RP_ENTRY_PARTIAL, 0);
    }
    uint32_t *links = p->known + (size_t)writer * p->known_words;
    uint32_t first = (NEXT - 1) % WINDOW, other = (NEXT - 3) % WINDOW;
    for (uint32_t bucket = 0; bucket < (uint32_t)1 << p->known_bits; bucket++) {
        links[p->window + bucket] = first + 1;
    }
    links[first] = first + 1;
    CHECK(other != first && signal_of(0) == SIGABRT && signal_of(1) == SIGABRT);
    fixture_close(&t);
    check_group("a list that closes on itself is a fault, and no standstill");
}

int main(void) {
    uint32_t windows[][2] = {{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {64, 6}, {65, 7}, {65536, 16}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        CHECK(rp_known_bits(windows[i][0]) == windows[i][1], "%u", windows[i][0]);
    }
    both_ends();
    full_list();
    high_streams();
    arrivals();
    closed_list();
    return check_done("test_known");
}
