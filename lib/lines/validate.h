/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_VALIDATE_H
#define WB_LINES_VALIDATE_H

/* The input of a batch read through before any of it runs: batch contract, "Validation before running". One thread. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "json/jx.h"
#include "lines/segment.h"
#include "lines/upstream.h"
#include "model/batch_line.h"

enum { VALIDATE_FAULTS_MAX = 100 };

struct validate_options {
    int input;  /* the file */
    int folder; /* for files that are gone afterwards */
    const struct batch_endpoint *endpoint;
    const struct upstream *upstream;
    int64_t lines_max;
    size_t line_max;
    struct segment_tick tick; /* called now and then */
};

struct validated {
    int64_t lines;   /* that are not blank */
    int64_t numbers; /* the last line's number */
    size_t n;
    struct {
        int64_t line; /* 0: about the file */
        struct batch_fault fault;
    } fault[VALIDATE_FAULTS_MAX]; /* the first ones, in order */
};

/* 0: read to the end; no faults: the batch may run. Else what tick returned, or ERR_UNAVAILABLE, ERR_NO_ROOM. */
int validate(const struct validate_options *o, struct validated *out, struct err *e) WARN_UNUSED;

/* The faults as errors.data of the batch: an array of {code, message, param, line}. The caller's. */
json_object *validated_errors(const struct validated *v);

#endif
