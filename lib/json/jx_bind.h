/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JX_BIND_H
#define WB_JX_BIND_H

/* Binding an object to a struct by a table of fields, and so the validation of every request body.
 *
 *     static const struct jx_field FIELDS[] = {
 *         JX_TEXT(struct claim_body, owner, JX_REQUIRED, 64),
 *         JX_INT(struct claim_body, replica_index, 0, 0, INT32_MAX),
 *     };
 *
 * Text members are `const char *`, borrowed from the object; integers int64_t; doubles double;
 * booleans `int` with -1 for missing. What is missing (or null) leaves the member as the caller
 * initialised it. Unknown keys are ERR_INVALID unless JX_LENIENT. Errors name the field. */
#include <stddef.h>
#include <stdint.h>

#include "json/jx.h"

enum jx_type { JX_T_TEXT, JX_T_INT, JX_T_DOUBLE, JX_T_BOOL, JX_T_RAW };

enum { JX_REQUIRED = 1 };

struct jx_field {
    const char *name;
    enum jx_type type;
    unsigned flags;
    size_t offset;
    int64_t min; /* INT and DOUBLE */
    int64_t max; /* INT and DOUBLE: largest value; TEXT: most characters (as varchar counts) */
};

#define JX_TEXT(s, m, fl, most) \
    { \
        .name = #m, .type = JX_T_TEXT, .flags = (fl), .offset = offsetof(s, m), .min = 0, \
        .max = (most) \
    }
#define JX_INT(s, m, fl, lo, hi) \
    { \
        .name = #m, .type = JX_T_INT, .flags = (fl), .offset = offsetof(s, m), .min = (lo), \
        .max = (hi) \
    }
#define JX_DOUBLE(s, m, fl, lo, hi) \
    { \
        .name = #m, .type = JX_T_DOUBLE, .flags = (fl), .offset = offsetof(s, m), .min = (lo), \
        .max = (hi) \
    }
#define JX_BOOL(s, m, fl) \
    { \
        .name = #m, .type = JX_T_BOOL, .flags = (fl), .offset = offsetof(s, m), .min = 0, .max = 1 \
    }
/* The json_object itself, borrowed: for nested values. */
#define JX_RAW(s, m, fl) \
    { \
        .name = #m, .type = JX_T_RAW, .flags = (fl), .offset = offsetof(s, m), .min = 0, .max = 0 \
    }

enum jx_mode { JX_STRICT, JX_LENIENT };

/* 0, or -1 with ERR_INVALID naming the field ("total_bytes: must be a whole number from 0 to ...").
 * o must be an object, else ERR_INVALID. On failure *target is untouched. */
int jx_bind(json_object *o, const struct jx_field *fields, size_t n, enum jx_mode mode,
    void *target, struct err *e) WARN_UNUSED;

#endif
