/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_PUBLISH_FROM_H
#define WB_AGENT_PUBLISH_FROM_H

/* What is to be published, by where it comes from. Artifacts contract, `agent publish` and `agent import`. */
#include "fetch/outbound.h"

/* A plain directory: links are errors. */
int from_folder(const char *dir, struct outbound *out, struct err *e) WARN_UNUSED;

/* A model of Hugging Face's cache (models--org--name: blobs/, refs/, snapshots/, whose files are links into blobs/), or one of its
 * snapshots, or a plain clone. revision: the snapshot; NULL: that of refs/main, or the only one. ERR_NOT_FOUND, ERR_INVALID: it is none. */
int from_hf(const char *dir, const char *revision, struct outbound *out, struct err *e) WARN_UNUSED;

/* An OCI image layout (oci-layout, index.json, blobs/sha256/...): ERR_INVALID when it is none, or when a blob has another digest than its name. */
int from_oci(const char *dir, struct outbound *out, struct err *e) WARN_UNUSED;

/* Of from_oci(): after the manifest was made, each blob's sha256 must be its name. ERR_INVALID. */
int from_oci_check(const struct manifest *m, struct err *e) WARN_UNUSED;

#endif
