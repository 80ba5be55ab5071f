/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROVISION_LOCAL_H
#define WB_PROVISION_LOCAL_H

/* The provisioner `local` works on the connection that it is opened with, by LOCAL_STMTS: who gives it a
 * connection of its own making has them prepared on it. It keeps to the time-out that the connection has. */
#include "store/local_slot.h" /* LOCAL_STMTS */

#endif
