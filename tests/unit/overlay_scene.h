/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OVERLAY_SCENE_H
#define WB_OVERLAY_SCENE_H

/* What tests of overlays begin with. */
#include "model/overlay.h"

#define STAMP INT64_C(1796055243123456)
#define TIME  "2026-11-30T16:14:03.123456Z" /* STAMP as text */
#define ONE   "1111111111111111"
#define TWO   "2222222222222222"

/* As it lies in Redis: a session's, in its second of four files, a millisecond older than STAMP. */
static inline struct overlay stored(void)
{
    return (struct overlay){ .key = "m",
        .node_name = "node",
        .file_name = "weights.gguf",
        .speed = "310 MiB/s",
        .message = "kept",
        .started_at = "2026-11-30T16:00:00.000000Z",
        .claim = "",
        .session = "s-1",
        .bytes_sent = 30,
        .total_bytes = 100,
        .file_index = 2,
        .total_files = 4,
        .progress = 32.5,
        .stamp_us = STAMP - 1000 };
}

#endif
