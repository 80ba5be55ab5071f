/* SPDX-License-Identifier: Apache-2.0 */

/* weighbridge-planner: plans batch jobs and carries them out (lib/plan). It is run like the FastCGI programs, by a
 * supervisor that replaces what dies and reloads on HUP, and has a socket of its own for /healthz, /readyz and
 * /metrics. */
#include <stdio.h>
#include <string.h>

#include "base/breaker.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/str.h"
#include "model/job_fsm.h"
#include "plan/planner.h"
#include "store/ready.h"
#include "web/web_main.h"
#include "web/web_options.h"

enum { FSM_MAX = 1 << 18, EXIT_USAGE = 2 };

static int start(const struct web_context *w, void **app, struct err *e)
{
    const struct planner_options o = {
        .conf = w->conf, .db_breaker = w->db_breaker, .kv_breaker = w->kv_breaker
    };
    struct planner *p = NULL;

    metrics_show(METRICS_OF_PLANNER);
    if (w->cgi)
        return err_set(e, ERR_INVALID, "the planner is no CGI program");
    if (planner_start(&o, &p, e) < 0)
        return -1;
    *app = p;
    return 0;
}

static void stop(void *planner)
{
    planner_stop(planner);
}

static int64_t processes(const struct conf *c)
{
    return c->planner_processes;
}

static const char *socket_path(const struct conf *c)
{
    return c->planner_socket;
}

static int dump_fsm(void)
{
    cleanup_buf struct buf text = BUF_INIT(FSM_MAX);

    job_fsm_print(&text);
    return fwrite(text.data, 1, text.len, stdout) == text.len && fflush(stdout) == 0 ? EXIT_SUCCESS
                                                                                     : EXIT_FAILURE;
}

/* The points at which faults can be injected, one a line: tests take them from here. */
static int dump_faults(void)
{
    for (int p = 0; p < FAULT__OF_PLANNERS; p++)
        (void)printf("%s\t%s\n", fault_name((enum fault_point)p), fault_when((enum fault_point)p));
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int fail(const struct err *e)
{
    (void)fprintf(stderr, "weighbridge-planner: %s\n", e->msg);
    return EXIT_FAILURE;
}

static int run_once(const char *config)
{
    struct err e = ERR_INIT;
    cleanup_conf struct conf conf = { 0 };
    enum log_level level = LOG_INFO;
    struct breaker db_breaker;
    struct breaker kv_breaker;

    if (conf_load(&conf, config, &e) < 0)
        return fail(&e);
    (void)log_level_parse(conf.runtime_log_level, &level);
    log_setup("weighbridge-planner", level);
    stop_block();
    breaker_init(&db_breaker);
    breaker_init(&kv_breaker);
    const struct planner_options o = {
        .conf = &conf, .db_breaker = &db_breaker, .kv_breaker = &kv_breaker
    };
    const int rc = planner_once(&o, &e);
    breaker_fini(&db_breaker);
    breaker_fini(&kv_breaker);
    return rc < 0 ? fail(&e) : EXIT_SUCCESS;
}

static int not_alone(const char *option)
{
    (void)fprintf(stderr, "weighbridge-planner: %s must stand alone\n", option);
    return EXIT_USAGE;
}

/* The actions that no other program has; all else is web_main()'s. 0 and *status when it was one of them. */
static int own_action(int argc, char **argv, int *status)
{
    const char *config = conf_usual_path();
    bool once = false;

    for (int i = 1; i < argc; i++) {
        const bool fsm = strcmp(argv[i], "--dump-fsm") == 0;
        if (fsm || strcmp(argv[i], "--dump-faults") == 0) {
            *status = argc == 2 ? (fsm ? dump_fsm() : dump_faults()) : not_alone(argv[i]);
            return 0;
        }
        if (strcmp(argv[i], "--once") == 0)
            once = true;
        else if (str_starts(argv[i], "--config="))
            config = argv[i] + strlen("--config=");
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            config = argv[++i];
        else
            return 1;
    }
    if (once)
        *status = run_once(config);
    return once ? 0 : 1;
}

/* Without a batch service the rest works, up to there: no reason not to start. */
static int check(const struct conf *conf, struct err *e)
{
    if (str_empty(conf->batch_url))
        log_warn(LOG_MSG(
            "there is no [batch] url: jobs will get machines and then stay in resource_preparing"));
    return planner_check(conf, e);
}

int main(int argc, char **argv)
{
    const struct db_stmts stmts[] = { READY_STMTS };
    const struct web_app app = {
        .name = "planner",
        .needs_postgres = true,
        .no_cgi = true,
        .summary = "plans batch jobs and carries them out",
        .more_help =
            "  --once                    one cycle: plan, do what is due, leave\n"
            "  --dump-faults             print the points at which faults can be injected\n"
            "  --dump-fsm                print the state machine of jobs (docs/job-states.md)\n",
        .stmts = stmts,
        .n_stmts = 1,
        .workers = processes,
        .socket = socket_path,
        .check = check,
        .start = start,
        .stop = stop,
    };
    int status = EXIT_FAILURE;

    return own_action(argc, argv, &status) == 0 ? status : web_main(&app, argc, argv);
}
