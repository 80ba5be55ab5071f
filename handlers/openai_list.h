/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPENAI_LIST_H
#define WB_OPENAI_LIST_H

/* Lists as the OpenAI API has them: jobs contract, section 3, and the batch service. They take data, an array. */
#include <stdbool.h>

#include "json/jx.h"

/* {"object":"list","data"} */
json_object *openai_list(json_object *data);

/* The same with first_id and last_id, the "id" of its first and last (null without any), and has_more. */
json_object *openai_page(json_object *data, bool more);

#endif
