/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GALLERY_JSON_H
#define WB_GALLERY_JSON_H

/* Gallery operations on the wire, but for the poll's entries. Operations contract, sections 4 and 5.
 * Results are the caller's. */
#include "json/jx.h"
#include "model/gallery.h"
#include "store/gallery.h"

/* {"operations":[...]}: ended operations in the order of the rows. */
json_object *gallery_history_json(const struct gallery_rows *ended);

/* A row as its admission answers it. */
json_object *gallery_row_json(const struct gallery_row *r);

#endif
