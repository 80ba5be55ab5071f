/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LAND_H
#define WB_LAND_H

/* A part becomes a version: artifacts contract section 4, "Landing", in exactly that order:
 *
 *     data synced -> journal removed -> manifest, digest and receipt files synced -> every folder of the part synced -> files 0444 (0555
 *     where the manifest says executable), subfolders 0555, the top one still 0755 -> renameat2(RENAME_NOREPLACE) -> both parents
 *     synced -> top folder 0555
 *
 * A crash between any two of these leaves a part that is resumed, or a whole version. */
#include "depot/part.h"
#include "depot/receipt.h"

/* Lands p, which is complete: all shards in p->have, the tree just what the manifest says. The caller still closes p. 0: landed; 1: the same
 * version, with the same manifest, was landed by somebody else meanwhile (p is left); -1: MISHAP_TAKEN_OVER, MISHAP_MANIFEST_MISMATCH (another
 * manifest under the same name), or the disk's. */
int land_part(struct part *p, const struct receipt *r, struct mishap *why) WARN_UNUSED;

/* Finishes what a crash right after the renaming may have left undone for a landed version: its top folder's mode. */
int land_finish(const struct depot *d, const char *version, struct mishap *why) WARN_UNUSED;

/* Makes `current` point to a landed version, by rename, durably. 1: there is no such version. */
int switch_current(const struct depot *d, const char *version, struct mishap *why) WARN_UNUSED;

#endif
