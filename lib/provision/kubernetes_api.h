/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBERNETES_API_H
#define WB_KUBERNETES_API_H

/* Calls to the API server of a Kubernetes cluster: where it is, by what token, and lists in pages. Options:
 * [kubernetes]. Rules: jobs contract, section 5; the Kubernetes API's conventions (Status objects, limit and
 * continue, bound service account tokens, which are replaced in their file before they expire). */
#include "provision/fleet.h"

enum { KUBERNETES_WORD_SIZE = 64 }; /* a label's value, the name of a Service or namespace */

struct kubernetes {
    struct fleet fleet; /* its calls; the verbs are this type's own */
    const struct conf *conf;
    char *token_path; /* read for each call; NULL: the key that there is */
    char *ca_file;
    char namespace[KUBERNETES_WORD_SIZE];
    char region[KUBERNETES_WORD_SIZE];
};

/* Fills *k, which is zeroed, but for its ops. ERR_INVALID names the option. Borrows env->conf. */
int kubernetes_connect(
    struct kubernetes *k, const struct provisioner_env *env, struct err *e) WARN_UNUSED;
void kubernetes_disconnect(struct kubernetes *k);

/* fleet_ask() with the token as it is now. PROVISION_ERROR_UNAVAILABLE, too, when its file cannot be read. */
int kubernetes_ask(struct kubernetes *k, const struct fleet_call *c, json_object **out,
    struct provision_note *note, struct err *e) WARN_UNUSED;

/* GET of all items of a list, page by page. path has its query begun ("...?labelSelector=x" or "...?");
 * each() gets every item, borrowed. 0, or -1 after some of them. */
struct kubernetes_list {
    const char *path;
    int64_t deadline_ns;
    void (*each)(json_object *item, void *ctx);
    void *ctx;
};
int kubernetes_list(struct kubernetes *k, const struct kubernetes_list *l,
    struct provision_note *note, struct err *e) WARN_UNUSED;

#endif
