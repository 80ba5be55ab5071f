/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JX_CHECK_H
#define WB_JX_CHECK_H

#endif
