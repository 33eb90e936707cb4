// Follows one namespace as JavaScript programs do, with the unmodified official library.
//
// It reads KUBECONFIG and prints a line when everything follows. After a line `settle` at its
// standard input, it waits until all copies hold the object `marker`. Then it prints the copies.

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoreV1Api, KubeConfig, makeInformer } from '@kubernetes/client-node';

const SETTLE_MILLIS = 120_000;
const RESTART_MILLIS = 1000;

const [namespace] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(CoreV1Api);

const counts = {};
const errors = [];
const count = (what) => { counts[what] = (counts[what] ?? 0) + 1; };

async function follow(name, resource, list, labelSelector) {
  const path = `/api/v1/namespaces/${namespace}/${resource}`;
  const informer = makeInformer(config, path, () => list({ namespace, labelSelector }), labelSelector);
  for (const event of ['add', 'update', 'delete', 'connect']) {
    informer.on(event, () => count(event));
  }
  // The library's own example does the same.
  informer.on('error', (error) => {
    errors.push(`informer of ${name}: ${error}`);
    setTimeout(() => informer.start(), RESTART_MILLIS);
  });
  await informer.start();
  return () => Object.fromEntries(
    informer.list().map((object) => [object.metadata.name, object.metadata.resourceVersion]));
}

const pods = (options) => api.listNamespacedPod(options);
const maps = (options) => api.listNamespacedConfigMap(options);
const followers = {
  'pods@informer': await follow('pods', 'pods', pods),
  'pods-in@informer': await follow('pods in', 'pods', pods, 'churn=in'),
  'configmaps@informer': await follow('config maps', 'configmaps', maps),
  'configmaps-in@informer': await follow('config maps in', 'configmaps', maps, 'churn=in'),
};
console.log(JSON.stringify({ ready: true }));
await once(process.stdin, 'data');
const deadline = Date.now() + SETTLE_MILLIS;
while (Date.now() < deadline && !Object.values(followers).every((held) => 'marker' in held())) {
  await sleep(50);
}
const caches = Object.fromEntries(
  Object.entries(followers).map(([name, held]) => [name, held()]));
process.stdout.write(`${JSON.stringify({ caches, counts, errors })}\n`, () => process.exit(0));
