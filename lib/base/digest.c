/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <pthread.h>
#include <stdlib.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/mem.h"
#include "base/str.h"

enum { CHUNK = 16 };

/* EVP_Digest() looks the algorithm up by its name and makes a context, each time: several times the
 * work of hashing a token. So it is fetched once, and each thread keeps a context. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static EVP_MD *sha256;

static void free_context(void *context)
{
    EVP_MD_CTX_free(context);
}

static void prepare(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (sha256 == NULL || pthread_key_create(&key, free_context) != 0)
        abort();
}

static EVP_MD_CTX *thread_context(void)
{
    if (pthread_once(&once, prepare) != 0)
        abort();
    EVP_MD_CTX *context = pthread_getspecific(key);
    if (context == NULL) {
        context = EVP_MD_CTX_new();
        if (context == NULL || pthread_setspecific(key, context) != 0)
            abort();
    }
    return context;
}

/* These fail only for want of memory or of the algorithm itself. */
static void begin(EVP_MD_CTX *context)
{
    if (EVP_DigestInit_ex2(context, sha256, NULL) != 1)
        abort();
}

static void add(EVP_MD_CTX *context, const void *data, size_t size)
{
    if (EVP_DigestUpdate(context, data, size) != 1)
        abort();
}

static void end(EVP_MD_CTX *context, unsigned char out[DIGEST_SIZE])
{
    if (EVP_DigestFinal_ex(context, out, NULL) != 1)
        abort();
}

void digest_bytes(const void *data, size_t size, unsigned char out[DIGEST_SIZE])
{
    EVP_MD_CTX *context = thread_context();

    begin(context);
    add(context, data, size);
    end(context, out);
}

void digest_hex(const void *data, size_t size, char out[DIGEST_HEX_SIZE])
{
    unsigned char raw[DIGEST_SIZE];

    digest_bytes(data, size, raw);
    str_hex(out, raw, sizeof raw);
}

struct hasher {
    EVP_MD_CTX *context;
};

void hasher_free(struct hasher *h)
{
    if (h != NULL)
        EVP_MD_CTX_free(h->context);
    free(h);
}

struct hasher *hasher_new(void)
{
    struct hasher *h = mem_calloc(1, sizeof *h);

    if (pthread_once(&once, prepare) != 0)
        abort();
    h->context = EVP_MD_CTX_new();
    if (h->context == NULL)
        abort();
    begin(h->context);
    return h;
}

void hasher_add(struct hasher *h, const void *data, size_t size)
{
    add(h->context, data, size);
}

void hasher_end(struct hasher *h, unsigned char out[DIGEST_SIZE])
{
    end(h->context, out);
    begin(h->context);
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
    const unsigned char *left = a;
    const unsigned char *right = b;
    int differ = 0;

    /* OpenSSL compares just this many bytes in words, any other number byte by byte. */
    for (; size >= CHUNK; size -= CHUNK, left += CHUNK, right += CHUNK)
        differ |= CRYPTO_memcmp(left, right, CHUNK);
    differ |= CRYPTO_memcmp(left, right, size);
    return differ == 0;
}
