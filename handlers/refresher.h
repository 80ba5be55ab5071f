/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_REFRESHER_H
#define WB_REFRESHER_H

/* The thread that keeps the snapshot fresh while somebody polls. Each process has one; the lease in
 * shared memory decides which of them works. A second thread listens for changes that other machines
 * tell of. Operations contract, section 3, "Freshness". */
#include <stdbool.h>

#include "base/conf.h"
#include "base/err.h"
#include "fcgi/snapshot.h"
#include "handlers/keeper.h"

struct refresher;

/* Starts both threads. conf, snapshots and keeper (NULL: none) are borrowed until refresher_stop(). */
int refresher_start(const struct conf *conf, struct snapshots *s, struct keeper *keeper,
    struct refresher **out, struct err *e) WARN_UNUSED;
/* True while this process cannot write snapshots (its runtime folder is full, say). Any thread. */
bool refresher_is_blocked(struct refresher *r);

/* Ends and joins them, within a store's deadline. NULL is fine. */
void refresher_stop(struct refresher *r);

#endif
