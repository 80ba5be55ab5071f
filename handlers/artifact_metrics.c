/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/artifacts_app.h"

#include "base/metrics.h"
#include "store/spread.h"

enum { TEXT_MAX = 16 << 20 };

/* Counters of the program, and what the tables tell; without Postgres only the former. */
int get_artifact_metrics(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
    cleanup_buf struct buf tables = BUF_INIT(TEXT_MAX);
    struct err ignored = ERR_INIT;

    metrics_print(&text);
    if (spread_metrics(req->db, &tables, &ignored) == 0 && tables.data != NULL)
        buf_add(&text, tables.data, tables.len);
    if (text.overflow || tables.overflow)
        return err_set(e, ERR_INTERNAL, "the metrics do not fit in %d bytes", TEXT_MAX);
    reply_text(reply, "text/plain; version=0.0.4", &text);
    return 0;
}
