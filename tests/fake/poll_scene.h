/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_POLL_SCENE_H
#define WB_POLL_SCENE_H

/* What the refresher might have read: some of everything, each field with a value of its own. Nothing of it is to be
 * freed. Two load rows (the second of an unknown state), an overlay, two gallery rows (one with nodes, one that
 * nobody has filled in), a gallery overlay; rows_now_us is 11, rows_read_ns 12. */
#include "handlers/poll_state.h"
#include "model/ops.h"

struct poll_state poll_scene(void);

/* A state as the merge takes it. */
struct ops_input poll_scene_input(const struct poll_state *s, bool postgres_up);

#endif
