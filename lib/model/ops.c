/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ops.h"

#include <string.h>

#include "base/mem.h"

#define STAGING_PREFIX "staging:"

void ops_list_free(struct ops_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->entry[i].id);
    free(l->entry);
    free(l->behind);
    *l = (struct ops_list)OPS_LIST_INIT;
}

/* There is nothing to tell of the copy of this row any more. */
static bool has_ended(const struct load_row *row)
{
    return row->state == LOAD_LOADING || row->state == LOAD_FAILED;
}

/* Whatever an overlay says beside a row whose copy has ended is a leftover. But once a failed row counts as gone, what is
 * reported from then on, and not by its owner, is of another copy. */
static bool is_leftover(const struct load_row *row, const struct overlay *o, int64_t now_us)
{
    if (row->state != LOAD_FAILED || !load_failed_is_gone(row, now_us))
        return true;
    if (o->claim[0] != '\0' && strcmp(o->claim, row->claim) == 0)
        return true;
    return o->stamp_us > 0 && o->stamp_us <= load_liveness_us(row, now_us) + LOAD_FAILED_KEEP_US;
}

/* A dead owner's or a late overlay must not count. While Postgres is down its rows cannot change, but
 * a load may have been claimed just before: an overlay without a row may then count. */
static bool has_right_claim(
    const struct load_row *row, const struct overlay *o, const struct ops_input *in)
{
    if (o->claim[0] == '\0')
        return true;
    return row ? strcmp(row->claim, o->claim) == 0 : !in->postgres_up;
}

static int whole_percent(double progress)
{
    if (!(progress > 0.0)) /* NaN too */
        return 0;
    return progress < 100.0 ? (int)progress : 100;
}

/* A row holds whatever somebody wrote there. */
static int64_t sane_bytes(int64_t bytes)
{
    if (bytes < 0)
        return 0;
    return bytes < OVERLAY_NUMBER_MAX ? bytes : OVERLAY_NUMBER_MAX;
}

/* The row was written after the overlay, and it is further. */
static bool row_supplies_progress(const struct load_row *row, const struct overlay *o)
{
    if (o->stamp_us <= 0 || row->updated_us <= o->stamp_us)
        return false;
    const struct load_numbers n = load_row_numbers(row);
    return load_is_further(&n, o->file_index, o->progress);
}

static void lay_row(const struct load_row *row, struct op_entry *out)
{
    out->node_id = row->node_id;
    out->node_name = row->node_name;
    out->phase = load_state_name(LOAD_STAGING);
    out->current_bytes = sane_bytes(row->bytes_sent);
    out->total_bytes = sane_bytes(row->total_bytes);
    out->progress = whole_percent(
        load_progress(row->bytes_sent, row->total_bytes, row->file_index, row->total_files));
}

static void lay_overlay(const struct load_row *row, const struct overlay *o, struct op_entry *out)
{
    out->message = o->message;
    if (!row || o->node_name[0])
        out->node_name = o->node_name;
    if (row && row_supplies_progress(row, o))
        return;
    out->current_bytes = o->bytes_sent;
    out->total_bytes = o->total_bytes;
    out->progress = whole_percent(o->progress);
}

static void add_staging(
    const char *key, const struct load_row *row, const struct overlay *o, struct ops_list *out)
{
    size_t size = sizeof(STAGING_PREFIX) + strlen(key);
    char *id = mem_alloc(size);
    memcpy(id, STAGING_PREFIX, sizeof(STAGING_PREFIX) - 1);
    memcpy(id + sizeof(STAGING_PREFIX) - 1, key, size - sizeof(STAGING_PREFIX) + 1);

    struct op_entry *e = &out->entry[out->n++];
    *e = (struct op_entry){ .id = mem_kept(id),
        .job_id = id,
        .name = key,
        .full_name = key,
        .task = OP_TASK_STAGING,
        .message = "" };
    if (row)
        lay_row(row, e);
    if (o)
        lay_overlay(row, o, e);
}

/* What one key of a copy shows. */
static void merge_staging(
    const void *row_, const void *overlay_, const struct ops_input *in, struct ops_list *out)
{
    const struct load_row *row = row_;
    const struct overlay *o = overlay_;
    if (row && has_ended(row)) {
        if (!o || is_leftover(row, o, in->rows_now_us))
            return;
        row = NULL;
    }
    if (o && !has_right_claim(row, o, in)) {
        out->fenced++;
        o = NULL;
    }
    bool staging = row && row->state == LOAD_STAGING;
    if (o)
        add_staging(o->key, staging ? row : NULL, o, out);
    else if (staging && !load_is_stale(row, in->rows_now_us))
        add_staging(row->key, row, NULL, out);
}

/* --- gallery operations --- */

/* Lays what the overlay knows over what the row says. The newer of the two speaks; but that the row is
 * the newer must not take progress back. */
static void lay_op_overlay(const struct gallery_row *row, const struct gallery_overlay *o,
    int64_t rows_now_us, struct gallery_op *shown)
{
    bool newer = o->stamp_us >= gallery_changed_us(row, rows_now_us);
    if (newer || o->op.progress > row->op.progress) {
        shown->progress = o->op.progress;
        shown->current_bytes = o->op.current_bytes;
        shown->total_bytes = o->op.total_bytes;
    }
    if (newer) {
        shown->phase = o->op.phase;
        shown->message = o->op.message;
    }
    if (newer || row->op.nodes == 0) {
        shown->node = o->op.node;
        shown->nodes = o->op.nodes;
    }
}

static void note_behind(const struct gallery_row *row, const struct gallery_overlay *o,
    const struct ops_input *in, struct ops_list *out)
{
    if (!in->postgres_up || out->n_behind == OPS_BEHIND_MAX ||
        !gallery_is_behind(row, o, in->rows_now_us))
        return;
    if (out->behind == NULL)
        out->behind = mem_calloc(OPS_BEHIND_MAX, sizeof(const struct gallery_overlay *));
    out->behind[out->n_behind++] = o;
}

/* The id, and after its NUL the node's id. */
static char *make_ids(const struct gallery_names *n, const char **node_id)
{
    size_t size = strlen(n->id) + 1;
    char *text = mem_calloc(size + n->node_size + 1, 1);
    memcpy(text, n->id, size);
    if (n->node_size > 0)
        memcpy(text + size, n->node_id, n->node_size);
    *node_id = n->node_size > 0 ? text + size : NULL;
    return text;
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static void add_gallery(const struct gallery_op *op, struct ops_list *out)
{
    struct op_entry *e = &out->entry[out->n++];
    struct gallery_names names = gallery_names(op);
    bool deletion = gallery_is_deletion(op);
    *e = (struct op_entry){ .job_id = op->id,
        .name = names.name,
        .full_name = names.id,
        .progress = whole_percent(op->progress),
        .task = deletion ? OP_TASK_DELETION : OP_TASK_INSTALLATION,
        .is_deletion = deletion,
        .is_backend = gallery_is_backend(op),
        .is_queued = gallery_is_queued(op),
        .cancellable = op->cancellable,
        .message = op->message,
        .phase = or_null(op->phase),
        .current_bytes = sane_bytes(op->current_bytes),
        .total_bytes = sane_bytes(op->total_bytes),
        .error = or_null(op->error),
        .node = op->node,
        .nodes = op->nodes };
    e->id = mem_kept(make_ids(&names, &e->node_id));
}

/* What one operation shows. An overlay may stand alone: it holds the whole entry. But one that was made beside its row
 * has lost it since, by who clears the history beside us or by hand: the operation is gone. */
static void merge_gallery(
    const void *row_, const void *overlay_, const struct ops_input *in, struct ops_list *out)
{
    const struct gallery_row *row = row_;
    const struct gallery_overlay *o = overlay_;
    if (!row) {
        if (o && !(o->of_row && in->postgres_up))
            add_gallery(&o->op, out);
        return;
    }
    if (o)
        note_behind(row, o, in, out);
    struct gallery_op shown = row->op;
    switch (gallery_classify(row, in->rows_now_us)) {
    case GALLERY_CLASS_OVER:
    case GALLERY_CLASS_UNKNOWN:
        return;
    case GALLERY_CLASS_STALE:
        if (!o)
            return;
        lay_op_overlay(row, o, in->rows_now_us, &shown);
        break;
    case GALLERY_CLASS_ACTIVE:
        if (o)
            lay_op_overlay(row, o, in->rows_now_us, &shown);
        break;
    case GALLERY_CLASS_FAILED:
        break;
    }
    add_gallery(&shown, out);
}

static int by_progress_id_job(const void *a, const void *b)
{
    const struct op_entry *x = a;
    const struct op_entry *y = b;
    if (x->progress != y->progress)
        return x->progress < y->progress ? -1 : 1;
    int order = strcmp(x->id, y->id);
    return order ? order : strcmp(x->job_id, y->job_id);
}

/* --- rows and overlays of one key, side by side --- */

/* Each struct that is merged begins with its key. */
_Static_assert(offsetof(struct load_row, key) == 0, "by_key() looks there");
_Static_assert(offsetof(struct overlay, key) == 0, "by_key() looks there");
_Static_assert(offsetof(struct gallery_row, op.id) == 0, "by_key() looks there");
_Static_assert(offsetof(struct gallery_overlay, op.id) == 0, "by_key() looks there");

static const char *key_of(const void *item)
{
    return *(const char *const *)item;
}

static int by_key(const void *a, const void *b)
{
    const void *x = *(const void *const *)a;
    const void *y = *(const void *const *)b;
    int order = strcmp(key_of(x), key_of(y));
    /* Both point into one array: of two with one key the first comes first. */
    return order ? order : ((uintptr_t)x > (uintptr_t)y) - ((uintptr_t)x < (uintptr_t)y);
}

struct side {
    const void *item; /* an array */
    size_t n;
    size_t size; /* of one */
};

/* Pointers to all of them, sorted, NULL after the last. */
static const void **sorted(const struct side *s)
{
    const void **p = mem_calloc(s->n + 1, sizeof(const void *));
    for (size_t i = 0; i < s->n; i++)
        p[i] = (const char *)s->item + i * s->size;
    qsort(p, s->n, sizeof(const void *), by_key);
    return p;
}

/* Which of the two comes first by key; NULL comes last. 0: both are of one key. */
static int compare_keys(const void *row, const void *overlay)
{
    if (!row || !overlay)
        return row ? -1 : 1;
    return strcmp(key_of(row), key_of(overlay));
}

/* Calls merge once for each key, with NULL where there is none. */
static void walk(const struct side *row_side, const struct side *overlay_side,
    void (*merge)(
        const void *row, const void *overlay, const struct ops_input *in, struct ops_list *out),
    const struct ops_input *in, struct ops_list *out)
{
    cleanup_free const void **rows = sorted(row_side);
    cleanup_free const void **overlays = sorted(overlay_side);
    const void *const *row = rows;
    const void *const *o = overlays;
    while (*row || *o) {
        int order = compare_keys(*row, *o);
        const char *key = key_of(order <= 0 ? *row : *o);
        merge(order <= 0 ? *row : NULL, order >= 0 ? *o : NULL, in, out);
        if (order <= 0)
            row++;
        while (*o && strcmp(key_of(*o), key) == 0)
            o++;
    }
}

#define SIDE(array, count) \
    (&(const struct side){ .item = (array), .n = (count), .size = sizeof(*(array)) })

void ops_merge(const struct ops_input *in, struct ops_list *out)
{
    struct ops_list list = OPS_LIST_INIT;
    list.entry = mem_calloc(
        in->rows + in->overlays + in->gallery_rows + in->gallery_overlays + 1, sizeof(*list.entry));
    walk(SIDE(in->row, in->rows), SIDE(in->overlay, in->overlays), merge_staging, in, &list);
    walk(SIDE(in->gallery_row, in->gallery_rows), SIDE(in->gallery_overlay, in->gallery_overlays),
        merge_gallery, in, &list);
    if (list.n > 1)
        qsort(list.entry, list.n, sizeof(*list.entry), by_progress_id_job);
    *out = list;
}
