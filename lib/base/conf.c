/* SPDX-License-Identifier: Apache-2.0 */
#include "base/conf.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include <ini.h>

#include "base/conf_table.h"
#include "base/mem.h"
#include "base/str.h"

/* Longest line of the file, and longest file of a secret: the longest text option, its name, and
 * some air. */
enum { LINE_MAX_BYTES = 8192, LINE_ENDING = 3 };

enum { WHERE_SIZE = 160 };

const struct conf_option CONF_OPTIONS[CONF_OPTION_COUNT] = {
#define OPT(section_, key_, type_, dflt_, min_, max_, help_) \
    { .section = #section_, \
        .key = #key_, \
        .dflt = (dflt_), \
        .help = (help_), \
        .min = (min_), \
        .max = (max_), \
        .type = CONF_##type_, \
        .offset = offsetof(struct conf, section_##_##key_) },
#include "base/options.def"
#undef OPT
};

/* One run of conf_load(). */
struct load {
    struct conf conf;
    const char *path;
    FILE *file;
    int line;
    bool failed;                  /* *e is set */
    bool seen[CONF_OPTION_COUNT]; /* set by the file */
    struct err *e;
};

static void close_file(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

#define cleanup_file __attribute__((cleanup(close_file)))

const void *conf_at(const struct conf *c, const struct conf_option *o)
{
    return (const char *)c + o->offset;
}

static void *at(struct conf *c, const struct conf_option *o)
{
    return (char *)c + o->offset;
}

void conf_variable(const struct conf_option *o, const char *suffix, char out[CONF_VARIABLE_SIZE])
{
    (void)str_format(out, CONF_VARIABLE_SIZE, "WB_%s_%s%s", o->section, o->key, suffix);
    for (char *p = out; *p; p++)
        *p = (char)toupper((unsigned char)*p);
}

static bool is_text(enum conf_type type)
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

/* Checks the text and stores it. where names the place in messages; the text is never in them, as
 * it may be a secret. */
static int set_option(
    struct conf *c, const struct conf_option *o, const char *text, const char *where, struct err *e)
{
    if (is_text(o->type))
        return set_text(at(c, o), o, text, where, e);
    if (o->type == CONF_INT)
        return set_int(at(c, o), o, text, where, e);
    return set_bool(at(c, o), text, where, e);
}

static void set_defaults(struct conf *c)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        struct err e = ERR_INIT;
        if (is_text(o->type))
            mem_replace(at(c, o), o->dflt);
        else if (set_option(c, o, o->dflt, o->key, &e) != 0)
            abort();
    }
}

/* Sets a secret to what the file at path holds, without its last newline. */
static int set_from_file(
    struct conf *c, const struct conf_option *o, const char *path, const char *where, struct err *e)
{
    char text[LINE_MAX_BYTES + LINE_ENDING];
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
    int r = set_option(c, o, text, where, e);
    explicit_bzero(text, sizeof text);
    return r;
}

/* The option of that name; for "x_file" of a secret x that option with *by_file set. */
static int find(const char *section, const char *key, bool *by_file)
{
    for (int i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        if (strcmp(section, o->section) != 0 || !str_starts(key, o->key))
            continue;
        const char *rest = key + strlen(o->key);
        *by_file = o->type == CONF_SECRET && strcmp(rest, "_file") == 0;
        if (*by_file || *rest == '\0')
            return i;
    }
    return -1;
}

static bool has_section(const char *section)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        if (strcmp(section, CONF_OPTIONS[i].section) == 0)
            return true;
    }
    return false;
}

static int take(struct load *l, const char *section, const char *key, const char *text)
{
    bool by_file = false;
    char where[WHERE_SIZE];
    int i = find(section, key, &by_file);

    (void)str_format(where, sizeof where, "%s:%d: [%s] %s", l->path, l->line, section, key);
    if (i < 0 && !has_section(section))
        return err_set(l->e, ERR_INVALID, "%s: no such section", where);
    if (i < 0)
        return err_set(l->e, ERR_INVALID, "%s: no such key", where);
    if (l->seen[i])
        return err_set(l->e, ERR_INVALID, "%s: set twice", where);
    l->seen[i] = true;
    if (by_file)
        return set_from_file(&l->conf, &CONF_OPTIONS[i], text, where, l->e);
    return set_option(&l->conf, &CONF_OPTIONS[i], text, where, l->e);
}

static int on_pair(void *user, const char *section, const char *key, const char *text)
{
    struct load *l = user;

    if (!l->failed)
        l->failed = take(l, section, key, text) != 0;
    return !l->failed;
}

/* Hands inih one whole line, so that none is ever cut or split, and counts them. */
static char *next_line(char *line, int size, void *user)
{
    struct load *l = user;

    if (l->failed || !fgets(line, size, l->file))
        return NULL;
    l->line++;
    size_t len = strlen(line);
    if (len > 0 && line[len - 1] == '\n')
        return line;
    if (feof(l->file) && len > 0)
        return line;
    l->failed = true;
    (void)err_set(l->e, ERR_INVALID, "%s:%d: line too long, or it holds a NUL", l->path, l->line);
    return NULL;
}

/* inih as the library is built cuts lines at 200 bytes, takes " ;" in a value for a comment and an
 * indented line for more of the value before. */
static void set_up_inih(void)
{
    ini_use_stack = false;
    ini_initial_alloc = LINE_MAX_BYTES;
    ini_max_line = LINE_MAX_BYTES;
    ini_allow_multiline = false;
    ini_allow_inline_comments = false;
    ini_stop_on_first_error = true;
}

static int read_file(struct load *l)
{
    cleanup_file FILE *file = fopen(l->path, "re");

    if (!file)
        return err_errno(l->e, errno == ENOENT ? ERR_NOT_FOUND : ERR_INVALID, "%s", l->path);
    l->file = file;
    set_up_inih();
    int bad_line = ini_parse_stream(next_line, l, on_pair, l);
    l->file = NULL;
    if (l->failed)
        return -1;
    if (ferror(file))
        return err_set(l->e, ERR_INVALID, "%s: cannot be read", l->path);
    if (bad_line != 0)
        return err_set(
            l->e, ERR_INVALID, "%s:%d: neither a [section] nor a key = value", l->path, bad_line);
    return 0;
}

static int read_environment(struct conf *c, struct err *e)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        char name[CONF_VARIABLE_SIZE];
        char file_name[CONF_VARIABLE_SIZE];
        conf_variable(o, "", name);
        conf_variable(o, "_FILE", file_name);
        const char *text = getenv(name);
        const char *path = o->type == CONF_SECRET ? getenv(file_name) : NULL;
        if (text && path)
            return err_set(e, ERR_INVALID, "%s: set beside %s", file_name, name);
        if (text && set_option(c, o, text, name, e) != 0)
            return -1;
        if (path && set_from_file(c, o, path, file_name, e) != 0)
            return -1;
    }
    return 0;
}

const char *conf_usual_path(void)
{
    const char *path = getenv("WB_CONFIG");
    if (!str_empty(path))
        return path;
    return access(CONF_USUAL_PATH, F_OK) == 0 ? CONF_USUAL_PATH : NULL;
}

int conf_load(struct conf *c, const char *path, struct err *e)
{
    struct load l = { .path = path, .e = e };

    set_defaults(&l.conf);
    if ((path && read_file(&l) != 0) || read_environment(&l.conf, e) != 0) {
        conf_free(&l.conf);
        return -1;
    }
    *c = l.conf;
    return 0;
}

void conf_free(struct conf *c)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        if (!is_text(o->type))
            continue;
        char **slot = at(c, o);
        if (*slot && o->type == CONF_SECRET)
            explicit_bzero(*slot, strlen(*slot));
        free(*slot);
        *slot = NULL;
    }
}
