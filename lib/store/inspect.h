/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_INSPECT_H
#define WB_INSPECT_H

/* Is a tree of files just what a manifest says? Any thread. */
#include "model/manifest.h"
#include "model/mishap.h"

/* The set of files equals the manifest's exactly, with these sizes, plain files all. modes: and they are as a landed version's. Does not read
 * them. MISHAP_MANIFEST_MISMATCH names the first that is not so. */
int inspect_tree(const struct manifest *m, int files, bool modes, struct mishap *why) WARN_UNUSED;

#endif
