/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOAD_ROW_H
#define WB_LOAD_ROW_H

#endif
