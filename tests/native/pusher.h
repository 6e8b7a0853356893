/* One client that pushes runs into a server's tables, for the tests of PUSH. */
#ifndef RP_PUSHER_H
#define RP_PUSHER_H

#include "script.h"
#include "table/store.h"

#include <math.h>

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script_push push;

struct pusher {
    struct script script;
    struct script_client client;
    uint64_t epoch[2];
};

SCRIPT_UNUSED static void fresh(struct pusher *p) {
    script_tables(tables);
    config = script_config(tables);
    script_open(&p->script, &config);
    p->client = script_client(1);
    script_connect(&p->script, &p->client);
    for (uint16_t i = 0; i < 2; i++) {
        p->epoch[i] = script_writer(&p->script, &p->client, i, 2).epoch;
    }
}

SCRIPT_UNUSED static struct script_answer send_run(struct pusher *p, uint16_t table, uint64_t id,
                                                   uint16_t stream, uint64_t sequence,
                                                   uint64_t step, uint16_t count, uint16_t flags) {
    script_push_begin(&push, p->epoch[table]);
    script_push_run(&push, stream, sequence, step, count, flags);
    return script_push(&p->script, &p->client, table, id, &push);
}

#endif
