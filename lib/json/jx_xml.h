/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JX_XML_H
#define WB_JX_XML_H

/* XML of foreign answers, read by expat and given as JSON, so that what reads answers need know one kind of
 * value. Nothing is fetched, and a document type, with which entities come, is refused. Any thread. */
#include "json/jx.h"

enum { JX_XML_DEPTH_MAX = 32, JX_XML_NAME_SIZE = 64 };

/* The contents of the root element, whose name does not count. An element with text alone is that text; one with
 * elements called "item" is an array of these; any other an object, where of several of one name the first counts.
 * Attributes do not count. ERR_INVALID: malformed, a document type, nesting over JX_XML_DEPTH_MAX, a name over
 * JX_XML_NAME_SIZE - 1 bytes. The result is the caller's. */
int jx_parse_xml(const char *text, size_t size, json_object **out, struct err *e) WARN_UNUSED;

#endif
