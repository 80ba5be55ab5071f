/* SPDX-License-Identifier: Apache-2.0 */
/* Input: size of the room, name, newline, query string. What is decoded is whole UTF-8 that fits, and no
 * longer than what it was decoded from. */
#include "base/mem.h"
#include "base/str.h"
#include "web/request.h"
#include "tests/fuzz/fuzz.h"

static void check_text(const char *text, size_t room, size_t source)
{
    size_t n = strnlen(text, room);
    assert(n < room && n <= source && str_utf8_valid(text, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = ERR_INIT;
    if (size < 2)
        return 0;
    const size_t room = data[0];
    cleanup_free char *dst = mem_alloc(room == 0 ? 1 : room);
    cleanup_free char *name = mem_dup(data + 1, size - 1);
    char *query = strchr(name, '\n');
    if (query == NULL)
        return 0;
    *query++ = '\0';

    struct web_req req = { .query = query };
    if (web_query(&req, name, dst, room, &e) == 0)
        check_text(dst, room, strlen(query));
    for (int plus = 0; plus < 2; plus++) {
        if (percent_decode(query, strlen(query), plus != 0, dst, room, &e) == 0)
            check_text(dst, room, strlen(query));
    }
    if (percent_decode((const char *)data, size, true, dst, room, &e) == 0)
        check_text(dst, room, size);
    return 0;
}
