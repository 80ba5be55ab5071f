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
    *l = (struct ops_list)OPS_LIST_INIT;
}

/* Both sides sorted by key, to be walked in step. */
static int by_row_key(const void *a, const void *b)
{
    const struct load_row *const *x = a;
    const struct load_row *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static int by_overlay_key(const void *a, const void *b)
{
    const struct overlay *const *x = a;
    const struct overlay *const *y = b;
    int order = strcmp((*x)->key, (*y)->key);
    /* Both point into one array: of two with one key the first comes first. */
    return order ? order : (*x > *y) - (*x < *y);
}

/* Pointers to all of them, sorted, NULL after the last. */
static const struct load_row **rows_by_key(const struct ops_input *in)
{
    const struct load_row **p = mem_calloc(in->rows + 1, sizeof(const struct load_row *));
    for (size_t i = 0; i < in->rows; i++)
        p[i] = &in->row[i];
    qsort(p, in->rows, sizeof(const struct load_row *), by_row_key);
    return p;
}

static const struct overlay **overlays_by_key(const struct ops_input *in)
{
    const struct overlay **p = mem_calloc(in->overlays + 1, sizeof(const struct overlay *));
    for (size_t i = 0; i < in->overlays; i++)
        p[i] = &in->overlay[i];
    qsort(p, in->overlays, sizeof(const struct overlay *), by_overlay_key);
    return p;
}

/* The copy of this row has ended: whatever its overlay says is a leftover. */
static bool hides_overlay(const struct load_row *row)
{
    return row->state == LOAD_LOADING || row->state == LOAD_FAILED;
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
    if (row->file_index != o->file_index)
        return row->file_index > o->file_index;
    return load_progress(row->bytes_sent, row->total_bytes, row->file_index, row->total_files) >
           o->progress;
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
    *e = (struct op_entry){ .id = id,
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

/* What one key shows. row and o are NULL when there is none. */
static void merge_key(const char *key, const struct load_row *row, const struct overlay *o,
    const struct ops_input *in, struct ops_list *out)
{
    if (row && hides_overlay(row))
        return;
    if (o && !has_right_claim(row, o, in)) {
        out->fenced++;
        o = NULL;
    }
    bool staging = row && row->state == LOAD_STAGING;
    if (o)
        add_staging(key, staging ? row : NULL, o, out);
    else if (staging && !load_is_stale(row, in->rows_now_us))
        add_staging(key, row, NULL, out);
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

/* Which of the two comes first by key; NULL comes last. 0: both are of one key. */
static int compare_keys(const struct load_row *row, const struct overlay *o)
{
    if (!row || !o)
        return row ? -1 : 1;
    return strcmp(row->key, o->key);
}

void ops_merge(const struct ops_input *in, struct ops_list *out)
{
    cleanup_free const struct load_row **rows = rows_by_key(in);
    cleanup_free const struct overlay **overlays = overlays_by_key(in);
    struct ops_list list = OPS_LIST_INIT;
    list.entry = mem_calloc(in->rows + in->overlays + 1, sizeof(*list.entry));

    const struct load_row *const *row = rows;
    const struct overlay *const *o = overlays;
    while (*row || *o) {
        int order = compare_keys(*row, *o);
        const char *key = order <= 0 ? (*row)->key : (*o)->key;
        merge_key(key, order <= 0 ? *row : NULL, order >= 0 ? *o : NULL, in, &list);
        if (order <= 0)
            row++;
        while (*o && strcmp((*o)->key, key) == 0)
            o++;
    }
    if (list.n > 1)
        qsort(list.entry, list.n, sizeof(*list.entry), by_progress_id_job);
    *out = list;
}
