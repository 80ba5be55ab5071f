// SPDX-License-Identifier: Apache-2.0
// GET /api/operations as one would write it in Node: fastify, pg and ioredis, the same merge by the same rules
// (operations contract, section 3, staging entries). MODE=naive asks both stores for every poll; MODE=cached
// shares an answer for 200 ms. bench compares its JSON with ours before it measures.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const fastify = require('fastify')({ logger: false });
const { Pool } = require('pg');
const Redis = require('ioredis');

const { MODE, SOCKET, PG_HOST, REDIS_SOCKET, TOKEN_FILE } = process.env;

const pool = new Pool({ host: PG_HOST, user: 'weighbridge', database: 'weighbridge', max: 8, query_timeout: 1000 });
pool.on('error', () => {}); // without it a restarted Postgres ends the process
const redis = new Redis({ path: REDIS_SOCKET, commandTimeout: 1000, maxRetriesPerRequest: 1 });
redis.on('error', () => {});

const roles = new Map();
for (const line of fs.readFileSync(TOKEN_FILE, 'utf8').split('\n')) {
  const [hash, role] = line.split(' ');
  if (role) roles.set(hash, role);
}

const ROWS = {
  name: 'rows',
  text: `SELECT j.tracking_key AS key, j.state, coalesce(j.node_id, '') AS node_id, coalesce(j.node_name, '') AS node_name,
    coalesce(j.bytes_sent, 0)::float8 AS bytes_sent, coalesce(j.total_bytes, 0)::float8 AS total_bytes,
    coalesce(j.file_index, 0) AS file_index, coalesce(j.total_files, 0) AS total_files,
    coalesce(date_part('epoch', j.updated_at) * 1e6, 0) AS updated_us, coalesce(left(c.token_sha256, 16), '') AS claim,
    coalesce(greatest(j.last_progress, j.updated_at, j.created_at) < now() - interval '60 seconds', true) AS stale
    FROM model_load_jobs j
    LEFT JOIN load_job_claims c ON c.tracking_key = j.tracking_key AND c.claimed_created_at = j.created_at`,
};

function progressOf(sent, total, index, files) {
  const file = total > 0 ? (sent / total) * 100 : 0;
  const all = files > 1 && index >= 1 ? ((index - 1) * 100 + file) / files : file;
  return Math.min(100, Math.max(0, all));
}

const isText = (v) => v === undefined || typeof v === 'string';
const isCount = (v) => v === undefined || (Number.isSafeInteger(v) && v >= 0);

function parseOverlay(key, text) {
  let o;
  try {
    o = JSON.parse(text);
  } catch {
    return null;
  }
  if (o === null || typeof o !== 'object' || Array.isArray(o)) return null;
  if (![o.model_id, o.node_name, o.message, o.claim].every(isText)) return null;
  if (![o.bytes_sent, o.total_bytes, o.file_index, o.total_files, o.stamp].every(isCount)) return null;
  if (o.model_id !== undefined && o.model_id !== key) return null;
  const v = {
    nodeName: o.node_name ?? '', message: o.message ?? '', claim: o.claim ?? '', sent: o.bytes_sent ?? 0,
    total: o.total_bytes ?? 0, index: o.file_index ?? 0, files: o.total_files ?? 0, stamp: o.stamp ?? 0,
  };
  v.progress = o.progress ?? progressOf(v.sent, v.total, v.index, v.files);
  return typeof v.progress === 'number' && v.progress >= 0 && v.progress <= 100 ? v : null;
}

async function readOverlays() {
  const members = (await redis.zrange('wb:1:live', 0, -1)).filter((m) => m.startsWith('staging:'));
  const found = new Map();
  if (members.length === 0) return found;
  const values = await redis.mget(members.map((m) => 'wb:1:' + m));
  members.forEach((m, i) => {
    const key = m.slice('staging:'.length);
    const o = values[i] === null ? null : parseOverlay(key, values[i]);
    if (o) found.set(key, o);
  });
  return found;
}

// The row was written after the overlay, and it is further.
function rowIsFurther(row, o) {
  if (o.stamp <= 0 || row.updated_us <= o.stamp) return false;
  if (row.file_index !== o.index) return row.file_index > o.index;
  return progressOf(row.bytes_sent, row.total_bytes, row.file_index, row.total_files) > o.progress;
}

function entryOf(key, row, o) {
  const id = 'staging:' + key;
  const e = {
    id, jobID: id, name: key, fullName: key, progress: 0, taskType: 'staging', isDeletion: false, isBackend: false,
    isQueued: false, cancellable: false, message: o ? o.message : '',
  };
  let progress = row ? progressOf(row.bytes_sent, row.total_bytes, row.file_index, row.total_files) : 0;
  let [sent, total] = row ? [row.bytes_sent, row.total_bytes] : [0, 0];
  if (o && !(row && rowIsFurther(row, o))) [progress, sent, total] = [o.progress, o.sent, o.total];
  e.progress = Math.trunc(progress);
  if (row) e.nodeID = row.node_id;
  e.nodeName = o && (!row || o.nodeName) ? o.nodeName : row.node_name;
  if (row) e.phase = 'staging';
  e.currentBytes = sent;
  e.totalBytes = total;
  return e;
}

function byProgressThenId(a, b) {
  return a.progress - b.progress || Buffer.compare(Buffer.from(a.id), Buffer.from(b.id));
}

function merge(rows, overlays) {
  const out = [];
  for (const row of rows) {
    let o = overlays.get(row.key);
    overlays.delete(row.key);
    if (row.state === 'loading' || row.state === 'failed') continue;
    if (o && o.claim && o.claim !== row.claim) o = undefined;
    if (row.state === 'staging' && (o || !row.stale)) out.push(entryOf(row.key, row, o));
    else if (o) out.push(entryOf(row.key, null, o));
  }
  for (const [key, o] of overlays) if (!o.claim) out.push(entryOf(key, null, o));
  return out.sort(byProgressThenId);
}

async function build() {
  const [rows, overlays] = await Promise.all([pool.query(ROWS), readOverlays()]);
  const body = JSON.stringify({ operations: merge(rows.rows, overlays) });
  return { body, etag: '"' + crypto.createHash('sha1').update(body).digest('hex') + '"' };
}

let cached = null;
let cachedUntil = 0;
let building = null;

function shared() {
  if (cached && performance.now() < cachedUntil) return cached;
  if (!building) {
    building = build()
      .then((answer) => {
        cached = answer;
        cachedUntil = performance.now() + 200;
        return answer;
      })
      .finally(() => {
        building = null;
      });
  }
  return building;
}

function mayRead(request) {
  const header = request.headers.authorization ?? '';
  if (!header.startsWith('Bearer ')) return false;
  const role = roles.get(crypto.createHash('sha256').update(header.slice(7)).digest('hex'));
  return role === 'viewer' || role === 'worker' || role === 'admin';
}

fastify.get('/api/operations', async (request, reply) => {
  if (!mayRead(request)) return reply.code(401).send({ error: 'a token is needed' });
  let answer;
  try {
    answer = await (MODE === 'cached' ? shared() : build());
  } catch {
    return reply.code(503).header('retry-after', '1').send({ error: 'a store does not answer' });
  }
  reply.header('cache-control', 'no-cache').header('etag', answer.etag);
  if (request.headers['if-none-match'] === answer.etag) return reply.code(304).send();
  return reply.type('application/json').send(answer.body);
});

process.on('SIGTERM', () => process.exit(0));
fastify.listen({ path: SOCKET }).catch((error) => {
  console.error(error);
  process.exit(1);
});
