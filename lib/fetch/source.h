/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SOURCE_H
#define WB_SOURCE_H

/* Where the bytes of a version can be had: below MANIFEST_URL, and at the urls that the manifest itself names, which count as one source per
 * scheme, host and port. Artifacts contract section 2 ("urls") and 4. Read-only once it is made: any thread. */
#include <stdbool.h>

#include "base/buf.h"
#include "http/http_get.h"
#include "model/fetch_plan.h"
#include "model/manifest.h"

enum { SOURCE_NAME_SIZE = 300, SOURCE_URL_MAX = 8192 };

struct source_rules {
    const char *token; /* borrowed, as all texts are; NULL: none. Sent below MANIFEST_URL, and to */
    const char *token_urls; /* prefixes, separated by spaces; NULL: none */
    const char *
        local_urls; /* prefixes of manifest urls that may be plain http, or lead to this host or link */
};

struct sources;
void sources_free(struct sources *s); /* NULL is fine */
static inline void sources_free_p(struct sources **s)
{
    sources_free(*s);
}
#define cleanup_sources __attribute__((cleanup(sources_free_p)))

/* manifest_url NULL: no such source. Manifest urls that may not be used (no https) are left out. */
struct sources *sources_new(const struct manifest *m, const char *manifest_url,
    const struct source_rules *rules) OWNED_BY(sources_free);

size_t sources_count(const struct sources *s);

/* "https://host:port": no path, no query, no user. */
const char *sources_name(const struct sources *s, size_t source);

/* Has that source that file? */
bool sources_has(const struct sources *s, size_t source, size_t file);

/* How to ask that source for that file: the URL appended to *url; *token is NULL where none is to be sent. */
void sources_url(const struct sources *s, size_t source, size_t file, struct buf *url,
    const char **token, enum http_peer *peer);

/* May this URL be a MANIFEST_URL? https, or http to a loopback address. ERR_INVALID. *peer: where it may lead. */
int source_url_check(const char *url, enum http_peer *peer, struct err *e) WARN_UNUSED;

/* Does the URL lie at or below one of the prefixes? A prefix ends at a '/', or at the URL's end: https://a is none of https://a.b. URLs
 * with "." or ".." segments, a backslash or a user lie below nothing. */
bool source_url_below(const char *url, const char *prefixes);

#endif
