/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_map.h"

#include "http/http.h"

static const struct {
    CURLcode code;
    enum err_code err;
} TABLE[] = {
    { CURLE_OK, ERR_OK },
    { CURLE_OPERATION_TIMEDOUT, ERR_TIMEOUT },
    { CURLE_COULDNT_RESOLVE_HOST, ERR_UNAVAILABLE },
    { CURLE_COULDNT_RESOLVE_PROXY, ERR_UNAVAILABLE },
    { CURLE_COULDNT_CONNECT, ERR_UNAVAILABLE },
    { CURLE_PROXY, ERR_UNAVAILABLE },
    { CURLE_INTERFACE_FAILED, ERR_UNAVAILABLE },
    { CURLE_GOT_NOTHING, ERR_UNAVAILABLE },
    { CURLE_SEND_ERROR, ERR_UNAVAILABLE },
    { CURLE_RECV_ERROR, ERR_UNAVAILABLE },
    { CURLE_PARTIAL_FILE, ERR_UNAVAILABLE },
    { CURLE_HTTP2, ERR_UNAVAILABLE },
    { CURLE_HTTP2_STREAM, ERR_UNAVAILABLE },
    { CURLE_SSL_CONNECT_ERROR, ERR_UNAVAILABLE },
    { CURLE_PEER_FAILED_VERIFICATION, ERR_UNAVAILABLE },
    { CURLE_SSL_CACERT_BADFILE, ERR_UNAVAILABLE },
    { CURLE_SSL_CERTPROBLEM, ERR_UNAVAILABLE },
    { CURLE_ABORTED_BY_CALLBACK, ERR_UNAVAILABLE },
    { CURLE_UNSUPPORTED_PROTOCOL, ERR_INVALID },
    { CURLE_URL_MALFORMAT, ERR_INVALID },
    { CURLE_LOGIN_DENIED, ERR_INVALID }, /* a user in the URL */
    { CURLE_WRITE_ERROR, ERR_TOO_LARGE },
    { CURLE_FILESIZE_EXCEEDED, ERR_TOO_LARGE },
    { CURLE_OUT_OF_MEMORY, ERR_INTERNAL },
    { CURLE_WEIRD_SERVER_REPLY, ERR_INTERNAL },
};

enum err_code http_err_code(CURLcode code)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (TABLE[i].code == code)
            return TABLE[i].err;
    }
    return ERR_INTERNAL;
}

enum http_class http_classify(int status)
{
    enum { REQUEST_TIMEOUT = 408, TOO_EARLY = 425, TOO_MANY = 429, SERVER_ERROR = 500 };
    if (status >= 200 && status < 300)
        return HTTP_CLASS_OK;
    if (status == REQUEST_TIMEOUT || status == TOO_EARLY || status == TOO_MANY ||
        status >= SERVER_ERROR)
        return HTTP_CLASS_RETRY;
    return HTTP_CLASS_REFUSED;
}
