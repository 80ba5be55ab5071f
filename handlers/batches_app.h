/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BATCHES_APP_H
#define WB_BATCHES_APP_H

/* What the handlers of the batches program share: the embedded batch service as callers see it. Batch contract; the
 * dialect is OpenAI's, docs/openapi-batch.yaml. */
#include "base/err.h"
#include "web/reply.h"
#include "web/request.h"

#define BATCHES_PREFIX "/batch-service/v1"

/* Whose files and batches the caller sees: NULL for an admin, who sees all. */
const char *batches_owner(const struct web_req *req);

/* ?limit within 1 .. max. ERR_INVALID. */
int batches_limit(
    const struct web_req *req, int64_t dflt, int64_t max, int64_t *out, struct err *e) WARN_UNUSED;

/* ?NAME into room, *out NULL when it is absent or empty. ERR_INVALID. */
enum { BATCHES_TEXT_SIZE = 129 };
int batches_text(const struct web_req *req, const char *name, char room[BATCHES_TEXT_SIZE],
    const char **out, struct err *e) WARN_UNUSED;

int post_file(struct web_req *req, struct web_reply *reply, struct err *e);
int get_files(struct web_req *req, struct web_reply *reply, struct err *e);
int get_batch_file(struct web_req *req, struct web_reply *reply, struct err *e);
int get_file_content(struct web_req *req, struct web_reply *reply, struct err *e);
int delete_file(struct web_req *req, struct web_reply *reply, struct err *e);

int post_batch(struct web_req *req, struct web_reply *reply, struct err *e);
int get_batches(struct web_req *req, struct web_reply *reply, struct err *e);
int get_batch(struct web_req *req, struct web_reply *reply, struct err *e);
int cancel_batch(struct web_req *req, struct web_reply *reply, struct err *e);

#endif
