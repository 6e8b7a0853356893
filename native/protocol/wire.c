/* Every size and place of wire.h, asserted: if a field moves, this does not compile. The bounds on
 * refusals stand here too: no refusal is larger than the request it answers.
 */
#include "protocol/wire.h"

#define RP_LAYOUT(type, bytes) \
    _Static_assert(sizeof(struct type) == (bytes), #type " has padding or moved")
#define RP_FIELD(type, field, offset) \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field " moved")
RP_LAYOUT(rp_outer, 40);
RP_FIELD(rp_outer, connection, 8);
RP_FIELD(rp_outer, packet, 16);
RP_FIELD(rp_outer, tag, 24);
RP_LAYOUT(rp_message, 16);
RP_FIELD(rp_message, table, 2);
RP_FIELD(rp_message, size, 4);
RP_FIELD(rp_message, want, 6);
RP_FIELD(rp_message, id, 8);
RP_LAYOUT(rp_answer, 24);
RP_FIELD(rp_answer, weights_version, 8);
RP_FIELD(rp_answer, status, 16);
RP_FIELD(rp_answer, credit, 18);
RP_FIELD(rp_answer, lapse_us, 20);
RP_LAYOUT(rp_hello, 64);
RP_FIELD(rp_hello, mtu, 4);
RP_FIELD(rp_hello, features, 8);
RP_FIELD(rp_hello, required, 16);
RP_LAYOUT(rp_cookie, 40);
RP_FIELD(rp_cookie, mtu, 8);
RP_FIELD(rp_cookie, version, 12);
RP_FIELD(rp_cookie, version_max, 16);
RP_FIELD(rp_cookie, features, 24);
RP_LAYOUT(rp_refused, 16);
RP_FIELD(rp_refused, packet, 8);
RP_FIELD(rp_refused, port, 12);
RP_LAYOUT(rp_address_changed, 16);
RP_FIELD(rp_address_changed, packet, 8);
RP_LAYOUT(rp_open, 128);
RP_FIELD(rp_open, features, 8);
RP_FIELD(rp_open, mtu, 24);
RP_FIELD(rp_open, receive_budget, 30);
RP_FIELD(rp_open, identity, 32);
RP_FIELD(rp_open, ephemeral, 56);
RP_LAYOUT(rp_opened, 88);
RP_FIELD(rp_opened, features, 32);
RP_LAYOUT(rp_cancel, 16);
RP_FIELD(rp_cancel, op, 8);
RP_FIELD(rp_opened, batch_max, 16);
RP_FIELD(rp_opened, records, 20);
RP_FIELD(rp_opened, train_max, 26);
RP_LAYOUT(rp_echo, 8);
RP_LAYOUT(rp_table_request, 32);
RP_LAYOUT(rp_table_info, 176);
RP_FIELD(rp_table_info, epoch, 32);
RP_FIELD(rp_table_info, samples_per_insert, 80);
RP_FIELD(rp_table_info, alpha, 104);
RP_FIELD(rp_table_info, capacity, 112);
RP_FIELD(rp_table_info, number, 136);
RP_FIELD(rp_table_info, item_bytes, 144);
RP_LAYOUT(rp_writer_request, 8);
RP_LAYOUT(rp_writer_granted, 24);
RP_FIELD(rp_writer_granted, window, 16);
RP_LAYOUT(rp_push, 16);
RP_FIELD(rp_push, run_count, 8);
RP_LAYOUT(rp_run, 32);
RP_FIELD(rp_run, stream, 16);
RP_FIELD(rp_run, piece_count, 24);
RP_FIELD(rp_run, size, 28);
RP_LAYOUT(rp_create, 24);
RP_FIELD(rp_create, stream, 16);
RP_FIELD(rp_create, table, 20);
RP_LAYOUT(rp_pushed, 24);
RP_FIELD(rp_pushed, run_count, 16);
RP_LAYOUT(rp_run_done, 16);
RP_FIELD(rp_run_done, committed, 8);
RP_LAYOUT(rp_blocked, 16);
RP_LAYOUT(rp_sample, 32);
RP_FIELD(rp_sample, plan, 16);
RP_FIELD(rp_sample, budget, 20);
RP_FIELD(rp_sample, fields, 22);
RP_LAYOUT(rp_batch, 48);
RP_FIELD(rp_batch, drawable, 24);
RP_FIELD(rp_batch, capacity, 40);
RP_LAYOUT(rp_batch_item, 24);
RP_FIELD(rp_batch_item, behind, 16);
RP_LAYOUT(rp_batch_datagram, 16);
RP_LAYOUT(rp_pull, 16);
RP_LAYOUT(rp_update, 16);
RP_LAYOUT(rp_update_entry, 16);
RP_LAYOUT(rp_updated, 16);
RP_LAYOUT(rp_reset, 8);
RP_LAYOUT(rp_reset_done, 8);
RP_LAYOUT(rp_publish, 24);
RP_FIELD(rp_publish, piece, 16);
RP_LAYOUT(rp_published, 16);
RP_LAYOUT(rp_blob_request, 24);
RP_FIELD(rp_blob_request, kind, 16);
RP_LAYOUT(rp_blob_datagram, 32);
RP_FIELD(rp_blob_datagram, crc, 16);
RP_LAYOUT(rp_stats_request, 8);
RP_LAYOUT(rp_stats, 16);
RP_LAYOUT(rp_fact, 128);
RP_FIELD(rp_fact, value, 112);

#define RP_REFUSAL(type, request) \
    _Static_assert(sizeof(struct rp_answer) + sizeof(struct type) <= (request), \
                   #type " amplifies")
RP_REFUSAL(rp_refused, RP_REQUEST_BODY_MIN);
RP_REFUSAL(rp_address_changed, RP_REQUEST_BODY_MIN);
RP_REFUSAL(rp_cookie, RP_HELLO_BYTES);
RP_REFUSAL(rp_opened, sizeof(struct rp_open));
