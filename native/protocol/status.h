/* Every way an operation can end, and every early exit that is counted: two macro tables, one place
 * per name.
 *
 * A status travels on the wire as an unsigned 16-bit number; C functions return it negated (>= 0 is
 * success, a count where that is useful). A counter is a 64-bit number in the server's or client's
 * volatile memory, read with STATS. Numbers are part of the protocol: append, never renumber.
 * One that no file returns is reserved, and its sentence begins so. PROTOCOL.md repeats both tables
 * and a test compares them.
 */
#ifndef RP_STATUS_H
#define RP_STATUS_H

/*        name                number  sentence */
#define RP_STATUSES(X) \
    X(OK,                    0, "done") \
    X(BAD_MAGIC,             1, "the datagram does not start with this protocol's magic") \
    X(BAD_VERSION,           2, "the protocol version is not one this end speaks") \
    X(BAD_SIZE,              3, "a size does not match the datagram, or is above what was agreed") \
    X(BAD_CHECKSUM,          4, "the datagram's checksum does not match its bytes") \
    X(BAD_OP,                5, "the operation is not one this end knows") \
    X(BAD_RESERVED,          6, "a reserved field is not zero") \
    X(BAD_COOKIE,            7, "the cookie is wrong or old: say HELLO again (ECHO: repeat)") \
    X(UNKNOWN_SESSION,       8, "the server does not know this session: it restarted or expired") \
    X(NO_SESSION_FREE,       9, "every session is taken and none was idle long enough") \
    X(ADDRESS_CHANGED,      10, "the session is bound to another address: echo the cookie") \
    X(UNKNOWN_TABLE,        11, "no table has this name or number") \
    X(UNKNOWN_PLAN,         12, "the table has no plan with this number") \
    X(STALE_EPOCH,          13, "the table was created anew since: its old keys mean nothing") \
    X(NO_WRITER_FREE,       14, "every writer place of the table is taken") \
    X(NOT_A_WRITER,         15, "the session has not asked for a writer place on this table") \
    X(BAD_STREAM,           16, "the stream number is beyond what the server granted") \
    X(BAD_SEQUENCE,         17, "the sequence number lies beyond the window") \
    X(BAD_STEP,             18, "the step number does not continue its stream") \
    X(BAD_PIECE,            19, "the piece does not fit the step's size or its earlier pieces") \
    X(BAD_PRIORITY,         20, "a priority is NaN, infinite or negative") \
    X(BATCH_TOO_LARGE,      21, "more items are asked for in one batch than the server allows") \
    X(NOTHING_DRAWABLE,     22, "no item in the table has a positive priority") \
    X(BLOCKED,              23, "the limiter, an earlier step or other batches hold it back") \
    X(NEVER_FITS,           24, "the limiter can never admit this many at once") \
    X(FORGOTTEN,            25, "this request is not on record: it is over, or too old") \
    X(EARLY,                26, "an earlier update has not arrived yet: send that one first") \
    X(RETRY,                27, "reserved: what waits is answered once it is done") \
    X(GONE,                 28, "this version of the blob is no longer kept") \
    X(TOO_LARGE,            29, "the blob is larger than the server's bound") \
    X(BUSY,                 30, "another publisher's blob is being assembled") \
    X(BAD_HASH,             31, "the assembled blob does not match its hash") \
    X(NO_WEIGHTS,           32, "no weights have been published yet") \
    X(BAD_ARGUMENT,         33, "an argument is out of range") \
    X(NOT_YET,              34, "the window is not stored yet and the episode is open") \
    X(EXISTS,               35, "the item was created before: its priority is left alone") \
    X(OVERWRITTEN,          36, "the step, or one its window needs, has been overwritten") \
    X(CLOSING_ROW,          37, "the row only closes an episode: it cannot anchor an item") \
    X(UNKNOWN_STEP,         38, "the stream never stored this step") \
    X(TIMEOUT,              39, "no answer came within the time allowed") \
    X(CLOSED,               40, "the client or server is closed") \
    X(FULL,                 41, "a bounded queue is full: take a turn, then try again") \
    X(SERVER_RESTARTED,     42, "the server restarted: what was not acknowledged may be lost") \
    X(SESSION_EXPIRED,      43, "the server gave the session up after too long a silence") \
    X(NO_MEMORY,            44, "the operating system refused the memory") \
    X(SYSTEM,               45, "a system call failed") \
    X(BAD_REGION,           46, "the region was not written by this layout, or is damaged") \
    X(PENDING,              47, "the request is under way") \
    X(INSECURE,             48, "without a key only loopback addresses are served") \
    X(NO_TRANSPORT,         49, "this build has no such transport") \
    X(FORKED,               50, "the client was opened in another process: open one here") \
    X(SHORT_BATCH,          51, "part of the batch was overwritten before it arrived") \
    X(LOST_PLACE,           52, "reserved: the step's slot was overwritten too early") \
    X(WRONG_QUEUE,          53, "the network card gave this to another shard: use the port named") \
    X(BAD_FEATURE,          54, "one end insists on a feature that the other does not have") \
    X(TABLE_FULL,           55, "reserved: every place for a table is taken") \
    X(NOT_AUTHORISED,       56, "reserved: this client may not do that") \
    X(ADDRESS_FULL,         57, "this address holds its whole share of the sessions") \
    X(DISK_FULL,            58, "the server's disk is full") \
    X(DEVICE_LOST,          59, "the network device was taken away")

#define RP_STATUS_ENUM(name, number, sentence) RP_##name = number,
enum rp_status { RP_STATUSES(RP_STATUS_ENUM) RP_STATUS_COUNT };

/*        name                    what moved it */
#define RP_COUNTERS(X) \
    X(datagrams_in,              "datagrams received") \
    X(datagrams_out,             "datagrams sent") \
    X(bytes_in,                  "bytes received, headers included") \
    X(bytes_out,                 "bytes sent, headers included") \
    X(turns,                     "turns of the loop that found at least one datagram") \
    X(drop_size,                 "wrong sizes: dropped, or answered BAD_SIZE in a session") \
    X(drop_magic,                "dropped: not this protocol's magic") \
    X(drop_version,              "dropped: a protocol version not spoken here") \
    X(drop_checksum,             "dropped: damaged on the way") \
    X(drop_reserved,             "a reserved field not zero: dropped, or answered BAD_RESERVED") \
    X(drop_op,                   "an unknown operation: dropped, or answered BAD_OP in a session") \
    X(drop_replayed,             "dropped: a packet number seen before, or too old") \
    X(drop_no_room,              "dropped: no room to answer it in this turn") \
    X(drop_unsolicited,          "dropped: an answer to nothing that was asked") \
    X(hellos,                    "cookies handed out") \
    X(cookie_refused,            "refused: a wrong or expired cookie") \
    X(unknown_session,           "refused: a session the server does not know") \
    X(address_changed,           "a session spoke from a new address: asked to echo a cookie") \
    X(sessions_opened,           "sessions opened") \
    X(sessions_closed,           "sessions closed by their client") \
    X(sessions_expired,          "sessions given up after too long a silence") \
    X(sessions_refused,          "refused: no session was free") \
    X(refused_table,             "refused: unknown table") \
    X(refused_plan,              "refused: unknown plan") \
    X(refused_epoch,             "refused: keys of another table epoch") \
    X(refused_writer,            "refused: no writer place, or a push without one") \
    X(refused_stream,            "refused: stream number too large") \
    X(refused_sequence,          "refused: sequence beyond the window") \
    X(refused_step,              "refused: step number that does not continue its stream") \
    X(refused_piece,             "refused: piece that does not fit its step") \
    X(refused_priority,          "refused: NaN, infinite or negative priority") \
    X(refused_batch,             "refused: batch larger than allowed") \
    X(refused_argument,          "refused: an argument out of range") \
    X(refused_never_fits,        "refused: more at once than the limiter can ever admit") \
    X(refused_hash,              "refused: an assembled blob that does not match its hash") \
    X(refused_blob,              "refused: a blob too large, busy, gone or absent") \
    X(pushes,                    "push datagrams applied") \
    X(pushes_repeated,           "steps or pieces that had been stored before") \
    X(steps_committed,           "steps committed") \
    X(steps_lost_place,          "sequences whose slot was overwritten before its step was there") \
    X(holes_overwritten,         "reserved slots overwritten before their step was stored") \
    X(episodes_cut,              "episodes cut because their writer went away") \
    X(items_created,             "items created") \
    X(items_existed,             "creates repeated") \
    X(items_overwritten,         "creates whose anchor or window had been overwritten") \
    X(items_not_yet,             "creates whose window was not stored yet") \
    X(items_refused,             "creates of a closing row or an unknown step") \
    X(items_evicted,             "items that went before their step: a row of their window did") \
    X(masses_saturated,          "priorities so large that their mass was capped") \
    X(samples,                   "batches drawn, or read by keys") \
    X(samples_repeated,          "sample requests answered from their record") \
    X(samples_forgotten,         "sample or pull requests that are not on record") \
    X(samples_empty,             "sample requests that found nothing drawable") \
    X(samples_blocked,           "sample requests held back") \
    X(items_sampled,             "items drawn, or read by keys") \
    X(items_served_overwritten,  "sent as zeros, in each datagram: overwritten, or no key's") \
    X(pulls,                     "pull requests answered") \
    X(pushes_blocked,            "push datagrams held back by the limiter") \
    X(releases,                  "held-back requests that were released") \
    X(updates,                   "priority updates applied as datagrams") \
    X(updates_repeated,          "priority updates answered from their record") \
    X(updates_forgotten,         "priority updates older than their record") \
    X(updates_early,             "priority updates that arrived before an earlier one") \
    X(priorities_applied,        "single priorities applied") \
    X(priorities_stale,          "single priorities whose item was gone") \
    X(priorities_unknown,        "single priorities for keys that are no items") \
    X(weights_published,         "weight versions completed") \
    X(weights_pieces,            "pieces of weights received") \
    X(blob_datagrams,            "datagrams of blobs served") \
    X(retransmissions,           "client: requests sent again") \
    X(timeouts,                  "client: requests given up") \
    X(losses_seen,               "client: times the window was halved") \
    X(reconnects,                "client: sessions opened again") \
    X(redraws,                   "client: items asked for again because they were overwritten") \
    X(wrong_queue,               "refused: came to another shard's queue, answer names the port") \
    X(rebinds,                   "client: times it moved to the local port a server named") \
    X(refused_feature,           "refused: a feature that one end insists on and the other lacks") \
    X(refused_address,           "refused: the address holds its whole share of the sessions") \
    X(waits_lapsed,              "held-back requests given up: not asked for again in time") \
    X(waits_withdrawn,           "held-back requests withdrawn by their client") \
    X(drop_far,                  "dropped: a push that reserves too far ahead of what arrived") \
    X(refused_disk,              "refused: the disk has no room for the blob") \
    X(weights_dropped,           "publications given up at attach: damaged, or without room") \
    X(pushes_early,              "push datagrams held back for earlier steps of their writer") \
    X(drop_share,                "dropped: beyond its session's share of the server's time") \
    X(publishes_forgotten,       "refused: a publication that is on record no more") \
    X(items_undrawn,             "items of a queue that were overwritten before they were drawn")

#define RP_COUNTER_ENUM(name, sentence) RP_COUNT_##name,
enum rp_counter { RP_COUNTERS(RP_COUNTER_ENUM) RP_COUNTER_COUNT };

/* The sentence of a status (of its absolute value); "unknown status" for a number that is none.
 * Never null. */
const char *rp_status_sentence(int status);
/* The name of a status, as in RP_STATUSES, in capitals. */
const char *rp_status_name(int status);
/* Name and sentence of a counter; null at and beyond RP_COUNTER_COUNT. */
const char *rp_counter_name(int counter);
const char *rp_counter_sentence(int counter);

#endif
