/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/json_text.h"

#include <string.h>

#include "base/str.h"
#include "model/rfc3339.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* Bytes of the character that starts here; 0 when none does. */
static size_t character_size(const char *text, size_t left)
{
    for (size_t size = 1; size <= 4 && size <= left; size++) {
        if (str_utf8_valid(text, size))
            return size;
    }
    return 0;
}

static void add_repaired(struct buf *out, const char *text, size_t size)
{
    while (size > 0) {
        size_t n = character_size(text, size);
        if (n > 0)
            buf_add(out, text, n);
        else
            buf_puts(out, REPLACEMENT);
        text += n > 0 ? n : 1;
        size -= n > 0 ? n : 1;
    }
}

void json_set_text(json_object *o, const char *key, const char *text)
{
    size_t size = text ? strlen(text) : 0;
    if (size == 0 || str_utf8_valid(text, size)) {
        jx_set_str(o, key, text);
        return;
    }
    cleanup_buf struct buf repaired = BUF_INIT(3 * size);
    add_repaired(&repaired, text, size);
    jx_set_str(o, key, repaired.data);
}

void json_set_time(json_object *o, const char *key, int64_t us)
{
    char text[RFC3339_SIZE];
    rfc3339_us(text, us);
    jx_set_str(o, key, text[0] ? text : NULL);
}
