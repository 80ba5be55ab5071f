/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <stdlib.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/str.h"

void digest_hex(const void *data, size_t size, char out[DIGEST_HEX_SIZE])
{
    unsigned char raw[DIGEST_SIZE];
    unsigned int raw_size = 0;

    /* Fails only for want of memory or of the algorithm itself. */
    if (EVP_Digest(data, size, raw, &raw_size, EVP_sha256(), NULL) != 1 || raw_size != DIGEST_SIZE)
        abort();
    str_hex(out, raw, sizeof raw);
}

void digest_token(char out[TOKEN_HEX_SIZE])
{
    unsigned char raw[(TOKEN_HEX_SIZE - 1) / 2];

    if (RAND_bytes(raw, sizeof raw) != 1)
        abort();
    str_hex(out, raw, sizeof raw);
    OPENSSL_cleanse(raw, sizeof raw);
}

bool digest_equal(const void *a, const void *b, size_t size)
{
    return CRYPTO_memcmp(a, b, size) == 0;
}
