/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_JSON_OF_H
#define WB_TEST_JSON_OF_H

/* JSON that a test writes down; text that is none fails the test. */
#include <json-c/json.h>

json_object *json_of(const char *text); /* the caller's */

/* The plain print of o is this text. */
void json_is(json_object *o, const char *text);

#endif
