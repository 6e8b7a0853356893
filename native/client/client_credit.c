/* How much may be under way: the server's credit, the window found by loss, and the time after
 * which an answer is taken for lost.
 *
 * Towards the server: in_flight < min(credit, window). The credit is granted by the server and
 * lapses, here earlier than there: its life is counted from when the answered request was sent,
 * since the answer may have lain in a queue for an unknown time, perhaps in our own. The window is
 * ours: one more datagram per window answered, half after a loss, at most once per round trip.
 * Towards us: expected <= pull_window <= the port's receive budget. It grows by what came until
 * something is lost, then by one a train, and is halved by the same rule. It ends at what a turn of
 * the server has room for at least, 700 kB of 1400-byte datagrams. With half of that a learner gets
 * less than half as much whose requests stand in the server's queue behind a writer's window.
 *
 * Round trips: RFC 6298, section 2, in nanoseconds. Every answer echoes the packet number of the
 * transmission it answers. So repeats are measured too, and so are answers that came after the
 * time-out; section 3 is not needed, as it is always known which transmission was answered. Each
 * time-out doubles the next one, of this request or another, until a round trip was measured
 * (section 5), up to retry_us_max, plus a seeded eighth of jitter.
 */
#include "base/minmax.h"
#include "client/client_parts.h"

enum { WINDOW_ONE = 256, WINDOW_START = 32, WINDOW_MAX = 4096, PULL_MIN = 4 };

void rp_client_credit_init(struct rp_client *client) {
    struct client_credit *credit = &client->credit;
    credit->credit = 1;
    credit->window = WINDOW_START * WINDOW_ONE;
    uint32_t train = client->session.opened.train_max;
    uint32_t budget = client->options.receive_budget;
    credit->pull_window = train > 0 && 2 * train < budget ? 2 * train : budget;
    credit->pull_halved_ns = 0;
}

int rp_client_credit_room(const struct rp_client *client) {
    const struct client_credit *credit = &client->credit;
    uint32_t allowed = client->now_ns < credit->lapse_ns ? credit->credit : 1;
    uint32_t window = credit->window / WINDOW_ONE;
    allowed = rp_min(allowed, window);
    allowed = allowed > 0 ? allowed : 1;
    if (rp_client_flight_next(client) == CLIENT_NONE || credit->in_flight >= allowed) {
        return 0;
    }
    return (int)(allowed - credit->in_flight);
}

void rp_client_credit_granted(struct rp_client *client, const struct rp_answer *answer) {
    struct client_credit *credit = &client->credit;
    credit->credit = answer->credit > 0 ? answer->credit : 1;
    credit->lapse_ns = credit->asked_ns + (uint64_t)answer->lapse_us * 1000;
    if (credit->window < WINDOW_MAX * WINDOW_ONE) {
        credit->window += WINDOW_ONE * WINDOW_ONE / credit->window + 1;
    }
}

/* ---- round trips ---- */

void rp_client_credit_sent(struct rp_client *client, uint64_t packet) {
    client->credit.sent_ns[packet & client->credit.sent_mask] = client->now_ns;
}

/* RFC 6298, (2.2) and (2.3): alpha 1/8, beta 1/4. An error below the variance counts a quarter of
 * that: else many answers in a quiet moment would make the next busy moment look like a loss. */
static void measured(struct client_credit *credit, uint64_t trip_ns) {
    trip_ns = trip_ns > 0 ? trip_ns : 1;
    if (credit->srtt_ns == 0) {
        credit->srtt_ns = trip_ns;
        credit->rttvar_ns = trip_ns / 2;
        return;
    }
    uint64_t error =
        trip_ns > credit->srtt_ns ? trip_ns - credit->srtt_ns : credit->srtt_ns - trip_ns;
    uint32_t share = error > credit->rttvar_ns ? 2 : 4; /* a fourth, a sixteenth */
    credit->rttvar_ns = credit->rttvar_ns - (credit->rttvar_ns >> share) + (error >> share);
    credit->srtt_ns = credit->srtt_ns - credit->srtt_ns / 8 + trip_ns / 8;
    credit->srtt_ns = credit->srtt_ns > 0 ? credit->srtt_ns : 1;
}

/* Of several answers to one packet the first is measured. */
void rp_client_credit_echoed(struct rp_client *client, uint16_t echo) {
    struct client_credit *credit = &client->credit;
    uint64_t next = client->session.packet;
    uint64_t age = (uint16_t)((uint16_t)next - echo);
    if (echo == 0 || age == 0 || age > credit->sent_mask || age >= next) {
        return;
    }
    uint64_t *sent_ns = &credit->sent_ns[(next - age) & credit->sent_mask];
    if (*sent_ns != 0) {
        measured(credit, client->now_ns - *sent_ns);
        credit->asked_ns = *sent_ns;
        *sent_ns = 0;
        credit->back_off = 0;
    }
}

uint64_t rp_client_credit_timeout(struct rp_client *client, uint32_t tries) {
    const struct client_credit *credit = &client->credit;
    uint64_t least = (uint64_t)client->options.retry_us_min * 1000;
    uint64_t most = (uint64_t)client->options.retry_us_max * 1000;
    uint64_t wait = least;
    if (credit->srtt_ns > 0) {
        uint64_t spread = 4 * credit->rttvar_ns;
        wait = credit->srtt_ns + rp_max(spread, least / 2);
    }
    tries = rp_max(tries, credit->back_off);
    for (uint32_t i = 0; i < tries && wait < most; i++) {
        wait *= 2;
    }
    wait = rp_min(wait, most);
    return wait + rp_random_below(&client->random, wait / 8 + 1);
}

/* ---- losses ---- */

/* A loss halves the window; those of the same round trip were one event. */
void rp_client_credit_lost(struct rp_client *client, const struct client_flight *flight) {
    struct client_credit *credit = &client->credit;
    if (flight->count > 1) {
        if (flight->sent_ns >= credit->pull_halved_ns) {
            uint32_t half = credit->pull_window / 2;
            credit->pull_window = rp_max(half, PULL_MIN);
            credit->pull_halved_ns = client->now_ns;
        }
        uint32_t budget = client->options.receive_budget;
        credit->pull_window = rp_min(credit->pull_window, budget);
    }
    if (flight->sent_ns >= credit->halved_ns) {
        uint32_t half = credit->window / 2;
        credit->window = rp_max(half, WINDOW_ONE);
        credit->halved_ns = client->now_ns;
        rp_client_count(client, RP_COUNT_losses_seen);
    }
}

/* RFC 6298, (5.5): later requests have the doubled time-out too, until a round trip was measured.
 * Flights that were under way together count as one time-out. */
void rp_client_credit_timed_out(struct rp_client *client, const struct client_flight *flight) {
    struct client_credit *credit = &client->credit;
    if (flight->sent_ns >= credit->backed_off_ns) {
        credit->back_off += credit->back_off < 32;
        credit->backed_off_ns = client->now_ns;
    }
    rp_client_credit_lost(client, flight);
}

void rp_client_credit_pulled(struct rp_client *client, uint32_t datagrams) {
    struct client_credit *credit = &client->credit;
    uint32_t most = (uint32_t)RP_PULL_TRAINS * client->session.opened.train_max;
    uint32_t more = credit->pull_halved_ns == 0 ? datagrams : 1;
    most = rp_min(most, client->options.receive_budget);
    if (credit->pull_window < most) {
        more = rp_min(more, most - credit->pull_window);
        credit->pull_window += more;
    }
}

uint32_t rp_client_credit_expect(const struct rp_client *client) {
    const struct client_credit *credit = &client->credit;
    if (credit->expected == 0) {
        return credit->pull_window > 0 ? credit->pull_window : 1;
    }
    return credit->pull_window > credit->expected ? credit->pull_window - credit->expected : 0;
}
