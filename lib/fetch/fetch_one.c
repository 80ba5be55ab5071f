/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/fetch_one.h"

#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/wait.h"
#include "http/http.h"
#include "model/fetch_rules.h"

enum { ERROR_BODY = MISHAP_BODY_SIZE - 1 };

void fetch_lines_close(struct fetch_lines *l)
{
    for (size_t i = 0; i <= HTTP_PEER_FAR; i++) {
        http_get_close(l->line[i]);
        l->line[i] = NULL;
    }
}

struct http_get *fetch_line(struct fetch_lines *l, enum http_peer peer)
{
    if (l->line[peer] == NULL)
        l->line[peer] = http_get_new(&l->o);
    return l->line[peer];
}

/* What comes of a request while it runs. */
struct taking {
    const struct fetch_sink *sink; /* NULL: into whole */
    void *hand;
    struct buf *whole;
    struct shard_place at;
    int64_t total;
    const char *url;
    bool judged;   /* the head was looked at ... */
    bool accepted; /* ... and taken; else the body is an error's */
    struct mishap m;
    struct buf error_body;
};

static int on_head(void *ctx, const struct http_head *h)
{
    struct taking *t = ctx;
    const struct fetch_answer a = {
        .status = h->status,
        .content_range = h->content_range,
        .content_encoding = h->content_encoding,
        .rate_limit = h->rate_limit,
        .retry_after_ms = h->retry_after_ms,
        .url_expired = url_expired(t->url, clock_wall_us() / US_PER_S),
    };

    t->judged = true;
    t->accepted =
        (t->sink == NULL ? fetch_judge_whole(&a, &t->m)
                         : fetch_judge(&a, t->at.offset, t->at.size, t->total, &t->m)) == 0;
    /* an error says why; of an answer of the right kind that is wrong, not a byte is wanted */
    return t->accepted || h->status >= 300 ? 0 : -1;
}

static int on_data(void *ctx, const void *data, size_t size)
{
    struct taking *t = ctx;

    if (t->accepted && t->sink == NULL) {
        buf_add(t->whole, data, size);
        return t->whole->overflow ? mishap_set(&t->m, MISHAP_MANIFEST_MISMATCH,
                                        "more than %zu bytes", t->whole->max)
                                  : 0;
    }
    if (t->accepted)
        return t->sink->add(t->hand, data, size, &t->m);
    const size_t room = ERROR_BODY - t->error_body.len;
    buf_add(&t->error_body, data, size < room ? size : room);
    return t->error_body.len < ERROR_BODY ? 0 : -1;
}

static int mishap_of(enum http_get_end end, const struct err *e, struct mishap *m)
{
    static const enum mishap_reason REASONS[] = {
        [HTTP_GET_WHOLE] = MISHAP_NONE,
        [HTTP_GET_REFUSED] = MISHAP_RESET, /* not reached: who refused has said why */
        [HTTP_GET_CONNECT] = MISHAP_CONNECT,
        [HTTP_GET_RESET] = MISHAP_RESET,
        [HTTP_GET_SHORT] = MISHAP_SHORT_BODY,
        [HTTP_GET_NO_HEADER] = MISHAP_TIMEOUT,
        [HTTP_GET_SILENT] = MISHAP_STALL,
        [HTTP_GET_STOPPED] = MISHAP_STOPPED,
        [HTTP_GET_BAD_URL] = MISHAP_BAD_URL,
        [HTTP_GET_FAILED] = MISHAP_RESET,
    };
    return mishap_err(m, REASONS[end], e);
}

/* Asks, and says what came of it short of the sink's last word. */
static int ask(
    struct http_get *g, struct taking *t, const char *token, enum http_peer peer, struct mishap *m)
{
    struct err e = ERR_INIT;
    enum http_get_end end = HTTP_GET_WHOLE;
    const struct http_get_request r = { .url = t->url,
        .bearer = token,
        .first = t->at.offset,
        .size = t->at.size,
        .peer = peer,
        .head = on_head,
        .data = on_data,
        .ctx = t };
    const int rc = http_get(g, &r, &end, &e);

    if (t->m.reason != MISHAP_NONE) { /* said by the head or by the sink */
        *m = t->m;
        if (t->error_body.len > 0)
            http_quote(m->body, sizeof m->body, t->error_body.data, token);
        return -1;
    }
    return rc < 0 ? mishap_of(end, &e, m) : 0;
}

int fetch_one(struct fetch_lines *l, const struct fetch_options *o, void *hand,
    const struct fetch_next *flight, struct mishap *m)
{
    cleanup_buf struct buf url = BUF_INIT(SOURCE_URL_MAX);
    const char *token = NULL;
    enum http_peer peer = HTTP_PEER_ANY;
    const struct shard_place at = manifest_place(o->manifest, flight->shard);

    sources_url(o->sources, flight->source, at.file, &url, &token, &peer);
    if (url.overflow || url.len == 0)
        return mishap_set(m, MISHAP_BAD_URL, "a URL that is too long");
    if (o->sink->begin(hand, flight->shard, m) < 0)
        return -1;
    struct taking t = { .sink = o->sink,
        .hand = hand,
        .at = at,
        .total = o->manifest->file[at.file].size,
        .url = url.data,
        .m = MISHAP_INIT,
        .error_body = BUF_INIT(ERROR_BODY) };
    const int rc = ask(fetch_line(l, peer), &t, token, peer, m);
    buf_free(&t.error_body);
    if (rc < 0 || o->sink->end(hand, m) < 0)
        return mishap_wrap(m, sources_name(o->sources, flight->source));
    return 0;
}

static int whole_once(
    struct fetch_lines *l, const struct fetch_whole *w, struct buf *out, struct mishap *m)
{
    struct taking t = {
        .whole = out, .url = w->url, .m = MISHAP_INIT, .error_body = BUF_INIT(ERROR_BODY)
    };

    buf_clear(out);
    out->max = w->max;
    const int rc = ask(fetch_line(l, w->peer), &t, w->token, w->peer, m);
    buf_free(&t.error_body);
    return rc;
}

int fetch_whole(const struct fetch_whole *w, struct buf *out, struct mishap *m)
{
    struct fetch_lines l = { .line = { NULL }, .o = w->http };
    int rc = -1;

    for (int tries = 1;; tries++) {
        uint64_t random = 0;
        rc = whole_once(&l, w, out, m);
        if (rc == 0 || m->grade != MISHAP_RETRYABLE || m->reason == MISHAP_STOPPED ||
            tries == FETCH_TRIES)
            break;
        arc4random_buf(&random, sizeof random);
        const int64_t wait_ms = m->wait_ms > 0 ? m->wait_ms : backoff_ms(w->backoff, tries, random);
        if (wait_fd(w->http.stop_fd, POLLIN, clock_deadline(wait_ms)) == 1) {
            rc = mishap_set(m, MISHAP_STOPPED, "stopped");
            break;
        }
    }
    fetch_lines_close(&l);
    return rc;
}
