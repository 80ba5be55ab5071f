/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_DESK_H
#define WB_AGENT_DESK_H

/* What `agent run` has to say and to do next: heartbeats, the assignment in hand, its progress, its receipt or failure. One thread turns it; the
 * pull itself has another (agent_puller.h), which a silent control plane does not hold up.
 *
 * Nothing of this is kept on disk. A version that has landed has its receipt beside it; as long as the control plane lacks that, it goes on
 * listing the assignment, and then the receipt is handed in without a pull. A failure that could not be told costs the try, which is made again. */
#include "daemons/agent_settings.h"

struct desk;

/* root: the folder of the versions, open, borrowed as stop_fd is: readable: calls end. ERR_INTERNAL. */
int desk_open(
    struct settings *s, int root, int stop_fd, struct desk **out, struct err *e) WARN_UNUSED;

/* Ends what is in hand; it is taken up by the next start. NULL is fine. */
void desk_close(struct desk *d);

/* Goes by those from now on; a pull in hand goes on by the old ones. */
void desk_reload(struct desk *d, struct settings *s);

/* Does all that is due. Gives when something is due again (clock_mono_ns()), unless desk_fd() becomes readable before. */
int64_t desk_turn(struct desk *d);
int desk_fd(const struct desk *d);

#endif
