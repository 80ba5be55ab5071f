/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_REFRESHER_H
#define WB_REFRESHER_H

#endif
