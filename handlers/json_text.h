/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JSON_TEXT_H
#define WB_JSON_TEXT_H

/* What the stores hold as members of an answer. No stored value can make the answer invalid JSON: each
 * byte that is no part of UTF-8 is shown as U+FFFD. */
#include <stdint.h>

#include "base/buf.h"
#include "json/jx.h"

/* The text itself when it is UTF-8, else its repaired form, which room owns from then on. room is an
 * empty buffer of any maximum. */
const char *json_text(const char *text, struct buf *room);

/* Sets a text member. NULL is JSON null. */
void json_set_text(json_object *o, const char *key, const char *text);

/* Sets a time member: RFC 3339 in UTC with microseconds; null when unset (0). */
void json_set_time(json_object *o, const char *key, int64_t us);

#endif
