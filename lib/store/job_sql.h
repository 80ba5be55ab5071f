/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_SQL_H
#define WB_JOB_SQL_H

/* Numbers of states, events and kinds of intents as SQL text, for the statements that name them. */
#include "model/job.h"

#define S_QUEUED     "0"
#define S_PLANNED    "1"
#define S_PREPARING  "2"
#define S_CANCELLING "8"
#define S_FIRST_END  "9"
#define S_EXPIRED    "11"
#define S_CANCELLED  "12"

#define E_PLAN         "1"
#define E_CANCEL       "18"
#define E_QUEUE_EXPIRE "20"

#define K_PROVISION    "0"
#define K_CREATE_BATCH "1"
#define K_CANCEL_BATCH "2"
#define K_RELEASE      "3" /* this and the next may outlive their job */
#define K_STRAY_BATCH  "4"

_Static_assert(JOB_QUEUED == 0 && JOB_PLANNED == 1 && JOB_RESOURCE_PREPARING == 2, "as above");
_Static_assert(JOB_CANCELLING == 8 && JOB_COMPLETED == 9, "as above");
_Static_assert(JOB_EXPIRED == 11 && JOB_CANCELLED == 12, "as above");
_Static_assert((int)EV_PLAN == 1 && (int)EV_CANCEL == 18 && (int)EV_QUEUE_EXPIRE == 20, "as above");
_Static_assert(INTENT_PROVISION == 0 && INTENT_CREATE_BATCH == 1, "as above");
_Static_assert(
    INTENT_CANCEL_BATCH == 2 && INTENT_RELEASE == 3 && INTENT_STRAY_BATCH == 4, "as above");

/* A poll at '-infinity' is one that was asked for while somebody may have held the row: whoever hands it back
 * leaves that alone. ms: SQL text of a number. */
#define NEXT_POLL_IN(ms) \
    "CASE WHEN next_poll_at = '-infinity' THEN next_poll_at" \
    " ELSE now() + " ms "::bigint * interval '1 millisecond' END"

#endif
