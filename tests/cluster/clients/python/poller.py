"""Polls with the official Python client: the pods of a namespace, and one of them by its name.

Arguments: NAMESPACE POD PERIOD_SECONDS. Each line of standard input is answered with a line of JSON, the tally
so far. The program ends with its standard input.
"""

import json
import sys
import threading
import time

from kubernetes import client, config


def main():
    namespace, pod, period = sys.argv[1], sys.argv[2], float(sys.argv[3])
    config.load_kube_config()
    api = client.CoreV1Api()
    tally = {"operations": 0, "cycles": 0, "periodSeconds": period, "jitter": 0, "errors": []}

    def poll():
        while True:
            tally["cycles"] += 1
            try:
                api.list_namespaced_pod(namespace)
                api.read_namespaced_pod(pod, namespace)
                tally["operations"] += 2
            except Exception as error:  # any failure is the finding
                tally["errors"].append(str(error)[:300])
            time.sleep(period)

    threading.Thread(target=poll, daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps(tally), flush=True)


main()
