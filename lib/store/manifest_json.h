/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MANIFEST_JSON_H
#define WB_MANIFEST_JSON_H

/* A manifest as JSON: artifacts contract section 2. Any thread. */
#include "base/buf.h"
#include "model/manifest.h"

/* Reads and checks it. Size (MANIFEST_BYTES_MAX) and nesting (MANIFEST_DEPTH_MAX) are looked at before the JSON is read. ERR_TOO_LARGE,
 * or ERR_INVALID with what is wrong and where. *out is the caller's. Unknown members are left alone, `annotations` too: they are
 * part of the bytes and of their digest. A file's sha256 is 64 hex digits, with or without "sha256:"; its mode a number or an octal text. */
int manifest_read(const char *text, size_t size, struct manifest *out, struct err *e) WARN_UNUSED;

/* The digest of a manifest: sha256 over exactly these bytes. */
struct digest manifest_digest(const char *text, size_t size);

/* Prints m, which must pass manifest_check(), with annotations (a JSON object as text; NULL: none). */
void manifest_print(const struct manifest *m, const char *annotations, struct buf *out);

#endif
