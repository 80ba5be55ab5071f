/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/poll_state.h"

#include <string.h>

#include "base/mem.h"

/* Layout: head, rows, overlays, text. Rows and overlays are the structs themselves, but that each text
 * pointer holds the offset of its text. Offset 0 is the empty text. */
struct head {
    char magic[8];
    uint64_t row_size; /* another build may have other structs */
    uint64_t overlay_size;
    uint64_t rows;
    uint64_t overlays;
    uint64_t text_size;
    int64_t rows_now_us;
    int64_t rows_read_ns;
};

static const char MAGIC[8] = "wbpoll1";

/* Where the text pointers lie within a struct. */
struct shape {
    size_t size;
    size_t n;
    size_t at[8];
};

static const struct shape ROW = { sizeof(struct load_row), 5,
    { offsetof(struct load_row, key), offsetof(struct load_row, owner),
        offsetof(struct load_row, node_id), offsetof(struct load_row, node_name),
        offsetof(struct load_row, last_error) } };

static const struct shape OVERLAY = { sizeof(struct overlay), 8,
    { offsetof(struct overlay, key), offsetof(struct overlay, node_name),
        offsetof(struct overlay, file_name), offsetof(struct overlay, speed),
        offsetof(struct overlay, message), offsetof(struct overlay, started_at),
        offsetof(struct overlay, claim), offsetof(struct overlay, session) } };

_Static_assert(sizeof(uintptr_t) == sizeof(const char *), "an offset takes a pointer's place");

void poll_state_free(struct poll_state *s)
{
    free(s->row);
    free(s->overlay);
    free(s->text);
    *s = (struct poll_state)POLL_STATE_INIT;
}

/* Offsets in the buffer that is packed into. */
struct places {
    size_t copies;
    size_t pool;
};

static const char *text_at(const char *item, size_t at)
{
    const char *text = NULL;
    memcpy(&text, item + at, sizeof(text));
    return text ? text : "";
}

/* Adds the texts of items to the pool at the end of out, and puts each text's offset in it where the
 * item's copy, at copies, has a pointer. Each text is looked at once: most are not in the cache. */
static void pack_texts(const struct shape *shape, const void *items, size_t n,
    const struct places *at, struct buf *out)
{
    const char *item = items;
    for (size_t i = 0; i < n; i++, item += shape->size) {
        for (size_t f = 0; f < shape->n; f++) {
            const char *text = text_at(item, shape->at[f]);
            uintptr_t offset = text[0] ? (uintptr_t)(out->len - at->pool) : 0;
            if (text[0])
                buf_add(out, text, strlen(text) + 1);
            memcpy(
                out->data + at->copies + i * shape->size + shape->at[f], &offset, sizeof(offset));
        }
    }
}

void poll_state_pack(const struct poll_state *s, struct buf *out)
{
    struct head head = { .row_size = ROW.size,
        .overlay_size = OVERLAY.size,
        .rows = s->rows,
        .overlays = s->overlays,
        .rows_now_us = s->rows_now_us,
        .rows_read_ns = s->rows_read_ns };
    memcpy(head.magic, MAGIC, sizeof(MAGIC));
    const size_t start = out->len;
    buf_add(out, &head, sizeof(head));
    const size_t rows = out->len;
    buf_add(out, s->row, s->rows * ROW.size);
    const size_t overlays = out->len;
    buf_add(out, s->overlay, s->overlays * OVERLAY.size);
    const size_t pool = out->len;
    buf_putc(out, '\0');
    if (out->overflow)
        return;
    pack_texts(&ROW, s->row, s->rows, &(struct places){ rows, pool }, out);
    pack_texts(&OVERLAY, s->overlay, s->overlays, &(struct places){ overlays, pool }, out);
    head.text_size = out->len - pool;
    memcpy(out->data + start, &head, sizeof(head)); /* now with the size of the pool */
}

static bool is_whole(const struct head *h, size_t size)
{
    if (memcmp(h->magic, MAGIC, sizeof(MAGIC)) != 0 || h->row_size != ROW.size ||
        h->overlay_size != OVERLAY.size)
        return false;
    size_t left = size - sizeof(*h);
    if (h->rows > left / ROW.size)
        return false;
    left -= h->rows * ROW.size;
    if (h->overlays > left / OVERLAY.size)
        return false;
    left -= h->overlays * OVERLAY.size;
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

int poll_state_unpack(const void *data, size_t size, struct poll_state *out, struct err *e)
{
    struct head h;
    if (size < sizeof(h))
        return err_set(e, ERR_INVALID, "poll state: %zu bytes are too few", size);
    memcpy(&h, data, sizeof(h));
    if (!is_whole(&h, size))
        return err_set(e, ERR_INVALID, "poll state: sizes do not fit %zu bytes", size);

    const char *rows = (const char *)data + sizeof(h);
    const char *overlays = rows + h.rows * ROW.size;
    const char *text = overlays + h.overlays * OVERLAY.size;
    if (text[0] != '\0' || text[h.text_size - 1] != '\0')
        return err_set(e, ERR_INVALID, "poll state: text without end");

    cleanup_poll_state struct poll_state s = POLL_STATE_INIT;
    s.rows = h.rows;
    s.overlays = h.overlays;
    s.rows_now_us = h.rows_now_us;
    s.rows_read_ns = h.rows_read_ns;
    s.text = mem_dup(text, h.text_size);
    s.row = unpack_items(&ROW, rows, s.rows, s.text, h.text_size);
    s.overlay = unpack_items(&OVERLAY, overlays, s.overlays, s.text, h.text_size);
    if (!s.row || !s.overlay || !has_sane_rows(&s))
        return err_set(e, ERR_INVALID, "poll state: an item makes no sense");
    *out = s;
    s = (struct poll_state)POLL_STATE_INIT;
    return 0;
}
