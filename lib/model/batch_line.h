/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BATCH_LINE_H
#define WB_BATCH_LINE_H

/* What a line of a batch's input must be. Batch contract, "Validation before running". Pure: lines/line.h takes the line
 * apart, and who reads the whole file sees to custom_id being there once. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BATCH_CUSTOM_ID_MAX = 512 /* bytes */ };

/* A line, taken apart. Texts are NULL where the line has none, or something that is no text. */
struct batch_line {
    const char *custom_id;
    const char *method;
    const char *url;
    const char *model;
    bool has_body;  /* an object */
    bool has_input; /* what batch_line_needs() says, of a type that it may have */
    bool streams;   /* asks for an answer in pieces */
};

/* An endpoint that lines may go to, and what their body must have. */
struct batch_endpoint {
    const char *path;    /* "/v1/chat/completions" */
    const char *needs;   /* "messages" */
    const char *needs_2; /* NULL: nothing more */
};
/* NULL: none of that path. Static storage. */
const struct batch_endpoint *batch_endpoint_find(const char *path);

struct batch_fault {
    const char *code;  /* "invalid_url"; static storage, as the others */
    const char *param; /* "url"; NULL: the line as a whole */
    const char *message;
};

/* 0, or -1 with *f, the first thing that is wrong. */
int batch_line_check(
    const struct batch_line *line, const struct batch_endpoint *endpoint, struct batch_fault *f);

/* What the file as a whole, or a line that is none, is told of. */
extern const struct batch_fault BATCH_FAULT_JSON;
extern const struct batch_fault BATCH_FAULT_LONG;
extern const struct batch_fault BATCH_FAULT_TWICE;
extern const struct batch_fault BATCH_FAULT_MODEL; /* no upstream has it */
extern const struct batch_fault BATCH_FAULT_EMPTY;
extern const struct batch_fault BATCH_FAULT_MANY;

#endif
