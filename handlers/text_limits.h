/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEXT_LIMITS_H
#define WB_TEXT_LIMITS_H

/* Longest texts that callers may give, in characters: those of the columns that keep them, and for
 * what only the overlay keeps so much that a whole value stays under OVERLAY_VALUE_MAX. */
#include "base/digest.h"
#include "model/overlay.h"

enum {
    TEXT_MAX_SESSION = 128,
    TEXT_MAX_CLAIM_TOKEN = TOKEN_HEX_SIZE - 1,
    TEXT_MAX_OWNER = 64,
    TEXT_MAX_STATE = 16,
    TEXT_MAX_STATUS = 32,
    TEXT_MAX_OP_TYPE = 32,
    TEXT_MAX_NODE_ID = 36,
    TEXT_MAX_NODE_NAME = 255,
    TEXT_MAX_FILE_NAME = 512,
    TEXT_MAX_SPEED = OVERLAY_SPEED_MAX,
    TEXT_MAX_MESSAGE = 250,
    TEXT_MAX_ERROR = 2000,
};

#endif
