# SPDX-License-Identifier: Apache-2.0
"""Double of RunPod's REST API (https://rest.runpod.io/v1), as strict as the real one where it matters to us.

Orders (POST /_control): {"capacity": {GPU_TYPE_ID: N}}, {"boot_polls": N} looks at a pod until it has an address,
{"stuck": BOOL} never, {"no_ssh": BOOL} an address but no mapped SSH port, {"status": {ID: WORD}}, {"vanish": [ID]},
{"create": {"name": NAME, ...}} as by somebody else, {"error_in_200": BOOL} "no capacity" said with status 200."""
import re

from fake_api import Answer, Double, options, run

GPUS = ("NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA L40",
        "NVIDIA L40S", "NVIDIA GeForce RTX 4090", "NVIDIA A40", "NVIDIA RTX A6000")
CENTERS = ("EU-RO-1", "US-TX-1", "US-KS-2", "EU-SE-1")
FIELDS = {"name", "imageName", "computeType", "cloudType", "gpuTypeIds", "gpuCount", "gpuTypePriority", "dataCenterIds",
          "dataCenterPriority", "ports", "dockerEntrypoint", "dockerStartCmd", "supportPublicIp", "env",
          "containerDiskInGb", "volumeInGb", "volumeMountPath", "interruptible", "locked", "minRAMPerGPU",
          "minVCPUPerGPU", "networkVolumeId", "templateId", "allowedCudaVersions", "countryCodes",
          "containerRegistryAuthId", "globalNetworking"}
GONE = ("TERMINATED",)


def error(status, message):
    return Answer(status, {"error": message, "status": status})


class RunPod(Double):
    def __init__(self, key):
        super().__init__()
        self.key = key
        self.pods = {}
        self.capacity = {name: 4 for name in GPUS}
        self.boot_polls, self.stuck, self.no_ssh, self.error_in_200 = 1, False, False, False
        self.serial = 0

    # --- orders ---

    def control(self, order):
        for name in ("capacity", "boot_polls", "stuck", "no_ssh", "error_in_200"):
            if name in order:
                setattr(self, name, order.pop(name))
        for key, word in order.pop("status", {}).items():
            self.pods[key]["desiredStatus"] = word
        for key in order.pop("vanish", []):
            del self.pods[key]
        if "create" in order:
            self.make(order.pop("create"), GPUS[0])

    def state(self):
        return {"pods": list(self.pods.values()), "capacity": self.capacity, "launched": self.serial,
                "alive": sum(p["desiredStatus"] not in GONE for p in self.pods.values())}

    # --- the API ---

    def handle(self, call):
        if call.headers.get("Authorization") != "Bearer " + self.key:
            return Answer(401, {"error": {}})
        path = call.path.removeprefix("/v1")
        if path == "/pods" and call.method == "POST":
            return self.create(call.json())
        if path == "/pods" and call.method == "GET":
            return self.list(call.query)
        if path.startswith("/pods/"):
            key = path.removeprefix("/pods/")
            if key not in self.pods:
                return error(404, "pod not found")
            if call.method == "GET":
                return Answer(200, self.look(self.pods[key], call.query))
            if call.method == "DELETE":
                del self.pods[key]
                return Answer(204)
        return error(404, "not found")

    def list(self, query):
        if set(query) - {"name", "includeMachine", "computeType", "gpuTypeId", "dataCenterId", "desiredStatus", "imageName", "id"}:
            return error(400, "unknown query parameter")
        return Answer(200, [self.look(p, query) for p in self.pods.values() if query.get("name", p["name"]) == p["name"]])

    def look(self, pod, query):
        if pod["desiredStatus"] == "RUNNING" and not pod["publicIp"] and not self.stuck:
            if pod["_polls"] > 0:
                pod["_polls"] -= 1
            else:
                pod["publicIp"] = f"198.51.100.{pod['_n'] % 250 + 1}"
                pod["portMappings"] = {} if self.no_ssh else {"22": 10000 + pod["_n"]}
        hidden = () if query.get("includeMachine") == "true" else ("machine",)
        return {k: v for k, v in pod.items() if not k.startswith("_") and k not in hidden}

    def create(self, body):
        wrong = self.wrong(body)
        if wrong:
            return error(400, f"create pod: {wrong}")
        free = [gpu for gpu in body["gpuTypeIds"] if self.capacity.get(gpu, 0) >= body.get("gpuCount", 1)]
        if not free:
            return Answer(200 if self.error_in_200 else 500,
                          {"error": "create pod: There are no instances currently available", "status": 500})
        self.capacity[free[0]] -= body.get("gpuCount", 1)
        return Answer(201, self.look(self.make(body, free[0]), {"includeMachine": "true"}))

    def make(self, body, gpu):
        self.serial += 1
        key = f"pod{self.serial:011x}"
        self.pods[key] = {
            "id": key, "name": body["name"], "image": body.get("imageName", ""), "desiredStatus": "RUNNING",
            "publicIp": "", "portMappings": None, "costPerHr": 1.89, "gpuCount": body.get("gpuCount", 1),
            "gpu": {"id": gpu, "count": body.get("gpuCount", 1), "displayName": gpu.removeprefix("NVIDIA ")},
            "machine": {"gpuTypeId": gpu, "dataCenterId": (body.get("dataCenterIds") or CENTERS)[0]},
            "env": {**body.get("env", {}), "TOKEN": "pod-secret"}, "ports": body.get("ports", []),
            "_polls": self.boot_polls, "_n": self.serial}
        return self.pods[key]

    @staticmethod
    def wrong(body):
        """What the real one's schema says of such a request."""
        if not isinstance(body, dict):
            return "no object"
        if set(body) - FIELDS:
            return f"unknown fields {sorted(set(body) - FIELDS)}"
        checks = {
            "name": isinstance(body.get("name", ""), str) and len(body.get("name", "")) <= 191,
            "imageName": isinstance(body.get("imageName"), str) and body["imageName"] != "",
            "computeType": body.get("computeType", "GPU") in ("GPU", "CPU"),
            "cloudType": body.get("cloudType", "SECURE") in ("SECURE", "COMMUNITY"),
            "gpuTypePriority": body.get("gpuTypePriority", "availability") in ("availability", "custom"),
            "gpuTypeIds": bool(body.get("gpuTypeIds")) and set(body["gpuTypeIds"]) <= set(GPUS),
            "gpuCount": isinstance(body.get("gpuCount", 1), int) and body.get("gpuCount", 1) >= 1,
            "dataCenterIds": set(body.get("dataCenterIds", [])) <= set(CENTERS),
            "ports": all(re.fullmatch(r"\d{1,5}/(http|tcp)", p) for p in body.get("ports", [])),
            "dockerEntrypoint": isinstance(body.get("dockerEntrypoint", []), list),
            "dockerStartCmd": isinstance(body.get("dockerStartCmd", []), list),
            "env": all(isinstance(v, str) for v in body.get("env", {}).values()),
        }
        bad = [name for name, good in checks.items() if not good]
        return f"{bad[0]} is not valid" if bad else None


def main():
    parser = options(__doc__)
    parser.add_argument("--key", default="runpod-key")
    args = parser.parse_args()
    run(RunPod(args.key), args)


if __name__ == "__main__":
    main()
