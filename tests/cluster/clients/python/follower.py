"""Follows one namespace in the ways Python programs do, with the unmodified official library.

It reads KUBECONFIG and prints a line when everything follows. After a line "settle" on its standard
input, it waits until all copies hold the object "marker". Then it prints the copies.
"""

import collections
import json
import os
import sys
import threading
import time

from kubernetes import client, config, watch
from kubernetes.informer import informer

SETTLE_SECONDS = 120
# A resync of this library is a list.
RESYNC_SECONDS = 5


class Report:
    """What all followers counted and complained about."""

    def __init__(self):
        self._lock = threading.Lock()
        self.counts = collections.Counter()
        self.errors = []

    def count(self, what):
        with self._lock:
            self.counts[what] += 1

    def failed(self, who, error):
        with self._lock:
            self.errors.append(f"{who}: {type(error).__name__}: {error}")


class Informer:
    """The library's own informer."""

    def __init__(self, name, report, list_function, **selection):
        self._informer = informer.SharedInformer(
            list_function, resync_period=RESYNC_SECONDS, **selection)
        for event in (informer.ADDED, informer.MODIFIED, informer.DELETED):
            self._informer.add_event_handler(
                event, lambda _, event=event: report.count(f"informer {event.lower()}"))
        self._informer.add_event_handler(
            informer.ERROR, lambda error: report.failed(f"informer of {name}", error))
        self._informer.start()

    def held(self):
        objects = self._informer.cache.list()
        return {it.metadata.name: it.metadata.resource_version for it in objects}


class PlainWatch:
    """One list, and a stream from its version on; starts again when the stream gives up."""

    def __init__(self, name, report, list_function, **selection):
        self._name, self._report = name, report
        self._list, self._selection = list_function, selection
        self._held, self._lock = {}, threading.Lock()
        self.listed = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self):
        while True:
            try:
                self._follow_once()
            except Exception as error:  # whatever it is, it is told
                self._report.failed(f"watch of {self._name}", error)
                time.sleep(1)

    def _follow_once(self):
        listed = self._list(**self._selection)
        self._report.count("watch lists")
        with self._lock:
            self._held = {it.metadata.name: it.metadata.resource_version for it in listed.items}
        self.listed.set()
        version = listed.metadata.resource_version
        for event in watch.Watch().stream(self._list, resource_version=version, **self._selection):
            metadata = event["object"].metadata
            self._report.count(f"watch {event['type'].lower()}")
            with self._lock:
                if event["type"] == "DELETED":
                    del self._held[metadata.name]
                else:
                    self._held[metadata.name] = metadata.resource_version

    def held(self):
        with self._lock:
            return dict(self._held)


def main():
    namespace, _ = sys.argv[1:]
    config.load_kube_config()
    api, report = client.CoreV1Api(), Report()
    pods, maps = api.list_namespaced_pod, api.list_namespaced_config_map
    inside = {"namespace": namespace, "label_selector": "churn=in"}
    stream = PlainWatch("config maps in", report, maps, **inside)
    followers = {
        "pods@informer": Informer("pods", report, pods, namespace=namespace),
        "pods-in@informer": Informer("pods in", report, pods, **inside),
        "configmaps@informer": Informer("config maps", report, maps, namespace=namespace),
        "configmaps-in@watch": stream,
    }
    stream.listed.wait()
    while not all(follower.held() for follower in followers.values()):
        time.sleep(0.05)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline and not all(
            "marker" in follower.held() for follower in followers.values()):
        time.sleep(0.05)
    caches = {name: follower.held() for name, follower in followers.items()}
    print(json.dumps({"caches": caches, "counts": report.counts, "errors": report.errors}), flush=True)
    os._exit(0)


main()
