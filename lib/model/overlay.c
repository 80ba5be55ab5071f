/* SPDX-License-Identifier: Apache-2.0 */
#include "model/overlay.h"

#include <math.h>
#include <string.h>

#include "base/digest.h"
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

/* What load_claim_short() makes of a token; 16 of the digits. */
static void short_hash(const char *token, char out[CLAIM_SHORT_SIZE])
{
    char hex[DIGEST_HEX_SIZE];
    digest_hex(token, strlen(token), hex);
    (void)str_copy(out, CLAIM_SHORT_SIZE, hex); /* cut on purpose */
}

static bool looks_like_token(const char *session)
{
    const size_t digits = TOKEN_HEX_SIZE - 1;
    return strlen(session) == digits && strspn(session, "0123456789abcdef") == digits;
}

const char *overlay_session(const char *session, char room[CLAIM_SHORT_SIZE])
{
    if (session == NULL || !looks_like_token(session))
        return or_empty(session);
    short_hash(session, room);
    return room;
}

bool overlay_is_owners_session(const struct overlay *old, const char *session)
{
    char hash[CLAIM_SHORT_SIZE];
    if (str_empty(session) || strlen(old->claim) != CLAIM_SHORT_SIZE - 1)
        return false;
    short_hash(session, hash);
    return strcmp(old->claim, hash) == 0;
}

static bool is_new_owner(const struct overlay *old, const char *claim)
{
    return claim[0] != '\0' && old->claim[0] != '\0' && strcmp(old->claim, claim) != 0;
}

/* A claim's overlay is its owner's: any session but his would be believed in his name. session is as
 * overlay_session() has it. */
static bool is_anothers(const struct overlay *old, const char *session)
{
    if (session[0] != '\0' && old->claim[0] != '\0')
        return true;
    return old->session[0] != '\0' && strcmp(old->session, session) != 0;
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

/* A heartbeat has none: what is stored may be more than its byte counters say. */
bool report_has_numbers(const struct report *r)
{
    return r->bytes_sent >= 0 || r->total_bytes >= 0 || r->file_index >= 0 || r->total_files >= 0;
}

static bool fill_text(const char **stored, const char *given)
{
    if ((*stored)[0] != '\0' || str_empty(given))
        return false;
    *stored = given;
    return true;
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
    if (report_has_numbers(r))
        o->progress = load_progress(o->bytes_sent, o->total_bytes, o->file_index, o->total_files);
}

/* A row holds whatever somebody wrote there. */
static int64_t sane_number(int64_t n)
{
    return n < 0 ? 0 : n < OVERLAY_NUMBER_MAX ? n : OVERLAY_NUMBER_MAX;
}

/* The row supplies what is not known otherwise, and the numbers when it is further. */
static void apply_row(const struct load_row *row, bool first, struct overlay *o)
{
    const struct load_numbers n = load_row_numbers(row);
    (void)fill_text(&o->node_name, row->node_name);
    if (!first && !load_is_further(&n, o->file_index, o->progress))
        return;
    o->bytes_sent = sane_number(n.bytes_sent);
    o->total_bytes = sane_number(n.total_bytes);
    o->file_index = sane_number(n.file_index);
    o->total_files = sane_number(n.total_files);
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

/* A complete file's byte counters are 0 on purpose: its progress is more than they say. */
static bool is_at_complete_file(const struct overlay *o)
{
    return o->bytes_sent == 0 && o->total_bytes == 0 &&
           o->progress > load_progress(0, 0, o->file_index, o->total_files);
}

/* Nothing says that the report is of another file than the one that is stored. */
static bool is_of_stored_file(const struct report *r, const struct overlay *o)
{
    bool name = str_empty(r->file_name) || o->file_name[0] == '\0' ||
                strcmp(r->file_name, o->file_name) == 0;
    bool index = r->file_index <= 0 || o->file_index == 0 || r->file_index == o->file_index;
    return name && index && !is_at_complete_file(o);
}

static bool fill_number(int64_t *stored, int64_t given)
{
    if (*stored != 0 || given <= 0)
        return false;
    *stored = given;
    return true;
}

/* What a late report knows of a file that is stored already, or of none: false when that is nothing
 * new. The byte counters of another file are none of the stored one's. */
static bool fill_file(const struct report *r, struct overlay *o)
{
    bool same = is_of_stored_file(r, o);
    bool filled = fill_text(&o->node_name, r->node_name);
    filled |= fill_number(&o->total_files, r->total_files);
    if (!same)
        return filled;
    filled |= fill_text(&o->file_name, r->file_name);
    filled |= fill_number(&o->file_index, r->file_index);
    filled |= fill_text(&o->speed, r->speed);
    filled |= fill_number(&o->bytes_sent, r->bytes_sent);
    filled |= fill_number(&o->total_bytes, r->total_bytes);
    if (filled)
        o->progress = load_progress(o->bytes_sent, o->total_bytes, o->file_index, o->total_files);
    return filled;
}

/* Was o's message written by overlay_message()? Then it follows the fields. */
static bool wrote_message(const struct overlay *o)
{
    char text[OVERLAY_MESSAGE_MAX];
    overlay_message(text, o->file_name, o->bytes_sent, o->total_bytes, o->speed);
    return strcmp(text, o->message) == 0;
}

/* A report of old's sender that was overtaken: it was acknowledged, so what it alone says is kept, but
 * what is stored is newer. */
static enum report_fate apply_late(const struct overlay *old, const struct report *r,
    struct overlay_scratch *scratch, struct overlay *o)
{
    bool written = wrote_message(old);
    if (r->file_complete)
        return REPORT_OUTDATED;
    bool filled = fill_file(r, o);
    filled |= fill_text(&o->message, r->message);
    filled |= strcmp(o->claim, old->claim) != 0 || strcmp(o->session, old->session) != 0;
    if (!filled)
        return REPORT_OUTDATED;
    if (written)
        o->message = "";
    write_texts(scratch, o);
    return REPORT_APPLIED;
}

/* Who reports, as far as it is stored. False: somebody who may not. */
static bool name_sender(const struct overlay *old, const struct report *r,
    struct overlay_scratch *scratch, struct overlay *o)
{
    o->claim = or_empty(r->claim);
    o->session = "";
    if (o->claim[0] != '\0' || (old && overlay_is_owners_session(old, r->session)))
        return true;
    o->session = overlay_session(r->session, scratch->session);
    return !old || !is_anothers(old, o->session);
}

enum report_fate overlay_apply(const char *key, const struct overlay *old, const struct report *r,
    struct overlay_scratch *scratch, struct overlay *out)
{
    struct overlay sender;
    struct overlay o = { .node_name = "",
        .file_name = "",
        .speed = "",
        .message = "",
        .started_at = "",
        .claim = "",
        .session = "" };
    if (!name_sender(old, r, scratch, &sender))
        return REPORT_CONFLICT;
    bool merged = old && !is_new_owner(old, sender.claim);
    if (merged)
        o = *old; /* a new owner starts afresh */
    o.key = key;
    o.claim = pick_text(sender.claim, o.claim);
    o.session = pick_text(sender.session, o.session);
    o.expires_ns = 0;
    if (merged && is_older(r, old)) {
        enum report_fate fate = apply_late(old, r, scratch, &o);
        if (fate == REPORT_APPLIED)
            *out = o;
        return fate;
    }
    if (r->stamp_us > 0)
        o.stamp_us = r->stamp_us;
    if (r->file_complete)
        apply_file_complete(r, &o);
    else
        apply_progress(r, &o);
    if (r->row != NULL)
        apply_row(r->row, !merged, &o);
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
