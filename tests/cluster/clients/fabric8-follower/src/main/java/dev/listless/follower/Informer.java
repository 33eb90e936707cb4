package dev.listless.follower;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.Informable;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/** A SharedIndexInformer with a resync, as operators run it. */
final class Informer<T extends HasMetadata> implements Follower, ResourceEventHandler<T> {
  private static final long RESYNC_MILLIS = 2000;

  private final Report report;
  private final SharedIndexInformer<T> informer;

  /** Returns once the informer holds its first list. */
  Informer(String name, Informable<T> collection, Report report) {
    this.report = report;
    informer = collection.runnableInformer(RESYNC_MILLIS);
    informer.addEventHandler(this);
    // The same decision as the default, but reported.
    informer.exceptionHandler((started, failure) -> {
      report.failed("informer of " + name, failure);
      return started && !(failure instanceof WatcherException);
    });
    informer.run();
  }

  @Override
  public Map<String, String> held() {
    Map<String, String> held = new TreeMap<>();
    for (T object : informer.getStore().list()) {
      held.put(object.getMetadata().getName(), object.getMetadata().getResourceVersion());
    }
    return held;
  }

  @Override
  public void onAdd(T object) {
    report.count("informer added");
  }

  @Override
  public void onUpdate(T old, T object) {
    boolean same = Objects.equals(
        old.getMetadata().getResourceVersion(), object.getMetadata().getResourceVersion());
    report.count(same ? "informer resynced" : "informer updated");
  }

  @Override
  public void onDelete(T object, boolean finalStateUnknown) {
    report.count(finalStateUnknown ? "informer missed a deletion" : "informer deleted");
  }
}
