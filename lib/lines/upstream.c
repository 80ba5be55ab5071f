/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/upstream.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

struct entry {
    char *model;
    char *url;
};

struct upstream {
    char *fallback; /* NULL: none */
    struct entry *entry;
    size_t n;
};

void upstream_close(struct upstream *u)
{
    if (u == NULL)
        return;
    for (size_t i = 0; i < u->n; i++) {
        free(u->entry[i].model);
        free(u->entry[i].url);
    }
    free(u->entry);
    free(u->fallback);
    free(u);
}

static int take_url(const char *text, char **out, struct err *e)
{
    if (!str_starts(text, "http://") && !str_starts(text, "https://"))
        return err_set(e, ERR_INVALID, "must begin with http:// or https://");
    if (strpbrk(text, "?#@ \t") != NULL)
        return err_set(e, ERR_INVALID, "must have no user, query or fragment");
    char *url = mem_strdup(text);
    size_t size = strlen(url);
    while (size > 0 && url[size - 1] == '/')
        url[--size] = '\0';
    if (str_ends(url, "/v1")) /* as other clients of such servers want it */
        url[size - strlen("/v1")] = '\0';
    *out = url;
    return 0;
}

static int add(struct upstream *u, char *pair, struct err *e)
{
    char *at = strrchr(pair, '=');
    char *url = NULL;

    if (at == NULL || at == pair)
        return err_set(e, ERR_INVALID, "[batch] models: must be MODEL=URL, separated by spaces");
    *at = '\0';
    if (take_url(at + 1, &url, e) < 0)
        return err_wrap(e, "[batch] models: %.64s", pair);
    u->entry = mem_resize(u->entry, u->n + 1, sizeof *u->entry);
    u->entry[u->n].model = mem_strdup(pair);
    u->entry[u->n++].url = mem_kept(url);
    return 0;
}

int upstream_open(const struct conf *conf, struct upstream **out, struct err *e)
{
    cleanup_upstream struct upstream *u = mem_calloc(1, sizeof *u);
    cleanup_free char *models = mem_strdup(conf->batch_models);
    char *rest = models;

    if (!str_empty(conf->batch_upstream) && take_url(conf->batch_upstream, &u->fallback, e) < 0)
        return err_wrap(e, "[batch] upstream");
    for (char *pair = strsep(&rest, " "); pair != NULL; pair = strsep(&rest, " ")) {
        if (pair[0] != '\0' && add(u, pair, e) < 0)
            return -1;
    }
    *out = STEAL(u);
    return 0;
}

bool upstream_any(const struct upstream *u)
{
    return u->fallback != NULL || u->n > 0;
}

const char *upstream_of(const struct upstream *u, const char *model)
{
    for (size_t i = 0; i < u->n; i++) {
        if (strcmp(u->entry[i].model, model) == 0)
            return u->entry[i].url;
    }
    return u->fallback;
}
