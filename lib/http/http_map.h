/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HTTP_MAP_H
#define WB_HTTP_MAP_H

/* libcurl's codes as ours: for http.c. Pure. */
#include <curl/curl.h>

#include "base/err.h"

/* ERR_OK for CURLE_OK; ERR_INTERNAL for what is not in the table. */
enum err_code http_err_code(CURLcode code);

#endif
