/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATION_JSON_H
#define WB_OPERATION_JSON_H

#endif
