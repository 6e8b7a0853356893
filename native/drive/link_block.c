/* Pushing a block: some steps of all environments, laid out by the caller, and the items they
 * complete.
 *
 * The block is walked step by step, in three phases: a row of every stream that took a step, the
 * closing row of every stream whose episode ended, and the items whose window is complete now. The
 * place reached is kept in the block, so that a call that found no room goes on where it stopped.
 *
 * An anchor's window is complete once `reach` rows follow it, or its episode has ended. With L rows
 * in the open episode of a stream that is the row `reach` before the newest one, if L > reach. At
 * the episode's end it is every row that has no item yet: the last min(L, reach + 1) where the step
 * brought a row too, min(L, reach) where the episode was cut behind it.
 * replay_server/writing/anchors.py computes the same for the caller; tests/writing/test_block.py
 * compares the two.
 */
#include <stddef.h>

#include "base/minmax.h"
#include "drive/link_drive.h"

enum { ROWS = 0, CLOSINGS = 1, ITEMS = 2, PHASES = 3 };

/* One row: 1 taken, 0 no room, or a negative status. */
static int push_row(struct rp_client *client, uint16_t table, struct rp_block *block,
                    const uint8_t *row, uint32_t flags) {
    uint32_t stream = block->stream;
    int taken = rp_client_push(client, table, (uint16_t)stream, row, 1, flags, NULL);
    if (taken > 0) {
        block->next_steps[stream]++;
    }
    return taken == -RP_FULL ? 0 : taken;
}

static int take_step(struct rp_client *client, uint16_t table, struct rp_block *block) {
    size_t at = (size_t)block->step * block->streams + block->stream;
    int taken = push_row(client, table, block, block->rows + at * block->step_bytes, 0);
    block->lengths[block->stream] += taken > 0;
    return taken;
}

static int take_closing(struct rp_client *client, uint16_t table, struct rp_block *block) {
    const uint8_t *row = block->closings + (size_t)block->closing * block->step_bytes;
    int taken = push_row(client, table, block, row, RP_RUN_END);
    block->closing += taken > 0;
    return taken;
}

/* The items of one stream that are complete by this step: 1 all taken, 0 no room, or a status. An
 * end that brings no row completes one fewer: the row `reach` before the newest had its turn. */
static int take_items(struct rp_client *client, uint16_t table, struct rp_block *block,
                      uint8_t mark) {
    uint32_t length = block->lengths[block->stream], window = block->reach + 1;
    int ended = mark & RP_BLOCK_END;
    uint32_t count = ended ? rp_min(length, block->reach + !!(mark & RP_BLOCK_ROW))
                           : length >= window;
    uint64_t first = block->next_steps[block->stream] - (ended ? count + 1 : window);
    int status = 0;
    while (block->items[block->step] && block->item < count && status == 0) {
        status = rp_client_create(client, table, (uint16_t)block->stream, first + block->item, 0.0,
                                  RP_CREATE_MAXIMUM);
        block->item += status == 0;
    }
    if (status == 0) {
        block->item = 0;
        block->lengths[block->stream] = ended ? 0 : length;
    }
    return status == 0 ? 1 : status == -RP_FULL ? 0 : status;
}

/* One stream's part in the phase under way: as above. */
static int take_part(struct rp_client *client, uint16_t table, struct rp_block *block) {
    uint8_t mark = block->marks[(size_t)block->step * block->streams + block->stream];
    if (block->phase == ROWS) {
        return mark & RP_BLOCK_ROW ? take_step(client, table, block) : 1;
    }
    if (block->phase == CLOSINGS) {
        return mark & RP_BLOCK_END ? take_closing(client, table, block) : 1;
    }
    return mark ? take_items(client, table, block, mark) : 1;
}

/* Until all is taken (1), there is no room (0), or a status ends it. */
static int take_block(struct rp_client *client, uint16_t table, struct rp_block *block) {
    while (block->step < block->finished
           || (block->step < block->steps && block->phase < ITEMS)) {
        while (block->stream < block->streams) {
            int taken = take_part(client, table, block);
            if (taken <= 0) {
                return taken;
            }
            block->stream++;
        }
        block->stream = 0;
        block->phase = (block->phase + 1) % PHASES;
        block->step += block->phase == ROWS;
    }
    return 1;
}

struct block_wait {
    uint16_t table;
    struct rp_block *block;
};

static int try_block(struct rp_link *link, void *argument) {
    const struct block_wait *wait = argument;
    int taken = take_block(link->client, wait->table, wait->block);
    rp_link_posted(link);
    return taken > 0 ? 0 : taken == 0 ? RP_PENDING : taken;
}

int rp_link_push_block(struct rp_link *link, uint16_t table, struct rp_block *block,
                       uint64_t timeout_ns) {
    struct block_wait wait = {table, block};
    return rp_link_until(link, try_block, &wait, timeout_ns);
}
