/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOAD_FIXTURE_H
#define WB_LOAD_FIXTURE_H

/* What the tests of load jobs and gallery operations share, beside store_fixture.h. */
#include "store/gallery.h"
#include "store/load_job.h"
#include "tests/store/store_fixture.h"

int fx_setup(void **state); /* of the group */

void fx_claim(const char *key, const char *owner, char token[TOKEN_HEX_SIZE]);

/* What the rules make of stored times is tried by shifting them: all stamps of the row, and the claim
 * with it, which is bound to the row's created_at. */
void fx_age(const char *key, const char *interval);

#endif
