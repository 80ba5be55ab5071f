/* SPDX-License-Identifier: Apache-2.0 */
#include "store/gallery_row.h"

#include <string.h>

#include "base/mem.h"
#include "db/db_row.h"
#include "store/gallery_nodes.h"

enum col {
    COL_ELEMENT = GALLERY_COL_ID + 1,
    COL_CACHE_KEY,
    COL_OP_TYPE,
    COL_STATUS,
    COL_IS_BACKEND,
    COL_CANCELLABLE,
    COL_PROGRESS,
    COL_PHASE,
    COL_MESSAGE,
    COL_ERROR,
    COL_FILE,
    COL_CURRENT,
    COL_TOTAL,
    COL_CREATED,
    COL_UPDATED,
    COL_DISMISSED,
    COL_NODES,
    COL__COUNT
};

_Static_assert(COL__COUNT == (int)GALLERY_COL_NEXT, "GALLERY_COLUMNS and the mapper are one list");
_Static_assert(GALLERY_TEXT_KEPT == 4000, "the texts that GALLERY_COLUMNS cuts");

void gallery_rows_free(struct gallery_rows *r)
{
    for (size_t i = 0; i < r->n; i++)
        json_object_put(r->json[i]);
    free(r->json);
    free(r->row);
    db_rows_free(&r->rows);
    *r = (struct gallery_rows)GALLERY_ROWS_INIT;
}

/* Whatever lies in the column: true, and nodes if there are any; false when it makes no sense. */
static bool read_nodes(const char *text, struct gallery_op *op, json_object **json)
{
    cleanup_json json_object *array = NULL;
    const size_t size = strlen(text);
    if (size == 0)
        return true;
    if (jx_parse(text, size, size, &array, NULL) < 0 ||
        gallery_nodes_read(array, &op->node, &op->nodes, NULL) < 0)
        return false;
    *json = STEAL(array);
    return true;
}

/* A list that was read before, walked in step with the new one: both are in the order of ids. */
struct before {
    const struct gallery_rows *list; /* NULL: none */
    size_t at;
};

/* Takes the nodes of an operation over if their text is the same as before: parsing it costs a hundred
 * times as much, five times a second. */
static bool take_unchanged(
    struct before *before, const char *text, struct gallery_op *op, json_object **json)
{
    const struct gallery_rows *list = before->list;
    int order = -1;
    while (list != NULL && before->at < list->n &&
           (order = strcmp(list->row[before->at].op.id, op->id)) < 0)
        before->at++;
    if (order != 0 || list->json[before->at] == NULL ||
        strcmp(db_text(&list->rows, (int)before->at, COL_NODES), text) != 0)
        return false;
    op->node = list->row[before->at].op.node;
    op->nodes = list->row[before->at].op.nodes;
    *json = json_object_get(list->json[before->at]);
    return true;
}

static int read_numbers(const struct db_rows *rows, int i, struct gallery_row *r, struct err *e)
{
    if (db_bool(rows, i, COL_IS_BACKEND, &r->op.is_backend_op, e) < 0 ||
        db_bool(rows, i, COL_CANCELLABLE, &r->op.cancellable, e) < 0 ||
        db_float8(rows, i, COL_PROGRESS, &r->op.progress, e) < 0 ||
        db_int8(rows, i, COL_CURRENT, &r->op.current_bytes, e) < 0 ||
        db_int8(rows, i, COL_TOTAL, &r->op.total_bytes, e) < 0)
        return -1;
    if (db_int8(rows, i, COL_CREATED, &r->created_us, e) < 0 ||
        db_int8(rows, i, COL_UPDATED, &r->updated_us, e) < 0)
        return -1;
    return db_bool(rows, i, COL_DISMISSED, &r->dismissed, e);
}

static int read_row(const struct db_rows *rows, int i, struct gallery_row *out, struct err *e)
{
    struct gallery_row r = { .op = {
                                 .id = db_text(rows, i, GALLERY_COL_ID),
                                 .element_name = db_text(rows, i, COL_ELEMENT),
                                 .cache_key = db_text(rows, i, COL_CACHE_KEY),
                                 .op_type = db_text(rows, i, COL_OP_TYPE),
                                 .status = gallery_status_parse(db_text(rows, i, COL_STATUS)),
                                 .phase = db_text(rows, i, COL_PHASE),
                                 .message = db_text(rows, i, COL_MESSAGE),
                                 .error = db_text(rows, i, COL_ERROR),
                                 .file_name = db_text(rows, i, COL_FILE),
                             } };
    if (read_numbers(rows, i, &r, e) < 0)
        return err_wrap(e, "operation %s", r.op.id);
    *out = r;
    return 0;
}

static void hand_over(struct gallery_rows *from, struct gallery_rows *to)
{
    *to = *from;
    *from = (struct gallery_rows)GALLERY_ROWS_INIT;
}

int gallery_rows_take(struct db_rows *rows, const struct gallery_rows *before,
    struct gallery_rows *out, struct err *e)
{
    struct before walked = { .list = before, .at = 0 };
    cleanup_gallery_rows struct gallery_rows got = GALLERY_ROWS_INIT;
    const int count = db_rows_count(rows);
    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc((size_t)count + 1, sizeof(*got.row));
    got.json = mem_calloc((size_t)count + 1, sizeof(json_object *));
    for (int i = 0; i < count; i++) {
        struct gallery_row *r = &got.row[got.n];
        if (db_int8(&got.rows, i, GALLERY_COL_CLOCK, &got.now_us, e) < 0)
            return -1;
        if (db_is_null(&got.rows, i, GALLERY_COL_ID))
            continue;
        if (read_row(&got.rows, i, r, e) < 0)
            return -1;
        const char *nodes = db_text(&got.rows, i, COL_NODES);
        if (!take_unchanged(&walked, nodes, &r->op, &got.json[got.n]) &&
            !read_nodes(nodes, &r->op, &got.json[got.n]))
            got.malformed++;
        got.n++;
    }
    if (count > 0)
        db_saw_clock(got.now_us);
    hand_over(&got, out);
    return 0;
}
