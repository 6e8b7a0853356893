/* The wire: every message layout and every limit, on one page. PROTOCOL.md says the same in prose,
 * with hex.
 *
 *     a datagram         outer header (40) | message header (16) | body
 *     an answer's body   answer header (24) | the operation's own answer
 *
 * All numbers are little-endian; every struct is naturally aligned, has no implicit padding and a
 * size that is a multiple of 8; reserved fields are zero and checked. The outer header's tag is a
 * CRC-32C without a key (four bytes, then twelve zeros) and the AEAD's tag with one, so that no
 * size here depends on whether there is a key.
 *
 * Requests have operation numbers below 0x80; the answer to operation x is x | RP_ANSWER. `id`
 * names the request inside its session and operation; an answer repeats it. Structs are read and
 * written in place on little-endian machines, from buffers aligned to 8 bytes; a big-endian build
 * is refused below. What stands between the marks [cffi] and [/cffi] is read by the Python
 * binding's compiler too.
 */
#ifndef RP_WIRE_H
#define RP_WIRE_H

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "messages are read in place: this code needs a little-endian machine"
#endif

/* [cffi] */
enum rp_wire_limits {
    RP_MAGIC = 0x314C5052, /* the bytes "RPL1" */
    RP_VERSION_MIN = 2,
    RP_VERSION_MAX = 2,
    RP_MTU_MIN = 512,      /* bytes of one datagram, all headers included */
    RP_MTU_DEFAULT = 1400, /* passes any Ethernet, a tunnel's headers included */
    RP_MTU_HOST = 8960,    /* within one host: two pages and a bit less, headers included */
    RP_MTU_MAX = 65504,    /* fits a UDP datagram; a multiple of 8 */
    RP_NAME_BYTES = 32,    /* a table's or plan's name, zero-padded, at least one zero */
    RP_TABLES_MAX = 16,
    RP_PLANS_MAX = 8,
    RP_PICKS_MAX = 4096,   /* (column, offset) pairs of one plan */
    RP_COLUMNS_MAX = 64,
    RP_REACH_MAX = 1024,   /* steps behind or ahead of an anchor */
    RP_STEP_BYTES_MAX = 1 << 22,
    RP_PIECES_MAX = 1 << 14, /* datagrams one step may be cut into: the largest at any mtu */
    RP_STREAMS_MAX = 4096, /* streams of one writer */
    RP_SESSIONS_MAX = 4096,
    RP_WINDOW_MAX = 1 << 16, /* sequences one writer may have unanswered */
    RP_BATCH_MAX = 1 << 16,
    RP_QUEUE_BATCH_MAX = 16000, /* items of one batch of a queue: one transaction takes them out */
    RP_TOLD_OF = 64,       /* ids before its own that a SAMPLE tells of: rp_sample.under_way */
    RP_RECORDS_MAX = 64,   /* batches of a session that are kept until they are done */
    RP_UPDATE_RECORDS = 64,
    RP_SPEC_BYTES_MAX = 1 << 16,
    RP_BLOB_BYTES_MAX = 1 << 30,
    RP_BURST = 64,         /* datagrams one burst may hold */
    RP_PULL_TRAINS = 16,    /* trains on their way to one client: a turn has room for them */
    RP_PEER_BYTES = 28,    /* an address, opaque to all but its transport */
};
/* [/cffi] */

enum rp_op {
    RP_OP_HELLO = 1,   /* asks for a cookie; not smaller than its answer */
    RP_OP_OPEN = 2,    /* echoes the cookie, opens a session */
    RP_OP_ECHO = 3,    /* echoes a cookie from a new address, moves the session there */
    RP_OP_CLOSE = 4,   /* ends the session; cuts its open episodes */
    RP_OP_PING = 5,    /* keeps the session alive, asks for credit */
    RP_OP_TABLE = 6,   /* a table's number, limits and present state */
    RP_OP_WRITER = 7,  /* asks for a writer place on a table */
    RP_OP_PUSH = 8,    /* steps, pieces of steps, creates of items */
    RP_OP_SAMPLE = 9,  /* draws a batch, or names one by keys */
    RP_OP_PULL = 10,   /* asks for datagrams of a batch drawn before */
    RP_OP_UPDATE = 11, /* new priorities for keys */
    RP_OP_PUBLISH = 12, /* a piece of a new weights version */
    RP_OP_BLOB = 13,   /* asks for datagrams of a blob: a table's spec, or weights */
    RP_OP_STATS = 14,  /* the server's counters */
    RP_OP_RESET = 15,  /* empties a table: a new epoch */
    RP_OP_CANCEL = 16, /* withdraws a request that waits */
    RP_OP_COUNT = 17,  /* the operations served here lie below this */
    RP_ANSWER = 0x80,
};

/* Numbers that are assigned for good. Until one is served it is answered BAD_OP like any other
 * number from RP_OP_COUNT to 127. */
enum rp_op_reserved {
    RP_OP_CHECKPOINT = 17, /* writes the tables to a file */
    RP_OP_CREATE = 18,     /* makes a table */
    RP_OP_DROP = 19,       /* removes a table */
    RP_OP_RESIZE = 20,     /* changes a table's capacity */
    RP_OP_LIMIT = 21,      /* changes a table's limiter */
    RP_OP_FOLLOW = 22,     /* a mirror asks for a table's changes */
    RP_OP_SEGMENT = 23,    /* names memory that client and server share */
};

/* [cffi] */
/* What the two ends may agree on. Each end sends what it can do and what it insists on; the agreed
 * set is what both can do. An unknown bit is ignored in what an end can do, and refused in what it
 * insists on. */
enum rp_feature {
    RP_FEATURE_NO_INTEGRITY = 1,    /* nothing is checked: a link that checks by itself */
    RP_FEATURE_DATAGRAM_CRC = 2,    /* the tag holds the datagram's CRC-32C */
    RP_FEATURE_STEP_CHECKSUM = 4,   /* a checksum travels with each step */
    RP_FEATURE_SEALED = 8,          /* the tag is an AEAD's, the bodies are encrypted */
    RP_FEATURE_ITEM_FIELDS = 16,    /* enum rp_item_field may be asked for */
    RP_FEATURES_KNOWN = 31,
    RP_FEATURES_SPOKEN = RP_FEATURE_DATAGRAM_CRC,   /* by this build, at either end */
    RP_FEATURES_REQUIRED = RP_FEATURE_DATAGRAM_CRC,
};
/* [/cffi] */

/* ---- headers ---- */

struct rp_outer {
    uint32_t magic;      /* RP_MAGIC */
    uint8_t version;
    uint8_t reserved[3];
    uint64_t connection; /* the session; 0 in HELLO, OPEN and their refusals */
    /* new for every transmission, retransmissions too; higher each time, per direction */
    uint64_t packet;
    /* CRC-32C of the whole datagram with this field zero, then 12 zero bytes */
    uint8_t tag[16];
};

struct rp_message {
    uint8_t op;
    uint8_t reserved;
    uint16_t table; /* table number; 0 where the operation has none */
    uint16_t size;  /* bytes that follow this header: datagram = 56 + size */
    /* requests: datagrams the sender would like in flight; answers: the low 16 bits of the packet
     * number of the datagram that is answered, so that every round trip can be measured; 0 where a
     * request that waited is answered later */
    uint16_t want;
    uint64_t id;    /* names the request */
};

struct rp_answer {
    /* the server's; new when it starts empty, kept when it attaches to its region */
    uint64_t incarnation;
    uint64_t weights_version; /* newest complete one; 0 = none */
    uint16_t status;          /* enum rp_status */
    uint16_t credit;          /* full datagrams the session may have in flight from now on */
    /* the credit ends this long after this answer was sent; then it is one datagram */
    uint32_t lapse_us;
};

/* ---- sessions ---- */

/* HELLO and its answer keep these two layouts for ever, whatever the version, in datagrams whose
 * headers and checksum are those of this page too: a server answers every version's, with the
 * version of the HELLO in the outer header. id = a nonce of the client's. */
struct rp_hello {
    uint16_t version_min;
    uint16_t version_max;
    uint32_t mtu; /* the largest datagram the client can send and receive */
    uint64_t features;
    uint64_t required;
    uint8_t reserved[40]; /* zero; a server checks it only in HELLOs of its own versions */
};

struct rp_cookie { /* the answer to HELLO, where status is OK, BAD_VERSION or BAD_FEATURE */
    /* SipHash-2-4 of (address, nonce, period) under a secret that dies with the process; 0 in a
     * refusal */
    uint64_t cookie;
    uint32_t mtu;         /* the smaller of both; 0 in a refusal */
    uint16_t version;     /* the newest both speak; 0 in a refusal */
    uint16_t version_min; /* the versions the server speaks */
    uint16_t version_max;
    uint16_t reserved[3];
    uint64_t features;    /* what the server can do, and what it insists on */
    uint64_t required;
};

/* id = the nonce of HELLO; a repeat with the same nonce and address finds the same session */
struct rp_open {
    uint64_t cookie;
    uint64_t features;
    uint64_t required;
    uint32_t mtu;
    uint16_t version;
    uint16_t receive_budget; /* datagrams of mtu bytes the client can take in one go */
    uint8_t identity[16];    /* what the client calls itself: any bytes */
    uint8_t key_id[8];       /* which key it would seal with; zero: none */
    uint8_t ephemeral[32];   /* its half of a key exchange, and the proof: zero */
    uint8_t proof[16];
    uint8_t reserved[24];    /* so that the answer is no larger */
};

/* [cffi] */
struct rp_opened { /* connection in the outer header = the new session */
    uint64_t session;
    uint32_t mtu;
    uint32_t idle_ms;       /* the session is given up after this silence */
    uint32_t batch_max;     /* items in one batch */
    uint16_t records;       /* batches kept until they are done: have no more under way */
    uint16_t update_records;
    uint16_t table_count;
    /* datagrams of one train: the most a SAMPLE, PULL or BLOB is answered with at once */
    uint16_t train_max;
    uint32_t weights_max;   /* bytes of the largest weights */
    uint64_t features;      /* the agreed set */
    uint8_t ephemeral[32];  /* the server's half of a key exchange, and the proof: zero */
    uint8_t proof[16];
};
/* [/cffi] */

/* connection = the session; the cookie came in an ADDRESS_CHANGED answer */
struct rp_echo {
    uint64_t cookie;
};

/* The answer's body where status is ADDRESS_CHANGED, whatever the operation. */
struct rp_address_changed {
    uint64_t cookie;
    uint32_t packet; /* as in struct rp_refused */
    uint32_t reserved;
};

/* The answer's body where status is UNKNOWN_SESSION or WRONG_QUEUE, whatever the operation;
 * connection in the outer header = 0. The first two fields name the refused datagram: so only a
 * host that saw it can have sent this answer, and a late copy of the answer ends nothing. */
struct rp_refused {
    uint64_t connection; /* of the refused datagram's outer header */
    uint32_t packet;     /* the low half of its packet number */
    uint16_t port;       /* WRONG_QUEUE: send from this UDP port; 0: from any other one */
    uint16_t reserved;
};

/* Withdraws a SAMPLE or PUSH of this session that waits, from the queue of the header's table. A
 * SAMPLE's id is used up by it, and no record of it is kept. The answer is a status alone. */
struct rp_cancel {
    uint64_t request; /* its id */
    uint16_t op;      /* its operation */
    uint16_t reserved[3];
};

/* ---- tables ---- */

struct rp_table_request {
    uint8_t name[RP_NAME_BYTES]; /* all zero: the table of the message header's number */
};

/* [cffi] */
struct rp_table_info {
    uint8_t name[RP_NAME_BYTES];
    uint64_t epoch;
    uint64_t head;      /* insertion number of the next step: key of the newest step + 1 */
    uint64_t total;     /* mass of all drawable items */
    uint64_t inserted;  /* items, as its limiter counts: created, */
    uint64_t sampled;   /* and drawn */
    uint64_t min_size;  /* items created before the first draw */
    double samples_per_insert; /* 0 = no limiter */
    /* Reverb's rule: error_min <= inserted * samples_per_insert - sampled <= error_max */
    double error_min;
    double error_max;
    double alpha;
    uint32_t capacity;
    uint32_t count;     /* drawable items */
    uint32_t step_bytes; /* of one record, a multiple of 8 */
    uint32_t spec_bytes;
    uint32_t spec_crc;
    uint32_t writers_max;
    uint16_t number;
    uint16_t plan_count;
    uint16_t reach_behind;
    uint16_t reach_ahead;
    uint32_t item_bytes[RP_PLANS_MAX]; /* of one sampled item under each plan, a multiple of 8 */
};
/* [/cffi] */

struct rp_writer_request {
    uint16_t streams;
    uint16_t reserved[3];
};

/* [cffi] */
struct rp_writer_granted {
    uint64_t epoch;
    uint64_t next_sequence; /* 0 for a new writer */
    uint32_t window;        /* sequences that may be unanswered */
    uint16_t streams;
    /* a step of more pieces than this at the session's mtu cannot be stored */
    uint16_t pieces_max;
};
/* [/cffi] */

/* ---- push ---- */

/* [cffi] */
enum rp_run_flags {
    /* the run's last step is the observation-only row that closes its episode */
    RP_RUN_END = 1,
    /* every step is also an item: its window is complete at once (plain rows) */
    RP_RUN_ITEM = 2,
    /* with RP_RUN_ITEM: count float64 priorities precede the steps; without: largest mass so far */
    RP_RUN_PRIORITY = 4,
    RP_RUN_FLAGS = 7,
};
/* [/cffi] */

struct rp_push {
    uint64_t epoch;
    uint16_t run_count;
    uint16_t create_count;
    uint32_t reserved;
}; /* then the runs, then the creates */

struct rp_run { /* consecutive steps of one stream, or one piece of one step */
    uint64_t sequence; /* of the first step; the others follow by one */
    uint64_t step;     /* its number in its stream; streams count from 0 over all their episodes */
    uint16_t stream;
    uint16_t flags;
    uint16_t count;        /* steps; 1 where the step is in pieces */
    uint16_t piece;        /* 0 for whole steps */
    /* 1 for whole steps; piece i covers bytes [i*b, min((i+1)*b, step_bytes)), b = step_bytes /
     * piece_count rounded up to a multiple of 8 */
    uint16_t piece_count;
    uint16_t reserved;
    uint32_t size;         /* bytes that follow: priorities if any, then steps or the piece */
};

/* [cffi] */
enum rp_create_flags {
    RP_CREATE_MAXIMUM = 1, /* takes the table's largest mass so far; priority must be 0 */
    RP_CREATE_FLAGS = 1,
};
/* [/cffi] */

struct rp_create {
    uint64_t step; /* the anchor's number in its stream */
    double priority;
    uint16_t stream;
    uint16_t flags;
    uint16_t table; /* where the item goes: 0, the message's own; others are not served yet */
    uint16_t reserved;
};

struct rp_pushed {
    uint64_t done_through; /* all sequences below this are done: committed, or their place lost */
    uint64_t lost_total;   /* steps of this writer that ever lost their place before commit */
    uint16_t run_count;
    uint16_t create_count;
    uint32_t reserved;
/* then run_count rp_run_done, then create_count bytes of enum rp_status, padded with zeros to 8 */
};

struct rp_run_done {
    /* of the run's first step; the others follow by one; 0 = not known any more */
    uint64_t key;
    uint16_t committed; /* so many of the run's first steps are stored: acknowledged */
    /* so many of its last steps lost their place before commit: send them again, new sequences */
    uint16_t lost;
    uint32_t reserved;
};

/* [cffi] */
enum rp_noted {
    RP_NO_PLACE, /* another request of the session has its place */
    RP_PLACE,    /* an answer follows on release */
    RP_GIVEN_UP, /* a SAMPLE with `now`: its id is used up, and nothing is ever drawn for it */
    RP_NO_RECORD, /* a SAMPLE that its session's other batches hold back: all records are taken */
};
struct rp_blocked { /* the answer's body where status is BLOCKED, in answers to PUSH and SAMPLE */
    uint32_t by_size;   /* 1: the minimum size holds it back */
    uint32_t noted;     /* enum rp_noted */
    /* items to be created (SAMPLE) or to be drawn (PUSH) before it can go on; 0: a PUSH waits for
     * earlier steps of its writer, and no limiter holds it, or a SAMPLE lacks a record alone;
     * RP_NO_RECORD: the least id on record */
    uint64_t need;
};
/* [/cffi] */

/* ---- sample ---- */

/* [cffi] */
enum rp_sample_mode {
    RP_SAMPLE_INDEPENDENT = 0,
    RP_SAMPLE_STRATIFIED = 1,
    /* no draw: the keys follow the struct; uncharged; a dead key comes back overwritten */
    RP_SAMPLE_KEYS = 2,
    RP_SAMPLE_MODES = 3,
};
/* [/cffi] */

/* [cffi] */
struct rp_sample {
    uint64_t epoch;   /* 0 = whatever it is now */
    uint32_t count;   /* items */
    uint32_t uniform; /* u of P = (1-u) mass/total + u/N, in units of 2^-32; 0xFFFFFFFF means 1 */
    uint16_t plan;
    uint8_t mode;
    uint8_t now;      /* 1: drawn now or not at all: BLOCKED leaves it no place in the queue */
    uint16_t budget;  /* datagrams of the first train */
    uint16_t fields;  /* enum rp_item_field, where the feature was agreed on; else 0 */
    /* bit i: the SAMPLE of this session whose id is 1 + i below its own is not done. */
    uint64_t under_way;
};

enum rp_item_field { /* what an item may come with: defined, not served yet */
    RP_ITEM_ROWS = 1,     /* the keys of its window's rows, in place of their bytes */
    RP_ITEM_INSERTED = 2, /* its insertion number */
    RP_ITEM_SAMPLED = 4,  /* how often it was drawn */
    RP_ITEM_WEIGHTS = 8,  /* the weights version its step was written under */
};
/* [/cffi] */ /* RP_SAMPLE_KEYS: then count uint64 keys */

/* A batch is one byte stream, cut into datagrams of equal payload but the last:
 *     rp_batch | count x rp_batch_item | count x item (item_bytes each, columns in the plan's
 *         order)
 * Its length follows from the request: 48 + count * (24 + item_bytes). */
struct rp_batch {
    uint64_t epoch;
    uint64_t total; /* mass at the draw */
    uint64_t head;  /* insertion number at the draw: age of an item = head - 1 - key */
    uint32_t drawable; /* N at the draw */
    uint32_t count;
    uint32_t item_bytes;
    uint32_t uniform;
    uint64_t capacity;
};

enum rp_key_bits { RP_KEY_BITS = 52 }; /* what an item's key has at most */

struct rp_batch_item {
    uint64_t key; /* generation * capacity + slot, RP_KEY_BITS bits */
    uint64_t mass;
    uint16_t behind; /* rows before the anchor in its episode, at most reach_behind */
    uint16_t ahead;  /* rows after it, the closing row included, at most reach_ahead */
    uint32_t reserved;
};

struct rp_batch_datagram { /* then rp_overwritten_words() 64-bit words, then payload */
    uint32_t datagram;
    uint32_t datagram_count;
    /* bytes of payload in all but the last datagram: this one covers [datagram*payload, ...) */
    uint32_t payload;
    /* bit i of the words: item (first item whose body starts in or before this payload) + i was
     * overwritten; its bytes here are zero. All zero where the payload holds no item bodies. */
    uint32_t words;
};

struct rp_pull { /* id = a new one; the datagrams come back with the batch's id and op SAMPLE */
    uint64_t batch; /* the SAMPLE request's id */
    uint32_t first;
    uint32_t count; /* at most train_max */
};

/* ---- update, reset ---- */

struct rp_update { /* ids of one session count 1, 2, 3 ...: applied in that order, each once */
    uint64_t epoch;
    uint32_t count;
    uint32_t reserved;
}; /* then count rp_update_entry */

struct rp_update_entry {
    uint64_t key;
    double priority;
};

/* [cffi] */
struct rp_updated {
    uint32_t applied;
    uint32_t stale;
    uint32_t unknown;
    uint32_t reserved;
};
/* [/cffi] */

struct rp_reset { /* applied only while the table still has this epoch: a repeat changes nothing */
    uint64_t epoch;
};

struct rp_reset_done {
    uint64_t epoch; /* the new one */
};

/* ---- weights, blobs, stats ---- */

struct rp_publish { /* id names the publication: all its pieces carry the same */
    uint64_t size;   /* of the whole blob */
    uint64_t offset; /* a multiple of piece */
    uint32_t piece;  /* bytes of every piece but the last, a multiple of 8 */
    uint32_t crc;    /* CRC-32C of the whole blob */
}; /* then the piece */

struct rp_published {
    uint64_t offset;  /* the piece answered */
    uint64_t version; /* 0 until the blob is whole, then the version the server gave it */
};

/* [cffi] */
enum rp_blob_kind { RP_BLOB_SPEC = 1, RP_BLOB_WEIGHTS = 2 };
/* [/cffi] */

struct rp_blob_request { /* a table's spec: message header's table */
    uint64_t version; /* weights: 0 = the newest, at its first datagram; spec: 0 */
    uint32_t first;
    uint32_t count; /* at most train_max */
    uint16_t kind;
    uint16_t reserved[3];
};

struct rp_blob_datagram { /* then payload */
    uint64_t version;
    uint64_t size;
    uint32_t crc;
    uint32_t datagram;
    uint32_t datagram_count;
    uint32_t payload; /* bytes in all but the last */
};

struct rp_stats_request {
    uint32_t first; /* with RP_STATS_FACTS: of the transport's facts */
    uint32_t count;
};

struct rp_stats { /* then count uint64 counters, or count facts */
    uint32_t first;
    uint32_t count;
    uint32_t total; /* how many there are */
    uint32_t sessions;
};

#define RP_STATS_FACTS (1u << 31)

/* [cffi] */
enum rp_fact_kind {
    RP_FACT_IN = 1,    /* datagrams or frames that came in and were dropped; its name is why */
    RP_FACT_OUT = 2,   /* what was to go out and did not */
    RP_FACT_COUNT = 3, /* another count, no drop */
    RP_FACT_LEVEL = 4, /* what there is now: rises and falls */
};

enum rp_fact_limits {
    RP_FACTS_MAX = 48,
    RP_FACT_NAME_BYTES = 32,
    RP_FACT_SENTENCE_BYTES = 80,
};

struct rp_fact { /* a number that a transport counts of itself; texts zero-padded */
    uint8_t name[32];     /* of a-z, 0-9 and _ */
    uint8_t sentence[80]; /* what it counts */
    uint64_t value;
    uint32_t kind;
    uint32_t reserved;
};
/* [/cffi] */

/* ---- derived sizes ---- */

enum rp_wire_sizes {
    RP_HEADER_BYTES = sizeof(struct rp_outer) + sizeof(struct rp_message),
    RP_ANSWER_BYTES = RP_HEADER_BYTES + sizeof(struct rp_answer),
    RP_HELLO_BYTES = sizeof(struct rp_hello),
    /* A request's body is zero-padded to at least this, so that no refusal to a stranger is larger
     * than its request: body size = max(RP_REQUEST_BODY_MIN, what the operation's structs need,
     * rounded up to 8), the rest zero. */
    RP_REQUEST_BODY_MIN = 40,
};

/* Words of the overwritten bitmap: enough for every item a payload can touch (two cut ones at its
 * ends). Both ends compute it from mtu and item size; it and the payload below depend on each other
 * only through mtu. */
static inline uint32_t rp_overwritten_words(uint32_t mtu, uint32_t item_bytes) {
    return (mtu / item_bytes + 2 + 63) / 64;
}

/* Payload bytes of one batch datagram: what the mtu leaves, a multiple of 8. */
static inline uint32_t rp_batch_payload(uint32_t mtu, uint32_t item_bytes) {
    return (mtu - RP_ANSWER_BYTES - (uint32_t)sizeof(struct rp_batch_datagram)
            - 8 * rp_overwritten_words(mtu, item_bytes)) & ~7u;
}

static inline uint64_t rp_batch_bytes(uint32_t count, uint32_t item_bytes) {
    return sizeof(struct rp_batch) + (uint64_t)count * (sizeof(struct rp_batch_item) + item_bytes);
}

static inline uint32_t rp_blob_payload(uint32_t mtu) {
    return (mtu - RP_ANSWER_BYTES - (uint32_t)sizeof(struct rp_blob_datagram)) & ~7u;
}

static inline uint32_t rp_publish_piece(uint32_t mtu) {
    return (mtu - RP_HEADER_BYTES - (uint32_t)sizeof(struct rp_publish)) & ~7u;
}

/* Bytes of one piece of a step cut into piece_count; the last may be shorter, and none may be
 * empty. */
static inline uint32_t rp_piece_bytes(uint32_t step_bytes, uint32_t piece_count) {
    return ((step_bytes + piece_count - 1) / piece_count + 7) & ~7u;
}

/* Datagrams (so pieces) one step of this size needs at this mtu, a piece beside one run header and
 * no creates. */
static inline uint32_t rp_piece_count(uint32_t step_bytes, uint32_t mtu) {
    uint32_t room = (mtu - RP_HEADER_BYTES - (uint32_t)sizeof(struct rp_push)
                     - (uint32_t)sizeof(struct rp_run)) & ~7u;
    return (step_bytes + room - 1) / room;
}

#endif
