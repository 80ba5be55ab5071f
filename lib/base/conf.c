/* SPDX-License-Identifier: Apache-2.0 */
#include "base/conf.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <ini.h>

#include "base/conf_pool.h"
#include "base/conf_value.h"
#include "base/mem.h"
#include "base/str.h"

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
    bool begins;                  /* the last line was a section's: its mark comes next */
    bool mark;                    /* the last line was such a mark, none of the file's */
    bool seen[CONF_OPTION_COUNT]; /* set by the file */
    struct conf_pool_seen seen_pools;
    struct err *e;
};

static void close_file(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

#define cleanup_file __attribute__((cleanup(close_file)))

void conf_variable(const struct conf_option *o, const char *suffix, char out[CONF_VARIABLE_SIZE])
{
    (void)str_format(out, CONF_VARIABLE_SIZE, "WB_%s_%s%s", o->section, o->key, suffix);
    for (char *p = out; *p; p++)
        *p = (char)toupper((unsigned char)*p);
}

static bool has_section(const char *section)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        if (strcmp(section, CONF_OPTIONS[i].section) == 0)
            return true;
    }
    return false;
}

static int begin_section(struct load *l, const char *section)
{
    char where[WHERE_SIZE];

    (void)str_format(where, sizeof where, "%s:%d: [%s]", l->path, l->line, section);
    if (conf_pool_section(section))
        return conf_pool_begin(&l->conf, &l->seen_pools, section, where, l->e);
    return has_section(section) ? 0 : err_set(l->e, ERR_INVALID, "%s: no such section", where);
}

static int take(struct load *l, const char *section, const char *key, const char *text)
{
    bool by_file = false;
    char where[WHERE_SIZE];

    (void)str_format(where, sizeof where, "%s:%d: [%s] %s", l->path, l->line, section, key);
    if (l->mark)
        return begin_section(l, section);
    if (conf_pool_section(section))
        return conf_pool_take(
            &l->conf, &l->seen_pools, &(struct conf_pair){ section, key, text, where }, l->e);
    int i = conf_find(CONF_OPTIONS, CONF_OPTION_COUNT, section, key, &by_file);
    if (i < 0 && !has_section(section))
        return err_set(l->e, ERR_INVALID, "%s: no such section", where);
    if (i < 0)
        return err_set(l->e, ERR_INVALID, "%s: no such key", where);
    if (l->seen[i])
        return err_set(l->e, ERR_INVALID, "%s: set twice", where);
    l->seen[i] = true;
    if (by_file)
        return conf_set_from_file(&l->conf, &CONF_OPTIONS[i], text, where, l->e);
    return conf_set(&l->conf, &CONF_OPTIONS[i], text, where, l->e);
}

static int on_pair(void *user, const char *section, const char *key, const char *text)
{
    struct load *l = user;

    if (!l->failed)
        l->failed = take(l, section, key, text) != 0;
    return !l->failed;
}

/* As inih looks at a line. */
static bool is_section(const char *line, bool first)
{
    static const char BOM[] = "\xEF\xBB\xBF";

    if (first && str_starts(line, BOM))
        line += sizeof BOM - 1;
    return line[strspn(line, " \t\v\f\r")] == '[';
}

/* Hands inih one whole line, so that none is ever cut or split, and counts them. After that of a section comes
 * a key of ours, as the library calls its handler for keys alone, and a section may have none. */
static char *next_line(char *line, int size, void *user)
{
    struct load *l = user;

    if (l->failed)
        return NULL;
    l->mark = l->begins;
    l->begins = false;
    if (l->mark)
        return str_copy(line, (size_t)size, "begins =\n") < 0 ? NULL : line;
    if (!fgets(line, size, l->file))
        return NULL;
    l->line++;
    size_t len = strlen(line);
    if (len > 0 && (line[len - 1] == '\n' || feof(l->file))) {
        l->begins = is_section(line, l->line == 1);
        return line;
    }
    l->failed = true;
    (void)err_set(l->e, ERR_INVALID, "%s:%d: line too long, or it holds a NUL", l->path, l->line);
    return NULL;
}

/* inih as the library is built cuts lines at 200 bytes, takes " ;" in a value for a comment and an
 * indented line for more of the value before. */
static void set_up_inih(void)
{
    ini_use_stack = false;
    ini_initial_alloc = CONF_LINE_MAX;
    ini_max_line = CONF_LINE_MAX;
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
            l->e, ERR_INVALID, "%s:%d: neither a [section] nor a key = value", l->path, l->line);
    return 0;
}

static int read_environment(struct conf *c, struct err *e)
{
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        char name[CONF_VARIABLE_SIZE];
        conf_variable(&CONF_OPTIONS[i], "", name);
        if (conf_set_from_environment(c, &CONF_OPTIONS[i], name, e) < 0)
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

    conf_set_defaults(&l.conf, CONF_OPTIONS, CONF_OPTION_COUNT);
    int r = path ? read_file(&l) : 0;
    free(l.seen_pools.keys);
    if (r < 0 || read_environment(&l.conf, e) < 0 || conf_pool_finish(&l.conf, e) < 0) {
        conf_free(&l.conf);
        return -1;
    }
    *c = l.conf;
    return 0;
}

void conf_free(struct conf *c)
{
    conf_clear(c, CONF_OPTIONS, CONF_OPTION_COUNT);
    conf_pool_clear(c);
}
