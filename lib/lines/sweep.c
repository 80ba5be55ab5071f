/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/sweep.h"

#include "lines/content.h"
#include "store/batch_file.h"
#include "store/batch_lease.h"
#include "store/chore.h"

enum { EXPIRE_S = 60, ORPHANS_S = 3600, AT_ONCE = 100, OLD_S = 24 * 3600 };

/* --- files whose time is over: the row first, so that nobody is sent to what is gone --- */

static int expire(const struct conf *conf, struct db *db, struct err *e)
{
    cleanup_batch_files struct batch_files gone = BATCH_FILES_INIT;

    do {
        if (batch_file_expire(db, AT_ONCE, &gone, e) < 0)
            return -1;
        for (size_t i = 0; i < gone.n; i++) {
            if (content_remove(conf->batch_root, gone.row[i].id, e) < 0)
                return -1;
        }
    } while (gone.n == AT_ONCE);
    return 0;
}

/* --- what has no row --- */

struct orphans {
    const struct conf *conf;
    struct db *db;
};

/* The ids of one folder, separated by spaces. */
static int remove_strangers(void *ctx, const char *ids, struct err *e)
{
    const struct orphans *o = ctx;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (batch_file_strangers(o->db, ids, &rows, e) < 0)
        return -1;
    for (int i = 0; i < db_rows_count(&rows); i++) {
        if (content_remove(o->conf->batch_root, batch_file_stranger(&rows, i), e) < 0)
            return -1;
    }
    return 0;
}

static int remove_ended(void *ctx, const char *batch_id, struct err *e)
{
    const struct orphans *o = ctx;
    bool ended = false;

    if (batch_lease_ended(o->db, batch_id, &ended, e) < 0)
        return -1;
    return ended ? content_work_remove(o->conf->batch_root, batch_id, e) : 0;
}

static int remove_orphans(const struct conf *conf, struct db *db, struct err *e)
{
    struct orphans o = { conf, db };

    return content_old_files(conf->batch_root, OLD_S, remove_strangers, &o, e) < 0 ||
                   content_old_work(conf->batch_root, OLD_S, remove_ended, &o, e) < 0 ||
                   content_clear_spool(conf->batch_root, OLD_S, e) < 0
               ? -1
               : 0;
}

int sweep(const struct conf *conf, struct db *db, const char *holder, struct err *e)
{
    int others = chore_claim(db, "batch_files", EXPIRE_S, holder, e);

    if (others == 0)
        others = expire(conf, db, e);
    if (others < 0)
        return -1;
    others = chore_claim(db, "batch_orphans", ORPHANS_S, holder, e);
    if (others == 0)
        others = remove_orphans(conf, db, e);
    return others < 0 ? -1 : 0;
}
