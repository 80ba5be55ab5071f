/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/poll_state.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

/* Layout: head, the items of each kind, text. Items are the structs themselves, but that each text
 * pointer holds the offset of its text, and each pointer to nodes the number of the first. Offset 0 is
 * the empty text. */
enum kind { ROWS, OVERLAYS, GALLERY_ROWS, GALLERY_OVERLAYS, NODES, KINDS };

/* Where the text pointers lie within a struct, and the gallery operation of those that have one. */
struct shape {
    size_t size;
    size_t n;
    size_t at[8];
    size_t op;
};

#define AT_OP(type, member) (offsetof(type, op) + offsetof(struct gallery_op, member))
#define GALLERY_SHAPE(type) \
    { \
        sizeof(type), 8, \
            { AT_OP(type, id), AT_OP(type, element_name), AT_OP(type, cache_key), \
                AT_OP(type, op_type), AT_OP(type, phase), AT_OP(type, message), \
                AT_OP(type, error), AT_OP(type, file_name) }, \
            offsetof(type, op) \
    }

static const struct shape SHAPES[KINDS] = {
    [ROWS] = { sizeof(struct load_row), 5,
        { offsetof(struct load_row, key), offsetof(struct load_row, owner),
            offsetof(struct load_row, node_id), offsetof(struct load_row, node_name),
            offsetof(struct load_row, last_error) },
        0 },
    [OVERLAYS] = { sizeof(struct overlay), 8,
        { offsetof(struct overlay, key), offsetof(struct overlay, node_name),
            offsetof(struct overlay, file_name), offsetof(struct overlay, speed),
            offsetof(struct overlay, message), offsetof(struct overlay, started_at),
            offsetof(struct overlay, claim), offsetof(struct overlay, session) },
        0 },
    [GALLERY_ROWS] = GALLERY_SHAPE(struct gallery_row),
    [GALLERY_OVERLAYS] = GALLERY_SHAPE(struct gallery_overlay),
    [NODES] = { sizeof(struct gallery_node), 8,
        { offsetof(struct gallery_node, node_id), offsetof(struct gallery_node, node_name),
            offsetof(struct gallery_node, status), offsetof(struct gallery_node, file_name),
            offsetof(struct gallery_node, current), offsetof(struct gallery_node, total),
            offsetof(struct gallery_node, phase), offsetof(struct gallery_node, error) },
        0 },
};

struct head {
    char magic[8];
    uint64_t size[KINDS]; /* of an item: another build may have other structs */
    uint64_t n[KINDS];
    uint64_t text_size;
    int64_t rows_now_us;
    int64_t rows_read_ns;
};

static const char MAGIC[8] = "wbpoll2";

_Static_assert(sizeof(uintptr_t) == sizeof(const char *), "an offset takes a pointer's place");

void poll_state_free(struct poll_state *s)
{
    free(s->row);
    free(s->overlay);
    free(s->gallery_row);
    free(s->gallery_overlay);
    free(s->node);
    free(s->text);
    *s = (struct poll_state)POLL_STATE_INIT;
}

/* --- packing --- */

/* A block in the making. */
struct packing {
    struct buf *out;
    size_t at[KINDS]; /* where the items of each kind begin in out, and the text */
    size_t pool;
};

static const struct gallery_op *op_of(const struct shape *shape, const void *items, size_t i)
{
    const void *op = (const char *)items + i * shape->size + shape->op;
    return op;
}

static size_t count_nodes(enum kind kind, const void *items, size_t n)
{
    size_t nodes = 0;
    for (size_t i = 0; i < n; i++)
        nodes += op_of(&SHAPES[kind], items, i)->nodes;
    return nodes;
}

static void pack_items(struct packing *p, enum kind kind, const void *items, size_t n)
{
    p->at[kind] = p->out->len;
    if (n > 0)
        buf_add(p->out, items, n * SHAPES[kind].size);
}

static void pack_nodes(struct packing *p, enum kind kind, const void *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct gallery_op *op = op_of(&SHAPES[kind], items, i);
        if (op->nodes > 0)
            buf_add(p->out, op->node, op->nodes * sizeof(*op->node));
    }
}

static const char *text_at(const char *item, size_t at)
{
    const char *text = NULL;
    memcpy(&text, item + at, sizeof(text));
    return text ? text : "";
}

/* Adds the texts of items to the pool at the end of out, and puts each text's offset in it where the
 * item's copy, the first of which is number `first` of its kind, has a pointer. Each text is looked at
 * once: most are not in the cache. */
static void pack_texts(struct packing *p, enum kind kind, size_t first, const void *items, size_t n)
{
    const struct shape *shape = &SHAPES[kind];
    struct buf *out = p->out;
    const char *item = items;
    size_t copy = p->at[kind] + first * shape->size;
    for (size_t i = 0; i < n; i++, item += shape->size, copy += shape->size) {
        for (size_t f = 0; f < shape->n; f++) {
            const char *text = text_at(item, shape->at[f]);
            uintptr_t offset = text[0] ? (uintptr_t)(out->len - p->pool) : 0;
            if (text[0])
                buf_add(out, text, strlen(text) + 1);
            memcpy(out->data + copy + shape->at[f], &offset, sizeof(offset));
        }
    }
}

/* The texts of the nodes of items, and the number of each one's first node in its copy. *node counts
 * those before. */
static void pack_op_nodes(
    struct packing *p, enum kind kind, const void *items, size_t n, size_t *node)
{
    const struct shape *shape = &SHAPES[kind];
    for (size_t i = 0; i < n; i++) {
        const struct gallery_op *op = op_of(shape, items, i);
        uintptr_t first = op->nodes > 0 ? *node : 0;
        memcpy(p->out->data + p->at[kind] + i * shape->size + shape->op +
                   offsetof(struct gallery_op, node),
            &first, sizeof(first));
        if (op->nodes > 0)
            pack_texts(p, NODES, *node, op->node, op->nodes);
        *node += op->nodes;
    }
}

void poll_state_pack(const struct poll_state *s, struct buf *out)
{
    const void *const items[NODES] = { s->row, s->overlay, s->gallery_row, s->gallery_overlay };
    struct head head = { .n = { s->rows, s->overlays, s->gallery_rows, s->gallery_overlays },
        .rows_now_us = s->rows_now_us,
        .rows_read_ns = s->rows_read_ns };
    struct packing p = { .out = out };
    const size_t start = out->len;
    size_t node = 0;

    memcpy(head.magic, MAGIC, sizeof(MAGIC));
    for (enum kind k = GALLERY_ROWS; k < NODES; k++)
        head.n[NODES] += count_nodes(k, items[k], head.n[k]);
    for (enum kind k = ROWS; k < KINDS; k++)
        head.size[k] = SHAPES[k].size;
    buf_add(out, &head, sizeof(head));
    for (enum kind k = ROWS; k < NODES; k++)
        pack_items(&p, k, items[k], head.n[k]);
    p.at[NODES] = out->len;
    for (enum kind k = GALLERY_ROWS; k < NODES; k++)
        pack_nodes(&p, k, items[k], head.n[k]);
    p.pool = out->len;
    buf_putc(out, '\0');
    if (out->overflow)
        return;
    for (enum kind k = ROWS; k < NODES; k++)
        pack_texts(&p, k, 0, items[k], head.n[k]);
    for (enum kind k = GALLERY_ROWS; k < NODES; k++)
        pack_op_nodes(&p, k, items[k], head.n[k], &node);
    head.text_size = out->len - p.pool;
    memcpy(out->data + start, &head, sizeof(head)); /* now with the size of the pool */
}

/* --- unpacking --- */

static bool is_whole(const struct head *h, size_t size)
{
    if (memcmp(h->magic, MAGIC, sizeof(MAGIC)) != 0)
        return false;
    size_t left = size - sizeof(*h);
    for (enum kind k = ROWS; k < KINDS; k++) {
        if (h->size[k] != SHAPES[k].size || h->n[k] > left / SHAPES[k].size)
            return false;
        left -= h->n[k] * SHAPES[k].size;
    }
    return left > 0 && h->text_size == left;
}

/* Copies n items and puts pointers where the offsets were. NULL when one points outside the pool. */
static void *unpack_items(
    const struct shape *shape, const char *data, size_t n, const char *pool, size_t pool_size)
{
    cleanup_free char *items = mem_calloc(n + 1, shape->size);
    memcpy(items, data, n * shape->size);
    for (char *item = items; item < items + n * shape->size; item += shape->size) {
        for (size_t f = 0; f < shape->n; f++) {
            uintptr_t offset = 0;
            memcpy(&offset, item + shape->at[f], sizeof(offset));
            if (offset >= pool_size)
                return NULL;
            const char *text = pool + offset;
            memcpy(item + shape->at[f], &text, sizeof(text));
        }
    }
    return STEAL(items);
}

static bool has_sane_rows(const struct poll_state *s)
{
    for (size_t i = 0; i < s->rows; i++) {
        const struct load_row *r = &s->row[i];
        if ((unsigned)r->state > LOAD_STATE__COUNT || !memchr(r->claim, '\0', sizeof(r->claim)))
            return false;
    }
    return true;
}

/* Anything else than 0 and 1 there must not even be looked at as a bool. */
static bool is_bool(const bool *b)
{
    unsigned char byte = 2;
    memcpy(&byte, b, sizeof(byte));
    return byte <= 1;
}

/* Puts the pointer to an operation's nodes where their number was. */
static bool unpack_op(struct gallery_op *op, const struct gallery_node *node, size_t nodes)
{
    uintptr_t first = 0;
    memcpy(&first, &op->node, sizeof(first));
    if (first > nodes || op->nodes > nodes - first)
        return false;
    op->node = node + first;
    return (unsigned)op->status <= GALLERY_STATUS__COUNT && is_bool(&op->is_backend_op) &&
           is_bool(&op->cancellable) && isfinite(op->progress);
}

static bool unpack_ops(struct poll_state *s, size_t nodes)
{
    for (size_t i = 0; i < s->gallery_rows; i++) {
        struct gallery_row *r = &s->gallery_row[i];
        if (!unpack_op(&r->op, s->node, nodes) || !is_bool(&r->dismissed))
            return false;
    }
    for (size_t i = 0; i < s->gallery_overlays; i++) {
        if (!unpack_op(&s->gallery_overlay[i].op, s->node, nodes) ||
            !is_bool(&s->gallery_overlay[i].of_row))
            return false;
    }
    return true;
}

/* They are printed as they are. */
static bool has_sane_nodes(const struct poll_state *s, size_t nodes)
{
    for (size_t i = 0; i < nodes; i++) {
        const char *node = (const char *)&s->node[i];
        for (size_t f = 0; f < SHAPES[NODES].n; f++) {
            const char *text = text_at(node, SHAPES[NODES].at[f]);
            if (!str_utf8_valid(text, strlen(text)))
                return false;
        }
        if (!isfinite(s->node[i].percentage))
            return false;
    }
    return true;
}

int poll_state_unpack(const void *data, size_t size, struct poll_state *out, struct err *e)
{
    struct head h;
    if (size < sizeof(h))
        return err_set(e, ERR_INVALID, "poll state: %zu bytes are too few", size);
    memcpy(&h, data, sizeof(h));
    if (!is_whole(&h, size))
        return err_set(e, ERR_INVALID, "poll state: sizes do not fit %zu bytes", size);

    const char *text = (const char *)data + size - h.text_size;
    if (text[0] != '\0' || text[h.text_size - 1] != '\0')
        return err_set(e, ERR_INVALID, "poll state: text without end");

    cleanup_poll_state struct poll_state s = POLL_STATE_INIT;
    s.rows = h.n[ROWS];
    s.overlays = h.n[OVERLAYS];
    s.gallery_rows = h.n[GALLERY_ROWS];
    s.gallery_overlays = h.n[GALLERY_OVERLAYS];
    s.rows_now_us = h.rows_now_us;
    s.rows_read_ns = h.rows_read_ns;
    s.text = mem_dup(text, h.text_size);
    void *items[KINDS] = { NULL };
    const char *at = (const char *)data + sizeof(h);
    bool sane = true;
    for (enum kind k = ROWS; k < KINDS; at += h.n[k] * SHAPES[k].size, k++) {
        items[k] = unpack_items(&SHAPES[k], at, h.n[k], s.text, h.text_size);
        sane = sane && items[k] != NULL;
    }
    s.row = items[ROWS];
    s.overlay = items[OVERLAYS];
    s.gallery_row = items[GALLERY_ROWS];
    s.gallery_overlay = items[GALLERY_OVERLAYS];
    s.node = items[NODES];
    if (!sane || !has_sane_rows(&s) || !unpack_ops(&s, h.n[NODES]) ||
        !has_sane_nodes(&s, h.n[NODES]))
        return err_set(e, ERR_INVALID, "poll state: an item makes no sense");
    *out = s;
    s = (struct poll_state)POLL_STATE_INIT;
    return 0;
}
