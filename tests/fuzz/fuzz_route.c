/* SPDX-License-Identifier: Apache-2.0 */
/* Input: method, newline, address. Whatever matches has whole, decoded parameters. */
#include "base/mem.h"
#include "base/str.h"
#include "web/route.h"
#include "tests/fuzz/fuzz.h"

static const struct web_route ROUTES[] = {
    { "GET", "/api/operations", NULL, 0, 0 },
    { "POST", "/api/operations/{jobID}/cancel", NULL, 0, 0 },
    { "GET", "/api/v1/staging/{key}", NULL, 0, 0 },
    { "PUT", "/api/v1/staging/{key}", NULL, 0, 0 },
    { "GET", "/{a}/{b}/{c}/{d}", NULL, 0, 0 },
};

/* No part of a decoded segment is a dot segment. */
static int has_dots(const char *value)
{
    const char *end = value + strlen(value);
    for (const char *at = value; at <= end; at += strcspn(at, "/") + 1) {
        size_t n = strcspn(at, "/");
        if ((n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return 1;
    }
    return 0;
}

static void check_match(const struct route_match *m)
{
    assert(m->route != NULL && m->params <= ROUTE_PARAMS_MAX);
    for (size_t i = 0; i < m->params; i++) {
        const char *value = m->value[i];
        assert(value >= m->text && value < m->text + sizeof(m->text));
        size_t n = strnlen(value, (size_t)(m->text + sizeof(m->text) - value));
        assert(value + n < m->text + sizeof(m->text));
        assert(n > 0 && str_utf8_valid(value, n) && !has_dots(value));
        assert(m->name_size[i] > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct route_match m;
    struct err e = ERR_INIT;
    cleanup_free char *text = mem_dup(data, size);
    char *uri = strchr(text, '\n');
    if (uri == NULL)
        return 0;
    *uri++ = '\0';
    if (route_find(ROUTES, sizeof(ROUTES) / sizeof(ROUTES[0]), text, uri, &m, &e) == 0) {
        check_match(&m);
        return 0;
    }
    assert(e.code == ERR_INVALID || e.code == ERR_NOT_FOUND || e.code == ERR_METHOD);
    assert((e.code == ERR_METHOD) == (m.allow[0] != '\0') || e.code == ERR_INVALID);
    return 0;
}
