/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/child_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "http/http_json.h"
#include "tests/fake/json_of.h"

enum { START_MS = 30000, ARGS_MAX = 12, LINE_SIZE = 256, SKIPPED = 77 };

#define PYTHON "/usr/bin/python3"

static void run(const char *script, const char *const args[], int in, int out)
{
    char path[512];
    char *argv[ARGS_MAX] = { NULL };
    sigset_t none;
    size_t n = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)str_format(path, sizeof path, "%s/tests/fake/%s", TOP_SRCDIR, script);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
        _exit(126);
    argv[n++] = strdup(PYTHON);
    argv[n++] = strdup("-B"); /* leaves no compiled files behind */
    argv[n++] = strdup(path);
    for (size_t i = 0; args != NULL && args[i] != NULL && n < ARGS_MAX - 1; i++)
        argv[n++] = strdup(args[i]);
    execv(argv[0], argv);
    _exit(127);
}

/* The port that it prints once it listens. */
static int64_t read_port(int fd)
{
    char line[LINE_SIZE] = "";
    size_t used = 0;
    int64_t port = 0;
    cleanup_json json_object *o = NULL;
    struct err e = ERR_INIT;
    const int64_t deadline_ns = clock_deadline(START_MS);
    while (strchr(line, '\n') == NULL) {
        assert_int_equal(wait_fd(fd, POLLIN, deadline_ns), 1);
        ssize_t n = read(fd, line + used, sizeof line - 1 - used);
        assert_true(n > 0);
        used += (size_t)n;
    }
    assert_int_equal(jx_parse(line, used, sizeof line, &o, &e), 0);
    assert_true(jx_get_int(o, "port", &port));
    return port;
}

void child_server_open(struct child_server *s, const char *script, const char *const args[])
{
    int in[2] = { -1, -1 };
    int out[2] = { -1, -1 };
    const bool tls = args != NULL && args[0] != NULL && strcmp(args[0], "--tls") == 0;
    struct http_options options = {
        .timeout_ms = START_MS, .stop_fd = -1, .ca_file = tls ? args[1] : NULL
    };
    if (access(PYTHON, X_OK) != 0)
        exit(SKIPPED);
    (void)setenv("no_proxy", "*", 1); /* loopback, wherever the tests run */
    *s = (struct child_server){ .http = http_new(&options) };
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        run(script, args, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    s->in_fd = in[1];
    (void)str_format(s->url, sizeof s->url, "%s://127.0.0.1:%lld", tls ? "https" : "http",
        (long long)read_port(out[0]));
    close(out[0]);
}

void child_server_close(struct child_server *s)
{
    http_close(s->http);
    close(s->in_fd);
    assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
}

static json_object *ask(
    struct child_server *s, const char *method, const char *path, json_object *body)
{
    char url[128];
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    json_object *o = NULL;
    struct err e = ERR_INIT;
    assert_true(http_url(url, sizeof url, s->url, path));
    struct http_request r = { .method = method, .url = url };
    if (http_json(s->http, &r, body, &a, &o, &e) < 0 || a.status != 200)
        fail_msg("%s %s: %d %s %s", method, path, a.status, e.msg, a.body.data);
    return o;
}

void child_server_order(struct child_server *s, const char *order)
{
    cleanup_free char *text = mem_strdup(order);
    for (char *p = text; *p; p++) {
        if (*p == '\'')
            *p = '"';
    }
    cleanup_json json_object *body = json_of(text);
    json_object_put(ask(s, "POST", "_control", body));
}

json_object *child_server_state(struct child_server *s)
{
    return ask(s, "GET", "_state", NULL);
}

int64_t child_server_number(struct child_server *s, const char *name)
{
    int64_t n = 0;
    cleanup_json json_object *o = child_server_state(s);
    assert_true(jx_get_int(o, name, &n));
    return n;
}

/* Counts, and finds the last. */
static int look_through(json_object *o, const char *method, const char *path, json_object **last)
{
    json_object *requests = NULL;
    int found = 0;
    assert_true(json_object_object_get_ex(o, "requests", &requests));
    for (size_t i = 0; i < json_object_array_length(requests); i++) {
        json_object *r = json_object_array_get_idx(requests, i);
        const char *is_method = "";
        const char *is_path = "";
        (void)jx_get_str(r, "method", &is_method);
        (void)jx_get_str(r, "path", &is_path);
        if (strcmp(is_method, method) != 0 || !str_starts(is_path, path))
            continue;
        found++;
        *last = r;
    }
    return found;
}

int child_server_requests(struct child_server *s, const char *method, const char *path)
{
    json_object *last = NULL;
    cleanup_json json_object *o = child_server_state(s);
    return look_through(o, method, path, &last);
}

char *child_server_body(struct child_server *s, const char *method, const char *path)
{
    json_object *last = NULL;
    json_object *body = NULL;
    cleanup_json json_object *o = child_server_state(s);
    struct buf text = BUF_INIT(1 << 20);
    assert_true(look_through(o, method, path, &last) > 0);
    assert_true(json_object_object_get_ex(last, "body", &body));
    jx_print(body, &text);
    return buf_steal(&text);
}
