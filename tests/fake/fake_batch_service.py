# SPDX-License-Identifier: Apache-2.0
"""Double of the batch service: OpenAI's /v1/batches and /v1/files as AIBrix' metadata service has them.

A batch goes on by one status for every look at it while "auto" is on (the default): scheduling, validating,
in_progress, finalizing, completed.

Orders (POST /_control): {"auto": BOOL}, {"dedupe": BOOL} by aibrix.job_id, {"total": N} requests of new batches,
{"batch": {ID: {FIELD: VALUE or null}}}, {"stale": {ID: N}} answers N looks with the batch as it was at its creation,
{"forget": [ID]}, {"counts": {ID: [TOTAL, COMPLETED, FAILED]}}."""
import copy
import re
import time
import uuid
from email.parser import BytesParser

from fake_api import Answer, Double, options, run

ENDPOINTS = ("/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/v1/rerank")
TARGETS = ("Kubernetes", "KubernetesJob", "LambdaCloud", "RunPod", "External")
EXTENSION = {"job_id", "model", "resource_allocation", "runtime", "model_template", "profile", "client"}
CLIENT = {"max_concurrency", "adaptive_concurrency", "adaptive_max_factor", "adaptive_healthy_window",
          "adaptive_additive_increase", "request_timeout_seconds", "retry_policy"}
NEXT = {"scheduling": "validating", "validating": "in_progress", "in_progress": "finalizing", "finalizing": "completed",
        "cancelling": "cancelled"}
ENDED = ("completed", "failed", "expired", "cancelled")
WINDOW = re.compile(r"^(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)(?:min|m))?$")
FILE_MAX = 100 << 20


def error(status, message, param=None, code=None):
    return Answer(status, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}},
                  {"X-Request-Id": "batch-request"})


def schema(place, message):
    """As FastAPI says that a body is not of the schema: in another shape than all other errors."""
    return Answer(422, {"detail": [{"loc": ["body", *place], "msg": message, "type": "value_error"}]})


def seconds(window):
    found = WINDOW.match(window.strip()) if isinstance(window, str) else None
    parts = [int(p or 0) for p in found.groups()] if found else [0]
    return parts[0] * 86400 + parts[1] * 3600 + parts[2] * 60 if found else 0


class Batches(Double):
    def __init__(self, token):
        super().__init__()
        self.token = token
        self.batches = {}  # in order of creation
        self.files = {}
        self.auto, self.dedupe, self.total = True, False, 10
        self.born, self.stale = {}, {}

    # --- orders ---

    def control(self, order):
        for name in ("auto", "dedupe", "total"):
            if name in order:
                setattr(self, name, order.pop(name))
        for key, fields in order.pop("batch", {}).items():
            self.batches[key].update(fields)
        for key, numbers in order.pop("counts", {}).items():
            self.batches[key]["request_counts"] = dict(zip(("total", "completed", "failed"), numbers))
        for key in order.pop("forget", []):
            del self.batches[key]
        self.stale.update(order.pop("stale", {}))

    def state(self):
        return {"batches": list(self.batches.values()), "files": sorted(self.files),
                "alive": sum(b["status"] not in ENDED for b in self.batches.values())}

    # --- the API ---

    def handle(self, call):
        if self.token and call.headers.get("Authorization") != "Bearer " + self.token:
            return error(401, f"Incorrect token provided: {call.headers.get('Authorization')}", code="authentication_error")
        parts = call.path.strip("/").split("/")
        if parts[:2] == ["v1", "batches"]:
            return self.batch_call(call, parts[2:])
        if parts[:2] == ["v1", "files"]:
            return self.file_call(call, parts[2:])
        return None

    def batch_call(self, call, rest):
        if not rest:
            return self.create(call.json()) if call.method == "POST" else self.list(call.query)
        batch = self.batches.get(rest[0])
        if batch is None:
            return error(404, f"No batch with id {rest[0]}.")
        if rest[1:] == ["cancel"] and call.method == "POST":
            return self.cancel(batch)
        if not rest[1:] and call.method == "GET":
            return self.retrieve(batch)
        return None

    def create(self, body):
        self.check(body)
        extension = body.get("aibrix") or {}
        if self.dedupe and extension.get("job_id"):
            for batch in self.batches.values():
                if (batch.get("aibrix") or {}).get("job_id") == extension["job_id"]:
                    return Answer(200, self.show(batch))
        now = int(time.time())
        window = body.get("completion_window", "24h")
        batch = {"id": f"batch_{uuid.uuid4()}", "object": "batch", "endpoint": body["endpoint"], "errors": None,
                 "input_file_id": body["input_file_id"], "completion_window": window, "status": "scheduling",
                 "created_at": now, "expires_at": now + seconds(window), "metadata": body.get("metadata"),
                 "aibrix": extension or None, "model": extension.get("model")}
        self.batches[batch["id"]] = batch
        self.born[batch["id"]] = copy.deepcopy(batch)
        return Answer(200, self.show(batch))

    @staticmethod
    def check(body):
        if not isinstance(body, dict):
            raise schema([], "value is not a valid dict")
        if not isinstance(body.get("input_file_id"), str):
            raise schema(["input_file_id"], "field required")
        if body.get("endpoint") not in ENDPOINTS:
            raise schema(["endpoint"], "value is not a valid enumeration member")
        if not seconds(body.get("completion_window", "24h")):
            raise error(400, "Invalid completion window.", "completion_window", "invalid_completion_window")
        metadata = body.get("metadata") or {}
        if len(metadata) > 16 or not all(isinstance(v, str) for v in metadata.values()):
            raise schema(["metadata"], "at most 16 texts")
        extension = body.get("aibrix") or {}
        for field in sorted(set(extension) - EXTENSION):
            raise schema(["aibrix", field], "extra fields not permitted")
        for field in sorted(set(extension.get("client") or {}) - CLIENT):
            raise schema(["aibrix", "client", field], "extra fields not permitted")
        target = (extension.get("runtime") or {}).get("target")
        if extension.get("runtime") and target not in TARGETS:
            raise error(400, f"Unknown runtime target '{target}'.")
        values = (extension.get("runtime") or {}).get("options") or {}
        if not all(isinstance(v, str) for v in values.values()):
            raise schema(["aibrix", "runtime", "options"], "str type expected")
        template = extension.get("model_template")
        if template and not template.get("spec"):
            raise error(400, f"Unknown model template '{template.get('name')}'.")
        for detail in (extension.get("resource_allocation") or {}).get("resource_details") or []:
            if set(detail) - {"gpu_type", "replica", "endpoint_cluster", "extra"}:
                raise schema(["aibrix", "resource_allocation"], "extra fields not permitted")

    def retrieve(self, batch):
        if self.stale.get(batch["id"], 0) > 0:
            self.stale[batch["id"]] -= 1
            return Answer(200, self.show(self.born[batch["id"]]))
        if self.auto:
            self.advance(batch)
        return Answer(200, self.show(batch))

    def advance(self, batch):
        following = NEXT.get(batch["status"])
        if not following:
            return
        batch["status"] = following
        batch[following + "_at"] = int(time.time())
        done = self.total if following in ("finalizing", "completed") else self.total // 2
        if following in ("in_progress", "finalizing", "completed") and self.total:
            batch["request_counts"] = {"total": self.total, "completed": done, "failed": 0}
            batch["usage"] = {"input_tokens": 10 * done, "output_tokens": 20 * done, "total_tokens": 30 * done,
                              "input_tokens_details": {"cached_tokens": done},
                              "output_tokens_details": {"reasoning_tokens": 0}}
        if following == "completed":
            batch["output_file_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, batch["id"]))

    def cancel(self, batch):
        if batch["status"] in (*ENDED, "finalizing"):
            return error(409, f"Cannot cancel a batch with status '{batch['status']}'.", code="cancel_rejected")
        if batch["status"] != "cancelling":
            batch.update(status="cancelling", cancelling_at=int(time.time()))
        return Answer(200, self.show(batch))

    def list(self, query):
        return self.page(query, [self.show(b) for b in reversed(self.batches.values())])

    @staticmethod
    def page(query, newest):
        limit = query.get("limit", "20")
        if not re.fullmatch(r"[0-9]+", limit) or not 1 <= int(limit) <= 100:
            return schema(["limit"], "must be from 1 to 100")
        if query.get("after"):
            places = [i for i, b in enumerate(newest) if b["id"] == query["after"]]
            newest = newest[places[0] + 1:] if places else []
        page = newest[:int(limit)]
        return Answer(200, {"object": "list", "data": page, "has_more": len(newest) > len(page),
                            "first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None})

    @staticmethod
    def show(batch):
        return {k: v for k, v in batch.items() if v is not None}

    # --- files ---

    def file_call(self, call, rest):
        if not rest:
            return self.upload(call) if call.method == "POST" else self.page(
                call.query, [f for f, _ in reversed(self.files.values()) if call.query.get("purpose", "batch") == f["purpose"]])
        if rest[0] not in self.files:
            return error(404, f"No file with id {rest[0]}.")
        entry, data = self.files[rest[0]]
        if rest[1:] == ["content"]:
            return Answer(200, data)
        if call.method == "DELETE":
            del self.files[rest[0]]
            return Answer(200, {"id": rest[0], "object": "file", "deleted": True})
        return Answer(200, entry)

    def upload(self, call):
        head = f"Content-Type: {call.headers.get('Content-Type')}\r\n\r\n".encode()
        form = {part.get_param("name", header="content-disposition"): part
                for part in BytesParser().parsebytes(head + call.raw).walk() if not part.is_multipart()}
        if "file" not in form:
            return schema(["file"], "field required")
        data = form["file"].get_payload(decode=True)
        name = form["file"].get_filename() or ""
        if not name.endswith((".json", ".jsonl")):
            return error(400, "Invalid file format.", "file")
        if len(data) > FILE_MAX:
            return error(413, "File too large.", "file", "content_size_limit_exceeded")
        key = str(uuid.uuid4())
        entry = {"id": key, "object": "file", "bytes": len(data), "created_at": int(time.time()), "filename": name,
                 "purpose": "batch", "status": "uploaded"}
        self.files[key] = (entry, data)
        return Answer(200, entry)


def main():
    parser = options(__doc__)
    parser.add_argument("--token", default="")
    args = parser.parse_args()
    run(Batches(args.token), args)


if __name__ == "__main__":
    main()
