/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BATCH_TEXT_H
#define WB_BATCH_TEXT_H

/* A batch as the rows keep it: batch_json of struct job (model/job.h). Pure. */
#include "base/buf.h"
#include "model/batch.h"

enum { BATCH_TEXT_MAX = 256 << 10 };

void batch_text(const struct batch *b, struct buf *out);

#endif
