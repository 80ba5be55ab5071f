/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/json_text.h"

#include <string.h>

#include "base/str.h"
#include "model/rfc3339.h"

#define REPLACEMENT "\xEF\xBF\xBD"

const char *json_text(const char *text, struct buf *room)
{
    size_t size = strlen(text);
    if (str_utf8_valid(text, size))
        return text;
    room->max = size * strlen(REPLACEMENT);
    for (size_t at = 0; at < size;) {
        size_t n = str_utf8_char(text + at, size - at);
        if (n > 0)
            buf_add(room, text + at, n);
        else
            buf_puts(room, REPLACEMENT);
        at += n > 0 ? n : 1;
    }
    return room->data;
}

void json_set_text(json_object *o, const char *key, const char *text)
{
    cleanup_buf struct buf room = BUF_INIT(0);
    jx_set_str(o, key, text ? json_text(text, &room) : NULL);
}

void json_set_time(json_object *o, const char *key, int64_t us)
{
    char text[RFC3339_SIZE];
    rfc3339_us(text, us);
    jx_set_str(o, key, text[0] ? text : NULL);
}
