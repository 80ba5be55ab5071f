/* SPDX-License-Identifier: Apache-2.0 */
#include "base/conf_pool.h"

#include <assert.h>
#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "base/conf_value.h"
#include "base/mem.h"
#include "base/str.h"

/* inih cuts what is between the brackets at 49 bytes: a name that was cut is longer than these. */
enum { POOLS_MAX = 256, NAME_MAX_BYTES = 40 };

const struct conf_option CONF_POOL_OPTIONS[CONF_POOL_OPTION_COUNT] = {
#define OPT(section_, key_, type_, dflt_, min_, max_, help_) \
    { .section = #section_, \
        .key = #key_, \
        .dflt = (dflt_), \
        .help = (help_), \
        .min = (min_), \
        .max = (max_), \
        .type = CONF_##type_, \
        .offset = offsetof(struct conf_pool, key_) },
#include "base/pool_options.def"
#undef OPT
};

static_assert(CONF_POOL_OPTION_COUNT <= 32, "one bit for each option");

static const char WORD[] = "pool";
static const char FIRST[] = "default";

bool conf_pool_section(const char *section)
{
    const size_t n = sizeof WORD - 1;
    return strncmp(section, WORD, n) == 0 && (section[n] == '\0' || section[n] == ' ');
}

static bool is_name(const char *name)
{
    const size_t size = strlen(name);

    if (size == 0 || size > NAME_MAX_BYTES || !isalnum((unsigned char)name[0]))
        return false;
    for (const char *p = name; *p; p++) {
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-')
            return false;
    }
    return true;
}

void conf_pool_variable(const char *pool, const struct conf_option *o, char out[CONF_VARIABLE_SIZE])
{
    (void)str_format(out, CONF_VARIABLE_SIZE, "WB_%s_%s_%s", o->section, pool, o->key);
    for (char *p = out; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

/* Names that differ only in what variables do not tell apart. */
static bool too_like(const char *a, const char *b)
{
    char x[CONF_VARIABLE_SIZE];
    char y[CONF_VARIABLE_SIZE];
    conf_pool_variable(a, &CONF_POOL_OPTIONS[0], x);
    conf_pool_variable(b, &CONF_POOL_OPTIONS[0], y);
    return strcmp(x, y) == 0;
}

static struct conf_pool *add(struct conf *c, const char *name)
{
    c->pool = mem_resize(c->pool, c->pools + 1, sizeof *c->pool);
    struct conf_pool *p = &c->pool[c->pools++];
    memset(p, 0, sizeof *p);
    p->name = mem_kept(mem_strdup(name));
    conf_set_defaults(p, CONF_POOL_OPTIONS, CONF_POOL_OPTION_COUNT);
    return p;
}

/* The place of the pool of a section, which is made if need be; -1 with e. */
static int place_of(struct conf *c, struct conf_pool_seen *seen, const char *section,
    const char *where, struct err *e)
{
    const char *name = section + sizeof WORD - 1;

    if (*name++ != ' ' || !is_name(name))
        return err_set(e, ERR_INVALID,
            "%s: one space and the pool's name, 1 to %d letters, digits, - or _", where,
            NAME_MAX_BYTES);
    for (size_t i = 0; i < c->pools; i++) {
        if (strcmp(c->pool[i].name, name) == 0)
            return (int)i;
        if (too_like(c->pool[i].name, name))
            return err_set(e, ERR_INVALID, "%s: too like [pool %s]", where, c->pool[i].name);
    }
    if (c->pools == POOLS_MAX)
        return err_set(e, ERR_INVALID, "%s: more than %d pools", where, POOLS_MAX);
    add(c, name);
    seen->keys = mem_resize(seen->keys, c->pools, sizeof *seen->keys);
    seen->keys[c->pools - 1] = 0;
    return (int)c->pools - 1;
}

int conf_pool_begin(struct conf *c, struct conf_pool_seen *seen, const char *section,
    const char *where, struct err *e)
{
    return place_of(c, seen, section, where, e) < 0 ? -1 : 0;
}

int conf_pool_take(
    struct conf *c, struct conf_pool_seen *seen, const struct conf_pair *pair, struct err *e)
{
    bool by_file = false;
    const int at = place_of(c, seen, pair->section, pair->where, e);
    if (at < 0)
        return -1;
    const int i = conf_find(CONF_POOL_OPTIONS, CONF_POOL_OPTION_COUNT, WORD, pair->key, &by_file);
    if (i < 0)
        return err_set(e, ERR_INVALID, "%s: no such key", pair->where);
    if (seen->keys[at] & 1U << i)
        return err_set(e, ERR_INVALID, "%s: set twice", pair->where);
    seen->keys[at] |= 1U << i;
    if (by_file)
        return conf_set_from_file(&c->pool[at], &CONF_POOL_OPTIONS[i], pair->text, pair->where, e);
    return conf_set(&c->pool[at], &CONF_POOL_OPTIONS[i], pair->text, pair->where, e);
}

static int read_environment(struct conf_pool *p, struct err *e)
{
    for (size_t i = 0; i < CONF_POOL_OPTION_COUNT; i++) {
        char name[CONF_VARIABLE_SIZE];
        conf_pool_variable(p->name, &CONF_POOL_OPTIONS[i], name);
        if (conf_set_from_environment(p, &CONF_POOL_OPTIONS[i], name, e) < 0)
            return -1;
    }
    return 0;
}

int conf_pool_finish(struct conf *c, struct err *e)
{
    if (c->pools == 0) {
        if (!str_empty(c->planner_default_pool) && !is_name(c->planner_default_pool))
            return err_set(e, ERR_INVALID, "[planner] default_pool: no name of a pool");
        add(c, str_empty(c->planner_default_pool) ? FIRST : c->planner_default_pool);
    }
    for (size_t i = 0; i < c->pools; i++) {
        if (read_environment(&c->pool[i], e) < 0)
            return -1;
    }
    if (str_empty(c->planner_default_pool))
        mem_replace(&c->planner_default_pool, c->pool[0].name);
    if (conf_pool_find(c, c->planner_default_pool) == NULL)
        return err_set(e, ERR_INVALID, "[planner] default_pool: there is no such [pool] section");
    return 0;
}

const struct conf_pool *conf_pool_find(const struct conf *c, const char *name)
{
    for (size_t i = 0; i < c->pools; i++) {
        if (strcmp(c->pool[i].name, name) == 0)
            return &c->pool[i];
    }
    return NULL;
}

void conf_pool_clear(struct conf *c)
{
    for (size_t i = 0; i < c->pools; i++) {
        conf_clear(&c->pool[i], CONF_POOL_OPTIONS, CONF_POOL_OPTION_COUNT);
        free(c->pool[i].name);
    }
    free(c->pool);
    c->pool = NULL;
    c->pools = 0;
}
