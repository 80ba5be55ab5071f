/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an overlay value: either absent, or an entry whose print is JSON. */

#include "handlers/operation_json.h"
#include "json/jx.h"
#include "model/ops.h"
#include "store/staging.h"
#include "tests/fuzz/fuzz.h"

enum { PRINT_MAX = 1 << 17 }; /* a value's bytes grow six-fold at most, and a little */

/* Whatever comes from the value, the answer is one JSON text. */
static void check_print(const struct ops_list *list)
{
    cleanup_buf struct buf out = BUF_INIT(PRINT_MAX);
    operations_print(list, &out);
    assert(!out.overflow);
    cleanup_json json_object *top = NULL;
    int parsed = jx_parse(out.data, out.len, PRINT_MAX, &top, NULL);
    assert(parsed == 0);
    json_object *array = json_object_object_get(top, "operations");
    assert(json_object_array_length(array) == list->n);
}

static void check_merge(const struct overlay *o, const struct load_row *row, bool postgres_up)
{
    struct ops_input in = { .row = row,
        .rows = row ? 1 : 0,
        .overlay = o,
        .overlays = 1,
        .rows_now_us = 1,
        .postgres_up = postgres_up };
    cleanup_ops_list struct ops_list list = OPS_LIST_INIT;
    ops_merge(&in, &list);
    assert(list.n <= 1);
    assert(list.n == 0 || (list.entry[0].progress >= 0 && list.entry[0].progress <= 100));
    check_print(&list);
}

/* A report on top of a value that counts gives a value that counts. */
static void check_report(const struct overlay *old)
{
    struct overlay_scratch scratch;
    struct overlay out;
    struct report r = REPORT_INIT;
    r.claim = old->claim;
    r.session = old->session;
    r.bytes_sent = 1;
    enum report_fate fate = overlay_apply(old->key, old, &r, &scratch, &out);
    assert(fate == REPORT_APPLIED);
    assert(overlay_is_sane(&out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct load_row ROW = { .key = "k",
        .state = LOAD_STAGING,
        .owner = "",
        .node_id = "",
        .node_name = "",
        .created_us = 1,
        .updated_us = INT64_MAX,
        .last_error = "" };
    struct overlay o = { .key = "" };
    cleanup_json json_object *json = NULL;
    if (overlay_from_json("k", (const char *)data, size, &o, &json, NULL) < 0)
        return 0;
    if (!overlay_is_sane(&o))
        return 0;
    check_merge(&o, NULL, true);
    check_merge(&o, NULL, false);
    check_merge(&o, &ROW, true);
    check_report(&o);
    return 0;
}
