# SPDX-License-Identifier: Apache-2.0
"""Double of the Query API of AWS EC2, as strict as the real one where it matters to us: Signature Version 4 is worked out
again from the request, client tokens hold, lists come in pages, and what was just launched may be unknown for a while.

Orders (POST /_control): {"capacity": {TYPE: {SUBNET: N}}} what is left ("" is the default subnet; what is not named has
no limit), {"unsupported": {TYPE: [SUBNET]}}, {"boot_polls": N} looks until an instance runs, {"stuck": BOOL} never,
{"delay_visible": N} calls for which a new instance is unknown, {"page": N} most items of a page, {"deny": [ACTION]},
{"state": {ID: WORD}}, {"reason": {ID: CODE}} why, {"vanish": [ID]}, {"launch": {"name", "replica", "type_name"}} as by
somebody else, {"public": BOOL} whether instances have public addresses, {"clock": SECONDS} that its clock is ahead,
{"age": SECONDS} that launches were longer ago, {"token": TEXT} of temporary keys."""
import hashlib
import hmac
import re
import time
from datetime import datetime, timezone
from xml.sax.saxutils import escape

from fake_api import Answer, Double, options, run

VERSION = "2016-11-15"
TYPES = {  # GPU, MiB of one, how many, vCPUs, MiB
    "g4dn.xlarge": ("T4", 16384, 1, 4, 16384),
    "g4dn.2xlarge": ("T4", 16384, 1, 8, 32768),
    "g5.xlarge": ("A10G", 24576, 1, 4, 16384),
    "g6.xlarge": ("L4", 22888, 1, 4, 16384),
    "g6.12xlarge": ("L4", 22888, 4, 48, 196608),
    "p3.2xlarge": ("V100", 16384, 1, 8, 62464),
    "p4d.24xlarge": ("A100", 40960, 8, 96, 1179648),
    "p4de.24xlarge": ("A100", 81920, 8, 96, 1179648),
    "p5.48xlarge": ("H100", 81920, 8, 192, 2097152),
    "g4ad.xlarge": (None, 0, 0, 4, 16384),  # stands for what has none
    "m5.large": (None, 0, 0, 2, 8192),
}
KNOWN = {
    "RunInstances": r"MinCount|MaxCount|InstanceType|ImageId|KeyName|SubnetId|ClientToken|UserData|SecurityGroupId\.\d+|"
                    r"InstanceInitiatedShutdownBehavior|IamInstanceProfile\.(Name|Arn)|LaunchTemplate\.LaunchTemplate(Id|Name)|"
                    r"TagSpecification\.\d+\.(ResourceType|Tag\.\d+\.(Key|Value))",
    "DescribeInstances": r"Filter\.\d+\.(Name|Value\.\d+)|InstanceId\.\d+|MaxResults|NextToken",
    "TerminateInstances": r"InstanceId\.\d+",
    "DescribeInstanceTypes": r"Filter\.\d+\.(Name|Value\.\d+)|MaxResults|NextToken",
}
GONE = ("shutting-down", "terminated")


def to_xml(value):
    if isinstance(value, dict):
        return "".join(f"<{k}>{to_xml(v)}</{k}>" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return "".join(f"<item>{to_xml(v)}</item>" for v in value)
    return escape(str(value))


def good(action, value):
    return Answer(200, f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="http://ec2.amazonaws.com/doc/{VERSION}/">'
                       f"<requestId>r-1</requestId>{to_xml(value)}</{action}Response>".encode(),
                  {"Content-Type": "text/xml;charset=UTF-8"})


def error(status, code, message):
    return Answer(status, f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{code}</Code><Message>'
                          f"{escape(message)}</Message></Error></Errors><RequestID>r-1</RequestID></Response>".encode(),
                  {"Content-Type": "text/xml;charset=UTF-8"})


def numbered(form, name):
    """The values of name.1, name.2, ... in their order."""
    found = [(int(m[1]), v) for k, v in form.items() if (m := re.fullmatch(re.escape(name) + r"\.(\d+)", k))]
    return [v for _, v in sorted(found)]


def filters(form):
    return {form[k]: numbered(form, k.removesuffix("Name") + "Value") for k in form if re.fullmatch(r"Filter\.\d+\.Name", k)}


def fits(value, patterns):
    return any(re.fullmatch(re.escape(p).replace(r"\*", ".*").replace(r"\?", "."), value) for p in patterns)


class Aws(Double):
    def __init__(self, key_id, key, region):
        super().__init__()
        self.key_id, self.key, self.region, self.token = key_id, key, region, ""
        self.instances, self.tokens = {}, {}
        self.capacity, self.unsupported, self.deny = {}, {}, []
        self.boot_polls, self.stuck, self.delay_visible, self.page = 1, False, 0, 1000
        self.public, self.clock, self.serial, self.launched = True, 0, 0, 0

    # --- orders ---

    def control(self, order):
        for name in ("capacity", "unsupported", "deny", "boot_polls", "stuck", "delay_visible", "page", "public", "clock", "token"):
            if name in order:
                setattr(self, name, order.pop(name))
        for key, word in order.pop("state", {}).items():
            self.instances[key]["state"] = word
        for key, word in order.pop("reason", {}).items():
            self.instances[key]["reason"] = word
        for key in order.pop("vanish", []):
            self.instances[key]["hidden"] = 1 << 30
        age = order.pop("age", 0)
        for instance in self.instances.values():
            instance["launched"] -= age
        if "launch" in order:
            more = order.pop("launch")
            self.make({"Name": more["name"], "weighbridge:cluster": more.get("cluster", "c1"),
                       "weighbridge:replica": str(more.get("replica", 0))}, more.get("type_name", "g4dn.xlarge"), "", "theirs")

    def state(self):
        return {"instances": self.instances, "launched": self.launched,
                "alive": sum(i["state"] not in GONE for i in self.instances.values())}

    # --- the API ---

    def handle(self, call):
        if call.method != "POST" or call.path != "/" or not call.form:
            return error(400, "InvalidRequest", "The request is not a form.")
        self.authenticate(call)
        action = call.form.get("Action")
        if action not in KNOWN or call.form.get("Version") != VERSION:
            return error(400, "InvalidAction", f"The action {action} is not valid for this web service.")
        for name in call.form:
            if name not in ("Action", "Version") and not re.fullmatch(KNOWN[action], name):
                return error(400, "UnknownParameter", f"The parameter {name} is not recognized")
        if action in self.deny:
            return error(403, "UnauthorizedOperation", "You are not authorized to perform this operation.")
        return getattr(self, action)(call.form)

    def authenticate(self, call):
        """Signature Version 4, out of what was received."""
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?"
                             r"Signature=([0-9a-f]{64})", call.headers.get("Authorization") or "")
        if not match:
            raise error(400, "MissingAuthenticationToken", "Request is missing Authentication Token")
        key_id, day, region, service, signed, signature = match.groups()
        stamp = call.headers.get("X-Amz-Date") or ""
        if key_id != self.key_id or (call.headers.get("X-Amz-Security-Token") or "") != self.token:
            raise error(401, "AuthFailure", f"AWS was not able to validate the provided access credentials {key_id}")
        if (region, service) != (self.region, "ec2") or day != stamp[:8]:
            raise error(403, "SignatureDoesNotMatch", f"Credential should be scoped to a valid region, not '{region}'.")
        names = signed.split(";")
        wanted = {"host", "x-amz-date"} | ({"x-amz-security-token"} if self.token else set())
        if names != sorted(names) or not wanted <= set(names):
            raise error(403, "SignatureDoesNotMatch", "'Host' must be a 'SignedHeader' in the AWS Authorization.")
        headers = "".join(f"{n}:{' '.join((call.headers.get(n) or '').split())}\n" for n in names)
        canonical = "\n".join([call.method, call.path, "", headers, signed, hashlib.sha256(call.raw).hexdigest()])
        scope = f"{day}/{region}/{service}/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + self.key).encode()
        for part in (day, region, service, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature):
            raise error(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
        at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
        if abs(time.time() + self.clock - at) > 300:
            raise error(400, "RequestExpired", f"Request has expired. Timestamp date is {stamp}")

    def RunInstances(self, form):  # noqa: N802
        if form.get("MinCount") != "1" or form.get("MaxCount") != "1":
            return error(400, "MissingParameter", "The request must contain the parameter MinCount")
        if not form.get("ImageId") and not any(k.startswith("LaunchTemplate.") for k in form):
            return error(400, "MissingParameter", "The request must contain the parameter ImageId")
        if form.get("ImageId") and not re.fullmatch(r"ami-[0-9a-f]{8,17}", form["ImageId"]):
            return error(400, "InvalidAMIID.Malformed", f'Invalid id: "{form["ImageId"]}"')
        if form.get("InstanceType") not in TYPES:
            return error(400, "InvalidParameterValue", f"Invalid value '{form.get('InstanceType')}' for InstanceType.")
        if form.get("KeyName", "ci") != "ci":
            return error(400, "InvalidKeyPair.NotFound", f"The key pair '{form['KeyName']}' does not exist")
        token = form.get("ClientToken", "")
        if len(token) > 64 or not token.isascii():
            return error(400, "InvalidParameterValue", "Value for parameter clientToken is invalid. Must be at most 64 characters.")
        asked = {k: v for k, v in form.items() if k != "ClientToken"}
        if token in self.tokens:  # held only where it worked
            before, key = self.tokens[token]
            if before != asked:
                return error(400, "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments "
                                                                 "used in previous request(s).")
            return good("RunInstances", {"reservationId": "r-0", "instancesSet": [self.show(self.instances[key])]})
        kind, subnet = form["InstanceType"], form.get("SubnetId", "")
        if subnet in self.unsupported.get(kind, []):
            return error(400, "Unsupported", "The requested configuration is currently not supported in this Availability Zone.")
        left = self.capacity.get(kind, {}).get(subnet)
        if left is not None and left <= 0:
            return error(500, "InsufficientInstanceCapacity", f"We currently do not have sufficient {kind} capacity in the "
                                                              "Availability Zone you requested.")
        if left is not None:
            self.capacity[kind][subnet] = left - 1
        tags = {form[f"TagSpecification.1.Tag.{i}.Key"]: form[f"TagSpecification.1.Tag.{i}.Value"] for i in (1, 2, 3)}
        self.launched += 1
        key = self.make(tags, kind, subnet, token)
        self.tokens[token] = (asked, key)
        return good("RunInstances", {"reservationId": "r-0", "instancesSet": [self.show(self.instances[key])]})

    def make(self, tags, kind, subnet, token):
        self.serial += 1
        key = f"i-{self.serial:017x}"
        self.instances[key] = {"id": key, "tags": tags, "type": kind, "subnet": subnet, "token": token, "state": "pending", "n": self.serial,
                               "polls": self.boot_polls, "hidden": self.delay_visible, "reason": "", "launched": time.time()}
        return key

    def show(self, i):
        running = i["state"] == "running"
        return {"instanceId": i["id"], "imageId": "ami-0", "instanceState": {"code": 0, "name": i["state"]},
                "stateReason": {"code": i["reason"], "message": i["reason"]} if i["reason"] else None,
                "privateIpAddress": f"10.0.0.{i['n']}", "ipAddress": f"192.0.2.{i['n']}" if running and self.public else None,
                "instanceType": i["type"], "clientToken": i["token"], "placement": {"availabilityZone": self.region + "a"},
                "launchTime": datetime.fromtimestamp(i["launched"], timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "tagSet": [{"key": k, "value": v} for k, v in i["tags"].items()],
                "blockDeviceMapping": [{"deviceName": "/dev/sda1", "ebs": {"volumeId": "vol-1", "status": "attached"}}]}

    def visible(self, i):
        i["hidden"] -= i["hidden"] > 0
        return i["hidden"] == 0

    def move_on(self, i):
        if i["state"] == "pending" and not self.stuck:
            i["polls"] -= 1
            if i["polls"] < 0:
                i["state"] = "running"
        return i

    def DescribeInstances(self, form):  # noqa: N802
        wanted = numbered(form, "InstanceId")
        if wanted and "MaxResults" in form:
            return error(400, "InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
        if wanted:
            self.find(wanted)
            return good("DescribeInstances", {"reservationSet": [{"reservationId": "r-0", "instancesSet": [
                self.show(self.move_on(self.instances[key])) for key in wanted]}]})
        chosen = filters(form)
        found = [i for i in self.instances.values()
                 if all(fits(i["tags"].get(name.removeprefix("tag:"), ""), values) for name, values in chosen.items())]
        found = [self.move_on(i) for i in found if self.visible(i)]
        return self.paged("DescribeInstances", form, found, lambda part: {
            "reservationSet": [{"reservationId": "r-0", "instancesSet": [self.show(i)]} for i in part]})

    def paged(self, action, form, found, body):
        start = int(form.get("NextToken") or 0)
        end = start + min(int(form.get("MaxResults") or 1000), self.page)
        return good(action, {**body(found[start:end]), "nextToken": str(end) if end < len(found) else None})

    def find(self, keys):
        for key in keys:
            if not re.fullmatch(r"i-[0-9a-f]{8,17}", key):
                raise error(400, "InvalidInstanceID.Malformed", f'Invalid id: "{key}"')
        missing = [key for key in keys if key not in self.instances or self.instances[key]["hidden"] > 0]
        for key in set(missing) & set(self.instances):
            self.instances[key]["hidden"] -= 1
        if missing:
            raise error(400, "InvalidInstanceID.NotFound", f"The instance IDs '{', '.join(missing)}' do not exist")

    def TerminateInstances(self, form):  # noqa: N802
        keys = numbered(form, "InstanceId")
        if not keys:
            return error(400, "MissingParameter", "The request must contain the parameter InstanceId")
        self.find(keys)
        for key in keys:
            self.instances[key]["state"] = "shutting-down"
        return good("TerminateInstances", {"instancesSet": [{"instanceId": key, "currentState": {"code": 32, "name": "shutting-down"}}
                                                            for key in keys]})

    def DescribeInstanceTypes(self, form):  # noqa: N802
        wanted = filters(form).get("instance-type", ["*"])
        found = [(name, *what) for name, what in TYPES.items() if fits(name, wanted)]
        return self.paged("DescribeInstanceTypes", form, found, lambda part: {"instanceTypeSet": [
            {"instanceType": name, "currentGeneration": "true", "vCpuInfo": {"defaultVCpus": cpus}, "memoryInfo": {"sizeInMiB": memory},
             "gpuInfo": {"gpus": [{"name": gpu, "manufacturer": "NVIDIA", "count": n, "memoryInfo": {"sizeInMiB": mib}}],
                         "totalGpuMemoryInMiB": mib * n} if gpu else None}
            for name, gpu, mib, n, cpus, memory in part]})


def main():
    parser = options(__doc__)
    parser.add_argument("--key", default="aws-secret-key")
    parser.add_argument("--key-id", default="AKIATEST")
    parser.add_argument("--region", default="eu-test-1")
    args = parser.parse_args()
    run(Aws(args.key_id, args.key, args.region), args)


if __name__ == "__main__":
    main()
