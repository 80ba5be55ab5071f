/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_internal.h"

int kv_subscribe(struct kv *kv, const char *channel, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    kv_drop(kv); /* subscribing anew begins on a connection that is known to live */
    return kv_command(kv, KV_ARGS(kv_text("SUBSCRIBE"), kv_text(channel)), &r, e);
}

/* Takes the payload of a message. False when the push is something else (a confirmation). */
static bool take_payload(const redisReply *r, char **out)
{
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3)
        return false;
    const redisReply *kind = r->element[0];
    const redisReply *payload = r->element[2];
    if (kind->type != REDIS_REPLY_STRING || strcmp(kind->str, "message") != 0 ||
        payload->type != REDIS_REPLY_STRING)
        return false;
    *out = mem_dup(payload->str, payload->len);
    return true;
}

/* Waits for the connection or the stop descriptor. 0 there is something to read; 1 deadline or stop. */
static int wait_push(const struct kv *kv, int stop_fd, int64_t deadline_ns, struct err *e)
{
    for (;;) {
        struct pollfd p[] = { { .fd = kv->context->fd, .events = POLLIN, .revents = 0 },
            { .fd = stop_fd, .events = POLLIN, .revents = 0 } };
        int n = poll(p, 2, clock_left_ms(deadline_ns));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_INTERNAL, "redis: poll");
        return p[1].revents != 0 || n == 0 ? 1 : 0;
    }
}

int kv_next_message(struct kv *kv, int stop_fd, int64_t deadline_ns, char **out, struct err *e)
{
    if (kv->context == NULL)
        return err_set(e, ERR_UNAVAILABLE, "redis: not subscribed");
    for (;;) {
        cleanup_reply redisReply *r = NULL;
        int rc = kv_buffered(kv, &r, e);
        if (rc < 0)
            return -1;
        if (rc == 1 && take_payload(r, out))
            return 0;
        if (rc == 1)
            continue;
        rc = wait_push(kv, stop_fd, deadline_ns, e);
        if (rc != 0)
            return rc;
        if (kv_read(kv, e) < 0)
            return -1;
    }
}
