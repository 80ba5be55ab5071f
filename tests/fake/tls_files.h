/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_TLS_FILES_H
#define WB_TEST_TLS_FILES_H

/* A certificate for 127.0.0.1 that nobody but itself vouches for, and its key, as files of a folder of their own. Where
 * there is no openssl command the test program is skipped. Failures end the test. */
struct tls_files {
    char dir[32];
    char cert[64];
    char key[64];
};

void tls_files_make(struct tls_files *t);
void tls_files_remove(const struct tls_files *t);

#endif
