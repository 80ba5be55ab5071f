/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DIGEST_H
#define WB_DIGEST_H

/* SHA-256 (FIPS 180-4), random bytes and constant-time comparison, all from OpenSSL. Any thread. */
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

enum { DIGEST_SIZE = 32, DIGEST_HEX_SIZE = 65, TOKEN_HEX_SIZE = 65 };

/* SHA-256 of size bytes as 64 lower-case hex digits and a NUL. */
void digest_hex(const void *data, size_t size, char out[DIGEST_HEX_SIZE]);

/* The same as DIGEST_SIZE bytes. */
void digest_bytes(const void *data, size_t size, unsigned char out[DIGEST_SIZE]);

/* The same of data that comes piece by piece. digest_end() gives the digest of all that was added and begins anew; a
 * hasher belongs to one thread. */
struct hasher;
void hasher_free(struct hasher *h); /* NULL is fine */
struct hasher *hasher_new(void) OWNED_BY(hasher_free);
void hasher_add(struct hasher *h, const void *data, size_t size);
void hasher_end(struct hasher *h, unsigned char out[DIGEST_SIZE]);
static inline void hasher_free_p(struct hasher **h)
{
    hasher_free(*h);
}
#define cleanup_hasher __attribute__((cleanup(hasher_free_p)))

/* 32 random bytes as hex: a token nobody can guess. Aborts when the system has no randomness. */
void digest_token(char out[TOKEN_HEX_SIZE]);

/* Compares size bytes in a time that does not depend on where they differ. */
bool digest_equal(const void *a, const void *b, size_t size);

#endif
