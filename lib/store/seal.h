/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_SEAL_H
#define WB_STORE_SEAL_H

/* The last thing before a version is moved to its place, in the store as on a node: artifacts contract section 4, "Landing". Any
 * thread. */
#include "model/manifest.h"

/* folder: of the part, with files/ and the papers beside. Syncs every folder of it, then takes write permission from all files (0444, or
 * 0555 where the manifest says executable) and from the folders below, not from itself. 0, or -1 with errno: ELOOP when a link lies in it, which is not followed. base/tree.h's tree_open_up()
 * takes it back. */
int seal_tree(int folder, const struct manifest *m) WARN_UNUSED;

/* What README.digest holds: a line that `sha256sum -c` takes. */
enum { SEAL_LINE_SIZE = DIGEST_TEXT_SIZE + sizeof "  manifest.json\n" };
void seal_line(const struct digest *manifest, char out[SEAL_LINE_SIZE]);

#endif
