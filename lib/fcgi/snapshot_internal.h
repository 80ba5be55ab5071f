/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SNAPSHOT_INTERNAL_H
#define WB_SNAPSHOT_INTERNAL_H

#endif
