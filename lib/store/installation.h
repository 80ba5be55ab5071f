/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_INSTALLATION_H
#define WB_INSTALLATION_H

/* The name of this installation, which was made with its database: part of its machines' names. */
#include "db/db.h"
#include "model/provision.h"

extern const struct db_stmts INSTALLATION_STMTS;

/* Errors are those of db.h. */
int installation_name(
    struct db *db, char out[PROVISION_CLUSTER_MAX + 1], struct err *e) WARN_UNUSED;

#endif
