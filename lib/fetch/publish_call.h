/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PUBLISH_CALL_H
#define WB_PUBLISH_CALL_H

/* Calls of a publisher to the service, each tried again where that may help: for the files of this folder. */
#include "fetch/publish.h"
#include "fetch/service.h"

/* One thread's. */
struct publisher {
    const struct publish_options *options;
    struct service service;
    char version[256]; /* path of it: /api/v1/artifacts/A/versions/V */
};

/* ERR_INVALID: the URL is none. */
int publisher_begin(struct publisher *p, const struct publish_options *o, const struct manifest *m,
    struct err *e) WARN_UNUSED;
void publisher_end(struct publisher *p);

struct publisher_call {
    const char *method;
    const char *path; /* below version; "" for itself */
    const char *type; /* of the body; NULL: none */
    const void *body;
    size_t size;
};

/* 0 with the answer's JSON in *out, the caller's (NULL: it had none); otherwise the errors of publish(). */
int publisher_ask(struct publisher *p, const struct publisher_call *c, json_object **out,
    struct err *e) WARN_UNUSED;

#endif
