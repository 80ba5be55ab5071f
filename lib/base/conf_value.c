/* SPDX-License-Identifier: Apache-2.0 */
#include "base/conf_value.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"

enum { LINE_ENDING = 3 };

static void close_file(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

#define cleanup_file __attribute__((cleanup(close_file)))

const void *conf_at(const void *base, const struct conf_option *o)
{
    return (const char *)base + o->offset;
}

static void *at(void *base, const struct conf_option *o)
{
    return (char *)base + o->offset;
}

bool conf_is_text(enum conf_type type)
{
    return type == CONF_STR || type == CONF_SECRET;
}

static int set_text(
    char **slot, const struct conf_option *o, const char *text, const char *where, struct err *e)
{
    size_t size = strlen(text);

    if (size < (size_t)o->min)
        return err_set(e, ERR_INVALID, "%s: must not be empty", where);
    if (size > (size_t)o->max)
        return err_set(e, ERR_INVALID, "%s: longer than %" PRId64 " bytes", where, o->max);
    for (const char *p = text; *p; p++) {
        if (iscntrl((unsigned char)*p))
            return err_set(e, ERR_INVALID, "%s: holds a control character", where);
    }
    mem_replace(slot, text);
    return 0;
}

static int set_int(
    int64_t *slot, const struct conf_option *o, const char *text, const char *where, struct err *e)
{
    if (str_to_i64(text, o->min, o->max, slot) != 0)
        return err_set(e, ERR_INVALID, "%s: must be a number from %" PRId64 " to %" PRId64, where,
            o->min, o->max);
    return 0;
}

static int set_bool(bool *slot, const char *text, const char *where, struct err *e)
{
    static const char *const ON[] = { "on", "yes", "true", "1" };
    static const char *const OFF[] = { "off", "no", "false", "0" };

    for (size_t i = 0; i < sizeof ON / sizeof ON[0]; i++) {
        bool on = strcasecmp(text, ON[i]) == 0;
        if (on || strcasecmp(text, OFF[i]) == 0) {
            *slot = on;
            return 0;
        }
    }
    return err_set(e, ERR_INVALID, "%s: must be on or off", where);
}

int conf_set(
    void *base, const struct conf_option *o, const char *text, const char *where, struct err *e)
{
    if (conf_is_text(o->type))
        return set_text(at(base, o), o, text, where, e);
    if (o->type == CONF_INT)
        return set_int(at(base, o), o, text, where, e);
    return set_bool(at(base, o), text, where, e);
}

int conf_set_from_file(
    void *base, const struct conf_option *o, const char *path, const char *where, struct err *e)
{
    char text[CONF_LINE_MAX + LINE_ENDING];
    cleanup_file FILE *file = fopen(path, "re");

    if (!file)
        return err_errno(e, ERR_INVALID, "%s: %s", where, path);
    size_t size = fread(text, 1, sizeof text - 1, file);
    if (ferror(file))
        return err_errno(e, ERR_INVALID, "%s: %s", where, path);
    text[size] = '\0';
    if (memchr(text, '\0', size))
        return err_set(e, ERR_INVALID, "%s: %s holds a NUL", where, path);
    if (size > 0 && text[size - 1] == '\n')
        text[--size] = '\0';
    if (size > 0 && text[size - 1] == '\r')
        text[--size] = '\0';
    int r = conf_set(base, o, text, where, e);
    explicit_bzero(text, sizeof text);
    return r;
}

int conf_set_from_environment(
    void *base, const struct conf_option *o, const char *variable, struct err *e)
{
    char file_name[CONF_VARIABLE_SIZE];
    const char *text = getenv(variable);
    const char *path = NULL;

    if (o->type == CONF_SECRET && str_format(file_name, sizeof file_name, "%s_FILE", variable) == 0)
        path = getenv(file_name);
    if (text && path)
        return err_set(e, ERR_INVALID, "%s: set beside %s", file_name, variable);
    if (text && conf_set(base, o, text, variable, e) != 0)
        return -1;
    return path ? conf_set_from_file(base, o, path, file_name, e) : 0;
}

void conf_set_defaults(void *base, const struct conf_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct conf_option *o = &options[i];
        struct err e = ERR_INIT;
        if (conf_is_text(o->type))
            mem_replace(at(base, o), o->dflt);
        else if (conf_set(base, o, o->dflt, o->key, &e) != 0)
            abort();
    }
}

void conf_clear(void *base, const struct conf_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct conf_option *o = &options[i];
        if (!conf_is_text(o->type))
            continue;
        char **slot = at(base, o);
        if (*slot && o->type == CONF_SECRET)
            explicit_bzero(*slot, strlen(*slot));
        free(*slot);
        *slot = NULL;
    }
}

int conf_find(const struct conf_option *options, size_t n, const char *section, const char *key,
    bool *by_file)
{
    for (size_t i = 0; i < n; i++) {
        const struct conf_option *o = &options[i];
        if (strcmp(section, o->section) != 0 || !str_starts(key, o->key))
            continue;
        const char *rest = key + strlen(o->key);
        *by_file = o->type == CONF_SECRET && strcmp(rest, "_file") == 0;
        if (*by_file || *rest == '\0')
            return (int)i;
    }
    return -1;
}
