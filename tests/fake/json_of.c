/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/json_of.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "json/jx.h"

enum { TEXT_MAX = 1 << 20 };

json_object *json_of(const char *text)
{
    json_object *o = NULL;
    struct err e = ERR_INIT;
    if (jx_parse(text, strlen(text), TEXT_MAX, &o, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    return o;
}

void json_is(json_object *o, const char *text)
{
    cleanup_buf struct buf b = BUF_INIT(TEXT_MAX);
    jx_print(o, &b);
    assert_string_equal(b.data, text);
}
