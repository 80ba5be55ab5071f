/* SPDX-License-Identifier: Apache-2.0 */

/* weighbridge-migrate: brings the database to what this version needs. Safe to start anywhere, any
 * number of times, also twice at once. */
#include "base/log.h"
#include "daemons/tool.h"
#include "db/migrate.h"

enum { TIMEOUT_MS = 60000 };

static const char USAGE[] =
    "usage: weighbridge-migrate [--config FILE] [--sql DIR] [--read-only]\n"
    "\n"
    "Applies the migrations that the database of [db] url has not had yet.\n"
    "\n"
    "  --sql DIR        folder of the migrations (default " PKGDATADIR "/sql)\n"
    "  --read-only      as [operations] read_only: leave a LocalAI's own tables to it\n" TOOL_COMMON_USAGE;

int main(int argc, char **argv)
{
    const char *sql = PKGDATADIR "/sql";
    bool read_only = false;
    const struct tool_option own[] = { { "sql", &sql, NULL }, { "read-only", NULL, &read_only } };
    const struct tool tool = { "weighbridge-migrate", USAGE, own, 2, NULL, NULL };
    cleanup_conf struct conf conf = { 0 };
    int rc = tool_start(&tool, argc, argv, &conf);
    if (rc != 0)
        return rc < 0 ? TOOL_USAGE : EXIT_SUCCESS;

    struct err e = ERR_INIT;
    struct migrate_options m = {
        .url = conf.db_url,
        .folder = sql,
        .read_only = read_only || conf.operations_read_only,
        .timeout_ms = TIMEOUT_MS,
    };
    int applied = 0;
    if (migrate_run(&m, &applied, &e) < 0) {
        log_error(LOG_MSG("the database was not migrated"), LOG_S("error", e.msg));
        return EXIT_FAILURE;
    }
    log_info(LOG_MSG("the database is up to date"), LOG_I("applied", applied));
    return EXIT_SUCCESS;
}
