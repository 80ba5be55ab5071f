/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/publish_call.h"

#include <poll.h>
#include <stdlib.h>

#include "base/str.h"

/* A body has this long, and a second more for each so many bytes. */
enum { CALL_MS = 60000, SLOWEST_BYTES_PER_MS = 128, PATH_SIZE = 512 };

int publisher_begin(
    struct publisher *p, const struct publish_options *o, const struct manifest *m, struct err *e)
{
    *p = (struct publisher){ .options = o };
    if (!str_starts(o->url, "https://") && !str_starts(o->url, "http://"))
        return err_set(e, ERR_INVALID, "the URL: https://HOST");
    (void)str_format(
        p->version, sizeof p->version, "/api/v1/artifacts/%s/versions/%s", m->artifact, m->version);
    p->service = (struct service){
        .http = http_new(&(struct http_options){ .ca_file = o->ca_file, .stop_fd = -1 }),
        .url = o->url,
        .token = o->token,
    };
    return 0;
}

void publisher_end(struct publisher *p)
{
    http_close(p->service.http);
    p->service.http = NULL;
}

int publisher_ask(
    struct publisher *p, const struct publisher_call *c, json_object **out, struct err *e)
{
    char path[PATH_SIZE];
    const struct service_call call = { .method = c->method,
        .path = path,
        .type = c->type,
        .body = c->body,
        .size = c->size,
        .timeout_ms = CALL_MS + (int64_t)(c->size / SLOWEST_BYTES_PER_MS) };

    if (str_format(path, sizeof path, "%s%s", p->version, c->path) < 0)
        return err_set(e, ERR_INVALID, "the URL: too long");
    for (int i = 1;; i++) {
        uint64_t random = 0;
        struct service_said said;
        struct err why = ERR_INIT;
        const int rc = service_ask(&p->service, &call, &said, out, &why);
        if (rc == 0)
            return 0;
        if (rc < 0 || i >= p->options->tries) {
            *e = why;
            return -1;
        }
        arc4random_buf(&random, sizeof random);
        const int64_t back_ms = backoff_ms(p->options->backoff, i, random);
        (void)poll(NULL, 0, (int)(said.wait_ms > back_ms ? said.wait_ms : back_ms));
    }
}
