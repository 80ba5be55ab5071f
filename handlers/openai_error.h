/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPENAI_ERROR_H
#define WB_OPENAI_ERROR_H

/* A failure as OpenAI's API words it: {"error":{"message","type","param","code"}}. The caller's. */
#include "base/err.h"
#include "json/jx.h"

/* param is what the text begins with, if that is a name and a colon. */
json_object *openai_error(const struct err *e);

#endif
