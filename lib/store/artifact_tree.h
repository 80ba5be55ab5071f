/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_ARTIFACT_TREE_H
#define WB_STORE_ARTIFACT_TREE_H

/* Whole folders of the store. Within artifact_disk.h, and errors as there. */
#include <stdbool.h>

#include "base/err.h"
#include "model/manifest.h"

/* A folder below another (or AT_FDCWD), made if make is set. */
int disk_folder(int at, const char *name, bool make, int *fd, struct err *e) WARN_UNUSED;
int disk_artifact(
    const char *root, const char *artifact, bool make, int *out, struct err *e) WARN_UNUSED;
int disk_failed(const char *what, const char *path, struct err *e);

/* Removes path and all below it, across no mount and through no link. What is not there is removed. */
int tree_remove(const char *path, struct err *e) WARN_UNUSED;

/* Each file below path/files is one of the manifest, and nothing else is there: ERR_INVALID. */
int tree_check(const char *path, const struct manifest *m, struct err *e) WARN_UNUSED;

/* Takes tree_seal() back. */
int tree_unseal(const char *path, struct err *e) WARN_UNUSED;

/* Syncs every folder below path, then takes write permission from all files and from the folders below path; not from
 * path itself. */
int tree_seal(const char *path, const struct manifest *m, struct err *e) WARN_UNUSED;

#endif
