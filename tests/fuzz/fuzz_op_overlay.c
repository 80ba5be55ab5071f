/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the overlay value of a gallery operation: either absent, or an entry whose print is JSON and
 * reads back the same. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "handlers/operation_json.h"
#include "json/jx.h"
#include "model/ops.h"
#include "store/op_overlay.h"

/* A value's bytes grow six-fold at most, and a little; a small node gets all its names. */
enum { PRINT_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_merge(const struct gallery_overlay *o, const struct gallery_row *row)
{
    const struct ops_input in = { .gallery_row = row,
        .gallery_rows = row ? 1 : 0,
        .gallery_overlay = o,
        .gallery_overlays = 1,
        .rows_now_us = 2,
        .postgres_up = true };
    cleanup_ops_list struct ops_list list = OPS_LIST_INIT;
    ops_merge(&in, &list);
    assert(list.n == 1);
    assert(list.entry[0].progress >= 0 && list.entry[0].progress <= 100);
    cleanup_buf struct buf out = BUF_INIT(PRINT_MAX);
    operations_print(&list, &out);
    assert(!out.overflow);
    cleanup_json json_object *top = NULL;
    int parsed = jx_parse(out.data, out.len, PRINT_MAX, &top, NULL);
    assert(parsed == 0);
}

/* What is stored again is the same. */
static void check_print(const struct gallery_overlay *o)
{
    struct gallery_overlay again = { .stamp_us = -1 };
    cleanup_json json_object *json = NULL;
    cleanup_buf struct buf first = BUF_INIT(PRINT_MAX);
    cleanup_buf struct buf second = BUF_INIT(PRINT_MAX);
    op_overlay_print(o, &first);
    if (first.len > OP_VALUE_MAX)
        return; /* op_overlay_report() refuses it */
    int rc = op_overlay_from_json("k", first.data, first.len, &again, &json, NULL);
    assert(rc == 0);
    op_overlay_print(&again, &second);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct gallery_row ROW = { .op = { .id = "k",
                                                .element_name = "e",
                                                .cache_key = "node:n:b@c",
                                                .op_type = "model_delete",
                                                .status = GALLERY_PENDING,
                                                .progress = 50,
                                                .phase = "",
                                                .message = "",
                                                .error = "",
                                                .file_name = "" },
        .created_us = 1,
        .updated_us = 2 };
    struct gallery_overlay o = { .stamp_us = 0 };
    cleanup_json json_object *json = NULL;
    if (op_overlay_from_json("k", (const char *)data, size, &o, &json, NULL) < 0)
        return 0;
    assert(gallery_overlay_is_sane(&o));
    check_merge(&o, NULL);
    check_merge(&o, &ROW);
    check_print(&o);
    return 0;
}
