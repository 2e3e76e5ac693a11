/* exclusion.h - who is left out when the sums of an average are not complete (train.outer).
 *
 * The coordinator sees none of what replicas exchange; it only hears what they report, and in a
 * swarm any of them may lie. So one report alone costs the reporter: a replica is left out for what
 * others say of it only if two of them do. What was said in earlier attempts of an exchange counts,
 * because the chunks of a reporter that is left out get another owner, which sees for itself. A
 * replica that one other accuses in one average, and another one in a later average, is taken for
 * the cause of both. Of the same two, the accused is left out the second time, and so on in turn:
 * one that withholds from a single other one must not have that one left out for ever, and neither
 * must one that accuses. That holds too where both accuse each other. Where only two are left, one
 * word stands against the other: the accused is left out of the average, and when that happens in
 * three averages in a row, the later one of the two goes, whichever of them reported it.
 *
 * Pure functions of reports. In a local run all replicas are the user's own, and what one reports
 * is true. */
#pragma once

#include "config/run_plan.h"

enum {
    STRAIT_EXCLUSION_DISPUTES = 3, // averages in a row, of two replicas
    STRAIT_EXCLUSION_LABELS = 64   // of replicas, which keep theirs when they get other numbers
};

/* What a replica of one stage reports of an attempt, as bits of replicas; strait_stage_reply.outer.
 */
typedef struct strait_exclusion_report {
    int is_complete;
    uint64_t missing, withheld, rejected;
} strait_exclusion_report;

/* Zeroed: nobody was accused. */
struct strait_exclusion {
    int is_trusting; // in a local run
    int n_disputed;  // averages in a row in which two that were alone accused each other
    uint64_t opponents[STRAIT_EXCLUSION_LABELS]; // of a label: labels that it was in dispute with
    /* Of a label: those whose next accusation it is left out for; and the same when the exchange
     * began, so that all of its attempts have the same outcome. */
    uint64_t turns[STRAIT_EXCLUSION_LABELS], turns_before[STRAIT_EXCLUSION_LABELS];
    /* Of the exchange: */
    uint64_t accusers[STRAIT_RUN_REPLICAS];  // of each replica: those that lack something from it
    uint64_t rejectors[STRAIT_RUN_REPLICAS]; // those that rejected its values
    uint64_t now[STRAIT_RUN_REPLICAS];       // accusers in the last attempt
    uint64_t late;                           // replicas that were not complete in it
    int is_disputed;                         // one of two accuses the other in this exchange
};

/* Another exchange begins; `labels` of n replicas, NULL: their numbers. What was held against
 * labels that are gone is forgotten. */
void strait_exclusion_begin(struct strait_exclusion *x, const int *labels, int n);

/* An attempt has ended: the reports of all replicas of one stage, whose members and alive replicas
 * are given. The first stage of an attempt comes with `is_first`. */
void strait_exclusion_note(struct strait_exclusion *x, const strait_exclusion_report *reports,
                           uint64_t members, uint64_t alive, int is_first);

/* After a failed attempt: who of `eligible` takes part in the next one; at least one, if any of
 * them is alive. */
uint64_t strait_exclusion_members(struct strait_exclusion *x, const int *labels, uint64_t alive,
                                  uint64_t eligible);

/* Replicas that cannot stay in the exchange at all: two rejected the values of one, or one that is
 * no member keeps others from ending it. After the last attempt (`is_last`) also those that are no
 * members and have no results, or else all that have none; of two the later one. Never all of
 * `alive`; in a local run nobody instead. */
uint64_t strait_exclusion_gone(const struct strait_exclusion *x, uint64_t members, uint64_t alive,
                               int is_last);
