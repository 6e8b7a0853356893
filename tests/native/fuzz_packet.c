/* Fuzz target: the one validator of raw bytes. Whatever it accepts, sealed again from what it
 * showed, is the same datagram, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "base/crc32c.h"
#include "protocol/flow.h"
#include "fuzz_port.h"
#include "protocol/status.h"

static void accepted(const uint8_t *data, uint32_t size, const struct rp_view *view) {
    CHECK(view->body == data + RP_HEADER_BYTES && view->message->size == size - RP_HEADER_BYTES);
    uint8_t *again = malloc(size);
    CHECK(again != NULL);
    memcpy(again + RP_HEADER_BYTES, view->body, view->message->size);
    uint32_t sealed = rp_packet_seal(again, view->message, view->message->size,
                                     view->outer->connection, view->outer->packet);
    CHECK(sealed == size && memcmp(again, data, size) == 0, "sealed again it is another datagram");
    free(again);
}

/* The first byte says what is put right before the validator sees it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input input = {data, size};
    uint32_t right = (uint32_t)fuzz_take(&input, 1);
    uint32_t length = input.size > 2048 ? 2048 : (uint32_t)input.size;
    uint8_t *packet = malloc(length ? length : 1);
    CHECK(packet != NULL);
    memcpy(packet, input.data, length);
    if (length >= RP_HEADER_BYTES && right & 1) {
        struct rp_outer *outer = (void *)packet;
        struct rp_message *message = (void *)(packet + sizeof *outer);
        outer->magic = RP_MAGIC;
        outer->version = RP_VERSION_MIN;
        message->size = right & 2 ? (uint16_t)(length - RP_HEADER_BYTES) : message->size;
        memset(outer->reserved, 0, right & 4 ? sizeof outer->reserved : 0);
        memset(outer->tag, 0, sizeof outer->tag);
        uint32_t crc = rp_crc32c(0, packet, length);
        memcpy(outer->tag, &crc, sizeof crc);
    }
    struct rp_view view;
    int status = rp_packet_open(packet, length, right & 8 ? RP_MTU_MIN : RP_MTU_DEFAULT, &view);
    CHECK(status <= 0 && status > -RP_STATUS_COUNT);
    if (status == 0) {
        accepted(packet, length, &view);
    }
    free(packet);
    return 0;
}
