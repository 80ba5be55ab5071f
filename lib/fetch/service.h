/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SERVICE_H
#define WB_SERVICE_H

/* Calls to our own service behind its web server, as publishers and nodes make them: what to call, and whether what came of it may be tried
 * again. Artifacts contract section 3. */
#include "http/http_json.h"

/* Of one thread; texts are borrowed. */
struct service {
    struct http *http;
    const char *url;   /* "https://host/prefix" */
    const char *token; /* NULL or "": none */
};

/* May a token be sent there? https, or http to localhost, 127.0.0.1 or [::1] by that name. ERR_INVALID. */
int service_url_check(const char *url, struct err *e) WARN_UNUSED;

struct service_call {
    const char *method;
    const char *path; /* below the url, "/api/v1/..." */
    const char *type; /* of the body; NULL: none */
    const void *body;
    size_t size;
    int64_t timeout_ms;
    bool once; /* never twice by a kept connection that turns out dead */
};

/* What came of a call, whatever its result. */
struct service_said {
    int status;      /* 0: no answer */
    int64_t wait_ms; /* what the server asks for; 0: nothing */
    bool stopped;    /* by the stop_fd of http */
    bool
        may_be_done; /* there is no answer, or one of somebody on the way (5xx): it may have been received */
};

/* 0 with the answer's JSON in *out, the caller's (NULL: it had none); 1 with *e: it may be tried again; -1: refused, or it cannot be sent.
 * ERR_INVALID (400, 422), ERR_UNAUTHENTICATED, ERR_FORBIDDEN, ERR_NOT_FOUND, ERR_CONFLICT, ERR_TOO_LARGE as the service says; ERR_UNAVAILABLE,
 * ERR_TIMEOUT: no answer, or one that says later; ERR_INTERNAL: the answer makes no sense. Texts hold no secret. */
int service_ask(struct service *s, const struct service_call *c, struct service_said *said,
    json_object **out, struct err *e) WARN_UNUSED;

#endif
