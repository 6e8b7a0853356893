/* What the client's files call of each other, file by file; client_state.h has the map.
 *
 * Answer functions return 1 where the answer was taken, or the negative number of the counter that
 * says why it was dropped. Send functions are asked for one datagram, for which there is a packet.
 */
#ifndef RP_CLIENT_PARTS_H
#define RP_CLIENT_PARTS_H

#include "client/client_state.h"

/* What becomes of a received datagram: this, or the negative counter of its drop. */
enum { CLIENT_TAKEN = 1 };

/* ---- client_time.c ---- */
void rp_client_timer_set(struct rp_client *client, struct client_timer *timer, uint64_t due_ns);
void rp_client_timer_stop(struct rp_client *client, struct client_timer *timer);
/* The first timer that is due, stopped; or null. */
struct client_timer *rp_client_timer_next(struct rp_client *client);
/* The place the next flight takes: one that was freed, or one never used; CLIENT_NONE: none. */
static inline uint16_t rp_client_flight_next(const struct rp_client *client) {
    uint32_t fresh = client->flights_used < client->flights_max ? client->flights_used
                                                                : CLIENT_NONE;
    return client->flight_free != CLIENT_NONE ? client->flight_free : (uint16_t)fresh;
}
/* A flight for the datagram just sent; `list` is its owner's list (may be null). The pool has
 * room, asserted. */
uint16_t rp_client_flight_start(struct rp_client *client, uint8_t kind, uint16_t owner,
                                uint16_t *list, uint8_t tries);
void rp_client_flight_expect(struct rp_client *client, uint16_t flight, uint32_t first,
                             uint32_t count);
void rp_client_flight_end(struct rp_client *client, uint16_t flight, uint16_t *list);
void rp_client_flights_end(struct rp_client *client, uint16_t *list);

/* ---- client_credit.c ---- */
void rp_client_credit_init(struct rp_client *client);
int rp_client_credit_room(const struct rp_client *client); /* datagrams that may be sent now */
void rp_client_credit_granted(struct rp_client *client, const struct rp_answer *answer);
/* The packet numbered `packet` leaves now. */
void rp_client_credit_sent(struct rp_client *client, uint64_t packet);
/* An answer came whose header echoes these bits of a packet number: measures its round trip. */
void rp_client_credit_echoed(struct rp_client *client, uint16_t echo);
void rp_client_credit_lost(struct rp_client *client, const struct client_flight *flight);
/* The same, where nothing came for as long as an answer may take. */
void rp_client_credit_timed_out(struct rp_client *client, const struct client_flight *flight);
/* All of so many datagrams that were asked for at once came. */
void rp_client_credit_pulled(struct rp_client *client, uint32_t datagrams);
uint64_t rp_client_credit_timeout(struct rp_client *client, uint32_t tries); /* ns, jittered */
uint32_t rp_client_credit_expect(
    const struct rp_client *client); /* datagrams that may be asked for now */

/* ---- client_out.c ---- */
void rp_client_sender_list(struct rp_client *client, struct client_sender *sender);
static inline void rp_client_sender_add(struct rp_client *client, struct client_sender *sender) {
    client->send_pending = 1;
    if (!sender->listed) {
        rp_client_sender_list(client, sender);
    }
}
void rp_client_sender_remove(struct rp_client *client, struct client_sender *sender);
uint32_t rp_client_out_turn(struct rp_client *client, struct rp_port *port);
/* The body of the next packet to send, not zeroed. There is a packet, as the caller was asked to
 * send. */
uint8_t *rp_client_out_body(struct rp_client *client);
/* Pads, seals and hands on the packet whose body was filled. */
void rp_client_out_seal(struct rp_client *client, uint8_t op, uint16_t table, uint64_t id,
                        uint32_t size);

/* ---- client_session.c ---- */
void rp_client_session_begin(struct rp_client *client);
void rp_client_session_send(struct rp_client *client, uint8_t due);
void rp_client_session_timer(struct rp_client *client, struct client_timer *timer);
int rp_client_session_answer(struct rp_client *client, const struct rp_view *view);
void rp_client_session_end(struct rp_client *client, int status);
/* UNKNOWN_SESSION, ADDRESS_CHANGED and WRONG_QUEUE, whatever the operation. */
int rp_client_session_refused(struct rp_client *client, const struct rp_view *view);
/* Goes on from the local port that the server named. */
void rp_client_session_rebind(struct rp_client *client, struct rp_port *port);

/* ---- client_request.c ---- */
/* Points a slot at its part of the memory (null: only measures); returns how large that is. */
size_t rp_client_slot_open(struct client_slot *slot, uint8_t *memory, uint32_t batch_max);
int rp_client_ticket_new(struct rp_client *client, uint8_t op, uint16_t table,
                         uint64_t deadline_ns, int slot);
struct client_ticket *rp_client_ticket_at(struct rp_client *client, int ticket);
uint16_t rp_client_ticket_index(const struct rp_client *client,
                                const struct client_ticket *ticket);
void rp_client_ticket_finish(struct rp_client *client, struct client_ticket *ticket, int status);
void rp_client_ticket_timer(struct rp_client *client, struct client_timer *timer);
void rp_client_ticket_reopened(struct rp_client *client, struct client_ticket *ticket,
                               int status);
enum client_sending rp_client_ticket_send(struct rp_client *client, struct client_ticket *ticket);
void rp_client_ticket_lost(struct rp_client *client, struct client_ticket *ticket,
                           uint16_t flight);
/* The ticket an answer of this op and id is for, or null. */
struct client_ticket *rp_client_ticket_find(struct rp_client *client, uint8_t op, uint64_t id);
int rp_client_request_answer(struct rp_client *client, const struct rp_view *view);
uint16_t rp_client_answer_status(const struct rp_view *view);
uint64_t rp_client_id(struct rp_client *client,
                      uint16_t index); /* a new id that names the index */

/* ---- client_fetch.c ---- */
void rp_client_fetch_begin(struct client_fetch *fetch, uint32_t count);
/* The next run of datagrams that no flight asked for, at most `most`; marks nothing. Returns its
 * length. */
uint32_t rp_client_fetch_next(struct client_fetch *fetch, uint32_t most, uint32_t *first);
void rp_client_fetch_asked(struct client_fetch *fetch, uint32_t first, uint32_t count);
/* It has come; or it is so far ahead that nobody asked for it yet. */
int rp_client_fetch_has(const struct client_fetch *fetch, uint32_t datagram);
/* Notes an arrival: counts down the flight that asked for it, and gives up the flights that it
 * overtook. */
void rp_client_fetch_arrived(struct rp_client *client, struct client_ticket *ticket,
                             uint32_t datagram);
void rp_client_fetch_lost(struct rp_client *client, struct client_ticket *ticket,
                          uint16_t flight);

/* ---- client_records.c ---- */
/* What the question with this id says of those before it: rp_sample's under_way. */
uint64_t rp_client_records_under_way(struct rp_client *client, uint64_t id);
/* Do those that do not wait take all records that the server has for the session, or lack one? */
int rp_client_records_full(struct rp_client *client);
/* Is it, of those that were not sent yet, the one that was posted first? */
int rp_client_records_next(struct rp_client *client, const struct client_ticket *ticket);
/* The server said that it has none for this ticket, which asks again. */
void rp_client_records_lack(struct rp_client *client, struct client_ticket *ticket);
/* Does nothing but a record for it lack, as far as is known? It was not drawn then. */
int rp_client_records_lacks(struct rp_client *client, const struct client_ticket *ticket);
/* The ticket's id is done: the server may have to be told, and who lacks a record asks again. */
void rp_client_records_done(struct rp_client *client, const struct client_ticket *ticket);

/* ---- client_sample.c, client_land.c ---- */
static inline int rp_client_was_sent(const struct client_sample *sample) {
    return sample->first_budget > 0;
}

static inline struct client_sample *sample_of(struct rp_client *client,
                                              const struct client_ticket *ticket) {
    return &client->slots[ticket->slot].sample;
}
enum client_sending rp_client_sample_send(struct rp_client *client, struct client_ticket *ticket);
int rp_client_sample_answer(struct rp_client *client, const struct rp_view *view);
int rp_client_pull_answer(struct rp_client *client, const struct rp_view *view);
void rp_client_ask_now(struct rp_client *client, struct client_ticket *ticket);
void rp_client_sample_round(struct rp_client *client, struct client_ticket *ticket);
/* May items of a queue have been drawn for it, which nobody else gets? */
int rp_client_sample_at_stake(struct rp_client *client, const struct client_ticket *ticket);
/* Its time is over. 1 where something is at stake: then it asks once more, not to wait any longer,
 * and ends with that answer. */
int rp_client_sample_last_look(struct rp_client *client, struct client_ticket *ticket);
/* A sample given up by this end before it was drawn: a CANCEL goes with the next sending. */
void rp_client_sample_withdraw(struct rp_client *client, const struct client_ticket *ticket);
/* The sample under way that has this id, or null. */
struct client_ticket *rp_client_sample_find(struct rp_client *client, uint64_t id);
/* A CANCEL of this sample goes with the next sending, where there is room for one. */
void rp_client_cancel(struct rp_client *client, uint64_t id, uint16_t table);
/* Sends one of these. */
void rp_client_cancel_send(struct rp_client *client);
int rp_client_sample_ended(struct rp_client *client, struct client_ticket *ticket, int status);
/* Twice as many as `most`, up to a power of two: a number's low bits are its place. */
static inline uint32_t rp_client_places(uint32_t most) {
    uint32_t places = 1;
    while (places < 2 * most) {
        places *= 2;
    }
    return places;
}
int rp_client_land_columns(struct client_sample *sample);
/* Scatters bytes [offset, offset + size) of the round's stream; 0 where they cannot be the bytes
 * that were asked for. */
int rp_client_land(struct client_sample *sample, uint64_t offset, const uint8_t *bytes,
                   uint32_t size);
void rp_client_land_totals(struct client_sample *sample);

/* ---- client_update.c ---- */
enum client_sending rp_client_update_send(struct rp_client *client);
int rp_client_update_answer(struct rp_client *client, const struct rp_view *view);
void rp_client_update_lost(struct rp_client *client, uint16_t flight);
/* A queued update has ended: adds it up. */
void rp_client_update_reaped(struct rp_client *client, const struct client_ticket *ticket);
void rp_client_update_abandon(struct rp_client *client, uint16_t ticket);
void rp_client_update_reset(struct rp_client *client);

/* ---- client_blob.c, client_publish.c ---- */
enum client_sending rp_client_blob_send(struct rp_client *client, struct client_ticket *ticket);
int rp_client_blob_answer(struct rp_client *client, const struct rp_view *view);
enum client_sending rp_client_publish_send(struct rp_client *client,
                                           struct client_ticket *ticket);
int rp_client_publish_answer(struct rp_client *client, const struct rp_view *view);
void rp_client_publish_lost(struct rp_client *client, struct client_ticket *ticket,
                            uint16_t flight);

/* ---- client_push.c: posting and the ledger ---- */
struct client_writer *rp_client_writer_of(const struct rp_client *client, uint16_t table);
/* Keeps a place for a writer of this table and so many streams: 0 or -RP_FULL. */
int rp_client_writer_reserve(struct rp_client *client, uint16_t table, uint16_t streams);
/* 0; -RP_BAD_PIECE where a step needs more datagrams than the table or the queue takes; or
 * -RP_BAD_STEP where the session's place here is one whose writer a refusal ended. */
int rp_client_writer_begin(struct rp_client *client, const struct client_ticket *ticket,
                           const struct rp_writer_granted *granted);
void rp_client_writer_end(struct rp_client *client, struct client_writer *writer, int status);
/* The message being filled may leave: nothing is added to it any more. */
void rp_client_message_close(struct rp_client *client, struct client_writer *writer);
void rp_client_ledger_add(struct rp_client *client, uint16_t table, const struct rp_run *run,
                          uint32_t from, uint32_t to, uint64_t key);

/* ---- client_message.c: a message's states ---- */
static inline struct rp_run *rp_client_run_at(uint8_t *at) {
    return (struct rp_run *)(void *)at;
}
static inline uint8_t *rp_client_run_after(uint8_t *at) {
    return at + sizeof(struct rp_run) + rp_client_run_at(at)->size;
}
/* Of a message at this mtu: runs, bytes of memory; and how many hold one largest step. */
uint32_t rp_client_runs_max(uint32_t mtu);
size_t rp_client_message_bytes(uint32_t mtu);
uint32_t rp_client_messages_default(uint32_t mtu);
/* Of a queue of so many messages: with those of its writers' shares. */
uint32_t rp_client_message_places(uint32_t messages_max);
/* As many as there is room for beside the others' shares, at most one step's and a create's. */
uint16_t rp_client_message_share(const struct rp_client *client, uint32_t piece_count);
/* How many the writer may take now. */
uint32_t rp_client_messages_room(const struct rp_client *client,
                                 const struct client_writer *writer);
/* A session has begun: its messages are cut for its mtu. */
void rp_client_messages_begin(struct rp_client *client);
uint16_t rp_client_message_new(struct rp_client *client, struct client_writer *writer);
void rp_client_message_free(struct rp_client *client, uint16_t message);
void rp_client_message_state(struct rp_client *client, uint16_t message,
                             enum client_message_state state);
void rp_client_message_lost(struct rp_client *client, uint16_t message);
enum client_sending rp_client_writer_send(struct rp_client *client, struct client_writer *writer);
void rp_client_writer_timer(struct rp_client *client, struct client_writer *writer);
void rp_client_writer_probe(struct rp_client *client, struct client_writer *writer);

/* ---- client_pushed.c: answers ---- */
int rp_client_push_answer(struct rp_client *client, const struct rp_view *view);
void rp_client_message_timer(struct rp_client *client, uint16_t message);

/* ---- client_repair.c: lost places ---- */
/* Keeps of a message what is not final, under a new id. Runs whose place was lost before commit
 * lose their sequences. Where nothing is left the message is freed. */
void rp_client_message_rebuild(struct rp_client *client, uint16_t message);
void rp_client_repair(struct rp_client *client, struct client_writer *writer);

#endif
