/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JX_H
#define WB_JX_H

/* json-c, with its sharp edges covered. A json_object never crosses threads. Out of memory aborts.
 * Facts behind the rules: json-c's STRICT|VALIDATE_UTF8 still lets 'single quotes', NaN, duplicate
 * keys, lone surrogates and 1e400 through, and prints doubles with 17 digits and '/' escaped. */
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

static inline void jx_put_p(json_object **o)
{
    json_object_put(*o);
}
#define cleanup_json __attribute__((cleanup(jx_put_p)))

enum { JX_DEPTH_MAX = 16 };

/* Parses size bytes as one JSON value (RFC 8259, nothing after it but white space). ERR_INVALID for
 * anything else: single quotes, NaN, duplicate keys in one object, U+0000 in text or key, invalid
 * UTF-8, lone surrogates, numbers that are not finite, nesting over 16; ERR_TOO_LARGE when size >
 * max. The result is the caller's. */
int jx_parse(
    const char *text, size_t size, size_t max, json_object **out, struct err *e) WARN_UNUSED;

/* The same with another limit for the nesting: some foreign answers are deeper than anything of ours. */
int jx_parse_deep(const char *text, size_t size, size_t max, int depth_max, json_object **out,
    struct err *e) WARN_UNUSED;

/* Builders: set a member of an object, in the order of the calls. NULL text is JSON null. The key
 * must be a string literal or outlive the object (it is not copied). */
void jx_set_str(json_object *o, const char *key, const char *text);
void jx_set_int(json_object *o, const char *key, int64_t n);
void jx_set_bool(json_object *o, const char *key, bool b);
/* Shortest text that reads back the same (78.27, not 78.269999999999996). n must be finite. */
void jx_set_double(json_object *o, const char *key, double n);
void jx_set_null(json_object *o, const char *key);
void jx_set_some(json_object *o, const char *key, const char *text); /* nothing for NULL and "" */
/* Consumes child. */
void jx_set(json_object *o, const char *key, json_object *child);
json_object *jx_object(void);
json_object *jx_array(void);
void jx_add(json_object *array, json_object *child); /* consumes child */
void jx_add_str(json_object *array, const char *text);
void jx_add_int(json_object *array, int64_t n);

/* Appends the plain text of o (no spaces, '/' not escaped). */
void jx_print(json_object *o, struct buf *out);

/* The same in one spelling, whichever it came in: keys sorted by their bytes at every depth, whole numbers without a
 * fraction or an exponent. The caller's. */
json_object *jx_sorted(json_object *o);

/* A member of whatever type, borrowed: NULL when o is no object, has none of that name, or it is null. */
json_object *jx_get(json_object *o, const char *key);

/* Typed reads of a member: false when it is absent, null or of another type. Borrowed from o. */
bool jx_get_str(json_object *o, const char *key, const char **out);
bool jx_get_int(json_object *o, const char *key, int64_t *out); /* whole numbers, 1.0 and 1e3 too */
bool jx_get_double(json_object *o, const char *key, double *out);
bool jx_get_bool(json_object *o, const char *key, bool *out);

#endif
