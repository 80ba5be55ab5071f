/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JSON_TEXT_H
#define WB_JSON_TEXT_H

/* Members made of what the stores hold. */
#include <stdint.h>

#include "json/jx.h"

/* Sets a text member. Bytes that are not UTF-8 become U+FFFD each, so that no stored value can make
 * the answer invalid JSON. NULL is JSON null. */
void json_set_text(json_object *o, const char *key, const char *text);

/* Sets a time member: RFC 3339 in UTC with microseconds; null when unset (0). */
void json_set_time(json_object *o, const char *key, int64_t us);

#endif
