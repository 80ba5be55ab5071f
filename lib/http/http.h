/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HTTP_H
#define WB_HTTP_H

/* HTTP calls to APIs through libcurl: the one place that sets its policy. A struct http belongs to one
 * thread and keeps connections between calls. A call blocks until the answer is whole, its time is
 * over, or stop_fd becomes readable; the time holds for everything, looking up the host included.
 *
 * Policy: http and https only; no redirects (a 3xx is the answer); no signals; certificates verified
 * (by ca_file instead of the system's when given); connecting has a limit of its own; the body has a
 * maximum; no cookies, no .netrc, no user in the URL; Expect: 100-continue is never sent. Proxies are
 * those of the environment (https_proxy, no_proxy).
 *
 * Errors of a call (an answer of any status is no error): ERR_TIMEOUT, ERR_UNAVAILABLE (cannot
 * connect or resolve, TLS refused, connection broken, told to stop), ERR_TOO_LARGE (the answer),
 * ERR_INVALID (the URL or the secret cannot be sent), ERR_INTERNAL. The table is in http_map.c. Texts
 * name neither URL nor secret. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { HTTP_TIMEOUT_MS = 20000, HTTP_CONNECT_MS = 5000, HTTP_BODY_MAX = 4 << 20 };

struct http_options {
    const char *user_agent;  /* borrowed, as are all texts here; NULL: "weighbridge" */
    const char *ca_file;     /* PEM; NULL or "": the system's */
    const char *unix_socket; /* path to connect to whatever the URL's host is; NULL or "": none */
    int64_t timeout_ms;      /* of a call; 0: HTTP_TIMEOUT_MS */
    int64_t connect_ms;      /* of that; 0: HTTP_CONNECT_MS */
    int stop_fd;             /* readable: all calls end; -1: none */
    bool direct;             /* past the proxies of the environment */
};

struct http;
void http_close(struct http *h); /* NULL is fine */
struct http *http_new(const struct http_options *o) OWNED_BY(http_close);
static inline void http_close_p(struct http **h)
{
    http_close(*h);
}
#define cleanup_http __attribute__((cleanup(http_close_p)))

enum http_auth { HTTP_AUTH_NONE, HTTP_AUTH_BEARER, HTTP_AUTH_BASIC_USER, HTTP_AUTH_AWS };

/* Who signs with AWS Signature Version 4 (the secret is the secret access key). libcurl signs, and that of Debian 12
 * (7.88) does it right only for what these calls are: no query in the URL, since it does not sort it (curl issue 9717);
 * no header without a value and none whose name is the beginning of another's (curl pull request 14370). */
struct http_aws {
    const char *key_id;
    const char *session_token; /* "": none */
    const char *region;
    const char *service;
};

struct http_request {
    const char *method; /* "GET", "POST", "DELETE", ... */
    const char *url;
    enum http_auth auth;
    const struct http_aws *aws; /* of HTTP_AUTH_AWS */
    const char *accept;         /* NULL: application/json */
    const char *secret;         /* the token, or the user of Basic (whose password is empty) */
    const char *content_type;   /* of body; NULL: none */
    const char *header;         /* one more, with its value; NULL: none */
    const char *header_value;   /* may be a secret */
    const char *body;           /* may hold NULs; NULL: none */
    size_t body_size;
    int64_t timeout_ms; /* 0: that of the options */
    size_t body_max;    /* of the answer; 0: HTTP_BODY_MAX */
    bool once;          /* must not reach the server twice: always on a fresh connection, as
                           libcurl sends a request again when a kept one turns out dead */
};

/* How far a call came that has no answer. */
enum http_sent {
    HTTP_NOT_SENT, /* nothing of the request left: certainly not done */
    HTTP_SENT      /* it may have been done */
};

enum { HTTP_REQUEST_ID_SIZE = 80 };

struct http_answer {
    int status; /* 0: no answer */
    enum http_sent sent;
    bool stopped;           /* by stop_fd */
    int64_t retry_after_ms; /* Retry-After, seconds or date, at most an hour; 0: none */
    char request_id[HTTP_REQUEST_ID_SIZE]; /* x-request-id, printable; "" none */
    struct buf body;
};
#define HTTP_ANSWER_INIT \
    { \
        .status = 0, .sent = HTTP_NOT_SENT, .stopped = false, .retry_after_ms = 0, \
        .request_id = "", .body = BUF_INIT(HTTP_BODY_MAX) \
    }
void http_answer_fini(struct http_answer *a);
#define cleanup_http_answer __attribute__((cleanup(http_answer_fini)))

/* 0: there is an answer, of whatever status. -1: there is none; then *out tells how far it came. *out
 * may be used again. */
int http_call(struct http *h, const struct http_request *r, struct http_answer *out,
    struct err *e) WARN_UNUSED;

/* What a status means to a caller who may try again. */
enum http_class {
    HTTP_CLASS_OK,      /* 2xx */
    HTTP_CLASS_RETRY,   /* 408, 425, 429, 5xx: later */
    HTTP_CLASS_REFUSED, /* all others: never */
};
enum http_class http_classify(int status);

/* Base and path in one URL, with one '/' between; false when it does not fit. */
bool http_url(char *out, size_t size, const char *base, const char *path);

/* Appends text percent-encoded as one path segment or query value (RFC 3986 unreserved stay). */
void http_url_escape(struct buf *out, const char *text);

/* A foreign text made fit for logs and rows: whole UTF-8 without control characters, "***" in place of
 * the secret (NULL: none), cut at a whole character. */
void http_quote(char *out, size_t size, const char *text, const char *secret);

#endif
