/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STAGING_H
#define WB_STAGING_H

#endif
