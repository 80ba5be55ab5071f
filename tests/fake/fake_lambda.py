# SPDX-License-Identifier: Apache-2.0
"""Double of Lambda Cloud's API (https://cloud.lambda.ai/api/v1), as strict as the real one where it matters to us.

Orders (POST /_control): {"capacity": {TYPE: {REGION: N}}}, {"boot_polls": N} looks at an instance until it is active,
{"stuck": BOOL} never, {"status": {ID: WORD}}, {"vanish": [ID]} out of sight as after a while of being terminated,
{"launch": {...}} as by somebody else, {"keys": [NAME]} registered SSH keys, {"delay_visible": N} list calls before a
new instance shows."""
import base64

from fake_api import Answer, Double, options, run

TYPES = {
    "gpu_1x_a10": (1, "A10 (24 GB PCIe)", 75),
    "gpu_1x_a100": (1, "A100 (40 GB PCIe)", 129),
    "gpu_1x_a100_sxm4": (1, "A100 (40 GB SXM4)", 129),
    "gpu_1x_h100_pcie": (1, "H100 (80 GB PCIe)", 249),
    "gpu_1x_h100_sxm5": (1, "H100 (80 GB SXM5)", 329),
    "gpu_1x_gh200": (1, "GH200 (96 GB)", 149),
    "gpu_1x_rtx6000": (1, "Quadro RTX 6000 (24 GB)", 50),
    "gpu_1x_a6000": (1, "RTX A6000 (48 GB)", 80),
    "gpu_2x_h100_sxm5": (2, "H100 (80 GB SXM5)", 638),
    "gpu_8x_a100": (8, "A100 (40 GB SXM4)", 1032),
    "gpu_8x_a100_80gb_sxm4": (8, "A100 (80 GB SXM4)", 1432),
    "cpu_4x_general": (0, "N/A", 12),
}
REGIONS = ("us-west-1", "us-east-1", "europe-central-1")
LAUNCH_FIELDS = {"region_name", "instance_type_name", "ssh_key_names", "file_system_names", "file_system_mounts",
                 "hostname", "name", "image", "user_data", "tags", "firewall_rulesets", "quantity"}
ALIVE = ("booting", "active", "unhealthy")


def error(status, code, message, suggestion=""):
    return Answer(status, {"error": {"code": code, "message": message, "suggestion": suggestion}},
                  {"X-Request-Id": "lambda-request"})


def invalid(message):
    return error(400, "global/invalid-parameters", message)


def unknown(message):
    return error(404, "global/object-does-not-exist", message)


class Lambda(Double):
    def __init__(self, key):
        super().__init__()
        self.key = key
        self.instances = {}
        self.capacity = {name: {"us-west-1": 4, "us-east-1": 4} for name in TYPES}
        self.keys = ["ci"]
        self.boot_polls, self.stuck, self.delay_visible = 1, False, 0
        self.serial = 0

    # --- orders ---

    def control(self, order):
        for name in ("capacity", "boot_polls", "stuck", "keys", "delay_visible"):
            if name in order:
                setattr(self, name, order.pop(name))
        for key, word in order.pop("status", {}).items():
            self.instances[key]["status"] = word
        for key in order.pop("vanish", []):
            del self.instances[key]
        if "launch" in order:
            self.make(**order.pop("launch"))

    def state(self):
        return {"instances": list(self.instances.values()), "capacity": self.capacity,
                "alive": sum(i["status"] in ALIVE for i in self.instances.values()), "launched": self.serial}

    # --- the API ---

    def handle(self, call):
        self.authenticate(call)
        path = call.path.removeprefix("/api/v1")
        if call.method == "GET" and path == "/instance-types":
            return self.types()
        if call.method == "GET" and path == "/instances":
            return self.list()
        if call.method == "GET" and path.startswith("/instances/"):
            return Answer(200, {"data": self.look(self.find(path.removeprefix("/instances/")))})
        if call.method == "POST" and path == "/instance-operations/launch":
            return self.launch(call.json())
        if call.method == "POST" and path == "/instance-operations/terminate":
            return self.terminate(call.json())
        return error(404, "global/not-found", "No such endpoint.")

    def authenticate(self, call):
        basic = "Basic " + base64.b64encode(f"{self.key}:".encode()).decode()
        if call.headers.get("Authorization") not in (basic, "Bearer " + self.key):
            raise error(401, "global/invalid-api-key",
                        f"API key {call.headers.get('Authorization')} was invalid, expired, or deleted.")

    def types(self):
        return Answer(200, {"data": {name: {
            "instance_type": {
                "name": name, "description": f"{gpus}x {gpu}", "gpu_description": gpu, "price_cents_per_hour": cents,
                "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": gpus}},
            "regions_with_capacity_available": [
                {"name": region, "description": region}
                for region, n in self.capacity.get(name, {}).items() if n > 0],
        } for name, (gpus, gpu, cents) in TYPES.items()}})

    def list(self):
        seen = []
        for instance in self.instances.values():
            if instance["_hidden"] > 0:
                instance["_hidden"] -= 1
            else:
                seen.append(self.look(instance))
        return Answer(200, {"data": seen})

    def look(self, instance):
        if instance["status"] == "booting" and not self.stuck:
            if instance["_polls"] > 0:
                instance["_polls"] -= 1
            else:
                instance.update(status="active", ip=f"192.0.2.{instance['_n'] % 250 + 1}",
                                private_ip=f"10.0.0.{instance['_n'] % 250 + 1}")
        return {k: v for k, v in instance.items() if not k.startswith("_")}

    def find(self, key):
        if key not in self.instances:
            raise unknown("Specified instance does not exist.")
        return self.instances[key]

    def launch(self, body):
        if not isinstance(body, dict) or set(body) - LAUNCH_FIELDS:
            return invalid("Unknown fields in the request.")
        for field in ("region_name", "instance_type_name", "ssh_key_names"):
            if not body.get(field):
                return invalid(f"{field}: required field missing")
        if body.get("quantity", 1) != 1:
            return invalid("quantity: must be 1")
        if not isinstance(body.get("name", ""), str) or len(body.get("name", "")) > 64:
            return invalid("name: must be at most 64 characters")
        if body["region_name"] not in REGIONS:
            return invalid("region_name: no such region")
        if body["instance_type_name"] not in TYPES:
            return invalid("instance_type_name: no such instance type")
        if len(body["ssh_key_names"]) != 1:
            return invalid("ssh_key_names: exactly one SSH key must be specified")
        if body["ssh_key_names"][0] not in self.keys:
            return error(400, "global/object-does-not-exist", "No such SSH key.")
        left = self.capacity.get(body["instance_type_name"], {}).get(body["region_name"], 0)
        if left <= 0:
            return error(400, "instance-operations/launch/insufficient-capacity",
                         "Not enough capacity to fulfill launch request.",
                         "Choose an instance type with more availability, or try again later.")
        self.capacity[body["instance_type_name"]][body["region_name"]] = left - 1
        return Answer(200, {"data": {"instance_ids": [self.make(
            body.get("name"), body["instance_type_name"], body["region_name"])]}})

    def make(self, name, type_name="gpu_1x_a10", region="us-west-1", status="booting"):
        self.serial += 1
        key = f"{self.serial:032x}"
        gpus, gpu, cents = TYPES[type_name]
        self.instances[key] = {
            "id": key, "name": name, "status": status, "ssh_key_names": ["ci"], "file_system_names": [],
            "region": {"name": region, "description": region},
            "instance_type": {"name": type_name, "gpu_description": gpu, "price_cents_per_hour": cents,
                              "specs": {"gpus": gpus}},
            "hostname": f"host-{key}", "jupyter_token": "jupyter-secret",
            "jupyter_url": "https://jupyter.example/?token=jupyter-secret",
            "_polls": self.boot_polls, "_hidden": self.delay_visible, "_n": self.serial}
        return key

    def terminate(self, body):
        keys = body.get("instance_ids") if isinstance(body, dict) else None
        if not isinstance(keys, list) or not keys:
            return invalid("instance_ids: required field missing")
        found = [self.find(key) for key in keys]  # one that is unknown spoils the call for all
        for instance in found:
            instance["status"] = "terminating"
        return Answer(200, {"data": {"terminated_instances": [self.look(i) for i in found]}})


def main():
    parser = options(__doc__)
    parser.add_argument("--key", default="lambda-key")
    args = parser.parse_args()
    run(Lambda(args.key), args)


if __name__ == "__main__":
    main()
