/* SPDX-License-Identifier: Apache-2.0 */
#include "store/op_overlay.h"

#include <string.h>

#include "base/str.h"
#include "json/jx_write.h"
#include "store/live_internal.h"

enum { CONTROL_MAX = 4096 }; /* an id of whatever characters, escaped, and a little */

static int parse(
    const char *id, const char *text, size_t size, void *out, json_object **json, struct err *e)
{
    return op_overlay_from_json(id, text, size, out, json, e);
}

const struct live_kind LIVE_OPS = {
    .value = "wb:1:op:",
    .ended = "wb:1:op-ended:",
    .member = "op:",
    .over = "this operation has ended",
    .size = sizeof(struct gallery_overlay),
    .expires = offsetof(struct gallery_overlay, expires_ns),
    .check = gallery_id_check,
    .parse = parse,
};

struct put {
    struct live_put live; /* first, so that merge() finds the rest */
    const struct op_source *from;
    const struct gallery_report *report;
    enum report_fate fate;
    json_object *json; /* what next borrows from, if what is stored was parsed */
    struct buf message;
    struct buf error;
    struct gallery_overlay next; /* what is to be stored */
};

static void put_free(struct put *p)
{
    live_put_free(&p->live);
    json_object_put(p->json);
    buf_free(&p->message);
    buf_free(&p->error);
}
#define cleanup_put __attribute__((cleanup(put_free)))

/* What is stored; NULL: nothing. What makes no sense counts as absent, and is replaced. */
static const struct gallery_overlay *parse_stored(struct put *p, struct gallery_overlay *room)
{
    const struct kv_arg *stored = &p->live.expected;
    json_object_put(p->json);
    p->json = NULL;
    if (stored->size == 0 ||
        op_overlay_from_json(p->from->id, stored->data, stored->size, room, &p->json, NULL) < 0)
        return NULL;
    return room;
}

/* The first GALLERY_TEXT_KEPT characters, as the columns keep them. */
static void cut(const char **text, struct buf *room)
{
    const char *end = *text;
    for (int i = 0; i < GALLERY_TEXT_KEPT && *end != '\0'; i++) {
        size_t n = str_utf8_char(end, strlen(end));
        end += n > 0 ? n : 1;
    }
    if (*end == '\0')
        return;
    buf_clear(room);
    buf_add(room, *text, (size_t)(end - *text));
    *text = room->data;
}

/* What the row says of itself stands, whatever is in Redis. */
static void lay_row(const struct gallery_op *row, struct gallery_op *op)
{
    op->element_name = row->element_name;
    op->cache_key = row->cache_key;
    op->op_type = row->op_type;
    op->is_backend_op = row->is_backend_op;
    op->status = row->status;
    op->cancellable = row->cancellable;
    op->error = row->error;
}

/* Lays the report on what is stored, or on the row. */
static enum report_fate apply(struct put *p, const struct gallery_overlay *old)
{
    const struct gallery_op *row = p->from->row;
    struct gallery_overlay *next = &p->next;
    *next = (struct gallery_overlay){ .stamp_us = p->from->stamp_us,
        .of_row = row != NULL || old->of_row };
    if (old == NULL) {
        next->op = *row;
        return REPORT_FIRST;
    }
    if (p->from->stamp_us >= old->stamp_us) {
        gallery_apply(&old->op, p->report, &next->op);
        return REPORT_APPLIED;
    }
    next->stamp_us = old->stamp_us;
    return gallery_apply_late(&old->op, p->report, &next->op) ? REPORT_APPLIED : REPORT_OUTDATED;
}

static enum live_step merge(struct live_put *live, struct err *e)
{
    struct put *p = (struct put *)live;
    struct gallery_overlay room;
    const struct gallery_overlay *old = parse_stored(p, &room);
    if (old == NULL && p->from->row == NULL) {
        if (live->guessed)
            return LIVE_REREAD;
        err_set(e, ERR_NOT_FOUND, "there is no live overlay of operation %s", p->from->id);
        return LIVE_FAILED;
    }
    p->fate = apply(p, old);
    if (p->fate == REPORT_OUTDATED)
        return LIVE_DONE;
    if (p->from->row != NULL)
        lay_row(p->from->row, &p->next.op);
    cut(&p->next.op.message, &p->message);
    cut(&p->next.op.error, &p->error);
    if (!gallery_overlay_is_sane(&p->next)) {
        err_set(e, ERR_INVALID, "a field of the report is out of range");
        return LIVE_FAILED;
    }
    op_overlay_print(&p->next, &live->value);
    if (old == NULL)
        (void)str_copy(live->sender, sizeof(live->sender), LIVE_ANY_SENDER);
    return LIVE_WRITE;
}

int op_overlay_report(struct kv *kv, const struct op_source *from, const struct gallery_report *r,
    enum report_fate *fate, struct err *e)
{
    cleanup_put struct put p = { .live = LIVE_PUT(kv, &LIVE_OPS, merge, OP_VALUE_MAX),
        .from = from,
        .report = r,
        .message = BUF_INIT(SIZE_MAX / 2),
        .error = BUF_INIT(SIZE_MAX / 2) };
    if (live_put_run(&p.live, from->id, e) < 0)
        return -1;
    *fate = p.fate;
    return 0;
}

int op_overlay_end(struct kv *kv, const char *id, struct err *e)
{
    return live_end(kv, &LIVE_OPS, id, LIVE_ANYBODY, e);
}

int op_overlay_begin(struct kv *kv, const char *id, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    struct live_names n;
    if (live_names(&LIVE_OPS, id, &n, e) < 0)
        return -1;
    /* A member of the index without a value is no overlay. */
    return kv_command(kv, KV_ARGS(kv_text("DEL"), kv_text(n.value), kv_text(n.ended)), &r, e);
}

int control_publish(struct kv *kv, const char *id, enum gallery_control control, struct err *e)
{
    cleanup_reply redisReply *r = NULL;
    cleanup_buf struct buf text = BUF_INIT(CONTROL_MAX);
    buf_puts(&text, "{\"jobID\":");
    jx_write_text(&text, id);
    buf_printf(&text, ",\"control\":\"%s\"}", gallery_control_name(control));
    return kv_command(
        kv, KV_ARGS(kv_text("PUBLISH"), kv_text(CONTROL_CHANNEL), kv_text(text.data)), &r, e);
}
