/* The ZeroMQ transport over a libzmq that is played here: its calls, a queue of frames each way, a
 * descriptor that tells of changes as the real one does, and refusals on demand.
 *
 * What the real library does with the same messages is in tests/server/test_zmq.py.
 */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "base/random.h"
#include "protocol/status.h"
#include "transport/transport.h"
#include "transport/transport_zmq.h"
#include "transport/url.h"

enum { FRAMES = 4096, MTU = 1024, MORE = 2 };

struct frame { /* also what stands in a zmq_msg_t */
    uint8_t *memory;
    uint32_t size;
    uint32_t askew; /* where it begins in memory */
    uint32_t more;
};

struct played {
    struct frame in[FRAMES]; /* to be received */
    struct frame out[FRAMES];
    uint32_t in_first, in_count, out_count;
    uint32_t open;      /* messages with memory that nobody closed */
    uint32_t refuse_at; /* the call of msg_send that fails; 0: none */
    uint32_t no_memory_at; /* the call of msg_init_size that fails; 0: none */
    uint32_t sends, inits;
    int descriptor;
};

static struct played played;

static int play_init(void *message) {
    memset(message, 0, 64);
    return 0;
}

static int play_init_size(void *message, size_t size) {
    struct frame *frame = message;
    if (++played.inits == played.no_memory_at) {
        errno = ENOMEM;
        return -1;
    }
    play_init(message);
    frame->memory = malloc(size + 8);
    frame->size = (uint32_t)size;
    played.open++;
    return 0;
}

static void *play_data(void *message) {
    struct frame *frame = message;
    return frame->memory + frame->askew;
}

static size_t play_size(const void *message) {
    return ((const struct frame *)message)->size;
}

static int play_more(const void *message) {
    return (int)((const struct frame *)message)->more;
}

static void eat_news(void) {
    uint64_t count;
    ssize_t taken = read(played.descriptor, &count, sizeof count);
    (void)taken;
}

static int play_recv(void *message, void *socket, int flags) {
    CHECK(socket == &played && flags == 1, "every call has to be one that does not block");
    if (played.in_count == 0) {
        eat_news();
        errno = EAGAIN;
        return -1;
    }
    memcpy(message, &played.in[played.in_first++], sizeof(struct frame));
    played.in_count--;
    played.open++;
    return 0;
}

/* As the library's: it may process what came meanwhile, and the descriptor is quiet afterwards. */
static int play_send(void *message, void *socket, int flags) {
    struct frame *frame = message;
    CHECK(socket == &played && (flags & 1));
    eat_news();
    if (++played.sends == played.refuse_at) {
        errno = EAGAIN;
        return -1;
    }
    frame->more = (flags & MORE) != 0;
    played.out[played.out_count++] = *frame;
    played.open--;
    return 0;
}

static int play_close(void *message) {
    struct frame *frame = message;
    played.open -= frame->memory != NULL;
    free(frame->memory);
    memset(message, 0xEE, 64);
    return 0;
}

static int play_getsockopt(void *socket, int option, void *value, size_t *size) {
    CHECK(socket == &played && option == 15 && *size == sizeof(int));
    eat_news();
    *(int *)value = played.in_count ? 1 : 0;
    return 0;
}

/* ---- the other side ---- */

/* A frame is there, and nobody was told; its bytes begin `askew` bytes off a multiple of 8. */
static void come(const void *bytes, uint32_t size, uint32_t askew, int more) {
    struct frame *frame = &played.in[played.in_first + played.in_count++];
    CHECK(played.in_first + played.in_count < FRAMES);
    *frame = (struct frame){malloc(size + 16), size, askew, (uint32_t)more};
    memcpy(frame->memory + askew, bytes, size);
}

static void arrive(const void *bytes, uint32_t size, uint32_t askew, int more) {
    uint64_t one = 1;
    come(bytes, size, askew, more);
    CHECK(write(played.descriptor, &one, sizeof one) == sizeof one);
}

static struct rp_port *open_played(int serve, struct rp_peer *server) {
    static const struct rp_zmq_socket calls = {
        .socket = &played, .endpoint = "tcp://127.0.0.1:7400", .msg_init = play_init,
        .msg_init_size = play_init_size, .msg_data = play_data, .msg_size = play_size,
        .msg_more = play_more, .msg_recv = play_recv, .msg_send = play_send,
        .msg_close = play_close, .getsockopt = play_getsockopt};
    static struct rp_zmq_socket zmq;
    char bound[RP_URL_TEXT_BYTES], error[RP_URL_ERROR_BYTES];
    struct rp_port *port = NULL;
    memset(&played, 0, sizeof played);
    played.descriptor = eventfd(0, EFD_NONBLOCK);
    zmq = calls;
    zmq.descriptor = played.descriptor;
    struct rp_port_options options = {.serve = serve, .mtu = MTU, .zmq = &zmq};
    int status = rp_port_open(&port, "zmq+tcp://127.0.0.1:7400", &options, server, bound, error);
    CHECK(status == 0, "%s", error);
    CHECK(strcmp(bound, "zmq+tcp://127.0.0.1:7400") == 0, "%s", bound);
    CHECK(rp_port_base(port)->mtu == MTU);
    return port;
}

static void close_played(struct rp_port *port) {
    rp_port_close(port);
    CHECK(played.open == 0, "%u messages were left open", played.open);
    for (uint32_t i = 0; i < played.out_count; i++) {
        free(played.out[i].memory);
    }
    close(played.descriptor);
}

static uint32_t burst(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    return rp_port_transport(port)->rx_burst(port, packets, count);
}

static void release(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    rp_port_transport(port)->rx_release(port, packets, count);
}

/* ---- what is checked ---- */

/* Messages of several frames, cut by bursts of any size: each frame keeps its own sender. */
static void check_frames_and_senders(void) {
    struct rp_random random;
    struct rp_packet packets[RP_BURST];
    struct rp_peer own;
    rp_random_seed(&random, check_seed(7));
    struct rp_port *port = open_played(1, &own);
    uint64_t number = 0, seen = 0;
    for (uint64_t message = 0; message < 300; message++) {
        uint32_t frames = 1 + (uint32_t)rp_random_below(&random, 5);
        arrive(&message, sizeof message, 0, 1);
        for (uint32_t i = 0; i < frames; i++) {
            uint64_t bytes[2] = {number++, message};
            arrive(bytes, 16, (uint32_t)rp_random_below(&random, 8), i + 1 < frames);
        }
    }
    while (seen < number) {
        uint32_t room = 1 + (uint32_t)rp_random_below(&random, RP_BURST);
        uint32_t count = burst(port, packets, room);
        CHECK(count <= room);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t bytes[2];
            CHECK((uintptr_t)packets[i].data % 8 == 0 && packets[i].size == 16);
            memcpy(bytes, packets[i].data, 16);
            CHECK(bytes[0] == seen++, "frame %" PRIu64, bytes[0]);
            CHECK(packets[i].peer.size == 8 && memcmp(packets[i].peer.bytes, &bytes[1], 8) == 0,
                  "frame %" PRIu64 " has another's sender", bytes[0]);
        }
        release(port, packets, count);
    }
    CHECK(rp_port_base(port)->dropped_in == 0);
    close_played(port);
    check_group("frames keep their order and their sender, whatever the bursts");
}

static void check_strangers(void) {
    static uint8_t bytes[MTU + 8];
    struct rp_packet packets[RP_BURST];
    struct rp_peer own;
    struct rp_port *port = open_played(1, &own);
    arrive("me", 2, 0, 1);
    arrive(bytes, 0, 0, 1);
    arrive(bytes, MTU + 1, 0, 1);
    arrive(bytes, MTU, 0, 0);
    arrive(bytes, RP_PEER_BYTES + 1, 0, 1);
    arrive(bytes, 64, 0, 1);
    arrive(bytes, 64, 0, 0);
    arrive("me", 2, 0, 0); /* an address alone */
    arrive(bytes, RP_PEER_BYTES, 0, 1);
    arrive(bytes, 64, 0, 0);
    CHECK(burst(port, packets, RP_BURST) == 2);
    CHECK(packets[0].size == MTU && packets[0].peer.size == 2);
    CHECK(packets[1].size == 64 && packets[1].peer.size == RP_PEER_BYTES);
    CHECK(rp_port_base(port)->dropped_in == 4, "%" PRIu64, rp_port_base(port)->dropped_in);
    release(port, packets, 2);
    for (int i = 0; i < 300; i++) { /* a flood of what is dropped takes bounded turns, and ends */
        arrive("me", 2, 0, 1);
        arrive("", 0, 0, 0);
    }
    CHECK(burst(port, packets, 1) == 0 && played.in_count > 500);
    CHECK(rp_port_transport(port)->wait(port, 1000000000u), "more is there: no sleep");
    while (played.in_count) {
        CHECK(burst(port, packets, RP_BURST) == 0);
    }
    CHECK(rp_port_base(port)->dropped_in == 304);
    close_played(port);
    check_group("empty, oversized and nameless frames are dropped and counted");
}

/* Sends datagrams of these sizes to these peers in one lease. */
static void send_all(struct rp_port *port, const uint32_t *sizes, const uint8_t *peers,
                     uint32_t count) {
    struct rp_packet packets[RP_BURST];
    CHECK(rp_port_transport(port)->tx_lease(port, packets, count) == count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK((uintptr_t)packets[i].data % 8 == 0 && packets[i].capacity == MTU);
        packets[i].size = sizes[i];
        packets[i].peer = (struct rp_peer){.size = 1, .bytes = {peers[i]}};
        memset(packets[i].data, (int)(i + 1), sizes[i]);
    }
    rp_port_transport(port)->tx_send(port, packets, count);
}

/* out[first ...] is one message: to `peer` (0: a dealer's, without), the datagrams of these fills.
 * Returns where the next one begins. */
static uint32_t check_message(uint32_t first, uint8_t peer, const char *fills) {
    struct frame *at = &played.out[first];
    if (peer) {
        CHECK(at->size == 1 && at->memory[0] == peer && at->more);
        at++;
    }
    for (; *fills; fills++, at++) {
        CHECK(at->size > 0 && at->memory[0] == *fills && at->memory[at->size - 1] == *fills,
              "frame %d holds %d", (int)(at - played.out), at->memory[0]);
        CHECK(at->more == (fills[1] != 0));
    }
    return (uint32_t)(at - played.out);
}

static void check_packing(void) {
    struct rp_peer own;
    struct rp_port *port = open_played(1, &own);
    send_all(port, (uint32_t[]){8, 0, 16, 0, 24, 32, 8, 0}, (uint8_t[]){1, 1, 1, 2, 1, 2, 2, 2}, 8);
    uint32_t next = check_message(0, 1, "\1\3\5");
    next = check_message(next, 2, "\6\7");
    CHECK(next == played.out_count, "%u frames, %u expected", played.out_count, next);
    uint32_t sizes[RP_BURST];
    uint8_t peers[RP_BURST];
    for (uint32_t i = 0; i < RP_BURST; i++) {
        sizes[i] = MTU;
        peers[i] = 9;
    }
    send_all(port, sizes, peers, RP_BURST);
    uint32_t bytes = 0, messages = 0;
    for (uint32_t i = next; i < played.out_count; i++) {
        messages += !played.out[i].more;
        bytes += played.out[i].size == 1 ? 0 : played.out[i].size;
        CHECK(bytes <= RP_MTU_MAX, "a message of more than one largest datagram");
        bytes = played.out[i].more ? bytes : 0;
    }
    CHECK(messages == 2, "%u messages of 64 KiB", messages);
    close_played(port);
    port = open_played(0, &own);
    send_all(port, (uint32_t[]){8, 16}, (uint8_t[]){0, 0}, 2);
    CHECK(check_message(0, 0, "\1\2") == played.out_count);
    send_all(port, (uint32_t[]){0, 8}, (uint8_t[]){0, 0}, 2);
    CHECK(check_message(2, 0, "\2") == played.out_count && played.out_count == 3);
    close_played(port);
    port = open_played(1, &own);
    send_all(port, (uint32_t[]){8, 8, 8}, (uint8_t[]){1, 2, 2}, 3);
    next = check_message(check_message(0, 1, "\1"), 2, "\2\3");
    CHECK(next == played.out_count, "%u frames, %u expected", played.out_count, next);
    close_played(port);
    check_group("neighbours to one peer leave as one message, as far as they fit");
}

static void check_refusals(void) {
    struct rp_peer own;
    struct rp_port *port = open_played(1, &own);
    played.refuse_at = 1; /* a full queue, or nobody: the address is not taken */
    send_all(port, (uint32_t[]){8, 8, 8}, (uint8_t[]){1, 1, 2}, 3);
    CHECK(rp_port_base(port)->dropped_out == 2, "%" PRIu64, rp_port_base(port)->dropped_out);
    CHECK(check_message(0, 2, "\3") == played.out_count);
    played.inits = 0;
    played.no_memory_at = 3; /* the second datagram of a message: what was begun is ended */
    uint32_t first = played.out_count;
    send_all(port, (uint32_t[]){8, 8, 8}, (uint8_t[]){1, 1, 1}, 3);
    CHECK(rp_port_base(port)->dropped_out == 4);
    CHECK(played.out_count == first + 3 && !played.out[first + 2].more);
    CHECK(played.out[first + 2].size == 0);
    close_played(port);
    check_group("what is not taken is counted, and a message that was begun is ended");
}

/* A send may take the news of an arrival from the descriptor: the wait has to know it. */
static void check_news(void) {
    struct rp_packet packets[RP_BURST];
    struct rp_peer own;
    struct rp_port *port = open_played(0, &own);
    uint64_t bytes = 7;
    CHECK(burst(port, packets, RP_BURST) == 0);
    CHECK(!rp_port_transport(port)->wait(port, 1000000u), "nothing is there");
    arrive(&bytes, 8, 0, 0);
    CHECK(rp_port_transport(port)->wait(port, 1000000000u), "the descriptor tells");
    send_all(port, (uint32_t[]){8}, (uint8_t[]){0}, 1);
    struct pollfd quiet = {.fd = played.descriptor, .events = POLLIN};
    CHECK(poll(&quiet, 1, 0) == 0, "the send took the news");
    CHECK(rp_port_transport(port)->wait(port, 1000000u), "the wait knows what the send took");
    CHECK(burst(port, packets, RP_BURST) == 1 && packets[0].peer.size == own.size);
    release(port, packets, 1);
    CHECK(burst(port, packets, RP_BURST) == 0);
    CHECK(!rp_port_transport(port)->wait(port, 1000000u), "all was taken");
    send_all(port, (uint32_t[]){8}, (uint8_t[]){0}, 1);
    CHECK(!rp_port_transport(port)->wait(port, 1000000u), "nothing came with the send");
    rp_port_transport(port)->wake(port);
    rp_port_transport(port)->wait(port, UINT64_MAX); /* ends, or this test does not */
    close_played(port);
    check_group("a wait knows of every arrival, and can be ended");
}

struct sleeper {
    struct rp_port *port;
    _Atomic long thread; /* its number, once it is about to wait */
};

static void *sleep_on(void *argument) {
    struct sleeper *sleeper = argument;
    sleeper->thread = syscall(SYS_gettid);
    rp_port_transport(sleeper->port)->wait(sleeper->port, UINT64_MAX); /* ends, or this test not */
    return NULL;
}

static int sleeps(long thread) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof text, file));
    fclose(file);
    const char *state = strrchr(text, ')');
    return state && state[1] && state[2] == 'S';
}

/* The news of an arrival are gone before anybody heard them, and one thread sleeps already. */
static void check_sleeper(void) {
    struct rp_packet packets[RP_BURST];
    struct rp_peer own;
    pthread_t thread;
    uint64_t bytes = 7;
    struct sleeper sleeper = {.port = open_played(0, &own)};
    CHECK(burst(sleeper.port, packets, RP_BURST) == 0);
    CHECK(pthread_create(&thread, NULL, sleep_on, &sleeper) == 0);
    while (!sleeper.thread || !sleeps(sleeper.thread)) {
    }
    come(&bytes, 8, 0, 0);
    send_all(sleeper.port, (uint32_t[]){8}, (uint8_t[]){0}, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(burst(sleeper.port, packets, RP_BURST) == 1);
    release(sleeper.port, packets, 1);
    close_played(sleeper.port);
    check_group("a send that takes the news wakes who sleeps");
}

static void check_all_slots_lent(void) {
    struct rp_packet packets[RP_BURST], none;
    struct rp_peer own;
    struct rp_port *port = open_played(0, &own);
    for (uint64_t i = 0; i < RP_BURST + 3; i++) {
        arrive(&i, 8, i % 8, 0);
    }
    CHECK(burst(port, packets, RP_BURST) == RP_BURST);
    CHECK(burst(port, &none, 1) == 0 && played.in_count == 3, "more than is free is not taken");
    release(port, packets + 5, 1);
    CHECK(burst(port, packets + 5, 1) == 1);
    for (uint64_t i = 0; i < RP_BURST; i++) {
        CHECK(memcmp(packets[i].data, &(uint64_t){i == 5 ? RP_BURST : i}, 8) == 0, "moved");
    }
    release(port, packets, RP_BURST);
    CHECK(burst(port, packets, RP_BURST) == 2);
    release(port, packets, 2);
    close_played(port);
    check_group("lent frames stay where they are until they are released, in any order");
}

/* Given a burst in which nothing is to be sent. Expect the library not to be asked: what a wait
 * has to hear of stays where it is. */
static void check_nothing_sent(void) {
    struct rp_packet packets[RP_BURST];
    struct rp_peer own;
    struct rp_port *port = open_played(0, &own);
    uint64_t bytes = 7;
    CHECK(burst(port, packets, RP_BURST) == 0);
    arrive(&bytes, 8, 0, 0);
    send_all(port, (uint32_t[]){0, 0}, (uint8_t[]){0, 0}, 2);
    struct pollfd told = {.fd = played.descriptor, .events = POLLIN};
    CHECK(poll(&told, 1, 0) == 1 && played.sends == 0);
    CHECK(burst(port, packets, RP_BURST) == 1);
    release(port, packets, 1);
    struct rp_fact facts[RP_FACTS_MAX];
    rp_port_base(port)->dropped_in = 3;
    rp_port_base(port)->dropped_out = 4;
    CHECK(rp_port_facts(port, facts) == 2);
    CHECK(strcmp((char *)facts[0].name, "unusable") == 0 && facts[0].value == 3);
    CHECK(strcmp((char *)facts[1].name, "not_taken") == 0 && facts[1].value == 4);
    close_played(port);
    check_group("a burst of nothing; what the port tells");
}

/* Given addresses that other hosts reach, and one they do not. Expect a key, or who is trusted,
 * to be asked for where a server binds the former. */
static void check_guarded(void) {
    char endpoint[RP_ZMQ_ENDPOINT_BYTES], error[RP_URL_ERROR_BYTES];
    CHECK(rp_zmq_endpoint("zmq+tcp://0.0.0.0:7400", 1, 0, endpoint, error) == -RP_INSECURE);
    CHECK(strstr(error, "curve_secret_key") != NULL, "%s", error);
    CHECK(rp_zmq_endpoint("zmq+tcp://0.0.0.0:7400", 1, 1, endpoint, error) == 0, "%s", error);
    CHECK(strcmp(endpoint, "tcp://0.0.0.0:7400") == 0, "%s", endpoint);
    CHECK(rp_zmq_endpoint("zmq+tcp://127.0.0.1:7400", 1, 0, endpoint, error) == 0, "%s", error);
    CHECK(rp_zmq_endpoint("zmq+tcp://127.0.0.1:7400", 0, 0, endpoint, error) == 0, "%s", error);
    CHECK(rp_zmq_endpoint("zmq+tcp://127.0.0.1:0", 0, 0, endpoint, error) == -RP_BAD_ARGUMENT);
    CHECK(rp_zmq_endpoint("zmq+tcp://127.0.0.1:0", 1, 0, endpoint, error) == 0, "%s", error);
    check_group("an address that others reach wants a key");
}

/* Given ports that open and close. Expect no memory more than before. */
static void check_given_back(void) {
    struct rp_peer server;
    size_t before = 0;
    for (int round = 0; round < 30; round++) {
        close_played(open_played(round & 1, &server));
        before = round == 9 ? mallinfo2().uordblks + mallinfo2().hblkhd : before;
    }
    size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(now <= before, "%zu bytes were kept", now - before);
    check_group("a port that is closed is given back");
}

int main(void) {
    check_given_back();
    check_nothing_sent();
    check_guarded();
    check_frames_and_senders();
    check_strangers();
    check_packing();
    check_refusals();
    check_news();
    check_sleeper();
    check_all_slots_lent();
    return check_done("test_transport_zmq");
}
