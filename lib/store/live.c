/* SPDX-License-Identifier: Apache-2.0 */
#include "store/live.h"

#include "store/live_internal.h"

enum { STAGING, OPS, KINDS };

/* A list as its file's header has it, and as one of any kind. */
static struct live_shelf staging_shelf(const struct overlays *o)
{
    return (struct live_shelf){ .kind = &LIVE_STAGING,
        .item = o->overlay,
        .n = o->n,
        .malformed = o->malformed,
        .json = o->json };
}

static struct overlays staging_list_of(const struct live_shelf *s)
{
    return (struct overlays){
        .overlay = s->item, .n = s->n, .malformed = s->malformed, .json = s->json
    };
}

static struct live_shelf op_shelf(const struct op_overlays *o)
{
    return (struct live_shelf){
        .kind = &LIVE_OPS, .item = o->overlay, .n = o->n, .malformed = o->malformed, .json = o->json
    };
}

static struct op_overlays op_list_of(const struct live_shelf *s)
{
    return (struct op_overlays){
        .overlay = s->item, .n = s->n, .malformed = s->malformed, .json = s->json
    };
}

void overlays_free(struct overlays *o)
{
    struct live_shelf s = staging_shelf(o);
    live_shelf_free(&s);
    *o = (struct overlays)OVERLAYS_INIT;
}

void op_overlays_free(struct op_overlays *o)
{
    struct live_shelf s = op_shelf(o);
    live_shelf_free(&s);
    *o = (struct op_overlays)OP_OVERLAYS_INIT;
}

void live_free(struct live *l)
{
    overlays_free(&l->staging);
    op_overlays_free(&l->ops);
}

int staging_get(struct kv *kv, const char *key, struct overlays *out, struct err *e)
{
    struct live_shelf s = { .kind = &LIVE_STAGING };
    int rc = live_get(kv, key, &s, e);
    if (rc >= 0)
        *out = staging_list_of(&s);
    return rc;
}

int op_overlay_get(struct kv *kv, const char *id, struct op_overlays *out, struct err *e)
{
    struct live_shelf s = { .kind = &LIVE_OPS };
    int rc = live_get(kv, id, &s, e);
    if (rc >= 0)
        *out = op_list_of(&s);
    return rc;
}

int staging_list(struct kv *kv, const struct overlays *before, struct overlays *out, struct err *e)
{
    static const struct overlays NONE = OVERLAYS_INIT;
    const struct live_shelf known = staging_shelf(before ? before : &NONE);
    struct live_shelf s = { .kind = &LIVE_STAGING };
    if (live_read(kv, &known, &s, 1, e) < 0)
        return -1;
    *out = staging_list_of(&s);
    return 0;
}

int live_list(struct kv *kv, const struct live *before, struct live *out, struct err *e)
{
    static const struct live NONE = LIVE_INIT;
    const struct live *known = before ? before : &NONE;
    const struct live_shelf was[KINDS] = {
        [STAGING] = staging_shelf(&known->staging), [OPS] = op_shelf(&known->ops)
    };
    struct live_shelf s[KINDS] = {
        [STAGING] = { .kind = &LIVE_STAGING }, [OPS] = { .kind = &LIVE_OPS }
    };
    if (live_read(kv, was, s, KINDS, e) < 0)
        return -1;
    out->staging = staging_list_of(&s[STAGING]);
    out->ops = op_list_of(&s[OPS]);
    return 0;
}
