/* SPDX-License-Identifier: Apache-2.0 */
#include "model/overlay.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "model/key.h"
#include "model/rfc3339.h"

/* Longest texts that count, in bytes: a varchar's characters take up to four each. The whole value
 * is bounded by OVERLAY_VALUE_MAX besides. */
enum {
    NAME_MAX_BYTES = 4 * 255,
    FILE_MAX_BYTES = 4096,
    MESSAGE_MAX_BYTES = 4 * OVERLAY_MESSAGE_MAX,
    SPEED_MAX_BYTES = 4 * OVERLAY_SPEED_MAX,
    TIME_MAX_BYTES = 64
};

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static const char *pick_text(const char *given, const char *stored)
{
    return str_empty(given) ? stored : given;
}

static int64_t pick_number(int64_t given, int64_t stored)
{
    return given < 0 ? stored : given;
}

/* Claim and session are two slots: a load job's owner may report progress by the one and file names
 * by the other, so each fills a slot that is free and keeps to its own that is not. */
static bool is_new_owner(const struct overlay *old, const char *claim)
{
    return claim[0] != '\0' && old->claim[0] != '\0' && strcmp(old->claim, claim) != 0;
}

static bool is_anothers_session(const struct overlay *old, const char *claim, const char *session)
{
    return claim[0] == '\0' && old->session[0] != '\0' && strcmp(old->session, session) != 0;
}

static bool is_older(const struct report *r, const struct overlay *old)
{
    return r->stamp_us > 0 && r->stamp_us < old->stamp_us;
}

static void apply_file_complete(const struct report *r, struct overlay *o)
{
    o->file_index = pick_number(r->file_index, o->file_index);
    o->total_files = pick_number(r->total_files, o->total_files);
    o->bytes_sent = 0;
    o->total_bytes = 0;
    o->speed = "";
    /* So many whole files: the overall formula with one whole file as the unit. */
    o->progress = load_progress(o->file_index, o->total_files, 0, 0);
}

static void apply_progress(const struct report *r, struct overlay *o)
{
    o->node_name = pick_text(r->node_name, o->node_name);
    o->file_name = pick_text(r->file_name, o->file_name);
    o->speed = pick_text(r->speed, o->speed);
    o->message = or_empty(r->message);
    o->bytes_sent = pick_number(r->bytes_sent, o->bytes_sent);
    o->total_bytes = pick_number(r->total_bytes, o->total_bytes);
    o->file_index = pick_number(r->file_index, o->file_index);
    o->total_files = pick_number(r->total_files, o->total_files);
    o->progress = load_progress(o->bytes_sent, o->total_bytes, o->file_index, o->total_files);
}

/* Texts that the report did not bring and the stored value does not have. */
static void write_texts(struct overlay_scratch *scratch, struct overlay *o)
{
    if (o->message[0] == '\0') {
        overlay_message(scratch->message, o->file_name, o->bytes_sent, o->total_bytes, o->speed);
        o->message = scratch->message;
    }
    if (o->started_at[0] == '\0') {
        rfc3339_us(scratch->started, o->stamp_us);
        o->started_at = scratch->started;
    }
}

enum report_fate overlay_apply(const char *key, const struct overlay *old, const struct report *r,
    struct overlay_scratch *scratch, struct overlay *out)
{
    const char *claim = or_empty(r->claim);
    const char *session = claim[0] ? "" : or_empty(r->session);
    bool merged = old && !is_new_owner(old, claim);
    if (old && is_anothers_session(old, claim, session))
        return REPORT_CONFLICT;
    if (merged && is_older(r, old))
        return REPORT_OUTDATED;

    struct overlay o = { .node_name = "",
        .file_name = "",
        .speed = "",
        .message = "",
        .started_at = "",
        .claim = "",
        .session = "" };
    if (merged)
        o = *old; /* a new owner starts afresh */
    o.key = key;
    o.claim = pick_text(claim, o.claim);
    o.session = pick_text(session, o.session);
    o.expires_ns = 0;
    if (r->stamp_us > 0)
        o.stamp_us = r->stamp_us;
    if (r->file_complete)
        apply_file_complete(r, &o);
    else
        apply_progress(r, &o);
    write_texts(scratch, &o);
    *out = o;
    return merged ? REPORT_APPLIED : REPORT_FIRST;
}

void overlay_bytes_text(char out[32], int64_t bytes)
{
    static const char *const UNIT[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    const size_t last = sizeof UNIT / sizeof UNIT[0] - 1;

    if (bytes < 1024) {
        (void)str_format(out, 32, "%d B", bytes < 0 ? 0 : (int)bytes);
        return;
    }
    double value = (double)bytes / 1024.0;
    size_t u = 0;
    /* 1023.95 would be printed as 1024.0 */
    while (value >= 1023.95 && u < last) {
        value /= 1024.0;
        u++;
    }
    (void)str_format(out, 32, "%.1f %s", value, UNIT[u]);
}

/* Drops the bytes of a character that was cut at the end of valid UTF-8 text. */
static void drop_cut_character(char *text)
{
    size_t end = strlen(text);
    size_t start = end;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start > 0)
        start--;
    if (!str_utf8_valid(text + start, end - start))
        text[start] = '\0';
}

void overlay_message(char out[OVERLAY_MESSAGE_MAX], const char *file_name, int64_t bytes_sent,
    int64_t total_bytes, const char *speed)
{
    int cut = 0;
    if (str_empty(file_name) && bytes_sent > 0 && total_bytes > 0) {
        char sent[32];
        char total[32];
        overlay_bytes_text(sent, bytes_sent);
        overlay_bytes_text(total, total_bytes);
        cut = str_format(out, OVERLAY_MESSAGE_MAX, "Staging model files (%s / %s)", sent, total);
    } else if (str_empty(file_name)) {
        cut = str_copy(out, OVERLAY_MESSAGE_MAX, "Preparing to stage model files");
    } else if (total_bytes <= 0) {
        cut = str_format(out, OVERLAY_MESSAGE_MAX, "Staging %s", file_name);
    } else {
        char sent[32];
        char total[32];
        overlay_bytes_text(sent, bytes_sent);
        overlay_bytes_text(total, total_bytes);
        cut = str_format(out, OVERLAY_MESSAGE_MAX, "%s (%s / %s%s%s)", file_name, sent, total,
            str_empty(speed) ? "" : ", ", or_empty(speed));
    }
    if (cut < 0)
        drop_cut_character(out);
}

static bool is_sane_text(const char *text, size_t max_bytes)
{
    size_t size = strnlen(text, max_bytes + 1);
    return size <= max_bytes && str_utf8_valid(text, size);
}

static bool is_sane_number(int64_t n)
{
    return n >= 0 && n <= OVERLAY_NUMBER_MAX;
}

static bool has_sane_texts(const struct overlay *o)
{
    return key_check(o->key, NULL) == 0 && is_sane_text(o->node_name, NAME_MAX_BYTES) &&
           is_sane_text(o->file_name, FILE_MAX_BYTES) && is_sane_text(o->speed, SPEED_MAX_BYTES) &&
           is_sane_text(o->message, MESSAGE_MAX_BYTES) &&
           is_sane_text(o->started_at, TIME_MAX_BYTES) &&
           is_sane_text(o->claim, CLAIM_SHORT_SIZE - 1) && is_sane_text(o->session, NAME_MAX_BYTES);
}

static bool has_sane_numbers(const struct overlay *o)
{
    return isfinite(o->progress) && o->progress >= 0.0 && o->progress <= 100.0 &&
           is_sane_number(o->bytes_sent) && is_sane_number(o->total_bytes) &&
           is_sane_number(o->file_index) && is_sane_number(o->total_files) &&
           is_sane_number(o->stamp_us);
}

bool overlay_is_sane(const struct overlay *o)
{
    return has_sane_numbers(o) && has_sane_texts(o);
}
