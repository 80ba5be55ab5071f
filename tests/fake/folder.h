/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_FOLDER_H
#define WB_TEST_FOLDER_H

/* A folder of a test's own. Failures end the test. */
#include <stddef.h>
#include <sys/types.h>

struct folder {
    char path[64];
};

void folder_make(struct folder *f);
void folder_remove(struct folder *f); /* with all that is in it */

/* For the tests of a program that each want one: test_folder, made and removed around each. */
extern struct folder test_folder;
int folder_begin(void **state);
int folder_end(void **state);

/* "path/name" in a buffer that the next call uses again. */
const char *folder_at(const struct folder *f, const char *name);

/* A file of it, made or written anew. */
void folder_put(const struct folder *f, const char *name, const char *text, mode_t mode);
void folder_put_bytes(
    const struct folder *f, const char *name, const void *data, size_t size, mode_t mode);

#endif
