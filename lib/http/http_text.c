/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <curl/curl.h>
#include <string.h>

#include "base/str.h"
#include "http/http.h"

bool http_url(char *out, size_t size, const char *base, const char *path)
{
    size_t end = strlen(base);
    while (end > 0 && base[end - 1] == '/')
        end--;
    return str_format(out, size, "%.*s/%s", (int)end, base, path + strspn(path, "/")) == 0;
}

void http_url_escape(struct buf *out, const char *text)
{
    char *escaped = curl_easy_escape(NULL, text, 0);
    if (escaped == NULL)
        abort();
    buf_puts(out, escaped);
    curl_free(escaped);
}

/* U+0080 to U+009F are control characters too. */
static bool is_plain(const char *text, size_t size)
{
    const unsigned char *u = (const unsigned char *)text;
    return size == 1 ? !iscntrl(u[0]) : size > 0 && !(u[0] == 0xC2 && u[1] < 0xA0);
}

void http_quote(char *out, size_t size, const char *text, const char *secret)
{
    const size_t secret_size = secret == NULL ? 0 : strlen(secret);
    const char *end = text + strlen(text);
    size_t used = 0;
    for (const char *p = text; p < end;) {
        const bool hide = secret_size > 0 && strncmp(p, secret, secret_size) == 0;
        size_t n = hide ? secret_size : str_utf8_char(p, (size_t)(end - p));
        const char *shown = hide ? "***" : is_plain(p, n) ? p : "?";
        const size_t shown_size = hide ? 3 : shown == p ? n : 1;
        if (used + shown_size >= size)
            break;
        memcpy(out + used, shown, shown_size);
        used += shown_size;
        p += n > 0 ? n : 1;
    }
    out[used] = '\0';
}
