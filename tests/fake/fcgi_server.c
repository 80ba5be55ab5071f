/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/fcgi_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include <openssl/evp.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/str.h"
#include "base/wait.h"
#include "fcgi/fcgi_set.h"
#include "tests/fake/metrics_memory.h"

/* What the child's handlers share. */
struct acts {
    pthread_barrier_t meeting;
    int entered_fd;
    int release_fd;
};

static const char HEAD[] = "Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n";

static void answer(struct fcgi_req *r, const char *body, size_t size)
{
    struct err e = ERR_INIT;
    if (fcgi_send(r, HEAD, sizeof HEAD - 1, body, size, &e) < 0 && e.code != ERR_UNAVAILABLE)
        abort();
}

static void answer_text(struct fcgi_req *r, const char *text)
{
    answer(r, text, strlen(text));
}

static void do_hash(struct fcgi_req *r)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    unsigned char digest[32];
    char hex[65];
    char text[128];
    size_t total = 0;
    ssize_t n = 0;
    char chunk[7001];
    (void)EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    while ((n = fcgi_read(r, chunk, sizeof chunk)) > 0) {
        total += (size_t)n;
        (void)EVP_DigestUpdate(md, chunk, (size_t)n);
    }
    (void)EVP_DigestFinal_ex(md, digest, NULL);
    EVP_MD_CTX_free(md);
    str_hex(hex, digest, sizeof digest);
    if (n < 0)
        (void)str_format(text, sizeof text, "cut %zu", total);
    else
        (void)str_format(text, sizeof text, "%zu %s", total, hex);
    answer_text(r, text);
}

static void do_size(struct fcgi_req *r)
{
    int64_t size = 0;
    if (str_to_i64(fcgi_env(r, "SIZE"), 0, 1 << 25, &size) < 0)
        abort();
    struct buf b = BUF_INIT(1 << 25);
    char *room = buf_room(&b, (size_t)size + 1);
    for (int64_t i = 0; i < size; i++)
        room[i] = (char)('a' + i % 23);
    answer(r, room, (size_t)size);
    buf_free(&b);
}

static void do_hold(struct fcgi_req *r, const struct acts *acts)
{
    char byte = 'h';
    if (write(acts->entered_fd, &byte, 1) != 1 || read(acts->release_fd, &byte, 1) != 1)
        abort();
    answer_text(r, "held");
}

static void do_empty(struct fcgi_req *r)
{
    struct err e = ERR_INIT;
    const char head[] = "Status: 304 Not Modified\r\n\r\n";
    if (fcgi_send(r, head, sizeof head - 1, NULL, 0, &e) < 0)
        abort();
}

static void handle(struct fcgi_req *r, void *ctx)
{
    struct acts *acts = ctx;
    const char *what = fcgi_env(r, "DO");
    what = what == NULL ? "hello" : what;
    if (strcmp(what, "hash") == 0) {
        do_hash(r);
    } else if (strcmp(what, "size") == 0) {
        do_size(r);
    } else if (strcmp(what, "ignore") == 0) {
        answer_text(r, "ignored");
    } else if (strcmp(what, "empty") == 0) {
        do_empty(r);
    } else if (strcmp(what, "env") == 0) {
        const char *value = fcgi_env(r, fcgi_env(r, "NAME"));
        answer_text(r, value == NULL ? "(none)" : value);
    } else if (strcmp(what, "meet") == 0) {
        fcgi_may_wait(r);
        (void)pthread_barrier_wait(&acts->meeting);
        answer_text(r, "met");
    } else if (strcmp(what, "hold") == 0) {
        fcgi_may_wait(r);
        do_hold(r, acts);
    } else if (strcmp(what, "mute") != 0) {
        answer_text(r, "hello");
    }
}

/* Leaves free descriptors for so many connections and for what the set opens: two epoll sets, three
 * eventfds and a signalfd, less the ready pipe, which it closes. */
static void limit_fds(int spare)
{
    if (spare <= 0)
        return;
    int fd = 0;
    for (int left = spare + 5; left > 0; fd++)
        left -= fcntl(fd, F_GETFD) < 0;
    const struct rlimit limit = { .rlim_cur = (rlim_t)fd, .rlim_max = (rlim_t)fd };
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void be_server(const struct server *s, const struct server_options *o, int ready_fd,
    int entered_fd, int release_fd)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    stop_block();
    int threads = o->threads > 0 ? o->threads : 2;
    struct acts acts = { .entered_fd = entered_fd, .release_fd = release_fd };
    (void)pthread_barrier_init(&acts.meeting, NULL, (unsigned)threads);
    const struct fcgi_set_options set = { .listen_fd = s->listen_fd,
        .threads = threads,
        .read_timeout_ms = o->read_timeout_ms > 0 ? o->read_timeout_ms : 60000,
        .drain_ms = o->drain_ms > 0 ? o->drain_ms : 60000,
        .max_conns = o->max_conns > 0 ? o->max_conns : 4096,
        .ready_fd = ready_fd,
        .handle = handle,
        .ctx = &acts,
        .handler_follows = true };
    struct err e = ERR_INIT;
    if (o->log_fd > 0)
        (void)dup2(o->log_fd, STDERR_FILENO);
    limit_fds(o->spare_fds);
    int rc = fcgi_set_run(&set, &e);
    if (rc < 0)
        (void)fprintf(stderr, "fcgi_set_run: %s\n", e.msg);
    (void)pthread_barrier_destroy(&acts.meeting);
    close(s->listen_fd);
    exit(rc < 0 ? 3 : 0);
}

static void share_metrics(void)
{
    void *shared = metrics_memory();
    assert_non_null(shared);
    metrics_attach(shared);
}

static void open_listener(struct server *s)
{
    (void)str_copy(s->dir, sizeof s->dir, "/tmp/wb-fcgi-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    assert_int_equal(str_format(s->path, sizeof s->path, "%s/socket", s->dir), 0);
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    (void)str_copy(at.sun_path, sizeof at.sun_path, s->path);
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listen_fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listen_fd, 1024), 0);
}

void server_start(struct server *s, const struct server_options *o)
{
    int ready[2];
    int entered[2];
    int release[2];
    open_listener(s);
    share_metrics();
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(entered), 0);
    assert_int_equal(pipe(release), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        close(ready[0]);
        be_server(s, o, ready[1], entered[1], release[0]);
    }
    close(ready[1]);
    close(entered[1]);
    close(release[0]);
    s->entered_fd = entered[0];
    s->release_fd = release[1];
    char byte = 0;
    assert_int_equal(wait_fd(ready[0], POLLIN, clock_deadline(CLIENT_GUARD_MS)), 1);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(read(ready[0], &byte, 1), 0); /* closed after */
    close(ready[0]);
}

void server_signal(const struct server *s, int sig)
{
    assert_int_equal(kill(s->pid, sig), 0);
}

int server_wait(struct server *s)
{
    int status = -1;
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
    int ended = wait_fd(pidfd, POLLIN, clock_deadline(CLIENT_GUARD_MS));
    if (ended != 1)
        (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, &status, 0);
    close(s->listen_fd);
    close(s->entered_fd);
    close(s->release_fd);
    (void)unlink(s->path);
    (void)rmdir(s->dir);
    if (ended != 1)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void server_stop(struct server *s)
{
    server_signal(s, SIGTERM);
    assert_int_equal(server_wait(s), 0);
}

static struct server for_test;

int server_setup(void **state)
{
    server_start(&for_test, &(struct server_options){ .threads = 2 });
    *state = &for_test;
    return 0;
}

int server_teardown(void **state)
{
    server_stop(*state);
    return 0;
}

void server_await(int metric, int64_t value)
{
    int64_t guard_ns = clock_deadline(CLIENT_GUARD_MS);
    while (metric_get((enum metric)metric) != value) {
        if (clock_mono_ns() > guard_ns)
            fail_msg("metric %d is %lld, not %lld", metric,
                (long long)metric_get((enum metric)metric), (long long)value);
        const struct timespec pause = { .tv_nsec = NS_PER_MS };
        (void)nanosleep(&pause, NULL); /* the pace of looking */
    }
}

int server_connect(const struct server *s)
{
    int fd = client_connect(s->path);
    assert_true(fd >= 0);
    return fd;
}

static void request_head(
    struct buf *b, const char *what, const char *name, const char *value, bool keep)
{
    struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
    client_pair(&pairs, "DO", what);
    if (name != NULL)
        client_pair(&pairs, name, value);
    client_begin(b, 1, 1, keep);
    client_params(b, 1, &pairs);
    buf_free(&pairs);
}

void server_request(struct buf *b, const char *what, const char *name, const char *value, bool keep)
{
    request_head(b, what, name, value, keep);
    client_body(b, 1, NULL, 0, CLIENT_RECORD_MAX, true);
}

void server_request_pairs(struct buf *b, const struct buf *pairs, bool keep)
{
    client_begin(b, 1, 1, keep);
    client_params(b, 1, pairs);
    client_body(b, 1, NULL, 0, CLIENT_RECORD_MAX, true);
}

void server_request_body(struct buf *b, const char *what, const void *data, size_t size, bool keep)
{
    request_head(b, what, NULL, NULL, keep);
    client_body(b, 1, data, size, 32768, true);
}

const char *reply_body(const struct client_reply *r)
{
    const char *body = r->out.data == NULL ? NULL : strstr(r->out.data, "\r\n\r\n");
    assert_non_null(body);
    return body + 4;
}

void server_expect_reply(int fd, const char *expected)
{
    cleanup_reply struct client_reply r = CLIENT_REPLY_INIT;
    assert_int_equal(client_receive(fd, &r), 0);
    assert_string_equal(reply_body(&r), expected);
    assert_true(r.ended);
    assert_false(r.misaligned);
    assert_int_equal(r.app_status, 0);
    assert_int_equal(r.protocol_status, 0);
}

void server_send(int fd, const struct buf *b)
{
    assert_int_equal(client_send(fd, b->data, b->len), 0);
}

void server_expect(int fd, const struct buf *b, const char *expected)
{
    server_send(fd, b);
    server_expect_reply(fd, expected);
}

void server_expect_alive(const struct server *s)
{
    cleanup_fd int fd = server_connect(s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", NULL, NULL, false);
    server_expect(fd, &b, "hello");
    assert_true(client_closed(fd));
}
