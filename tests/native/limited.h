/* A pusher and a limiter whose bounds the test chooses, on table 1; one draw counts as one item. */
#ifndef RP_LIMITED_H
#define RP_LIMITED_H

#include "pusher.h"

/* A server of the tables as they are described, and its client, who writes to table 1. */
static void open_rows(struct pusher *p) {
    config = script_config(tables);
    script_open(&p->script, &config);
    p->client = script_client(1);
    script_connect(&p->script, &p->client);
    p->epoch[1] = script_writer(&p->script, &p->client, 1, 2).epoch;
}

SCRIPT_UNUSED static void limited(struct pusher *p, uint64_t min_size, double low, double high) {
    script_tables(tables);
    tables[1].capacity = 1 << 14;
    tables[1].window = 256;
    tables[1].min_size = min_size;
    tables[1].error_min = low;
    tables[1].error_max = high;
    open_rows(p);
}

/* The status that a PUSH is answered with; -1 where it is not answered. */
static unsigned push_now(struct pusher *p, uint64_t id) {
    script_put(&p->script, &p->client, RP_OP_PUSH, 1, id, push.body, push.size);
    script_turn(&p->script);
    for (uint32_t i = 0; i < p->script.port.out_count; i++) {
        struct script_answer answer = script_answer(&p->script, i);
        if (answer.view.message->op == (RP_OP_PUSH | RP_ANSWER) && answer.view.message->id == id) {
            return answer.status;
        }
    }
    return UINT16_MAX;
}

static unsigned run_now(struct pusher *p, uint64_t id, uint16_t stream, uint64_t sequence,
                        uint64_t step, uint16_t count) {
    script_push_begin(&push, p->epoch[1]);
    script_push_run(&push, stream, sequence, step, count, RP_RUN_ITEM);
    return push_now(p, id);
}

SCRIPT_UNUSED static unsigned draw(struct pusher *p, uint64_t id, uint32_t count) {
    struct rp_sample sample = script_sample(count);
    return script_ask(&p->script, &p->client, RP_OP_SAMPLE, 1, id, &sample, sizeof sample).status;
}

#endif
