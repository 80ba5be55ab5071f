/* SPDX-License-Identifier: Apache-2.0 */
#include "store/op_overlay.h"

void op_overlays_free(struct op_overlays *o)
{
    *o = (struct op_overlays)OP_OVERLAYS_INIT;
}

static int not_yet(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "not there yet");
}

int op_overlay_report(struct kv *kv, const struct op_source *from, const struct gallery_report *r,
    enum report_fate *fate, struct err *e)
{
    (void)kv;
    (void)from;
    (void)r;
    (void)fate;
    return not_yet(e);
}

int op_overlay_end(struct kv *kv, const char *id, struct err *e)
{
    (void)kv;
    (void)id;
    (void)e;
    return 0;
}

int op_overlay_get(struct kv *kv, const char *id, struct op_overlays *out, struct err *e)
{
    (void)kv;
    (void)id;
    (void)e;
    *out = (struct op_overlays)OP_OVERLAYS_INIT;
    return 1;
}

void op_overlay_print(const struct gallery_overlay *o, struct buf *out)
{
    (void)o;
    buf_puts(out, "{}");
}

int op_overlay_from_json(const char *id, const char *text, size_t size, struct gallery_overlay *out,
    json_object **json, struct err *e)
{
    (void)id;
    (void)text;
    (void)size;
    (void)out;
    (void)json;
    return not_yet(e);
}

int control_publish(struct kv *kv, const char *id, enum gallery_control control, struct err *e)
{
    (void)kv;
    (void)id;
    (void)control;
    (void)e;
    return 0;
}
