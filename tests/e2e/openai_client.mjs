// SPDX-License-Identifier: Apache-2.0
// What a program does with the `openai` package: node openai_client.mjs PACKAGE SCENE. Says what came of it in lines of JSON;
// test_openai_npm.py knows what should. The client is as it comes, retries included, but for more
// of them where it waits for an outage to end.
import { createRequire } from "node:module";

const [, , folder, scene] = process.argv;
const { OpenAI } = createRequire(folder + "/")("openai");
const say = (o) => console.log(JSON.stringify(o));
let calls = [];
const counting = async (url, init) => {
  const began = performance.now();
  const answer = await fetch(url, init);
  calls.push(answer.status);
  say({ call: answer.status, ms: performance.now() - began, at: performance.now() });
  return answer;
};
const client = (key, more) => new OpenAI({ baseURL: process.env.WB_URL + "/v1", apiKey: key, fetch: counting, ...more });
const submitter = client(process.env.WB_SUBMITTER_TOKEN);
const body = { input_file_id: "file-1", endpoint: "/v1/chat/completions", completion_window: "24h" };

// What a call gave, or how it failed, and the statuses of all its attempts.
async function outcome(call) {
  calls = [];
  try {
    return { value: await call(), calls };
  } catch (e) {
    return { error: e.constructor.name, status: e.status, message: e.message, code: e.code, param: e.param, type: e.type, calls };
  }
}

const scenes = {
  async life() {
    const made = await submitter.batches.create({ ...body, metadata: { run: "7" } });
    const got = await submitter.batches.retrieve(made.id);
    const cancelled = await submitter.batches.cancel(made.id);
    const again = await outcome(() => submitter.batches.cancel(made.id));
    say({ made, got, cancelled, again });
  },
  async paging() {
    const made = [];
    for (let i = 0; i < 7; i++) made.push((await submitter.batches.create({ ...body, metadata: { n: String(i) } })).id);
    const seen = [];
    for await (const batch of submitter.batches.list({ limit: 3 })) seen.push(batch.id);
    const page = await submitter.batches.list({ limit: 3 });
    const second = await page.getNextPage();
    say({ made, seen, first: page.data.map((b) => b.id), second: second.data.map((b) => b.id), more: page.hasNextPage() });
  },
  async errors() {
    const viewer = client(process.env.WB_VIEWER_TOKEN);
    say({
      unknown: await outcome(() => submitter.batches.retrieve("batch_unknown")),
      refused: await outcome(() => submitter.batches.create({ ...body, endpoint: "/v1/nothing" })),
      stranger: await outcome(() => client("nobody").batches.list()),
      reader: await outcome(() => viewer.batches.create(body)),
    });
  },
  async idempotency() {
    const with_key = (b) => () => submitter.batches.create(b, { headers: { "Idempotency-Key": "one-of-a-kind" } });
    say({
      first: await outcome(with_key(body)),
      same: await outcome(with_key(body)),
      other: await outcome(with_key({ ...body, completion_window: "48h" })),
    });
  },
  async list() {
    const patient = client(process.env.WB_SUBMITTER_TOKEN, { maxRetries: 20 });
    say({ done: await outcome(() => patient.batches.list({ limit: 1 })) });
  },
};
await scenes[scene]();
