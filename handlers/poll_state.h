/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_POLL_STATE_H
#define WB_POLL_STATE_H

/* What the refresher last read from both stores, as one relocatable block of bytes, so that another
 * process of this machine that takes the refresher over during an outage starts from the last good
 * rows and overlays. The block is read only by the same build on the same machine; anything else is
 * refused. */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/gallery.h"
#include "model/load_job.h"
#include "model/overlay.h"

struct poll_state {
    struct load_row *row;
    size_t rows;
    struct gallery_row *gallery_row;
    size_t gallery_rows;
    int64_t rows_now_us;  /* Postgres' time when the rows were read */
    int64_t rows_read_ns; /* monotonic; 0: rows were never read */
    struct overlay *overlay;
    size_t overlays;
    struct gallery_overlay *gallery_overlay;
    size_t gallery_overlays;
    /* Owned; everything above borrows from these after unpacking. */
    struct gallery_node *node;
    char *text;
};

#define POLL_STATE_INIT \
    { \
        .row = NULL, .rows = 0, .gallery_row = NULL, .gallery_rows = 0, .rows_now_us = 0, \
        .rows_read_ns = 0, .overlay = NULL, .overlays = 0, .gallery_overlay = NULL, \
        .gallery_overlays = 0, .node = NULL, .text = NULL \
    }
void poll_state_free(struct poll_state *s); /* all arrays and the text */
#define cleanup_poll_state __attribute__((cleanup(poll_state_free)))

/* Appends the block. s->node and s->text do not matter here. The caller looks at out->overflow. */
void poll_state_pack(const struct poll_state *s, struct buf *out);

/* Fills *out, which the caller frees. ERR_INVALID for a block that makes no sense: any bytes are
 * safe, and what comes of them can be merged and printed. data needs no alignment. */
int poll_state_unpack(
    const void *data, size_t size, struct poll_state *out, struct err *e) WARN_UNUSED;

#endif
