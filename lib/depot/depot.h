/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DEPOT_H
#define WB_DEPOT_H

/* The version store on a node, laid out as artifacts contract section 4 says:
 *
 *     <root>/<artifact>/versions/<version>/{files/,manifest.json,README.digest,receipt.json}
 *                       current -> versions/<version>
 *                       .tmp/<version>.<uuid>.part/   .trash/<version>.<timestamp>/
 *
 * A struct depot is one artifact of it. Only reads and opens; safe for any thread once it is open. */
#include <stdbool.h>

#include "base/tree.h"
#include "model/manifest.h"
#include "model/mishap.h"

#define DEPOT_VERSIONS "versions"
#define DEPOT_TMP      ".tmp"
#define DEPOT_TRASH    ".trash"
#define DEPOT_CURRENT  "current"
#define DEPOT_FILES    "files"
#define DEPOT_MANIFEST "manifest.json"
#define DEPOT_DIGEST   "README.digest"
#define DEPOT_RECEIPT  "receipt.json"
#define DEPOT_JOURNAL  "journal"

struct depot {
    char name[ARTIFACT_NAME_MAX + 1];
    int root;
    int folder;
    int versions;
    int tmp;
};
#define DEPOT_INIT \
    { \
        .name = "", .root = -1, .folder = -1, .versions = -1, .tmp = -1 \
    }
void depot_close(struct depot *d);
#define cleanup_depot __attribute__((cleanup(depot_close)))

/* Opens the artifact; create: makes what is missing, the root too. Not there: MISHAP_ARTIFACT_MISSING. */
int depot_open(struct depot *d, const char *root, const char *artifact, bool create,
    struct mishap *m) WARN_UNUSED;

/* A version as it lies there: read from its folder, and its manifest checked against README.digest. */
struct landed {
    int folder;
    int files;
    struct manifest manifest;
    struct digest digest;
};
#define LANDED_INIT \
    { \
        .folder = -1, .files = -1, .manifest = MANIFEST_INIT, .digest = { { 0 } } \
    }
void landed_close(struct landed *v);
#define cleanup_landed __attribute__((cleanup(landed_close)))

/* 0; 1: there is no such version; -1: it is there and not as it should be (MISHAP_MANIFEST_MISMATCH), or cannot be read. */
int landed_open(
    const struct depot *d, const char *version, struct landed *v, struct mishap *m) WARN_UNUSED;

/* Calls visit for all that lies in versions/ of any artifact below root, in no order; of d only name and versions count. Ends at the first that
 * gives not 0, with that. -1 with errno: a folder cannot be read. */
typedef int depot_visit(void *ctx, const struct depot *d, const char *version);
int depot_walk(int root, depot_visit *visit, void *ctx) WARN_UNUSED;

/* The digest that a version's README.digest states, which nothing but landed_open() compares with the manifest. 0; -1: there is none. */
int depot_digest(const struct depot *d, const char *version, struct digest *out) WARN_UNUSED;

/* A whole small file as text of at most max bytes. The caller frees *out. */
int depot_read_text(int folder, const char *name, size_t max, char **out, size_t *size,
    struct mishap *m) WARN_UNUSED;

/* The same of a file anywhere, links followed: what the user named. */
int depot_read_file(
    const char *path, size_t max, char **out, size_t *size, struct mishap *m) WARN_UNUSED;

/* Is a name that of a part of that version ("<version>.<uuid>.part", or ".new" while it is made; NULL: of any version)? */
bool depot_is_part(const char *name, const char *version);

/* A new name "<version>.<uuid>.<kind>". */
enum { DEPOT_PART_SIZE = VERSION_NAME_MAX + 48 };
void depot_new_name(char out[DEPOT_PART_SIZE], const char *version, const char *kind);

#endif
