/* SPDX-License-Identifier: Apache-2.0 */
#include "model/fetch_rules.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"

enum { NUMBER_SIZE = 20, WAIT_MAX_S = 3600 };
enum {
    OK = 200,
    PARTIAL = 206,
    UNAUTHORIZED = 401,
    FORBIDDEN = 403,
    NOT_FOUND = 404,
    REQUEST_TIMEOUT = 408,
    GONE = 410,
    BAD_RANGE = 416,
    TOO_EARLY = 425,
    TOO_MANY = 429,
    UNAVAILABLE = 503,
    SERVER_ERROR = 500
};

/* Takes the digits at *at; no sign, no space, no more than fit. */
static int take_number(const char **at, int64_t *out)
{
    char digits[NUMBER_SIZE];
    const size_t n = strspn(*at, "0123456789");

    if (n == 0 || n >= sizeof digits)
        return -1;
    memcpy(digits, *at, n);
    digits[n] = '\0';
    *at += n;
    return str_to_i64(digits, 0, INT64_MAX, out);
}

static int take_char(const char **at, char c)
{
    if (**at != c)
        return -1;
    ++*at;
    return 0;
}

int content_range_parse(const char *text, struct content_range *out)
{
    struct content_range r = { 0, 0, 0 };
    const char *at = text;

    if (!str_starts(at, "bytes "))
        return -1;
    at += sizeof "bytes " - 1;
    if (take_number(&at, &r.first) < 0 || take_char(&at, '-') < 0 ||
        take_number(&at, &r.last) < 0 || take_char(&at, '/') < 0 ||
        take_number(&at, &r.total) < 0 || *at != '\0')
        return -1;
    if (r.first > r.last || r.last >= r.total)
        return -1;
    *out = r;
    return 0;
}

/* The number of a member `name=N`, which begins the text or follows one of " ;,". -1: there is none. */
static int64_t member(const char *text, const char *name)
{
    const size_t size = strlen(name);

    for (const char *at = text; (at = strstr(at, name)) != NULL; at += size) {
        int64_t value = 0;
        const bool begins = at == text || strchr(" ;,", at[-1]) != NULL;
        const char *number = at + size + 1;
        if (begins && at[size] == '=' && take_number(&number, &value) == 0)
            return value;
    }
    return -1;
}

int64_t rate_limit_wait_ms(const char *text)
{
    int64_t left = member(text, "r");
    int64_t reset_s = member(text, "t");

    if (left < 0 && reset_s < 0) {
        left = member(text, "remaining");
        reset_s = member(text, "reset");
    }
    if (left != 0 || reset_s <= 0)
        return 0;
    return (reset_s < WAIT_MAX_S ? reset_s : WAIT_MAX_S) * MS_PER_S;
}

static enum mishap_reason reason_of(const struct fetch_answer *a)
{
    switch (a->status) {
    case OK:
        return MISHAP_RANGE_IGNORED;
    case UNAUTHORIZED:
    case FORBIDDEN:
        return a->url_expired ? MISHAP_EXPIRED : MISHAP_FORBIDDEN;
    case NOT_FOUND:
    case GONE:
        return MISHAP_NOT_FOUND;
    case BAD_RANGE:
        return MISHAP_RANGE_REFUSED;
    case REQUEST_TIMEOUT:
    case TOO_EARLY:
        return MISHAP_TIMEOUT;
    case TOO_MANY:
        return MISHAP_THROTTLED;
    default:
        return a->status >= SERVER_ERROR ? MISHAP_SERVER_ERROR : MISHAP_REFUSED;
    }
}

static int judge_status(const struct fetch_answer *a, struct mishap *m)
{
    const enum mishap_reason reason = reason_of(a);

    (void)mishap_set(m, reason, "status %d", a->status);
    m->status = a->status;
    if (a->status == TOO_MANY || a->status == UNAVAILABLE) {
        const int64_t limit_ms = a->rate_limit == NULL ? 0 : rate_limit_wait_ms(a->rate_limit);
        m->wait_ms = limit_ms > a->retry_after_ms ? limit_ms : a->retry_after_ms;
    }
    return -1;
}

static int judge_encoding(const struct fetch_answer *a, struct mishap *m)
{
    if (str_empty(a->content_encoding) || strcmp(a->content_encoding, "identity") == 0)
        return 0;
    (void)mishap_set(m, MISHAP_REFUSED, "Content-Encoding %.40s, where identity was asked for",
        a->content_encoding);
    m->status = a->status;
    return -1;
}

int fetch_judge(
    const struct fetch_answer *a, int64_t first, int64_t size, int64_t total, struct mishap *m)
{
    struct content_range r;

    if (a->status != PARTIAL)
        return judge_status(a, m);
    if (judge_encoding(a, m) < 0)
        return -1;
    if (a->content_range == NULL || content_range_parse(a->content_range, &r) < 0) {
        (void)mishap_set(m, MISHAP_WRONG_RANGE, "a 206 without a usable Content-Range");
    } else if (r.total != total) {
        (void)mishap_set(m, MISHAP_SIZE_CHANGED, "the file has %lld bytes there, not %lld",
            (long long)r.total, (long long)total);
    } else if (r.first != first || r.last != first + size - 1) {
        (void)mishap_set(m, MISHAP_WRONG_RANGE, "bytes %lld-%lld came, not %lld-%lld",
            (long long)r.first, (long long)r.last, (long long)first, (long long)(first + size - 1));
    } else {
        return 0;
    }
    m->status = a->status;
    return -1;
}

int fetch_judge_whole(const struct fetch_answer *a, struct mishap *m)
{
    return a->status != OK ? judge_status(a, m) : judge_encoding(a, m);
}

/* The value of a query parameter: where it begins, or NULL. */
static const char *parameter(const char *url, const char *name)
{
    const size_t size = strlen(name);

    for (const char *at = strchr(url, '?'); at != NULL; at = strchr(at + 1, '&')) {
        if (strncmp(at + 1, name, size) == 0 && at[1 + size] == '=')
            return at + 2 + size;
    }
    return NULL;
}

static int64_t number_of(const char *text)
{
    int64_t value = -1;

    return text != NULL && take_number(&text, &value) == 0 ? value : -1;
}

bool url_expired(const char *url, int64_t now_s)
{
    const char *date = parameter(url, "X-Amz-Date");
    const int64_t amz_s = number_of(parameter(url, "X-Amz-Expires"));
    struct tm tm = { .tm_year = 0 };

    if (date != NULL && amz_s >= 0 && strptime(date, "%Y%m%dT%H%M%SZ", &tm) != NULL)
        return (int64_t)timegm(&tm) + amz_s < now_s;
    int64_t at_s = number_of(parameter(url, "Expires"));
    if (at_s < 0)
        at_s = number_of(parameter(url, "expires"));
    return at_s >= 0 && at_s < now_s;
}
