/* SPDX-License-Identifier: Apache-2.0 */

/* weighbridge-agent run: the daemon of a node. This thread talks to the control plane and takes signals, another pulls. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/stop.h"
#include "daemons/agent_desk.h"

enum { TURN_MS = 10000, ROOT_MODE = 0755 };

static const char RUN_USAGE[] =
    "usage: weighbridge-agent run [OPTION]...\n"
    "\n"
    "Reports this node to the control plane at [agent] url, and lands the versions that it assigns, one at a time. Ends on TERM; a\n"
    "pull in progress is taken up by the next start. HUP reads the configuration and the token again.\n"
    "\n"
    "  --root ROOT        folder of the versions (else [agent] root)\n"
    "  --token-file FILE  bearer token of this node (else [agent] token)\n" TOOL_COMMON_USAGE;

/* What runs. */
struct run {
    struct settings_from from;
    struct settings *settings;
    char *root_path; /* the first that was read: another one counts from the next start */
    int root;
    int signals;
    struct desk *desk;
};

static void run_end(struct run *r)
{
    desk_close(r->desk);
    settings_drop(r->settings);
    free(r->root_path);
    cleanup_fd_(&r->signals);
    cleanup_fd_(&r->root);
}
#define cleanup_run __attribute__((cleanup(run_end)))

/* One agent for a root: a second one would fetch everything once more. */
static int hold_root(struct run *r, struct mishap *m)
{
    if (mkdir(r->root_path, ROOT_MODE) < 0 && errno != EEXIST)
        return mishap_errno(m, true, "cannot make %.100s", r->root_path);
    r->root = open(r->root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->root < 0)
        return mishap_errno(m, true, "cannot open %.100s", r->root_path);
    if (flock(r->root, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return mishap_set(m, MISHAP_TAKEN_OVER, "another agent runs on %.100s", r->root_path);
    return 0;
}

static void reload(struct run *r)
{
    struct settings *s = NULL;
    struct err e = ERR_INIT;

    notify_reloading();
    if (settings_read(&r->from, &s, &e) < 0) {
        log_error(LOG_MSG("the configuration stays as it was"), LOG_S("error", e.msg));
    } else {
        settings_drop(r->settings);
        r->settings = s;
        desk_reload(r->desk, s);
        log_info(LOG_MSG("the configuration was read again"));
    }
    notify_ready();
}

/* false: it is time to leave. */
static bool take_signals(struct run *r)
{
    for (int signo = stop_next_signal(r->signals); signo != 0;
         signo = stop_next_signal(r->signals)) {
        if (signo == SIGTERM || signo == SIGINT)
            return false;
        if (signo == SIGHUP)
            reload(r);
    }
    return true;
}

static void run(struct run *r)
{
    notify_ready();
    while (take_signals(r)) {
        const int64_t due_ns = desk_turn(r->desk);
        const int64_t latest_ns = clock_deadline(TURN_MS);
        struct pollfd fds[] = { { .fd = r->signals, .events = POLLIN },
            { .fd = desk_fd(r->desk), .events = POLLIN } };

        notify_alive();
        (void)poll(fds, 2, clock_left_ms(due_ns < latest_ns ? due_ns : latest_ns));
    }
    notify_stopping();
    log_info(LOG_MSG("leaving"));
}

static int begin(struct run *r, struct mishap *m)
{
    struct err e = ERR_INIT;

    stop_block();
    if (hold_root(r, m) < 0)
        return -1;
    r->signals = stop_signal_fd(&e);
    if (r->signals < 0 || desk_open(r->settings, r->root, r->signals, &r->desk, &e) < 0)
        return mishap_err(m, MISHAP_DISK_READ, &e);
    return 0;
}

int agent_run(int argc, char **argv)
{
    cleanup_run struct run r = { .root = -1, .signals = -1 };
    cleanup_conf struct conf conf = { 0 };
    struct mishap m = MISHAP_INIT;
    struct err e = ERR_INIT;
    enum log_level level = LOG_INFO;
    const struct tool_option own[] = { { "root", &r.from.root, NULL },
        { "token-file", &r.from.token_file, NULL } };
    const struct tool tool = { "weighbridge-agent run", RUN_USAGE, own, 2, NULL, &r.from.config };
    const int rc = tool_start(&tool, argc, argv, &conf);

    if (rc != 0)
        return rc < 0 ? TOOL_USAGE : AGENT_DONE;
    (void)log_level_parse(conf.runtime_log_level, &level);
    log_setup("weighbridge-agent", level);
    if (settings_read(&r.from, &r.settings, &e) < 0) {
        log_error(LOG_MSG("the configuration cannot be used"), LOG_S("error", e.msg));
        return TOOL_USAGE;
    }
    r.root_path = mem_strdup(r.settings->root);
    r.from.root = r.root_path;
    r.settings->root = r.root_path;
    if (begin(&r, &m) < 0)
        return agent_failed("cannot run", &m);
    run(&r);
    return AGENT_DONE;
}
