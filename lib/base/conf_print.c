/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/conf.h"
#include "base/conf_table.h"

static void print_value(const void *base, const struct conf_option *o, struct buf *out)
{
    const void *value = conf_at(base, o);

    switch (o->type) {
    case CONF_SECRET:
        buf_printf(out, "# %s = %s\n", o->key, **(char *const *)value ? "***" : "");
        break;
    case CONF_STR:
        buf_printf(out, "%s = %s\n", o->key, *(char *const *)value);
        break;
    case CONF_INT:
        buf_printf(out, "%s = %" PRId64 "\n", o->key, *(const int64_t *)value);
        break;
    case CONF_BOOL:
        buf_printf(out, "%s = %s\n", o->key, *(const bool *)value ? "on" : "off");
        break;
    }
}

void conf_print(const struct conf *c, struct buf *out)
{
    const char *section = "";

    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        if (strcmp(section, o->section) != 0)
            buf_printf(out, "%s[%s]\n", *section ? "\n" : "", o->section);
        section = o->section;
        print_value(c, o, out);
    }
    for (size_t p = 0; p < c->pools; p++) {
        buf_printf(out, "\n[pool %s]\n", c->pool[p].name);
        for (size_t i = 0; i < CONF_POOL_OPTION_COUNT; i++)
            print_value(&c->pool[p], &CONF_POOL_OPTIONS[i], out);
    }
}

/* Text in a table's cell: a bar would end the cell. */
static void put_cell(const char *text, struct buf *out)
{
    for (; *text; text++) {
        if (*text == '|')
            buf_putc(out, '\\');
        buf_putc(out, *text);
    }
}

static void print_type(const struct conf_option *o, struct buf *out)
{
    switch (o->type) {
    case CONF_SECRET:
        buf_printf(out, "secret, up to %" PRId64 " bytes", o->max);
        break;
    case CONF_STR:
        buf_printf(out, "text, %sup to %" PRId64 " bytes", o->min ? "not empty, " : "", o->max);
        break;
    case CONF_INT:
        buf_printf(out, "%" PRId64 " to %" PRId64, o->min, o->max);
        break;
    case CONF_BOOL:
        buf_puts(out, "on or off");
        break;
    }
}

static void print_row(const struct conf_option *o, const char *variable, struct buf *out)
{
    buf_printf(out, "| `%s` | ", o->key);
    print_type(o, out);
    buf_printf(out, *o->dflt ? " | `%s`" : " | %s", *o->dflt ? o->dflt : "empty");
    buf_printf(out, " | `%s` | ", variable);
    put_cell(o->help, out);
    if (o->type == CONF_SECRET)
        buf_printf(out, ". Or `%s_file`, `%s_FILE`: a file that holds it", o->key, variable);
    buf_puts(out, " |\n");
}

static void print_section(const char *section, struct buf *out)
{
    buf_printf(out,
        "\n## [%s]\n\n| key | value | default | variable | meaning |\n|---|---|---|---|---|\n",
        section);
}

void conf_markdown(struct buf *out)
{
    const char *section = "";
    char variable[CONF_VARIABLE_SIZE];

    buf_puts(out,
        "# Configuration\n\n"
        "Written by `weighbridge-operations --print-config=markdown`; edit lib/base/options.def instead.\n\n"
        "Values come from the defaults, then from the configuration file (`[section]`, then `key = value`\n"
        "lines; a line that begins with `#` or `;` is a comment), then from environment variables. An\n"
        "unknown section or key in the file is an error, as is a value out of range.\n");
    for (size_t i = 0; i < CONF_OPTION_COUNT; i++) {
        const struct conf_option *o = &CONF_OPTIONS[i];
        if (strcmp(section, o->section) != 0)
            print_section(o->section, out);
        section = o->section;
        conf_variable(o, "", variable);
        print_row(o, variable, out);
    }
    print_section("pool NAME", out);
    for (size_t i = 0; i < CONF_POOL_OPTION_COUNT; i++) {
        conf_pool_variable("NAME", &CONF_POOL_OPTIONS[i], variable);
        print_row(&CONF_POOL_OPTIONS[i], variable, out);
    }
    buf_puts(out,
        "\nA section for each pool, under names of 1 to 40 letters, digits, - and _. Without any there is one pool,\n"
        "`default`. In the variable the name stands in capitals, - as _; it counts for pools that there are.\n");
}
