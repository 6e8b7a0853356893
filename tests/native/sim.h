/* The simulator: the real server and several real clients on a virtual network, under a virtual
 * clock, from one seed.
 *
 *     sim.c         one seed after another: the loop, what goes wrong when, the report
 *     sim_net.c     the network and its faults
 *     sim_server.c  the server's life: tables of the seed, kills between stores, attach, restart
 * empty sim_process.c kill sites, and the count of allocations sim_oracle.c  what must be true: an
 * independent record of every step, key, item, priority and draw sim_audit.c   compares the
 * server's region with that record sim_writer.c, sim_learner.c, sim_weights.c, sim_vandal.c: the
 * workload
 *
 * A seed has two halves: first everything goes wrong, then faults stop and everything must finish
 * within SIM_DRAIN_NS of virtual time. The oracle knows what was posted, what was acknowledged, and
 * what travelled (it reads the wire), and shares no code with the product but headers, the power
 * function and the generator.
 */
#ifndef SIM_H
#define SIM_H

#include "client/client.h"
#include "server/server.h"
#include "sim_net.h"
#include "table/table.h"

#define SIM_MS ((uint64_t)1000000)
#define SIM_S ((uint64_t)1000000000)

enum sim_limits {
    SIM_TABLES = 2, /* 0: plain rows, items at once; 1: windows, items created later */
    SIM_ACTORS_MAX = 8,
    SIM_STREAMS_MAX = 3,
    SIM_LIVES_MAX = 2048,
    SIM_RINGS_MAX = 256,
    SIM_BATCH_MAX = 24,
    SIM_SAMPLES_MAX = 3, /* one learner's tickets at once */
    SIM_BLOB_MAX = 4096,
    SIM_COLUMNS = 3,
    SIM_PICKS_MAX = 64,
    SIM_MASSES_MAX = 4096,
};
#define SIM_DRAIN_NS (60 * SIM_S)

/* ---- tables of a seed ---- */

struct sim_row { /* the first column of every step; the other columns are a function of it */
    uint32_t life;
    uint32_t stream;
    uint64_t step;
    uint64_t hash;
};

struct sim_table {
    struct rp_table_config config;
    struct rp_column columns[SIM_COLUMNS];
    struct rp_plan plans[2];
    struct rp_pick picks[2][SIM_PICKS_MAX];
    struct rp_power power;
    uint32_t behind, ahead;
    char spec[48];
};

/* ---- the oracle's record ---- */

struct sim_step {  /* one step a writer has posted */
    uint64_t key;  /* once known, from an acknowledgement, a draw or the region; 0 before */
    uint64_t mass; /* of its item as posted; UINT64_MAX: the largest mass so far */
    uint32_t episode_first; /* number of its episode's first step */
    uint32_t episode_end;   /* number of its closing row; UINT32_MAX while open */
    uint8_t item;           /* an item was posted for it */
    uint8_t acked;
};

struct sim_stream {
    struct sim_step *steps;
    uint32_t count, capacity;
    uint32_t episode_first;
    uint32_t acked; /* the next step that may be acknowledged: in order along a stream */
};

struct sim_life { /* a writer on a table, from its grant to its loss: streams count from 0 in each
                   */
    uint32_t number;
    uint32_t table;
    uint32_t stream_count;
    uint64_t session;
    uint32_t over; /* it was lost, or its client was: what is unanswered is in doubt */
    struct sim_ring *ring;
    uint64_t posted, acked, told; /* told: acknowledged with their keys */
    uint64_t items_posted, items_created, items_failed;
    struct sim_stream streams[SIM_STREAMS_MAX];
};

struct sim_mass { /* a priority somebody set, in the order it was posted */
    uint64_t mass;
    int32_t next; /* a later one of the same key; -1 = none */
};

struct sim_key {   /* what is known of one key of a ring */
    uint32_t life; /* number + 1; 0 = not known yet */
    uint32_t stream;
    uint64_t step;
    int32_t first; /* updates posted for it, oldest first; -1 = none */
    int32_t floor; /* the newest of them that was acknowledged; -1 = none */
    uint8_t acked;
    uint8_t frozen; /* an update of it was given up: no more of them */
};

struct sim_ring { /* one table between two epochs */
    uint64_t epoch;
    uint64_t incarnation;
    uint32_t table;
    struct sim_key *keys;
    uint64_t key_count, key_capacity;
    uint64_t drawn_answered; /* items in batches whose first answer left the server */
    uint64_t drawn_asked;    /* items in batches ever asked for */
    uint64_t evicted_through;
};

struct sim_draw { /* one SAMPLE id of one session, as seen on the wire */
    uint64_t session, id;
    uint64_t head_hash; /* of the records in its datagram 0; must never change */
    uint32_t count;
    uint32_t table;
    uint8_t charged, answered, asked;
    struct sim_ring *ring;
};

struct sim_version { /* a weights version as its publisher was told, or a puller found */
    uint64_t incarnation, version, number;
    int sure;
};

struct sim_oracle {
    struct sim_life *lives[SIM_LIVES_MAX];
    uint32_t life_count;
    struct sim_ring rings[SIM_RINGS_MAX];
    uint32_t ring_count;
    struct sim_mass *masses;
    int32_t mass_count, mass_capacity;
    struct sim_draw *draws;
    uint32_t draw_count, draw_capacity;
    struct sim_version *versions;
    uint32_t version_count;
};

/* ---- actors ---- */

struct sim_writer {
    struct rp_table_info info;
    struct rp_writer_granted granted;
    struct sim_life *life;
    int ticket;
    uint32_t phase;
    uint32_t streams;                  /* asked for */
    uint32_t goal;                     /* steps still to be pushed */
    uint32_t anchors[SIM_STREAMS_MAX]; /* next step to be made an item */
    uint64_t blocked;
};

struct sim_sample { /* one ticket of a learner with the memory it lands in */
    int ticket;
    uint32_t table, plan, mode, count;
    struct rp_landing landing;
    struct rp_landing_column columns[SIM_PICKS_MAX];
    uint8_t *bytes;
    uint64_t *keys, *asked, *masses, *totals, *ages;
    uint16_t *behind, *ahead;
    uint32_t *drawables;
    uint8_t *valid;
    uint64_t deadline, epoch;
};

struct sim_update {
    int ticket;
    struct rp_updated result;
    uint64_t keys[SIM_BATCH_MAX];
    int32_t masses[SIM_BATCH_MAX];
    uint32_t count, given;
    struct sim_ring *ring;
};

struct sim_learner {
    struct rp_table_info info[SIM_TABLES];
    int info_ticket[SIM_TABLES];
    int known[SIM_TABLES];
    struct sim_sample samples[SIM_SAMPLES_MAX];
    struct sim_update update;
    uint32_t index; /* of learner_count: it updates keys of its own only */
    uint32_t batches;
};

struct sim_weights {
    int publish, pull, other, spec;
    uint64_t session; /* in which it was published */
    uint64_t number;  /* of the blob being published */
    uint64_t published, size, version, pulled_size, pulled_version, known;
    uint64_t incarnation;
    uint64_t counters[RP_COUNTER_COUNT];
    struct rp_table_info info;
    uint64_t epoch, spec_size, spec_version;
    uint32_t sessions, spec_table;
    uint8_t spec_bytes[64];
    uint8_t blob[SIM_BLOB_MAX];
    uint8_t landing[SIM_BLOB_MAX];
};

enum sim_kind { SIM_WRITER, SIM_LEARNER, SIM_WEIGHTS };

struct sim_actor {
    enum sim_kind kind;
    uint32_t index;
    struct rp_client *client;
    void *memory;
    struct sim_port *port;
    uint64_t next_at; /* when its workload acts again */
    uint64_t turn_at; /* its client's own deadline */
    uint64_t version; /* newest weights it was told of, and by whom */
    uint64_t incarnation;
    uint32_t session_seen;
    union {
        struct sim_writer writer;
        struct sim_learner learner;
        struct sim_weights weights;
    } as;
};

/* ---- the world ---- */

struct sim_server {
    struct rp_server *server;
    struct rp_server_config config;
    struct rp_table_config table_configs[SIM_TABLES];
    struct sim_port *port;
    uint8_t *region;
    size_t bytes;
    uint64_t incarnation;
    uint64_t counters[RP_COUNTER_COUNT]; /* of those killed before */
    uint32_t kills_left, kills, restarts;
};

struct sim_totals { /* over all seeds */
    uint64_t seeds, pushes, steps, keyless, items, samples, updates, versions, pulls, kills,
        restarts, client_restarts, resets;
    uint64_t audits, lost_places, datagrams, dropped, repeated, delayed, damaged, again, virtual_ns;
    uint64_t server[RP_COUNTER_COUNT], client[RP_COUNTER_COUNT];
};

struct sim_world {
    uint64_t seed;
    uint64_t now;
    int draining; /* faults have stopped */
    int remote;   /* the server is another process (kill_mapped.c) */
    struct rp_random random;
    struct sim_net net;
    struct sim_table tables[SIM_TABLES];
    struct sim_server server;
    struct sim_actor actors[SIM_ACTORS_MAX];
    uint32_t actor_count, writer_count, learner_count;
    uint32_t mtu, restart_permille, reset_permille;
    struct sim_oracle oracle;
    struct sim_totals *totals;
    uint64_t vandal_at;
    struct sim_port *vandal;
    uint64_t vandal_session, vandal_nonce, vandal_packet;
};

/* ---- sim_process.c ---- */
/* Runs `turn` as a process that may be killed after `hits` more stores (0: never). 1 = it lived, 0
 * = it was killed. */
int sim_process_run(void (*turn)(void *context), void *context, uint64_t hits);
void sim_process_pause(void);      /* a place outside the region where a kill may fall, too */
void sim_process_enter(void);      /* allocations are counted from here ... */
void sim_process_leave(void);      /* ... to here */
void sim_process_port(int inside); /* but not those of the virtual network */
uint64_t sim_process_allocations(void);
void sim_process_sites(uint32_t *all, uint32_t *hit, uint32_t *killed);

/* ---- sim_server.c ---- */
void sim_tables_make(struct sim_world *world);
void sim_server_start(struct sim_world *world); /* a new, empty region */
void sim_server_turn(struct sim_world *world);  /* one turn; a kill and what follows it included */
void sim_server_stop(struct sim_world *world);
void sim_rings_note(struct sim_world *world); /* a ring for each epoch there is */
void sim_entropy(struct sim_world *world, uint8_t entropy[32]);

/* ---- sim_oracle.c ---- */
void sim_step_bytes(const struct sim_table *table, uint32_t life, uint32_t stream, uint64_t step,
                    uint8_t *target);
struct sim_ring *sim_ring_find(struct sim_world *world, uint64_t epoch);
struct sim_ring *sim_ring_add(struct sim_world *world, uint32_t table, uint64_t epoch);
struct sim_key *sim_ring_key(struct sim_ring *ring, uint64_t key);
struct sim_life *sim_life_begin(struct sim_world *world, uint32_t table, uint64_t epoch,
                                uint32_t streams);
void sim_life_post(struct sim_life *life, uint32_t stream, uint32_t count, int end);
void sim_life_ack(struct sim_world *world, struct sim_life *life, uint32_t stream, uint64_t step,
                  uint64_t key);
/* The key holds this step: the first word of it, or the same as ever. */
void sim_key_is(struct sim_world *world, struct sim_ring *ring, uint64_t key, uint32_t life,
                uint32_t stream, uint64_t step);
/* One item as it was landed. bytes: the item as the plan lays it out.
 * looked_up: by its key, so that it may be a step that is no item, or not yet one. */
void sim_item_check(struct sim_world *world, struct sim_ring *ring, uint32_t plan, uint64_t key,
                    uint64_t mass, uint32_t behind, uint32_t ahead, const uint8_t *bytes,
                    int looked_up);
/* Whether somebody ever set this mass; and whether it may be the item's mass now. */
int sim_mass_ever(const struct sim_world *world, struct sim_ring *ring, uint64_t key,
                  uint64_t mass);
int sim_mass_now(const struct sim_world *world, struct sim_ring *ring, uint64_t key, uint64_t mass);
int32_t sim_update_post(struct sim_world *world, struct sim_ring *ring, uint64_t key,
                        uint64_t mass);
void sim_update_ack(struct sim_ring *ring, uint64_t key, int32_t mass);
void sim_snoop(void *context, const struct sim_port *from, const struct rp_packet *packet);
void sim_version_is(struct sim_world *world, uint64_t incarnation, uint64_t version,
                    uint64_t number, int sure);
void sim_oracle_close(struct sim_world *world);

/* ---- sim_audit.c ---- */
void sim_audit(struct sim_world *world);
/* Whether the server waits for a sequence of this writer before later ones that are there. */
int sim_has_hole(const struct sim_world *world, const struct sim_actor *actor);
void sim_audit_end(struct sim_world *world); /* everything has finished: sums must be exact */

/* ---- actors ---- */
void sim_actor_open(struct sim_world *world, struct sim_actor *actor);
void sim_actor_close(struct sim_world *world, struct sim_actor *actor, int kill);
void sim_actor_turn(struct sim_world *world, struct sim_actor *actor);
void sim_actor_act(struct sim_world *world, struct sim_actor *actor);
void sim_actors_add(struct sim_world *world, uint32_t writers, uint32_t learners);
/* Everyone whose time has come acts and takes a turn. */
void sim_actors_step(struct sim_world *world);
int sim_actors_done(const struct sim_world *world);
int sim_actor_done(const struct sim_world *world, const struct sim_actor *actor);
/* Ways any request may end: silence, or the session is gone. */
int sim_status_of_loss(int status);
/* The ticket's fate: 0 while under way. Once ended it is freed and *status tells how. */
int sim_ticket_ended(struct sim_actor *actor, int *ticket, int *status);
void sim_writer_act(struct sim_world *world, struct sim_actor *actor);
void sim_writer_after(struct sim_world *world,
                      struct sim_actor *actor); /* after each turn: the ledger */
void sim_writer_lost(struct sim_world *world, struct sim_actor *actor);
int sim_writer_done(const struct sim_world *world, const struct sim_actor *actor);
void sim_learner_act(struct sim_world *world, struct sim_actor *actor);
void sim_learner_after(struct sim_world *world, struct sim_actor *actor);
void sim_learner_lost(struct sim_world *world, struct sim_actor *actor);
int sim_learner_done(const struct sim_world *world, const struct sim_actor *actor);
void sim_weights_act(struct sim_world *world, struct sim_actor *actor);
void sim_weights_after(struct sim_world *world, struct sim_actor *actor);
void sim_weights_lost(struct sim_world *world, struct sim_actor *actor);
int sim_weights_done(const struct sim_world *world, const struct sim_actor *actor);
void sim_vandal_act(struct sim_world *world);

#endif
