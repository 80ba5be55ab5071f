/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/clerk.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "lines/clerk_internal.h"
#include "lines/content.h"
#include "lines/validate.h"

enum { ERRORS_MAX = 1 << 18, RENEWALS = 3 /* in the time of a lease */ };

int clerk_tick(void *clerk, struct err *e)
{
    struct clerk *c = clerk;
    const int64_t now_ns = clock_mono_ns();

    if (now_ns - c->renewed_ns < c->lease->ttl_ms * NS_PER_MS / RENEWALS)
        return 0;
    const int rc = batch_lease_renew(c->t->db, c->lease, e);
    if (rc == 0)
        c->renewed_ns = now_ns;
    return rc;
}

static int fail_with(struct clerk *c, json_object *errors, struct err *e)
{
    cleanup_json json_object *owned = errors;
    cleanup_buf struct buf text = BUF_INIT(ERRORS_MAX);

    jx_print(owned, &text);
    const int rc = batch_lease_fail(c->t->db, c->lease, text.data, e);
    c->failed = rc == 0;
    return rc;
}

int clerk_fail(struct clerk *c, const char *code, const char *message, struct err *e)
{
    json_object *data = jx_array();
    json_object *o = jx_object();

    jx_set_str(o, "code", code);
    jx_set_str(o, "message", message);
    jx_set_null(o, "param");
    jx_set_null(o, "line");
    jx_add(data, o);
    return fail_with(c, data, e);
}

static int open_input(struct clerk *c, struct err *e)
{
    struct err why = ERR_INIT;

    if (c->input >= 0 ||
        content_open(c->t->conf->batch_root, c->lease->input_file_id, &c->input, &why) == 0)
        return 0;
    if (why.code != ERR_NOT_FOUND)
        return err_set(e, why.code, "%s", why.msg);
    return clerk_fail(c, "input_file_not_found", "The input file is gone.", e);
}

/* A cancel may have come first; then the row says so. */
static int look_again(struct clerk *c, int rc, struct err *e)
{
    bool late = false;

    return rc == 1 ? batch_lease_look(c->t->db, c->lease, &c->lease->status, &late, e) : rc;
}

int clerk_validate(struct clerk *c, struct err *e)
{
    struct validated *v = mem_calloc(1, sizeof *v);
    cleanup_free struct validated *owned = v;
    const struct conf *conf = c->t->conf;
    const struct validate_options o = { .input = c->input,
        .folder = c->folder,
        .endpoint = batch_endpoint_find(c->lease->endpoint),
        .upstream = c->t->upstream,
        .lines_max = conf->batch_max_lines,
        .line_max = (size_t)conf->batch_max_line_bytes,
        .tick = { clerk_tick, c } };
    int rc = validate(&o, owned, e);

    if (rc != 0)
        return rc;
    if (v->n > 0)
        return look_again(c, fail_with(c, validated_errors(v), e), e);
    rc = batch_lease_begin(c->t->db, c->lease, v->lines, e);
    if (rc != 0)
        return look_again(c, rc, e);
    c->lease->status = BATCH_IN_PROGRESS;
    c->lease->counts.total = v->lines;
    return 0;
}

/* --- the end --- */

struct result {
    char id[CONTENT_ID_SIZE];
    int64_t bytes;
};

/* One file out of all segments. None when there is nothing to say. */
static int join(struct clerk *c, bool errors, struct result *out, struct err *e)
{
    const char *root = c->t->conf->batch_root;
    const struct segment_tick tick = { clerk_tick, c };
    cleanup_fd int fd = -1;
    int64_t wanted = 0;

    out->id[0] = '\0';
    for (size_t i = 0; i < c->n_past; i++)
        wanted += errors ? c->past[i].error_bytes : c->past[i].output_bytes;
    if (wanted == 0)
        return 0;
    content_new_id(out->id);
    if (content_create(root, out->id, &fd, e) < 0)
        return -1;
    const struct segment_choice all = { c->folder, c->past, c->n_past, errors };
    const int rc = segments_join(&all, fd, &tick, &out->bytes, e);
    return rc != 0 ? rc : content_land(root, out->id, fd, e);
}

static void forget(struct clerk *c, const struct result *r)
{
    struct err ignored = ERR_INIT; /* housekeeping finds it */

    if (r->id[0] != '\0')
        (void)!content_remove(c->t->conf->batch_root, r->id, &ignored);
}

/* The row last: a file that has one is there. */
static int land(struct clerk *c, struct err *e)
{
    struct result output = { .id = "" };
    struct result errors = { .id = "" };
    int rc = join(c, false, &output, e);

    if (rc == 0)
        rc = join(c, true, &errors, e);
    if (rc == 0) {
        const struct batch_result out = { output.id, output.bytes };
        const struct batch_result err = { errors.id, errors.bytes };
        rc = batch_lease_land(c->t->db, c->lease, &out, &err, e);
        if (rc < 0)
            return rc; /* it may have happened all the same */
    }
    if (rc != 0) {
        forget(c, &output);
        forget(c, &errors);
    }
    return rc;
}

/* With the segment of this epoch, if it has one, as the last. */
static int load_segments(struct clerk *c, struct err *e)
{
    free(c->past);
    c->past = NULL;
    c->n_past = 0;
    struct batch_lease next = *c->lease;
    next.epoch++;
    return batch_lease_segments(c->t->db, &next, &c->past, &c->n_past, e);
}

static int steps(struct clerk *c, bool *stopped, struct err *e)
{
    int rc = content_work(c->t->conf->batch_root, c->lease->id, &c->folder, e);

    if (rc == 0 && (c->lease->status == BATCH_VALIDATING || c->lease->status == BATCH_IN_PROGRESS))
        rc = open_input(c, e);
    if (rc == 0 && !c->failed && c->lease->status == BATCH_VALIDATING)
        rc = clerk_validate(c, e);
    if (rc == 0 && !c->failed && c->lease->status == BATCH_IN_PROGRESS)
        rc = clerk_run_lines(c, stopped, e);
    if (rc != 0 || c->failed || *stopped)
        return rc;
    rc = load_segments(c, e);
    return rc != 0 ? rc : land(c, e);
}

static void release(struct clerk *c)
{
    struct err ignored = ERR_INIT; /* then the lease runs out */
    if (batch_lease_release(c->t->db, c->lease, &ignored) != 0)
        log_info(LOG_MSG("a batch could not be handed back"), LOG_S("batch", c->lease->id));
}

static void clear(struct clerk *c)
{
    struct err ignored = ERR_INIT; /* housekeeping finds it */
    (void)!content_work_remove(c->t->conf->batch_root, c->lease->id, &ignored);
}

enum clerk_end clerk_run(const struct clerk_tools *t, struct batch_lease *lease, struct err *e)
{
    struct clerk c = {
        .t = t, .lease = lease, .folder = -1, .input = -1, .renewed_ns = clock_mono_ns()
    };
    enum clerk_end end = CLERK_ENDED;
    bool stopped = false;
    const int rc = steps(&c, &stopped, e);

    if (rc > 0) {
        end = CLERK_LOST;
        metric_add(METRIC_BATCHES_LOST, 1);
    } else if (rc < 0 || stopped) {
        end = CLERK_HANDED_BACK;
        release(&c);
    } else {
        clear(&c);
        metric_add(METRIC_BATCHES_ENDED, 1);
    }
    if (c.folder >= 0)
        close(c.folder);
    if (c.input >= 0)
        close(c.input);
    free(c.past);
    return end;
}
