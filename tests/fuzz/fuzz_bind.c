/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a JSON text. What parses prints, and the print parses to the same; what binds is in range. */
#include "base/buf.h"
#include "base/str.h"
#include "json/jx_bind.h"
#include "tests/fuzz/fuzz.h"

enum { INPUT_MAX = 65536, PRINT_MAX = 1 << 20, OWNER_MAX = 8 };

struct body {
    const char *owner;
    int64_t index;
    double progress;
    int cancellable;
    json_object *nodes;
};

static const struct jx_field FIELDS[] = {
    JX_TEXT(struct body, owner, JX_REQUIRED, OWNER_MAX),
    JX_INT(struct body, index, 0, -5, INT64_MAX),
    JX_DOUBLE(struct body, progress, 0, 0, 100),
    JX_BOOL(struct body, cancellable, 0),
    JX_RAW(struct body, nodes, 0),
};

static void check_print(json_object *o)
{
    struct err e = ERR_INIT;
    cleanup_buf struct buf first = BUF_INIT(PRINT_MAX);
    cleanup_buf struct buf second = BUF_INIT(PRINT_MAX);
    cleanup_json json_object *again = NULL;
    jx_print(o, &first);
    assert(!first.overflow && str_utf8_valid(first.data, first.len));
    assert(jx_parse(first.data, first.len, PRINT_MAX, &again, &e) == 0);
    jx_print(again, &second);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
}

static void check_bind(json_object *o, enum jx_mode mode)
{
    struct err e = ERR_INIT;
    struct body b = { .owner = NULL, .index = 0, .progress = 0, .cancellable = -1, .nodes = NULL };
    if (jx_bind(o, FIELDS, sizeof(FIELDS) / sizeof(FIELDS[0]), mode, &b, &e) < 0) {
        assert(e.code == ERR_INVALID && e.msg[0] != '\0' && b.owner == NULL);
        return;
    }
    assert(b.owner != NULL && str_utf8_length(b.owner) <= OWNER_MAX);
    assert(b.index >= -5 && b.progress >= 0 && b.progress <= 100);
    assert(b.cancellable >= -1 && b.cancellable <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = ERR_INIT;
    cleanup_json json_object *o = NULL;
    if (jx_parse((const char *)data, size, INPUT_MAX, &o, &e) < 0) {
        assert(e.code == (size > INPUT_MAX ? ERR_TOO_LARGE : ERR_INVALID));
        return 0;
    }
    check_print(o);
    check_bind(o, JX_STRICT);
    check_bind(o, JX_LENIENT);
    return 0;
}
