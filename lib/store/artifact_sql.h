/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ARTIFACT_SQL_H
#define WB_ARTIFACT_SQL_H

/* What statements about artifacts share. */

/* Of artifact_shard s: it is to be sent. */
#define SHARD_IS_MISSING "NOT s.present AND s.source IS NULL"

/* The version $1, locked by this transaction, is verified next if nothing is missing. */
#define VERSION_TO_VERIFYING \
    "UPDATE artifact_version v SET state = 'verifying', progress_at = clock_timestamp()" \
    " WHERE v.id = $1::bigint AND v.state = 'uploading' AND NOT EXISTS" \
    " (SELECT FROM artifact_shard s WHERE s.version_id = v.id AND " SHARD_IS_MISSING ")"

#endif
