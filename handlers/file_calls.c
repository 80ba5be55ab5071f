/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <string.h>

#include "base/str.h"

/* The guard of the batch service's files: the web server asks here, with the method of the original request and the
 * path that it is going to ask the service for, before it hands the request on with the service's own credentials.
 * Jobs contract, section 3, "Files". */

enum { FILE_ID_MAX = 256 };

enum what { FILE_LIST, FILE_ITSELF, FILE_CONTENT };

static const char FILES[] = "/v1/files";

/* What a path of the service is, and of which file. The web server has decoded it: nothing is escaped here. */
static int file_of(const char *path, char id[FILE_ID_MAX], enum what *what, struct err *e)
{
    if (!str_starts(path, FILES))
        return err_set(e, ERR_NOT_FOUND, "this address names no file");
    const char *rest = path + sizeof(FILES) - 1;
    *what = FILE_LIST;
    if (*rest == '\0')
        return 0;
    const size_t size = *rest == '/' ? strcspn(rest + 1, "/") : 0;
    if (size == 0 || size >= FILE_ID_MAX)
        return err_set(e, ERR_NOT_FOUND, "this address names no file");
    memcpy(id, rest + 1, size);
    id[size] = '\0';
    rest += 1 + size;
    *what = *rest == '\0' ? FILE_ITSELF : FILE_CONTENT;
    if (*rest != '\0' && strcmp(rest, "/content") != 0)
        return err_set(e, ERR_NOT_FOUND, "a file has nothing but its content");
    return 0;
}

static int check_method(const char *method, enum what what, bool *writes, struct err *e)
{
    *writes = strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0;
    if (!*writes || (what == FILE_LIST && strcmp(method, "POST") == 0) ||
        (what == FILE_ITSELF && strcmp(method, "DELETE") == 0))
        return 0;
    return err_set(e, ERR_METHOD, "files are uploaded, listed, read and deleted");
}

static int check_owner(struct web_req *req, const char *file, bool writes, struct err *e)
{
    bool named = false;
    bool owned = false;
    if (job_file_access(req->db, file, req->caller.subject, &named, &owned, e) < 0)
        return -1;
    if (named && !owned)
        return err_set(e, ERR_FORBIDDEN, "only the job owner can reach this file");
    if (!named && writes)
        return err_set(e, ERR_FORBIDDEN, "only an admin may delete a file that no job names");
    return 0;
}

int file_access(struct web_req *req, struct web_reply *reply, struct err *e)
{
    const char *path = fcgi_env(req->fcgi, "WB_FILES_PATH");
    const char *method = fcgi_env(req->fcgi, "WB_ORIGINAL_METHOD");
    char file[FILE_ID_MAX];
    enum what what = FILE_LIST;
    bool writes = false;
    if (str_empty(path) || str_empty(method))
        return err_set(e, ERR_NOT_FOUND, "only the web server asks this");
    if (file_of(path, file, &what, e) < 0 || check_method(method, what, &writes, e) < 0)
        return -1;
    if (writes && (req->caller.role & (ROLE_ADMIN | ROLE_SUBMITTER)) == 0)
        return err_set(e, ERR_FORBIDDEN, "files are uploaded by submitters and admins");
    if (what != FILE_LIST && req->caller.role != ROLE_ADMIN &&
        check_owner(req, file, writes, e) < 0)
        return -1;
    reply_none(reply);
    return 0;
}
