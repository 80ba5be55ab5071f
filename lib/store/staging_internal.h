/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STAGING_INTERNAL_H
#define WB_STAGING_INTERNAL_H

/* What writing (staging.c) and reading (staging_read.c) the overlay share: its names in Redis. */
#include "model/key.h"
#include "store/staging.h"

#define STAGING_VALUE  "wb:1:staging:"
#define STAGING_INDEX  "wb:1:live"
#define STAGING_MEMBER "staging:"

enum { NAME_SIZE = 32 + KEY_MAX_BYTES }; /* of a Redis key or index member, with its prefix */

/* The names of a key in Redis. */
struct names {
    char value[NAME_SIZE];
    char ended[NAME_SIZE];
    char member[NAME_SIZE];
};

/* ERR_INVALID when the key is too long. */
int staging_names(const char *key, struct names *n, struct err *e) WARN_UNUSED;

#endif
