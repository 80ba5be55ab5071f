/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MODEL_GALLERY_H
#define WB_MODEL_GALLERY_H

/* Rules of gallery operations, that is installations and removals of models and backends: what is
 * shown, how an entry is named, how a report changes what is known. Operations contract, sections 2 to
 * 5. Pure: the time is handed in, always Postgres' own, in microseconds since 1970 UTC. What a report
 * may do to the durable row is decided in one statement, see store/gallery.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum gallery_status {
#define GALLERY_STATUS(id, name, doc) GALLERY_##id,
#include "model/gallery_status.def"
#undef GALLERY_STATUS
    GALLERY_STATUS__COUNT, /* also: a status that is none of ours */
};

/* Longest texts that are taken, in characters (the columns' widths), and how many nodes. Of message and
 * error, whose columns have no width, the first GALLERY_TEXT_KEPT characters are kept. */
enum {
    GALLERY_ID_MAX = 36,
    GALLERY_NAME_MAX = 255,
    GALLERY_CACHE_KEY_MAX = 512,
    GALLERY_USER_MAX = 36,
    GALLERY_PHASE_MAX = 32,
    GALLERY_FILE_MAX = 512,
    GALLERY_TEXT_MAX = 65536,
    GALLERY_TEXT_KEPT = 4000,
    GALLERY_NODES_MAX = 512,
    GALLERY_NODE_TEXT_MAX = 512,
    GALLERY_NODE_ERROR_MAX = 4000
};

#define GALLERY_ACTIVE_US      INT64_C(1800000000) /* without an update: no longer active */
#define GALLERY_SILENT_US      INT64_C(1500000) /* over the second for which a report may be held back */
#define GALLERY_FAILED_SHOW_US INT64_C(86400000000) /* how long a failure is shown */

/* What one node of a fanned-out installation does. Text is borrowed, never NULL. current and total are
 * texts for people ("1.2 GiB"). */
struct gallery_node {
    const char *node_id;
    const char *node_name;
    const char *status; /* queued, running_on_worker, downloading, success, error */
    double percentage;  /* 0..100 */
    const char *file_name;
    const char *current;
    const char *total;
    const char *phase;
    const char *error;
};

/* An operation as rows and overlays have it. Text is borrowed, never NULL ("" when unset). */
struct gallery_op {
    const char *id; /* the job's */
    const char *element_name;
    const char *cache_key;
    const char *op_type;
    enum gallery_status status;
    bool is_backend_op;
    bool cancellable;
    double progress; /* 0..100 */
    const char *phase;
    const char *message;
    const char *error;
    const char *file_name;
    int64_t current_bytes;
    int64_t total_bytes;
    const struct gallery_node *node; /* sorted by gallery_nodes_sort() */
    size_t nodes;
};

/* A row of gallery_operations with its row of operation_control. Times: 0 is unset (NULL, Go's zero
 * time). */
struct gallery_row {
    struct gallery_op op;
    bool dismissed;
    int64_t created_us;
    int64_t updated_us;
};

/* The fresher values in Redis: the whole entry, so that it can be shown without its row. */
struct gallery_overlay {
    struct gallery_op op;
    bool of_row;        /* made beside its row: without one the operation was deleted */
    int64_t stamp_us;   /* Postgres' time of the report */
    int64_t expires_ns; /* monotonic clock of this machine; 0 unknown. Not stored in Redis */
};

/* What PUT brings. NULL, "", -1 and has_nodes false are "missing". */
struct gallery_report {
    const char *status;
    double progress;
    const char *phase;
    const char *message;
    int64_t current_bytes;
    int64_t total_bytes;
    const char *file_name;
    int cancellable; /* 0, 1 or -1 */
    const char *error;
    bool has_nodes;
    bool at_once;                    /* to the row whenever it was last written */
    const struct gallery_node *node; /* sorted by gallery_nodes_sort() */
    size_t nodes;
};
#define GALLERY_REPORT_INIT \
    { \
        .progress = -1.0, .current_bytes = -1, .total_bytes = -1, .cancellable = -1 \
    }

/* What POST brings; missing as above, is_backend_op and cancellable -1. */
struct gallery_admission {
    const char *id; /* missing: one is made */
    const char *element_name;
    const char *cache_key;
    const char *op_type;
    const char *user_id;
    int is_backend_op;
    int cancellable;
};
#define GALLERY_ADMISSION_INIT \
    { \
        .is_backend_op = -1, .cancellable = -1 \
    }

const char *gallery_status_name(enum gallery_status s); /* "unknown" for GALLERY_STATUS__COUNT */
enum gallery_status gallery_status_parse(const char *name);
bool gallery_is_active(enum gallery_status s);  /* pending, downloading, processing */
bool gallery_is_settled(enum gallery_status s); /* completed, cancelled */
bool gallery_is_final(enum gallery_status s);   /* settled, or failed */

enum gallery_class {
    GALLERY_CLASS_ACTIVE, /* active and updated within 30 minutes: shown */
    GALLERY_CLASS_STALE,  /* active, but not updated for longer: shown only by a live overlay */
    GALLERY_CLASS_FAILED, /* failed under 24 h ago, and nobody dismissed it: shown */
    GALLERY_CLASS_OVER, /* settled, a failure that is old or dismissed: not shown, hides its overlay */
    GALLERY_CLASS_UNKNOWN, /* a status that is none of ours: not shown */
};
enum gallery_class gallery_classify(const struct gallery_row *r, int64_t now_us);

/* When the row last changed: the later set one of updated_at and created_at; a stamp in the future
 * counts as now; 0 when none is set. */
int64_t gallery_changed_us(const struct gallery_row *r, int64_t now_us);

/* True when the row lacks something of what an overlay shows that was made beside it, and nobody has reported for
 * GALLERY_SILENT_US: no report will bring it any more, and it would be lost with the overlay. */
bool gallery_is_behind(
    const struct gallery_row *r, const struct gallery_overlay *o, int64_t now_us);

/* For the history: each of created_at and updated_at stands in where the other is unset. 0: neither. */
int64_t gallery_started_us(const struct gallery_row *r);
int64_t gallery_finished_us(const struct gallery_row *r);

/* How an operation is called; borrowed from it. An empty node or backend part makes no prefix. One
 * without cache_key and element_name is called by its job's id. */
struct gallery_names {
    const char *id;      /* cache_key, or element_name when that is empty, without node:<node>: */
    const char *name;    /* id after its first @, if anything is there */
    const char *node_id; /* of the prefix, node_size bytes; not terminated */
    size_t node_size;    /* 0: there is no prefix */
};
struct gallery_names gallery_names(const struct gallery_op *op);

bool gallery_is_deletion(const struct gallery_op *op); /* op_type ends in _delete */
bool gallery_is_backend(
    const struct gallery_op *op); /* is_backend_op, or op_type begins backend_ */
/* Pending and (phase "queued", or no phase and no progress). */
bool gallery_is_queued(const struct gallery_op *op);

/* Sorts by node_name, then node_id, in byte order. */
void gallery_nodes_sort(struct gallery_node *node, size_t n);
bool gallery_node_status_known(const char *status);

/* Old with the report on top: missing fields keep the stored ones, given nodes replace all of them. A
 * final status makes it not cancellable; one other than failed clears an error that the report does
 * not bring. *out borrows from both. */
void gallery_apply(
    const struct gallery_op *old, const struct gallery_report *r, struct gallery_op *out);

/* The same of a report that was overtaken by a newer one: it only fills what is empty or 0 in old. False
 * when that is nothing (*out is then old). */
bool gallery_apply_late(
    const struct gallery_op *old, const struct gallery_report *r, struct gallery_op *out);

/* What a sender could have meant: texts UTF-8 of sane length, progress and percentages finite and
 * 0..100, bytes 0..2^53-1, statuses known. For overlays besides: the status is an active one. Others
 * count as absent. */
bool gallery_node_is_sane(const struct gallery_node *n);
bool gallery_overlay_is_sane(const struct gallery_overlay *o);

/* ERR_INVALID naming the field: what widths (jx_bind) do not cover. */
int gallery_admission_check(const struct gallery_admission *a, struct err *e) WARN_UNUSED;
int gallery_report_check(const struct gallery_report *r, struct err *e) WARN_UNUSED;
/* A job's id, of a path or a body: 1 to 36 characters of UTF-8, none a control character. */
int gallery_id_check(const char *id, struct err *e) WARN_UNUSED;

#endif
