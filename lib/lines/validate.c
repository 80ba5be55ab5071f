/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/validate.h"

#include <stdlib.h>
#include <string.h>

#include "lines/jsonl.h"
#include "lines/line.h"
#include "lines/unique.h"

enum { TICK_LINES = 1024 };

/* Keeps the first ones by line, however they come. */
static void put(struct validated *v, int64_t line, const struct batch_fault *fault)
{
    size_t at = v->n;

    while (at > 0 && v->fault[at - 1].line > line)
        at--;
    if (at == VALIDATE_FAULTS_MAX)
        return;
    const size_t behind = v->n < VALIDATE_FAULTS_MAX ? v->n - at : v->n - at - 1;
    memmove(&v->fault[at + 1], &v->fault[at], behind * sizeof v->fault[0]);
    v->fault[at].line = line;
    v->fault[at].fault = *fault;
    v->n += v->n < VALIDATE_FAULTS_MAX ? 1 : 0;
}

static int check_line(const struct validate_options *o, const struct jsonl_line *at,
    struct unique *unique, struct validated *v, struct err *e)
{
    cleanup_line struct line line = LINE_INIT;
    struct batch_fault fault;
    struct err ignored = ERR_INIT;

    if (at->text == NULL) {
        put(v, at->number, &BATCH_FAULT_LONG);
        return 0;
    }
    if (line_read(at->text, at->size, o->endpoint, &line, &ignored) < 0) {
        put(v, at->number, &BATCH_FAULT_JSON);
        return 0;
    }
    if (batch_line_check(&line.is, o->endpoint, &fault) < 0)
        put(v, at->number, &fault);
    else if (upstream_of(o->upstream, line.is.model) == NULL)
        put(v, at->number, &BATCH_FAULT_MODEL);
    return line.is.custom_id == NULL ? 0 : unique_add(unique, line.is.custom_id, at->number, e);
}

static void put_twice(void *ctx, int64_t number)
{
    put(ctx, number, &BATCH_FAULT_TWICE);
}

static int read_all(
    const struct validate_options *o, struct unique *unique, struct validated *v, struct err *e)
{
    cleanup_jsonl struct jsonl *lines = jsonl_open(o->input, o->line_max);
    struct jsonl_line at;

    for (;;) {
        const int end = jsonl_next(lines, &at, e);
        if (end != 0)
            return end < 0 ? -1 : 0;
        v->numbers = at.number;
        if (v->lines++ == o->lines_max) {
            put(v, 0, &BATCH_FAULT_MANY);
            return 0;
        }
        if (check_line(o, &at, unique, v, e) < 0)
            return -1;
        const int told = v->lines % TICK_LINES == 0 ? o->tick.fn(o->tick.ctx, e) : 0;
        if (told != 0)
            return told;
    }
}

int validate(const struct validate_options *o, struct validated *out, struct err *e)
{
    cleanup_unique struct unique *unique = NULL;

    *out = (struct validated){ .n = 0 };
    if (unique_open(o->folder, &unique, e) < 0)
        return -1;
    const int rc = read_all(o, unique, out, e);
    if (rc != 0)
        return rc;
    if (out->lines == 0)
        put(out, 0, &BATCH_FAULT_EMPTY);
    return unique_end(unique, put_twice, out, e);
}

json_object *validated_errors(const struct validated *v)
{
    json_object *data = jx_array();

    for (size_t i = 0; i < v->n; i++) {
        json_object *o = jx_object();
        jx_set_str(o, "code", v->fault[i].fault.code);
        jx_set_str(o, "message", v->fault[i].fault.message);
        jx_set_str(o, "param", v->fault[i].fault.param);
        if (v->fault[i].line > 0)
            jx_set_int(o, "line", v->fault[i].line);
        else
            jx_set_null(o, "line");
        jx_add(data, o);
    }
    return data;
}
