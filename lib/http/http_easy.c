/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_easy.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"

enum { RETRY_AFTER_MAX_S = 3600, HEADER_MAX = 8192 };

static void global_init(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        abort();
}

CURL *http_easy_new(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, global_init);
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        abort();
    return easy;
}

void http_easy_must(CURLcode code)
{
    if (code != CURLE_OK)
        abort();
}

void http_easy_long(CURL *easy, CURLoption option, int64_t value)
{
    http_easy_must(curl_easy_setopt(easy, option, (long)value));
}

void http_easy_text(CURL *easy, CURLoption option, const char *text)
{
    http_easy_must(curl_easy_setopt(easy, option, text));
}

void http_easy_policy(CURL *easy, const struct http_options *o)
{
    curl_easy_reset(easy);
    http_easy_long(easy, CURLOPT_NOSIGNAL, 1L);
    http_easy_text(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    http_easy_long(easy, CURLOPT_FOLLOWLOCATION, 0L);
    http_easy_long(easy, CURLOPT_MAXREDIRS, 0L);
    http_easy_long(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    http_easy_long(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    http_easy_long(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    http_easy_long(easy, CURLOPT_CONNECTTIMEOUT_MS, o->connect_ms);
    http_easy_text(
        easy, CURLOPT_USERAGENT, str_empty(o->user_agent) ? "weighbridge" : o->user_agent);
    if (!str_empty(o->ca_file))
        http_easy_text(easy, CURLOPT_CAINFO, o->ca_file);
    if (o->direct)
        http_easy_text(easy, CURLOPT_NOPROXY, "*");
    if (!str_empty(o->unix_socket))
        http_easy_text(easy, CURLOPT_UNIX_SOCKET_PATH, o->unix_socket);
}

void http_easy_header(struct curl_slist **list, const char *name, const char *value)
{
    cleanup_buf struct buf line = BUF_INIT(HEADER_MAX);
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line.data);
    if (longer == NULL)
        abort();
    explicit_bzero(line.data, line.len);
    *list = longer;
}

void http_easy_bearer(struct curl_slist **list, const char *secret)
{
    cleanup_buf struct buf value = BUF_INIT(HEADER_MAX);
    buf_printf(&value, "Bearer %s", secret);
    http_easy_header(list, "Authorization", value.data);
    explicit_bzero(value.data, value.len);
}

bool http_easy_is_one_line(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (iscntrl((unsigned char)*p))
            return false;
    }
    return true;
}

const char *http_easy_answer_header(CURL *easy, const char *name)
{
    struct curl_header *header = NULL;
    return curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK ? header->value
                                                                                   : NULL;
}

int64_t http_easy_retry_after_ms(CURL *easy)
{
    curl_off_t retry_s = 0;
    (void)curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_s);
    if (retry_s > RETRY_AFTER_MAX_S)
        retry_s = RETRY_AFTER_MAX_S;
    return retry_s > 0 ? retry_s * MS_PER_S : 0;
}

CURLcode http_easy_result(CURLM *multi)
{
    int left = 0;
    const CURLMsg *msg = curl_multi_info_read(multi, &left);
    return msg != NULL && msg->msg == CURLMSG_DONE ? msg->data.result : CURLE_FAILED_INIT;
}
