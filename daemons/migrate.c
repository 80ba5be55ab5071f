/* SPDX-License-Identifier: Apache-2.0 */

/* weighbridge-migrate: brings the database to what this version needs. Safe to start anywhere, any
 * number of times, also twice at once. */
#include <getopt.h>

#include "base/conf.h"
#include "base/log.h"
#include "config.h"
#include "db/migrate.h"

enum { TIMEOUT_MS = 60000, EXIT_USAGE = 2 };

struct options {
    const char *config;
    const char *sql;
    bool read_only;
    bool done; /* --help or --version was all that was asked */
};

static const char USAGE[] =
    "usage: weighbridge-migrate [--config FILE] [--sql DIR] [--read-only]\n"
    "\n"
    "Applies the migrations that the database of [db] url has not had yet.\n"
    "\n"
    "  --config FILE  ini file (else $WB_CONFIG, else " CONF_USUAL_PATH ")\n"
    "  --sql DIR      folder of the migrations (default " PKGDATADIR "/sql)\n"
    "  --read-only    as [operations] read_only: leave a LocalAI's own tables to it\n"
    "  --help, --version\n";

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option LONG[] = {
        { "config", required_argument, NULL, 'c' },
        { "sql", required_argument, NULL, 's' },
        { "read-only", no_argument, NULL, 'r' },
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'v' },
        { NULL, 0, NULL, 0 },
    };
    int c;
    while ((c = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        switch (c) {
        case 'c':
            o->config = optarg;
            break;
        case 's':
            o->sql = optarg;
            break;
        case 'r':
            o->read_only = true;
            break;
        case 'h':
            fputs(USAGE, stdout);
            o->done = true;
            return 0;
        case 'v':
            puts("weighbridge-migrate " PACKAGE_VERSION);
            o->done = true;
            return 0;
        default:
            fputs(USAGE, stderr);
            return -1;
        }
    }
    if (optind < argc) {
        fputs(USAGE, stderr);
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = { .config = conf_usual_path(), .sql = PKGDATADIR "/sql" };
    if (parse(argc, argv, &o) < 0)
        return EXIT_USAGE;
    if (o.done)
        return EXIT_SUCCESS;
    log_setup("weighbridge-migrate", LOG_INFO);

    struct err e = ERR_INIT;
    cleanup_conf struct conf conf = { 0 };
    if (conf_load(&conf, o.config, &e) < 0) {
        log_error(LOG_MSG("the configuration cannot be used"), LOG_S("error", e.msg));
        return EXIT_USAGE;
    }
    struct migrate_options m = {
        .url = conf.db_url,
        .folder = o.sql,
        .read_only = o.read_only || conf.operations_read_only,
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
