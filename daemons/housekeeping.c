/* SPDX-License-Identifier: Apache-2.0 */

/* weighbridge-housekeeping: removes what nobody needs any more, says in one line what it was, and leaves. Safe
 * to start anywhere, any number of times, also twice at once. */
#include <signal.h>

#include "base/log.h"
#include "base/str.h"
#include "daemons/tool.h"
#include "store/artifact_gate.h"
#include "store/artifact_shard.h"
#include "store/gate.h"
#include "store/housekeeping.h"

enum { TIMEOUT_MS = 60000 };

static const char USAGE[] =
    "usage: weighbridge-housekeeping [--config FILE]\n"
    "\n"
    "Removes from the tables of load jobs and gallery operations what nobody needs any\n"
    "more, says in one line on stderr what it was, and leaves. To be started every few\n"
    "minutes by a timer or cron, on any number of machines; nothing depends on it.\n"
    "\n"
    "  failed loads          over 15 seconds old\n"
    "  orphaned loads        not heard of for 60 seconds, without a live overlay\n"
    "  claims                of loads that are gone\n"
    "  stale operations      not heard of for 30 minutes, without a live overlay: they are\n"
    "                        marked failed; their true outcome may still correct that\n"
    "  ended operations      older than [operations] keep_days\n"
    "  controls              of operations that are gone, over a day old\n"
    "\n"
    "Where the folder [artifacts] root is and belongs to the user it runs as: verifies\n"
    "versions that were uploaded and publishes or rejects them, drops uploads that stand\n"
    "still, and removes what they left, bodies in .spool that a web server left which died,\n"
    "too.\n"
    "\n"
    "Without an answer of Redis orphaned loads and stale operations are left alone. With\n"
    "[operations] read_only only Weighbridge's own tables are touched: claims, controls.\n"
    "\n" TOOL_COMMON_USAGE "\n"
    "Exit status: 0 done, 1 Postgres did not let it, 2 wrong arguments or configuration.\n";

static void report(const struct housekeeping *h, const struct gate_done *g)
{
    const struct log_kv line[] = {
        LOG_MSG("housekeeping is done"),
        LOG_I("failed_loads", h->failed_loads),
        LOG_I("orphaned_loads", h->orphaned_loads),
        LOG_I("claims", h->claims),
        LOG_I("stale_operations", h->stale_operations),
        LOG_I("history", h->history),
        LOG_I("controls", h->controls),
        LOG_I("published", g->published),
        LOG_I("rejected", g->rejected),
        LOG_I("dropped_uploads", g->dropped),
        LOG_I("parts", g->parts),
        LOG_I("spooled", g->spooled),
        LOG_S("left_alone",
            h->redis_silent ? "orphaned_loads stale_operations: redis does not answer" : ""),
        { .key = NULL },
    };
    log_emit(h->redis_silent ? LOG_WARN : LOG_INFO, line);
}

/* Where the store of artifacts is, and ours: the release gate, and what was left over. */
static int keep_store(struct db *db, const struct conf *conf, struct gate_done *done, struct err *e)
{
    struct gate g;

    gate_init(&g, conf->artifacts_root, conf->artifacts_drop_hours);
    if (!gate_is_here(&g))
        return 0;
    return gate_run(db, &g, done, e) < 0 || gate_sweep(db, &g, done, e) < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    const struct tool tool = { "weighbridge-housekeeping", USAGE, NULL, 0, NULL, NULL };
    cleanup_conf struct conf conf = { 0 };
    int rc = tool_start(&tool, argc, argv, &conf);
    if (rc != 0)
        return rc < 0 ? TOOL_USAGE : EXIT_SUCCESS;

    (void)signal(SIGPIPE, SIG_IGN); /* hiredis writes without MSG_NOSIGNAL */
    const struct db_stmts stmts[] = { HOUSEKEEPING_STMTS, GATE_STMTS, SHARD_STMTS };
    cleanup_db struct db *db = db_new(&(struct db_options){
        .url = conf.db_url,
        .name = "weighbridge-housekeeping",
        .prepared = conf.db_prepared,
        .timeout_ms = TIMEOUT_MS,
        .stmts = stmts,
        .n_stmts = sizeof stmts / sizeof stmts[0],
    });
    cleanup_kv struct kv *kv = str_empty(conf.redis_url) ? NULL
                                                         : kv_new(&(struct kv_options){
                                                               .url = conf.redis_url,
                                                               .name = "weighbridge-housekeeping",
                                                               .timeout_ms = conf.redis_timeout_ms,
                                                           });
    const struct housekeeping_options o = {
        .read_only = conf.operations_read_only,
        .keep_days = conf.operations_keep_days,
    };
    struct housekeeping done;
    struct gate_done store = { 0 };
    struct err e = ERR_INIT;
    if (housekeeping_run(db, kv, &o, &done, &e) < 0) {
        log_error(LOG_MSG("housekeeping was not done"), LOG_S("error", e.msg));
        return EXIT_FAILURE;
    }
    rc = keep_store(db, &conf, &store, &e);
    report(&done, &store);
    if (rc == 0)
        return EXIT_SUCCESS;
    log_error(LOG_MSG("the store of artifacts was not kept"), LOG_S("error", e.msg));
    return EXIT_FAILURE;
}
