/* The texts of the two tables in status.h: nothing here but look-ups. */
#include "protocol/status.h"

#include <stddef.h>

#define STATUS_NAME(name, number, sentence) [number] = #name,
#define STATUS_SENTENCE(name, number, sentence) [number] = sentence,
#define COUNTER_NAME(name, sentence) [RP_COUNT_##name] = #name,
#define COUNTER_SENTENCE(name, sentence) [RP_COUNT_##name] = sentence,

static const char *const status_names[] = {RP_STATUSES(STATUS_NAME)};
static const char *const status_sentences[] = {RP_STATUSES(STATUS_SENTENCE)};
static const char *const counter_names[] = {RP_COUNTERS(COUNTER_NAME)};
static const char *const counter_sentences[] = {RP_COUNTERS(COUNTER_SENTENCE)};

static int status_index(int status) {
    int number = status < 0 ? -status : status;
    return number >= 0 && number < RP_STATUS_COUNT ? number : -1;
}

const char *rp_status_sentence(int status) {
    int number = status_index(status);
    return number < 0 ? "unknown status" : status_sentences[number];
}

const char *rp_status_name(int status) {
    int number = status_index(status);
    return number < 0 ? "UNKNOWN" : status_names[number];
}

const char *rp_counter_name(int counter) {
    return counter >= 0 && counter < RP_COUNTER_COUNT ? counter_names[counter] : NULL;
}

const char *rp_counter_sentence(int counter) {
    return counter >= 0 && counter < RP_COUNTER_COUNT ? counter_sentences[counter] : NULL;
}
