// A report with any number of rows, in the form of `GET /api/v1/report`.

export const HOSTILE = '</script><img src=x onerror="window.hurt=1"><b>agent</b>';

const AGENTS = [
  ["fabric8-kubernetes-client/7.6.1", "fabric8"],
  ["manager/v0.0.0 (linux/amd64) kubernetes/$Format", "controller-runtime"],
  [HOSTILE, "unknown"],
  ["statefulset-operator/1.4 (linux/amd64) kubernetes/$Format", "client-go"],
  ["kubectl/v1.36.3 (linux/amd64) kubernetes/0123456", "kubectl"],
  ["Kubernetes Java Client/27.0.0-SNAPSHOT", "unknown"],
];

const KINDS = [
  ["list", "pods.v1", "namespace", "labelSelector=app"],
  ["list", "pods.v1", "cluster", "fieldSelector=spec.nodeName"],
  ["get", "deployments.v1.apps", "object", ""],
  ["watch", "configmaps.v1", "namespace", "allowWatchBookmarks"],
];

const PATTERNS = [
  ["quorum-list-polling", "Polls with consistent LISTs"],
  ["unpaginated-list", "Lists everything at once"],
  ["object-polling", "Polls one object"],
  ["resync-storm", "Resyncs everything at once"],
];

function poll(index) {
  const [userAgent] = AGENTS[index % AGENTS.length];
  const [verb, resource, scope, query] = KINDS[index % KINDS.length];
  const requests = Math.ceil(100000 / (index + 1));
  const cache = Math.floor(requests * 0.9);
  return {
    userAgent: index < AGENTS.length ? userAgent : `agent-${index} ${userAgent}`,
    verb, resource, scope, query, requests,
    ratePerSecond: requests / 3000,
    periodSeconds: index % 3 === 2 ? null : 3 * (1 + (index % 10)),
    jitter: index % 3 === 2 ? null : 0.04,
    bytes: requests * 4096,
    unchangedShare: index % 4 === 3 ? null : 0.97,
    clients: 1 + (index % 20),
    answers: { cache, coalesced: 2, upstream: requests - cache - 2, proxy: 0 },
    reasons: { "not-demanded": 2 },
    saved: { requests: cache, bytes: cache * 4096 },
    wouldSave: { requests: 0 },
    cost: { apiserverCpuSeconds: requests * 0.0004, etcdCpuSeconds: requests * 0.00005 },
    risk: ["high", "medium", "low", "none"][index % 4],
    findings: index % 4 === 3 ? [] : [PATTERNS[index % 4][0]],
  };
}

function finding(index) {
  const { userAgent, verb, resource, scope, query, periodSeconds, requests } = poll(index);
  const [id, title] = PATTERNS[index % PATTERNS.length];
  return {
    id, title, userAgent, library: AGENTS[index % AGENTS.length][1], verb, resource, scope, query,
    periodSeconds,
    evidence: `${requests} LISTs in 50 minutes over 20 connections; 97 % of the answers were the same `
      + "as the one before.",
    fix: "Replace the timer by an informer, which lists once and then watches:\n\n"
      + "  client.pods().withLabel(\"app\", \"web\").inform(handler)",
  };
}

export function report(rows) {
  const each = (length, make) => Array.from({ length }, (_, index) => make(index));
  return {
    mode: "enforce", version: "0.1.0", upSeconds: 3000,
    totals: {
      requests: rows * 1000, fromMemory: rows * 900, coalesced: 0, paced: 0, refused: 0,
      forwarded: rows * 100, failed: 0, upstreamRequests: rows * 100, savedRequests: rows * 900,
      savedBytes: rows * 1e6, wouldSaveRequests: 0,
      estimate: { apiserverCpuSeconds: rows * 4, etcdCpuSeconds: rows / 2, formula: "saved LISTs × measured cost" },
    },
    polls: each(rows, poll),
    findings: each(Math.min(rows, 40), finding),
    reasons: rows === 0 ? [] : [{
      reason: "not-demanded", requests: rows * 2, meaning: "No replica yet: the read has not repeated.",
      remedy: `Wait for \`the second\` read. ${HOSTILE}`, configuration: "cache.rules[].start",
    }],
    others: { requests: rows > 1000 ? 4211 : 0 },
  };
}
