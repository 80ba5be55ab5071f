/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HTTP_EASY_H
#define WB_HTTP_EASY_H

/* What all handles of libcurl of ours have in common: the policy that http.h states. For the files of this folder. */
#include <curl/curl.h>
#include <stdbool.h>

#include "http/http.h"

/* A new handle; the first call sets libcurl up. Never NULL. */
CURL *http_easy_new(void);

/* Sets the handle back and to the policy: protocols, no redirects, certificates, connect_ms, user agent, unix socket. */
void http_easy_policy(CURL *easy, const struct http_options *o);

/* Options; one that is refused is a defect of ours and aborts. */
void http_easy_long(CURL *easy, CURLoption option, int64_t value);
void http_easy_text(CURL *easy, CURLoption option, const char *text);
void http_easy_must(CURLcode code);

/* Appends "name: value". */
void http_easy_header(struct curl_slist **list, const char *name, const char *value);

/* Appends "Authorization: Bearer secret". */
void http_easy_bearer(struct curl_slist **list, const char *secret);

/* Text that cannot break out of its header line. */
bool http_easy_is_one_line(const char *text);

/* The value of a header of the last answer, or NULL; libcurl's, until the handle is used again. */
const char *http_easy_answer_header(CURL *easy, const char *name);

/* Retry-After of the last answer in ms, at most an hour; 0: none. */
int64_t http_easy_retry_after_ms(CURL *easy);

/* How a handle that was alone in that multi ended. */
CURLcode http_easy_result(CURLM *multi);

static inline void http_slist_free_p(struct curl_slist **list)
{
    curl_slist_free_all(*list);
}
#define cleanup_slist __attribute__((cleanup(http_slist_free_p)))

#endif
