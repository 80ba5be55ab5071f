/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_ARTIFACT_DISK_H
#define WB_STORE_ARTIFACT_DISK_H

/* The store's files, laid out as on a node (artifacts contract, section 4):
 *
 *     <root>/<artifact>/versions/<version>/files/...  manifest.json  README.digest
 *     <root>/<artifact>/.tmp/<version>.<uuid>.part/   being assembled: the same within
 *     <root>/.spool/                                  bodies that the web server has taken
 *
 * Nothing follows a symbolic link below root. Names are checked by who calls (model/manifest.h). Failures: ERR_NO_ROOM (ENOSPC,
 * EDQUOT), ERR_NOT_FOUND, else ERR_UNAVAILABLE, with the path and errno's text. Any thread. */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "model/manifest.h"

enum { DISK_PART_NAME_SIZE = VERSION_NAME_MAX + 1 + 36 + 6 };

/* A version that is being assembled. */
struct disk_part {
    const char *root;
    const char *artifact;
    const char *version;
    const char *uuid;
};

/* The folder of the part, made if it is not there, and locked: shared (to add to it) or alone (to judge it: then what an
 * earlier judge had write-protected is open again). 1: somebody holds
 * it so that the lock would have to wait, and wait is false. The lock goes when *out is closed. */
int disk_part_open(
    const struct disk_part *p, bool alone, bool wait, int *out, struct err *e) WARN_UNUSED;

/* A file of it, for reading and writing; made, with its folders, if make is set. What was made is durable
 * when this returns. */
int disk_part_file(int part, const char *path, bool make, int *out, struct err *e) WARN_UNUSED;

/* A file of a version that has landed, for reading. */
int disk_file(const char *root, const char *artifact, const char *version, const char *path,
    int *out, struct err *e) WARN_UNUSED;

/* SHA-256 of size bytes from offset at on. ERR_INVALID: there are fewer. tick, if not NULL, is called every few
 * megabytes; -1 from it ends the reading, with its error. */
struct disk_tick {
    int (*fn)(void *ctx, struct err *e);
    void *ctx;
};
int disk_hash(int fd, int64_t at, int64_t size, const struct disk_tick *tick, struct digest *out,
    struct err *e) WARN_UNUSED;

/* file_copy(), written through to the disk. */
int disk_copy(
    struct file_range from, struct file_range to, int64_t size, struct err *e) WARN_UNUSED;

/* The part becomes the version: artifacts contract section 4, "Landing", in that order. The files must be whole and
 * verified. ERR_CONFLICT: there is such a version. */
int disk_land(const struct disk_part *p, int part, const struct manifest *m, const char *text,
    size_t size, struct err *e) WARN_UNUSED;

/* The last step of landing, for a version that has its place already. */
int disk_seal(
    const char *root, const char *artifact, const char *version, struct err *e) WARN_UNUSED;

/* Is there such a version on the disk? */
bool disk_has_version(const char *root, const char *artifact, const char *version);

/* A folder below another, made if make is set; an artifact's. */
int disk_folder(int at, const char *name, bool make, int *fd, struct err *e) WARN_UNUSED;
int disk_artifact(
    const char *root, const char *artifact, bool make, int *out, struct err *e) WARN_UNUSED;

/* Sets *e to what errno says of that. Always -1. */
int disk_failed(const char *what, const char *path, struct err *e);

/* Removes a part and all that is in it. One that is not there is removed. */
int disk_part_remove(const struct disk_part *p, struct err *e) WARN_UNUSED;

#endif
