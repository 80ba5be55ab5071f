/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_VALUE_JSON_H
#define WB_VALUE_JSON_H

/* Overlays as JSON objects, by a table of their fields. */
#include <stdbool.h>
#include <stddef.h>

#include "json/jx.h"

/* const char *, int64_t, double, bool, json_object * (not printed) */
enum value_kind { VALUE_TEXT, VALUE_NUMBER, VALUE_REAL, VALUE_BOOL, VALUE_RAW };

struct value_field {
    const char *name;
    enum value_kind kind;
    size_t offset;
};

#define VALUE_FIELD(struct_, name_, kind_, member_) \
    { \
        .name = (name_), .kind = (kind_), .offset = offsetof(struct_, member_) \
    }

/* Appends the fields in the table's order, without braces. Texts must be UTF-8, numbers finite. */
void value_print(const struct value_field *field, size_t n, const void *value, struct buf *out);

/* Fills the members that are in the object; those that it lacks stay, and what the table does not name is
 * left alone. Texts are borrowed from the object. False when one is of another type (null too);
 * ranges are the caller's to judge. */
bool value_read(json_object *json, const struct value_field *field, size_t n, void *value);

#endif
