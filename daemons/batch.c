/* SPDX-License-Identifier: Apache-2.0 */

/* weighbridge-batch: runs the lines of batches (lib/lines). It is run like the FastCGI programs, by a supervisor that
 * replaces what dies and reloads on HUP, and has a socket of its own for /healthz, /readyz and /metrics. */
#include "base/metrics.h"
#include "lines/runner.h"
#include "store/ready.h"
#include "web/web_main.h"

static int start(const struct web_context *w, void **app, struct err *e)
{
    const struct runner_options o = {
        .conf = w->conf, .db_breaker = w->db_breaker, .kv_breaker = w->kv_breaker
    };
    struct runner *r = NULL;

    metrics_show(METRICS_OF_BATCH);
    if (w->cgi)
        return err_set(e, ERR_INVALID, "the runner is no CGI program");
    if (runner_start(&o, &r, e) < 0)
        return -1;
    *app = r;
    return 0;
}

static void stop(void *runner)
{
    runner_stop(runner);
}

static int64_t processes(const struct conf *c)
{
    return c->batch_runners;
}

static const char *socket_path(const struct conf *c)
{
    return c->batch_runner_socket;
}

int main(int argc, char **argv)
{
    const struct db_stmts stmts[] = { READY_STMTS };
    const struct web_app app = {
        .name = "batch",
        .needs_postgres = true,
        .no_cgi = true,
        .summary = "runs the lines of batches on inference servers",
        .stmts = stmts,
        .n_stmts = 1,
        .workers = processes,
        .socket = socket_path,
        .check = runner_check,
        .start = start,
        .stop = stop,
    };
    return web_main(&app, argc, argv);
}
