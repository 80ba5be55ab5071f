/* SPDX-License-Identifier: Apache-2.0 */
#include "web/web_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/breaker.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/str.h"
#include "config.h"
#include "fcgi/fcgi_set.h"
#include "fcgi/listener.h"
#include "fcgi/supervisor.h"
#include "web/accepted.h"
#include "web/web_options.h"
#include "web/web_serve.h"

enum { HANDOVER_MS = 5000, READY_MS = 10000, STOP_MS = 15000, RESERVED_FDS = 64, EXIT_USAGE = 2 };

/* What every way of running begins with. */
struct process {
    const struct web_app *app;
    const struct web_options *options;
    struct conf conf;
    struct auth *auth;
    struct shared *shared; /* NULL: none */
    int ready_fd;          /* of a supervisor's worker; -1: it is none */
    int accepted_fd;       /* what to start with instead of the files; -1: nothing */
    char name[64];
    struct err trouble; /* why the shared memory's file cannot be written, as it was last told */
};

static void process_fini(struct process *p)
{
    auth_free(p->auth);
    conf_free(&p->conf);
    cleanup_fd_(&p->accepted_fd);
}
#define cleanup_process __attribute__((cleanup(process_fini)))

static int fail(const struct process *p, const struct err *e)
{
    (void)fprintf(stderr, "%s: %s\n", p->name, e->msg);
    return EXIT_FAILURE;
}

/* From what was accepted before, else from the files. */
static int read_configuration(struct process *p, struct buf *tokens, struct err *e)
{
    if (p->accepted_fd >= 0) {
        int rc = accepted_read(p->accepted_fd, &p->conf, tokens, e);
        if (rc <= 0)
            return rc;
    }
    if (conf_load(&p->conf, p->options->config, e) < 0)
        return -1;
    if (auth_read_tokens(&p->conf, tokens, e) == 0)
        return 0;
    if (p->options->config == NULL)
        return err_wrap(e, "there is no " CONF_USUAL_PATH ", no --config and no WB_CONFIG");
    return -1;
}

/* Without it, those that replace this worker read the files again. */
static void hand_on(const struct process *p, const struct buf *tokens)
{
    struct err e = ERR_INIT;
    cleanup_fd int fd = -1;
    if (p->ready_fd < 0 || p->accepted_fd >= 0)
        return;
    if (accepted_make(&p->conf, tokens, &fd, &e) < 0 || supervisor_accept(p->ready_fd, fd, &e) < 0)
        log_warn(LOG_MSG("what was read is not kept"), LOG_S("error", e.msg));
}

/* Configuration and tokens: what --check looks at. */
static int load(struct process *p, struct err *e)
{
    enum log_level level = LOG_INFO;
    cleanup_buf struct buf tokens = BUF_INIT(AUTH_TOKENS_MAX);
    if (read_configuration(p, &tokens, e) < 0)
        return -1;
    if (log_level_parse(p->conf.runtime_log_level, &level) < 0)
        return err_set(e, ERR_INVALID, "[runtime] log_level: must be error, warn, info or debug");
    log_setup(p->name, level);
    if (!str_empty(p->conf.redis_url) && kv_url_check(p->conf.redis_url, e) < 0)
        return err_wrap(e, "[redis] url");
    if (p->app->check != NULL && p->app->check(&p->conf, e) < 0)
        return -1;
    if (auth_make(&p->conf, &tokens, &p->auth, e) < 0)
        return -1;
    hand_on(p, &tokens);
    return 0;
}

/* Without shared memory each request asks the stores itself: slower, and no less right. A CGI process
 * often runs as another user: it joins the service's, but never makes one. */
static void share(struct process *p, bool cgi)
{
    struct err e = ERR_INIT;
    struct shared *s = NULL;
    const char *dir = p->conf.runtime_dir;
    const char *name = p->app->name;
    int rc = cgi ? shared_join(dir, name, &s, &e) : shared_open(dir, name, &s, &e);
    if (rc < 0 && cgi)
        log_debug(LOG_MSG("no shared memory"), LOG_S("error", e.msg));
    else if (rc < 0)
        log_warn(LOG_MSG("no shared memory"), LOG_S("error", e.msg));
    if (rc != 0)
        return;
    p->shared = s;
    metrics_attach(s->metrics);
}

/* Memory holds tokens' hashes and the stores' passwords: it must not get into a core file. */
static void keep_secrets(void)
{
#ifdef __SANITIZE_ADDRESS__
    return; /* the leak check looks into its own process, which must be dumpable for it */
#endif
    const char *dumpable = getenv("WEIGHBRIDGE_DUMPABLE");
    const struct rlimit none = { .rlim_cur = 0, .rlim_max = 0 };
    if (dumpable != NULL && strcmp(dumpable, "1") == 0)
        return;
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Connections may not take the descriptors that stores and snapshots need. */
static int64_t max_conns(const struct conf *c)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return c->fcgi_max_conns;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= (rlim_t)(c->fcgi_max_conns + RESERVED_FDS))
        return c->fcgi_max_conns;
    return limit.rlim_cur / 2 > RESERVED_FDS ? (int64_t)limit.rlim_cur - RESERVED_FDS
                                             : (int64_t)limit.rlim_cur / 2;
}

static int64_t request_threads(const struct process *p)
{
    return p->app->threads != NULL ? p->app->threads(&p->conf) : p->conf.fcgi_threads;
}

static int serve_socket(struct process *p, struct web_server *server, struct err *e)
{
    const struct fcgi_set_options o = {
        .listen_fd = STDIN_FILENO,
        .threads = (int)request_threads(p),
        .read_timeout_ms = p->conf.fcgi_read_timeout_ms,
        .drain_ms = p->conf.fcgi_drain_ms,
        .max_conns = max_conns(&p->conf),
        .ready_fd = p->ready_fd,
        .handle = web_serve,
        .ctx = server,
        .handler_follows = true,
    };
    return fcgi_set_run(&o, e);
}

/* Starts the program's own part, serves, and stops it. */
static int serve(struct process *p, struct web_context *context, struct err *e)
{
    const size_t threads = context->cgi ? 1 : (size_t)request_threads(p);
    cleanup_web_server struct web_server server = { 0 };
    void *data = NULL;
    if (p->app->start != NULL && p->app->start(context, &data, e) < 0)
        return -1;
    web_server_init(&server, p->app, context, p->auth, threads);
    server.app_data = data;
    int rc = context->cgi ? fcgi_cgi_run(web_serve, &server, e) : serve_socket(p, &server, e);
    if (p->app->stop != NULL)
        p->app->stop(data);
    return rc;
}

static int run_worker(struct process *p, bool cgi)
{
    struct err e = ERR_INIT;
    struct breaker db_breaker;
    struct breaker kv_breaker;
    struct web_context context = {
        .conf = &p->conf, .db_breaker = &db_breaker, .kv_breaker = &kv_breaker, .cgi = cgi
    };
    keep_secrets();
    p->ready_fd = supervisor_fd(SUPERVISOR_READY_ENV);
    p->accepted_fd = supervisor_fd(SUPERVISOR_ACCEPTED_ENV);
    if (load(p, &e) < 0)
        return fail(p, &e);
    stop_block();
    share(p, cgi);
    if (!cgi)
        metrics_join();
    context.shared = p->shared;
    breaker_init(&db_breaker);
    breaker_init(&kv_breaker);
    int rc = serve(p, &context, &e);
    breaker_fini(&db_breaker);
    breaker_fini(&kv_breaker);
    if (rc < 0)
        log_error(LOG_MSG("cannot serve"), LOG_S("error", e.msg));
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int socket_path(const struct process *p, char *dst, size_t size, struct err *e)
{
    const char *path = p->app->socket == NULL ? NULL : p->app->socket(&p->conf);
    int rc = str_empty(path)
                 ? str_format(dst, size, "%s/%s.sock", p->conf.runtime_dir, p->app->name)
                 : str_copy(dst, size, path);
    return rc < 0 ? err_set(e, ERR_INVALID, "the socket's path is too long") : 0;
}

/* libpq brings GnuTLS along (through LDAP), which unless told otherwise sets itself up in every process
 * that loads it: a megabyte for each worker. Who does use it sets it up explicitly. */
static void spare_workers_gnutls(void)
{
    (void)setenv("GNUTLS_NO_IMPLICIT_INIT", "1", 0);
}

/* Once a second. One line for each loss, and one for each reason why it cannot be made good. */
static void keep_shared(void *ctx)
{
    struct process *p = ctx;
    struct err e = ERR_INIT;
    if (p->shared == NULL)
        return;
    int rc = shared_keep_name(p->shared, p->conf.runtime_dir, p->app->name, &e);
    if (rc > 0)
        log_warn(LOG_MSG("the file that names the shared memory was lost and is there again"),
            LOG_S("folder", p->conf.runtime_dir));
    if (err_is_news(&p->trouble, &e) && rc < 0)
        log_warn(LOG_MSG("nobody new finds the shared memory"), LOG_S("error", e.msg));
}

static int supervise(struct process *p, struct listener *listener, char *name, struct err *e)
{
    char worker[] = "--worker";
    char config[] = "--config";
    cleanup_free char *path = p->options->config == NULL ? NULL : mem_strdup(p->options->config);
    char *const argv[] = { name, worker, path == NULL ? NULL : config, path, NULL };
    const struct supervisor_options o = {
        .listener = listener,
        .workers = (int)p->app->workers(&p->conf),
        .argv = argv,
        .ready_ms = READY_MS,
        .stop_ms = STOP_MS,
        .drain_ms = p->conf.fcgi_drain_ms + p->conf.fcgi_read_timeout_ms + STOP_MS,
        .tend = keep_shared,
        .ctx = p,
    };
    spare_workers_gnutls();
    return supervisor_run(&o, e);
}

static int open_listener(const struct process *p, struct listener *out, struct err *e)
{
    char path[128];
    int rc = listener_given(out, e);
    if (rc <= 0)
        return rc;
    if (socket_path(p, path, sizeof(path), e) < 0)
        return -1;
    return listener_open(out, path, p->conf.runtime_socket_group, HANDOVER_MS, e);
}

/* What is wrong with the configuration is told here, before any worker would fail over it. */
static int run_supervisor(struct process *p, char *name)
{
    struct err e = ERR_INIT;
    cleanup_listener struct listener listener = LISTENER_INIT;
    keep_secrets();
    if (load(p, &e) < 0)
        return fail(p, &e);
    stop_block();
    share(p, false);
    if (p->shared != NULL)
        shared_hand_on(p->shared, p->conf.runtime_dir, p->app->name);
    if (open_listener(p, &listener, &e) < 0 || supervise(p, &listener, name, &e) < 0)
        return fail(p, &e);
    return EXIT_SUCCESS;
}

static int print_text(const struct buf *text)
{
    const bool ok = fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int check(struct process *p)
{
    struct err e = ERR_INIT;
    if (load(p, &e) < 0)
        return fail(p, &e);
    (void)puts("ok");
    return EXIT_SUCCESS;
}

static int print_config(struct process *p)
{
    struct err e = ERR_INIT;
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    if (conf_load(&p->conf, p->options->config, &e) < 0)
        return fail(p, &e);
    conf_print(&p->conf, &text);
    return print_text(&text);
}

static int print_manual(void)
{
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    conf_markdown(&text);
    return print_text(&text);
}

static int run(struct process *p, enum fcgi_start how, char *name)
{
    if (how == FCGI_START_CGI)
        return run_worker(p, true);
    if (how == FCGI_START_SOCKET || p->options->worker)
        return run_worker(p, false);
    return run_supervisor(p, name);
}

int web_main(const struct web_app *app, int argc, char **argv)
{
    const enum fcgi_start how = fcgi_how_started();
    const struct web_options options =
        how == FCGI_START_CGI ? web_options_cgi() : web_options_parse(argc, argv);
    cleanup_process struct process p = {
        .app = app, .options = &options, .ready_fd = -1, .accepted_fd = -1
    };
    (void)str_format(p.name, sizeof(p.name), "weighbridge-%s", app->name);

    switch (options.action) {
    case WEB_RUN:
        return run(&p, how, argv[0]);
    case WEB_CHECK:
        return check(&p);
    case WEB_PRINT_CONFIG:
        return print_config(&p);
    case WEB_PRINT_MANUAL:
        return print_manual();
    case WEB_VERSION:
        return printf("%s %s\n", p.name, PACKAGE_VERSION) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    case WEB_HELP:
        web_options_help(app);
        return EXIT_SUCCESS;
    case WEB_USAGE:
        break;
    }
    (void)fprintf(stderr, "Try '%s --help'.\n", p.name);
    return EXIT_USAGE;
}
