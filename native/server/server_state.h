/* The server's insides, shared by the files of its folder only.
 *
 * The region is one range of addresses in segments (server.h), so that one offset names a word of
 * any of them. Every part starts at a multiple of 64, every segment at one of a page. Persistent
 * words change through server->intent alone. Bytes that nothing names yet (a record's place before
 * it is drawn, a weights slot being assembled) are written first. struct rp_server, and all that it
 * points to outside the region's persistent parts, is volatile and rebuilt at attach.
 *
 *     weights: version of a slot == 0 while it is empty or being assembled; newest == the
 *     largest version
 *     sum of granted credit <= receive_budget - sessions_max
 */
#ifndef RP_SERVER_STATE_H
#define RP_SERVER_STATE_H

#include "server/cookie.h"
#include "server/hosts.h"
#include "table/intent.h"
#include "server/meter.h"
#include "server/server.h"
#include "server/session.h"
#include "server/share.h"
#include "table/table.h"

enum rp_server_limits {
    RP_TRAIN_MAX = 32,          /* datagrams a SAMPLE, PULL or BLOB is answered with at once */
    RP_TURN_DATAGRAMS = 1024,   /* of trains that the sessions of one turn share, RP_PULL_TRAINS of
                                 * them for each at least */
    RP_WEIGHTS_SLOTS = 3,       /* two complete versions and one being assembled */
    /* A version that is being pulled stays this long after the last datagram that was asked for the
     * first time. Another publisher waits this long after the last piece that was new. */
    RP_WEIGHTS_REST_MS = 2000,
    RP_WEIGHTS_REFUSED_MS = 1000, /* until room on the disk that was refused is asked for again */
    /* Both have an end, whatever is asked or sent: RP_WEIGHTS_REST_MS and the time that the blob's
     * bytes take at this rate, a mebibyte a second. */
    RP_WEIGHTS_BYTES_PER_MS = 1049,
    RP_NOTE_MS = 3000, /* a waiting request that is not repeated for so long loses its place */
    RP_TICK_MS = 100,  /* timed work is due so often */
    /* Where two turns lie further apart than RP_GAP_MS the server stood still, and datagrams that
     * came meanwhile wait in the port. No session or place is given up before turns have spent
     * RP_HEAR_MS more on receiving them. A gap counts as RP_GAP_MS of that. */
    RP_GAP_MS = 2 * RP_TICK_MS,
    RP_HEAR_MS = 1000,
    RP_TICK_SESSIONS = 256, /* sessions it looks at */
    RP_EXPIRED_MAX = 8,     /* sessions given up at once */
    RP_RELEASES_MAX = 64,   /* waiting requests released in a turn; the next turn goes on */
};

struct rp_limits { /* struct rp_server_config without its pointers; in the region */
    uint32_t table_count;
    uint32_t sessions_max;
    uint32_t batch_max;
    uint32_t records;
    uint32_t mtu;
    uint32_t receive_budget;
    uint32_t idle_ms;
    uint32_t lapse_ms;
    uint64_t weights_max;
};

#define RP_REGION_MAGIC UINT64_C(0x6E6F696765525052) /* the bytes "RPRegion" */
/* One more where a field of the region's structures changes its size, order or meaning. The numbers
 * that go along are in tests/native/test_region_layout.c and test_config.c. What a process keeps
 * behind the segments is its own and may change freely. */
enum rp_region_version { RP_REGION_VERSION = 15 };

_Static_assert(sizeof(struct rp_limits) % 8 == 0, "limits are adopted in whole words");

struct rp_region { /* the header, at the region's start */
    uint64_t magic; /* written last at create: a half-made region has none */
    uint64_t version;
    uint64_t sum; /* of what no attach changes: see rp_region_sum */
    uint64_t attaches; /* times a process took the region over: the high bits of packet numbers */
    uint64_t bytes; /* with the process's memory behind volatile_part: written by each attach */
    uint64_t incarnation;
    uint64_t seed;
    struct rp_limits limits;
    uint64_t log; /* offsets of the parts from here on */
    uint64_t tables[RP_TABLES_MAX];
    uint64_t sessions;
    uint64_t records;
    uint64_t weights;
    uint64_t state_bytes; /* the segment `state` ends here */
    uint64_t keys[RP_TABLES_MAX];
    uint64_t steps[RP_TABLES_MAX];
    uint64_t blobs; /* the weights' bytes */
    uint64_t volatile_part; /* the segments end here */
    uint64_t locals[RP_TABLES_MAX]; /* behind it: written by each attach */
    uint64_t ending; /* the session that ended last: a kill may have left writers of it open */
};

#define RP_SEAL_MAGIC UINT64_C(0x6C61655374676553) /* the bytes "SegtSeal" */

/* At the end of each segment but `state`: whose it is. It shows a file of another region, or one
 * that never got to the disk, where the file made with this `state` should be. */
struct rp_seal {
    uint64_t magic;
    uint64_t incarnation; /* drawn when the region was made */
    uint64_t segment;     /* which of its segments */
    uint64_t reserved[5];
};

/* one drawn batch, immutable once named by its session's record_id; then batch_max items */
struct rp_record {
    uint64_t table_plan; /* table | plan << 16 */
    uint64_t reserved;
    struct rp_batch head; /* head and items lie as they go out */
    struct rp_batch_item items[];
};

struct rp_weights_slot {
    uint64_t version; /* 0 = nothing readable */
    uint64_t size;
    uint64_t crc;
};

struct rp_weights { /* in the region; then the assembly's bitmap */
    uint64_t newest;
    struct rp_weights_slot slot[RP_WEIGHTS_SLOTS];
    uint64_t session; /* whose publication is being assembled; 0 = none */
    uint64_t id;
    uint64_t into; /* slot */
    uint64_t size;
    uint64_t piece;
    uint64_t crc;
    uint64_t missing; /* pieces */
    uint64_t sum; /* exclusive-or of what each piece that is there adds to crc */
};

enum rp_wait_kind { RP_WAIT_SAMPLE, RP_WAIT_PUSH, RP_WAIT_KINDS };

struct rp_note { /* volatile: the place in a queue of one session, table and kind */
    uint64_t id;       /* the request that stands there: the oldest the session asked for */
    uint64_t since_ns; /* when the place was taken */
    uint64_t lapse_ns; /* when it is given up, unless it is asked for again */
    uint64_t items;    /* SAMPLE: to be drawn; PUSH: to be created */
    struct rp_sample request; /* PUSH: its epoch alone */
    uint32_t previous; /* neighbours in its queue; RP_NOBODY at the ends */
    uint32_t next;
    uint16_t waiting;
    uint16_t size; /* PUSH: bytes of its body, which lies where its writer's is held */
};

struct rp_queue { /* notes of one table and kind, oldest first: their places in server->notes */
    uint32_t first;    /* RP_NOBODY: none */
    uint32_t last;
    uint32_t count;
};

/* The most time that pulling or assembling a blob of this size may hold others up. */
static inline uint64_t rp_weights_hold_ns(uint64_t size) {
    return (RP_WEIGHTS_REST_MS + size / RP_WEIGHTS_BYTES_PER_MS) * 1000000ull;
}

struct rp_server {
    struct rp_region *region;
    struct rp_limits limits; /* a copy of the region's, which a peer's bytes never reach */
    struct rp_intent intent;
    struct rp_table *tables;
    struct rp_session *sessions;
    uint8_t *records;
    uint64_t record_bytes;
    struct rp_weights *weights;
    uint64_t *weights_bitmap;
    uint8_t *weights_bytes;
    uint64_t weights_stride;
    rp_allocate *allocate; /* null: all of the region has its room */
    void *allocator;
    uint64_t weights_room[RP_WEIGHTS_SLOTS]; /* bytes of each slot that it gave room to */
    uint64_t weights_refused;    /* so much room, or more, is not asked for before that time */
    uint64_t weights_refused_ns;
    uint64_t weights_piece_ns; /* of the assembly: when its last new piece came */
    uint64_t weights_end_ns;   /* another publisher need not wait beyond this time */
    uint64_t weights_owner;    /* the session whose time that is, whatever ids it begins */
    uint64_t weights_wanted;   /* 1: another was refused since, and no publication was finished */
    uint64_t weights_pin;      /* the version that last kept a publisher waiting as it was pulled */
    uint64_t weights_pin_end_ns; /* it does so no longer, whatever session asks for it */

    struct rp_shares shares;
    struct rp_line *lines;
    struct rp_note *notes;
    struct rp_queue waiting[RP_WAIT_KINDS][RP_TABLES_MAX];
    char changes[256]; /* what an attach changed, in words */
    char names[RP_TABLES_MAX][RP_NAME_BYTES];
    uint32_t open; /* sessions */
    uint32_t free_first; /* places for more */
    uint32_t granted_first; /* sessions with credit, oldest grant first */
    uint32_t granted_last;
    uint32_t granted_count;
    uint32_t granted_sum;

    uint64_t now_ns;
    uint64_t tick_ns;    /* when timed work is due again */
    uint64_t turned_ns;  /* when the last turn began */
    uint64_t unheard_ns; /* time of turns until silence counts again; 0: it counts */
    uint64_t silent_ns;  /* before this time no session has been silent for too long */
    uint32_t tick_next;  /* the session it looks at next */
    uint32_t left_over;  /* 1: the last turn left requests that may be released in the next one */
    uint64_t turn;
    uint32_t turn_sessions;      /* answered in this turn, and in the one before */
    uint32_t turn_sessions_last;
    uint32_t turn_sent;          /* datagrams the last turn sent */
    uint32_t sessions_per_address; /* of another host; 0: no bound */
    uint64_t drawn;      /* ids taken from the entropy so far */
    uint8_t id_key[16];  /* never stored elsewhere, renewed at attach */
    uint8_t cookie_key[16];
    uint64_t counters[RP_COUNTER_COUNT];
    struct rp_cookies cookies;
    struct rp_hosts hosts;
    struct rp_meters meters;
};

static inline void rp_server_count(struct rp_server *server, enum rp_counter counter) {
    server->counters[counter]++;
}

/* May a silent session, or a place in a queue, be given up now? Not while datagrams that came as
 * the server stood still may wait in the port. */
static inline int rp_server_may_give_up(const struct rp_server *server) {
    return server->unheard_ns == 0;
}

/* ---- server_region.c: where things lie ---- */
/* Checks the config and finds every part's offset; 0 or -status with a sentence. */
int rp_region_layout(const struct rp_server_config *config, struct rp_region *region,
                     char error[256]);
/* Pieces an assembly's bitmap has bits for: as many as the smallest mtu makes. */
uint64_t rp_weights_pieces_max(const struct rp_limits *limits);
/* The checksum of a header's constant words and of the sizes of what lies in files. */
uint64_t rp_region_sum(const struct rp_region *region);
/* Writes where this build keeps what lies in no file; the region was made for the configuration. */
void rp_region_own(struct rp_region *region, const struct rp_server_config *config);
/* Writes each segment's seal, at create. */
void rp_region_seal(void *memory, const struct rp_server_config *config);
/* 0, or -RP_BAD_REGION and the name of the first segment that is not this region's. */
int rp_region_sealed(const void *memory, const struct rp_server_config *config, char error[256]);
struct rp_table_memory rp_region_table(void *memory, uint32_t table);
struct rp_limits rp_region_limits(const struct rp_server_config *config);
/* Points a server's handle into the region and empties its volatile part. */
struct rp_server *rp_region_open(void *memory, const uint8_t entropy[32], uint64_t now_ns);
static inline struct rp_record *rp_region_record(const struct rp_server *server, uint32_t session,
                                                 uint32_t place) {
    uint64_t at = (uint64_t)session * server->limits.records + place;
    return (struct rp_record *)(void *)(server->records + at * server->record_bytes);
}

/* ---- serve_weights.c ---- */
/* Gives up the publication that is being assembled, and counts it. */
void rp_server_give_up_assembly(struct rp_server *server);
/* As its backing is known: room for what another process was assembling, or it is given up. */
void rp_server_back_assembly(struct rp_server *server);

/* ---- server_verify.c ---- */
/* Do the words that survive a process hold together, the tables' aside? 0, or -RP_BAD_REGION with
 * a sentence. */
int rp_server_verify(const struct rp_server *server, char error[256]);
/* Gives up a half-finished publication that does not hold together, and counts it. */
void rp_server_drop_assembly(struct rp_server *server);

/* ---- server_adopt.c: a region and the configuration it is opened with ---- */
/* 0; or -RP_BAD_REGION and the first difference that cannot be. What will be changed to the
 * configuration's value is written to changes. */
int rp_region_compare(const void *state, size_t bytes, const struct rp_server_config *config,
                      char changes[256], char error[256]);
/* Takes over, in one transaction, what may change. */
void rp_region_adopt(struct rp_server *server, const struct rp_server_config *config);

/* ---- credit.c: how many datagrams may be in flight towards the server ---- */
/* Grants at most `want` datagrams (at least 1) and returns what is granted. */
uint32_t rp_credit_grant(struct rp_server *server, uint32_t session, uint32_t want);
void rp_credit_drop(struct rp_server *server, uint32_t session);
/* Takes back what has lapsed by now. */
void rp_credit_lapse(struct rp_server *server);
void rp_credit_check(const struct rp_server *server);

/* ---- wait.c: requests that are held back ---- */
struct rp_note *rp_wait_note(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                             uint32_t table);
/* The note of a request that stands in the queue with this id, or null. */
struct rp_note *rp_wait_find(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                             uint32_t table, uint64_t id);
/* It is asked for: its place lapses later. */
static inline void rp_wait_keep(const struct rp_server *server, struct rp_note *note) {
    note->lapse_ns = server->now_ns + RP_NOTE_MS * 1000000ull;
}
/* Appends the note to its queue. */
void rp_wait_add(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                 uint32_t table);
void rp_wait_remove(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                    uint32_t table);
void rp_wait_drop(struct rp_server *server, uint32_t session);
/* The session's request of this id waits at no table any more. */
void rp_wait_forget(struct rp_server *server, enum rp_wait_kind kind, uint32_t session,
                    uint64_t id);
/* Removes the session's SAMPLEs that wait although they are done. */
void rp_wait_forget_done(struct rp_server *server, uint32_t session);
/* Removes what has lapsed by now and stands first. */
void rp_wait_lapse(struct rp_server *server, enum rp_wait_kind kind, uint32_t table);
/* The session whose note stands first, or RP_NOBODY. */
uint32_t rp_wait_first(const struct rp_server *server, enum rp_wait_kind kind, uint32_t table);
void rp_wait_check(const struct rp_server *server);

#endif
