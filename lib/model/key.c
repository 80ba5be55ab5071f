/* SPDX-License-Identifier: Apache-2.0 */
#include "model/key.h"

#include <string.h>

#include "base/str.h"

/* U+0000..U+001F, U+007F, and U+0080..U+009F, which UTF-8 writes as C2 80..C2 9F. */
static bool has_control(const char *key)
{
    for (const unsigned char *p = (const unsigned char *)key; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            return true;
        if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            return true;
    }
    return false;
}

static bool has_dot_segment(const char *key)
{
    for (const char *s = key;; s++) {
        size_t size = strcspn(s, "/");
        if ((size == 1 && s[0] == '.') || (size == 2 && s[0] == '.' && s[1] == '.'))
            return true;
        s += size;
        if (!*s)
            return false;
    }
}

int key_check_named(const char *name, const char *key, struct err *e)
{
    size_t size = strnlen(key, KEY_MAX_BYTES + 1);
    if (size == 0)
        return err_set(e, ERR_INVALID, "%s: must not be empty", name);
    if (size > KEY_MAX_BYTES)
        return err_set(e, ERR_INVALID, "%s: longer than %d bytes", name, KEY_MAX_BYTES);
    if (!str_utf8_valid(key, size))
        return err_set(e, ERR_INVALID, "%s: not valid UTF-8", name);
    if (has_control(key))
        return err_set(e, ERR_INVALID, "%s: holds a control character", name);
    if (has_dot_segment(key))
        return err_set(e, ERR_INVALID, "%s: holds a dot segment", name);
    return 0;
}

int key_check(const char *key, struct err *e)
{
    return key_check_named("key", key, e);
}
