# SPDX-License-Identifier: Apache-2.0
"""The embedded batch service with runners started by hand, and the double of an inference server."""
import json

import pytest
import requests

from conftest import HANG_S, wait_until
from planning import Double, Planner

PREFIX = "/batch-service/v1"
ENDED = ("completed", "failed", "expired", "cancelled")


class Runner(Planner):
    """weighbridge-batch as one process, without a supervisor that would start it again."""
    program = "weighbridge-batch"
    quick = {"WB_BATCH_LEASE_MS": "1500", "WB_BATCH_CHECKPOINT_MS": "100", "WB_BATCH_STOP_WAIT_MS": "2000",
             "WB_BATCH_RETRY_BASE_MS": "20", "WB_BATCH_RETRY_CAP_MS": "100"}


def line(i, endpoint="/v1/chat/completions", **body):
    text = f"line {i}"
    inputs = {"/v1/chat/completions": {"messages": [{"role": "user", "content": text}]}, "/v1/completions": {"prompt": text},
              "/v1/embeddings": {"input": text}}[endpoint]
    return {"custom_id": f"id-{i}", "method": "POST", "url": endpoint, "body": {"model": "m", **inputs, **body}}


def jsonl(lines):
    return "".join(json.dumps(x) + "\n" for x in lines)


class Service:
    """What a caller of the service does. role: whose token."""

    def __init__(self, stack, upstream):
        self.stack, self.upstream = stack, upstream

    def call(self, method, path, body=None, token="submitter", **kw):
        return self.stack.call(method, PREFIX + path, body, token=token, **kw)

    def upload(self, text, name="in.jsonl", token="submitter", **fields):
        headers = {"Authorization": "Bearer " + self.stack.env[f"WB_{token.upper()}_TOKEN"]}
        return requests.post(self.stack.url + PREFIX + "/files", headers=headers, data={"purpose": "batch", **fields},
                             files={"file": (name, text)}, timeout=HANG_S)

    def file(self, lines):
        answer = self.upload(jsonl(lines))
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    def create(self, file, endpoint="/v1/chat/completions", **fields):
        return self.call("POST", "/batches", {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", **fields})

    def batch(self, lines, **fields):
        answer = self.create(self.file(lines), **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    def get(self, batch):
        answer = self.call("GET", "/batches/" + batch)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, batch, *status):
        def there():
            now = self.get(batch)
            assert now["status"] not in ENDED or now["status"] in status, now
            return now["status"] in status and now
        return wait_until(there, f"{batch} in {status}")

    def content(self, file):
        answer = self.call("GET", f"/files/{file}/content")
        assert answer.status_code == 200, answer.text
        return answer.content.decode()

    def results(self, file):
        return [json.loads(x) for x in self.content(file).removesuffix("\n").split("\n")]

    def outputs(self, batch):
        """custom_id: what was said, of the output file, each once."""
        lines = self.results(self.get(batch)["output_file_id"])
        said = {x["custom_id"]: x["response"]["body"]["choices"][0]["message"]["content"] for x in lines}
        assert len(said) == len(lines)
        return said

    def errors(self, batch):
        lines = self.results(self.get(batch)["error_file_id"])
        assert len({x["custom_id"] for x in lines}) == len(lines)
        return {x["custom_id"]: x for x in lines}

    def contents(self):
        return list((self.stack.var / "content" / "files").glob("*/file-*"))

    def runner(self, **env):
        return Runner(self.stack, **{"WB_BATCH_UPSTREAM": self.upstream.url, **env})


@pytest.fixture(scope="module")
def _batches(_stack):
    _stack.dev("start", "batches")
    upstream = Double("inference")
    try:
        yield Service(_stack, upstream)
    finally:
        upstream.close()
        _stack.dev("stop", "batches")


@pytest.fixture
def service(_batches):
    """With nothing in it."""
    _batches.stack.sql("TRUNCATE batch, batch_file, batch_segment")
    for content in _batches.contents():
        content.unlink()
    _batches.upstream.order(clear=True, latency_ms=0, forget=True)
    yield _batches
    _batches.upstream.order(clear=True, latency_ms=0)
