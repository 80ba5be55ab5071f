/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPS_H
#define WB_OPS_H

/* The answer of GET /api/operations as a pure function: durable rows are the baseline, overlays lie
 * on top. Operations contract, section 3: every rule there has a test of this function. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/gallery.h"
#include "model/load_job.h"
#include "model/overlay.h"

enum op_task { OP_TASK_STAGING, OP_TASK_INSTALLATION, OP_TASK_DELETION };

/* One entry of the array. Text is borrowed from the input but id and a gallery entry's node_id, which the
 * list owns. NULL text is "leave the key out". */
struct op_entry {
    char *id;           /* owned by the list, and what node_id points to with it */
    const char *job_id; /* for staging the same pointer as id */
    const char *name;
    const char *full_name;
    int progress;
    enum op_task task;
    bool is_deletion;
    bool is_backend;
    bool is_queued;
    bool cancellable;
    const char *message;
    const char *node_id;
    const char *node_name;
    const char *phase;
    int64_t current_bytes;
    int64_t total_bytes;
    const char *error;
    const struct gallery_node *node; /* sorted; none: leave the key out */
    size_t nodes;
};

enum { OPS_BEHIND_MAX = 256 };

struct ops_list {
    struct op_entry *entry;
    size_t n;
    size_t fenced; /* overlays that did not count because of their claim */
    /* Those that are ahead of rows that were just read, and nobody reports any more: gallery_is_behind(). The first
     * OPS_BEHIND_MAX; borrowed from the input. */
    const struct gallery_overlay **behind;
    size_t n_behind;
};

#define OPS_LIST_INIT \
    { \
        .entry = NULL, .n = 0, .fenced = 0, .behind = NULL, .n_behind = 0 \
    }
void ops_list_free(struct ops_list *l);
#define cleanup_ops_list __attribute__((cleanup(ops_list_free)))

struct ops_input {
    const struct load_row *row; /* any order, keys unique */
    size_t rows;
    const struct overlay *overlay; /* any order; of two with one key the first counts */
    size_t overlays;
    /* Any order, ids unique. Beside those that are shown, whatever row there is of any gallery_overlay. */
    const struct gallery_row *gallery_row;
    size_t gallery_rows;
    const struct gallery_overlay *gallery_overlay; /* as overlay */
    size_t gallery_overlays;
    int64_t rows_now_us; /* Postgres' time when the rows were read */
    bool postgres_up;    /* the rows are of this refresh: an overlay with a claim needs its row */
};

/* Fills *out, sorted by progress, id, jobID. Insane overlays must have been left out before. */
void ops_merge(const struct ops_input *in, struct ops_list *out);

#endif
