/* PUSH: steps, pieces and creates of items, all of a datagram or nothing.
 *
 * Three passes over the datagram: its shape (every size adds up exactly), its contents (the
 * table's own checks, run by run and create by create), and, once the limiter admits all new
 * items together, the storing. Until the third no table changes. Before the first, whatever a PUSH
 * brings keeps its session's place in the queue, and one that creates items beyond its session's
 * share is dropped (share.c); one that is refused gives that place up. Where the limiter holds the
 * PUSH back, its body is copied, and goes through all three passes again when its time comes
 * (serve_wait.c), like a datagram that was long on its way.
 */
#include <string.h>

#include "base/minmax.h"
#include "server/serve.h"

struct push { /* a PUSH whose sizes are known to add up */
    const struct rp_push *head;
    const uint8_t *runs;
    const struct rp_create *creates;
    uint32_t creates_taken; /* the limiter has counted so many, and more are not made */
    uint64_t items;         /* it would make */
    int early; /* it brings a step that has to wait for another PUSH's, where none may wait */
};

static const struct rp_run *run_at(const uint8_t *at) {
    return (const void *)at;
}

static const uint8_t *run_bytes(const uint8_t *at) {
    return at + sizeof(struct rp_run);
}

static const uint8_t *run_after(const uint8_t *at) {
    return at + sizeof(struct rp_run) + run_at(at)->size;
}

/* ---- shape ---- */

static int parse(const struct rp_view *view, struct push *push) {
    uint32_t size = view->message->size;
    uint32_t at = sizeof *push->head;
    push->head = (const void *)view->body;
    push->runs = view->body + at;
    for (uint32_t i = 0; i < push->head->run_count; i++) {
        if (size - at < sizeof(struct rp_run)) {
            return -RP_BAD_SIZE;
        }
        const struct rp_run *run = run_at(view->body + at);
        at += sizeof *run;
        if (run->size > size - at || run->size % 8 != 0) {
            return -RP_BAD_SIZE;
        }
        at += run->size;
    }
    push->creates = (const void *)(view->body + at);
    uint64_t creates = (uint64_t)push->head->create_count * sizeof(struct rp_create);
    return rp_serve_exact(view, at + creates);
}

/* ---- contents ---- */

static int check_reserved(const struct push *push) {
    uint32_t sum = push->head->reserved;
    const uint8_t *at = push->runs;
    for (uint32_t i = 0; i < push->head->run_count; i++, at = run_after(at)) {
        sum |= run_at(at)->reserved;
    }
    for (uint32_t i = 0; i < push->head->create_count; i++) {
        sum |= push->creates[i].reserved;
    }
    return sum == 0 ? 0 : -RP_BAD_RESERVED;
}

/* The table counts what it refuses. */
static int check(const struct rp_table *table, int writer, const struct push *push) {
    int status = 0;
    const uint8_t *at = push->runs;
    for (uint32_t i = 0; i < push->head->run_count && status == 0; i++, at = run_after(at)) {
        status = rp_writer_check(table, writer, run_at(at), run_bytes(at));
    }
    for (uint32_t i = 0; i < push->head->create_count && status == 0; i++) {
        status = rp_writer_check_create(table, writer, &push->creates[i]);
    }
    return status;
}

/* A datagram that overtook so many others is dropped: it is sent again when those have come.
 */
static int is_far(const struct rp_table *table, int writer, const struct push *push) {
    uint64_t end = rp_writer_next(table, writer);
    uint64_t gaps = 0;
    const uint8_t *at = push->runs;
    for (uint32_t i = 0; i < push->head->run_count; i++, at = run_after(at)) {
        uint64_t first = run_at(at)->sequence;
        uint64_t behind = first + run_at(at)->count;
        if (first > end) {
            gaps += first - end;
            if (rp_writer_far(table, writer, gaps)) {
                return 1;
            }
        }
        end = rp_max(behind, end);
    }
    return 0;
}

static void ask(struct rp_table *table, int writer, struct push *push) {
    const uint8_t *at = push->runs;
    push->items = rp_writer_create_items(table, writer, push->creates, push->head->create_count,
                                         &push->creates_taken);
    push->early = 0;
    if (!rp_table_ordered(table)) {
        return; /* no limiter counts what runs make */
    }
    rp_writer_ask(table);
    for (uint32_t i = 0; i < push->head->run_count && !push->early; i++, at = run_after(at)) {
        push->early = !rp_writer_ask_run(table, writer, run_at(at));
    }
    push->items += rp_writer_asked(table);
}

/* ---- storing ---- */

/* The answer is written as the steps are stored; it is smaller than the request's runs and
 * creates together. */
static int store(struct rp_call *call, struct rp_table *table, int writer,
                 const struct push *push) {
    uint8_t *answer = rp_serve_room(call);
    struct rp_run_done *done = (void *)(answer + sizeof(struct rp_pushed));
    uint8_t *statuses = (uint8_t *)(done + push->head->run_count);
    const uint8_t *at = push->runs;
    uint64_t before = call->server->counters[RP_COUNT_steps_committed];
    for (uint32_t i = 0; i < push->head->run_count; i++, at = run_after(at)) {
        rp_writer_run(table, writer, run_at(at), run_bytes(at), &done[i]);
    }
    uint32_t padded = (push->head->create_count + 7u) & ~7u;
    memset(statuses, 0, padded);
    rp_writer_create_all(table, writer, push->creates, push->head->create_count,
                         push->creates_taken, statuses);
    rp_table_settle(table);
    struct rp_pushed pushed = {.run_count = push->head->run_count,
                               .create_count = push->head->create_count};
    rp_writer_progress(table, writer, &pushed);
    memcpy(answer, &pushed, sizeof pushed);
    rp_server_count(call->server, RP_COUNT_pushes);
    uint64_t steps = call->server->counters[RP_COUNT_steps_committed] - before;
    rp_meter_session(&call->server->meters, call->session)->steps += steps;
    rp_share_stored(call->server, steps + push->creates_taken);
    return (int)(statuses + padded - answer);
}

static void forget_note(struct rp_call *call, const struct rp_table *table) {
    if (rp_wait_find(call->server, RP_WAIT_PUSH, call->session, table->number,
                     call->view.message->id)) {
        rp_wait_remove(call->server, RP_WAIT_PUSH, call->session, table->number);
    }
}

static int serve(struct rp_call *call, struct rp_table *table) {
    struct push push;
    int status = parse(&call->view, &push);
    status = status < 0 ? status : check_reserved(&push);
    if (status < 0) {
        return status;
    }
    if (push.head->run_count == 0 && push.head->create_count == 0) {
        return -RP_BAD_ARGUMENT;
    }
    if (push.head->epoch != rp_table_epoch(table)) {
        return -RP_STALE_EPOCH;
    }
    int writer = rp_writer_find(table, rp_serve_session(call)->connection);
    if (writer < 0) {
        return writer;
    }
    status = check(table, writer, &push);
    if (status < 0) {
        call->counted = 1;
        return status;
    }
    ask(table, writer, &push);
    if (push.early) { /* held back without a place: what it waits for is its own writer's */
        forget_note(call, table);
        return rp_serve_hold(call, RP_WAIT_PUSH, &(struct rp_blocked){.need = 0});
    }
    int far = is_far(table, writer, &push);
    if (push.items > 0) { /* no limiter holds back what creates nothing */
        struct rp_asked asked = {.items = push.items,
                                 .far = far,
                                 .held = rp_writer_held(table, writer),
                                 .request.epoch = push.head->epoch};
        int held_back = rp_serve_admit(call, RP_WAIT_PUSH, table, &asked);
        if (held_back != 0) {
            return held_back;
        }
    } else {
        forget_note(call, table);
    }
    if (far) { /* a PUSH that is held back was answered BLOCKED above, however far it is */
        return rp_serve_drop(call, RP_COUNT_drop_far);
    }
    return store(call, table, writer, &push);
}

/* A refused PUSH is not repeated under this id: so its place in the queue is given up. */
int rp_serve_push(struct rp_call *call) {
    struct rp_table *table = rp_serve_table(call);
    if (table == NULL) {
        return -RP_UNKNOWN_TABLE;
    }
    struct rp_server *server = call->server;
    if (server->waiting[RP_WAIT_PUSH][table->number].count > 0 && !call->released) {
        /* whatever it brings: its session is there */
        rp_wait_keep(server, rp_wait_note(server, RP_WAIT_PUSH, call->session, table->number));
    }
    const struct rp_push *push = (const void *)call->view.body;
    int looks = push->create_count > 0;
    if (looks && !call->released && !rp_share_allows(server, call->session, 1)) {
        return rp_serve_drop(call, RP_COUNT_drop_share);
    }
    uint64_t before = rp_table_vain(table), items = server->counters[RP_COUNT_items_created];
    int result = serve(call, table);
    if (looks) {
        int makes_none = server->counters[RP_COUNT_items_created] == items;
        rp_table_asked(table, makes_none || rp_table_vain(table) > before);
        rp_share_drawn(server, call->session, rp_table_vain(table) - before);
    }
    if (result < 0) {
        forget_note(call, table);
    }
    return result;
}
