/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_LINE_H
#define WB_LINES_LINE_H

/* A line of a batch's input taken apart, and a line of its output put together, as OpenAI's batch API writes them. Any
 * thread. */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "json/jx.h"
#include "model/batch.h"
#include "model/batch_line.h"

enum { LINE_DEPTH_MAX = 64 /* of nesting: schemas of tools are deep */ };

struct line {
    struct batch_line is; /* borrowed from whole */
    json_object *whole;   /* owned */
    json_object *body;    /* borrowed from whole; NULL: none */
};
#define LINE_INIT \
    { \
        .whole = NULL, .body = NULL \
    }
void line_fini(struct line *l);
#define cleanup_line __attribute__((cleanup(line_fini)))

/* ERR_INVALID: no object of JSON. */
int line_read(const char *text, size_t size, const struct batch_endpoint *endpoint,
    struct line *out, struct err *e) WARN_UNUSED;

/* Whose result it is. */
struct line_of {
    const char *batch_id;
    int64_t number;
    const char *custom_id;
};

/* What a server answered. */
struct line_answer {
    int status;
    const char *request_id; /* "": none */
    const char *body;
    size_t size;
    json_object *parsed; /* the body, borrowed; NULL: it is no object */
    const char *secret;  /* that no result may tell; "": none */
};

/* Appends the line of an answer; also of one that is an error. */
void line_put_answer(struct buf *out, const struct line_of *of, const struct line_answer *a);

/* Appends the line of what never had an answer. */
void line_put_error(
    struct buf *out, const struct line_of *of, const char *code, const char *message);

/* Adds what the answer says it used, in the words of either API. */
void line_add_usage(struct batch_usage *u, json_object *answer);

#endif
