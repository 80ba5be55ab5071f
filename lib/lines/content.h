/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_CONTENT_H
#define WB_LINES_CONTENT_H

/* The content folder of the batch service ([batch] root):
 *
 *     <root>/.spool/               bodies that the web server has taken
 *     <root>/files/ab/file-ab...   contents of files, by id; never written again once they have their name
 *     <root>/work/batch_.../       what the runners of a batch write until it ends
 *
 * All runners and handlers of an installation see the same folder, on one file system. Nothing here follows a symbolic
 * link. Failures: ERR_NO_ROOM (ENOSPC, EDQUOT), ERR_NOT_FOUND, else ERR_UNAVAILABLE. Any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { CONTENT_ID_SIZE = 38, CONTENT_PATH_SIZE = 64 };

/* A new id of a file: "file-" and 32 hex digits. */
void content_new_id(char out[CONTENT_ID_SIZE]);

/* Is it one that a file of ours may have? */
bool content_id_valid(const char *id);

/* "files/ab/file-ab...", below the root. id must be valid. */
void content_path(const char *id, char out[CONTENT_PATH_SIZE]);

/* A file to be written, under another name for now. */
int content_create(const char *root, const char *id, int *out, struct err *e) WARN_UNUSED;

/* It is whole: durable, and has its name. */
int content_land(const char *root, const char *id, int fd, struct err *e) WARN_UNUSED;

/* For reading. ERR_NOT_FOUND. */
int content_open(const char *root, const char *id, int *out, struct err *e) WARN_UNUSED;

/* Whole or not; what is not there is removed. */
int content_remove(const char *root, const char *id, struct err *e) WARN_UNUSED;

/* The folder of a batch, made if need be, its name durable. */
int content_work(const char *root, const char *batch_id, int *out, struct err *e) WARN_UNUSED;
int content_work_remove(const char *root, const char *batch_id, struct err *e) WARN_UNUSED;

/* Tells of contents that were written so long ago, the ids of a folder at a time, separated by spaces; and of such working
 * folders, by the batch's id. fn: -1 ends it. */
int content_old_files(const char *root, int64_t age_s,
    int (*fn)(void *ctx, const char *ids, struct err *e), void *ctx, struct err *e) WARN_UNUSED;
int content_old_work(const char *root, int64_t age_s,
    int (*fn)(void *ctx, const char *batch_id, struct err *e), void *ctx,
    struct err *e) WARN_UNUSED;

/* Removes bodies of uploads that nobody wrote to for so long: the web server died before it could. */
int content_clear_spool(const char *root, int64_t age_s, struct err *e) WARN_UNUSED;

/* Where errno says that a disk is full: the error of writing. Always -1. */
int content_failed(struct err *e, const char *what);

#endif
