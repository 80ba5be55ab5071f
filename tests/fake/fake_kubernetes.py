# SPDX-License-Identifier: Apache-2.0
"""Double of a Kubernetes API server with its Deployment controller, scheduler and garbage collector, as strict as the
real one where it matters to us. It moves on with every call, not with time.

Orders (POST /_control): {"nodes": {NAME: {"gpu": TYPE, "gpus": N, "cordoned", "ready", "taints": [KEY]}}} all of them,
{"tokens": [TOKEN]} those that are known, {"deny": [RESOURCE]} what they may not do, {"boot_polls": N} calls until a
pod that has a node is ready, {"stuck": BOOL} never, {"images": {IMAGE: REASON}} that cannot be started, {"quota": N}
pods that the namespace may have, {"advance": SECONDS} for deadlines, {"expire": true} what lists go on from,
{"delete_polls": N} calls until what was deleted is gone, {"pod": {"node", "gpus"}} one of somebody else,
{"deployment": {"name", "labels", "replicas"}} likewise, {"unlabel": NAME} takes ours from us."""
import base64
import json
import re
import uuid

from fake_api import Answer, Double, options, run

LABEL = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
MANAGED = "app.kubernetes.io/managed-by"

ANY = object()
TEXTS = {"*": str}
META = {"name": str, "labels": TEXTS, "annotations": TEXTS, "ownerReferences": [
    {"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool, "blockOwnerDeletion": bool}]}
POD = {
    "containers": [{
        "name": str, "image": str, "args": [str], "command": [str], "env": ANY, "envFrom": [{"secretRef": {"name": str}}],
        "ports": [{"name": str, "containerPort": int}], "resources": {"limits": TEXTS, "requests": TEXTS},
        "readinessProbe": {"httpGet": {"path": str, "port": int}, "periodSeconds": int, "failureThreshold": int},
        "volumeMounts": [{"name": str, "mountPath": str}]}],
    "volumes": [{"name": str, "emptyDir": {"medium": str}}], "automountServiceAccountToken": bool,
    "tolerations": [{"key": str, "operator": str, "effect": str}], "imagePullSecrets": [{"name": str}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": str, "operator": str, "values": [str]}]}]}}}}
SCHEMAS = {
    "deployments": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "replicas": int, "progressDeadlineSeconds": int, "revisionHistoryLimit": int, "selector": {"matchLabels": TEXTS},
        "template": {"metadata": META, "spec": POD}}},
    "services": {"apiVersion": str, "kind": str, "metadata": META, "spec": {
        "selector": TEXTS, "type": str, "clusterIP": str, "ports": [{"name": str, "port": int, "targetPort": int}]}},
}
KINDS = {"deployments": ("apps/v1", "Deployment"), "services": ("v1", "Service")}
DNS_LABEL = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"  # of a Service: RFC 1035
DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LABEL_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
LABEL_KEY = rf"({DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"


def status(code, reason, message, headers=None):
    return Answer(code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                         "reason": reason, "code": code}, headers)


def unknown_fields(value, schema, path=""):
    """Paths of fields that the schema does not have; a wrong type is the error of decoding that it is."""
    if schema is ANY:
        return []
    if isinstance(schema, list):
        if not isinstance(value, list):
            raise status(400, "BadRequest", f"cannot unmarshal into field {path} of type list")
        return [u for i, v in enumerate(value) for u in unknown_fields(v, schema[0], f"{path}[{i}]")]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            raise status(400, "BadRequest", f"cannot unmarshal into field {path} of type object")
        found = []
        for key, member in value.items():
            where = f"{path}.{key}" if path else key
            if key not in schema and "*" not in schema:
                found.append(where)
            else:
                found += unknown_fields(member, schema.get(key, schema.get("*")), where)
        return found
    if not isinstance(value, schema) or (schema is int and isinstance(value, bool)):
        raise status(400, "BadRequest", f"cannot unmarshal into field {path} of type {schema.__name__}")
    return []


def fields_that_nobody_reads(depth=22):
    """As managedFields are: nested far deeper than what they tell of."""
    inner = {}
    for i in range(depth):
        inner = {f"f:level{i}": inner}
    return [{"manager": "kubectl", "fieldsType": "FieldsV1", "fieldsV1": inner}]


class Kubernetes(Double):
    def __init__(self, key):
        super().__init__()
        self.tokens, self.deny = [key], []
        self.nodes = {"n1": {"gpu": "NVIDIA-A100-SXM4-80GB", "gpus": 8}, "n2": {"gpu": "NVIDIA-L4", "gpus": 1}}
        self.objects = {"deployments": {}, "services": {}}
        self.pods = {}
        self.boot_polls, self.stuck, self.images, self.quota, self.delete_polls = 1, False, {}, None, 1
        self.clock, self.version, self.expired, self.made = 0, 100, 0, 0

    # --- orders ---

    def control(self, order):
        for name in ("nodes", "tokens", "deny", "boot_polls", "stuck", "images", "quota", "delete_polls"):
            if name in order:
                setattr(self, name, order.pop(name))
        self.clock += order.pop("advance", 0)
        if order.pop("expire", False):
            self.expired = self.version
        if "pod" in order:
            self.foreign_pod(**order.pop("pod"))
        if "deployment" in order:
            self.foreign_deployment(**order.pop("deployment"))
        if "unlabel" in order:
            self.objects["deployments"][order.pop("unlabel")]["metadata"]["labels"].pop(MANAGED)

    def foreign_pod(self, node, gpus):
        name = f"other-{len(self.pods)}"
        self.pods[name] = {"owner": None, "node": node, "gpus": gpus, "ready": True, "polls": 0, "trouble": "", "labels": {},
                           "tolerates": [], "types": None, "restarts": 0}

    def foreign_deployment(self, name, labels, replicas=1):
        self.keep("deployments", {"metadata": {"name": name, "labels": labels}, "spec": {"replicas": replicas, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}}})

    def state(self):
        self.collect()
        return {"deployments": {k: v for k, v in self.objects["deployments"].items() if not self.is_ending(v)},
                "services": self.objects["services"], "pods": self.pods, "made": self.made,
                "alive": sum(p["owner"] is not None and not self.is_ending(self.objects["deployments"][p["owner"]])
                             for p in self.pods.values())}

    # --- the API ---

    def handle(self, call):
        self.authenticate(call)
        match = re.fullmatch(r"/(?:api/v1|apis/apps/v1)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?", call.path)
        if not match:
            return status(404, "NotFound", "the server could not find the requested resource")
        namespace, resource, name = match.groups()
        self.authorize(call, resource)
        self.move_on()
        if resource in ("nodes", "pods") and call.method == "GET" and name is None:
            return self.page(call, getattr(self, "show_" + resource)(call, namespace), resource)
        if resource not in self.objects or call.path.startswith("/apis/") != (resource == "deployments"):
            return status(404, "NotFound", "the server could not find the requested resource")
        if namespace not in ("default", "jobs"):
            return status(404, "NotFound", f'namespaces "{namespace}" not found')
        if call.method == "POST" and name is None:
            return self.create(call, resource)
        if call.method == "GET" and name is None:
            return self.page(call, self.selected(call, resource), resource)
        if name not in self.objects[resource]:
            return status(404, "NotFound", f'{resource}.apps "{name}" not found')
        if call.method == "GET":
            return Answer(200, self.show(resource, self.objects[resource][name]))
        if call.method == "DELETE":
            return self.delete(call, resource, name)
        return status(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def authenticate(self, call):
        kind, _, token = (call.headers.get("Authorization") or "").partition(" ")
        if kind != "Bearer" or token not in self.tokens:
            raise status(401, "Unauthorized", "Unauthorized")

    def authorize(self, call, resource):
        if resource in self.deny:
            raise status(403, "Forbidden", f'{resource} is forbidden: User "system:serviceaccount:default:wb" cannot '
                                           f'{call.method.lower()} resource "{resource}"')

    def create(self, call, resource):
        if call.headers.get("Content-Type") != "application/json":
            return status(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        body = call.json()
        if not isinstance(body, dict) or (body.get("apiVersion"), body.get("kind")) != KINDS[resource]:
            return status(400, "BadRequest", "the object provided is unrecognized")
        unknown = unknown_fields(body, SCHEMAS[resource])
        if unknown and call.query.get("fieldValidation") == "Strict":
            return status(400, "BadRequest", f'strict decoding error: unknown field "{unknown[0]}"')
        self.validate(body, resource)
        if body["metadata"]["name"] in self.objects[resource]:
            return status(409, "AlreadyExists", f'{resource}.apps "{body["metadata"]["name"]}" already exists')
        self.keep(resource, body)
        return Answer(201, self.show(resource, body))

    def validate(self, body, resource):
        def invalid(field, what):
            return status(422, "Invalid", f'{body["kind"]} is invalid: {field}: {what}')
        name = body.get("metadata", {}).get("name", "")
        if not re.fullmatch(DNS_LABEL if resource == "services" else DNS_NAME, name) or len(name) > 253:
            raise invalid("metadata.name", f'Invalid value: "{name}"')
        spec = body.get("spec", {})
        labels = dict(body["metadata"].get("labels", {}))
        if resource == "deployments":
            template = spec.get("template", {})
            labels |= template.get("metadata", {}).get("labels", {})
            chosen = spec.get("selector", {}).get("matchLabels", {})
            if not chosen or not chosen.items() <= template.get("metadata", {}).get("labels", {}).items():
                raise invalid("spec.selector", "`selector` does not match template `labels`")
            self.validate_pod(template.get("spec", {}), invalid)
            if spec.get("replicas", 1) < 0 or spec.get("progressDeadlineSeconds", 600) <= 0:
                raise invalid("spec.replicas", "must be greater than or equal to 0")
        elif not spec.get("ports"):
            raise invalid("spec.ports", "Required value")
        for key, value in labels.items():
            if not re.fullmatch(LABEL_KEY, key) or not re.fullmatch(LABEL_VALUE, value):
                raise invalid("metadata.labels", f'Invalid value: "{key}={value}"')

    @staticmethod
    def validate_pod(pod, invalid):
        if not pod.get("containers"):
            raise invalid("spec.template.spec.containers", "Required value")
        volumes = {v["name"] for v in pod.get("volumes", [])}
        for container in pod["containers"]:
            if not container.get("name") or not container.get("image"):
                raise invalid("spec.template.spec.containers[0].image", "Required value")
            if not {m["name"] for m in container.get("volumeMounts", [])} <= volumes:
                raise invalid("spec.template.spec.containers[0].volumeMounts[0].name", "Not found")
            limits = container.get("resources", {}).get("limits", {})
            if not re.fullmatch(r"[0-9]+", limits.get(GPU, "0")):
                raise invalid("resources.limits[nvidia.com/gpu]", "must be an integer")
            if limits.get(GPU) != container.get("resources", {}).get("requests", limits).get(GPU):
                raise invalid("resources.requests", "must be equal to nvidia.com/gpu limit")

    def keep(self, resource, body):
        self.version += 1
        self.made += resource == "deployments"
        body["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": str(self.version), "generation": 1,
                             "managedFields": fields_that_nobody_reads()}
        body["_progress"], body["_polls"] = self.clock, 0
        self.objects[resource][body["metadata"]["name"]] = body

    def delete(self, call, resource, name):
        body = call.json() or {}
        if set(body) - {"apiVersion", "kind", "propagationPolicy", "preconditions", "gracePeriodSeconds"}:
            return status(400, "BadRequest", "strict decoding error: unknown field")
        held = self.objects[resource][name]
        uid = body.get("preconditions", {}).get("uid", held["metadata"]["uid"])
        if uid != held["metadata"]["uid"]:
            return status(409, "Conflict", f"the UID in the precondition ({uid}) does not match the UID in record")
        if body.get("propagationPolicy") == "Foreground":
            held["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            held["_polls"] = self.delete_polls
            return Answer(200, self.show(resource, held))
        del self.objects[resource][name]
        return Answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    # --- lists ---

    def selected(self, call, resource):
        return [self.show(resource, o) for o in self.objects[resource].values()
                if self.matches(call, o["metadata"].get("labels", {}))]

    @staticmethod
    def matches(call, labels):
        wanted = [part.partition("=") for part in call.query.get("labelSelector", "").split(",") if part]
        return all(labels.get(key) == value for key, _, value in wanted)

    def page(self, call, items, resource):
        start, version = 0, self.version
        if call.query.get("continue"):
            start, version = json.loads(base64.b64decode(call.query["continue"]))
            if version <= self.expired:
                return status(410, "Expired", "The provided continue parameter is too old to display a consistent list result.")
        limit = int(call.query.get("limit") or 0) or len(items) or 1
        more = start + limit < len(items)
        token = base64.b64encode(json.dumps([start + limit, version]).encode()).decode() if more else ""
        return Answer(200, {"kind": resource.title() + "List", "apiVersion": "v1",
                            "metadata": {"resourceVersion": str(version), "continue": token}, "items": items[start:start + limit]})

    def show(self, resource, held):
        seen = {k: v for k, v in held.items() if not k.startswith("_")}
        if resource != "deployments":
            return seen
        pods = self.pods_of(held)
        stalled = any(not p["ready"] for p in pods) or len(pods) < held["spec"]["replicas"]
        stalled = stalled and self.clock - held["_progress"] >= held["spec"].get("progressDeadlineSeconds", 600)
        conditions = [{"type": "Progressing", "status": "False" if stalled else "True",
                       "reason": "ProgressDeadlineExceeded" if stalled else "ReplicaSetUpdated"}]
        if self.is_over_quota(held):
            conditions.append({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                               "message": 'pods "x" is forbidden: exceeded quota: gpus, requested: 1, used: 8, limited: 8'})
        seen["status"] = {"observedGeneration": 1, "replicas": len(pods), "conditions": conditions}
        if any(p["ready"] for p in pods):  # the real one leaves out what is 0
            seen["status"]["readyReplicas"] = sum(p["ready"] for p in pods)
        return {"apiVersion": "apps/v1", "kind": "Deployment", **seen}

    def show_nodes(self, _call, _namespace):
        return [{"metadata": {"name": name, "labels": {LABEL: n["gpu"]} if n.get("gpu") else {},
                              "managedFields": fields_that_nobody_reads()},
                 "spec": {"unschedulable": True} if n.get("cordoned") else
                         {"taints": [{"key": key, "effect": "NoSchedule"} for key in n.get("taints", [])]},
                 "status": {"allocatable": {"cpu": "63500m", **({GPU: str(n["gpus"])} if n.get("gpus") else {})},
                            "conditions": [{"type": "MemoryPressure", "status": "False"},
                                           {"type": "Ready", "status": "True" if n.get("ready", True) else "Unknown"}]}}
                for name, n in self.nodes.items()]

    def show_pods(self, call, _namespace):
        return [self.show_pod(name, pod) for name, pod in self.pods.items() if self.matches(call, pod["labels"])]

    @staticmethod
    def show_pod(name, pod):
        waiting = {"waiting": {"reason": pod["trouble"] or "ContainerCreating", "message": f"Back-off: {pod['trouble']}"}}
        last = {"terminated": {"reason": "Error", "exitCode": 1}} if pod["trouble"] == "CrashLoopBackOff" else {}
        scheduled = {"type": "PodScheduled", "status": "True"} if pod["node"] else {
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."}
        limits = {GPU: str(pod["gpus"])} if pod["gpus"] else {}
        return {"metadata": {"name": name, "labels": pod["labels"], "managedFields": fields_that_nobody_reads()},
                "spec": {"containers": [{"name": "engine", "resources": {"limits": limits, "requests": limits}}],
                         **({"nodeName": pod["node"]} if pod["node"] else {})},
                "status": {"phase": "Running" if pod["ready"] else "Pending", "conditions": [scheduled], **({} if not pod["node"] else {
                    "containerStatuses": [{"name": "engine", "ready": pod["ready"], "lastState": last,
                                           "state": {"running": {}} if pod["ready"] else waiting}]})}}

    # --- its controllers ---

    @staticmethod
    def is_ending(held):
        return "deletionTimestamp" in held["metadata"]

    def pods_of(self, held):
        return [p for p in self.pods.values() if p["owner"] == held["metadata"]["name"]]

    def is_over_quota(self, held):
        return self.quota is not None and len(self.pods_of(held)) < held["spec"]["replicas"]

    def move_on(self):
        for held in list(self.objects["deployments"].values()):
            if self.is_ending(held):
                held["_polls"] -= 1
                if held["_polls"] < 0:
                    del self.objects["deployments"][held["metadata"]["name"]]
            else:
                self.fill_up(held)
        self.collect()
        for pod in self.pods.values():
            self.move_pod(pod)

    def collect(self):
        """What is owned by nothing any more goes."""
        there = self.objects["deployments"]
        uids = {o["metadata"]["uid"] for o in there.values()}
        self.pods = {k: p for k, p in self.pods.items() if p["owner"] is None or p["owner"] in there}
        self.objects["services"] = {
            k: s for k, s in self.objects["services"].items()
            if not s["metadata"].get("ownerReferences") or {r["uid"] for r in s["metadata"]["ownerReferences"]} & uids}

    def fill_up(self, held):
        spec = held["spec"]["template"]["spec"]
        container = spec["containers"][0]
        terms = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
        types = [e["values"] for t in terms.get("nodeSelectorTerms", []) for e in t["matchExpressions"] if e["key"] == LABEL]
        while len(self.pods_of(held)) < held["spec"]["replicas"]:
            if self.quota is not None and sum(p["owner"] is not None for p in self.pods.values()) >= self.quota:
                return
            name = f'{held["metadata"]["name"][:50]}-{uuid.uuid4().hex[:5]}'
            self.pods[name] = {
                "owner": held["metadata"]["name"], "node": None, "ready": False, "polls": self.boot_polls, "types": types,
                "gpus": int(container.get("resources", {}).get("limits", {}).get(GPU, 0)),
                "labels": held["spec"]["template"]["metadata"]["labels"], "trouble": self.images.get(container["image"], ""),
                "tolerates": [t["key"] for t in spec.get("tolerations", [])], "restarts": 0}

    def move_pod(self, pod):
        if pod["node"] is None:
            pod["node"] = next((name for name, node in self.nodes.items() if self.has_room(name, node, pod)), None)
        if pod["node"] is None or pod["trouble"] or pod["ready"] or self.stuck:
            return
        pod["polls"] -= 1
        pod["ready"] = pod["polls"] < 0
        if pod["ready"]:
            self.objects["deployments"][pod["owner"]]["_progress"] = self.clock

    def has_room(self, name, node, pod):
        used = sum(p["gpus"] for p in self.pods.values() if p["node"] == name)
        return (node.get("gpus", 0) - used >= pod["gpus"] and not node.get("cordoned") and node.get("ready", True)
                and set(node.get("taints", [])) <= set(pod["tolerates"])
                and all(node.get("gpu") in types for types in pod["types"]))


def main():
    parser = options(__doc__)
    parser.add_argument("--key", default="kubernetes-token")
    args = parser.parse_args()
    run(Kubernetes(args.key), args)


if __name__ == "__main__":
    main()
