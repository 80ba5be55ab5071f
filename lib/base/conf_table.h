/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CONF_TABLE_H
#define WB_CONF_TABLE_H

/* The rows of options.def and pool_options.def as tables: for the conf files of this folder only. */
#include <stddef.h>
#include <stdint.h>

#include "base/conf.h"

enum conf_type { CONF_STR, CONF_SECRET, CONF_INT, CONF_BOOL };

struct conf_option {
    const char *section;
    const char *key;
    const char *dflt;
    const char *help;
    int64_t min;
    int64_t max;
    enum conf_type type;
    size_t offset; /* of the value in struct conf or struct conf_pool */
};

enum conf_index {
#define OPT(section, key, type, dflt, min, max, help) CONF_AT_##section##_##key,
#include "base/options.def"
#undef OPT
    CONF_OPTION_COUNT
};

enum conf_pool_index {
#define OPT(section, key, type, dflt, min, max, help) CONF_POOL_AT_##key,
#include "base/pool_options.def"
#undef OPT
    CONF_POOL_OPTION_COUNT
};

extern const struct conf_option CONF_OPTIONS[CONF_OPTION_COUNT];
extern const struct conf_option CONF_POOL_OPTIONS[CONF_POOL_OPTION_COUNT];

/* Where the value of an option lies: char *, int64_t or bool by its type. base: the struct conf or the
 * struct conf_pool that has it. */
const void *conf_at(const void *base, const struct conf_option *o);

enum { CONF_VARIABLE_SIZE = 128 };

/* "WB_SECTION_KEY" and the suffix. */
void conf_variable(const struct conf_option *o, const char *suffix, char out[CONF_VARIABLE_SIZE]);

/* "WB_POOL_NAME_KEY", each '-' of the name as '_'. */
void conf_pool_variable(
    const char *pool, const struct conf_option *o, char out[CONF_VARIABLE_SIZE]);

#endif
