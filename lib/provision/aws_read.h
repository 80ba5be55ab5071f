/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AWS_READ_H
#define WB_AWS_READ_H

/* What answers of EC2 tell, out of the JSON that jx_parse_xml() makes of them. Pure. */
#include "provision/fleet.h"

#define AWS_TAG_CLUSTER "weighbridge:cluster"
#define AWS_TAG_REPLICA "weighbridge:replica"

/* How instances are spoken of. */
struct aws_reading {
    const char *region;
    const char *ssh_user;
    bool private_address; /* the private one, even where there is a public one */
};

/* An item of an instancesSet. out->m.id is "" when it makes no sense. */
void aws_read_instance(json_object *item, const struct aws_reading *how, struct fleet_machine *out);

/* All instances of a DescribeInstances answer. */
void aws_read_reservations(
    json_object *answer, const struct aws_reading *how, struct fleet_machines *out);

/* Seconds since a launch, by what EC2 said of its time; INT64_MAX when it said nothing. */
int64_t aws_age_s(const char *launched, int64_t now_us);

struct aws_type {
    char name[PROVISION_TEXT_SIZE];
    char gpu[PROVISION_TEXT_SIZE]; /* "NVIDIA A100 (40 GB)" */
    int gpus;
    int64_t vcpus;
    int64_t memory_mib;
    int rank; /* its place in the list that was asked for; 0 without one */
};

/* An item of an instanceTypeSet; false: it has no GPUs, or makes no sense. */
bool aws_read_type(json_object *item, struct aws_type *out);

#endif
