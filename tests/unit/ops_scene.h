/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPS_SCENE_H
#define WB_OPS_SCENE_H

/* What tests of the merge are written with: a few rows and overlays, and the list that comes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "model/ops.h"

#define NOW    INT64_C(1800000000000000)
#define AGO(s) (NOW - (s)*US_PER_S)
#define ONE    "1111111111111111"
#define TWO    "2222222222222222"

enum { MAX = 8 };

/* A merge in the making. */
struct scene {
    struct load_row row[MAX];
    struct overlay overlay[MAX];
    struct gallery_row op_row[MAX];
    struct gallery_overlay op_overlay[MAX];
    struct ops_input in;
    struct ops_list out;
};

static inline struct scene *scene(void **state)
{
    return *state;
}

static inline int set_up(void **state)
{
    struct scene *s = test_calloc(1, sizeof(*s));
    s->in = (struct ops_input){ .row = s->row,
        .overlay = s->overlay,
        .gallery_row = s->op_row,
        .gallery_overlay = s->op_overlay,
        .rows_now_us = NOW,
        .postgres_up = true };
    *state = s;
    return 0;
}

static inline int tear_down(void **state)
{
    struct scene *s = scene(state);
    ops_list_free(&s->out);
    test_free(s);
    return 0;
}

/* A live row at 25 % of one file. */
static inline struct load_row *add_row(struct scene *s, const char *key, enum load_state state)
{
    struct load_row *r = &s->row[s->in.rows++];
    *r = (struct load_row){ .key = key,
        .state = state,
        .owner = "front-1",
        .node_id = "node-id",
        .node_name = "row-node",
        .bytes_sent = 25,
        .total_bytes = 100,
        .file_index = 1,
        .total_files = 1,
        .created_us = AGO(30),
        .updated_us = AGO(5),
        .last_error = "" };
    return r;
}

static inline struct load_row *add_claimed_row(
    struct scene *s, const char *key, enum load_state state)
{
    struct load_row *r = add_row(s, key, state);
    memcpy(r->claim, ONE, sizeof(ONE));
    return r;
}

/* A fresh overlay at 40 % of one file, newer than the row, without claim or session. */
static inline struct overlay *add_overlay(struct scene *s, const char *key)
{
    struct overlay *o = &s->overlay[s->in.overlays++];
    *o = (struct overlay){ .key = key,
        .node_name = "overlay-node",
        .file_name = "weights.gguf",
        .speed = "",
        .message = "copying",
        .started_at = "",
        .claim = "",
        .session = "",
        .bytes_sent = 40,
        .total_bytes = 100,
        .file_index = 1,
        .total_files = 1,
        .progress = 40,
        .stamp_us = AGO(1) };
    return o;
}

static inline struct overlay *add_claimed_overlay(
    struct scene *s, const char *key, const char *claim)
{
    struct overlay *o = add_overlay(s, key);
    o->claim = claim;
    return o;
}

/* A backend's installation at 25 % that changed 5 s ago. */
static inline struct gallery_op an_op(const char *id)
{
    return (struct gallery_op){ .id = id,
        .element_name = "llama-cpp",
        .cache_key = "localai@llama-cpp",
        .op_type = "backend_install",
        .status = GALLERY_DOWNLOADING,
        .is_backend_op = true,
        .cancellable = true,
        .progress = 25.9,
        .phase = "pull",
        .message = "row",
        .error = "",
        .file_name = "layer",
        .current_bytes = 25,
        .total_bytes = 100 };
}

static inline struct gallery_row *add_op(struct scene *s, const char *id)
{
    struct gallery_row *r = &s->op_row[s->in.gallery_rows++];
    *r = (struct gallery_row){ .op = an_op(id), .created_us = AGO(60), .updated_us = AGO(5) };
    return r;
}

/* A fresh overlay of it at 40 %, newer than the row. */
static inline struct gallery_overlay *add_op_overlay(struct scene *s, const char *id)
{
    struct gallery_overlay *o = &s->op_overlay[s->in.gallery_overlays++];
    *o = (struct gallery_overlay){ .op = an_op(id), .stamp_us = AGO(1) };
    o->op.progress = 40;
    o->op.phase = "unpack";
    o->op.message = "overlay";
    o->op.current_bytes = 40;
    o->op.total_bytes = 101;
    return o;
}

static inline void merge(struct scene *s)
{
    ops_list_free(&s->out);
    ops_merge(&s->in, &s->out);
}

/* Merges and returns the only entry. */
static inline const struct op_entry *merge_one(struct scene *s)
{
    merge(s);
    assert_int_equal(s->out.n, 1);
    return &s->out.entry[0];
}

static inline void assert_none(struct scene *s)
{
    merge(s);
    assert_int_equal(s->out.n, 0);
}

#define SCENE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
