package dev.listless.follower;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.FilterWatchListDeletable;
import io.fabric8.kubernetes.client.dsl.Resource;
import java.util.Map;
import java.util.TreeMap;

/** One list, and a watch() from its version on; starts again when the watch gives up. */
final class PlainWatch<T extends HasMetadata, L extends KubernetesResourceList<T>, R extends Resource<T>>
    implements Follower, Watcher<T> {
  private final String name;
  private final FilterWatchListDeletable<T, L, R> collection;
  private final Report report;
  private final Map<String, String> held = new TreeMap<>();

  PlainWatch(String name, FilterWatchListDeletable<T, L, R> collection, Report report) {
    this.name = name;
    this.collection = collection;
    this.report = report;
    begin();
  }

  private void begin() {
    L list = collection.list();
    report.count("watch lists");
    synchronized (held) {
      held.clear();
      for (T object : list.getItems()) {
        held.put(object.getMetadata().getName(), object.getMetadata().getResourceVersion());
      }
    }
    collection.withResourceVersion(list.getMetadata().getResourceVersion()).watch(this);
  }

  @Override
  public Map<String, String> held() {
    synchronized (held) {
      return new TreeMap<>(held);
    }
  }

  @Override
  public void eventReceived(Action action, T object) {
    report.count("watch " + action.name().toLowerCase());
    String key = object.getMetadata().getName();
    String version = object.getMetadata().getResourceVersion();
    synchronized (held) {
      switch (action) {
        case ADDED -> {
          if (held.put(key, version) != null) {
            report.failed("watch of " + name + ": added twice: " + key);
          }
        }
        case MODIFIED -> {
          if (held.put(key, version) == null) {
            report.failed("watch of " + name + ": modified before it was added: " + key);
          }
        }
        case DELETED -> {
          if (held.remove(key) == null) {
            report.failed("watch of " + name + ": deleted before it was added: " + key);
          }
        }
        default -> report.failed("watch of " + name + ": " + action + " " + object);
      }
    }
  }

  @Override
  public void onClose(WatcherException cause) {
    report.failed("watch of " + name, cause);
    Thread again = new Thread(this::begin);
    again.setDaemon(true);
    again.start();
  }
}
