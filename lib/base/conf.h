/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CONF_H
#define WB_CONF_H

/* Configuration: defaults, then one ini file, then WB_SECTION_KEY environment variables, all from
 * the one table in options.def. Unknown sections or keys in the file are errors, as are values out
 * of range; unknown WB_ variables are not looked at (WB_URL and the like belong to others).
 * A text option whose name ends in _file names a file; for a SECRET option x also x_file=PATH is
 * accepted and read at start, its trailing newline removed.
 *
 * [pool NAME] sections, options in pool_options.def, may be there any number of times under different
 * names. WB_POOL_NAME_KEY variables count for the pools of the file (and for `default` when it has none). */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

#define CONF_TYPE_STR    char *
#define CONF_TYPE_SECRET char *
#define CONF_TYPE_INT    int64_t
#define CONF_TYPE_BOOL   bool

/* A [pool NAME] section: a provisioner and the policy that plans for it. */
struct conf_pool {
    char *name;
#define OPT(section, key, type, dflt, min, max, help) CONF_TYPE_##type key;
#include "base/pool_options.def"
#undef OPT
};

struct conf {
    struct conf_pool
        *pool; /* in the file's order; at least one, "default" when the file has none */
    size_t pools;
#define OPT(section, key, type, dflt, min, max, help) CONF_TYPE_##type section##_##key;
#include "base/options.def"
#undef OPT
};

/* Where the configuration lies unless --config says so: $WB_CONFIG, else this file if there is one, else NULL
 * (no file). Borrowed. */
#define CONF_USUAL_PATH SYSCONFDIR "/weighbridge/weighbridge.ini"
const char *conf_usual_path(void);

/* Fills *c. path may be NULL: no file. Failures: ERR_NOT_FOUND (no such file), ERR_INVALID with
 * file, line, section and key, but never a secret's value. On failure *c is untouched. */
int conf_load(struct conf *c, const char *path, struct err *e) WARN_UNUSED;
void conf_free(struct conf *c);
#define cleanup_conf __attribute__((cleanup(conf_free)))

/* All effective values, secrets included, for handing them on to another process of ours; nobody is to see
 * them. conf_restore() fills *c from that and looks at no file and no variable. Values that this program does
 * not know (another version's) are left out, those it misses have their defaults. ERR_INVALID: makes no sense. */
void conf_save(const struct conf *c, struct buf *out);
int conf_restore(struct conf *c, const char *saved, size_t size, struct err *e) WARN_UNUSED;

/* The pool of that name, or NULL. [planner] default_pool always names one. */
const struct conf_pool *conf_pool_find(const struct conf *c, const char *name);

/* The effective values as an ini file that conf_load() reads back; secrets as "***" in a comment,
 * so that the print can be shown to anyone. */
void conf_print(const struct conf *c, struct buf *out);

/* docs/config.md: every option with type, default, range, variable and help. */
void conf_markdown(struct buf *out);

#endif
