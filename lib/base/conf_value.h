/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CONF_VALUE_H
#define WB_CONF_VALUE_H

/* One value of the configuration: checking its text and storing it. For the conf files of this folder.
 * base is the struct that the option's offset is in. where names the place in messages; the text is
 * never in them, as it may be a secret. */
#include "base/conf_table.h"
#include "base/err.h"

/* Longest line of the file, and longest file of a secret: the longest text option, its name, and
 * some air. */
enum { CONF_LINE_MAX = 8192 };

bool conf_is_text(enum conf_type type);

/* ERR_INVALID: out of range, or no such value; the value is then as before. */
int conf_set(void *base, const struct conf_option *o, const char *text, const char *where,
    struct err *e) WARN_UNUSED;

/* Sets a secret to what the file at path holds, without its last newline. */
int conf_set_from_file(void *base, const struct conf_option *o, const char *path, const char *where,
    struct err *e) WARN_UNUSED;

/* Sets the option from its variable and, for a secret, from the file that "<variable>_FILE" names.
 * ERR_INVALID also when both are set. */
int conf_set_from_environment(
    void *base, const struct conf_option *o, const char *variable, struct err *e) WARN_UNUSED;

/* Fills a zeroed base with the defaults of n options, and frees (secrets: wipes) its texts. */
void conf_set_defaults(void *base, const struct conf_option *options, size_t n);
void conf_clear(void *base, const struct conf_option *options, size_t n);

/* The option of that key and section among n; for "x_file" of a secret x that one with *by_file set.
 * -1: none. */
int conf_find(const struct conf_option *options, size_t n, const char *section, const char *key,
    bool *by_file);

#endif
