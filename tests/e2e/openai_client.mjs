// SPDX-License-Identifier: Apache-2.0
// What a program does with the `openai` package: node openai_client.mjs PACKAGE SCENE. Says what came of it in lines of JSON;
// test_openai_npm.py knows what should. The client is as it comes, retries included, but for more
// of them where it waits for an outage to end.
import { createRequire } from "node:module";

const [, , folder, scene] = process.argv;
const { OpenAI, toFile } = createRequire(folder + "/")("openai");
const say = (o) => console.log(JSON.stringify(o));
let calls = [];
const counting = async (url, init) => {
  const began = performance.now();
  const answer = await fetch(url, init);
  calls.push(answer.status);
  say({ call: answer.status, ms: performance.now() - began, at: performance.now() });
  return answer;
};
const client = (key, more) => new OpenAI({ baseURL: (process.env.WB_BATCH_BASE ?? process.env.WB_URL) + "/v1", apiKey: key, fetch: counting, ...more });
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
  // The embedded batch service, files and all.
  async service() {
    const ids = [..."abcdefg"];
    const lines = ids.map((id) => JSON.stringify({ custom_id: id, method: "POST", url: body.endpoint, body: { model: "m",
      messages: [{ role: "user", content: "say " + id }] } }) + "\n");
    const file = await submitter.files.create({ file: await toFile(Buffer.from(lines.join("")), "in.jsonl"), purpose: "batch",
      expires_after: { anchor: "created_at", seconds: 86400 } });
    const ready = await submitter.files.waitForProcessing(file.id, { pollInterval: 10, maxWait: 5000 });
    const back = await (await submitter.files.content(file.id)).text();
    let batch = await submitter.batches.create({ ...body, input_file_id: file.id });
    while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) batch = await submitter.batches.retrieve(batch.id);
    const output = (await (await submitter.files.content(batch.output_file_id)).text()).trim().split("\n").map((l) => JSON.parse(l));
    const listed = [];
    for await (const f of submitter.files.list({ limit: 1, order: "asc" })) listed.push(f.id);
    const refused = await outcome(() => submitter.batches.cancel(batch.id));
    const gone = await submitter.files.delete(file.id);
    const unknown = await outcome(() => submitter.files.retrieve(file.id));
    say({ file, ready, same: back === lines.join(""), batch, listed, gone, refused, unknown,
      said: Object.fromEntries(output.map((l) => [l.custom_id, l.response.body.choices[0].message.content])) });
  },
};
await scenes[scene]();
