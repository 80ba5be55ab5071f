/* SPDX-License-Identifier: Apache-2.0 */
#include "model/load_job.h"

#include <string.h>

#include "base/clock.h"

static const char *const STATE_NAME[LOAD_STATE__COUNT] = {
#define LOAD_STATE(id, name, doc) [LOAD_##id] = (name),
#include "model/load_state.def"
#undef LOAD_STATE
};

const char *load_state_name(enum load_state s)
{
    return s < LOAD_STATE__COUNT ? STATE_NAME[s] : "unknown";
}

enum load_state load_state_parse(const char *name)
{
    unsigned s = 0;
    while (s < LOAD_STATE__COUNT && strcmp(STATE_NAME[s], name) != 0)
        s++;
    return (enum load_state)s;
}

/* A stamp as it counts: 0 when unset, now when it lies in the future. */
static int64_t not_after(int64_t stamp_us, int64_t now_us)
{
    if (stamp_us <= 0)
        return 0;
    return stamp_us < now_us ? stamp_us : now_us;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t load_liveness_us(const struct load_row *r, int64_t now_us)
{
    int64_t written = later(not_after(r->updated_us, now_us), not_after(r->created_us, now_us));
    return later(not_after(r->last_progress_us, now_us), written);
}

bool load_is_stale(const struct load_row *r, int64_t now_us)
{
    return now_us - load_liveness_us(r, now_us) > LOAD_ORPHAN_US;
}

bool load_failed_is_gone(const struct load_row *r, int64_t now_us)
{
    /* A failed row is not written again, so its liveness is when it failed. */
    return r->state == LOAD_FAILED && now_us - load_liveness_us(r, now_us) > LOAD_FAILED_KEEP_US;
}

bool load_may_be_replaced(const struct load_row *r, bool overlay_live, int64_t now_us)
{
    if (r->state == LOAD_FAILED)
        return load_failed_is_gone(r, now_us);
    return !overlay_live && load_is_stale(r, now_us);
}

double load_progress(
    int64_t bytes_sent, int64_t total_bytes, int64_t file_index, int64_t total_files)
{
    double file = total_bytes > 0 ? (double)bytes_sent / (double)total_bytes * 100.0 : 0.0;
    double all = file;
    if (total_files > 1 && file_index >= 1)
        all = (((double)file_index - 1.0) * 100.0 + file) / (double)total_files;
    if (all < 0.0)
        return 0.0;
    return all > 100.0 ? 100.0 : all;
}

double load_heartbeat_age_s(const struct load_row *r, int64_t now_us)
{
    return (double)(now_us - load_liveness_us(r, now_us)) / (double)US_PER_S;
}

bool load_is_stalled(const struct load_row *r, int64_t now_us)
{
    if (r->state == LOAD_FAILED)
        return false;
    if (r->created_us > 0 && now_us - not_after(r->created_us, now_us) > LOAD_TOO_LONG_US)
        return true;
    int64_t moved_us = r->bytes_moved_us > 0 ? r->bytes_moved_us : r->updated_us;
    return r->state == LOAD_STAGING && now_us - not_after(moved_us, now_us) > LOAD_STALL_US;
}

bool load_eta_s(const struct load_row *r, int64_t now_us, double *out)
{
    if (r->state != LOAD_STAGING || r->bytes_sent <= 0 || r->bytes_sent >= r->total_bytes)
        return false;
    if (r->started_us <= 0 || r->started_us > now_us || now_us - r->started_us < US_PER_S)
        return false;
    double elapsed_s = (double)(now_us - r->started_us) / (double)US_PER_S;
    *out = (double)(r->total_bytes - r->bytes_sent) * elapsed_s / (double)r->bytes_sent;
    return true;
}

double load_progress_of(const struct load_numbers *n)
{
    return load_progress(n->bytes_sent, n->total_bytes, n->file_index, n->total_files);
}

bool load_is_further(const struct load_numbers *a, int64_t b_file_index, double b_progress)
{
    if (a->file_index != b_file_index)
        return a->file_index > b_file_index;
    return load_progress_of(a) > b_progress;
}

struct load_numbers load_row_numbers(const struct load_row *r)
{
    return (struct load_numbers){ .bytes_sent = r->bytes_sent,
        .total_bytes = r->total_bytes,
        .file_index = r->file_index,
        .total_files = r->total_files };
}
