/* How much may be under way: the server's credit, the window found by loss, and the time after
 * which an answer is taken for lost.
 *
 * Towards the server: in_flight < min(credit, window). The credit is the server's word and
 * lapses, here a round trip earlier than there; the window is ours: one more datagram per window
 * answered, half after a loss, at most once per round trip. Towards us: expected <= pull_window
 * <= the port's receive budget, with the same rule.
 *
 * Round trips: RFC 6298, section 2, in nanoseconds; a datagram sent twice is not measured
 * (section 3). Back-off doubles per try up to retry_us_max, plus a seeded eighth of jitter.
 */
#include "client_parts.h"

enum { WINDOW_ONE = 256, WINDOW_START = 32, WINDOW_MAX = 4096 };

void rp_client_credit_init(struct rp_client *client) {
    struct client_credit *credit = &client->credit;
    credit->credit = 1;
    credit->window = WINDOW_START * WINDOW_ONE;
    uint32_t train = client->session.opened.train_max;
    uint32_t budget = client->options.receive_budget;
    credit->pull_window = train > 0 && 2 * train < budget ? 2 * train : budget;
}

int rp_client_credit_room(const struct rp_client *client) {
    const struct client_credit *credit = &client->credit;
    uint32_t allowed = client->now_ns < credit->lapse_ns ? credit->credit : 1;
    uint32_t window = credit->window / WINDOW_ONE;
    allowed = allowed < window ? allowed : window;
    allowed = allowed > 0 ? allowed : 1;
    if (client->flight_free == CLIENT_NONE || credit->in_flight >= allowed) {
        return 0;
    }
    return (int)(allowed - credit->in_flight);
}

void rp_client_credit_granted(struct rp_client *client, const struct rp_answer *answer) {
    struct client_credit *credit = &client->credit;
    uint64_t life = (uint64_t)answer->lapse_us * 1000;
    uint64_t trip = credit->srtt_ns;
    credit->credit = answer->credit > 0 ? answer->credit : 1;
    credit->lapse_ns = client->now_ns + (life > trip ? life - trip : 0);
    if (credit->window < WINDOW_MAX * WINDOW_ONE) {
        credit->window += WINDOW_ONE * WINDOW_ONE / credit->window + 1;
    }
}

/* RFC 6298, (2.2) and (2.3): alpha 1/8, beta 1/4. */
void rp_client_credit_measured(struct rp_client *client, uint64_t rtt_ns) {
    struct client_credit *credit = &client->credit;
    rtt_ns = rtt_ns > 0 ? rtt_ns : 1;
    if (credit->srtt_ns == 0) {
        credit->srtt_ns = rtt_ns;
        credit->rttvar_ns = rtt_ns / 2;
        return;
    }
    uint64_t error =
        rtt_ns > credit->srtt_ns ? rtt_ns - credit->srtt_ns : credit->srtt_ns - rtt_ns;
    credit->rttvar_ns = credit->rttvar_ns - credit->rttvar_ns / 4 + error / 4;
    credit->srtt_ns = credit->srtt_ns - credit->srtt_ns / 8 + rtt_ns / 8;
    credit->srtt_ns = credit->srtt_ns > 0 ? credit->srtt_ns : 1;
}

uint64_t rp_client_credit_timeout(struct rp_client *client, uint32_t tries) {
    const struct client_credit *credit = &client->credit;
    uint64_t least = (uint64_t)client->options.retry_us_min * 1000;
    uint64_t most = (uint64_t)client->options.retry_us_max * 1000;
    uint64_t wait = least;
    if (credit->srtt_ns > 0) {
        wait = credit->srtt_ns + 4 * credit->rttvar_ns;
        wait = wait > least / 2 ? wait : least / 2;
    }
    for (uint32_t i = 0; i < tries && wait < most; i++) {
        wait *= 2;
    }
    wait = wait < most ? wait : most;
    return wait + rp_random_below(&client->random, wait / 8 + 1);
}

/* A loss halves the window; those of the same round trip were one event. */
void rp_client_credit_lost(struct rp_client *client, const struct client_flight *flight) {
    struct client_credit *credit = &client->credit;
    if (flight->count > 1) {
        if (flight->sent_ns >= credit->pull_halved_ns) {
            credit->pull_window = credit->pull_window / 2 > 4 ? credit->pull_window / 2 : 4;
            credit->pull_halved_ns = client->now_ns;
        }
        uint32_t budget = client->options.receive_budget;
        credit->pull_window = credit->pull_window < budget ? credit->pull_window : budget;
    }
    if (flight->sent_ns >= credit->halved_ns) {
        credit->window = credit->window / 2 > WINDOW_ONE ? credit->window / 2 : WINDOW_ONE;
        credit->halved_ns = client->now_ns;
        rp_client_count(client, RP_COUNT_losses_seen);
    }
}

/* A whole train came: one datagram more, up to two trains of the server's. */
void rp_client_credit_pulled(struct rp_client *client) {
    struct client_credit *credit = &client->credit;
    uint32_t most = 2u * client->session.opened.train_max;
    most = most < client->options.receive_budget ? most : client->options.receive_budget;
    if (credit->pull_window < most) {
        credit->pull_window++;
    }
}

uint32_t rp_client_credit_expect(const struct rp_client *client) {
    const struct client_credit *credit = &client->credit;
    if (credit->expected == 0) {
        return credit->pull_window > 0 ? credit->pull_window : 1;
    }
    return credit->pull_window > credit->expected ? credit->pull_window - credit->expected : 0;
}
