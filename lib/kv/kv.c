/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/kv.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "kv/kv_internal.h"

struct kv_arg kv_text(const char *text)
{
    return (struct kv_arg){ .data = text, .size = strlen(text) };
}

/* --- life ------------------------------------------------------------------------------------ */

struct kv *kv_new(const struct kv_options *o)
{
    struct kv *kv = mem_calloc(1, sizeof *kv);
    kv->timeout_ms = o->timeout_ms;
    kv->breaker = o->breaker;
    kv->in = mem_alloc(KV_READ_MAX);
    kv->name = mem_strdup(o->name == NULL ? "" : o->name);
    for (char *p = kv->name; *p != '\0'; p++)
        if (!isgraph((unsigned char)*p)) /* CLIENT SETNAME refuses the rest */
            *p = '_';
    if (str_empty(o->url))
        (void)err_set(&kv->no_url, ERR_UNAVAILABLE, "no redis is configured");
    else if (kv_url_parse(o->url, &kv->url, &kv->no_url) < 0)
        kv->no_url.code = ERR_UNAVAILABLE;
    return kv;
}

void kv_close(struct kv *kv)
{
    if (kv == NULL)
        return;
    kv_drop(kv);
    kv_url_free(&kv->url);
    free(kv->name);
    free(kv->argv);
    free(kv->argv_size);
    free(kv->in);
    free(kv);
}

void kv_set_deadline(struct kv *kv, int64_t deadline_ns)
{
    kv->set_deadline_ns = deadline_ns;
}

void kv_be_patient(struct kv *kv, int64_t until_ns)
{
    kv->patient_until_ns = until_ns;
}

void kv_drop(struct kv *kv)
{
    if (kv->context != NULL)
        redisFree(kv->context);
    kv->context = NULL;
    kv->due = 0;
}

/* --- commands -------------------------------------------------------------------------------- */

void kv_argv_clear(struct kv *kv)
{
    kv->argv_n = 0;
}

void kv_argv_add(struct kv *kv, struct kv_arg a)
{
    if (kv->argv_n == kv->argv_cap) {
        kv->argv_cap = kv->argv_cap == 0 ? 16 : kv->argv_cap * 2;
        kv->argv = mem_resize(kv->argv, kv->argv_cap, sizeof *kv->argv);
        kv->argv_size = mem_resize(kv->argv_size, kv->argv_cap, sizeof *kv->argv_size);
    }
    kv->argv[kv->argv_n] = a.data;
    kv->argv_size[kv->argv_n++] = a.size;
}

void kv_argv_add_all(struct kv *kv, struct kv_args a)
{
    for (size_t i = 0; i < a.n; i++)
        kv_argv_add(kv, a.arg[i]);
}

/* Puts the command into the output buffer of hiredis. */
static int push(struct kv *kv, struct err *e)
{
    if (redisAppendCommandArgv(kv->context, (int)kv->argv_n, kv->argv, kv->argv_size) == REDIS_OK)
        return 0;
    kv_drop(kv);
    return err_set(e, ERR_INTERNAL, "redis: cannot format a command");
}

/* --- errors ---------------------------------------------------------------------------------- */

/* The connection cannot be used any more: the error of its context. hiredis leaves errno as the
 * failed system call set it. */
static int lost(struct kv *kv, struct err *e)
{
    int number = errno;
    const redisContext *c = kv->context;
    kv->gone = c->err == REDIS_ERR_EOF ||
               (c->err == REDIS_ERR_IO && (number == EPIPE || number == ECONNRESET));
    enum err_code code = c->err == REDIS_ERR_PROTOCOL ? ERR_INTERNAL : ERR_UNAVAILABLE;
    (void)err_set(e, code, "redis: %s", c->errstr);
    kv_drop(kv);
    return -1;
}

static int timed_out(struct kv *kv, const char *what, struct err *e)
{
    kv->gone = false;
    kv_drop(kv);
    return err_set(e, ERR_TIMEOUT, "redis: %s by the deadline", what);
}

/* Tells the breaker, and the log when this is the moment it opens. Always -1. */
static int failed(struct kv *kv, const struct err *e)
{
    if (kv->breaker != NULL && breaker_failed(kv->breaker, clock_mono_ns())) {
        metric_add(METRIC_OUTAGES_REDIS, 1);
        log_warn(LOG_MSG("redis does not answer"), LOG_S("error", e->msg));
    }
    return -1;
}

static void answered(struct kv *kv)
{
    if (kv->breaker != NULL && breaker_ok(kv->breaker))
        log_info(LOG_MSG("redis is back"));
}

/* A reply came: for the breaker that is health, but while Redis loads its data or has lost its
 * master no command will be answered. */
static void settle(struct kv *kv, const redisReply *r)
{
    if (!kv_reply_says(r, "LOADING") && !kv_reply_says(r, "MASTERDOWN")) {
        answered(kv);
        return;
    }
    struct err e = ERR_INIT;
    (void)kv_refused(r, &e);
    (void)failed(kv, &e);
}

/* --- input and output ------------------------------------------------------------------------ */

static int flush(struct kv *kv, struct err *e)
{
    for (;;) {
        int done = 0;
        if (redisBufferWrite(kv->context, &done) != REDIS_OK)
            return lost(kv, e);
        if (done)
            return 0;
        if (wait_fd(kv->context->fd, POLLOUT, kv->deadline_ns) <= 0)
            return timed_out(kv, "does not read", e);
    }
}

int kv_buffered(struct kv *kv, redisReply **out, struct err *e)
{
    void *r = NULL;
    if (redisGetReplyFromReader(kv->context, &r) != REDIS_OK)
        return lost(kv, e);
    if (r == NULL)
        return 0;
    *out = r;
    return 1;
}

static int closed(struct kv *kv, ssize_t n, struct err *e)
{
    kv->gone = n == 0 || errno == EPIPE || errno == ECONNRESET;
    if (n == 0)
        (void)err_set(e, ERR_UNAVAILABLE, "redis: Server closed the connection");
    else
        (void)err_errno(e, ERR_UNAVAILABLE, "redis");
    kv_drop(kv);
    return -1;
}

/* Not redisBufferRead(), which takes 16 KiB at a time: most lists of overlays are a little larger. */
int kv_read(struct kv *kv, struct err *e)
{
    redisContext *c = kv->context;
    const ssize_t n = read(c->fd, kv->in, KV_READ_MAX);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return closed(kv, n, e);
    if (redisReaderFeed(c->reader, kv->in, (size_t)n) == REDIS_OK)
        return 0;
    kv_drop(kv);
    return err_set(e, ERR_INTERNAL, "redis: out of memory");
}

/* The next reply. */
static int pull(struct kv *kv, redisReply **out, struct err *e)
{
    for (;;) {
        int rc = kv_buffered(kv, out, e);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
        if (wait_fd(kv->context->fd, POLLIN, kv->deadline_ns) <= 0)
            return timed_out(kv, "no answer", e);
        if (kv_read(kv, e) < 0)
            return -1;
        if (kv->patient_until_ns != 0)
            kv->deadline_ns = clock_prolong(kv->deadline_ns, kv->timeout_ms, kv->patient_until_ns);
    }
}

/* --- connecting ------------------------------------------------------------------------------ */

static int open_socket(struct kv *kv, struct err *e)
{
    kv->context = kv->url.path != NULL ? redisConnectUnixNonBlock(kv->url.path)
                                       : redisConnectNonBlock(kv->url.host, (int)kv->url.port);
    if (kv->context == NULL)
        return err_set(e, ERR_INTERNAL, "redis: out of memory");
    if (kv->context->err != 0)
        return lost(kv, e);
    int fd = kv->context->fd;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        kv_drop(kv);
        return err_errno(e, ERR_INTERNAL, "redis: fcntl");
    }
    if (wait_fd(fd, POLLOUT, kv->deadline_ns) <= 0)
        return timed_out(kv, "cannot connect", e);
    int number = 0;
    socklen_t size = sizeof number;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size) < 0)
        number = errno;
    if (number != 0) {
        kv_drop(kv);
        errno = number;
        return err_errno(e, ERR_UNAVAILABLE, "redis: cannot connect");
    }
    if (kv->url.path == NULL) {
        int on = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    return 0;
}

enum greeting { GREET_AUTH, GREET_SELECT, GREET_NAME, GREET__COUNT };

static int greet(struct kv *kv, enum greeting g, struct err *e)
{
    char db[24];
    redisContext *c = kv->context;
    const char *argv[3] = { "AUTH", kv->url.password, NULL };
    int argc = 2;
    if (g == GREET_SELECT) {
        (void)str_format(db, sizeof db, "%lld", (long long)kv->url.db);
        argv[0] = "SELECT";
        argv[1] = db;
    } else if (g == GREET_NAME) {
        argv[0] = "CLIENT";
        argv[1] = "SETNAME";
        argv[2] = kv->name;
        argc = 3;
    }
    if (redisAppendCommandArgv(c, argc, argv, NULL) == REDIS_OK)
        return 0;
    kv_drop(kv);
    return err_set(e, ERR_INTERNAL, "redis: cannot format a command");
}

/* The answer to a greeting. Redis' text is not shown for AUTH: some servers quote what they were
 * sent. A name that is refused does not matter. */
static int greeted(struct kv *kv, enum greeting g, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    if (pull(kv, &r, e) < 0)
        return -1;
    if (r->type != REDIS_REPLY_ERROR)
        return 0;
    if (g == GREET_AUTH)
        (void)err_set(e, ERR_UNAVAILABLE, "redis refused the password");
    else if (kv_reply_says(r, "NOAUTH"))
        (void)err_set(e, ERR_UNAVAILABLE, "redis wants a password");
    else if (g == GREET_SELECT || str_starts(r->str, "ERR max number of clients"))
        (void)err_set(e, ERR_UNAVAILABLE, "redis: %s", r->str);
    else
        return 0;
    kv_drop(kv);
    return -1;
}

/* Connects and greets, by the deadline of the call. */
static int join(struct kv *kv, struct err *e)
{
    const bool wanted[GREET__COUNT] = { [GREET_AUTH] = kv->url.password != NULL,
        [GREET_SELECT] = kv->url.db != 0,
        [GREET_NAME] = kv->name[0] != '\0' };
    if (open_socket(kv, e) < 0)
        return -1;
    for (enum greeting g = GREET_AUTH; g < GREET__COUNT; g++)
        if (wanted[g] && greet(kv, g, e) < 0)
            return -1;
    if (flush(kv, e) < 0)
        return -1;
    for (enum greeting g = GREET_AUTH; g < GREET__COUNT; g++)
        if (wanted[g] && greeted(kv, g, e) < 0)
            return -1;
    return 0;
}

/* --- calls ----------------------------------------------------------------------------------- */

int kv_begin(struct kv *kv, struct err *e)
{
    if (kv->no_url.code != ERR_OK)
        return err_set(e, kv->no_url.code, "%s", kv->no_url.msg);
    int64_t now = clock_mono_ns();
    if (kv->breaker != NULL && !breaker_allows(kv->breaker, now))
        return err_set(e, ERR_UNAVAILABLE, "redis does not answer; it is asked again in a moment");
    if (kv->due > 0)
        kv_drop(kv);
    kv->deadline_ns =
        kv->set_deadline_ns != 0 ? kv->set_deadline_ns : now + kv->timeout_ms * NS_PER_MS;
    return 0;
}

/* One command on whatever connection there is. */
static int attempt(struct kv *kv, redisReply **out, struct err *e)
{
    if (kv->context == NULL && join(kv, e) < 0)
        return -1;
    if (push(kv, e) < 0 || flush(kv, e) < 0)
        return -1;
    return pull(kv, out, e);
}

int kv_round(struct kv *kv, redisReply **out, struct err *e)
{
    if (kv_begin(kv, e) < 0)
        return -1;
    struct err cause = ERR_INIT;
    bool was_idle = kv->context != NULL;
    kv->gone = false;
    int rc = attempt(kv, out, &cause);
    if (rc < 0 && was_idle && kv->gone)
        rc = attempt(kv, out, &cause);
    if (rc < 0) {
        (void)err_set(e, cause.code, "%s", cause.msg);
        return failed(kv, &cause);
    }
    settle(kv, *out);
    return 0;
}

int kv_command(struct kv *kv, struct kv_args a, redisReply **out, struct err *e)
{
    kv_argv_clear(kv);
    kv_argv_add_all(kv, a);
    cleanup_reply redisReply *r = NULL;
    if (kv_round(kv, &r, e) < 0)
        return -1;
    if (r->type == REDIS_REPLY_ERROR)
        return kv_refused(r, e);
    *out = STEAL(r);
    return 0;
}

/* True when the peer has closed an idle connection. A pipeline cannot be repeated once a part of it
 * was sent, so it looks before. */
static bool is_closed(const struct kv *kv)
{
    struct pollfd p = { .fd = kv->context->fd, .events = POLLIN, .revents = 0 };
    return poll(&p, 1, 0) != 0;
}

int kv_append(struct kv *kv, struct kv_args a, struct err *e)
{
    struct err cause = ERR_INIT;
    if (kv->due == 0) {
        if (kv_begin(kv, e) < 0)
            return -1;
        if (kv->context != NULL && is_closed(kv))
            kv_drop(kv);
        if (kv->context == NULL && join(kv, &cause) < 0) {
            (void)err_set(e, cause.code, "%s", cause.msg);
            return failed(kv, &cause);
        }
    }
    kv_argv_clear(kv);
    kv_argv_add_all(kv, a);
    if (push(kv, e) < 0)
        return -1;
    kv->due++;
    return 0;
}

int kv_take(struct kv *kv, redisReply **out, struct err *e)
{
    if (kv->due == 0)
        return err_set(e, ERR_INTERNAL, "redis: no reply is due");
    struct err cause = ERR_INIT;
    redisReply *r = NULL;
    if (flush(kv, &cause) < 0 || pull(kv, &r, &cause) < 0) {
        (void)err_set(e, cause.code, "%s", cause.msg);
        return failed(kv, &cause);
    }
    kv->due--;
    settle(kv, r);
    *out = r;
    return 0;
}
