/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <string.h>

#include "base/str.h"

/* The guard of the batch service's files: the web server asks here, with the method and the address of the
 * original request, before it hands the request on with the service's own credentials. Jobs contract,
 * section 3, "Files". */

enum { FILE_ID_MAX = 256 };

/* The file that an address names: 0 with its id; 1 for an address that names none (the list, an upload). */
static int file_of(const char *uri, char out[FILE_ID_MAX], struct err *e)
{
    static const char *const ROOTS[] = { "/api/v1/files", "/v1/files" };
    for (size_t i = 0; i < sizeof(ROOTS) / sizeof(ROOTS[0]); i++) {
        const size_t n = strlen(ROOTS[i]);
        if (strncmp(uri, ROOTS[i], n) != 0)
            continue;
        const char *rest = uri + n;
        if (*rest == '\0' || *rest == '?')
            return 1;
        if (*rest != '/')
            break;
        const size_t size = strcspn(rest + 1, "/?");
        if (size == 6 && strncmp(rest + 1, "upload", size) == 0)
            return 1;
        if (size == 0)
            break;
        return percent_decode(rest + 1, size, false, out, FILE_ID_MAX, e);
    }
    return err_set(e, ERR_FORBIDDEN, "this address names no file");
}

static bool writes(const char *method)
{
    return strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0;
}

int file_access(struct web_req *req, struct web_reply *reply, struct err *e)
{
    const char *uri = fcgi_env(req->fcgi, "WB_ORIGINAL_URI");
    const char *method = fcgi_env(req->fcgi, "WB_ORIGINAL_METHOD");
    char file[FILE_ID_MAX];
    bool named = false;
    bool owned = false;
    if (str_empty(uri) || str_empty(method))
        return err_set(e, ERR_NOT_FOUND, "only the web server asks this");
    if (writes(method) && (req->caller.role & (ROLE_ADMIN | ROLE_SUBMITTER)) == 0)
        return err_set(e, ERR_FORBIDDEN, "files are uploaded by submitters and admins");
    const int none = file_of(uri, file, e);
    if (none < 0)
        return -1;
    if (none == 0 && req->caller.role != ROLE_ADMIN) {
        if (job_file_access(req->db, file, req->caller.subject, &named, &owned, e) < 0)
            return -1;
        if (named && !owned)
            return err_set(e, ERR_FORBIDDEN, "only the job owner can download this file");
        if (!named && strcmp(method, "DELETE") == 0)
            return err_set(e, ERR_FORBIDDEN, "only an admin may delete a file that no job names");
    }
    reply_none(reply);
    return 0;
}
