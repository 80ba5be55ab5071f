/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ASSIGNMENT_SHOWN_H
#define WB_ASSIGNMENT_SHOWN_H

/* A copy to a node as GET /api/operations shows it: an overlay and a row of model_load_jobs with the key
 * <artifact>@<version>:<node>, by the verbs of every other staging. Artifacts contract, section 3, "progress". Nothing
 * depends on it: a store that does not answer is passed over. */
#include "store/assignment.h"
#include "web/request.h"

/* What a node says of a file; "" and -1: nothing. */
struct shown {
    const char *file_name;
    const char *speed;
    const char *message;
    int64_t file_index;
    int64_t total_files;
};

void assignment_show(struct web_req *req, const struct assignment_row *a, const struct shown *s);
/* Its row is failed when reason is not NULL, and is shown so for a while; else row and overlay go. */
void assignment_show_end(struct web_req *req, const struct assignment_row *a, const char *reason);
/* It will be tried again: the overlay goes, the row waits. */
void assignment_show_waiting(struct web_req *req, const struct assignment_row *a);

#endif
