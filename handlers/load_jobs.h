/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOAD_JOBS_H
#define WB_LOAD_JOBS_H

#endif
