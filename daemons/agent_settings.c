/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "fetch/service.h"

enum { HOST_MAX = 256 };

static int name_of_host(struct settings *s, struct err *e)
{
    char host[HOST_MAX] = "";

    if (gethostname(host, sizeof host - 1) < 0)
        return err_errno(e, ERR_INTERNAL, "the host name");
    host[strcspn(host, ".")] = '\0';
    for (char *at = host; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
    if (artifact_name_check("the host name", host, VERSION_NAME_MAX, e) < 0)
        return err_wrap(e, "[agent] node is not set");
    return str_copy(s->node, sizeof s->node, host);
}

static int fill(struct settings *s, const struct settings_from *from, struct err *e)
{
    struct mishap m = MISHAP_INIT;

    if (conf_load(&s->conf, from->config, e) < 0)
        return -1;
    s->root = from->root != NULL ? from->root : s->conf.agent_root;
    if (str_empty(s->conf.agent_url))
        return err_set(e, ERR_INVALID, "[agent] url is not set");
    if (service_url_check(s->conf.agent_url, e) < 0)
        return err_wrap(e, "[agent] url");
    if (agent_read_token(from->token_file, &s->conf, s->token, &m) < 0)
        return err_set(e, ERR_INVALID, "%s", m.text);
    if (str_empty(s->conf.agent_node))
        return name_of_host(s, e);
    if (artifact_name_check("[agent] node", s->conf.agent_node, VERSION_NAME_MAX, e) < 0)
        return -1;
    return str_copy(s->node, sizeof s->node, s->conf.agent_node);
}

int settings_read(const struct settings_from *from, struct settings **out, struct err *e)
{
    struct settings *s = mem_calloc(1, sizeof *s);

    atomic_store(&s->users, 1);
    if (fill(s, from, e) < 0) {
        settings_drop(s);
        return -1;
    }
    *out = s;
    return 0;
}

struct settings *settings_use(struct settings *s)
{
    atomic_fetch_add(&s->users, 1);
    return s;
}

void settings_drop(struct settings *s)
{
    if (s == NULL || atomic_fetch_sub(&s->users, 1) > 1)
        return;
    conf_free(&s->conf);
    explicit_bzero(s->token, sizeof s->token);
    free(s);
}
