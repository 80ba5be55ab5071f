/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KEEPER_H
#define WB_KEEPER_H

/* The thread that writes to the rows what the refresher found in overlays alone: see store/gallery_keep.h. The refresher
 * itself asks and never writes: a slow commit must not look like a store that is away. Each process has one; the one
 * whose process refreshes has work, so that it goes on in another when a process is killed. */
#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"

struct keeper;

/* conf is borrowed until keeper_stop(). It connects when there is something to write. */
int keeper_start(const struct conf *conf, struct keeper **out, struct err *e) WARN_UNUSED;

/* values: as for gallery_keep(); copied, in place of what was given before and has not been begun. Never waits. Any
 * thread. */
void keeper_give(struct keeper *k, const struct buf *values);

/* Ends and joins it, within [db] timeout_ms. NULL is fine. */
void keeper_stop(struct keeper *k);

#endif
