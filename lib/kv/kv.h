/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KV_H
#define WB_KV_H

/* Redis through hiredis: one connection, deadlines on everything, a breaker shared by the threads of
 * a process. A struct kv belongs to one thread. Commands are argument vectors, never format strings.
 * After any error the connection is dropped (hiredis contexts do not recover) and made anew by the
 * next call. Connecting is non-blocking and counts against the call's deadline; only the look-up of a
 * host name may block (use a numeric address or a unix socket). A connection that had been idle and
 * turns out closed is replaced within the same call, so a restart of Redis between two calls is not
 * an error. The log tells of an outage when the breaker opens, and of its end, once each. SIGPIPE must
 * be ignored (base/stop.h).
 *
 * Errors of every verb: ERR_UNAVAILABLE (no url, cannot connect, connection lost, breaker open,
 * Redis still loading, out of memory, read-only and the like: the text says what to do), ERR_TIMEOUT,
 * ERR_INTERNAL (another error reply, or a reply of the wrong type). Passwords never appear in texts. */
#include <hiredis/hiredis.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/breaker.h"
#include "base/err.h"

struct kv_arg {
    const char *data;
    size_t size;
};

struct kv_args {
    const struct kv_arg *arg;
    size_t n;
};

struct kv_arg kv_text(const char *text); /* borrowed */
#define KV_ARGS(...) \
    ((struct kv_args){ .arg = (const struct kv_arg[]){ __VA_ARGS__ }, \
        .n = sizeof((const struct kv_arg[]){ __VA_ARGS__ }) / sizeof(struct kv_arg) })

/* A Lua script: static storage, not const; sent by EVALSHA, by EVAL when Redis does not know it. The
 * fields after text are filled by the first use (any thread; idempotent). */
enum { KV_SHA_SIZE = 41 };
struct kv_script {
    const char *text;
    _Atomic int state;
    char sha[KV_SHA_SIZE];
};

struct kv_options {
    const char *url;    /* unix:/path | host:port | redis://[:password@]host:port[/db]; borrowed */
    const char *name;   /* CLIENT SETNAME; borrowed */
    int64_t timeout_ms; /* of a call, when no deadline was set */
    struct breaker *breaker; /* borrowed, may be NULL */
};

struct kv;
void kv_close(struct kv *kv); /* never blocks; NULL is fine */
struct kv *kv_new(const struct kv_options *o) OWNED_BY(kv_close);
static inline void kv_close_p(struct kv **kv)
{
    kv_close(*kv);
}
#define cleanup_kv __attribute__((cleanup(kv_close_p)))

static inline void kv_reply_free_p(redisReply **r)
{
    if (*r != NULL)
        freeReplyObject(*r);
}
#define cleanup_reply __attribute__((cleanup(kv_reply_free_p)))

/* The deadline (monotonic ns) for all calls until it is set again; 0: each call has timeout_ms. */
void kv_set_deadline(struct kv *kv, int64_t deadline_ns);

/* From now on answers that keep coming may take until then (0: no longer): each part of them moves the deadline on by
 * timeout_ms. A server that sends nothing for so long hangs; one that has much to say does not. */
void kv_be_patient(struct kv *kv, int64_t until_ns);

/* Checks a url without connecting: ERR_INVALID with what is wrong (never the password). */
int kv_url_check(const char *url, struct err *e) WARN_UNUSED;

/* One command, one reply, owned by the caller. A command must bear being run twice: see above. */
int kv_command(struct kv *kv, struct kv_args a, redisReply **out, struct err *e) WARN_UNUSED;

/* A script with keys first and arguments after. Its reply cannot be told from one that was lost when
 * the connection closed, so a script must bear being run twice. */
int kv_script_run(struct kv *kv, struct kv_script *s, struct kv_args keys, struct kv_args args,
    redisReply **out, struct err *e) WARN_UNUSED;

/* Several commands in one round trip: append each, then take one reply for each, in order. Error
 * replies to single commands are handed out as replies of type REDIS_REPLY_ERROR here. All of them
 * share one deadline, that of the first kv_append(). Replies that are not taken cost the connection. */
int kv_append(struct kv *kv, struct kv_args a, struct err *e) WARN_UNUSED;
int kv_take(struct kv *kv, redisReply **out, struct err *e) WARN_UNUSED;

/* An error reply as an error, as kv_command() has it. Always -1. */
int kv_refused(const redisReply *r, struct err *e);

/* Subscription, on a kv that does nothing else. kv_next_message() waits until the deadline: 0 with
 * *out a message payload (owned by the caller), 1 when none came. It takes notice of stop_fd (-1:
 * none) becoming readable: then 1 at once. After -1 subscribe again; what was published meanwhile is
 * lost. A lost subscription does not open the breaker: Redis closes slow subscribers while well. */
int kv_subscribe(struct kv *kv, const char *channel, struct err *e) WARN_UNUSED;
int kv_next_message(
    struct kv *kv, int stop_fd, int64_t deadline_ns, char **out, struct err *e) WARN_UNUSED;

#endif
