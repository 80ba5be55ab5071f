/* SPDX-License-Identifier: Apache-2.0 */
#include "store/gallery.h"

const struct db_stmts GALLERY_STMTS = { NULL, 0 };

void gallery_rows_free(struct gallery_rows *r)
{
    *r = (struct gallery_rows)GALLERY_ROWS_INIT;
}

static int not_yet(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "not there yet");
}

int gallery_list_start(struct db *db, struct err *e)
{
    (void)db;
    (void)e;
    return 0;
}

int gallery_list_finish(struct db *db, struct gallery_rows *out, struct err *e)
{
    (void)db;
    (void)e;
    *out = (struct gallery_rows)GALLERY_ROWS_INIT;
    return 0;
}

int gallery_list(struct db *db, struct gallery_rows *out, struct err *e)
{
    return gallery_list_finish(db, out, e);
}

int gallery_get(struct db *db, const char *id, struct gallery_rows *out, struct err *e)
{
    (void)db;
    (void)id;
    (void)out;
    return not_yet(e);
}

int gallery_admit(
    struct gallery_db g, const struct gallery_admission *a, struct gallery_rows *out, struct err *e)
{
    (void)g;
    (void)a;
    (void)out;
    return not_yet(e);
}

int gallery_progress(struct gallery_db g, const char *id, const struct gallery_report *r,
    struct gallery_rows *out, enum gallery_outcome *outcome, struct err *e)
{
    (void)g;
    (void)id;
    (void)r;
    (void)out;
    (void)outcome;
    return not_yet(e);
}

const char *gallery_control_name(enum gallery_control c)
{
    static const char *const NAME[] = { "", "cancel", "pause" };
    return NAME[c];
}

int gallery_stop(struct gallery_db g, const char *id, enum gallery_control c, struct err *e)
{
    (void)g;
    (void)id;
    (void)c;
    return not_yet(e);
}

int gallery_control_get(struct db *db, const char *id, enum gallery_control *out, struct err *e)
{
    (void)db;
    (void)id;
    (void)out;
    return not_yet(e);
}

int gallery_dismiss(struct db *db, const char *id, struct err *e)
{
    (void)db;
    (void)id;
    return not_yet(e);
}

int gallery_history(struct db *db, struct gallery_rows *out, struct err *e)
{
    return gallery_list_finish(db, out, e);
}

int gallery_history_clear(struct gallery_db g, struct err *e)
{
    (void)g;
    return not_yet(e);
}
