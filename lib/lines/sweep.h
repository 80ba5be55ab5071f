/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_SWEEP_H
#define WB_LINES_SWEEP_H

/* What nobody needs any more in the content folder: files whose time is over, contents without a row (of an upload or a
 * result that a crash cut short), working folders of batches that have ended, bodies that a web server which died has left. One of all runners at a time does it
 * (store/chore.h). One thread. */
#include "base/conf.h"
#include "base/err.h"
#include "db/db.h"

/* What is due now, if any; holder as in chore_claim(). Errors of the stores and of the folder. */
int sweep(const struct conf *conf, struct db *db, const char *holder, struct err *e) WARN_UNUSED;

#endif
