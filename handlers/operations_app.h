/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATIONS_APP_H
#define WB_OPERATIONS_APP_H

/* What the handlers of the operations program share. */
#include <pthread.h>

#include "base/err.h"
#include "fcgi/snapshot.h"
#include "handlers/poll.h"
#include "handlers/refresher.h"
#include "web/reply.h"
#include "web/request.h"

/* Follows the machine's id in the message about a change of rows. */
#define CHANGED_ROWS " rows"

struct operations_app {
    struct snapshots *snapshots; /* NULL: no shared memory, each request asks the stores itself */
    struct refresher *refresher;
    struct keeper *keeper;    /* NULL: [operations] read_only, or a CGI */
    pthread_mutex_t ask_lock; /* of what follows */
    struct poll_source *source;
    struct operations_answer *answer; /* the last that source gave; NULL: none yet */
};

/* An acting call has committed and changed the overlay: no poll that begins after its answer may miss
 * it, here at once, on other machines within 50 ms. Contract section 3, "Freshness". */
void operations_changed(struct web_req *req);
/* The same for a call that changed rows in Postgres. */
void operations_rows_changed(struct web_req *req);

/* The key of the path, checked. NULL with *e set when it is none. */
const char *operations_key(const struct web_req *req, struct err *e);

/* Postgres' time now, for stamps: learns the offset of this machine's clock first if need be. */
int64_t operations_stamp_us(struct web_req *req);

int get_operations(struct web_req *req, struct web_reply *reply, struct err *e);

int get_staging_list(struct web_req *req, struct web_reply *reply, struct err *e);
int get_staging(struct web_req *req, struct web_reply *reply, struct err *e);
int put_staging(struct web_req *req, struct web_reply *reply, struct err *e);
int post_staging_file_complete(struct web_req *req, struct web_reply *reply, struct err *e);
int delete_staging(struct web_req *req, struct web_reply *reply, struct err *e);

int post_operation_cancel(struct web_req *req, struct web_reply *reply, struct err *e);
int post_operation_pause(struct web_req *req, struct web_reply *reply, struct err *e);
int post_operation_dismiss(struct web_req *req, struct web_reply *reply, struct err *e);
int get_operation_control(struct web_req *req, struct web_reply *reply, struct err *e);
int get_operation_history(struct web_req *req, struct web_reply *reply, struct err *e);
int delete_operation_history(struct web_req *req, struct web_reply *reply, struct err *e);
int post_operation(struct web_req *req, struct web_reply *reply, struct err *e);
int put_operation(struct web_req *req, struct web_reply *reply, struct err *e);

int get_load_jobs(struct web_req *req, struct web_reply *reply, struct err *e);
int get_load_job(struct web_req *req, struct web_reply *reply, struct err *e);
int post_load_job_claim(struct web_req *req, struct web_reply *reply, struct err *e);
int put_load_job(struct web_req *req, struct web_reply *reply, struct err *e);
int post_load_job_fail(struct web_req *req, struct web_reply *reply, struct err *e);
int delete_load_job(struct web_req *req, struct web_reply *reply, struct err *e);

#endif
