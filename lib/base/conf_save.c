/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/conf_pool.h"
#include "base/conf_value.h"
#include "base/str.h"

/* Section, key and value of one option after the other, each with a NUL: an ini file would lose blanks at the
 * ends of values. */

static void put(const char *text, struct buf *out)
{
    buf_add(out, text, strlen(text) + 1);
}

static void save(
    const void *base, const char *section, const struct conf_option *o, struct buf *out)
{
    const void *value = conf_at(base, o);

    put(section, out);
    put(o->key, out);
    switch (o->type) {
    case CONF_STR:
    case CONF_SECRET:
        buf_puts(out, *(char *const *)value);
        break;
    case CONF_INT:
        buf_printf(out, "%" PRId64, *(const int64_t *)value);
        break;
    case CONF_BOOL:
        buf_puts(out, *(const bool *)value ? "on" : "off");
        break;
    }
    buf_putc(out, '\0');
}

void conf_save(const struct conf *c, struct buf *out)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++)
        save(c, CONF_OPTIONS[i].section, &CONF_OPTIONS[i], out);
    for (size_t p = 0; p < c->pools; p++) {
        char section[CONF_VARIABLE_SIZE];
        (void)str_format(section, sizeof section, "pool %s", c->pool[p].name);
        for (size_t i = 0; i < CONF_POOL_OPTION_COUNT; i++)
            save(&c->pool[p], section, &CONF_POOL_OPTIONS[i], out);
    }
}

/* The text that begins at *at and its NUL, before end; *at moves behind it. NULL: there is none. */
static const char *next(const char **at, const char *end)
{
    const char *text = *at;
    const char *nul = text == end ? NULL : memchr(text, '\0', (size_t)(end - text));

    if (nul == NULL)
        return NULL;
    *at = nul + 1;
    return text;
}

/* What this program does not know is another version's. */
static int restore(
    struct conf *c, struct conf_pool_seen *seen, const struct conf_pair *pair, struct err *e)
{
    bool by_file = false;

    if (conf_pool_section(pair->section)) {
        int i = conf_find(CONF_POOL_OPTIONS, CONF_POOL_OPTION_COUNT, "pool", pair->key, &by_file);
        return i < 0 || by_file ? 0 : conf_pool_take(c, seen, pair, e);
    }
    int i = conf_find(CONF_OPTIONS, CONF_OPTION_COUNT, pair->section, pair->key, &by_file);
    return i < 0 || by_file ? 0 : conf_set(c, &CONF_OPTIONS[i], pair->text, pair->where, e);
}

static int restore_all(
    struct conf *c, struct conf_pool_seen *seen, const char *saved, size_t size, struct err *e)
{
    const char *end = saved + size;
    const char *at = saved;

    while (at != end) {
        struct conf_pair pair = { .where = "what was accepted" };
        pair.section = next(&at, end);
        pair.key = pair.section == NULL ? NULL : next(&at, end);
        pair.text = pair.key == NULL ? NULL : next(&at, end);
        if (pair.text == NULL)
            return err_set(e, ERR_INVALID, "%s: cut short", pair.where);
        if (restore(c, seen, &pair, e) < 0)
            return -1;
    }
    if (c->pools == 0 || conf_pool_find(c, c->planner_default_pool) == NULL)
        return err_set(e, ERR_INVALID, "what was accepted: without a pool");
    return 0;
}

int conf_restore(struct conf *c, const char *saved, size_t size, struct err *e)
{
    struct conf new = { .pools = 0 };
    struct conf_pool_seen seen = { .keys = NULL };

    conf_set_defaults(&new, CONF_OPTIONS, CONF_OPTION_COUNT);
    int rc = restore_all(&new, &seen, saved, size, e);
    free(seen.keys);
    if (rc < 0) {
        conf_free(&new);
        return -1;
    }
    *c = new;
    return 0;
}
