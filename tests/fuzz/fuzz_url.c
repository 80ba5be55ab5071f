/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a [redis] url. What parses is a place that can be connected to; what does not is not quoted, since it may
 * hold a password. */
#include <sys/un.h>

#include "base/mem.h"
#include "base/str.h"
#include "kv/kv_url.h"
#include "tests/fuzz/fuzz.h"

enum { TELLING = 16 }; /* longer than what a message says by itself */

static void check_place(const struct kv_url *u)
{
    if (u->path != NULL) {
        assert(
            u->path[0] == '/' && strlen(u->path) < sizeof(((struct sockaddr_un *)NULL)->sun_path));
        assert(u->host == NULL && u->password == NULL && u->db == 0);
        return;
    }
    assert(u->host != NULL && u->host[0] != '\0');
    assert(strpbrk(u->host, " \t/@?#[]\"'\\") == NULL);
    assert(u->port >= 1 && u->port <= UINT16_MAX);
    assert(u->db >= 0 && u->db <= KV_DB_MAX);
    assert(u->password == NULL || u->password[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = ERR_INIT;
    cleanup_free char *url = mem_dup(data, size);
    cleanup_kv_url struct kv_url u = KV_URL_INIT;
    if (kv_url_parse(url, &u, &e) == 0) {
        check_place(&u);
        return 0;
    }
    assert(e.code == ERR_INVALID && e.msg[0] != '\0');
    assert(u.path == NULL && u.host == NULL && u.password == NULL);
    assert(strlen(url) < TELLING || strstr(e.msg, url) == NULL);
    return 0;
}
